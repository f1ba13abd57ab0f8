"""What the code of a GPU has in common, whatever a thread lives: to LLVM each thread computes with scalars."""

from recollect.engines.compiler.values import TYPES, Value
from recollect.engines.compiler.writer import Writer


class GpuWriter(Writer):
    """A writer whose vectors lie across threads: one element in each."""

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
