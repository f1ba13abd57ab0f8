"""Runs of any agent in any JAX environment on a GPU: they and their metrics stay there until somebody asks."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from recollect.agents.base import Agent
from recollect.engines import compiled_gpu, loop
from recollect.training.bins import Bins, Completed
from recollect.training.group import Group


class DeviceGroup(Group):
    """Runs as ``recollect.engines.compiled_gpu`` has them."""

    device: Any = None  # the one that JAX names first

    def _begin(self, agent: Agent, saved: loop.Run | None) -> None:
        self._runs = compiled_gpu.Runs(loop.rows(agent, len(self._seeds)), self._env, self._limits, self.device)
        if saved is None:
            self._runs.begin(self._seeds)
        else:
            self._runs.load(saved, self._bins.complete)
        self._pulled = self._bins.complete
        self.steps, self.episodes, self.faults = self._runs.counters()

    @property
    def agent_states(self) -> Any:
        """The agents' states, on the host."""
        return self._runs.agent_states()

    def advance(self) -> Sequence[dict[str, Any]]:
        """One call of the GPU; gives the bins that it completed."""
        records = min(self._most, self._left())
        self._runs.advance(records)
        self.taken += records * loop.RECORD
        self.steps, self.episodes, self.faults = self._runs.counters()
        complete = np.minimum(self.episodes.astype(np.int64) // self._limits.bin_size, self._bins.bins)
        some = bool((complete > self._bins.complete).any())
        runs, which = self._bins.extend(complete, self._runs.sums()) if some else (np.zeros(0, np.int64),) * 2
        return Completed(self._bins, self._seeds, runs, which, self._pull)

    def _all_runs(self) -> loop.Run:
        return self._runs.runs()

    def _measured(self) -> Bins:
        self._pull()
        return self._bins

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
