"""Runs of any agent in any JAX environment, as pytrees: XLA runs them, and the faster engines take them over."""

import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from recollect.agents.base import Agent
from recollect.engines import compiled, loop
from recollect.envs.base import Environment
from recollect.store import trees
from recollect.training import refusing
from recollect.training.group import Group, state_like

SECONDS = 2.0
"""About how long it is, at most, from one report of a compiled loop to the next; results do not depend on it."""


def refuse_too_large(agent: Agent, env: Environment, seeds: int, bins: int) -> None:
    """Refuse runs whose states do not fit, by their bytes, before anything is traced, compiled or allocated."""
    needed = trees.size(state_like(agent, env, seeds, bins))
    limit = (jax.devices()[0].memory_stats() or {}).get("bytes_limit")
    refusing.too_large(needed, f"the states of {seeds} runs", "a smaller memory_size, or fewer seeds at once", limit)


class PytreeGroup(Group):
    """Runs as ``recollect.engines.loop`` has them."""

    def _begin(self, agent: Agent, saved: loop.Run | None) -> None:
        # XLA and the GPU's kernel take a number of records of their own; the compiled loop can begin with one.
        own = self._most == loop.RECORDS_PER_CALL[self._engine]
        self._records = 1 if self._engine == "cpu" and own else self._most
        count, bins = len(self._seeds), self._bins.bins
        if self._engine == "cpu":
            self._agents = loop.rows(agent, count)
            with jax.default_device(compiled.processor()):
                runs = compiled.start(self._agents, self._env, self._seeds, bins) if saved is None else saved
        else:
            self._agents = loop.broadcast(agent, count)
            seeds = jnp.array(self._seeds, jnp.uint32)
            runs = loop.start(self._agents, self._env, seeds, bins) if saved is None else jax.tree.map(_copied, saved)
        self._take(runs)

    def _take(self, runs: loop.Run) -> None:
        self._runs = runs
        self.steps, self.episodes, self.faults = map(np.asarray, (runs.steps, runs.episode, runs.faults))

    @property
    def agent_states(self) -> Any:
        """The agents' states."""
        return self._runs.agent

    def advance(self) -> Sequence[dict[str, Any]]:
        """One compiled call; gives the bins that it completed."""
        begun, count = time.perf_counter(), min(self._records, self._left())
        runs, records = loop.advance(self._engine, self._agents, self._env, self._runs, self._limits, count)
        self._take(runs)
        self.taken += count * loop.RECORD
        if count == self._records < self._most and time.perf_counter() - begun < SECONDS / 2:
            self._records = min(2 * count, self._most)
        return self._bins.add(self._seeds, jax.device_get(records), np.asarray(self._runs.sums))

    def _all_runs(self) -> loop.Run:
        return self._runs


def _copied(leaf: Any) -> Array:
    """A copy that compiled calls may write over; ``jnp.array`` would compile a program for each shape."""
    return jax.device_put(leaf.copy()) if isinstance(leaf, np.ndarray) else jnp.array(leaf)
