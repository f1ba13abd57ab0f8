"""Which engine serves an agent: decided here, for ``train`` and for the ``Learner``, and nowhere else.

Every agent runs on the engine "jax". "cpu" (the step compiler, for this machine's vector lanes), "compiled-gpu" (the
step compiler, for an NVIDIA GPU) and "cuda" (a kernel by hand for the paper's agent on its task) are many times faster
and know some agents only. "auto" takes the fastest that can serve; an engine that is asked for and cannot is refused
with the reason.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from recollect.agents.base import Agent
from recollect.engines import compiled, compiled_gpu, compiled_host, cuda
from recollect.engines.compiled_host import CompiledHost
from recollect.engines.host import Host

NAMES = ("cuda", "compiled-gpu", "cpu", "jax")
"""The engines, the fastest first."""


class Choice(NamedTuple):
    """The engine that serves, and why each faster one does not."""

    engine: str
    passed_over: dict[str, str] = {}  # noqa: RUF012 (never changed)

    def reasons(self) -> dict[str, dict[str, str]]:
        """What a log says besides the engine; nothing where none was passed over."""
        return {"passed_over": self.passed_over} if self.passed_over else {}

    def __str__(self) -> str:
        reasons = "".join(f"; not {name!r}: {why}" for name, why in self.passed_over.items())
        return f"engine {self.engine!r}{reasons}"


def _choose(asked: str, reasons: Mapping[str, Callable[[], str | None]]) -> Choice:
    """The engine asked for, or the first of ``reasons`` with nothing against it."""
    if asked not in ("auto", *reasons):
        raise ValueError(f"engine={asked!r}: choose one of 'auto', {', '.join(map(repr, reasons))}")
    if asked != "auto":
        if (why := reasons[asked]()) is not None:
            raise ValueError(f"engine={asked!r} cannot serve here: {why}; engine='auto' takes one that can")
        return Choice(asked)
    passed_over = {}
    for name, against in reasons.items():
        if (why := against()) is None:
            return Choice(name, passed_over)
        passed_over[name] = why
    raise AssertionError("nothing speaks against the last engine")


def for_training(
    agent: Agent, env: Any, engine: str = "auto", max_episode_length: int | None = None, runs: int | None = None
) -> Choice:
    """The engine that trains many runs of an agent in a JAX environment.

    Args:
        agent: the definition.
        env: the environment.
        engine: one of ``NAMES``, or "auto".
        max_episode_length: as for ``train``; not every engine can truncate episodes.
        runs: how many; a GPU is not taken for few of them unless it is asked for.
    """
    reasons: dict[str, Callable[[], str | None]] = {
        "cuda": lambda: cuda.why_not(agent, env),
        "compiled-gpu": lambda: compiled_gpu.why_not(agent, env, runs, asked=engine != "auto"),
        "cpu": lambda: compiled.why_not(agent, env),
        "jax": lambda: None,
    }
    return _choose(engine, reasons)


def for_learner(
    agent: Agent, observation_size: int, outputs: int, copies: int = 1, shared: bool = False, engine: str = "auto"
) -> Choice:
    """The engine behind a ``Learner``: what makes an agent's time step one call from Python.

    Args:
        agent: the definition.
        observation_size: length of an observation vector.
        outputs: of the policy network.
        copies: how many environments are played at once.
        shared: whether the copies are one agent.
        engine: "cpu", "jax" or "auto".
    """

    def against_cpu() -> str | None:
        return CompiledHost.why_not(agent, observation_size, outputs, copies, shared)

    return _choose(engine, {"cpu": against_cpu, "jax": lambda: None})


@functools.lru_cache(maxsize=64)
def host_for(
    agent: Agent, observation_size: int, outputs: int, copies: int = 1, shared: bool = False, engine: str = "auto"
) -> Any:
    """The host of an agent at one size, the same for the same agent, so that nothing is compiled twice."""
    sizes = (observation_size, outputs, copies, shared)
    if for_learner(agent, *sizes, engine=engine).engine == "cpu":
        return compiled_host.host(agent, *sizes)
    return Host(agent, *sizes)
