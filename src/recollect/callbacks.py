"""What can be done while a learner learns: a callback is called with the learner and each new row of its metrics.

Any function will do: ``learner.learn(10_000, callbacks=[lambda learner, row: row["return"] > 0.9])``; learning stops
early when one returns True. Those below are the ones people ask for.
"""

import math
from pathlib import Path
from typing import Any


class Evaluate:
    """Evaluate every so many steps on episodes of their own; the mean return joins the row as ``evaluation``.

    Args:
        every: steps between two evaluations.
        episodes: of each.
    """

    def __init__(self, every: int, episodes: int = 20):
        if every < 1 or episodes < 1:
            raise ValueError(f"every={every} and episodes={episodes} must be at least 1")
        self.every, self.episodes, self.done = every, episodes, 0
        self.results: list[tuple[int, float]] = []

    def __call__(self, learner: Any, row: dict[str, Any]) -> None:
        """Evaluate, if it is time."""
        if row["steps"] // self.every > self.done:
            self.done = row["steps"] // self.every
            row["evaluation"] = learner.evaluate(self.episodes).mean
            self.results.append((row["steps"], row["evaluation"]))


class EarlyStop:
    """Stop once the mean return (or any other column) has reached a threshold so many rows in succession."""

    def __init__(self, threshold: float, patience: int = 1, column: str = "return"):
        if patience < 1:
            raise ValueError(f"patience={patience} must be at least 1")
        self.threshold, self.patience, self.column, self.good = threshold, patience, column, 0

    def __call__(self, learner: Any, row: dict[str, Any]) -> bool:
        """Count good rows; rows in which nothing was measured are passed over."""
        value = row.get(self.column, math.nan)
        if math.isnan(value):
            return False
        self.good = self.good + 1 if value >= self.threshold else 0
        return self.good >= self.patience


class Checkpoint:
    """Save the learner every so many steps, in its run folder unless another is named."""

    def __init__(self, every: int, folder: Path | str | None = None):
        if every < 1:
            raise ValueError(f"every={every} must be at least 1")
        self.every, self.folder, self.done = every, folder, 0

    def __call__(self, learner: Any, row: dict[str, Any]) -> None:
        """Save, if it is time."""
        if row["steps"] // self.every > self.done:
            self.done = row["steps"] // self.every
            learner.save(self.folder if self.folder is not None else learner.folder / "checkpoints" / "learner")
