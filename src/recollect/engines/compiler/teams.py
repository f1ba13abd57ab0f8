"""The step of one run as the work of a team: sixteen threads of a GPU that live it together.

The code is that of a single run, whose vectors of sixteen lie along its units: here each thread has one element of a
vector, and what is a scalar there every thread of the team computes for itself. So sums are in the same order, and a
run has the bits that it has on a processor. Lines that load or store say in a comment which thread touches which
element; `barriers` reads it.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from recollect.engines.compiler import affine, in_place, spacing
from recollect.engines.compiler.affine import Index
from recollect.engines.compiler.gpu_writer import GpuWriter
from recollect.engines.compiler.graph import Node
from recollect.engines.compiler.plan import Plan
from recollect.engines.compiler.values import BYTES, STORED, VECTOR, Buffer, Value

TEAM = VECTOR
"""Threads per run."""

SEGMENT = (32 - TEAM << 8) | 31
"""How shuffles are told that they stay among sixteen neighbours."""

VOTES = {"and": "all", "or": "any"}

OFTEN = (100, 8)
"""As `writer.WRITTEN_OUT`."""


class TeamWriter(GpuWriter):
    """Writes a single run's code for one thread of sixteen.

    Args:
        written_out: as `writer.WRITTEN_OUT`.
        leaves: arrays of the state.
        room: bytes of them that may be on the chip, without the gaps.
    """

    def __init__(self, written_out: tuple[int, int], leaves: int, room: int) -> None:
        super().__init__(1, written_out)
        self.strided, self.least = True, 2
        self.leaves, self.room, self._arranged = leaves, room, False
        self.chip: list[int] = []  # arrays of the state that are on the chip
        self.over: dict[int, bool] = {}  # those that are written over, and whether old values are put aside
        self.rows: dict[int, int] = {}  # of those on the chip that have a gap after each row: elements of a row
        self.ramps: set[int] = set()  # how many threads are at work where not all are
        self._gaps: dict[str, int] = {}  # the same by pointer
        self._last: dict[str, int] = {}  # the largest value of each loop variable

    # -- what lies where

    def arrange(self, plan: Plan, over: dict[int, tuple[int, Node]]) -> dict[int, bool]:
        """Arrays on the chip, the most read ones first, and written over where that can be."""
        if self._arranged:
            return {}
        self._arranged = True
        settled = in_place.settle(plan, {o: leaf for o, (_, leaf) in over.items()})
        twice = {leaf.id for o, (_, leaf) in over.items() if o not in settled}
        reads: dict[int, int] = {}
        for n in (n for item in plan.items for n in item.nodes if not n.op.endswith("_in_place")):
            for leaf in in_place.leaf_reads(plan, n):
                reads[leaf] = reads.get(leaf, 0) + 1
        leaves = [n for n in plan.order if n.op == "leaf" and n.params < self.leaves and n.id in reads]
        rows, left = spacing.rows(plan, leaves, {leaf.id: o for o, (_, leaf) in over.items()}), self.room
        for leaf in sorted(leaves, key=lambda n: (-reads[n.id], n.size)):
            size = -(-leaf.size * BYTES[leaf.dtype] // 16) * 16 * (2 if leaf.id in twice else 1)
            if size <= left:
                self.chip.append(leaf.params)
                left -= size
                if leaf.id in rows:
                    self.rows[leaf.params] = rows[leaf.id]
        found = {o: o in plan.repairs for o in settled if over[o][0] in self.chip}
        self.over = {over[o][0]: saved for o, saved in found.items()}
        self._gaps = {f"%s{k}": row for k, row in self.rows.items()}
        self._gaps |= {f"%t{k}": row for k, row in self.rows.items() if k not in self.over}
        return found

    # -- control

    def ramp(self, count: int) -> str:
        """Whether this thread is among the first ``count``."""
        self.ramps.add(count)
        return f"%below{count}"

    @contextmanager
    def loop(self, count: int, step: int = 1, vector: bool = False, mask: str | None = None) -> Iterator[Index]:
        """As any loop; the reach of its variable is kept."""
        with super().loop(count, step, vector, mask) as i:
            self._last[i[1][0][0]] = max(0, count - step)
            yield i

    def _lane(self) -> str:
        """The element of a vector that is this thread's; where few are at work, the others repeat the last of them."""
        mask = self.scope.mask
        return "%lane" if mask is None else mask.replace("%below", "%lane_below")

    # -- places

    def _spread(self, index: Index, row: int = 0) -> str:
        """An index as an i64, that of this thread's element; ``row``: elements of rows with a gap after each."""

        def make() -> str:
            found = spacing.with_gaps(index, row, self._reach) if row else index
            if found is not None:
                return self._moved(self.place(found), self._step(found))
            base, far = self.place(index), self._moved("0", self._step(index))
            if self._step(index) == 1 and spacing.is_multiple(index, min(row, TEAM), self.scope.vector):
                parts = [base, far]  # threads are in rows of their own, or all in one: the gaps before each are a sum
            else:
                parts = [self._moved(base, self._step(index))]
            shift = row.bit_length() - 1
            return functools.reduce(self._plus, [*parts, *(self.new(f"lshr i64 {p}, {shift}") for p in parts)])

        return make() if not index[1] else self.remember(("spread", index, row), make)

    def _plus(self, a: str, b: str) -> str:
        return b if a == "0" else self.new(f"add nsw i64 {a}, {b}")

    def _moved(self, base: str, step: int) -> str:
        """A place, so many elements further for each thread."""
        if not step:
            return base
        lane = self._lane()
        return self._plus(base, lane if step == 1 else self.new(f"mul nsw i64 {lane}, {step}"))

    def _reach(self, name: str) -> int:
        """How far a loop variable goes, the threads of a vector included."""
        return self._last[name] + (TEAM - 1 if name == self.scope.vector else 0)

    def index_value(self, index: Index, kind: str = "i") -> Value:
        """An index as a number to compute with."""
        if not index[1]:
            return self.const(kind, index[0])
        return Value(self.new(f"trunc i64 {self._spread(index)} to i32"), kind, self._step(index) != 0)

    def _owner(self, place: Index) -> str:
        """Which threads touch which elements, as a comment; nothing if all touch one.

        ``each s``: thread t has those e for which e // s % 16 = t; ``mixed``: anything else.
        """
        step = self._step(place)
        if not step:
            return ""
        if step < 0:
            return " ; mixed"
        whole = TEAM * step
        reach = place[0] % whole
        for name, factor in place[1]:
            if name != self.scope.vector and factor % whole:
                reach = whole if factor < 0 else reach + factor * self._last[name]
        return f" ; each {step}" if reach < step else " ; mixed"

    # -- memory

    def pointer(self, buffer: Buffer, place: Index) -> str:
        """The address of this thread's element."""
        if place == affine.ZERO:
            return buffer.pointer
        at = self._spread(place, self._gaps.get(buffer.pointer, 0))
        return self.new(f"getelementptr inbounds {STORED[buffer.kind]}, ptr {buffer.pointer}, i64 {at}")

    def _read(self, kind: str, pointer: str, wide: bool, owner: str) -> Value:
        return self.loaded(f"load {STORED[kind]}, ptr {pointer}, align {BYTES[kind]}{owner}", kind, wide)

    def _write(self, kind: str, pointer: str, value: Value, owner: str, condition: str | None) -> None:
        """A store; under a condition not all threads take part in it, and nobody waits inside."""
        k = self.serial() if condition else 0
        if condition:
            self.line(f"br i1 {condition}, label %m{k}, label %n{k}")
            self.scope.lines.append(f"m{k}:")
        self.line(f"store {STORED[kind]} {self.to_store(value)}, ptr {pointer}, align {BYTES[kind]}{owner}")
        if condition:
            self.line(f"br label %n{k}")
            self.scope.lines.append(f"n{k}:")

    def load(self, buffer: Buffer, place: Index) -> Value:
        """An element: of this thread where the place moves along the vector."""
        return self._read(buffer.kind, self.pointer(buffer, place), self._step(place) != 0, self._owner(place))

    def store(self, buffer: Buffer, place: Index, value: Value) -> None:
        """Put an element into memory; what all threads have, all of them write."""
        step, owner = self._step(place), self._owner(place)
        assert step or not value.wide, "what differs among threads has no place where there is one for all"
        self._write(buffer.kind, self.pointer(buffer, place), value, owner, self.scope.mask if step else None)

    def gather(self, buffer: Buffer, at: Value) -> Value:
        """An element at a computed place."""
        return self._read(buffer.kind, self._addresses(buffer, at), at.wide, " ; mixed" if at.wide else "")

    def scatter(self, buffer: Buffer, at: Value, value: Value, where: Value | None) -> None:
        """An element to a computed place, if ``where`` holds."""
        assert at.wide or not value.wide, "what differs among threads has no place where there is one for all"
        pointer, owner = self._addresses(buffer, at), " ; mixed" if at.wide else ""
        given, mask = where.text if where else None, self.scope.mask if at.wide else None
        condition = self.new(f"and i1 {given}, {mask}") if given and mask else given or mask
        self._write(buffer.kind, pointer, value, owner, condition)

    # -- across the team

    def fold(self, value: Value, combine: Callable[[Value, Value], Value], how: str = "") -> Value:
        """The elements of a vector combined as a tree: each thread with its opposite until all have the same."""
        kind, half = value.kind, TEAM // 2
        if kind == "b" and how in VOTES:
            name = f"@llvm.nvvm.vote.{VOTES[how]}.sync"
            self.declared.add(f"declare i1 {name}(i32, i1)")
            return Value(self.new(f"call i1 {name}(i32 %members, i1 {value.text})"), kind, False)
        while half:
            value = combine(value, self._opposite(value, half))
            half //= 2
        return Value(value.text, kind, False)

    def _opposite(self, value: Value, distance: int) -> Value:
        """The value of the thread whose number differs by one bit."""
        kind = value.kind
        short, t = ("f32", "float") if kind == "f" else ("i32", "i32")
        text = self.new(f"zext i1 {value.text} to i32") if kind == "b" else value.text
        name = f"@llvm.nvvm.shfl.sync.bfly.{short}"
        self.declared.add(f"declare {t} {name}(i32, {t}, i32, i32)")
        found = self.new(f"call {t} {name}(i32 %members, {t} {text}, i32 {distance}, i32 {SEGMENT})")
        return Value(self.new(f"trunc i32 {found} to i1") if kind == "b" else found, kind, True)
