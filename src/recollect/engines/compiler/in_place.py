"""Which arrays of a state can be written over within a step: those that nothing reads any more by then.

Items of a plan are moved for it: whoever reads the old array comes before the loop that writes the new one. Where a
guard may still choose the old values, that loop puts them aside, and the guard takes them from there.
"""

import heapq
from collections.abc import Mapping

from recollect.engines.compiler.graph import Node
from recollect.engines.compiler.plan import Item, Plan


def leaf_reads(plan: Plan, n: Node) -> dict[int, bool]:
    """The leaves that computing ``n`` reads, and whether each only at the place that is computed."""
    return {k: same for k, (m, same) in plan.touched(n, layers=False).items() if m.op == "leaf"}


def _ordered(count: int, before: list[set[int]]) -> list[int] | None:
    """Items such that each comes after those before it, else as they were; None if there is no such order."""
    left = [len(b) for b in before]
    after: list[list[int]] = [[] for _ in range(count)]
    for k, b in enumerate(before):
        for j in b:
            after[j].append(k)
    ready = [k for k in range(count) if not left[k]]
    order = []
    while ready:
        k = heapq.heappop(ready)
        order.append(k)
        for j in after[k]:
            left[j] -= 1
            if not left[j]:
                heapq.heappush(ready, j)
    return order if len(order) == count else None


def settle(plan: Plan, over: Mapping[int, Node]) -> set[int]:
    """Put the items in an order in which outputs can be written over leaves; says of which outputs that is true.

    ``over``: the leaf that each output, named by its number, takes the place of.
    """
    items: list[Item] = plan.items
    at = {n.id: k for k, item in enumerate(items) for n in item.nodes}
    reads = {n.id: leaf_reads(plan, n) for item in items for n in item.nodes}
    before = [{at[m] for n in item.nodes for m in plan.needs(n)} - {k} for k, item in enumerate(items)]
    done: set[int] = set()
    for o, leaf in over.items():
        written = plan.repairs[o].id if o in plan.repairs else o
        home = at.get(written)
        if home is None or items[home].space is None:
            continue
        readers = {at[n]: n for n, found in reads.items() if leaf.id in found and n != o}
        inside = (n.id for n in items[home].nodes if leaf.id in reads[n.id])
        if not all(reads[n][leaf.id] for n in inside):
            continue
        trial = [b | (set(readers) - {k}) if k == home else b for k, b in enumerate(before)]
        if _ordered(len(items), trial) is not None:
            before = trial
            done.add(o)
    order = _ordered(len(items), before)
    assert order is not None
    plan.items = [items[k] for k in order]
    return done
