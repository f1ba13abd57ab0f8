"""Where the threads of a team wait for one another: read off the text of a step.

What one thread writes and another reads, or the other way round, needs a barrier between. None is needed where each
thread keeps to its own elements, nor where every thread writes the same number and reads it afterwards: it reads what
it wrote itself. Of loops two turns are looked at, so that what the end of one does to the start of the next is seen.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from recollect.engines.compiler.pool import ADDRESS, START

LOAD = re.compile(r"  %\w+ = load \w+, ptr (%\w+), align \d+(?: ; (.*))?")
STORE = re.compile(r"  store \w+ \S+, ptr (%\w+), align \d+(?: ; (.*))?")
BRANCH = re.compile(r"([tm])(\d+):")
WAIT = "  call void @llvm.nvvm.bar.warp.sync(i32 %members)"
DECLARED = "declare void @llvm.nvvm.bar.warp.sync(i32)"

Span = tuple[str, int, int]
"""A region of memory, and the bytes from where to where in it."""


class Access(NamedTuple):
    """A load or store since the last barrier; ``owner`` as `teams.TeamWriter` writes it, empty if all touch one."""

    span: Span
    writes: bool
    owner: str


def _meets(a: Span, b: Span) -> bool:
    return a[0] == b[0] and a[1] < b[2] and b[1] < a[2]


def _clashes(before: Access, after: Access) -> bool:
    """Whether a barrier is needed between two touches of the same memory."""
    if not (before.writes or after.writes) or not _meets(before.span, after.span):
        return False
    if before.owner.startswith("each") and before.owner == after.owner and before.span == after.span:
        return False
    return not (before.writes and not before.owner and (not after.writes or not after.owner))


class _Walk:
    """One way through the lines, with what was touched since the last barrier."""

    def __init__(self, lines: Sequence[str], spans: Mapping[str, Span]):
        self.lines, self.roots = lines, dict(spans)
        self.waits: set[int] = set()  # lines before which there is a barrier
        self.ends = {line[:-1]: at for at, line in enumerate(lines) if line.endswith(":")}

    def through(self, first: int, last: int, seen: set[Access], gate: int | None = None) -> set[Access]:
        """What has been touched after the lines from ``first`` up to ``last``.

        ``gate``: where some threads go another way, the line before which all of them still wait together.
        """
        at = first
        while at < last:
            line = self.lines[at]
            if at in self.waits:
                seen = set()
            head, fork = START.fullmatch(line), BRANCH.fullmatch(line)
            if head and (end := self.ends.get(f"{'x' if head[1] == 'l' else 'z'}{head[2]}")) is not None:
                if gate is None and self._only_at_first(at + 1, end, seen):
                    self.waits.add(at - (3 if head[1] == "l" else 1))
                    seen = set()
                once = self.through(at + 1, end, seen, gate)
                twice = self.through(at + 1, end, once, gate)
                seen = twice if head[1] == "l" else seen | once | twice
                at = end
            elif fork:
                end = self.ends[f"{'j' if fork[1] == 't' else 'n'}{fork[2]}"]
                seen = seen | self.through(at + 1, end, seen, gate if fork[1] == "t" else at - 1)
                at = end
            else:
                seen = self._line(at if gate is None else gate, line, seen)
            at += 1
        return seen

    def _only_at_first(self, first: int, last: int, seen: set[Access]) -> bool:
        """Whether what was touched before a loop asks for a barrier in it that later turns do not need."""
        kept = self.waits
        found = []
        for before in (set(), seen):
            self.waits = set(kept)
            self.through(first, last, self.through(first, last, before))
            found.append(self.waits)
        self.waits = kept
        return bool(found[1] - found[0])

    def _line(self, at: int, line: str, seen: set[Access]) -> set[Access]:
        if (found := ADDRESS.match(line)) and found[2] in self.roots:
            self.roots[found[1]] = self.roots[found[2]]
            return seen
        load = LOAD.fullmatch(line)
        found = load or STORE.fullmatch(line)
        if not found or found[1] not in self.roots:
            return seen
        access = Access(self.roots[found[1]], load is None, found[2] or "")
        if any(_clashes(other, access) for other in seen):
            self.waits.add(at)
            seen = set()
        return seen | {access}


def placed(lines: Sequence[str], spans: Mapping[str, Span]) -> list[str]:
    """The lines with barriers; ``spans``: where in memory lies what names point to, for all that the team shares."""
    walk = _Walk(lines, spans)
    walk.through(0, len(lines), set())
    found: list[str] = []
    for at, line in enumerate(lines):
        if at in walk.waits:
            found.append(WAIT)
        found.append(line)
    return found
