"""NVIDIA's driver, called directly: memory, programs and launches of one GPU.

Nothing but the driver is needed: neither the CUDA toolkit nor CuPy, and JAX may run on the CPU. PTX is translated by
the driver, and what comes out is kept on disk.
"""

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from recollect.engines.compiler import cache, ptx
from recollect.engines.compiler.ptx import Routine
from recollect.errors import RecollectError

THREADS = 32
"""Threads that are scheduled together; the fewer, the better the last of them are spread."""

MAJOR, MINOR, PROCESSORS = 75, 76, 16  # CUdevice_attribute
REGISTERS, LOCAL_BYTES, CHIP_BYTES, CHIP_SHARE = 4, 3, 8, 9  # CUfunction_attribute
MAX_REGISTERS, INFO_LOG, INFO_SIZE, ERROR_LOG, ERROR_SIZE, LEVEL, VERBOSE = 0, 3, 4, 5, 6, 7, 12  # CUjit_option
PTX = 1  # CUjitInputType


@functools.cache
def _library() -> Any:
    for name in ("libcuda.so.1", "libcuda.so", "nvcuda.dll"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def _call(function: str, *arguments: Any) -> None:
    """A function of the driver; what it refuses is an error with its name."""
    library = _library()
    if library is None:
        raise RecollectError("no NVIDIA driver is installed (libcuda is not found)")
    code = getattr(library, function)(*arguments)
    if code:
        text = ctypes.c_char_p()
        library.cuGetErrorString(code, ctypes.byref(text))
        reason = (text.value or b"unknown error").decode()
        raise RecollectError(f"the GPU's driver refused {function}: {reason} (code {code})")


@functools.cache
def why_none() -> str | None:
    """Why there is no GPU to use here, or None."""
    if _library() is None:
        return "no NVIDIA driver is installed (libcuda is not found)"
    try:
        _call("cuInit", 0)
        count = ctypes.c_int()
        _call("cuDeviceGetCount", ctypes.byref(count))
        if not count.value:
            return "the NVIDIA driver shows no GPU"
        if device().capability < ptx.OLDEST:
            return f"the GPU's compute capability is {device().capability}, and {ptx.OLDEST} is needed"
    except RecollectError as error:
        return str(error)
    return None


@functools.cache
def device() -> "Gpu":
    """The first GPU, as the driver counts."""
    return Gpu(0)


def _attribute(handle: ctypes.c_int, which: int) -> int:
    value = ctypes.c_int()
    _call("cuDeviceGetAttribute", ctypes.byref(value), which, handle)
    return value.value


class Gpu:
    """One GPU: the context that all in this process share."""

    def __init__(self, number: int):
        _call("cuInit", 0)
        handle, self._context = ctypes.c_int(), ctypes.c_void_p()
        _call("cuDeviceGet", ctypes.byref(handle), number)
        name = ctypes.create_string_buffer(128)
        _call("cuDeviceGetName", name, 128, handle)
        self.name = name.value.decode()
        self.capability = _attribute(handle, MAJOR), _attribute(handle, MINOR)
        self.processors = _attribute(handle, PROCESSORS)
        _call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), handle)

    def here(self) -> None:
        """Make this thread of Python use it."""
        _call("cuCtxSetCurrent", self._context)

    def allocate(self, size: int) -> int:
        """Memory of so many bytes, all 0; its address."""
        self.here()
        address = ctypes.c_uint64()
        _call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(size, 16)))
        _call("cuMemsetD8_v2", address, ctypes.c_ubyte(0), ctypes.c_size_t(max(size, 16)))
        return address.value

    def release(self, address: int) -> None:
        """Give memory back."""
        self.here()
        _call("cuMemFree_v2", ctypes.c_uint64(address))

    def write(self, address: int, array: np.ndarray) -> None:
        """Copy an array there."""
        self.here()
        array = np.ascontiguousarray(array)
        if array.nbytes:
            _call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), ctypes.c_void_p(array.ctypes.data), _size(array.nbytes))

    def read(self, address: int, array: np.ndarray) -> None:
        """Fill an array from there, after all that was launched before."""
        self.here()
        if array.nbytes:
            _call("cuMemcpyDtoH_v2", ctypes.c_void_p(array.ctypes.data), ctypes.c_uint64(address), _size(array.nbytes))

    def program(self, routines: Sequence[Routine], often: bool = True, **options: Any) -> "GpuProgram":
        """Routines, translated and loaded; options as `GpuProgram` has them."""
        return GpuProgram(self, routines, often, **options)


