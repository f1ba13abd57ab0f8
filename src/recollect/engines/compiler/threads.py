"""The step of one run as the work of one thread of a GPU: the code of the lanes, with every value a scalar.

A *block* is 32 runs, the threads of a warp. Element e of an array of theirs is 32 numbers side by side, so that one
instruction of a warp reads one line of memory: ``block · bytes + offset + (32 e + lane) · size``. All but the block and
the lane are constants of the code. Nothing here is of a GPU but that order: `ptx` writes the entries, for one or for
the processor that this runs on, where the threads come one after the other.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

from recollect.engines.compiler import pool
from recollect.engines.compiler.functions import LIBM
from recollect.engines.compiler.gpu_writer import GpuWriter
from recollect.engines.compiler.graph import Node, Unsupported
from recollect.engines.compiler.plan import reachable
from recollect.engines.compiler.primitives import Subgraph
from recollect.engines.compiler.program import Layout, Step
from recollect.engines.compiler.values import BYTES, STORED, Buffer, Value

BLOCK = 32
"""Runs that lie side by side in memory: the threads of a warp."""

OFTEN, ONCE = (300, 8), (0, 1)
"""As `writer.WRITTEN_OUT`: what runs often may be long, what runs once is to compile quickly."""


class ThreadWriter(GpuWriter):
    """Writes the lanes' code for one lane."""

    def __init__(self, written_out: tuple[int, int]) -> None:
        super().__init__(BLOCK, written_out)
        self.late, self.alone = True, True

    def stride(self, buffer: Buffer) -> int:
        """Runs lie side by side, but for what is a thread's own."""
        return BLOCK if buffer.lanes and not buffer.own else 1

    def gather(self, buffer: Buffer, at: Value) -> Value:
        """One element at a computed place."""
        kind = buffer.kind
        return self.loaded(f"load {STORED[kind]}, ptr {self._addresses(buffer, at)}, align {BYTES[kind]}", kind, True)

    def scatter(self, buffer: Buffer, at: Value, value: Value, where: Value | None) -> None:
        """One element to a computed place, if ``where`` holds."""
        self.scatter_one(buffer, at, value, where)


def why_not(step: Step) -> str | None:
    """What a GPU cannot do as the processor does it, bit for bit; None if there is nothing."""

    def foreign(outs: Sequence[Node]) -> str | None:
        for n in reachable(outs):
            if n.op in LIBM or (n.op == "rem" and n.dtype == "f"):
                return f"the function {n.op!r}, which is the C library's on a processor"
            for part in n.params if n.op == "loop" else ():
                if isinstance(part, Subgraph) and (found := foreign(part.outs)) is not None:
                    return found
        return None

    return foreign(step.traced.outs)


