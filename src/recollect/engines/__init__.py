"""One definition, made to run: XLA, the step compiler for CPUs, CUDA; and the choice among them.

`compile` makes machine code of any small JAX step (`recollect.engines.compiler`); `choice` says which calls serve an
agent. Imports `errors`, `prng`, `cores`, `reservoir`, `agents`, `envs`, `store`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recollect.engines.compiler import Unsupported, compile

__all__ = ["Unsupported", "compile"]


def __getattr__(name: str) -> Any:
    if name in __all__:  # LLVM is loaded where it is used
        from recollect.engines import compiler

        return getattr(compiler, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
