"""A step as a kernel of teams: what lies on the chip from step to step, and how it gets there and back.

In the GPU's memory the arrays of a run lie one after the other. A launch takes many steps: the arrays that a step reads
most often are brought to the chip before the first of them, as many as there is room for, and taken back after the
last; all others stay where they are.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

from recollect.engines.compiler import barriers, pool
from recollect.engines.compiler.barriers import Span
from recollect.engines.compiler.program import Layout, Step
from recollect.engines.compiler.teams import OFTEN, TEAM, TeamWriter
from recollect.engines.compiler.threads import IF_ODD, Kernel, Offsets, framed, inputs_at, refuse
from recollect.engines.compiler.values import BYTES, STORED

ROOM = 10 << 10
"""Bytes of its state on the chip that a run may have: the more, the fewer runs are under way at once."""


@dataclasses.dataclass(frozen=True)
class Chip:
    """What a run has on the chip, in bytes from the start of its own part.

    Arrays that are written anew each step are there twice, ``twin`` apart.
    """

    starts: dict[int, int]  # of the state's arrays that are there
    rows: dict[int, int]  # of those that have a gap after each row: elements of a row
    twin: int
    arrays: dict[str, int]  # of the arrays of one step
    bytes: int


def _chip(w: TeamWriter, layout: Layout, swapped: Sequence[bool], arrays: Mapping[str, int], total: int) -> Chip:
    starts, at, twin = {}, 0, 0
    for twice in (True, False):
        for k in sorted(k for k in w.chip if swapped[k] == twice):
            elements = math.prod(layout.shapes[k])
            gaps = (elements - 1) // w.rows[k] if k in w.rows else 0  # none after the last
            starts[k] = at = -(-at // 4) * 4
            at += BYTES[layout.kinds[k]] * (elements + gaps)
        at = -(-at // 16) * 16
        if twice:
            twin, at = at, 2 * at
    places = {name: at + place for name, place in arrays.items()}
    whole = -(-(at + total) // 128) * 128 + 64  # so that two runs of a warp are in different banks
    return Chip(starts, w.rows, twin, places, whole)


def emit_team(step: Step, shared: Sequence[bool], written_out: tuple[int, int] = OFTEN, room: int = ROOM) -> Kernel:
    """A step, which has no outputs, as the work of one of a team's threads.

    Raises:
        Unsupported: for what a GPU cannot do with the processor's bits.
    """
    refuse(step)
    w = TeamWriter(written_out, len(step.state.shapes), room)
    body = step.write(w, shared)
    lines, layout = w.scopes[0].lines, step.state
    arrays, total = pool.places(w.arrays, lines)
    far, far_bytes = pool.places(dict(body.scratch), lines, still=True)
    swapped = [swap and k not in w.over for k, swap in enumerate(body.swapped)]
    chip = _chip(w, layout, swapped, arrays, total)
    spans = _spans(body.swapped, w.arrays, arrays, dict(body.scratch), far)
    sizes = Offsets(layout.shapes, layout.kinds, 1)
    w.declared.add(barriers.DECLARED)
    own = [f"  {a} = alloca [{size} x i8], align 16" for a, size in w.arrays.items() if a not in arrays]
    first = [
        *_threads(w.ramps),
        *_memory(step, shared, sizes, chip, far, far_bytes),
        *_copies(layout, sizes, chip, "%chip", "in"),
        barriers.WAIT,
    ]
    step_lines = [*_pointers(swapped, w.over, sizes, chip), *barriers.placed(lines, spans), barriers.WAIT]
    done = [
        *_copies(layout, sizes, chip, "%chip_here", "out", swapped),
        *_copied_back(layout, swapped, sizes, chip),
    ]
    own.append(f"  %run = lshr i64 %thread, {TEAM.bit_length() - 1}")
    text = framed(w, own, "%run", first, "copied_in", [*_phi("chip"), *_phi("home")], step_lines, done)
    text.append("@chip = external addrspace(3) global [0 x i8], align 128")
    return Kernel("\n".join(text) + "\n", far_bytes, 0, TEAM, 1, chip.bytes)


def _spans(
    swapped: Sequence[bool],
    arrays: Mapping[str, int],
    places: Mapping[str, int],
    scratch: Mapping[str, int],
    far: Mapping[str, int],
) -> dict[str, Span]:
    """The memory that pointers lead to; places on the chip share theirs by when they are needed."""
    spans: dict[str, Span] = {}
    for k, swap in enumerate(swapped):
        spans[f"%s{k}"] = (f"s{k}", 0, 1)
        if swap:
            spans[f"%t{k}"] = (f"t{k}", 0, 1)
    spans |= {name: ("arrays", at, at + arrays[name]) for name, at in places.items()}
    return spans | {name: ("scratch", at, at + scratch[name]) for name, at in far.items()}


def _threads(ramps: set[int]) -> list[str]:
    """Which thread of its team this is, and which threads of the warp the team is."""
    lines = [
        "  %tid32 = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()",
        "  %tid = zext i32 %tid32 to i64",
        f"  %lane = and i64 %tid, {TEAM - 1}",
        f"  %half = and i32 %tid32, {32 - TEAM}",
        f"  %members = shl i32 {(1 << TEAM) - 1}, %half",
    ]
    for count in sorted(ramps):
        lines += [
            f"  %below{count} = icmp ult i64 %lane, {count}",
            f"  %lane_below{count} = select i1 %below{count}, i64 %lane, i64 {count - 1}",
        ]
    return lines


def _memory(
    step: Step, shared: Sequence[bool], sizes: Offsets, chip: Chip, far: Mapping[str, int], far_bytes: int
) -> list[str]:
    """Pointers to a run's memory, on the chip and off it."""
    lines = [
        f"  %team = lshr i64 %tid, {TEAM.bit_length() - 1}",
        f"  %at_chip = mul i64 %team, {chip.bytes}",
        "  %chip_start = addrspacecast ptr addrspace(3) @chip to ptr",
        "  %chip = getelementptr inbounds i8, ptr %chip_start, i64 %at_chip",
        f"  %at_home = mul i64 %run, {2 * sizes.bytes}",
        "  %home = getelementptr inbounds i8, ptr %arena, i64 %at_home",
        f"  %chip_twin = getelementptr inbounds i8, ptr %chip, i64 {chip.twin}",
        f"  %home_twin = getelementptr inbounds i8, ptr %home, i64 {sizes.bytes}",
        f"  %at_scratch = mul i64 %run, {far_bytes}",
        "  %scratch_run = getelementptr inbounds i8, ptr %scratch, i64 %at_scratch",
    ]
    lines += [f"  {name} = getelementptr inbounds i8, ptr %chip, i64 {at}" for name, at in chip.arrays.items()]
    lines += [f"  {name} = getelementptr inbounds i8, ptr %scratch_run, i64 {at}" for name, at in far.items()]
    size, pointers = inputs_at(step.inputs, shared, 1, ["%given_run"] * len(shared))
    return [
        *lines,
        f"  %at_given = mul i64 %run, {size}",
        "  %given_run = getelementptr inbounds i8, ptr %given, i64 %at_given",
        *pointers,
    ]


