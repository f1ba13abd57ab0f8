"""How far the runs of a plan have come: episodes, steps, pace and time left, for whoever watches."""

import math
import time
from typing import Any

import numpy as np

from recollect.studies.plan import Job
from recollect.training.reports import Progress, Result


class Standing:
    """How far one agent has come."""

    def __init__(self, job: Job, episodes: int):
        self.job, self.wanted = job, episodes
        self.episodes = [np.zeros(len(group)) for group in job.groups]
        self.steps = [0] * len(job.groups)  # over the group's seeds
        self.shares = [0.0] * len(job.groups)  # of the way to the end or to the step limit, whichever is nearer
        self.recent_return = math.nan
        self.results: dict[int, Result] = {}
        # (time, steps, share) at the first report, which is after compilation, and at the newest
        self._first = self._newest = (math.nan, 0, 0.0)

    def update(self, group: int, progress: Progress) -> None:
        """Take in what a compiled call reported."""
        self.episodes[group], self.steps[group] = progress.episodes, progress.total_steps
        share = max(float(progress.episodes.min()) / self.wanted, progress.steps / self.job.max_steps)
        self.shares[group] = min(share, 1.0)
        self.recent_return = progress.recent_return
        self._newest = time.monotonic(), sum(self.steps), self.share
        if math.isnan(self._first[0]):
            self._first = self._newest

    def finish(self, group: int, result: Result) -> None:
        """Take in what came of a group."""
        self.results[group], self.shares[group] = result, 1.0
        self.episodes[group] = np.where(result.finished, self.wanted, self.episodes[group])

    @property
    def share(self) -> float:
        """Share of the work done."""
        return sum(self.shares) / len(self.shares)

    @property
    def mean_episodes(self) -> float:
        """Episodes done, mean over all seeds."""
        return float(np.concatenate(self.episodes).mean())

    def pace(self) -> tuple[float, float]:
        """Steps per second over all seeds, and seconds left; NaN while nothing can be said yet."""
        elapsed, steps, share = (new - old for new, old in zip(self._newest, self._first, strict=True))
        if not share > 0:
            return math.nan, math.nan
        return steps / elapsed, elapsed / share * (1 - self.share)

    def details(self) -> dict[str, Any]:
        """Steps and whether all episodes were done, a seed; null for seeds that were still under way or not begun."""
        steps: dict[int, int | None] = dict.fromkeys(self.job.seeds)
        finished: dict[int, bool | None] = dict.fromkeys(self.job.seeds)
        for result in self.results.values():
            steps.update(zip(result.seeds, map(int, result.steps), strict=True))
            finished.update(zip(result.seeds, map(bool, result.finished), strict=True))
        return {"seeds": list(self.job.seeds), "steps": list(steps.values()), "finished": list(finished.values())}
