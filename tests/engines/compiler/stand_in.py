"""A processor in the place of a GPU: the same routines, one thread after the other, in the same order of memory."""

import ctypes

import numpy as np

from recollect.engines.compiler import machine
from recollect.engines.compiler.emission import with_mode
from recollect.engines.compiler.ptx import ATTRIBUTES, joined


def host_entry(routine):
    """One thread after the other."""
    names = [f"%x{k}" for k in range(len(routine.arguments))]
    types = ["ptr" if a == "p" else "i64" for a in routine.arguments]
    given = ", ".join(f"{t} {n}" for t, n in zip(types, names, strict=True))
    return "\n".join(
        [
            f"define void @{routine.name}(i64 %threads, {given}) #2 {{",
            "entry:",
            "MODE_ON",
            "  br label %head",
            "head:",
            "  %thread = phi i64 [ 0, %entry ], [ %next, %body ]",
            "  %more = icmp ult i64 %thread, %threads",
            "  br i1 %more, label %body, label %done",
            "body:",
            f"  call void @{routine.name}_thread(i64 %thread, {given})",
            "  %next = add i64 %thread, 1",
            "  br label %head",
            "done:",
            "MODE_OFF",
            "  ret void",
            "}\n",
        ]
    )


class OnHost:
    """Entries in this process, to hold what a GPU does against; the grid is a loop."""

    def __init__(self, routines):
        text = with_mode(joined([r.text + host_entry(r) for r in routines]) + ATTRIBUTES)
        self._code = machine.Loaded(machine.compiled(text), entry=None)
        self._calls = {
            r.name: ctypes.CFUNCTYPE(
                None, ctypes.c_int64, *(ctypes.c_void_p if a == "p" else ctypes.c_int64 for a in r.arguments)
            )(self._code.address(r.name))
            for r in routines
        }

    def launch(self, name, threads, arguments, chip=0):
        if chip:
            raise ValueError("a team's threads do not run one after the other")
        self._calls[name](threads, *arguments)


class StandIn:
    """What `cuda_driver.Gpu` has, in this process's memory."""

    name, processors = "a processor", 1

    def __init__(self):
        self._memory = {}

    def allocate(self, size):
        array = np.zeros(max(size, 16), np.uint8)
        self._memory[array.ctypes.data] = array
        return array.ctypes.data

    def release(self, address):
        del self._memory[address]

    def write(self, address, array):
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self._memory[address][: data.size] = data

    def read(self, address, array):
        array.reshape(-1).view(np.uint8)[...] = self._memory[address][: array.nbytes]

    def program(self, routines, often=True, **options):
        del often, options
        return OnHost(routines)