def _size(count: int) -> ctypes.c_size_t:
    return ctypes.c_size_t(count)


class GpuProgram:
    """Entries on a GPU.

    Args:
        gpu: where.
        routines: the work of their threads.
        often: whether they run so often that speed is worth a longer time to translate.
        registers: most that a thread may have (None: as the driver likes).
    """

    def __init__(
        self,
        gpu: Gpu,
        routines: Sequence[Routine],
        often: bool = True,
        registers: int | None = None,
    ):
        self._gpu = gpu
        self.assembly = ptx.assembly(ptx.for_gpu(routines), gpu.capability)
        self.log = ""
        gpu.here()
        self._module = ctypes.c_void_p()
        code = self._translated({LEVEL: 4 if often else 1} | ({} if registers is None else {MAX_REGISTERS: registers}))
        _call("cuModuleLoadData", ctypes.byref(self._module), code)
        self._functions = {r.name: self._function(r.name) for r in routines}
        self._roomy: set[str] = set()  # functions that were told how much of the chip they need

    def _translated(self, options: dict[int, int]) -> bytes:
        version = ctypes.c_int()
        _call("cuDriverGetVersion", ctypes.byref(version))
        key = f"{self.assembly}\ncubin {self._gpu.capability} {options} {version.value} {self._gpu.name}"
        if (found := cache.get(key)) is not None:
            return found
        code, self.log = _translate(self.assembly, options)
        cache.put(key, code)
        return code

    def _function(self, name: str) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        _call("cuModuleGetFunction", ctypes.byref(handle), self._module, name.encode())
        return handle

    def launch(self, name: str, threads: int, arguments: Sequence[int], chip: int = 0) -> None:
        """Start ``threads`` threads or a few more, with ``chip`` bytes on the chip for each; does not wait for them."""
        self._gpu.here()
        if chip and name not in self._roomy:
            _call("cuFuncSetAttribute", self._functions[name], CHIP_BYTES, chip * THREADS)
            _call("cuFuncSetAttribute", self._functions[name], CHIP_SHARE, 100)
            self._roomy.add(name)
        values = [ctypes.c_uint64(a & 0xFFFFFFFFFFFFFFFF) for a in arguments]
        table = (ctypes.c_void_p * len(values))(*(ctypes.cast(ctypes.byref(v), ctypes.c_void_p) for v in values))
        blocks = -(-threads // THREADS)
        _call("cuLaunchKernel", self._functions[name], blocks, 1, 1, THREADS, 1, 1, chip * THREADS, None, table, None)

    def uses(self, name: str) -> dict[str, int]:
        """Registers of a thread, and bytes of its own memory."""
        found = {}
        for what, which in (("registers", REGISTERS), ("local_bytes", LOCAL_BYTES)):
            value = ctypes.c_int()
            _call("cuFuncGetAttribute", ctypes.byref(value), which, self._functions[name])
            found[what] = value.value
        return found


def _translate(assembly: str, more: dict[int, int]) -> tuple[bytes, str]:
    """Machine code of PTX, and what the driver's compiler said."""
    room = 1 << 16
    info, error = ctypes.create_string_buffer(room), ctypes.create_string_buffer(room)
    options = {INFO_LOG: ctypes.addressof(info), INFO_SIZE: room, ERROR_LOG: ctypes.addressof(error)}
    options |= {ERROR_SIZE: room, VERBOSE: 1, **more}
    names = (ctypes.c_int * len(options))(*options)
    values = (ctypes.c_void_p * len(options))(*options.values())
    state, text = ctypes.c_void_p(), assembly.encode() + b"\0"
    try:
        _call("cuLinkCreate_v2", len(options), names, values, ctypes.byref(state))
        _call("cuLinkAddData_v2", state, PTX, text, _size(len(text)), b"step.ptx", 0, None, None)
        code, size = ctypes.c_void_p(), ctypes.c_size_t()
        _call("cuLinkComplete", state, ctypes.byref(code), ctypes.byref(size))
    except RecollectError as problem:
        raise RecollectError(f"{problem}\n{error.value.decode(errors='replace')}") from None
    found = ctypes.string_at(code, size.value)
    _call("cuLinkDestroy", state)
    return found, info.value.decode(errors="replace")
