"""Runs of one agent, a seed each, under way on an engine: what ``train_iter`` needs of it."""

import abc
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from recollect.agents.base import Agent
from recollect.engines import loop
from recollect.envs.base import Environment
from recollect.store import trees
from recollect.training.bins import Bins
from recollect.training.reports import Result


class Limits(NamedTuple):
    """How far runs go."""

    episodes: int
    bin_size: int  # episodes
    max_episode_length: int
    max_steps: int


def state_like(agent: Agent, env: Environment, seeds: int, bins: int) -> dict[str, Any]:
    """The form of the snapshots, found without computing or compiling anything."""
    run, record = loop.forms(jax.tree.structure(agent), env)
    run = run._replace(sums=jax.ShapeDtypeStruct((bins, 3), jnp.float32))
    runs = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((seeds, *leaf.shape), leaf.dtype), run)
    collected = Bins.like(seeds, bins, record.query_vectors.shape)
    return {"runs": runs, "collected": collected, "taken": np.int64(0)}


class Group(abc.ABC):
    """Runs under way.

    Args:
        engine: the one that takes them further.
        agent: of all of them; a traced hyperparameter may be one number or one per seed.
        env: likewise.
        seeds: one per run.
        limits: how far they go.
        records_per_call: how much one call of the engine does at most; None: what suits it.
        state: a snapshot to continue from, of any engine.

    Attributes:
        steps: [seed], taken.
        episodes: [seed], finished.
        faults: [seed], 0, or the first step with a reward or observation that is not finite; minus it for an update.
    """

    steps: np.ndarray
    episodes: np.ndarray
    faults: np.ndarray

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
        self._whole = max(self._most, loop.WHOLE)
        bins = limits.episodes // limits.bin_size
        like = state_like(agent, env, len(seeds), bins)
        self._bins = Bins(len(seeds), bins, limits.bin_size, like["collected"]["query_vectors"].shape[2:])
        self.taken, runs = 0, None  # steps that compiled calls have made of the longest run, also after its end
        if state is not None:
            saved = trees.restore(state, like)
            self._bins.restore(saved["collected"])
            self.taken, runs = int(saved["taken"]), saved["runs"]
        self._begin(agent, runs)

    @abc.abstractmethod
    def _begin(self, agent: Agent, saved: loop.Run | None) -> None:
        """Make the runs where the engine has them: at their start, or as they were saved."""

    @property
    @abc.abstractmethod
    def agent_states(self) -> Any:
        """The agents' states, with a leading axis over seeds."""

    @abc.abstractmethod
    def advance(self) -> Sequence[dict[str, Any]]:
        """One compiled call; gives the bins that it completed, as ``Progress.new_bins`` has them."""

    @abc.abstractmethod
    def _all_runs(self) -> loop.Run:
        """The runs, where JAX can read them."""

    def _measured(self) -> Bins:
        """All that was measured so far."""
        return self._bins

    @property
    def over(self) -> bool:
        """Whether every run has its episodes or its steps.

        Only after a whole number of ``loop.WHOLE`` records: what comes after a run's end is in its state too, and that
        must not depend on how the records were divided among calls, nor on the engine.
        """
        ended = bool((self.episodes >= self._limits.episodes).all()) or self.taken >= self._limits.max_steps
        return ended and self._left() == self._whole

    def _left(self) -> int:
        """Records until the runs may end."""
        return self._whole - self.taken // loop.RECORD % self._whole

    def recent_return(self) -> float:
        """Mean over runs of their last complete bin; NaN before the first."""
        return self._bins.recent_return()

    def snapshot(self) -> dict[str, np.ndarray]:
        """All that is needed to continue, by name."""
        collected = self._measured().arrays()
        return trees.flatten({"runs": self._all_runs(), "collected": collected, "taken": np.int64(self.taken)})

    def result(self) -> Result:
        """What came of it."""
        bins = self._measured()
        return Result(
            seeds=self._seeds,
            episodes=bins.bin_size * np.arange(1, bins.bins + 1),
            returns=bins.returns,
            lengths=bins.lengths,
            write_weights=bins.write_weights,
            query_vectors=bins.query_vectors,
            steps=self.steps,
            finished=self.episodes >= self._limits.episodes,
            agent_states=self.agent_states,
        )
