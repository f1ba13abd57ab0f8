"""LLVM: text to optimised machine code in this process, or to an object file and back."""

import ctypes
import hashlib
from typing import Any

import llvmlite.binding as llvm

from recollect.engines.compiler import cache

SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


def machine(level: int = 2) -> Any:
    """The processor that this runs on, as LLVM sees it; a new one each time, since an engine takes it over."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    features = llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=level, jit=True)


def is_x86() -> bool:
    """Whether the processor has SSE's mode register."""
    return llvm.get_process_triple().startswith(("x86_64", "i686"))


def parsed(text: str, target: Any, triple: str, often: bool = True) -> Any:
    """A module after LLVM's passes, if it is run often; what is vectorised or unrolled was so decided before."""
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = triple, str(target.target_data)
    if often:
        options = llvm.create_pipeline_tuning_options(speed_level=1)
        options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
        passes = llvm.create_pass_builder(target, options)
        passes.getModulePassManager().run(module, passes)
    return module


def described() -> str:
    """The processor and LLVM, as far as code depends on them."""
    return f"{llvm.get_host_cpu_name()}\n{llvm.get_host_cpu_features().flatten()}\n{llvm.llvm_version_info}"


def key(text: str, often: bool = True) -> str:
    """What object code of LLVM's text is kept by."""
    return hashlib.sha256(f"{text}\n{often}\n{described()}".encode()).hexdigest()


def compiled(text: str, often: bool = True) -> bytes:
    """Object code of LLVM's text, from the disk where it was compiled before.

    What does not run ``often`` is compiled as it stands: a fifth of the time to compile, the same bits.
    """
    kept = key(text, often)
    found = cache.get(kept)
    if found is None:
        target = machine(2 if often else 0)
        found = target.emit_object(parsed(text, target, llvm.get_process_triple(), often))
        cache.put(kept, found)
    return found


class Loaded:
    """Machine code in this process; ``run`` is its entry, where it has one of that name and form."""

    def __init__(self, code: bytes, entry: str | None = "run"):
        self._module = llvm.parse_assembly("")
        self._engine = llvm.create_mcjit_compiler(self._module, machine())
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        if entry is not None:
            self.run = SIGNATURE(self.address(entry))

    def address(self, name: str) -> int:
        """Where a function begins."""
        return self._engine.get_function_address(name)
