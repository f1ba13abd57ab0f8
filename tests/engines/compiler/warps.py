"""A GPU that is not there: PTX, run by NumPy one warp after another, the 32 lanes of a warp at once.

Lanes go apart at branches and meet again as on a GPU: at barriers, shuffles and votes they wait for all that are named
there. What one lane writes and another touches without a barrier between is an error. How often each instruction was
issued is counted, and how many turns accesses of the chip take: a real GPU's warps issue about as many.
"""

import re
from collections import Counter

import numpy as np

from engines.compiler import ptx_operations as operations
from engines.compiler.ptx_operations import LANES, TYPES
from engines.compiler.stand_in import StandIn
from recollect.engines.compiler import ptx

ALL = np.ones(32, bool)
MEETING = {"shfl": 4, "vote": 2, "bar": 0}
"""Instructions at which lanes wait for one another, and which operand says for whom."""

TABLE = re.compile(r"^\.(?:global|const) \.align \d+ \.b8 (\w+)\[(\d+)\](?: = \{([^}]*)\})?;", re.M)
OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s{}\[\]]+")


ABOVE = np.array([(1 << 16 * (n // 16 + 1)) - (2 << n) for n in range(32)], np.uint32)
"""Lanes of the same team that come after each."""
FIRST = np.uint32(0x00010001)
MARKS = np.uint32(1) << np.arange(32, dtype=np.uint32)


class RaceError(AssertionError):
    """Two lanes touched the same memory in no order."""


class Memory:
    """Bytes, and which lanes have read and written each since they last met.

    Where a vector is not full, the lanes beyond its end repeat what the last one does, and nobody uses what they find:
    so a lane may read what one before it writes, unless that is the first of its team.
    """

    def __init__(self, data, address=0):
        self.data, self.address = data, address
        self._readers, self._writers = (np.zeros(len(data), np.uint32) for _ in range(2))
        self._touched = np.uint32(0)  # lanes with a mark anywhere

    def holds(self, first, last):
        """Whether these two addresses and what is between them are in it."""
        return self.address <= first and last < self.address + len(self.data)

    def _octets(self, at, dtype, lanes):
        """Where each access begins; its bytes, [access, byte]; and the mark of its lane."""
        place, marks = (at - self.address).astype(np.int64), MARKS[lanes]
        self._touched |= np.bitwise_or.reduce(marks)
        return place, place[:, None] + np.arange(dtype.itemsize), marks[:, None]

    def read(self, at, dtype, lanes):
        """The numbers that lanes read."""
        place, octets, marks = self._octets(at, dtype, lanes)
        written = self._writers[octets]
        if np.count_nonzero(written):
            before = (written & (ABOVE[lanes] | FIRST)[:, None]) != 0
            if (before & (written & marks == 0)).any():
                raise RaceError("a lane reads what another wrote, and no barrier is between")
        np.bitwise_or.at(self._readers, octets, marks)
        return self.data.view(dtype)[place // dtype.itemsize]

    def write(self, at, numbers, lanes):
        """Put numbers where lanes say."""
        place, octets, marks = self._octets(at, numbers.dtype, lanes)
        view, index = self.data.view(numbers.dtype), place // numbers.dtype.itemsize
        changed = (view[index] != numbers)[:, None]
        relevant = ~marks & np.where(FIRST & marks != 0, ~np.uint32(0), ~ABOVE[lanes][:, None])
        if (changed & (self._readers[octets] & relevant != 0)).any():
            raise RaceError("a lane writes what another read, and no barrier is between")
        written = self._writers[octets]
        if (changed & (written != 0) & (written & marks == 0)).any():
            raise RaceError("a lane writes what another wrote, and no barrier is between")
        np.bitwise_or.at(self._writers, octets, marks)
        view[index] = numbers
        if (view[index] != numbers).any():
            raise RaceError("lanes write different numbers to one place")

    def met(self, lanes):
        """These lanes have waited for one another."""
        keep = ~np.bitwise_or.reduce(MARKS[lanes])
        if self._touched & ~keep:
            self._readers &= keep
            self._writers &= keep
            self._touched &= keep


class Code:
    """An entry of PTX, each instruction as a function of a warp and its lanes."""

    def __init__(self, text, entry):
        self.tables = {}
        for name, size, numbers in TABLE.findall(text):
            data = np.zeros(-(-int(size) // 8) * 8, np.uint8)
            listed = [int(x) & 255 for x in numbers.split(",")] if numbers else []
            data[: len(listed)] = listed
            self.tables[name] = data
        body = text[text.index(f".entry {entry}(") :]
        body = body[body.index("{") + 1 : re.search(r"^\}", body, re.M).start()]
        self.lines, self.labels, self.own = [], {}, 16
        for line in body.splitlines():
            line = line.split("//")[0].strip().rstrip(";")
            if found := re.match(r"\.local .*\[(\d+)\]", line):
                self.own = -(-int(found[1]) // 16) * 16
            elif found := re.fullmatch(r"(\$\w+):", line):
                self.labels[found[1]] = len(self.lines)
            elif line and not line.startswith("."):
                self.lines.append(self._parsed(line))
        self.work = [_instruction(name.split("."), operands) for name, operands, _ in self.lines]
        self.members = [
            operand(o[MEETING[n.split(".")[0]]], "b32") if n.split(".")[0] in MEETING else None
            for n, o, _ in self.lines
        ]

    @staticmethod
    def _parsed(line):
        condition = None
        if line.startswith("@"):
            text, line = line.split(None, 1)
            condition = (text.lstrip("@!"), text.startswith("@!"))
        name, _, rest = line.partition("\t") if "\t" in line else line.partition(" ")
        return name.strip(), OPERAND.findall(rest), condition


def operand(text, kind):
    """A function of a warp that gives an operand's numbers."""
    dtype = np.dtype(TYPES[kind])
    if text.startswith("0f"):
        return _same(np.full(32, int(text[2:], 16), np.uint32).view(np.float32))
    if re.fullmatch(r"-?(0x)?[0-9a-fA-F]+U?", text):
        number = int(text.rstrip("U"), 0)
        if kind == "pred":
            return _same(np.full(32, bool(number)))
        whole = np.dtype(f"u{dtype.itemsize}")
        return _same(np.full(32, number & (2 ** (8 * dtype.itemsize) - 1), whole).view(dtype))
    if text.startswith("%") and "." not in text and text != "%laneid":
        if kind == "pred":
            return lambda warp: warp.registers[text]
        whole = np.dtype(f"u{dtype.itemsize}")
        return lambda warp: warp.registers[text].astype(whole, copy=False).view(dtype)
    return lambda warp: warp.named(text).astype(dtype)


def _same(numbers):
    return lambda warp: numbers


def _address(text):
    base, offset = re.fullmatch(r"\[([^+\]]+?)(?:\+(-?\d+))?\]", text).groups()
    start = operand(base, "s64")
    return lambda warp: start(warp) + int(offset or 0)


def _several(text):
    return [x.strip() for x in text.strip("{}").split(",")]


def _instruction(parts, operands):
    """What an instruction does, as a function of a warp and its lanes."""
    head, kind = parts[0], parts[-1]
    if head in ("bra", "ret"):
        return None
    if head in ("ld", "st"):
        return _access(parts, operands)
    if head == "bar":
        return lambda warp, lanes: warp.meet(lanes)
    if head == "mov" and "{" in "".join(operands):
        return _packed(operands)
    to = operands[0].split("|")[0]
    compute = _computed(head, kind, parts, operands[1:])
    return lambda warp, lanes: warp.put(to, compute(warp), lanes)


def _computed(head, kind, parts, operands):
    """The result of an instruction that does not touch memory, as a function of a warp."""
    if head == "shfl":
        x, by, clamp = (operand(o, k) for o, k in zip(operands, ("b32", "u32", "u32"), strict=False))
        return lambda w: x(w)[operations.neighbours(parts[2], by(w), clamp(w))]
    if head == "vote":
        x, members = operand(operands[0], "pred"), operand(operands[1], "b32")
        most = {"all": np.all, "any": np.any}[parts[2]]
        return lambda w: np.array([most(x(w)[(m >> LANES) & 1 == 1]) for m in members(w).astype(np.int64)])
    if head == "selp":
        x, y, p = operand(operands[0], kind), operand(operands[1], kind), operand(operands[2], "pred")
        return lambda w: np.where(p(w), x(w), y(w))
    if head == "cvt":
        x = operand(operands[0], {"u8": "b32", "s8": "b32"}.get(kind, kind))
        return lambda w: operations.converted(parts, x(w))
    if head in ("shl", "shr"):
        x, by = operand(operands[0], kind), operand(operands[1], "u32")
        return lambda w: operations.shifted(head == "shl", kind, x(w), by(w))
    if head == "mad" and parts[1] == "wide":
        x, y, z = operand(operands[0], kind), operand(operands[1], kind), operand(operands[2], kind[0] + "64")
        return lambda w: operations.wide_product(kind, x(w), y(w)) + z(w)
    given = [operand(o, kind) for o in operands]
    if head == "setp":
        return lambda w: operations.compared(parts[1], kind, *(g(w) for g in given))
    function = {
        "mov": lambda x: x.copy(),
        "cvta": lambda x: x.copy(),
        "prmt": operations.permuted,
        "shf": lambda *x: operations.funnel(parts[1], *x),
    }.get(head)
    if head == "mul" and parts[1] in ("wide", "hi"):
        half = np.uint64(32) if kind == "u32" else np.int64(32)
        product = lambda a, b: operations.wide_product(kind, a, b)  # noqa: E731
        function = product if parts[1] == "wide" else lambda a, b: (product(a, b) >> half).astype(TYPES[kind])
    if function is None:
        chosen = operations.FLOATS if kind == "f32" else operations.INTEGERS
        function = (operations.WITH_NAN if "NaN" in parts else chosen)[head]
    return lambda w: function(*(g(w) for g in given))


def _packed(operands):
    """One register of 64 bits from two, or the other way round."""
    to, source = operands
    if source.startswith("{"):
        low, high = (operand(x, "b32") for x in _several(source))
        return lambda w, lanes: w.put(to, low(w) | (high(w).astype(np.uint64) << np.uint64(32)), lanes)
    whole = operand(source, "b64")

    def split(warp, lanes):
        for k, part in enumerate(_several(to)):
            if part != "_":
                warp.put(part, (whole(warp) >> np.uint64(32 * k)).astype(np.uint32), lanes)

    return split


def turns(at):
    """Turns that one access of the chip takes: a bank gives one word of four bytes in each."""
    words = set((at // 4).tolist())
    return max(Counter(word % 32 for word in words).values()) if len(words) > 1 else 1


def _access(parts, operands):
    space, width = parts[1], int(parts[-1][1:]) // 8
    dtype = np.dtype(f"u{width}")
    if space == "param":
        number = int(operands[1].strip("[]").split("_")[-1])
        return lambda warp, lanes: warp.put(operands[0], np.full(32, warp.arguments[number], np.uint64), lanes)
    place, values = (1, 0) if parts[0] == "ld" else (0, 1)
    address = _address(operands[place])
    names = _several(operands[values])
    given = [operand(n, "b32" if width < 4 else f"b{8 * width}") for n in names] if parts[0] == "st" else []

    def load(warp, lanes):
        warp.count_turns(space, parts[0], address(warp)[lanes])
        for k, name in enumerate(names):
            at, found = address(warp) + k * width, np.zeros(32, np.dtype(f"u{max(width, 4)}"))
            found[lanes] = warp.memory(space, at, lanes).read(at[lanes], dtype, LANES[lanes])
            warp.put(name, found, lanes)

    def store(warp, lanes):
        warp.count_turns(space, parts[0], address(warp)[lanes])
        for k, get in enumerate(given):
            at = address(warp) + k * width
            warp.memory(space, at, lanes).write(at[lanes], get(warp)[lanes].astype(dtype), LANES[lanes])

    return load if parts[0] == "ld" else store


class Own:
    """Memory that every lane has for itself."""

    def __init__(self, size):
        self.data = np.zeros((32, size), np.uint8)

    def read(self, at, dtype, lanes):
        return self.data.view(dtype)[lanes, at // np.dtype(dtype).itemsize]

    def write(self, at, numbers, lanes):
        self.data.view(numbers.dtype)[lanes, at // numbers.dtype.itemsize] = numbers


class Warp:
    """One warp on its way through a program."""

    def __init__(self, code, number, arguments, memories, chip):
        self.code, self.number, self.arguments = code, number, [a & (2**64 - 1) for a in arguments]
        self.registers, self.own, self.chip = {}, Own(code.own), Memory(np.zeros(max(chip, 16), np.uint8))
        self._memories = memories
        self.issued, self.turns = np.zeros(len(code.lines), np.int64), Counter()

    def named(self, name):
        """A number that is not in a register."""
        places = {"%tid.x": LANES, "%laneid": LANES, "%ctaid.x": np.full(32, self.number), "%ntid.x": np.full(32, 32)}
        if name in places:
            return places[name]
        table = self.code.tables.get(name)
        return np.full(32, 0 if table is None else table.ctypes.data)

    def memory(self, space, at, lanes):
        """Where all these addresses are."""
        if space in ("local", "shared"):
            return self.own if space == "local" else self.chip
        first, last = at[lanes].min(), at[lanes].max()
        found = next((m for m in self._memories if m.holds(first, last)), None)
        assert found is not None, "an address outside of memory"
        return found

    def count_turns(self, space, what, at):
        """Of one access, if it is of the chip."""
        if space == "shared":
            self.turns[what] += turns(at)

    def put(self, name, numbers, lanes):
        """Set a register of these lanes."""
        if numbers.dtype.kind in "if":
            numbers = numbers.view(np.dtype(f"u{numbers.dtype.itemsize}"))
        if np.count_nonzero(lanes) < 32 and name in self.registers:
            numbers = np.where(lanes, numbers, self.registers[name].astype(numbers.dtype, copy=False))
        self.registers[name] = numbers

    def meet(self, lanes):
        """All of these have arrived."""
        for memory in (self.chip, *self._memories):
            memory.met(lanes)

    def run(self):
        """To the end; of lanes that went apart, those that are furthest behind go first."""
        going, waiting = [(0, ALL)], []
        while going:
            at = min(at for at, _ in going)
            lanes = np.logical_or.reduce([m for a, m in (*going, *waiting) if a == at])
            going, waiting = ([entry for entry in part if entry[0] != at] for part in (going, waiting))
            going, waiting = self._onward(at, lanes, going, waiting)
        assert not waiting, "lanes wait for others that never come"

    def _onward(self, at, lanes, going, waiting):
        """Until these lanes go apart, end, wait, or reach where others are."""
        code = self.code
        elsewhere = {a for a, _ in (*going, *waiting)}
        behind = min((a for a, _ in going), default=len(code.lines))
        first = True
        while first or (at not in elsewhere and at < behind):
            first = False
            name, operands, condition = code.lines[at]
            if code.members[at] is not None:
                needed = code.members[at](self).astype(np.int64)
                here = int((lanes.astype(np.int64) << LANES).sum())
                ready = lanes & (needed & ~here == 0)
                if np.count_nonzero(lanes & ~ready):
                    waiting = [*waiting, (at, lanes & ~ready)]
                    elsewhere.add(at)
                if not np.count_nonzero(ready):
                    return going, waiting
                lanes = ready
            self.issued[at] += 1
            chosen = lanes
            if condition is not None:
                chosen = lanes & (self.registers[condition[0]] ^ condition[1])
            if name == "ret":
                return going, waiting
            if name.startswith("bra"):
                target = code.labels[operands[0]]
                rest = lanes & ~chosen
                if chosen.any() and rest.any():
                    return [*going, (target, chosen), (at + 1, rest)], waiting
                at = target if chosen.any() else at + 1
                continue
            if np.count_nonzero(chosen):
                code.work[at](self, chosen)
            at += 1
        return [*going, (at, lanes)], waiting


class WarpDevice(StandIn):
    """What `cuda_driver.Gpu` has.

    Of all programs: ``issued``, how often warps issued which instruction, and ``turns``, how many loads (``ld``) and
    stores (``st``) of the chip took.
    """

    name = "NumPy"
    capability = (9, 0)

    def __init__(self):
        super().__init__()
        self.issued, self.turns = Counter(), Counter()

    def program(self, routines, often=True, **options):
        del often, options
        return WarpProgram(self, routines)


class WarpProgram:
    """Entries that run on a `WarpDevice`."""

    def __init__(self, device, routines):
        self._device = device
        self.assembly = ptx.assembly(ptx.for_gpu(routines), device.capability)
        self._codes = {r.name: Code(self.assembly, r.name) for r in routines}

    def launch(self, name, threads, arguments, chip=0):
        code = self._codes[name]
        memories = [Memory(data, address) for address, data in self._device._memory.items()]
        memories += [Memory(data, data.ctypes.data) for data in code.tables.values()]
        with np.errstate(all="ignore"):
            for number in range(-(-threads // 32)):
                warp = Warp(code, number, arguments, memories, 32 * chip)
                warp.run()
                self._device.turns += warp.turns
                for (instruction, _, _), count in zip(code.lines, warp.issued, strict=True):
                    self._device.issued[instruction] += int(count)
