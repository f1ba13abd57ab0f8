"""A whole graph as LLVM functions: one step on pointers to arrays, and the entry that repeats it and swaps buffers."""

import dataclasses
from collections.abc import Sequence

from recollect.engines.compiler import affine, machine
from recollect.engines.compiler.graph import VIEWS, Graph, Node
from recollect.engines.compiler.kernels import Kernels
from recollect.engines.compiler.plan import Plan, contract, replaced_in_place, settled_first, written_in_place
from recollect.engines.compiler.values import Buffer
from recollect.engines.compiler.writer import Writer


def emit_graph(
    kernels: Kernels,
    graph: Graph,
    leaves: Sequence[Node],
    outs: Sequence[Node],
    targets: Sequence[Buffer | None],
    swapped: Sequence[bool] = (),
) -> None:
    """Emit the computation of ``outs`` into ``targets`` (None: not wanted) from leaves whose buffers are known.

    ``outs`` are as `plan.contract` gives them; ``swapped``: which of the first ones have a buffer of their own beside
    that of the leaf which they take the place of.
    """
    w = kernels.w
    places = {target: k for k, target in enumerate(targets[: len(swapped)]) if target is not None and swapped[k]}
    wanted = [(o, t) for o, t in zip(outs, targets, strict=True) if t is not None]
    arrays: dict[int, tuple[Node, Buffer]] = {}
    scalars: list[tuple[Node, Buffer]] = []
    for k, (o, target) in enumerate(wanted):
        if o.shape == ():
            scalars.append((o, target))
            continue
        if o.op in ("leaf", "const") or o.op in VIEWS or o.id in arrays:
            o = graph.make("copy", (o,), o.shape, o.dtype, ("out", k))
        arrays[o.id] = (o, target)
    for leaf in leaves:
        if leaf.shape == ():
            kernels.scalars[leaf.id] = w.load(kernels.buffers[leaf.id], affine.ZERO)
    plan = Plan([n for n, _ in arrays.values()] + [n for n, _ in scalars], w.lanes, w.strided)
    over = {i: (places[t], leaves[places[t]]) for i, (_, t) in arrays.items() if t in places}
    for i, saved in w.arrange(plan, over).items():
        leaf = over[i][1]
        if saved:
            kernels.saved[plan.repairs[i].id] = (leaf, arrays[i][1])
        arrays[i] = (arrays[i][0], kernels.buffers[leaf.id])
    kernels.run(plan, {i: target for i, (_, target) in arrays.items()})
    for value, target in [(kernels.e.at(n, ()), target) for n, target in scalars]:
        w.store(target, affine.ZERO, value)


@dataclasses.dataclass(frozen=True)
class Body:
    """The code of one step, before it is a function: what a target puts around it is the target's own.

    ``names``: the pointers that it reads, which are ``%s0``, … for the state's arrays, ``%t0``, … for the second
    buffers of those that are ``swapped``, ``%u0``, … for inputs, ``%o0``, … for outputs, and those of ``scratch``.
    """

    writer: Writer
    names: list[str]
    swapped: tuple[bool, ...]
    scratch: list[tuple[str, int]]  # pointer and bytes


def emit_body(
    w: Writer,
    graph: Graph,
    state: Sequence[Node],
    inputs: Sequence[Node],
    new_state: Sequence[Node],
    outputs: Sequence[Node],
    shared: Sequence[bool],
) -> Body:
    """Write a step; ``shared``: which inputs are one for all lanes."""
    kernels = Kernels(w)
    many = w.lanes > 1
    names: list[str] = []

    def argument(name: str, node: Node, lanewise: bool = many) -> Buffer:
        names.append(name)
        return Buffer(name, node.dtype, lanewise)

    for k, leaf in enumerate(state):
        kernels.buffers[leaf.id] = argument(f"%s{k}", leaf)
    for k, (leaf, one) in enumerate(zip(inputs, shared, strict=True)):
        kernels.buffers[leaf.id] = argument(f"%u{k}", leaf, many and not one)
    targets: list[Buffer | None] = []
    swapped = []
    outs = written_in_place(graph, state, contract(graph, [*new_state, *outputs], sums=w.lanes > 1))
    if many:
        outs = settled_first(graph, outs)
    over = replaced_in_place(state, outs)
    for k, (leaf, new) in enumerate(zip(state, outs[: len(state)], strict=True)):
        swap = new is not leaf and leaf.shape != () and not over[k] and not new.op.endswith("_in_place")
        swapped.append(swap)
        same = Buffer(f"%s{k}", leaf.dtype, many)
        targets.append(None if new is leaf else argument(f"%t{k}", leaf) if swap else same)
    targets += [argument(f"%o{k}", n) for k, n in enumerate(outputs)]
    emit_graph(kernels, graph, [*state, *inputs], outs, targets, swapped)
    names += [name for name, _ in kernels.scratch]
    return Body(w, names, tuple(swapped), kernels.scratch)