def _phi(what: str) -> list[str]:
    """Two copies of memory that take turns."""
    return [
        f"  %{what}_here = phi ptr [ %{what}, %copied_in ], [ %{what}_there, %last ]",
        f"  %{what}_there = phi ptr [ %{what}_twin, %copied_in ], [ %{what}_here, %last ]",
    ]


def _pointers(swapped: Sequence[bool], over: Mapping[int, bool], sizes: Offsets, chip: Chip) -> list[str]:
    """Pointers to the state's arrays: ``%s`` to what is read, ``%t`` to the second buffer, where there is one."""
    lines = []
    for k, swap in enumerate(swapped):
        where, at = ("chip", chip.starts[k]) if k in chip.starts else ("home", sizes.starts[k])
        base = f"%{where}_here" if swap else f"%{where}"
        lines.append(f"  %s{k} = getelementptr inbounds i8, ptr {base}, i64 {at}")
        if swap:
            lines.append(f"  %t{k} = getelementptr inbounds i8, ptr %{where}_there, i64 {at}")
        elif over.get(k):
            lines.append(f"  %t{k} = getelementptr inbounds i8, ptr %home_twin, i64 {sizes.starts[k]}")
    return lines


def _loop(
    name: str, kind: str, count: int, source: str, to: str, before: str, rows: tuple[int, int] = (0, 0)
) -> list[str]:
    """Copy an array, each thread its own elements; ``rows``: elements of rows with gaps, of the source and the copy."""
    t, width = STORED[kind], BYTES[kind]
    lines = [
        f"  %{name}_any = icmp ult i64 %lane, {count}",
        f"  br i1 %{name}_any, label %{name}_copy, label %{name}_end",
        f"{name}_copy:",
        f"  %{name}_at = phi i64 [ %lane, %{before} ], [ %{name}_next, %{name}_copy ]",
    ]
    for end, pointer, row in (("from", source, rows[0]), ("to", to, rows[1])):
        at = f"%{name}_at"
        if row:
            lines += [
                f"  {at}_gaps_{end} = lshr i64 {at}, {row.bit_length() - 1}",
                f"  {at}_{end} = add i64 {at}, {at}_gaps_{end}",
            ]
            at = f"{at}_{end}"
        lines.append(f"  %{name}_{end} = getelementptr inbounds {t}, ptr {pointer}, i64 {at}")
    return [
        *lines,
        f"  %{name}_value = load {t}, ptr %{name}_from, align {width}",
        f"  store {t} %{name}_value, ptr %{name}_to, align {width}",
        f"  %{name}_next = add i64 %{name}_at, {TEAM}",
        f"  %{name}_more = icmp ult i64 %{name}_next, {count}",
        f"  br i1 %{name}_more, label %{name}_copy, label %{name}_end",
        f"{name}_end:",
    ]


