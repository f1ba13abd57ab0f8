"""Runs of any agent in any JAX environment on a GPU: they and their metrics stay there until somebody asks."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from recollect.agents.base import Agent
from recollect.engines import compiled_gpu, loop
from recollect.envs.base import Environment
from recollect.store import trees
from recollect.training import pytree_group
from recollect.training.bins import Bins, Completed
from recollect.training.group import Group, Limits
from recollect.training.reports import Result


class DeviceGroup(Group):
    """Runs as ``recollect.engines.compiled_gpu`` has them; their snapshots are those of ``PytreeGroup``."""

    def __init__(
        self,
        agent: Agent,
        env: Environment,
        seeds: tuple[int, ...],
        limits: Limits,
        records_per_call: int | None,
        state: Mapping[str, np.ndarray] | None,
        device: Any = None,
    ):
        self._seeds, self._limits = seeds, limits
        self._records = records_per_call or loop.RECORDS_PER_CALL["compiled-gpu"]
        bins = limits.episodes // limits.bin_size
        like = pytree_group.state_like(agent, env, len(seeds), bins)
        self._bins = Bins(len(seeds), bins, limits.bin_size, like["collected"]["query_vectors"].shape[2:])
        self._runs = compiled_gpu.Runs(loop.rows(agent, len(seeds)), env, limits, device)
        self._taken = 0
        if state is None:
            self._runs.begin(seeds)
        else:
            saved = trees.restore(state, like)
            self._bins.restore(saved["collected"])
            self._runs.load(saved["runs"], self._bins.complete)
            self._taken = int(saved["taken"])
        self._pulled = self._bins.complete
        self._steps, self._episodes, self._faults = self._runs.counters()

    @property
    def steps(self) -> np.ndarray:
        """[seed]: steps taken."""
        return self._steps

    @property
    def episodes(self) -> np.ndarray:
        """[seed]: episodes finished."""
        return self._episodes

    @property
    def faults(self) -> np.ndarray:
        """[seed]: steps at which something was not finite."""
        return self._faults

    @property
    def taken(self) -> int:
        """Steps of every run, those after its end included."""
        return self._taken

    @property
    def over(self) -> bool:
        """Whether every run has its episodes or its steps."""
        return bool((self._episodes >= self._limits.episodes).all()) or self._taken >= self._limits.max_steps

    def advance(self) -> Sequence[dict[str, Any]]:
        """One call of the GPU; gives the bins that it completed."""
        records = min(self._records, -(-(self._limits.max_steps - self._taken) // loop.RECORD))
        self._runs.advance(records)
        self._taken += records * loop.RECORD
        self._steps, self._episodes, self._faults = self._runs.counters()
        complete = np.minimum(self._episodes.astype(np.int64) // self._limits.bin_size, self._bins.bins)
        some = bool((complete > self._bins.complete).any())
        runs, which = self._bins.extend(complete, self._runs.sums()) if some else (np.zeros(0, np.int64),) * 2
        return Completed(self._bins, self._seeds, runs, which, self._pull)

    def _pull(self) -> None:
        """Write weights and queries of the bins that were completed since the last time."""
        complete = self._bins.complete
        if not (complete > self._pulled).any():
            return
        kept, at = self._runs.collected(), np.arange(self._bins.bins)
        new = (at >= self._pulled[:, None]) & (at < complete[:, None])
        self._bins.write_weights[new] = kept.write_weights[new]
        self._bins.query_vectors[new] = kept.query_vectors[new]
        self._pulled = complete

    def recent_return(self) -> float:
        """Mean over runs of their last complete bin; NaN before the first."""
        return self._bins.recent_return()

    def snapshot(self) -> dict[str, np.ndarray]:
        """All that is needed to continue, by name."""
        self._pull()
        runs = self._runs.runs()
        return trees.flatten({"runs": runs, "collected": self._bins.arrays(), "taken": np.int64(self._taken)})

    def result(self) -> Result:
        """What came of it."""
        self._pull()
        bins = self._bins
        return Result(
            seeds=self._seeds,
            episodes=bins.bin_size * np.arange(1, bins.bins + 1),
            returns=bins.returns,
            lengths=bins.lengths,
            write_weights=bins.write_weights,
            query_vectors=bins.query_vectors,
            steps=self._steps,
            finished=self._episodes >= self._limits.episodes,
            agent_states=self._runs.agent_states(),
        )
