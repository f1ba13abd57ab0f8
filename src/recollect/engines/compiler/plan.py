"""Which values lie in memory, which are computed where they are used, and in what order memory is filled.

The graph is first rewritten with fused multiply-adds. Then each node is either *stored* (scalars in a register) or
computed again wherever an element of it is needed; a cost model decides. Stored arrays become kernels: loops over one
index space that write several arrays and take several reductions at once.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from recollect.engines.compiler import fusion
from recollect.engines.compiler.functions import COST
from recollect.engines.compiler.fusion import Item
from recollect.engines.compiler.graph import OPAQUE, STORED_OPS, VIEWS, Graph, Node

RECOMPUTE = 30
"""An element is stored rather than computed again if that would cost more instructions than this."""

LEAST_PRODUCT, MOST_RESULTS = 512, 512
"""In lanes, products of matrices with at least so many terms and at most so many results are stored."""

FEW_ROWS = 4
"""A scatter to at most so many places is a choice in each element, one to more of them writes to those places."""


def base(n: Node) -> Node:
    """What a broadcast is of."""
    while n.op == "bcast":
        n = n.ins[0]
    return n


def same_places(n: Node) -> bool:
    """Whether a reshape only adds or drops axes of length 1."""
    return [s for s in n.shape if s > 1] == [s for s in n.ins[0].shape if s > 1]


def contract(graph: Graph, outs: Sequence[Node], sums: bool = False) -> list[Node]:
    """The same outputs with a·b + c as one operation where the product has no other use, and nothing unused.

    ``sums``: whether all numbers are finite is asked of the sum of their products with 0: one instruction for each.
    """
    uses, new = _uses(outs), dict[int, Node]()

    def product(n: Node) -> tuple[Node, Node] | None:
        return (new[n.ins[0].id], new[n.ins[1].id]) if n.op == "mul" and n.dtype == "f" and uses[n.id] == 1 else None

    for n in reachable(outs):
        ins = [new[i.id] for i in n.ins]
        if n.op in ("leaf", "const"):
            new[n.id] = n
            continue
        made = None
        if n.op in ("add", "sub") and n.dtype == "f":
            left, right = product(n.ins[0]), product(n.ins[1])
            if left:
                other = ins[1] if n.op == "add" else graph.elementwise("neg", ins[1])
                made = graph.elementwise("fma", *left, other)
            elif right:
                first = right[0] if n.op == "add" else graph.elementwise("neg", right[0])
                made = graph.elementwise("fma", first, right[1], ins[0])
        elif n.op == "reduce" and n.params[0] == "sum" and n.dtype == "f":
            pair = product(n.ins[0])
            if len(n.params[1]) == 1 and n.ins[0].shape[n.params[1][0]] <= fusion.FEW_TERMS:
                made = _written_out(graph, pair or ins, n)
            if pair and made is None:
                made = graph.make("reduce", pair, n.shape, n.dtype, n.params)
        elif sums and n.op == "reduce" and n.params[0] == "and" and n.ins[0].op == "is_finite":
            x = new[n.ins[0].ins[0].id]
            zeros = graph.bcast(graph.const(np.float32(0)), x.shape, ())
            total = graph.make("reduce", (x, zeros), n.shape, "f", ("sum", n.params[1], False))
            made = graph.elementwise("eq", total, graph.const(np.float32(0)))
        if n.op == "scatter" and (_rows(n) > FEW_ROWS or _wide_window(n)):
            made = graph.make("scatter_many", ins, n.shape, n.dtype, n.params)
        if n.op == "dynamic_update_slice":
            update = n.ins[1]
            if any(1 < u < s for u, s in zip(update.shape, n.shape, strict=True)):
                made = graph.make("update_many", ins, n.shape, n.dtype, n.params)
        new[n.id] = made or graph.make(n.op, ins, n.shape, n.dtype, n.params)
    return [new[n.id] for n in outs]


def _uses(outs: Sequence[Node]) -> Counter[int]:
    """How often each node is read, or wanted."""
    return Counter(i.id for n in reachable(outs) for i in n.ins) + Counter(n.id for n in outs)


def _readers(outs: Sequence[Node]) -> dict[int, list[Node]]:
    """Of each node that the outputs need, those that read it, once for each time."""
    order = reachable(outs)
    readers: dict[int, list[Node]] = {n.id: [] for n in order}
    for n in order:
        for i in n.ins:
            readers[i.id].append(n)
    return readers


def _written_out(graph: Graph, factors: Sequence[Node], n: Node) -> Node | None:
    """A sum of few terms along one axis, term after term: it is then computed in the loop that needs it.

    None where that would read elements apart from one another: a term is a number, or a layer of an array.
    """
    axis, shape = n.params[1][0], n.ins[0].shape
    total = graph.bcast(graph.const(np.float32(0)), n.shape, ())
    for k in range(shape[axis]):
        term = [graph.layer(f, axis, k) for f in factors]
        if not all(base(x).size == 1 or fusion.is_layer(base(x)) for x in term):
            return None
        total = graph.elementwise("fma", *term, total) if len(term) == 2 else graph.elementwise("add", total, *term)
    return total


def written_in_place(graph: Graph, state: Sequence[Node], outs: Sequence[Node]) -> list[Node]:
    """Outputs that change a few places of a state's array which nothing else reads: only those places are written."""
    uses, new = _uses(outs), list(outs)
    kinds = {"scatter": "scatter", "scatter_many": "scatter", "dynamic_update_slice": "update", "update_many": "update"}
    for k, (leaf, o) in enumerate(zip(state, outs, strict=False)):
        if o.op in kinds and o.ins[0] is leaf and uses[leaf.id] == 1 and uses[o.id] == 1:
            new[k] = graph.make(f"{kinds[o.op]}_in_place", o.ins, o.shape, o.dtype, o.params)
    return new


