"""What the code of a GPU has in common, whatever a thread lives: to LLVM each thread computes with scalars."""

from recollect.engines.compiler.affine import Index
from recollect.engines.compiler.values import BYTES, STORED, TYPES, Buffer, Value
from recollect.engines.compiler.writer import Writer

NEAR = 1 << 12
"""Bytes of an array of one step that is near a thread; larger ones are in the scratch space."""


class GpuWriter(Writer):
    """A writer whose vectors lie across threads: one element in each."""

    def __init__(self, lanes: int, written_out: tuple[int, int]) -> None:
        super().__init__(lanes)
        self.written_out = written_out
        self.arrays: dict[str, int] = {}  # name and bytes of the arrays of one step that are near a thread
        self.widths: dict[str, int] = {}  # name and bytes per element of those in the scratch space
        self._waiting: list[tuple[object, Buffer, Index, Value]] = []

    def type(self, kind: str, wide: bool, types: dict[str, str] = TYPES) -> str:
        """LLVM's type: what differs from thread to thread is as wide as what does not."""
        del wide
        return types[kind]

    def widen(self, value: Value) -> Value:
        """The same number in every thread."""
        return value._replace(wide=True)

    def prefix(self, wide: bool) -> str:
        """LLVM's functions of scalars."""
        del wide
        return ""

    def array(self, size: int, kind: str, shared: bool = False) -> tuple[Buffer, int]:
        """Memory near a thread, its own or on the chip, or in the scratch space; ``shared``: as any other."""
        del shared
        name, needed, lanes = f"%b{self.serial()}", max(1, size) * BYTES[kind], self.lanes > 1
        if needed > NEAR:
            self.widths[name] = BYTES[kind]
            return Buffer(name, kind, lanes), needed
        self.arrays[name] = needed
        return Buffer(name, kind, lanes, own=lanes), 0

    def _addresses(self, buffer: Buffer, at: Value) -> str:
        """The address of an element at a computed place."""
        stride = self.stride(buffer)
        at = at if stride == 1 else self.do("mul", at, self.const("i", stride))
        far = self.cast("zext", at, "l")
        return self.new(f"getelementptr inbounds {STORED[buffer.kind]}, ptr {buffer.pointer}, {self.typed(far)}")

    def align(self, buffer: Buffer) -> int:
        """Of one element."""
        return BYTES[buffer.kind]

    def largest(self, value: Value) -> Value:
        """Of one run."""
        return value

    def any(self, value: Value) -> str:
        """Of one run; what is asked of all threads of a team is the same in each."""
        assert self.lanes > 1 or not value.wide
        return value.text

    def all(self, value: Value) -> str:
        """Likewise."""
        return self.any(value)

    def later(self, buffer: Buffer, place: Index, value: Value) -> None:
        """What is loaded before the first of several stores need not wait for them."""
        self._waiting.append((self.scope, buffer, place, value))

    def settle(self) -> None:
        """Store what waits in this scope."""
        here = [entry for entry in self._waiting if entry[0] is self.scope]
        self._waiting = [entry for entry in self._waiting if entry[0] is not self.scope]
        for _, buffer, place, value in here:
            self.store(buffer, place, value)
