"""Reductions in a fixed order: one sum after another, or partial sums side by side that are added as a tree."""

import functools
import math
from collections.abc import Callable, Sequence

from recollect.engines.compiler import affine
from recollect.engines.compiler.affine import Index
from recollect.engines.compiler.elements import Place
from recollect.engines.compiler.graph import PARTS, Node, starts_anew
from recollect.engines.compiler.nests import Nests
from recollect.engines.compiler.values import STORED, VECTOR, Buffer, Value
from recollect.engines.compiler.writer import Writer

IDENTITY = {"sum": 0, "prod": 1, "and": 1, "or": 0}

JAM, SCALARS = 4, 16
"""Vectors, and scalars, of one reduction that are under way at once, so that none waits for the one before."""

ROWS, LARGE = 4, 1 << 13
"""Rows of a product of matrices at once, and from how many elements of the factor that they share it pays."""


class Reductions(Nests):
    """Reductions, stored or where they are needed."""

    def __init__(self, writer: Writer):
        super().__init__(writer)
        self.e.reduce_at = self.reduce_at

    def _neutral(self, n: Node) -> Value:
        kind = n.params[0]
        if kind in IDENTITY:
            value = IDENTITY[kind]
            return self.w.const(n.dtype, bool(value) if n.dtype == "b" else -1 if kind == "and" else value)
        low = {"f": -math.inf, "i": -(2**31), "u": 0, "b": False}
        high = {"f": math.inf, "i": 2**31 - 1, "u": 2**32 - 1, "b": True}
        return self.w.const(n.dtype, (low if kind == "max" else high)[n.dtype])

    def beginning(self, n: Node, wide: bool) -> str:
        """A slot that holds a reduction of nothing yet."""
        slot, neutral = self.w.slot(n.dtype, wide), self._neutral(n)
        self.w.put(slot, self.w.widen(neutral) if wide else neutral)
        return slot

    def continued(self, slot: str, n: Node, at: Place, wide: bool, mask: str | None = None) -> None:
        """One more element for the reduction that a slot holds, where ``mask`` holds."""
        old = self.w.get(slot, n.dtype, wide)
        new = self.accumulate(n, old, at)
        if mask:
            new = self.w.choose(Value(mask, "b", True), new, old)
        self.w.put(slot, self.w.widen(new) if wide else new)

    def accumulate(self, n: Node, so_far: Value, at: Place) -> Value:
        """A reduction with one more element."""
        values = [self.e.at(i, at) for i in n.ins]
        if len(values) == 2:
            return self.f.fma(values[0], values[1], so_far)
        return self.f.combine(n.params[0], so_far, values[0])

    def _reduced(self, n: Node) -> list[int]:
        return [n.ins[0].shape[a] for a in n.params[1]]

    def reduce_at(self, n: Node, at: Place) -> Value:
        """One element of a reduction, by a loop where it is needed."""
        return self.reduce_many(n, [at])[0]

    def reduce_many(self, n: Node, places: list[Place]) -> list[Value]:
        """Several elements of a reduction in one loop, in the order that the node names."""
        w, sizes = self.w, self._reduced(n)
        if n.params[2]:
            return self._in_parts(n, places)
        wide = w.lanes > 1 or w.scope.vector is not None
        slots = [self.beginning(n, wide) for _ in places]
        groups = self.merged(sizes, lambda along: self._reads(n, places, along))
        counts = [math.prod(sizes[d] for d in g) for g in groups]

        def body(variables: list[Index]) -> None:
            along = self.spread(sizes, groups, variables)
            for slot, at in zip(slots, places, strict=True):
                self.continued(slot, n, self._inner(n, at, along), wide)

        cost = (sum(self.plan.cost.get(i.id, 1.0) for i in n.ins) + 1) * len(places)
        self.loops(counts, body, cost)
        return [w.get(slot, n.dtype, wide) for slot in slots]

    def _in_parts(self, n: Node, places: list[Place]) -> list[Value]:
        """Sums as `PARTS` sums side by side, which are added as a tree."""
        w, sizes = self.w, self._reduced(n)
        groups = self.merged(sizes, lambda along: self._reads(n, places, along), starts_anew(sizes))
        counts = [math.prod(sizes[d] for d in g) for g in groups]
        if len(counts) > 1 and counts[-1] % PARTS and not starts_anew(sizes):
            return [self._in_parts_slowly(n, at) for at in places]
        if w.lanes == 1 and w.scope.vector is None:
            return self._in_parts_along(n, places, sizes, groups, counts)
        slots = [[self.beginning(n, True) for _ in range(PARTS)] for _ in places]
        whole = counts[-1] - counts[-1] % PARTS

        def step(outer: list[Index], first: Index, many: int) -> None:
            for k in range(many):
                along = self.spread(sizes, groups, [*outer, affine.add(first, affine.number(k))])
                for row, at in zip(slots, places, strict=True):
                    self.continued(row[k], n, self._inner(n, at, along), True)

        with self.nest(counts[:-1]) as outer:
            with w.loop(whole, PARTS) as i:
                step(outer, i, PARTS)
            step(outer, affine.number(whole), counts[-1] - whole)
        return [self._tree(n, [w.get(slot, n.dtype, True) for slot in row]) for row in slots]

    def _tree(self, n: Node, parts: list[Value]) -> Value:
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [self.f.combine(n.params[0], parts[k], parts[k + half]) for k in range(half)]
        return parts[0]

    def _in_parts_along(
        self, n: Node, places: list[Place], sizes: list[int], groups: list, counts: list[int]
    ) -> list[Value]:
        """The partial sums are the elements of one vector."""
        w = self.w
        slots = [self.beginning(n, True) for _ in places]

        def body(variables: list[Index]) -> None:
            along = self.spread(sizes, groups, variables)
            for slot, at in zip(slots, places, strict=True):
                self.continued(slot, n, self._inner(n, at, along), True, w.scope.mask)

        self.vector_loops(counts, body, len(counts) - 1, rows=True)
        return [w.fold(w.get(slot, n.dtype, True), lambda a, b: self.f.combine(n.params[0], a, b)) for slot in slots]

    def _in_parts_slowly(self, n: Node, at: Place) -> Value:
        """The same order where the axes cannot be run through as one: partial sums in memory, element by element."""
        w, sizes = self.w, self._reduced(n)
        sums = self.allocate(PARTS, n.dtype)
        with w.loop(PARTS) as i:
            w.store(sums, i, self._neutral(n))

        with self.nest(sizes) as outer:
            row = w.new(f"and i64 {w.place(affine.linear(sizes, outer))}, {PARTS - 1}")
            far = row if w.stride(sums) == 1 else w.new(f"mul i64 {row}, {w.stride(sums)}")
            pointer = w.new(f"getelementptr inbounds {STORED[n.dtype]}, ptr {sums.pointer}, i64 {far}")
            one = sums._replace(pointer=pointer)
            w.store(one, affine.ZERO, self.accumulate(n, w.load(one, affine.ZERO), self._inner(n, at, tuple(outer))))
        return self._tree(n, [w.load(sums, affine.number(k)) for k in range(PARTS)])

    def reduction(self, n: Node) -> None:
        """All elements of a reduction that is stored."""
        w = self.w
        if n.shape == ():
            self.scalars[n.id] = self.reduce_at(n, ())
            return
        buffer = self.buffers[n.id] = self.place_for(n)
        if not n.size:
            return
        if w.lanes > 1:
            if w.late:
                self.loops(n.shape, lambda at: self._reduce_at_once(n, buffer, [tuple(at)]), self.plan.cost[n.id])
            else:
                self._reduce_in_lanes(n, buffer)
            return
        partial = n.params[2]
        zeros = [affine.ZERO] * len(self._reduced(n))
        trace = lambda at: self._reads(n, [at], zeros)  # noqa: E731
        groups = self.merged(n.shape, trace)
        counts = [math.prod(n.shape[d] for d in g) for g in groups]
        names = [f"%axis{k}" for k in range(len(counts))]
        found = trace(self.spread(n.shape, groups, [affine.variable(v) for v in names]))
        along = None if partial and not self._side_by_side(n) else self._best_axis(counts, names, found)
        if along is None and not partial and (turned := self._turned(n)) is not None:
            self.targets = {**self.targets, turned.id: buffer}
            self.reduction(turned)
            return
        last = len(counts) - 1 if along is None else along
        self._reduce_in_blocks(n, buffer, groups, counts, last, along is not None)

    def _reduce_at_once(self, n: Node, buffer: Buffer, places: list[Place]) -> None:
        """Some elements of a reduction into memory."""
        for at, value in zip(places, self.reduce_many(n, places), strict=True):
            self.w.store(buffer, affine.linear(n.shape, at), value)

    def _reads(self, n: Node, places: list[Place], along: Sequence[Index]) -> list[tuple[Index, bool]]:
        """The places in memory that elements of a reduction read, at one place along what is reduced."""
        return [found for at in places for i in n.ins for found in self._trace(i, self._inner(n, at, along))]

    def _side_by_side(self, n: Node) -> bool:
        """Whether several sums in parts are better taken one per element of a vector than each along one."""
        terms = math.prod(self._reduced(n))
        turns = -(-terms // PARTS)
        return self.w.strided and -(-n.size // VECTOR) * (3 * terms + PARTS) < n.size * (2 * turns + 10)

    def _reduce_in_blocks(
        self, n: Node, buffer: Buffer, groups: list, counts: list[int], last: int, vectors: bool
    ) -> None:
        """Several neighbours along the axis ``last`` at once, as vectors or not.

        Where one factor is the same for every row, blocks come first and rows within them: what a block reads of that
        factor stays in the nearest cache, and each vector of it is loaded once for `ROWS` rows.
        """
        w, partial = self.w, n.params[2]
        order = [k for k in range(len(counts)) if k != last]
        rows = order[-1] if vectors and self._shares_rows(n, groups, counts, order, last) else None

        def write(fixed: dict[int, Index], variables: list[Index], row: int | None = None, many: int = 1) -> None:
            places = []
            for k in range(many):
                own = fixed if row is None else {**fixed, row: affine.add(fixed[row], affine.number(k))}
                places += [
                    self.spread(n.shape, groups, [v if d == last else own[d] for d in range(len(counts))])
                    for v in variables
                ]
            self._reduce_at_once(n, buffer, places)

        def within(rows: int, variables: list[Index]) -> None:
            """The rows of one block."""
            whole = counts[rows] - counts[rows] % ROWS
            with self.nest([counts[k] for k in order[:-1]]) as outer:
                fixed = dict(zip(order, outer, strict=False))
                if whole:
                    with w.loop(whole, ROWS) as i:
                        write({**fixed, rows: i}, variables, rows, ROWS)
                if counts[rows] > whole:
                    with w.loop(1) as i:
                        last_ones = {**fixed, rows: affine.add(i, affine.number(whole))}
                        write(last_ones, variables, rows, counts[rows] - whole)

        jam = SCALARS if not vectors and not partial else JAM
        if rows is not None:
            self._neighbours(counts[last], jam, vectors, functools.partial(within, rows))
            return
        with self.nest([counts[k] for k in order]) as outer:
            each = functools.partial(write, dict(zip(order, outer, strict=True)))
            self._neighbours(counts[last], jam, vectors, each)

    def _neighbours(self, count: int, jam: int, vectors: bool, body: Callable[[list[Index]], None]) -> None:
        """Loops along one axis, ``jam`` vectors or elements at once, the last vector masked."""
        w, unit = self.w, VECTOR if vectors else 1
        number = count // unit
        jam = min(jam, number)
        many = number - number % jam if jam else 0
        if many:
            with w.loop(many * unit, jam * unit, vector=vectors) as i:
                body([affine.add(i, affine.number(k * unit)) for k in range(jam)])
        if number > many:
            with w.loop(1, vector=vectors) as i:
                body([affine.add(i, affine.number(k * unit)) for k in range(many, number)])
        if tail := count - number * unit:
            with w.loop(1, vector=True, mask=w.ramp(tail)) as i:
                body([affine.add(i, affine.number(number * unit))])

    def _shares_rows(self, n: Node, groups: list, counts: list[int], order: list[int], last: int) -> bool:
        """Whether what a product of matrices reads along vectors is the same for all rows, and it is large or narrow.

        Of a narrow one the vectors of one row are too few to be under way at once.
        """
        large = counts[last] * math.prod(self._reduced(n)) >= LARGE or counts[last] < JAM * VECTOR
        if len(n.ins) != 2 or not order or not large:
            return False
        names = [f"%axis{k}" for k in range(len(counts))]
        at = self.spread(n.shape, groups, [affine.variable(v) for v in names])
        zeros = [affine.ZERO] * len(self._reduced(n))
        for i in n.ins:
            found = [p for p, _ in self._trace(i, self._inner(n, at, zeros))]
            if any(affine.factor(p, names[last]) for p in found):
                return not any(affine.factor(p, names[k]) for p in found for k in order)
        return False

    def _reduce_in_lanes(self, n: Node, buffer: Buffer) -> None:
        """`JAM` neighbours at once along the last axis; partial sums are side by side already, and go one by one."""
        last = n.shape[-1]
        jam = 1 if n.params[2] else min(JAM, last)
        with self.nest(n.shape[:-1]) as outer:
            self._neighbours(
                last, jam, False, lambda variables: self._reduce_at_once(n, buffer, [(*outer, v) for v in variables])
            )

    def _turned(self, n: Node) -> Node | None:
        """A sum of products, neither factor of which runs along the last axis, with one of them turned so that it does.

        Worth it for a product of matrices, where each element of the turned factor is read many times.
        """
        summed, width = self._reduced(n), n.shape[-1]
        if len(n.ins) != 2 or width < 8 or n.size < 16 * width:
            return None
        names = [f"%axis{d}" for d in range(len(n.shape))]
        at = tuple(affine.variable(v) for v in names)
        for k in (1, 0):
            found = [p for p, _ in self._trace(n.ins[k], self._inner(n, at, [affine.ZERO] * len(summed)))]
            if not found or any(affine.factor(p, v) for p in found for v in names[:-1]):
                continue
            copy = self.allocate(math.prod(summed) * width, n.ins[k].dtype)

            def body(variables: list[Index], k: int = k, copy: Buffer = copy) -> None:
                j, along = variables[0], variables[1:]
                place = (*[affine.ZERO] * (len(n.shape) - 1), j)
                value = self.e.at(n.ins[k], self._inner(n, place, along))
                self.w.store(copy, affine.linear([*summed, width], [*along, j]), value)

            self.loops([width, *summed], body, 2)
            leaf = Node("leaf", (), (*summed, width), n.ins[k].dtype, ("turned", n.id))
            self.buffers[leaf.id] = copy
            space = n.ins[k].shape
            kept = [d for d in range(len(space)) if d not in n.params[1]]
            spread = Node("bcast", (leaf,), space, leaf.dtype, (*n.params[1], kept[-1]))
            factors = (n.ins[0], spread) if k else (spread, n.ins[1])
            return Node("reduce", factors, n.shape, n.dtype, n.params)
        return None

    def _best_axis(self, counts: list[int], names: list[str], found: list[tuple[Index, bool]]) -> int | None:
        """The axis along which most reads are of neighbours, or None if none is worth a vector."""
        if self.w.strided:
            axis = self.along(counts)
            return axis if counts[axis] > 1 else None
        best, score = None, 0
        for k, (count, name) in enumerate(zip(counts, names, strict=True)):
            steps = [
                0 if not affine.factor(p, name) else 1 if affine.factor(p, name) == 1 and not c else -4
                for p, c in found
            ]
            total = sum(steps)
            if count >= 4 and total > score:
                best, score = k, total
        return best