def needing() -> Callable[[Node, Node], bool]:
    """Asks whether computing one node needs another; what is behind a node is found once."""
    behind: dict[int, set[int]] = {}

    def needs(q: Node, n: Node) -> bool:
        if q.id not in behind:
            behind[q.id] = {m.id for m in reachable([q])}
        return n.id in behind[q.id]

    return needs


def settled_first(graph: Graph, outs: Sequence[Node]) -> list[Node]:
    """Outputs with the choice that hangs on what is chosen made last: p ? (q ? new : old) : c by q, if q needs new.

    What p says, such as the end of an episode, is then part of what is written first, and only q is left to be put
    right. In lanes some episode ends at nearly every step; for one run it is seldom, and left as it is.
    """
    needs = needing()

    def turned(o: Node) -> Node:
        if o.op != "select" or o.shape == () or base(o.ins[0]).shape != ():
            return o
        p, inner = o.ins[0], o.ins[1]
        if inner.op != "select" or base(inner.ins[0]).shape != () or needs(p, inner.ins[2]):
            return o
        q, old, new = inner.ins
        if old.op != "leaf" or not needs(q, new):
            return o
        return graph.elementwise("select", q, *(graph.elementwise("select", p, side, o.ins[2]) for side in (old, new)))

    return [turned(o) for o in outs]


def replaced_in_place(state: Sequence[Node], outs: Sequence[Node]) -> list[bool]:
    """Which outputs may be written over the state they replace: each of its elements is read once, for that output.

    ``outs`` may be more than the state; the state's own come first.
    """
    users = _readers(outs)
    wanted = [n.id for n in outs]

    def only(leaf: Node, o: Node) -> bool:
        n = leaf
        while n is not o:
            readers = users.get(n.id, [])
            if len(readers) != 1 or n.id in wanted:
                return False
            n = readers[0]
            if n.op in VIEWS or n.op in STORED_OPS or n.op in OPAQUE or n.op == "reduce" or n.shape != leaf.shape:
                return False
        return o.op != "select" and wanted.count(o.id) == 1 and o is not leaf

    return [leaf.shape != () and only(leaf, o) for leaf, o in zip(state, outs, strict=False)]