class Offsets:
    """Where the arrays of a block's runs begin, in bytes from the start of the block, and how many there are in all.

    ``block``: how many runs lie side by side.
    """

    def __init__(self, shapes: Sequence[tuple[int, ...]], kinds: Sequence[str], block: int = BLOCK):
        self.starts, at = [], 0
        for shape, kind in zip(shapes, kinds, strict=True):
            size = BYTES[kind] * block * math.prod(shape)
            line = 4 * block if block > 1 else 64 if size >= 64 else 4
            at = -(-at // line) * line
            self.starts.append(at)
            at += size
        self.bytes = max(-(-at // 128) * 128, 128)


@dataclasses.dataclass(frozen=True)
class Kernel:
    """The work of one thread: ``@run_thread(thread, arena, given, shared, scratch, runs, count)``.

    ``arena``: blocks of two regions of `Offsets` of the state, of which the first holds it between calls. ``given``:
    blocks of the inputs that differ from run to run. ``shared``: 4 bytes for each element of the others.
    """

    text: str
    scratch: int  # bytes per block
    own: int  # bytes that a thread has for itself
    team: int = 1  # threads per run
    block: int = BLOCK  # runs that lie side by side in memory
    chip: int = 0  # bytes on the chip per run


def refuse(step: Step) -> None:
    """Refuse what a GPU cannot do with the processor's bits, and a step with outputs."""
    if (why := why_not(step)) is not None:
        raise Unsupported(why)
    if step.outputs.shapes:
        raise ValueError("a step for a GPU changes its state and has no outputs")


def framed(
    w: GpuWriter,
    own: Sequence[str],
    run: str,
    first: Sequence[str],
    label: str,
    turns: Sequence[str],
    body: Sequence[str],
    done: Sequence[str],
) -> list[str]:
    """A kernel's text: as many steps as it is told to take, if there is a run for this thread.

    Args:
        w: what the step was written with.
        own: memory that a thread has for itself.
        run: the name of what tells one run from another.
        first: what comes before the first step.
        label: the last label in it.
        turns: memory that takes turns from step to step.
        body: the step.
        done: what comes after the last.
    """
    return [
        *w.tables.values(),
        "define internal void @run_thread(i64 %thread, ptr noalias %arena, "
        "ptr noalias %given, ptr noalias %shared, ptr noalias %scratch, i64 %runs, i64 %count) #0 {",
        "entry:",
        *(line.replace("align 64", "align 4") for line in w.allocas),
        *own,
        f"  %inside = icmp ult i64 {run}, %runs",
        "  br i1 %inside, label %first, label %out",
        "first:",
        *first,
        "  br label %head",
        "head:",
        f"  %k = phi i64 [ 0, %{label} ], [ %next, %last ]",
        *turns,
        "  %more = icmp ult i64 %k, %count",
        "  br i1 %more, label %body, label %done",
        "body:",
        *body,
        "  br label %last",
        "last:",
        "  %next = add i64 %k, 1",
        "  br label %head",
        "done:",
        *done,
        "  br label %out",
        "out:",
        "  ret void",
        "}",
        *sorted(w.declared),
    ]


IF_ODD = (
    "  %odd_bit = and i64 %count, 1",
    "  %odd = icmp ne i64 %odd_bit, 0",
    "  br i1 %odd, label %back, label %out",
    "back:",
)
"""After an odd number of steps, what is written into a second buffer is in that."""


def emit_thread(step: Step, shared: Sequence[bool], written_out: tuple[int, int] = OFTEN) -> Kernel:
    """A step, which has no outputs, as the work of one thread; ``written_out``: as `writer.WRITTEN_OUT`.

    Raises:
        Unsupported: for what a GPU cannot do with the processor's bits.
    """
    refuse(step)
    w = ThreadWriter(written_out)
    body = step.write(w, shared)
    lines, layout = w.scopes[0].lines, step.state
    own, own_bytes = pool.places(w.arrays, lines)
    far, far_bytes = pool.places(dict(body.scratch), lines, still=True)
    sizes = Offsets(layout.shapes, layout.kinds)
    first = [
        "  %block = lshr i64 %thread, 5",
        "  %lane = and i64 %thread, 31",
        "  %lane4 = shl i64 %lane, 2",
        *_regions(sizes.bytes),
        *_inputs(step.inputs, shared),
        *_scratch(far, far_bytes, w.widths),
    ]
    turns = [
        "  %here = phi ptr [ %block_a, %first ], [ %there, %last ]",
        "  %there = phi ptr [ %block_b, %first ], [ %here, %last ]",
    ]
    step_lines = [*_pointers(layout, body.swapped, sizes), *lines]
    done = _copied_back(layout, body.swapped, sizes)
    text = framed(w, _own(w.arrays, own, own_bytes), "%thread", first, "first", turns, step_lines, done)
    return Kernel("\n".join(text) + "\n", far_bytes * BLOCK, own_bytes)


def _regions(size: int) -> list[str]:
    return [
        f"  %at_block = mul i64 %block, {2 * size}",
        "  %block_a = getelementptr inbounds i8, ptr %arena, i64 %at_block",
        f"  %block_b = getelementptr inbounds i8, ptr %block_a, i64 {size}",
        "  %fixed_4 = getelementptr inbounds i8, ptr %block_a, i64 %lane4",
        "  %fixed_1 = getelementptr inbounds i8, ptr %block_a, i64 %lane",
    ]


def inputs_at(layout: Layout, shared: Sequence[bool], block: int, own: Sequence[str]) -> tuple[int, list[str]]:
    """The bytes of a block's inputs, and pointers to them: if all runs share them one number after another.

    ``own``: from where on each of the others lies as an array of the state does.
    """
    apart = [k for k, one in enumerate(shared) if not one]
    offsets = Offsets([layout.shapes[k] for k in apart], [layout.kinds[k] for k in apart], block)
    lines, at = [], 0
    for k, shape in enumerate(layout.shapes):
        if shared[k]:
            lines.append(f"  %u{k} = getelementptr inbounds i8, ptr %shared, i64 {at}")
            at += 4 * math.prod(shape)
        else:
            lines.append(f"  %u{k} = getelementptr inbounds i8, ptr {own[k]}, i64 {offsets.starts[apart.index(k)]}")
    return offsets.bytes, lines


def _inputs(layout: Layout, shared: Sequence[bool]) -> list[str]:
    size, pointers = inputs_at(layout, shared, BLOCK, [f"%given_{BYTES[kind]}" for kind in layout.kinds])
    return [
        f"  %at_given = mul i64 %block, {size}",
        "  %given_0 = getelementptr inbounds i8, ptr %given, i64 %at_given",
        "  %given_4 = getelementptr inbounds i8, ptr %given_0, i64 %lane4",
        "  %given_1 = getelementptr inbounds i8, ptr %given_0, i64 %lane",
        *pointers,
    ]


def _own(arrays: Mapping[str, int], places: Mapping[str, int], total: int) -> list[str]:
    """Memory that a thread has for itself."""
    lines = [f"  {name} = alloca [{size} x i8], align 16" for name, size in arrays.items() if name not in places]
    lines.append(f"  %pool = alloca [{max(total, 16)} x i8], align 16")
    return lines + [f"  {name} = getelementptr inbounds i8, ptr %pool, i64 {at}" for name, at in places.items()]


def _scratch(places: Mapping[str, int], total: int, widths: Mapping[str, int]) -> list[str]:
    """Memory for what is too large for that: as that of the state, in blocks."""
    lines = [
        f"  %at_scratch = mul i64 %block, {total * BLOCK}",
        "  %scratch_0 = getelementptr inbounds i8, ptr %scratch, i64 %at_scratch",
        "  %scratch_4 = getelementptr inbounds i8, ptr %scratch_0, i64 %lane4",
        "  %scratch_1 = getelementptr inbounds i8, ptr %scratch_0, i64 %lane",
    ]
    for name, at in places.items():
        lines.append(f"  {name} = getelementptr inbounds i8, ptr %scratch_{widths[name]}, i64 {at * BLOCK}")
    return lines


def _pointers(layout: Layout, swapped: Sequence[bool], sizes: Offsets) -> list[str]:
    lines = []
    for place in ("here", "there"):
        for size, lane in ((4, "%lane4"), (1, "%lane")):
            lines.append(f"  %{place}_{size} = getelementptr inbounds i8, ptr %{place}, i64 {lane}")
    for k, (kind, swap) in enumerate(zip(layout.kinds, swapped, strict=True)):
        size, at = BYTES[kind], sizes.starts[k]
        base = f"%here_{size}" if swap else f"%fixed_{size}"
        lines.append(f"  %s{k} = getelementptr inbounds i8, ptr {base}, i64 {at}")
        if swap:
            lines.append(f"  %t{k} = getelementptr inbounds i8, ptr %there_{size}, i64 {at}")
    return lines


def _copied_back(layout: Layout, swapped: Sequence[bool], sizes: Offsets) -> list[str]:
    """After an odd number of steps the state is in the second region: bring it to the first."""
    if not any(swapped):
        return []
    lines, before = [*IF_ODD], "back"
    for k, (shape, kind, swap) in enumerate(zip(layout.shapes, layout.kinds, swapped, strict=True)):
        elements = math.prod(shape)
        if not swap or not elements:
            continue
        t, width = STORED[kind], BYTES[kind]
        lines += [
            f"  %back_array{k} = getelementptr inbounds i8, ptr %fixed_{width}, i64 {sizes.starts[k]}",
            f"  br label %copy{k}",
            f"copy{k}:",
            f"  %back_at{k} = phi i64 [ 0, %{before} ], [ %back_next{k}, %copy{k} ]",
            f"  %back_place{k} = mul i64 %back_at{k}, {BLOCK}",
            f"  %back_to{k} = getelementptr inbounds {t}, ptr %back_array{k}, i64 %back_place{k}",
            f"  %back_from{k} = getelementptr inbounds i8, ptr %back_to{k}, i64 {sizes.bytes}",
            f"  %back_value{k} = load {t}, ptr %back_from{k}, align {width}",
            f"  store {t} %back_value{k}, ptr %back_to{k}, align {width}",
            f"  %back_next{k} = add i64 %back_at{k}, 1",
            f"  %back_more{k} = icmp ult i64 %back_next{k}, {elements}",
            f"  br i1 %back_more{k}, label %copy{k}, label %copied{k}",
            f"copied{k}:",
        ]
        before = f"copied{k}"
    return lines
