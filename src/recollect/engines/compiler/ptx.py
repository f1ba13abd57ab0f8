"""The work of threads as a program: PTX for NVIDIA's GPUs.

A routine is ``@{name}_thread(i64 thread, arguments…)``; its entry ``@{name}`` has the arguments alone. LLVM
contracts and reorders nothing, and numbers too small to be normal are taken for 0, on a GPU as on a processor: so both
have the same bits. Tests run the same routines one thread after the other.
"""

from collections.abc import Sequence
from typing import NamedTuple

import llvmlite.binding as llvm

from recollect.engines.compiler import cache, machine

TRIPLE = "nvptx64-nvidia-cuda"
NEWEST = (9, 0)
"""The newest GPU that code is written for; the driver translates it for later ones."""
OLDEST = (7, 0)

ATTRIBUTES = (
    'attributes #0 = { alwaysinline nounwind "denormal-fp-math-f32"="preserve-sign,preserve-sign" }\n'
    "attributes #1 = { nounwind willreturn memory(none) }\n"
    'attributes #2 = { nounwind "denormal-fp-math-f32"="preserve-sign,preserve-sign" }\n'
)

STEP = "ppppii"
"""Arguments of a step's routine: arena, given, shared, scratch; runs, count."""


class Routine(NamedTuple):
    """The work of one thread; ``arguments``: "p" for a pointer, "i" for a 64-bit integer."""

    name: str
    text: str
    arguments: str


def _gpu_entry(routine: Routine) -> str:
    """A thread for each element of the grid."""
    names = [f"%x{k}" for k in range(len(routine.arguments))]
    types = ["ptr addrspace(1) noalias" if a == "p" else "i64" for a in routine.arguments]
    given = ", ".join(f"{t} {n}" for t, n in zip(types, names, strict=True))
    lines = [f"define ptx_kernel void @{routine.name}({given}) #2 {{"]
    passed = ["i64 %thread"]
    for a, n in zip(routine.arguments, names, strict=True):
        if a == "p":
            lines.append(f"  {n}g = addrspacecast ptr addrspace(1) {n} to ptr")
        passed.append(f"ptr {n}g" if a == "p" else f"i64 {n}")
    for name, register in (("t", "tid"), ("b", "ctaid"), ("n", "ntid")):
        lines.append(f"  %{name} = call i32 @llvm.nvvm.read.ptx.sreg.{register}.x()")
        lines.append(f"  %{name}w = zext i32 %{name} to i64")
    lines += ["  %before = mul i64 %bw, %nw", "  %thread = add i64 %before, %tw"]
    lines += [f"  call void @{routine.name}_thread({', '.join(passed)})", "  ret void", "}"]
    return "\n".join(lines) + "\n"


def for_gpu(routines: Sequence[Routine]) -> str:
    """LLVM's text of the entries that a GPU runs."""
    registers = "".join(f"declare i32 @llvm.nvvm.read.ptx.sreg.{r}.x()\n" for r in ("tid", "ctaid", "ntid"))
    return joined([r.text + _gpu_entry(r) for r in routines]) + registers + ATTRIBUTES


def joined(texts: Sequence[str]) -> str:
    """Texts one after the other, each function declared once."""
    seen: set[str] = set()
    lines = []
    for line in "".join(texts).splitlines():
        if line.startswith("declare "):
            if line in seen:
                continue
            seen.add(line)
        lines.append(line)
    return "\n".join(lines) + "\n"


def assembly(text: str, capability: tuple[int, int]) -> str:
    """PTX of LLVM's text for a GPU of this compute capability, from the disk where it was made before."""
    major, minor = min(capability, NEWEST)
    key = f"{text}\n{TRIPLE} {(major, minor)}\n{llvm.llvm_version_info}"
    if (found := cache.get(key)) is not None:
        return found.decode()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=f"sm_{major}{minor}", opt=3)
    written = target.emit_assembly(machine.parsed(text, target, TRIPLE))
    cache.put(key, written.encode())
    return written
