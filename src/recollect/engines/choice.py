"""Which compiled calls serve an agent: those of its own, where there are such, and JAX's otherwise; made once each."""

import functools
from typing import Any

from recollect.agents.base import Agent
from recollect.engines.host import Host
from recollect.engines.native.episodic_host import EpisodicHost
from recollect.engines.native.gated_host import RealTimeHost, RecurrentHost

NATIVE = (EpisodicHost, RecurrentHost, RealTimeHost)


@functools.lru_cache(maxsize=64)
def host_for(agent: Agent, observation_size: int, outputs: int, copies: int = 1, shared: bool = False) -> Any:
    """The host of an agent at one size, the same for the same agent, so that nothing is compiled twice."""
    for kind in NATIVE:
        if kind.supports(agent) and not (shared and copies > 1):
            return kind(agent, observation_size, outputs, copies)
    return Host(agent, observation_size, outputs, copies, shared)
