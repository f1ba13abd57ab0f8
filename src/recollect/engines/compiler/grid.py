"""Many runs of compiled steps: their states in a GPU's memory, and the programs that move them.

The device is one of `cuda_driver`, or anything else with its methods.
"""

import math
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from recollect.engines.compiler.graph import DTYPES
from recollect.engines.compiler.program import Layout, Step
from recollect.engines.compiler.ptx import STEP, Routine
from recollect.engines.compiler.team_kernel import ROOM, emit_team
from recollect.engines.compiler.teams import OFTEN as TOGETHER
from recollect.engines.compiler.threads import BLOCK, OFTEN, ONCE, Kernel, Offsets, emit_thread
from recollect.engines.compiler.values import BYTES

COPY = "ppiiiii"
"""Arguments of the copying routines: arena, rows; runs, elements of a run, runs and bytes of a block, offset of the
array."""


def _copying(name: str, width: int, out: bool) -> Routine:
    """One thread copies one element between its place in the arena and rows of one run each."""
    t = {4: "i32", 1: "i8"}[width]
    source, to = ("%inside", "%row") if out else ("%row", "%inside")
    text = f"""
define internal void @{name}_thread(i64 %thread, ptr noalias %arena, ptr noalias %rows, i64 %runs, i64 %size,
    i64 %side, i64 %bytes, i64 %offset) #0 {{
entry:
  %all = mul i64 %runs, %size
  %in = icmp ult i64 %thread, %all
  br i1 %in, label %copy, label %done
copy:
  %run = udiv i64 %thread, %size
  %element = urem i64 %thread, %size
  %block = udiv i64 %run, %side
  %lane = urem i64 %run, %side
  %start = mul i64 %block, %bytes
  %at = add i64 %start, %offset
  %array = getelementptr i8, ptr %arena, i64 %at
  %line = mul i64 %element, %side
  %place = add i64 %line, %lane
  %inside = getelementptr {t}, ptr %array, i64 %place
  %row = getelementptr {t}, ptr %rows, i64 %thread
  %value = load {t}, ptr {source}, align {width}
  store {t} %value, ptr {to}, align {width}
  br label %done
done:
  ret void
}}
"""
    return Routine(name, text, COPY)


COPIES = tuple(_copying(f"{way}{width}", width, way == "out") for way in ("in", "out") for width in (4, 1))


class GridProgram:
    """A step on a device; knows no memory but that of its inputs.

    Args:
        device: where.
        step: what to compile; its state, and no outputs.
        shared: for each leaf of the inputs, whether all runs have one value of it.
        often: whether it is run so often that speed is worth a longer time to compile.
        teams: whether a run is the work of a team of threads, not of one.
        written_out, room: as `threads.emit_thread` and `team_kernel.emit_team` have them.
        options: as the device's ``program`` takes them.
    """

    def __init__(
        self,
        device: Any,
        step: Step,
        shared: Sequence[bool],
        often: bool = True,
        teams: bool = False,
        written_out: tuple[int, int] | None = None,
        room: int = ROOM,
        **options: Any,
    ):
        self.device, self.state, self.inputs, self.shared = device, step.state, step.inputs, list(shared)
        written_out = written_out or (ONCE if not often else TOGETHER if teams else OFTEN)
        self.kernel: Kernel = (
            emit_team(step, shared, written_out, room) if teams else emit_thread(step, shared, written_out)
        )
        routine = Routine("run", self.kernel.text, STEP)
        self.loaded = device.program([routine], often=often, **options)