def _copies(
    layout: Layout, sizes: Offsets, chip: Chip, there: str, way: str, swapped: Sequence[bool] = ()
) -> list[str]:
    """All that lies on the chip, from the run's home or to it."""
    lines, before = [f"  br label %copy_{way}", f"copy_{way}:"], f"copy_{way}"
    for k, start in chip.starts.items():
        name, row = f"{way}{k}", chip.rows.get(k, 0)
        where = there if way == "in" or swapped[k] else "%chip"
        lines += [
            f"  %{name}_home = getelementptr inbounds i8, ptr %home, i64 {sizes.starts[k]}",
            f"  %{name}_chip = getelementptr inbounds i8, ptr {where}, i64 {start}",
        ]
        source, to = (f"%{name}_{end}" for end in (("home", "chip") if way == "in" else ("chip", "home")))
        rows = (0, row) if way == "in" else (row, 0)
        lines += _loop(name, layout.kinds[k], math.prod(layout.shapes[k]), source, to, before, rows)
        before = f"{name}_end"
    return [*lines, f"  br label %copied_{way}", f"copied_{way}:"]


def _copied_back(layout: Layout, swapped: Sequence[bool], sizes: Offsets, chip: Chip) -> list[str]:
    """After an odd number of steps, arrays off the chip are in the second region: bring them to the first."""
    apart = [k for k, swap in enumerate(swapped) if swap and k not in chip.starts and math.prod(layout.shapes[k])]
    if not apart:
        return []
    lines, before = [*IF_ODD], "back"
    for k in apart:
        lines += [
            f"  %back{k}_to = getelementptr inbounds i8, ptr %home, i64 {sizes.starts[k]}",
            f"  %back{k}_from = getelementptr inbounds i8, ptr %home_here, i64 {sizes.starts[k]}",
        ]
        lines += _loop(f"b{k}", layout.kinds[k], math.prod(layout.shapes[k]), f"%back{k}_from", f"%back{k}_to", before)
        before = f"b{k}_end"
    return lines
