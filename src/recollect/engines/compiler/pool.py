"""Arrays of one step in one piece of memory: those that are not needed at the same time share a place.

Read off the text of a step: an array is needed from the first line that names it, or an address inside it, to the last,
and through the whole of any loop that either is in.
"""

import re
from collections.abc import Mapping, Sequence

NAME = re.compile(r"%[A-Za-z_][A-Za-z0-9_]*")
ADDRESS = re.compile(r"  (%\w+) = getelementptr inbounds \w+, ptr (%\w+), i64 (\S+)")
START = re.compile(r"([lw])(\d+):")


def placed(arrays: Mapping[str, int], lines: Sequence[str]) -> tuple[list[str], int]:
    """Lines that give every array its memory, and the bytes of what they share.

    An array whose places are all constants is left to LLVM, which makes registers of it.
    """
    loops, owner, spans, moving = _loops(lines), dict(zip(arrays, arrays, strict=True)), {}, set()
    for at, line in enumerate(lines):
        found = ADDRESS.match(line)
        if found and (array := owner.get(found[2])) is not None:
            owner[found[1]] = array
            if found[3].startswith("%") or owner.get(found[2]) != found[2]:
                moving.add(array)
        for name in NAME.findall(line):
            if (array := owner.get(name)) is not None:
                first, last = loops[at]
                low, high = spans.get(array, (first, last))
                spans[array] = (min(low, first), max(high, last))
    return _text(arrays, {a: spans[a] for a in arrays if a in spans and a in moving})


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


def _text(arrays: Mapping[str, int], spans: Mapping[str, tuple[int, int]]) -> tuple[list[str], int]:
    """First fit, in the order in which arrays are first needed."""
    live: list[tuple[int, int, int]] = []  # last line, start, end in bytes
    lines, total = [], 0
    for name in sorted(spans, key=lambda a: spans[a]):
        first, last = spans[name]
        live = sorted((entry for entry in live if entry[0] >= first), key=lambda entry: entry[1])
        size, at = -(-arrays[name] // 16) * 16, 0
        for _, low, high in live:
            if low - at >= size:
                break
            at = max(at, high)
        live.append((last, at, at + size))
        total = max(total, at + size)
        lines.append(f"  {name} = getelementptr inbounds i8, ptr %pool, i64 {at}")
    alone = [f"  {name} = alloca [{size} x i8], align 16" for name, size in arrays.items() if name not in spans]
    shared = [f"  %pool = alloca [{total} x i8], align 16"] if total else []
    return [*alone, *shared, *lines], total