def entered(step: Body) -> str:
    """A step as LLVM's text.

    The entry is ``run(state, others, rest, count)``, three tables of pointers: the state's arrays, their second
    buffers, and inputs, outputs and scratch space in this order.
    """
    w, names = step.writer, step.names
    vector = '"prefer-vector-width"="512" "min-legal-vector-width"="512"' if w.width * 4 >= 64 else ""
    body = [
        *w.tables.values(),
        f"define internal void @step({', '.join(f'ptr noalias align 64 {name}' for name in names)}) #0 {{",
        "entry:",
        *w.allocas,
        *w.scopes[0].lines,
        "  ret void",
        "}",
        *_entry(names, step.swapped),
        *sorted(w.declared),
        f"attributes #0 = {{ noinline nounwind {vector} }}",
        "attributes #1 = { nounwind willreturn memory(none) }",
        f"attributes #2 = {{ nounwind {vector} }}",
    ]
    return with_mode("\n".join(body) + "\n")


def _entry(names: Sequence[str], swapped: Sequence[bool]) -> list[str]:
    """Repeat the step: take the pointers from the tables, call, swap the buffers of what was written anew.

    Numbers too small to be normal are taken for 0 meanwhile, as XLA has it; arithmetic on them is slow.
    """
    lines = ["define void @run(ptr %state, ptr %other, ptr %rest, i64 %count) #2 {", "entry:", "MODE_ON"]
    lines += ["  br label %head", "head:", "  %k = phi i64 [ 0, %entry ], [ %next, %body ]"]
    lines += ["  %more = icmp ult i64 %k, %count", "  br i1 %more, label %body, label %done", "body:"]
    for k in range(len(swapped)):
        lines += [f"  %ps{k} = getelementptr ptr, ptr %state, i64 {k}", f"  %s{k} = load ptr, ptr %ps{k}"]
        if swapped[k]:
            lines += [f"  %pt{k} = getelementptr ptr, ptr %other, i64 {k}", f"  %t{k} = load ptr, ptr %pt{k}"]
    rest = [n for n in names if not n.startswith(("%s", "%t"))]
    for k, name in enumerate(rest):
        lines += [f"  %pr{k} = getelementptr ptr, ptr %rest, i64 {k}", f"  {name} = load ptr, ptr %pr{k}"]
    lines.append(f"  call void @step({', '.join(f'ptr {name}' for name in names)})")
    for k, swap in enumerate(swapped):
        if swap:
            lines += [f"  store ptr %t{k}, ptr %ps{k}", f"  store ptr %s{k}, ptr %pt{k}"]
    return [*lines, "  %next = add i64 %k, 1", "  br label %head", "done:", "MODE_OFF", "  ret void", "}"]


def with_mode(text: str) -> str:
    """The entry with the processor's switch for tiny numbers, where there is one."""
    if not machine.is_x86():
        return text.replace("MODE_ON\n", "").replace("MODE_OFF\n", "")
    on = """  %mode = alloca i32
  %fast = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %mode)
  %old = load i32, ptr %mode
  %new = or i32 %old, 32832
  store i32 %new, ptr %fast
  call void @llvm.x86.sse.ldmxcsr(ptr %fast)"""
    off = "  call void @llvm.x86.sse.ldmxcsr(ptr %mode)"
    declared = "declare void @llvm.x86.sse.stmxcsr(ptr)\ndeclare void @llvm.x86.sse.ldmxcsr(ptr)\n"
    return text.replace("MODE_ON", on).replace("MODE_OFF", off) + declared
