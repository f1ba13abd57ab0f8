"""Loop nests: which axes are run through as one, along which one vectors lie, what is written out."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from recollect.engines.compiler import affine
from recollect.engines.compiler.affine import Index
from recollect.engines.compiler.elements import Elements, Place, source
from recollect.engines.compiler.graph import OPAQUE, VIEWS, Node
from recollect.engines.compiler.plan import Plan, same_places
from recollect.engines.compiler.values import VECTOR, Buffer, Value
from recollect.engines.compiler.writer import Writer


class Nests:
    """Memory and loops that everything else is made of."""

    def __init__(self, writer: Writer):
        self.w = writer
        self.buffers: dict[int, Buffer] = {}
        self.scalars: dict[int, Value] = {}
        self.e = Elements(writer, self.buffers, self.scalars)
        self.targets: dict[int, Buffer] = {}
        self.f = self.e.f
        self.scratch: list[tuple[str, int]] = []  # pointer and bytes of arrays outside the stack
        self.several: dict[int, list[Buffer]] = {}  # the results of a sort or a loop
        self.saved: dict[int, tuple[Node, Buffer]] = {}  # written over a leaf, whose old values are put aside there
        self.going: Value | None = None  # in a loop that not all lanes are in: those that are
        self.plan: Plan

    def allocate(self, size: int, kind: str, shared: bool = False) -> Buffer:
        """Memory for an array of this step; ``shared``: one for all lanes."""
        buffer, needed = self.w.array(size, kind, shared)
        if needed:
            self.scratch.append((buffer.pointer, needed))
        return buffer

    def place_for(self, n: Node) -> Buffer:
        """The buffer a stored node is written to."""
        return self.targets.get(n.id) or self.allocate(n.size, n.dtype)

    def accesses(self, nodes: Sequence[tuple[Node, Place]]) -> list[tuple[Index, bool]]:
        """The places in memory that elements read, and whether each is computed (so that axes must stay apart)."""
        found: list[tuple[Index, bool]] = []
        seen: set[tuple[int, Place]] = set()
        members = {n.id for n, _ in nodes}

        def visit(n: Node, at: Place) -> None:
            if (n.id, at) in seen or n.shape == ():
                return
            seen.add((n.id, at))
            if n.op == "const" or n.id in self.buffers or (self.plan.stored.get(n.id) and n.id not in members):
                if n.op != "const" or n.size > 1:
                    found.append((affine.linear(n.shape, at), False))
                return
            inside(n, at)

        def inside(n: Node, at: Place) -> None:
            if n.op == "reshape" and not same_places(n):
                found.append((affine.linear(n.shape, at), False))
            elif n.op in VIEWS:
                visit(n.ins[0], source(n, at))
            elif n.op == "reduce":
                inner = self._inner(n, at, [affine.ZERO] * len(n.params[1]))
                for i in n.ins:
                    visit(i, inner)
            elif n.op in OPAQUE:
                found.extend((i, True) for i in at)
                if n.op in ("scatter", "dynamic_update_slice"):
                    visit(n.ins[0], at)
            else:
                for i in n.ins:
                    visit(i, at)

        for n, at in nodes:
            inside(n, at)
        return found

    def merged(
        self, shape: Sequence[int], trace: Callable[[Place], list[tuple[Index, bool]]], rows: bool = False
    ) -> list[tuple[int, ...]]:
        """Neighbouring axes that every access runs through as one: groups of axes, outermost first.

        ``rows``: the last axis stays alone.
        """
        names = [f"%axis{d}" for d in range(len(shape))]
        found = trace(tuple(affine.variable(v) for v in names))
        groups: list[tuple[int, ...]] = []
        for d in range(len(shape)):
            last = next((k for k in reversed(groups[-1]) if shape[k] > 1), groups[-1][-1]) if groups else None
            alone = rows and d == len(shape) - 1
            if last is not None and not alone and self._joins(found, names, shape, last, d):
                groups[-1] = (*groups[-1], d)
            else:
                groups.append((d,))
        return groups

    def _joins(self, found: list, names: list[str], shape: Sequence[int], a: int, b: int) -> bool:
        if shape[a] == 1 or shape[b] == 1:
            return True
        for place, computed in found:
            outer, inner = affine.factor(place, names[a]), affine.factor(place, names[b])
            if outer != inner * shape[b] or (computed and (outer or inner)):
                return False
        return True

    @staticmethod
    def spread(shape: Sequence[int], groups: Sequence[tuple[int, ...]], variables: Sequence[Index]) -> Place:
        """Places of all axes from one variable a group: its last long axis carries it all."""
        at = [affine.ZERO] * len(shape)
        for group, v in zip(groups, variables, strict=True):
            carrier = next((d for d in reversed(group) if shape[d] > 1), group[-1])
            at[carrier] = v
        return tuple(at)

    def along(self, sizes: Sequence[int]) -> int:
        """The axis that vectors lie along: the last, or where that is all the same the one with the fewest of them."""
        if not self.w.strided:
            return len(sizes) - 1
        total = math.prod(sizes)
        return min(reversed(range(len(sizes))), key=lambda d: total // max(1, sizes[d]) * -(-sizes[d] // VECTOR))

    def vector_loops(
        self,
        sizes: Sequence[int],
        body: Callable[[list[Index]], None],
        axis: int,
        cost: float = 8,
        rows: bool = False,
    ) -> None:
        """Loops over all sizes but one, and vectors along it, the last of them masked.

        ``rows``: whether sums are taken, so that one row must come after the other.
        """
        if self.w.strided and not (rows and len(sizes) > 1 and sizes[axis] > VECTOR):
            self._vectors_first(sizes, axis, body, cost)
        else:
            self._vectors_last(sizes, axis, body)

    @contextmanager
    def nest(self, sizes: Sequence[int]) -> Iterator[list[Index]]:
        """Loops inside one another, the first the outermost."""
        with ExitStack() as stack:
            yield [stack.enter_context(self.w.loop(size)) for size in sizes]

    def _vectors_last(self, sizes: Sequence[int], axis: int, body: Callable) -> None:
        w = self.w
        count = sizes[axis]
        whole = count - count % VECTOR
        with self.nest([*sizes[:axis], *sizes[axis + 1 :]]) as outer:

            def one(at: Index) -> None:
                body([*outer[:axis], at, *outer[axis:]])
                w.settle()

            if whole:
                with w.loop(whole, VECTOR, vector=True) as i:
                    one(i)
            if count % VECTOR:
                with w.loop(1, vector=True, mask=w.ramp(count % VECTOR)) as i:
                    one(affine.add(i, affine.number(whole)))

    def _vectors_first(self, sizes: Sequence[int], axis: int, body: Callable, cost: float) -> None:
        """The other loops inside, a few turns at once: what only depends on the place in the vector is loaded once."""
        w, count, rest = self.w, sizes[axis], [s for d, s in enumerate(sizes) if d != axis]
        whole = count - count % VECTOR

        def all_of(at: Index) -> None:
            self.loops(rest or [1], lambda v: body([*v[:axis], at, *v[axis:]] if rest else [at]), cost)

        limit, most = w.written_out
        several = range(min(most, whole // VECTOR), 0, -1) if not rest else (1,)
        chunk = next((c for c in several if whole // VECTOR % c == 0 and c * cost <= limit), 1)
        if whole:
            with w.loop(whole, VECTOR * chunk, vector=True) as i:
                for c in range(chunk):
                    at = affine.add(i, affine.number(c * VECTOR))
                    body([at]) if chunk > 1 else all_of(at)
                w.settle()
        if count % VECTOR:
            with w.loop(1, vector=True, mask=w.ramp(count % VECTOR)) as i:
                all_of(affine.add(i, affine.number(whole)))

    def loops(self, sizes: Sequence[int], body: Callable[[list[Index]], None], cost: float) -> None:
        """Loops over all sizes; small inner ones are written out."""
        limit, most = self.w.written_out
        total = math.prod(sizes)
        if total == 1 or (total <= 16 and total * cost <= limit):
            self._written_out(sizes, [], body)
            self.w.settle()
            return
        cut, inner = len(sizes), 1
        while cut > 1 and inner * sizes[cut - 1] <= 16 and inner * sizes[cut - 1] * cost <= limit:
            cut -= 1
            inner *= sizes[cut]
        chunk = 1
        if inner == 1:
            last = sizes[cut - 1]
            few = range(min(most, last - 1), 1, -1)
            chunk = next((c for c in few if last % c == 0 and c * cost <= limit), 1)
        self._nested(list(sizes), cut, chunk, [], body)

    def _nested(self, sizes: list[int], cut: int, chunk: int, done: list[Index], body: Callable) -> None:
        d = len(done)
        if d == cut:
            self._written_out(sizes[cut:], done, body)
            return
        step = chunk if d == cut - 1 else 1
        with self.w.loop(sizes[d], step) as i:
            for c in range(step):
                self._nested(sizes, cut, chunk, [*done, affine.add(i, affine.number(c))], body)
            self.w.settle()

    def _written_out(self, sizes: Sequence[int], done: list[Index], body: Callable) -> None:
        for places in itertools.product(*map(range, sizes)):
            body([*done, *map(affine.number, places)])

    def each(self, sizes: Sequence[int], body: Callable[[list[Index]], None], cost: float) -> None:
        """Loops over all elements of an array, by vectors where a single run has enough of them."""
        axis = self.along(sizes)
        if self.w.lanes == 1 and sizes[axis] >= self.w.least:
            self.vector_loops(sizes, body, axis)
        else:
            self.loops(sizes, body, cost)

    def fill(self, buffer: Buffer, n: Node) -> None:
        """Copy all elements of a node into memory."""
        if n.shape == ():
            self.w.store(buffer, affine.ZERO, self.e.at(n, ()))
            return
        body = lambda v: self.w.store(buffer, affine.linear(n.shape, v), self.e.at(n, tuple(v)))  # noqa: E731
        self.each(n.shape, body, self.plan.cost.get(n.id, 1.0) + 1)

    def _copy(self, start: Buffer, end: Buffer, size: int) -> None:
        self.each([size], lambda v: self.w.store(end, v[0], self.w.load(start, v[0])), 2)

    def _inner(self, n: Node, at: Place, along: Sequence[Index]) -> Place:
        kept, summed = iter(at), iter(along)
        axes = n.params[1]
        return tuple(next(summed) if d in axes else next(kept) for d in range(len(n.ins[0].shape)))

    def _trace(self, n: Node, at: Place) -> list[tuple[Index, bool]]:
        return self.accesses([(Node("use", (n,), n.shape, n.dtype), at)])  # whatever reads an element of ``n``