def _rows(n: Node) -> int:
    """To how many places of one array a scatter writes."""
    batch = n.params[6]
    return math.prod(s for d, s in enumerate(n.ins[1].shape[:-1]) if d not in batch)


def _wide_window(n: Node) -> bool:
    """Whether a scatter's windows are part of an axis, more than one element of it."""
    kind, window, inserted, places, _, batch, _ = n.params
    update = n.ins[2]
    axes = [d for d in range(len(n.shape)) if d not in (*inserted, *batch)]
    if kind not in ("set", "add"):
        return True
    return any(d in places and update.shape[w] > 1 for d, w in zip(axes, window, strict=True))


def _is_product(n: Node) -> bool:
    """Whether a reduction is a product of matrices for which memory of its own pays.

    Several of its sums are then taken at once, rather than one after another where each is needed. A small product is
    over before that matters, and one with a large result costs more by being read again.
    """
    long = len(n.ins) == 2 and n.shape != () and n.shape[-1] >= 4 and n.ins[0].size >= 8 * n.size
    return long and n.ins[0].size >= LEAST_PRODUCT and n.size <= MOST_RESULTS


def one_for_all(outs: Sequence[Node], leaves: Sequence[Node]) -> list[bool]:
    """Which outputs are whole numbers that are the same for every lane, if these leaves are."""
    known = {leaf.id for leaf in leaves}
    for n in reachable(outs):
        plain = n.op not in STORED_OPS and n.op not in OPAQUE and n.op not in VIEWS and n.op not in ("leaf", "reduce")
        if (n.shape == () and n.dtype != "f" and plain and all(i.id in known for i in n.ins)) or n.op == "largest":
            known.add(n.id)
    return [n.id in known for n in outs]


def reachable(outs: Sequence[Node]) -> list[Node]:
    """All nodes that the outputs need, inputs first: in the order in which they were made."""
    seen: dict[int, Node] = {}
    stack = list(outs)
    while stack:
        n = stack.pop()
        if n.id not in seen:
            seen[n.id] = n
            stack += n.ins
    return [seen[k] for k in sorted(seen)]


