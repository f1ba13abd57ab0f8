"""Arrays of one step in one piece of memory: those that are not needed at the same time share a place.

Read off the text of a step: an array is needed from the first line that names it, or an address inside it, to the last,
and through the whole of any loop that either is in.
"""

import re
from collections.abc import Mapping, Sequence

NAME = re.compile(r"%[A-Za-z_][A-Za-z0-9_]*")
STORE = re.compile(r"  store \w+ \S+, ptr (%\w+), align \d+(?: ;.*)?")
ADDRESS = re.compile(r"  (%\w+) = getelementptr inbounds \w+, ptr (%\w+), i64 (\S+)")
START = re.compile(r"([lw])(\d+):")


def places(arrays: Mapping[str, int], lines: Sequence[str], still: bool = False) -> tuple[dict[str, int], int]:
    """Where each array begins in memory that they share, and how much that is, in bytes.

    ``still``: whether those are placed, too, of which only constant places are used, or of which nothing is read.
    Without, LLVM makes registers of the former and nothing of the latter.
    """
    loops, owner, spans = _loops(lines), dict(zip(arrays, arrays, strict=True)), {}
    moving, read = set(), set()
    for at, line in enumerate(lines):
        found = ADDRESS.match(line)
        if found and (array := owner.get(found[2])) is not None:
            owner[found[1]] = array
            if found[3].startswith("%") or array != found[2]:
                moving.add(array)
        elif not STORE.fullmatch(line):
            read |= {owner[name] for name in NAME.findall(line) if name in owner}
        for name in NAME.findall(line):
            if (array := owner.get(name)) is not None:
                first, last = loops[at]
                low, high = spans.get(array, (first, last))
                spans[array] = (min(low, first), max(high, last))
    return _first_fit(arrays, {a: span for a, span in spans.items() if still or a in moving & read})


def _loops(lines: Sequence[str]) -> list[tuple[int, int]]:
    """For each line the outermost loop that it is in, as its first and last line; itself outside of any."""
    ends = {line[:-1]: at for at, line in enumerate(lines) if line.endswith(":")}
    spans = [(at, at) for at in range(len(lines))]
    at = 0
    while at < len(lines):
        head = START.fullmatch(lines[at])
        end = ends.get(f"{'x' if head[1] == 'l' else 'z'}{head[2]}") if head else None
        if end is None:
            at += 1
            continue
        start = at - 1 if at else at
        spans[start : end + 1] = [(start, end)] * (end + 1 - start)
        at = end + 1
    return spans


def _first_fit(arrays: Mapping[str, int], spans: Mapping[str, tuple[int, int]]) -> tuple[dict[str, int], int]:
    """In the order in which arrays are first needed."""
    live: list[tuple[int, int, int]] = []  # last line, start, end in bytes
    found, total = {}, 0
    for name in sorted(spans, key=lambda a: spans[a]):
        first, last = spans[name]
        live = sorted((entry for entry in live if entry[0] >= first), key=lambda entry: entry[1])
        size, at = -(-arrays[name] // 16) * 16, 0
        for _, low, high in live:
            if low - at >= size:
                break
            at = max(at, high)
        live.append((last, at, at + size))
        found[name] = at
        total = max(total, at + size)
    return found, total
