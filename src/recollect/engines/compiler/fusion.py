"""What passes from loop to loop through memory: as few arrays as a plan allows."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from recollect.engines.compiler.graph import OPAQUE, STORED_OPS, VIEWS, Node

if TYPE_CHECKING:
    from recollect.engines.compiler.plan import Plan


FEW_TERMS = 4
"""A sum along an axis of at most so many elements is written out, and an array of so many layers may be."""

ONE_BY_ONE = 3
"""In a team of threads, an array that is read in order is stored first if an element costs more instructions."""


@dataclasses.dataclass
class Item:
    """One thing to emit: a kernel (a loop over ``space`` with all its members), or one node that has its own way."""

    nodes: list[Node]
    space: tuple[int, ...] | None = None  # of a kernel


def is_layer(n: Node) -> bool:
    """Whether this is one place along the first axis of an array, with or without that axis."""
    if n.op == "reshape":
        return is_layer(n.ins[0]) and n.ins[0].op == "slice" and n.shape == n.ins[0].shape[1:]
    return n.op == "slice" and n.shape[0] == 1 and n.shape[1:] == n.ins[0].shape[1:]


def is_repeated(n: Node) -> bool:
    """Whether this is an array once for each place of a new first axis."""
    return n.op == "bcast" and n.ins[0].shape == n.shape[1:] and n.params == tuple(range(1, len(n.shape)))


def layered(order: Sequence[Node], users: Mapping[int, list[Node]]) -> set[int]:
    """Arrays of few layers that others take apart: all layers are computed in a loop over one."""
    found: set[int] = set()
    for n in reversed(order):
        plain = (
            n.ins
            and n.op not in VIEWS | STORED_OPS | OPAQUE | {"reduce"}
            and len(n.shape) > 1
            and n.shape[0] <= FEW_TERMS
        )
        if plain and any(u.id in found or is_layer(u) for u in users[n.id]):
            found.add(n.id)
    return found


def read_in_order(plan: "Plan") -> Iterator[Node]:
    """Dear arrays that would be computed one element after the other, where a scalar is made of them in order."""
    for n in plan.order:
        alone = n.op == "reduce" and n.size == 1 and not n.params[2] and not plan.is_total(n)
        if alone or n.op in ("cumulative", "arg"):
            for i in n.ins:
                while i.op in VIEWS:
                    i = i.ins[0]
                if i.size > 1 and i.op not in ("const", "leaf") and plan.cost[i.id] > ONE_BY_ONE:
                    yield i


def narrow(plan: "Plan") -> bool:
    """Store what a later loop makes of several arrays, if it is all that the world outside of their loop wants of them.

    So p and d of a loop are not kept for one that reads their product; whether anything was found.
    """
    at = {n.id: k for k, item in enumerate(plan.items) for n in item.nodes}
    wanted = {n.id for n in (*plan.outs, *plan.repairs.values())}
    found: list[Node] = []

    def enough(x: Node) -> bool:
        """Whether storing ``x`` spares at least one array."""
        needs = plan.needs(x).values()
        arrays = [m for m, _ in needs if m.shape != ()]
        loops = {at[m.id] for m in arrays}
        if len(arrays) < 2 or len(loops) != 1 or plan.reads(x) != {m.id for m in arrays}:
            return False
        (k,) = loops
        near = all(same if m.shape != () else at[m.id] < k for m, same in needs)
        return near and plan.items[k].space == x.shape and all(m.id not in wanted and only(m, x, k) for m in arrays)

    def only(m: Node, x: Node, k: int) -> bool:
        """Whether all that ``m`` goes into outside of loop ``k`` goes through ``x``."""
        return all(
            u is x or (at[u.id] == k if plan.stored[u.id] else u.op not in VIEWS and only(u, x, k))
            for u in plan.users[m.id]
        )

    def visit(n: Node, space: tuple[int, ...]) -> None:
        for i in n.ins:
            if i.shape != space or plan.stored[i.id] or i.op in ("leaf", "const") or i.op in VIEWS:
                continue
            if enough(i):
                found.append(i)
            else:
                visit(i, space)

    for item in plan.items:
        for n in item.nodes if item.space else ():
            visit(n, item.space or ())
    for x in found:
        plan.stored[x.id] = True
    return bool(found)


def postpone(plan: "Plan") -> None:
    """Move arrays to the loop that reads them next, if no more arrays are loaded then than before.

    What else their own loop makes of them goes along: a trace is added to where it is used, and what is left of it
    after an episode's end is written there, too.
    """
    needs = {n.id: plan.needs(n) for item in plan.items for n in item.nodes}
    at = {n.id: k for k, item in enumerate(plan.items) for n in item.nodes}
    readers: dict[int, list[tuple[Node, bool]]] = {}
    for item in plan.items:
        for user in item.nodes:
            for m, (_, same) in needs[user.id].items():
                readers.setdefault(m, []).append((user, same))

    def going(n: Node, there: int) -> list[Node]:
        """The array and what its loop makes of it, if all readers are there, in order or later; else nothing."""
        found = [n]
        for user, same in readers.get(n.id, ()):
            if at[user.id] > there or (at[user.id] == there and same):
                continue
            more = going(user, there) if at[user.id] == at[n.id] and same and user.op != "reduce" else []
            if not more:
                return []
            found += [m for m in more if m not in found]
        return sorted(found, key=lambda m: plan.rank[m.id])

    for n in reversed(plan.order):
        k = at.get(n.id, -1)
        if k < 0 or n.op == "reduce" or plan.items[k].space is None:
            continue
        first = min((at[user.id] for user, _ in readers.get(n.id, ()) if at[user.id] > k), default=k)
        here, there = plan.items[k], plan.items[first]
        if first == k or there.space != here.space or not (moved := going(n, first)):
            continue
        left, right = [m for m in here.nodes if m not in moved], [*moved, *there.nodes]
        if _loads(plan, left) + _loads(plan, right) <= _loads(plan, here.nodes) + _loads(plan, there.nodes):
            here.nodes, there.nodes = left, right
            at |= {m.id: first for m in moved}
    plan.items = [item for item in plan.items if item.nodes]


def _loads(plan: "Plan", nodes: Sequence[Node]) -> int:
    """How many arrays a loop over these nodes reads that it does not make."""
    return len(set().union(*(plan.reads(n) for n in nodes)) - {n.id for n in nodes})


def passing(plan: "Plan") -> set[int]:
    """Arrays that only their own loop reads, each element where it is computed: they need no memory."""
    at = {n.id: k for k, item in enumerate(plan.items) for n in item.nodes}
    kept = {n.id for n in (*plan.outs, *plan.repairs.values())}
    for k, item in enumerate(plan.items):
        for n in item.nodes:
            kept |= {m for m, (_, same) in plan.needs(n).items() if not same or at[m] != k or item.space is None}
    return {n.id for item in plan.items if item.space for n in item.nodes if n.op != "reduce" and n.id not in kept}
