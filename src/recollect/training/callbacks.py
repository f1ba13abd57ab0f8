"""What can be done while a learner learns: a callback is called with the learner and each new row of its metrics.

Any function will do: ``learner.learn(10_000, callbacks=[lambda learner, row: row["return"] > 0.9])``; learning stops
early when one returns True. Those below are the ones people ask for. They can be described in a run folder and made
again from it, and ``recall`` tells them of the rows that a run had before it was resumed.
"""

import contextlib
import inspect
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from recollect.errors import FileError
from recollect.store import checkpoints
from recollect.store.run_folders import SNAPSHOTS


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

    def recall(self, row: dict[str, Any]) -> None:
        """Take in a row of before."""
        self.done = max(self.done, row["steps"] // self.every)
        if "evaluation" in row:
            self.results.append((row["steps"], row["evaluation"]))

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

    def recall(self, row: dict[str, Any]) -> None:
        """Take in a row of before."""
        self(None, row)

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

    def recall(self, row: dict[str, Any]) -> None:
        """Take in a row of before."""
        self.done = max(self.done, row["steps"] // self.every)

    def __call__(self, learner: Any, row: dict[str, Any]) -> None:
        """Save, if it is time."""
        if row["steps"] // self.every > self.done:
            self.done = row["steps"] // self.every
            learner.save(self.folder if self.folder is not None else learner.folder / "checkpoints" / "learner")


class Record:
    """Keep the learner as it was at up to ``snapshots`` moments of training, most of them early, for looking back.

    ``recollect view`` plays the same episode with each. They are checkpoints in the run folder's ``snapshots/``, taken
    where rows of metrics are; when training goes on beyond its goal, every other one makes room.
    """

    def __init__(self, snapshots: int = 12):
        if snapshots < 2:
            raise ValueError(f"snapshots={snapshots} must be at least 2")
        self.snapshots, self._last = snapshots, -2  # steps at the last one; −1 where there is none, −2 if not known

    def due(self, goal: int, last: int) -> float:
        """The next moment after ``last`` steps: their squares are spread evenly, as most is learned early."""
        moments = (goal * ((k + 1) / self.snapshots) ** 2 for k in range(self.snapshots))
        return next((moment for moment in moments if moment > last), math.inf)

    def __call__(self, learner: Any, row: dict[str, Any]) -> None:
        """Save, if it is time; rows of several agents come at the same step and save once."""
        folder = learner.folder / SNAPSHOTS
        if self._last < -1:
            self._last = _steps_of_newest(folder)
        if row["steps"] <= self._last or row["steps"] < self.due(learner.goal, self._last):
            return
        kept = len(checkpoints.listing(folder)) + 1
        learner.save(folder, keep=kept)
        self._last = row["steps"]
        if kept > self.snapshots:
            for path in checkpoints.listing(folder)[1:-1:2]:
                checkpoints.remove(path)


def _steps_of_newest(folder: Path) -> int:
    for path in reversed(checkpoints.listing(folder)):
        # What is damaged is passed over here; who reads it later is told.
        with contextlib.suppress(FileError, KeyError, ValueError, TypeError):
            return int(checkpoints.verify(path).meta["steps"])
    return -1


_KNOWN = {cls.__name__: cls for cls in (Evaluate, EarlyStop, Checkpoint, Record)}


def describe(callbacks: Iterable[Any]) -> list[dict[str, Any]]:
    """Callbacks as JSON can hold them; those that are not of this module by their names alone.

    >>> describe([Evaluate(every=100)])
    [{'class': 'Evaluate', 'options': {'every': 100, 'episodes': 20}}]
    """
    found = []
    for callback in callbacks:
        name = getattr(callback, "__qualname__", type(callback).__qualname__)
        if type(callback) in _KNOWN.values():
            options = {option: getattr(callback, option) for option in inspect.signature(type(callback)).parameters}
            plain = {k: str(v) if isinstance(v, Path) else v for k, v in options.items()}
            found.append({"class": type(callback).__name__, "options": plain})
        else:
            found.append({"name": name})
    return found


def restore(described: Any) -> list[Any]:
    """The callbacks that ``describe`` described; ``FileError`` for what cannot be made from a description."""
    try:
        if own := [entry["name"] for entry in described if "name" in entry]:
            raise FileError(f"callbacks of your own ({', '.join(map(str, own))}) are not in the folder")
        return [_KNOWN[entry["class"]](**entry["options"]) for entry in described]
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise FileError(f"not callbacks that this release knows: {type(error).__name__}: {error}") from error