class Plan:
    """What is stored, and the order of emission.

    Args:
        outs: output nodes; arrays among them are stored.
        lanes: runs in vector lanes, or 1.
        spread: whether a vector's elements are those of several threads, which all do what is not in a vector.
    """

    def __init__(self, outs: Sequence[Node], lanes: int, spread: bool = False):
        self.outs, self.lanes, self.spread = list(outs), lanes, spread
        self.order = reachable(outs)
        self.rank = {n.id: k for k, n in enumerate(self.order)}
        self.users = _readers(outs)
        self.stored: dict[int, bool] = {}
        self.cost: dict[int, float] = {}
        self.repairs: dict[int, Node] = {}  # output -> what is written in its place first
        self._decide()
        self._find_repairs()
        self.layered = fusion.layered(self.order, self.users) if lanes == 1 else set()
        self.items = self._schedule()
        if fusion.narrow(self):
            self.items = self._schedule()
        fusion.postpone(self)
        self.passing = fusion.passing(self)

    # -- what is stored

    def _decide(self) -> None:
        fixed: dict[int, bool] = {}
        for n in self.order:
            scalar = n.shape == () and n.op not in VIEWS
            fixed[n.id] = n.op not in ("const", "leaf") and (scalar or n.op in STORED_OPS)
            if n.op == "reduce" and (self.lanes == 1 or _is_product(n)):
                fixed[n.id] = True
        for n in self.order:
            needy: tuple[Node, ...] = ()
            if n.op in ("gather", "dynamic_slice"):
                needy = n.ins[:1]
            elif (n.op == "reshape" and not same_places(n)) or n.op in ("loop", "sort"):
                needy = n.ins
            for i in needy:
                while i.op == "reshape":
                    i = i.ins[0]
                if i.op not in ("leaf", "const") and (i.shape != () or i.op not in VIEWS):
                    fixed[i.id] = True
        for n in self.outs:
            if n.op not in ("const", "leaf"):
                fixed[n.id] = True
        self.stored = dict(fixed)
        for _ in range(3):
            evaluations = self._evaluations()
            self._costs()
            for n in self.order:
                if fixed[n.id] or n.op in ("const", "leaf") or n.op in VIEWS:
                    continue
                times = evaluations[n.id] / max(1, n.size)
                again = (times - 1) * self.cost[n.id] if times > 1.001 else 0.0
                heavy = COST.get(n.op, 1) >= 5 or n.op in ("reduce", "gather", "dynamic_slice")
                self.stored[n.id] = bool(again > (0 if heavy else RECOMPUTE))
            for n in fusion.read_in_order(self) if self.spread else ():
                self.stored[n.id] |= not fixed[n.id]

    def _evaluations(self) -> dict[int, float]:
        """How many elements of each node are computed, if what is stored is computed once."""
        count = {n.id: 0.0 for n in self.order}
        for n in self.outs:
            count[n.id] += n.size
        for n in reversed(self.order):
            each = float(n.size) if self.stored[n.id] else count[n.id]
            if n.op == "reduce":
                each *= n.ins[0].size / max(1, n.size)
            elif n.op in ("cumulative", "arg"):
                each = n.ins[0].size
            for k, i in enumerate(n.ins):
                if n.op == "concat" or n.op in STORED_OPS - {"cumulative", "arg"}:
                    count[i.id] += i.size
                elif n.op == "dynamic_slice" and k == 0:
                    count[i.id] += 0
                else:
                    count[i.id] += each
        return count

    def _costs(self) -> None:
        self.cost = {}
        for n in self.order:
            own = 0.0 if n.op in VIEWS or n.op == "const" else 1.0 if n.op == "leaf" else COST.get(n.op, 1.0)
            inputs = sum((0.0 if i.shape == () else 1.0) if self.stored[i.id] else self.cost[i.id] for i in n.ins)
            many = n.ins[0].size / max(1, n.size) if n.op == "reduce" else 1.0
            self.cost[n.id] = (own + inputs) * many

    # -- outputs that are seldom something else than what is written first

    def _find_repairs(self) -> None:
        """Outputs that choose, by scalar predicates, between a value that is stored anyway and something rarer.

        The value is written to the output's place, and what another choice asks for is put right under a branch: so a
        guard against updates that are not finite costs nothing while they are.
        """
        taken: set[int] = set()
        needs, outputs = needing(), Counter(n.id for n in self.outs)
        for o in self.outs:
            if o.op != "select" or o.shape == () or outputs[o.id] > 1:
                continue
            v = self._likely(o, needs)
            if v is None or v.id in taken or v.id in outputs:
                continue
            readers = {r.id: r for r in self._readers(v)}
            if all(self.rank[r] <= self.rank[o.id] for r in readers):
                taken.add(v.id)
                self.repairs[o.id] = v
                self.stored[v.id] = True

    def _likely(self, n: Node, needs: Callable[[Node, Node], bool]) -> Node | None:
        """Of nested choices by scalars, the end that others read, too; with a choice that does not hang on it."""
        if n.op != "select":
            plain = n.op in ("const", "leaf") or n.op in VIEWS
            return n if not plain and len(self.users[n.id]) > 1 else None
        if base(n.ins[0]).shape != ():
            return None
        for side in (2, 1):
            inner = n.ins[side]
            if inner.op == "select" and len(self.users[inner.id]) > 1:
                continue
            found = self._likely(inner, needs)
            if found is not None:
                settled = self.lanes > 1 and found in inner.ins and not needs(base(inner.ins[0]), found)
                return inner if settled else found
        return None

    def _readers(self, n: Node) -> Iterator[Node]:
        """Stored nodes that an element of ``n`` goes into."""
        for u in self.users[n.id]:
            if self.stored[u.id]:
                yield u
            else:
                yield from self._readers(u)

    # -- order

    def needs(self, n: Node) -> dict[int, tuple[Node, bool]]:
        """The stored nodes that computing ``n`` reads, and whether each is read only at the same place as written."""
        if n.id not in self._needs:
            touched = self.touched(n)
            self._needs[n.id] = {k: found for k, found in touched.items() if found[0].op != "leaf"}
            self._reads[n.id] = {k for k, (m, _) in touched.items() if m.shape != ()}
        return self._needs[n.id]

    def reads(self, n: Node) -> set[int]:
        """Leaves and stored arrays among what an element needs."""
        self.needs(n)
        return self._reads[n.id]

    def touched(self, n: Node, layers: bool = True) -> dict[int, tuple[Node, bool]]:
        """The leaves and stored nodes that computing ``n`` reads, and whether each only at the same place.

        ``layers``: one layer of an array, and an array repeated, count as the same place.
        """
        found: dict[int, tuple[Node, bool]] = {}
        seen: set[tuple[int, bool]] = set()

        def visit(m: Node, same: bool) -> None:
            if (m.id, same) in seen or m.op == "const":
                return
            seen.add((m.id, same))
            if m.op == "leaf" or self.stored[m.id]:
                found[m.id] = (m, same and found.get(m.id, (m, True))[1])
            else:
                inner(m, same)

        def inner(m: Node, same: bool) -> None:
            keeps = m.op not in VIEWS and m.op not in STORED_OPS and m.op != "reduce"
            keeps = same and (keeps or (layers and (fusion.is_layer(m) or fusion.is_repeated(m))))
            for k, i in enumerate(m.ins):
                first = k == 0 and m.op in ("scatter", "dynamic_update_slice")
                visit(i, keeps and (first or m.op not in OPAQUE))

        if n.op == "reduce":
            for i in n.ins:
                visit(i, self.is_total(n))
        else:
            inner(n, True)
        return found

    def is_total(self, n: Node) -> bool:
        """Whether a reduction is over all axes and may share a loop with what it reads."""
        if n.op != "reduce" or n.shape != () or n.ins[0].size > (1 << 24):
            return False
        _, _, partial = n.params
        ordered = n.dtype == "f" and n.params[0] in ("sum", "prod")
        if self.lanes > 1:
            return not partial
        return partial or (not ordered and n.ins[0].size >= 4)

    def space(self, n: Node) -> tuple[int, ...] | None:
        """The loop that a node is computed in, or None if it has its own way."""
        if n.op in STORED_OPS or n.id in self.repairs:
            return None
        if n.op == "reduce":
            return n.ins[0].shape if self.is_total(n) else None
        if n.id in self.layered:
            return n.shape[1:]
        return n.shape if n.shape != () else None

    def _schedule(self) -> list[Item]:
        self._needs: dict[int, dict[int, tuple[Node, bool]]] = {}  # both are of what is stored at the time
        self._reads: dict[int, set[int]] = {}
        items: list[Item] = []
        at: dict[int, int] = {}
        touches: list[set[int]] = []
        later: list[Node] = []
        for n in self.order:
            if not self.stored[n.id]:
                continue
            if n.id in self.repairs:
                later.append(n)
                if not self.users[n.id]:
                    continue
                later.pop()
            space, needs = self.space(n), self.needs(n)
            if space is None:
                items.append(Item([n]))
                touches.append(set())
                at[n.id] = len(items) - 1
                continue
            ready, reads = 0, self.reads(n)
            near = reads | set(needs)
            for m, same in needs.values():
                fused = same and items[at[m.id]].space == space and m.op != "reduce"
                ready = max(ready, at[m.id] + (0 if fused else 1))
            place = next((k for k in range(ready, len(items)) if items[k].space == space and touches[k] & near), None)
            if place is None:
                items.append(Item([n], space))
                touches.append(set())
                place = len(items) - 1
            else:
                items[place].nodes.append(n)
            touches[place] |= reads | {n.id}
            at[n.id] = place
        items += [Item([n]) for n in later]
        return items