class Grid:
    """The states of many runs on a device.

    Args:
        device: where.
        layout: of one run's state.
        runs: how many.
        teams: whether they are lived by teams of threads, and not by one each.
    """

    def __init__(self, device: Any, layout: Layout, runs: int, teams: bool = False):
        self.device, self.layout, self.runs = device, layout, runs
        self.side = 1 if teams else BLOCK
        self.blocks = -(-runs // self.side)
        self.offsets = Offsets(layout.shapes, layout.kinds, self.side)
        self._copies = device.program(COPIES, often=False)
        self._held: list[int] = []
        weakref.finalize(self, _release, device, self._held)
        self.arena = self._allocate(self.blocks * 2 * self.offsets.bytes)
        self._inputs: dict[int, tuple[GridProgram, int, int, int]] = {}

    def _allocate(self, size: int) -> int:
        self._held.append(self.device.allocate(size))
        return self._held[-1]

    def _copy(self, way: str, arena: int, rows: np.ndarray, kind: str, block: int, offset: int) -> None:
        """Between an array in the device's order and rows of one run each."""
        size = math.prod(rows.shape[1:])
        if not size:
            return
        stage = self.device.allocate(rows.nbytes)
        try:
            if way == "in":
                self.device.write(stage, rows)
            arguments = (arena, stage, self.runs, size, self.side, block, offset)
            self._copies.launch(f"{way}{BYTES[kind]}", self.runs * size, arguments)
            if way == "out":
                self.device.read(stage, rows)
        finally:
            self.device.release(stage)

    def load(self, tree: Any) -> None:
        """Take over the states, with a leading axis over runs."""
        for k, x in enumerate(self.layout.numbers(tree)):
            kind, shape = self.layout.kinds[k], (self.runs, *self.layout.shapes[k])
            rows = np.ascontiguousarray(x, DTYPES[kind])
            if rows.shape != shape:
                raise ValueError(f"leaf {k} of the states must have shape {shape}, got {rows.shape}")
            self._copy("in", self.arena, rows, kind, 2 * self.offsets.bytes, self.offsets.starts[k])

    def leaf(self, k: int) -> np.ndarray:
        """A copy of one leaf of the states, with a leading axis over runs."""
        kind = self.layout.kinds[k]
        rows = np.empty((self.runs, *self.layout.shapes[k]), DTYPES[kind])
        self._copy("out", self.arena, rows, kind, 2 * self.offsets.bytes, self.offsets.starts[k])
        return rows

    def unload(self) -> Any:
        """A copy of the states, with a leading axis over runs."""
        return self.layout.wrap([self.leaf(k) for k in range(len(self.layout.shapes))])

    def give(self, program: GridProgram, leaves: Sequence[Any]) -> None:
        """Set the leaves of a program's inputs: shared ones alone, others with an axis over runs."""
        if program.state.shapes != self.layout.shapes or program.state.kinds != self.layout.kinds:
            raise ValueError("the program is of another state than the grid's")
        if program.kernel.block != self.side:
            raise ValueError("the program and the grid are not both for teams")
        kinds, shared = program.inputs.kinds, program.shared
        words = [
            np.ascontiguousarray(x, DTYPES[k]).reshape(-1).astype(np.uint8 if k == "b" else DTYPES[k])
            for x, k, one in zip(leaves, kinds, shared, strict=True)
            if one
        ]
        numbers = b"".join(w.tobytes().ljust(-(-w.nbytes // 4) * 4, b"\0") for w in words)
        apart = [k for k, one in enumerate(shared) if not one]
        offsets = Offsets([program.inputs.shapes[k] for k in apart], [kinds[k] for k in apart], self.side)
        if id(program) not in self._inputs:
            places = (self._allocate(size) for size in (self.blocks * offsets.bytes, len(numbers)))
            scratch = self._allocate(self.blocks * program.kernel.scratch)
            self._inputs[id(program)] = (program, *places, scratch)  # type: ignore[assignment]
        _, given, one_for_all, _ = self._inputs[id(program)]
        self.device.write(one_for_all, np.frombuffer(numbers, np.uint8))
        for k, start in zip(apart, offsets.starts, strict=True):
            rows = np.ascontiguousarray(leaves[k], DTYPES[kinds[k]]).reshape(self.runs, *program.inputs.shapes[k])
            self._copy("in", given, rows, kinds[k], offsets.bytes, start)

    def advance(self, program: GridProgram, steps: int = 1) -> None:
        """Take every run so many steps further with the inputs that were given; does not wait."""
        _, given, shared, scratch = self._inputs[id(program)]
        kernel, arguments = program.kernel, (self.arena, given, shared, scratch, self.runs, steps)
        program.loaded.launch("run", self.blocks * self.side * kernel.team, arguments, kernel.chip // kernel.team)


def _release(device: Any, held: list[int]) -> None:
    for address in held:
        device.release(address)
