"""Engines: one definition of an agent, made to run.

`choice` decides which engine serves an agent, for training and for the `Learner`, and nowhere else is that decided.
`loop` is the time step of agent and environment in JAX, for every pair. `compile` makes machine code of any such step
(`compiler`); through it `compiled` trains many runs, `compiled_gpu` does on an NVIDIA GPU, and `compiled_host` makes an
agent's step one call from Python, for Gymnasium, as `host` does through XLA. `cuda` is hand-written for one pair, whose
runs `packing` makes tables of. Start at `choice`, then `loop`. May import `agents`, `envs` and `store`.
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
