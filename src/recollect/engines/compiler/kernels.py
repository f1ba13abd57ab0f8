"""Loops: kernels that fill arrays, reductions in a fixed order, and the operations that need loops of their own."""

import math
from collections.abc import Callable, Sequence

from recollect.engines.compiler import affine
from recollect.engines.compiler.affine import Index
from recollect.engines.compiler.elements import Elements, Place, source
from recollect.engines.compiler.graph import PARTS, VIEWS, Node, node
from recollect.engines.compiler.plan import (
    OPAQUE,
    Item,
    Plan,
    contract,
    replaced_in_place,
    same_places,
    written_in_place,
)
from recollect.engines.compiler.primitives import Subgraph
from recollect.engines.compiler.writer import STORED, VECTOR, Buffer, Value, Writer, ramp_mask

IDENTITY = {"sum": 0, "prod": 1, "and": 1, "or": 0, "xor": 0}
JAM = 4
"""Vectors (or sums) of one reduction that are under way at once, so that none waits for the one before."""

UNROLL = {"lanes": 100, "single": 8}
"""Instructions of a loop's body that is written out several times rather than looped over, about."""

SMALL = 4096
"""Bytes of an array of one step that lies on the stack; larger ones are in the scratch space."""


class Kernels:
    """Emits the items of a plan."""

    def __init__(self, writer: Writer):
        self.w = writer
        self.buffers: dict[int, Buffer] = {}
        self.scalars: dict[int, Value] = {}
        self.e = Elements(writer, self.buffers, self.scalars)
        self.e.reduce_at = self.reduce_at
        self.f = self.e.f
        self.scratch: list[tuple[str, int]] = []  # pointer and bytes of arrays outside the stack
        self.several: dict[int, list[Buffer]] = {}  # the results of a sort or a loop
        self.going: Value | None = None  # in a loop that not all lanes are in: those that are
        self.plan: Plan

    def allocate(self, size: int, kind: str) -> Buffer:
        """Memory for an array of this step."""
        lanes = self.w.lanes > 1
        count = max(1, size) * self.w.lanes
        name = f"%b{self.w.serial()}"
        width = 1 if kind == "b" else 4
        if count * width > SMALL * (VECTOR if lanes else 1):
            self.scratch.append((name, count * width))
        else:
            padded = count + (VECTOR if not lanes else 0)
            self.w.allocas.append(f"  {name} = alloca [{padded} x {STORED[kind]}], align 64")
        return Buffer(name, kind, lanes)

    def run(self, plan: Plan, targets: dict[int, Buffer]) -> None:
        """Emit everything; ``targets``: where outputs go."""
        before, self.plan, self.e.plan = getattr(self, "plan", None), plan, plan
        places = dict(targets)
        for o, v in plan.repairs.items():
            places[v.id] = targets[o]
        self.targets = places
        for item in plan.items:
            if item.space is not None:
                self.kernel(item)
            else:
                self.special(item.nodes[0])
            self.targets = places
            self.plan, self.e.plan = plan, plan
        if before is not None:
            self.plan, self.e.plan = before, before

    def place_for(self, n: Node) -> Buffer:
        """The buffer a stored node is written to."""
        return self.targets.get(n.id) or self.allocate(n.size, n.dtype)

    # -- how expressions move through memory

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

    def merged(self, shape: Sequence[int], trace: Callable[[Place], list[tuple[Index, bool]]]) -> list[tuple[int, ...]]:
        """Neighbouring axes that every access runs through as one: groups of axes, outermost first."""
        names = [f"%axis{d}" for d in range(len(shape))]
        found = trace(tuple(affine.variable(v) for v in names))
        groups: list[tuple[int, ...]] = []
        for d in range(len(shape)):
            last = next((k for k in reversed(groups[-1]) if shape[k] > 1), groups[-1][-1]) if groups else None
            if last is not None and self._joins(found, names, shape, last, d):
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

    # -- kernels

    def kernel(self, item: Item) -> None:
        """One loop that writes all members."""
        w, space = self.w, item.space
        assert space is not None
        if not math.prod(space):
            for n in item.nodes:
                self.buffers[n.id] = self.place_for(n)
            return
        maps = [n for n in item.nodes if n.op != "reduce"]
        totals = [n for n in item.nodes if n.op == "reduce"]
        buffers = {n.id: self.place_for(n) for n in maps}

        def trace(at: Place) -> list[tuple[Index, bool]]:
            inputs = [(n, at) for n in maps]
            found = self.accesses(inputs)
            for n in totals:
                found += self.accesses([(_Sum(n), at)])
            return found

        groups = self.merged(space, trace)
        sizes = [math.prod(space[d] for d in g) for g in groups]
        single = w.lanes == 1
        vector = single and sizes[-1] >= 4
        partial = [n for n in totals if n.params[2]]
        apart = []  # sums whose order needs another loop, after this one: they may read what it stores
        if partial and not (vector and (len(sizes) == 1 or sizes[-1] % PARTS == 0)):
            apart = partial
            totals = [n for n in totals if n not in partial]
        slots = {n.id: (w.slot(n.dtype, vector or not single), self._neutral(n)) for n in totals}
        for slot, neutral in slots.values():
            w.put(slot, w.widen(neutral) if vector or not single else neutral)

        def body(variables: list[Index]) -> None:
            at = self.spread(space, groups, variables)
            values = []
            for n in item.nodes:
                if n.id in buffers:
                    value = self.e.compute(n, at)
                    w.scope.known[(n.id, at)] = value
                    values.append((n, value))
                elif n.id in slots:
                    slot = slots[n.id][0]
                    old = w.get(slot, n.dtype, vector or not single)
                    new = self.accumulate(n, old, at)
                    if w.scope.mask:
                        new = w.choose(Value(w.scope.mask, "b", True), new, old)
                    w.put(slot, w.widen(new) if old.wide else new)
            for n, value in values:
                w.store(buffers[n.id], affine.linear(space, at), value)

        cost = sum(self.plan.cost.get(n.id, 4.0) for n in maps) + 4 * len(totals)
        if not maps and not totals:
            pass
        elif vector:
            self.vector_loops(sizes, body)
        else:
            self.loops(sizes, body, cost)
        for n in maps:
            self.buffers[n.id] = buffers[n.id]
        for n in totals:
            result = w.get(slots[n.id][0], n.dtype, vector or not single)
            if vector:
                result = w.fold(result, lambda a, b, n=n: self.f.combine(n.params[0], a, b))
            self.scalars[n.id] = result
        for n in apart:
            self.scalars[n.id] = self.reduce_at(n, ())

    def vector_loops(
        self, sizes: Sequence[int], body: Callable[[list[Index]], None], outer: list[Index] | None = None
    ) -> None:
        """Loops over all but the last size, and vectors along it, the last of them masked."""
        w, variables = self.w, list(outer or [])
        if len(variables) < len(sizes) - 1:
            with w.loop(sizes[len(variables)]) as i:
                self.vector_loops(sizes, body, [*variables, i])
            return
        count = sizes[-1]
        whole = count - count % VECTOR
        if whole:
            with w.loop(whole, VECTOR, vector=True) as i:
                body([*variables, i])
        if count % VECTOR:
            with w.loop(1, vector=True, mask=ramp_mask(VECTOR, count % VECTOR)) as i:
                body([*variables, affine.add(i, affine.number(whole))])

    def loops(self, sizes: Sequence[int], body: Callable[[list[Index]], None], cost: float) -> None:
        """Loops over all sizes; small inner ones are written out."""
        limit = UNROLL["lanes" if self.w.lanes > 1 else "single"]
        total = math.prod(sizes)
        if total == 1 or (total <= 16 and total * cost <= limit):
            self._written_out(sizes, [], body)
            return
        cut, inner = len(sizes), 1
        while cut > 1 and inner * sizes[cut - 1] <= 16 and inner * sizes[cut - 1] * cost <= limit:
            cut -= 1
            inner *= sizes[cut]
        chunk = 1
        if inner == 1:
            last = sizes[cut - 1]
            chunk = next((c for c in (8, 7, 6, 5, 4, 3, 2) if last % c == 0 and c < last and c * cost <= limit), 1)
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

    def _written_out(self, sizes: Sequence[int], done: list[Index], body: Callable) -> None:
        if not sizes:
            body(done)
            return
        for k in range(sizes[0]):
            self._written_out(sizes[1:], [*done, affine.number(k)], body)

    # -- reductions

    def _neutral(self, n: Node) -> Value:
        kind = n.params[0]
        if kind in IDENTITY:
            value = IDENTITY[kind]
            return self.w.const(n.dtype, bool(value) if n.dtype == "b" else -1 if kind == "and" else value)
        low = {"f": -math.inf, "i": -(2**31), "u": 0, "b": False}
        high = {"f": math.inf, "i": 2**31 - 1, "u": 2**32 - 1, "b": True}
        return self.w.const(n.dtype, (low if kind == "max" else high)[n.dtype])

    def accumulate(self, n: Node, so_far: Value, at: Place) -> Value:
        """A reduction with one more element."""
        values = [self.e.at(i, at) for i in n.ins]
        if len(values) == 2:
            return self.f.fma(*values, so_far)
        return self.f.combine(n.params[0], so_far, values[0])

    def _inner(self, n: Node, at: Place, along: Sequence[Index]) -> Place:
        kept, summed = iter(at), iter(along)
        axes = n.params[1]
        return tuple(next(summed) if d in axes else next(kept) for d in range(len(n.ins[0].shape)))

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
        slots = []
        neutral = self._neutral(n)
        for _ in places:
            slots.append(w.slot(n.dtype, wide))
            w.put(slots[-1], w.widen(neutral) if wide else neutral)
        groups = self.merged(
            sizes, lambda along: [x for at in places for i in n.ins for x in self._trace(i, self._inner(n, at, along))]
        )
        counts = [math.prod(sizes[d] for d in g) for g in groups]

        def body(variables: list[Index]) -> None:
            along = self.spread(sizes, groups, variables)
            for slot, at in zip(slots, places, strict=True):
                old = w.get(slot, n.dtype, wide)
                new = self.accumulate(n, old, self._inner(n, at, along))
                w.put(slot, w.widen(new) if wide else new)

        cost = (sum(self.plan.cost.get(i.id, 1.0) for i in n.ins) + 1) * len(places)
        self.loops(counts, body, cost)
        return [w.get(slot, n.dtype, wide) for slot in slots]

    def _trace(self, n: Node, at: Place) -> list[tuple[Index, bool]]:
        return self.accesses([(_Same(n), at)])

    def _in_parts(self, n: Node, places: list[Place]) -> list[Value]:
        """Sums as `PARTS` sums side by side, element k of row-major order in sum k mod `PARTS`, added as a tree."""
        w, sizes = self.w, self._reduced(n)
        trace = lambda along: [x for at in places for i in n.ins for x in self._trace(i, self._inner(n, at, along))]  # noqa: E731
        groups = self.merged(sizes, trace)
        counts = [math.prod(sizes[d] for d in g) for g in groups]
        if len(counts) > 1 and counts[-1] % PARTS:
            return [self._in_parts_slowly(n, at) for at in places]
        if w.lanes == 1 and w.scope.vector is None:
            return self._in_parts_along(n, places, sizes, groups, counts)
        neutral = w.widen(self._neutral(n)) if (w.lanes > 1 or w.scope.vector) else self._neutral(n)
        slots = [[w.slot(n.dtype, True) for _ in range(PARTS)] for _ in places]
        for row in slots:
            for slot in row:
                w.put(slot, neutral)
        whole = counts[-1] - counts[-1] % PARTS

        def step(outer: list[Index], first: Index, many: int) -> None:
            for k in range(many):
                along = self.spread(sizes, groups, [*outer, affine.add(first, affine.number(k))])
                for row, at in zip(slots, places, strict=True):
                    old = w.get(row[k], n.dtype, True)
                    w.put(row[k], w.widen(self.accumulate(n, old, self._inner(n, at, along))))

        def nest(outer: list[Index]) -> None:
            if len(outer) < len(counts) - 1:
                with w.loop(counts[len(outer)]) as i:
                    nest([*outer, i])
                return
            with w.loop(whole, PARTS) as i:
                step(outer, i, PARTS)
            step(outer, affine.number(whole), counts[-1] - whole)

        nest([])
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
        slots = [w.slot(n.dtype, True) for _ in places]
        for slot in slots:
            w.put(slot, w.widen(self._neutral(n)))

        def body(variables: list[Index]) -> None:
            along = self.spread(sizes, groups, variables)
            for slot, at in zip(slots, places, strict=True):
                old = w.get(slot, n.dtype, True)
                new = w.widen(self.accumulate(n, old, self._inner(n, at, along)))
                if w.scope.mask:
                    new = w.choose(Value(w.scope.mask, "b", True), new, old)
                w.put(slot, new)

        self.vector_loops(counts, body)
        return [w.fold(w.get(slot, n.dtype, True), lambda a, b: self.f.combine(n.params[0], a, b)) for slot in slots]

    def _in_parts_slowly(self, n: Node, at: Place) -> Value:
        """The same order where the axes cannot be run through as one: partial sums in memory, element by element."""
        w, sizes = self.w, self._reduced(n)
        sums = self.allocate(PARTS, n.dtype)
        with w.loop(PARTS) as i:
            w.store(sums, i, self._neutral(n))

        def nest(outer: list[Index]) -> None:
            if len(outer) < len(sizes):
                with w.loop(sizes[len(outer)]) as i:
                    nest([*outer, i])
                return
            row = w.new(f"and i64 {w.place(affine.linear(sizes, outer))}, {PARTS - 1}")
            far = row if not sums.lanes else w.new(f"mul i64 {row}, {w.lanes}")
            pointer = w.new(f"getelementptr inbounds {STORED[n.dtype]}, ptr {sums.pointer}, i64 {far}")
            one = sums._replace(pointer=pointer)
            w.store(one, affine.ZERO, self.accumulate(n, w.load(one, affine.ZERO), self._inner(n, at, tuple(outer))))

        nest([])
        return self._tree(n, [w.load(sums, affine.number(k)) for k in range(PARTS)])

    def reduction(self, n: Node) -> None:
        """All elements of a reduction that is stored."""
        w = self.w
        if n.shape == ():
            self.scalars[n.id] = self.reduce_at(n, ())
            return
        buffer = self.place_for(n)
        if not n.size:
            self.buffers[n.id] = buffer
            return
        if w.lanes > 1:
            groups = [(d,) for d in range(len(n.shape))]
            self.loops(
                list(n.shape),
                lambda at: w.store(buffer, affine.linear(n.shape, at), self.reduce_at(n, tuple(at))),
                self.plan.cost[n.id],
            )
            self.buffers[n.id] = buffer
            return
        partial = n.params[2]
        zeros = [affine.ZERO] * len(self._reduced(n))
        trace = lambda at: [x for i in n.ins for x in self._trace(i, self._inner(n, at, zeros))]  # noqa: E731
        groups = self.merged(n.shape, trace)
        counts = [math.prod(n.shape[d] for d in g) for g in groups]
        names = [f"%axis{k}" for k in range(len(counts))]
        found = trace(self.spread(n.shape, groups, [affine.variable(v) for v in names]))
        along = None if partial else self._best_axis(counts, names, found)
        if along is None and not partial and (turned := self._turned(n)) is not None:
            self.targets = {**self.targets, turned.id: buffer}
            self.reduction(turned)
            self.buffers[n.id] = buffer
            return
        last = len(counts) - 1 if along is None else along
        order = [k for k in range(len(counts)) if k != last]

        def write(fixed: dict[int, Index], variables: list[Index]) -> None:
            places = [
                self.spread(n.shape, groups, [v if k == last else fixed[k] for k in range(len(counts))])
                for v in variables
            ]
            for at, value in zip(places, self.reduce_many(n, places), strict=True):
                w.store(buffer, affine.linear(n.shape, at), value)

        def block(fixed: dict[int, Index]) -> None:
            unit = 1 if along is None else VECTOR
            vectors = counts[last] // unit
            jam = min(JAM, vectors)
            many = vectors - vectors % jam if jam else 0
            if many:
                with w.loop(many * unit, jam * unit, vector=along is not None) as i:
                    write(fixed, [affine.add(i, affine.number(k * unit)) for k in range(jam)])
            rest, start = vectors - many, many * unit
            if rest:
                with w.loop(1, vector=along is not None) as i:
                    write(fixed, [affine.add(i, affine.number(start + k * unit)) for k in range(rest)])
            tail = counts[last] - vectors * unit
            if tail:
                with w.loop(1, vector=True, mask=ramp_mask(VECTOR, tail)) as i:
                    write(fixed, [affine.add(i, affine.number(vectors * unit))])

        def nest(fixed: dict[int, Index]) -> None:
            if len(fixed) < len(order):
                k = order[len(fixed)]
                with w.loop(counts[k]) as i:
                    nest({**fixed, k: i})
                return
            block(fixed)

        nest({})
        self.buffers[n.id] = buffer

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
            leaf = node("leaf", (), (*summed, width), n.ins[k].dtype, ("turned", n.id))
            self.buffers[leaf.id] = copy
            space = n.ins[k].shape
            kept = [d for d in range(len(space)) if d not in n.params[1]]
            spread = node("bcast", (leaf,), space, leaf.dtype, (*n.params[1], kept[-1]))
            factors = (n.ins[0], spread) if k else (spread, n.ins[1])
            return node("reduce", factors, n.shape, n.dtype, n.params)
        return None

    def _best_axis(self, counts: list[int], names: list[str], found: list[tuple[Index, bool]]) -> int | None:
        """The axis along which most reads are of neighbours, or None if none is worth a vector."""
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

    # -- operations with loops of their own

    def special(self, n: Node) -> None:
        """An item that is not a kernel."""
        if n.id in self.plan.repairs:
            self.repair(n)
        elif n.op == "reduce":
            self.reduction(n)
        elif n.op in STORED_BY:
            STORED_BY[n.op](self, n)
        else:
            self.scalars[n.id] = self.e.compute(n, ())

    def repair(self, o: Node) -> None:
        """What an output is where it is not the likely value that lies in its place already."""
        w, likely = self.w, self.plan.repairs[o.id]
        buffer = self.buffers[likely.id]

        def right(n: Node) -> Value | None:
            """Whether the choice falls on the likely value."""
            if n is likely:
                return w.const("b", True)
            if n.op != "select":
                return None
            for side, flip in ((2, False), (1, True)):
                rest = right(n.ins[side])
                if rest is not None:
                    p = self.e.at(n.ins[0], (affine.ZERO,) * len(n.shape))
                    p = w.do("xor", p, w.const("b", True)) if flip else p
                    return w.do("and", p, rest)
            return None

        usual = right(o)
        assert usual is not None
        wrong = w.new(f"xor i1 {w.all(usual)}, true")

        def body(variables: list[Index]) -> None:
            at = tuple(variables)
            w.store(buffer, affine.linear(o.shape, at), self.e.compute(o, at))

        with w.branch(wrong):
            if w.lanes == 1 and o.shape[-1] >= 4:
                self.vector_loops(o.shape, body)
            else:
                self.loops(o.shape, body, 20)
        self.buffers[o.id] = buffer

    def concat(self, n: Node) -> None:
        """Part after part."""
        w, buffer, axis, offset = self.w, self.place_for(n), n.params, 0
        for part in n.ins:
            shift = offset

            def body(variables: list[Index], part: Node = part, shift: int = shift, groups: list | None = None) -> None:
                at = self.spread(part.shape, groups or [(d,) for d in range(len(part.shape))], variables)
                to = tuple(affine.add(v, affine.number(shift)) if d == axis else v for d, v in enumerate(at))
                w.store(buffer, affine.linear(n.shape, to), self.e.at(part, at))

            if w.lanes == 1 and part.shape[-1] >= 4:
                self.vector_loops(part.shape, body)
            elif math.prod(part.shape):
                self.loops(part.shape, body, self.plan.cost.get(part.id, 1.0) + 1)
            offset += part.shape[axis]
        self.buffers[n.id] = buffer

    def _lines_of(self, shape: Sequence[int], axis: int, body: Callable[[Callable[[Index], Place]], None]) -> None:
        """For each line along an axis, the places of its elements."""

        def nest(outer: list[Index]) -> None:
            if len(outer) < len(shape) - 1:
                d = len(outer) + (len(outer) >= axis)
                with self.w.loop(shape[d]) as i:
                    nest([*outer, i])
                return
            body(lambda k: (*outer[:axis], k, *outer[axis:]))

        nest([])

    def cumulative(self, n: Node) -> None:
        """Sums (products, extremes) so far, one line after the other."""
        w, buffer = self.w, self.place_for(n)
        kind, axis, reverse = n.params
        wide = w.lanes > 1
        count = n.shape[axis]

        def line(place: Callable[[Index], Place]) -> None:
            slot = w.slot(n.dtype, wide)
            neutral = self._neutral(_Sum(n))
            w.put(slot, w.widen(neutral) if wide else neutral)

            def body(variables: list[Index]) -> None:
                k = variables[0]
                at = place(affine.add(affine.number(count - 1), affine.scale(k, -1)) if reverse else k)
                new = self.f.combine(kind, w.get(slot, n.dtype, wide), self.e.at(n.ins[0], at))
                w.put(slot, new)
                w.store(buffer, affine.linear(n.shape, at), new)

            self.loops([count], body, self.plan.cost.get(n.ins[0].id, 1.0) + 2)

        if n.size:
            self._lines_of(n.shape, axis, line)
        self.buffers[n.id] = buffer

    def arg(self, n: Node) -> None:
        """The place of the first largest or smallest element; of the first NaN if there is one."""
        w = self.w
        kind, axis = n.params
        x = n.ins[0]
        wide = w.lanes > 1
        buffer = self.place_for(n) if n.shape != () else None

        def line(place: Callable[[Index], Place]) -> None:
            best, where = w.slot(x.dtype, wide), w.slot("i", wide)
            first = self.e.at(x, place(affine.ZERO))
            w.put(best, w.widen(first) if wide else first)
            w.put(where, w.widen(w.const("i", 0)) if wide else w.const("i", 0))

            def body(variables: list[Index]) -> None:
                k = affine.add(variables[0], affine.number(1))
                old, value = w.get(best, x.dtype, wide), self.e.at(x, place(k))
                value = w.widen(value) if wide else value
                if x.dtype == "f":
                    better = w.do(f"fcmp o{'gt' if kind == 'max' else 'lt'}", value, old, kind="b")
                    nan = w.do("fcmp uno", value, value, kind="b")
                    better = w.do("or", better, w.do("and", nan, w.do("fcmp ord", old, old, kind="b")))
                else:
                    sign = "s" if x.dtype == "i" else "u"
                    better = w.do(f"icmp {sign}{'gt' if kind == 'max' else 'lt'}", value, old, kind="b")
                w.put(best, w.choose(better, value, old))
                w.put(where, w.choose(better, w.index_value(k), w.get(where, "i", wide)))

            if x.shape[axis] > 1:
                self.loops([x.shape[axis] - 1], body, self.plan.cost.get(x.id, 1.0) + 4)
            result = w.get(where, "i", wide)._replace(kind=n.dtype)
            if buffer is None:
                self.scalars[n.id] = result
            else:
                spot = place(affine.ZERO)
                w.store(buffer, affine.linear(n.shape, spot[:axis] + spot[axis + 1 :]), result)

        self._lines_of(x.shape, axis, line)
        if buffer is not None:
            self.buffers[n.id] = buffer

    def fill(self, buffer: Buffer, n: Node) -> None:
        """Copy all elements of a node into memory."""
        body = lambda v: self.w.store(buffer, affine.linear(n.shape, v), self.e.at(n, tuple(v)))  # noqa: E731
        if n.shape == ():
            self.w.store(buffer, affine.ZERO, self.e.at(n, ()))
        elif self.w.lanes == 1 and n.shape[-1] >= 4:
            self.vector_loops(n.shape, body)
        elif n.size:
            self.loops(n.shape, body, self.plan.cost.get(n.id, 1.0) + 1)

    def _copy_of(self, n: Node) -> Buffer:
        """A copy of what ``n`` changes, or the thing itself where it is changed in place."""
        if n.op.endswith("_in_place"):
            return self.buffers[n.ins[0].id]
        buffer = self.place_for(n)
        self.fill(buffer, n.ins[0])
        return buffer

    def _going(self, n: Node, where: Value | None) -> Value | None:
        """Lanes that have left a loop write nothing in place."""
        if self.going is None or not n.op.endswith("_in_place"):
            return where
        return self.going if where is None else self.w.do("and", where, self.going)

    def scatter_many(self, n: Node) -> None:
        """A copy, and then each update at its place in order; updates outside are dropped."""
        w = self.w
        kind, window, inserted, axes, clip, together, index_batch = n.params
        _operand, indices, updates = n.ins
        buffer = self._copy_of(n)
        batch = [d for d in range(len(updates.shape)) if d not in window]

        def nest(done: list[Index]) -> None:
            if len(done) < len(updates.shape):
                with w.loop(updates.shape[len(done)]) as i:
                    nest([*done, i])
                return
            where = [done[d] for d in batch]
            moved = iter(window)
            places, inside, shift = [], None, None
            for d in range(len(n.shape)):
                if d in together:
                    places.append(where[index_batch[together.index(d)]])
                    continue
                own = None if d in inserted else next(moved)
                places.append(affine.ZERO if own is None else done[own])
                if d not in axes:
                    continue
                which = (*where, affine.number(axes.index(d)))
                room = n.shape[d] - (1 if own is None else updates.shape[own])
                raw = self.e.at(indices, which)
                if not clip:
                    fits = w.do("icmp ule", raw, w.const(raw.kind, room), kind="b")
                    inside = fits if inside is None else w.do("and", inside, fits)
                start = self.e.clamp(raw, room)
                stride = math.prod(n.shape[d + 1 :])
                part = w.do("mul", start, w.const("i", stride))
                shift = part if shift is None else w.do("add", shift, part)
            at = w.index_value(affine.linear(n.shape, places))
            at = at if shift is None else w.do("add", shift, at)
            value = self.e.at(updates, tuple(done))
            if kind != "set":
                how = {"add": "sum", "mul": "prod"}.get(kind, kind)
                value = self.f.combine(how, w.gather(buffer, at), value)
            w.scatter(buffer, at, value, self._going(n, inside))

        if updates.size:
            nest([])
        self.buffers[n.id] = buffer

    def update_many(self, n: Node) -> None:
        """A copy, and the window over it."""
        w, buffer = self.w, self._copy_of(n)
        _, update, *starts = n.ins
        shift = None
        for d, s in enumerate(starts):
            room = n.shape[d] - update.shape[d]
            if room:
                part = w.do("mul", self.e.start(s, (), room), w.const("i", math.prod(n.shape[d + 1 :])))
                shift = part if shift is None else w.do("add", shift, part)
        shift = shift or w.const("i", 0)

        def body(variables: list[Index]) -> None:
            at = w.do("add", shift, w.index_value(affine.linear(n.shape, variables)))
            w.scatter(buffer, at, self.e.at(update, tuple(variables)), self._going(n, None))

        self.loops(update.shape, body, 4)
        self.buffers[n.id] = buffer

    def sort(self, n: Node) -> None:
        """By exchanging neighbours: stable, the same steps for every lane, and quick for the few elements of a step."""
        w = self.w
        axis, keys = n.params
        buffers = []
        for i in n.ins:
            buffers.append(self.allocate(i.size, i.dtype))
            self.fill(buffers[-1], i)
        shape = n.ins[0].shape
        count = shape[axis]

        def after(a: Value, b: Value) -> tuple[Value, Value]:
            """Whether a comes after b, and whether neither does."""
            if a.kind != "f":
                sign = "s" if a.kind == "i" else "u"
                return w.do(f"icmp {sign}gt", a, b, kind="b"), w.do("icmp eq", a, b, kind="b")
            nan_a, nan_b = (w.do("fcmp uno", x, x, kind="b") for x in (a, b))
            later = w.do(
                "or", w.do("fcmp ogt", a, b, kind="b"), w.do("and", nan_a, w.do("xor", nan_b, w.const("b", True)))
            )
            return later, w.do("or", w.do("fcmp oeq", a, b, kind="b"), w.do("and", nan_a, nan_b))

        def line(place: Callable[[Index], Place]) -> None:
            with w.loop(count), w.loop(count - 1) as j:
                at = [affine.linear(shape, place(affine.add(j, affine.number(k)))) for k in (0, 1)]
                pairs = [tuple(w.load(b, p) for p in at) for b in buffers]
                swap: Value | None = None
                for a, b in reversed(pairs[:keys]):
                    later, same = after(a, b)
                    swap = later if swap is None else w.do("or", later, w.do("and", same, swap))
                assert swap is not None
                for buffer, (a, b) in zip(buffers, pairs, strict=True):
                    w.store(buffer, at[0], w.choose(swap, b, a))
                    w.store(buffer, at[1], w.choose(swap, a, b))

        if count > 1:
            self._lines_of(shape, axis, line)
        self.several[n.id] = buffers

    def part(self, n: Node) -> None:
        """One of several results."""
        buffer = self.several[n.ins[0].id][n.params]
        if n.id in self.targets:
            whole = self.targets[n.id]
            self._copy(buffer, whole, n.size)
            buffer = whole
        if n.shape == ():
            self.scalars[n.id] = self.w.load(buffer, affine.ZERO)
        else:
            self.buffers[n.id] = buffer

    def _copy(self, start: Buffer, end: Buffer, size: int) -> None:
        body = lambda v: self.w.store(end, v[0], self.w.load(start, v[0]))  # noqa: E731
        if self.w.lanes == 1 and size >= 4:
            self.vector_loops([size], body)
        elif size:
            self.loops([size], body, 2)

    # -- loops of the program

    def in_memory(self, n: Node) -> Buffer:
        """A node's memory; a scalar or a view gets some."""
        if n.shape != () and (n.op == "const" or n.id in self.buffers or n.op == "reshape"):
            inner = n
            while inner.op == "reshape" and inner.id not in self.buffers:
                inner = inner.ins[0]
            if inner.op == "const" or inner.id in self.buffers:
                return self.e.address(n)
        buffer = self.allocate(n.size, n.dtype)
        self.fill(buffer, n)
        return buffer

    def program_loop(self, n: Node) -> None:
        """A scan or a while, its carry in memory."""
        if n.params[0] == "scan":
            self.scan(n)
        else:
            self.while_loop(n)

    def _inside(
        self, body: Subgraph, outs: Sequence[Node], memory: Sequence[Buffer], to: Sequence[Buffer | None]
    ) -> None:
        """One turn of a loop's body from ``memory`` to ``to``."""
        from recollect.engines.compiler.emission import emit_graph

        for leaf, buffer in zip(body.leaves, memory, strict=True):
            self.buffers[leaf.id] = buffer
        keep_targets, keep_plan = self.targets, self.plan
        emit_graph(self, body.graph, body.leaves, outs, list(to))
        self.targets, self.plan, self.e.plan = keep_targets, keep_plan, keep_plan

    def _carried(
        self, body: Subgraph, first: int, carry: Sequence[Buffer], masked: bool
    ) -> tuple[list[Node], list, list]:
        """The body's outputs, where each new carry goes (None: it stays), and which must be copied back."""
        leaves = body.leaves[first : first + len(carry)]
        outs = written_in_place(body.graph, leaves, contract(body.graph, body.outs))
        over = [False] * len(carry) if masked else replaced_in_place(leaves, outs)
        to: list[Buffer | None] = []
        back: list[tuple[Buffer, Buffer, int]] = []
        for leaf, o, buffer, directly in zip(leaves, outs, carry, over, strict=False):
            if o is leaf:
                to.append(None)
            elif directly or o.op.endswith("_in_place"):
                to.append(buffer)
            else:
                fresh = self.allocate(o.size, o.dtype)
                to.append(fresh)
                back.append((fresh, buffer, o.size))
        return outs, to, back

    def scan(self, n: Node) -> None:
        """A loop of known length."""
        w = self.w
        _, body, consts, carries, length, reverse = n.params
        fixed = [self.in_memory(i) for i in n.ins[:consts]]
        carry = []
        for i in n.ins[consts : consts + carries]:
            carry.append(self.allocate(i.size, i.dtype))
            self.fill(carry[-1], i)
        rows = [self.in_memory(i) for i in n.ins[consts + carries :]]
        stacked = [self.allocate(o.size * length, o.dtype) for o in body.outs[carries:]]
        outs, to, back = self._carried(body, consts, carry, False)
        with w.loop(length) as t:
            w.scope.fence = True
            k = affine.add(affine.number(length - 1), affine.scale(t, -1)) if reverse else t
            row = lambda b, size: b._replace(pointer=w.pointer(b, affine.scale(k, size)))  # noqa: E731
            xs = [row(b, leaf.size) for b, leaf in zip(rows, body.leaves[consts + carries :], strict=True)]
            ys = [row(b, o.size) for b, o in zip(stacked, outs[carries:], strict=True)]
            self._inside(body, outs, [*fixed, *carry, *xs], [*to, *ys])
            for new, old, size in back:
                self._copy(new, old, size)
        self.several[n.id] = [*carry, *stacked]

    def while_loop(self, n: Node) -> None:
        """A loop that goes on while some lane has not finished; lanes that have keep what they have."""
        w = self.w
        _, test, body, nc, nb = n.params
        fixed = [self.in_memory(i) for i in n.ins[: nc + nb]]
        carry = []
        for i in n.ins[nc + nb :]:
            carry.append(self.allocate(i.size, i.dtype))
            self.fill(carry[-1], i)
        outs, to, back = self._carried(body, nb, carry, w.lanes > 1)
        going = self.allocate(1, "b")
        k = w.serial()
        w.line(f"br label %w{k}")
        w.scope.lines.append(f"w{k}:")
        with w.branch("true"):  # a scope of its own; its code is inside the loop
            self._inside(test, contract(test.graph, test.outs), [*fixed[:nc], *carry], [going])
            on = w.load(going, affine.ZERO)
            w.line(f"br i1 {w.any(on)}, label %y{k}, label %z{k}")
            w.scope.lines.append(f"y{k}:")
            around, self.going = self.going, on if w.lanes > 1 else None
            self._inside(body, outs, [*fixed[nc:], *carry], to)
            self.going = around
            for new, old, size in back:
                if w.lanes == 1:
                    self._copy(new, old, size)
                    continue

                def keep(v: list[Index], new: Buffer = new, old: Buffer = old) -> None:
                    value = w.choose(w.load(going, affine.ZERO), w.load(new, v[0]), w.load(old, v[0]))
                    w.store(old, v[0], value)

                self.loops([size], keep, 4)
            w.line(f"br label %w{k}")
            w.scope.lines.append(f"z{k}:")
        self.several[n.id] = carry


class _Sum:
    """Stands in for a reduction when only its operands' places are asked for."""

    def __init__(self, n: Node):
        self.op, self.ins, self.shape, self.dtype, self.id = "sum", n.ins, n.shape, n.dtype, -1
        self.params = (n.params[0], (), False)


class _Same:
    """Stands in for a use of a node."""

    def __init__(self, n: Node):
        self.op, self.ins, self.shape, self.dtype, self.id, self.params = "use", (n,), n.shape, n.dtype, -1, ()


STORED_BY: dict[str, Callable[[Kernels, Node], None]] = {
    "concat": Kernels.concat,
    "cumulative": Kernels.cumulative,
    "arg": Kernels.arg,
    "scatter_many": Kernels.scatter_many,
    "update_many": Kernels.update_many,
    "scatter_in_place": Kernels.scatter_many,
    "update_in_place": Kernels.update_many,
    "sort": Kernels.sort,
    "part": Kernels.part,
    "loop": Kernels.program_loop,
}
