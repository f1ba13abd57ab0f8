"""Runs of any agent in any JAX environment, as pytrees: XLA runs them, and the faster engines take them over."""

import contextlib
import math
import time
from collections.abc import Mapping, Sequence
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
from recollect.training.bins import Bins
from recollect.training.group import Group, Limits
from recollect.training.reports import Result

SECONDS = 2.0
"""About how long it is, at most, from one report of a compiled loop to the next; results do not depend on it."""


def state_like(agent: Agent, env: Environment, seeds: int, bins: int) -> dict[str, Any]:
    """The form of the snapshots, found without computing or compiling anything."""
    agents = jax.eval_shape(lambda: loop.broadcast(agent, seeds))
    numbers = jax.ShapeDtypeStruct((seeds,), jnp.uint32)
    runs = jax.eval_shape(lambda a, s: loop.start_together(a, env, s, bins), agents, numbers)
    read = jax.vmap(lambda a, r: loop.read_record(a, env, r.episode, r.steps, r.agent.params))
    record = jax.eval_shape(read, agents, runs)
    collected = Bins.like(seeds, bins, record.query_vectors.shape[1:])
    return {"runs": runs, "collected": collected, "taken": np.int64(0)}


def refuse_too_large(agent: Agent, env: Environment, seeds: int, bins: int) -> None:
    """Refuse runs whose states do not fit, by their bytes, before anything is traced, compiled or allocated."""
    needed = sum(
        math.prod(s) * np.dtype(d).itemsize for s, d in trees.shapes(state_like(agent, env, seeds, bins)).values()
    )
    limit = (jax.devices()[0].memory_stats() or {}).get("bytes_limit")
    refusing.too_large(needed, f"the states of {seeds} runs", "a smaller memory_size, or fewer seeds at once", limit)


class PytreeGroup(Group):
    """Runs as ``recollect.engines.loop`` has them."""

    def __init__(
        self,
        engine: str,
        agent: Agent,
        env: Environment,
        seeds: tuple[int, ...],
        limits: Limits,
        records_per_call: int | None,
        state: Mapping[str, np.ndarray] | None,
    ):
        self._engine, self._env, self._seeds, self._limits = engine, env, seeds, limits
        self._most = records_per_call or loop.RECORDS_PER_CALL[engine]
        self._whole = max(self._most, loop.RECORDS_PER_CALL[engine])
        # XLA and the GPU's kernel take a number of records of their own; the compiled loop can begin with one.
        self._records = 1 if engine == "cpu" and records_per_call is None else self._most
        elsewhere = engine == "cpu" and jax.default_backend() != "cpu"
        with jax.default_device(compiled.processor()) if elsewhere else contextlib.nullcontext():
            self._begin(agent, env, seeds, limits, state)

    def _begin(
        self,
        agent: Agent,
        env: Environment,
        seeds: tuple[int, ...],
        limits: Limits,
        state: Mapping[str, np.ndarray] | None,
    ) -> None:
        self._agents = loop.broadcast(agent, len(seeds))
        bins = limits.episodes // limits.bin_size
        like = state_like(agent, env, len(seeds), bins)
        self._bins = Bins(len(seeds), bins, limits.bin_size, like["collected"]["query_vectors"].shape[2:])
        if state is None:
            self._runs, self._taken = loop.start(self._agents, env, jnp.array(seeds, jnp.uint32), bins), 0
        else:
            saved = trees.restore(state, like)
            self._bins.restore(saved["collected"])
            self._runs, self._taken = jax.tree.map(_copied, saved["runs"]), int(saved["taken"])

    @property
    def steps(self) -> np.ndarray:
        """[seed]: steps taken."""
        return np.asarray(self._runs.steps)

    @property
    def episodes(self) -> np.ndarray:
        """[seed]: episodes finished."""
        return np.asarray(self._runs.episode)

    @property
    def faults(self) -> np.ndarray:
        """[seed]: steps at which something was not finite."""
        return np.asarray(self._runs.faults)

    @property
    def taken(self) -> int:
        """Steps of every run, those after its end included."""
        return self._taken

    @property
    def over(self) -> bool:
        """Whether every run has its episodes or its steps.

        Only after a whole number of the engine's calls: what comes after a run's end is in its state too, and that must
        not depend on how the records were divided among calls.
        """
        ended = bool((self.episodes >= self._limits.episodes).all()) or self._taken >= self._limits.max_steps
        return ended and self._left() == self._whole

    def _left(self) -> int:
        """Records until a whole number of the engine's calls."""
        return self._whole - self._taken // loop.RECORD % self._whole

    def advance(self) -> Sequence[dict[str, Any]]:
        """One compiled call; gives the bins that it completed."""
        begun, count = time.perf_counter(), min(self._records, self._left())
        self._runs, records = loop.advance(self._engine, self._agents, self._env, self._runs, self._limits, count)
        self._taken += count * loop.RECORD
        if count == self._records < self._most and time.perf_counter() - begun < SECONDS / 2:
            self._records = min(2 * count, self._most)
        return self._bins.add(self._seeds, jax.device_get(records), np.asarray(self._runs.sums))

    def recent_return(self) -> float:
        """Mean over runs of their last complete bin; NaN before the first."""
        return self._bins.recent_return()

    def snapshot(self) -> dict[str, np.ndarray]:
        """All that is needed to continue, by name."""
        return trees.flatten({"runs": self._runs, "collected": self._bins.arrays(), "taken": np.int64(self._taken)})

    def result(self) -> Result:
        """What came of it."""
        bins = self._bins
        return Result(
            seeds=self._seeds,
            episodes=bins.bin_size * np.arange(1, bins.bins + 1),
            returns=bins.returns,
            lengths=bins.lengths,
            write_weights=bins.write_weights,
            query_vectors=bins.query_vectors,
            steps=self.steps,
            finished=self.episodes >= self._limits.episodes,
            agent_states=self._runs.agent,
        )


def _copied(leaf: Any) -> Array:
    """A copy that compiled calls may write over; ``jnp.array`` would compile a program for each shape."""
    return jax.device_put(leaf.copy()) if isinstance(leaf, np.ndarray) else jnp.array(leaf)
