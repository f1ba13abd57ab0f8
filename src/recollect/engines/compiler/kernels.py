"""Emission of a plan: kernels that fill several arrays in one loop, and everything else in its own way."""

import math
from collections.abc import Callable

from recollect.engines.compiler import affine
from recollect.engines.compiler.affine import Index
from recollect.engines.compiler.control import Control
from recollect.engines.compiler.elements import Place
from recollect.engines.compiler.graph import PARTS, Node, starts_anew
from recollect.engines.compiler.plan import Item, Plan
from recollect.engines.compiler.values import Buffer, Value


class Kernels(Control):
    """Emits the items of a plan."""

    def run(self, plan: Plan, targets: dict[int, Buffer]) -> None:
        """Emit everything; ``targets``: where outputs go."""
        self.plan, places = plan, {**targets, **{v.id: targets[o] for o, v in plan.repairs.items()}}
        for item in plan.items:
            self.targets = places
            if item.space is not None:
                self.kernel(item)
            else:
                self.special(item.nodes[0])

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

        def layers(n: Node, at: Place) -> list[Place]:
            return [(affine.number(k), *at) for k in range(n.shape[0])] if n.id in self.plan.layered else [at]

        def trace(at: Place) -> list[tuple[Index, bool]]:
            found = self.accesses([(n, place) for n in maps for place in layers(n, at)])
            for n in totals:
                operands = Node("sum", n.ins, n.shape, n.dtype)  # only the places of their elements count
                found += self.accesses([(operands, at)])
            return found

        partial = [n for n in totals if n.params[2]]
        anew = bool(partial) and starts_anew(space)
        groups = self.merged(space, trace, anew)
        sizes = [math.prod(space[d] for d in g) for g in groups]
        single = w.lanes == 1
        axis = len(sizes) - 1 if partial else self.along(sizes)
        vector = single and sizes[axis] >= w.least
        apart = []  # sums whose order needs another loop, after this one: they may read what it stores
        if partial and not (vector and (len(sizes) == 1 or sizes[-1] % PARTS == 0 or anew)):
            apart = partial
            totals = [n for n in totals if n not in partial]
        passing = set() if apart else self.plan.passing
        buffers = {n.id: self.place_for(n) for n in maps if n.id not in passing}
        wide = vector or not single
        slots = {n.id: self.beginning(n, wide) for n in totals}

        def body(variables: list[Index]) -> None:
            at = self.spread(space, groups, variables)
            values = []
            for n in item.nodes:
                if n.id in buffers:
                    for place in layers(n, at):
                        value = self.e.compute(n, place)
                        w.scope.known[(n.id, place)] = value
                        values.append((n, place, value))
                elif n.id in slots:
                    self.continued(slots[n.id], n, at, wide, w.scope.mask)
            for n, place, value in values:
                if n.id in self.saved:
                    leaf, aside = self.saved[n.id]
                    w.later(aside, affine.linear(n.shape, place), self.e.at(leaf, place))
                w.later(buffers[n.id], affine.linear(n.shape, place), value)

        cost = sum(self.plan.cost.get(n.id, 4.0) for n in maps) + 4 * len(totals)
        if vector and (maps or totals):
            self.vector_loops(sizes, body, axis, cost, rows=bool(partial))
        elif maps or totals:
            self.loops(sizes, body, cost)
        self.buffers.update(buffers)
        for n in totals:
            result = w.get(slots[n.id], n.dtype, wide)
            if vector:
                result = w.fold(result, lambda a, b, n=n: self.f.combine(n.params[0], a, b), n.params[0])
            self.scalars[n.id] = result
        for n in apart:
            self.scalars[n.id] = self.reduce_at(n, ())

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

        if likely.id in self.saved:
            leaf, aside = self.saved[likely.id]
            self.buffers[leaf.id] = aside
        usual = right(o)
        assert usual is not None
        wrong = w.new(f"xor i1 {w.all(usual)}, true")

        def body(variables: list[Index]) -> None:
            at = tuple(variables)
            w.store(buffer, affine.linear(o.shape, at), self.e.compute(o, at))

        with w.branch(wrong):
            self.each(o.shape, body, 20)
        self.buffers[o.id] = buffer


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
