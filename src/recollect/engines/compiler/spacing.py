"""Gaps in arrays on a GPU's chip, so that a team's threads find their elements in different banks.

The chip's memory has 32 banks, and each gives one word at a time. Threads that read down a column of rows of 16 words
would all wait for two of them; with a word left free after each row, rows are an odd number of words apart, and no two
threads of a warp's two teams meet.
"""

from collections.abc import Callable, Mapping, Sequence

from recollect.engines.compiler.affine import Index
from recollect.engines.compiler.graph import OPAQUE, STORED_OPS, VIEWS, Node
from recollect.engines.compiler.plan import Plan
from recollect.engines.compiler.values import BYTES


def rows(plan: Plan, leaves: Sequence[Node], outs: Mapping[int, int]) -> dict[int, int]:
    """The arrays of a state to leave gaps in, and how many elements their rows have.

    Only powers of two, so that a place among gaps is found by a shift, and only arrays of which nothing is read or
    written at computed places. ``outs``: the output, by its number, that takes the place of an array.
    """
    nodes = {n.id: n for n in plan.order}

    def is_plain(n: Node) -> bool:
        return n.op not in OPAQUE and n.op not in STORED_OPS - {"concat"}

    def is_read_plainly(n: Node) -> bool:
        return all(is_plain(u) and (u.op not in VIEWS or is_read_plainly(u)) for u in plan.users[n.id])

    found = {}
    for leaf in leaves:
        row = leaf.shape[-1] if len(leaf.shape) > 1 else 0
        out = outs.get(leaf.id, -1)
        written = [n for n in (nodes.get(out), plan.repairs.get(out)) if n is not None]
        if row < 2 or row & (row - 1) or BYTES[leaf.dtype] != 4 or row == leaf.size:
            continue
        if is_read_plainly(leaf) and all(is_plain(n) for n in written):
            found[leaf.id] = row
    return found


def with_gaps(index: Index, row: int, reach: Callable[[str], int]) -> Index | None:
    """The place among gaps of an element, if it is a sum of multiples of variables; None if it is not.

    ``reach``: the largest value of each variable.
    """
    constant, terms = index
    within = constant % row + sum(f * reach(name) for name, f in terms if f % row)
    if within >= row or any(f < 0 for _, f in terms):
        return None
    return (constant + constant // row, tuple((name, f + f // row if f % row == 0 else f) for name, f in terms))


def is_multiple(index: Index, of: int, vector: str | None) -> bool:
    """Whether the first thread's element is at a multiple; a vector's variable moves by whole vectors."""
    constant, terms = index
    return constant % of == 0 and all(f % of == 0 or name == vector for name, f in terms)
