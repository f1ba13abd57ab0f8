"""Which engine serves an agent: decided here, for ``train`` and for the ``Learner``, and nowhere else.

Every agent runs on the engine "jax". "cpu" (compiled for this machine's vector lanes) and "cuda" (a kernel for NVIDIA
GPUs) are many times faster and know some agents only. "auto" takes the fastest that can serve; an engine that is asked
for and cannot is refused with the reason.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax

from recollect.agents.base import Agent
from recollect.agents.recurrent import RecurrentActorCritic
from recollect.engines import cuda, packing, recurrent
from recollect.engines.host import Host
from recollect.engines.native.episodic_host import EpisodicHost
from recollect.engines.native.gated_host import RealTimeHost, RecurrentHost

NAMES = ("cuda", "cpu", "jax")
"""The engines, the fastest first."""

ONLINE = ("cpu", "jax")
"""Those that a ``Learner`` can have."""

NATIVE = (EpisodicHost, RecurrentHost, RealTimeHost)


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


def for_training(agent: Agent, env: Any, engine: str = "auto", max_episode_length: int | None = None) -> Choice:
    """The engine that trains many runs of an agent in a JAX environment.

    Args:
        agent: the definition.
        env: the environment.
        engine: one of ``NAMES``, or "auto".
        max_episode_length: as for ``train``; not every engine can truncate episodes.
    """

    def against_cpu() -> str | None:
        if isinstance(agent, RecurrentActorCritic):
            why = recurrent.why_not(agent, env)
            capped = why is None and max_episode_length is not None
            return f"it does not know max_episode_length={max_episode_length}" if capped else why
        if (why := packing.why_not(agent, env)) is None and jax.default_backend() != "cpu":
            return f"JAX runs on {jax.default_backend()!r} here: JAX_PLATFORMS=cpu in the environment changes that"
        return why

    return _choose(engine, {"cuda": lambda: cuda.why_not(agent, env), "cpu": against_cpu, "jax": lambda: None})


def for_learner(agent: Agent, copies: int = 1, shared: bool = False, engine: str = "auto") -> Choice:
    """The engine behind a ``Learner``: what makes an agent's time step one call from Python.

    Args:
        agent: the definition.
        copies: how many environments are played at once.
        shared: whether the copies are one agent.
        engine: one of ``ONLINE``, or "auto".
    """

    def against_cpu() -> str | None:
        if shared and copies > 1:
            return f"the {copies} copies share one agent, and it runs independent ones: learners='each' avoids that"
        reasons = [kind.why_not(agent) for kind in NATIVE]
        if None in reasons:
            return None
        # Of the kind that is written for this class the reason names options; the others only their own class.
        named = [why for why in reasons if why is not None and "written for" not in why]
        if named:
            return named[0]
        return f"it is written for the episodic and the recurrent agents, not for {type(agent).__name__}"

    return _choose(engine, {"cpu": against_cpu, "jax": lambda: None})


@functools.lru_cache(maxsize=64)
def host_for(
    agent: Agent, observation_size: int, outputs: int, copies: int = 1, shared: bool = False, engine: str = "auto"
) -> Any:
    """The host of an agent at one size, the same for the same agent, so that nothing is compiled twice."""
    if for_learner(agent, copies, shared, engine).engine == "cpu":
        kind = next(kind for kind in NATIVE if kind.why_not(agent) is None)
        return kind(agent, observation_size, outputs, copies)
    return Host(agent, observation_size, outputs, copies, shared)
