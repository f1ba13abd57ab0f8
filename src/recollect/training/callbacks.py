"""What can be done while a learner learns: a callback is called with the learner and each new row of its metrics.

Any function will do: ``learner.learn(10_000, callbacks=[lambda learner, row: row["return"] > 0.9])``; learning stops
early when one returns True. What one puts into the row becomes a column of the metrics; the columns that are measured
may be replaced by other numbers, and not taken out. Where independent agents learn side by side (``learners="each"``),
there is a row per agent, told apart by its ``seed``.

Those below are the ones people ask for. They can be described in a run folder and made again from it, and ``recall``
tells them of the rows that a run had before it was resumed. One that has ``check`` is asked before anything is learned.
"""

import contextlib
import inspect
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from recollect.errors import FileError, printable
from recollect.store import checkpoints
from recollect.store.provenance import native, plain
from recollect.store.run_reading import SNAPSHOTS
from recollect.training import arguments


class Evaluate:
    """Evaluate every so many steps on episodes of their own; the mean return joins the row as ``evaluation``.

    Callbacks are called at rows of metrics alone: an evaluation comes with the first row at which it is due, and so
    never more often than ``log_every`` of ``learn``.

    Args:
        every: steps between two evaluations.
        episodes: of each.

    ``results`` has (steps, mean return) of each evaluation, ``by_seed`` the same for each of several agents.
    """

    def __init__(self, every: int, episodes: int = 20):
        self.every, self.episodes = arguments.count("every", every), arguments.count("episodes", episodes)
        self.results: list[tuple[int, float]] = []
        self.by_seed: dict[int, list[tuple[int, float]]] = {}
        self._done: dict[int, int] = {}

    def check(self, learner: Any) -> None:
        """Refuse a learner that has no environment to evaluate in besides the one it learns in."""
        learner.check_can_play()

    def _is_due(self, row: dict[str, Any]) -> bool:
        before, now = self._done.get(row["seed"], 0), row["steps"] // self.every
        self._done[row["seed"]] = max(before, now)
        return now > before

    def _note(self, row: dict[str, Any]) -> None:
        found = row["steps"], row["evaluation"]
        self.results.append(found)
        self.by_seed.setdefault(row["seed"], []).append(found)

    def recall(self, row: dict[str, Any]) -> None:
        """Take in an earlier row."""
        self._is_due(row)
        if not math.isnan(row.get("evaluation", math.nan)):
            self._note(row)

    def __call__(self, learner: Any, row: dict[str, Any]) -> None:
        """Evaluate the agent whose row it is, if it is time."""
        if self._is_due(row):
            row["evaluation"] = learner.evaluate(self.episodes, copy=learner.seeds.index(row["seed"])).mean
            self._note(row)


class EarlyStop:
    """Stop once the mean return (or any other column) has reached a threshold so many rows in succession.

    Where several agents learn independently, each has to have done so in its own rows.
    """

    def __init__(self, threshold: float, patience: int = 1, column: str = "return"):
        self.threshold, self.column = float(native(threshold)), column
        if math.isnan(self.threshold):
            raise ValueError(f"threshold={threshold!r} must be a number: no return reaches one that is none")
        self.patience = arguments.count("patience", patience)
        self.good: dict[int, int] = {}

    def recall(self, row: dict[str, Any]) -> None:
        """Take in an earlier row."""
        value = native(row.get(self.column))
        if value is not None and not isinstance(value, (int, float)):
            raise TypeError(f"EarlyStop: the column {self.column!r} holds {value!r:.100}, not a number")
        if value is not None and not math.isnan(value):  # rows in which nothing was measured are passed over
            self.good[row["seed"]] = self.good.get(row["seed"], 0) + 1 if value >= self.threshold else 0

    def __call__(self, learner: Any, row: dict[str, Any]) -> bool:
        """Count good rows."""
        self.recall(row)
        return all(self.good.get(seed, 0) >= self.patience for seed in learner.seeds)


class Checkpoint:
    """Save the learner every so many steps, in its run folder unless another is named.

    That is with the first row of metrics at which it is due, and so never more often than ``log_every`` of ``learn``.
    """

    def __init__(self, every: int, folder: Path | str | None = None):
        self.every, self.done = arguments.count("every", every), 0
        self.folder = None if folder is None else Path(folder).absolute()

    def recall(self, row: dict[str, Any]) -> None:
        """Take in an earlier row."""
        self.done = max(self.done, row["steps"] // self.every)

    def __call__(self, learner: Any, row: dict[str, Any]) -> None:
        """Save, if it is time."""
        if row["steps"] // self.every > self.done:
            self.done = row["steps"] // self.every
            learner.save(self.folder if self.folder is not None else learner.folder)


class Record:
    """Keep the learner as it was at up to ``snapshots`` moments of training, most of them early, for looking back.

    ``recollect view`` plays the same episode with each. They are checkpoints in the run folder's ``snapshots/``, taken
    where rows of metrics are; when training continues beyond its goal, every other one makes room.
    """

    def __init__(self, snapshots: int = 12):
        if snapshots < 2:
            raise ValueError(f"snapshots={snapshots} must be at least 2: the first of a run and the last")
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


def checked(callbacks: Any) -> list[Any]:
    """The callbacks as a list; ``TypeError`` for what cannot be called with a learner and a row."""
    if not isinstance(callbacks, Iterable):
        raise TypeError(f"callbacks={callbacks!r:.200} must be a list of callbacks: callbacks=[{callbacks!r:.200}]")
    found = list(callbacks)
    for callback in found:
        if isinstance(callback, type) and callback in _KNOWN.values():
            raise TypeError(
                f"callbacks: {callback.__name__} is a class: give an object of it, {callback.__name__}(...)"
            )
        if not callable(callback):
            raise TypeError(f"callbacks: {callback!r:.200} is no function of the learner and a row of metrics")
    return found


def describe(callbacks: Iterable[Any]) -> list[dict[str, Any]]:
    """Callbacks as JSON can hold them; those that are not of this module by their names alone.

    A folder of the caller's is not named, as nothing in a run folder may lead out of it: ``outside`` says that there
    was one.

    >>> describe([Evaluate(every=100)])
    [{'class': 'Evaluate', 'options': {'every': 100, 'episodes': 20}}]
    """
    found: list[dict[str, Any]] = []
    for callback in callbacks:
        if type(callback) not in _KNOWN.values():
            found.append({"name": getattr(callback, "__qualname__", type(callback).__qualname__)})
            continue
        options = {option: getattr(callback, option) for option in inspect.signature(type(callback)).parameters}
        outside = {"outside": ["folder"]} if options.pop("folder", None) is not None else {}
        found.append({"class": type(callback).__name__, "options": plain(options), **outside})
    return found


def restore(described: Any, folder: Path | str | None = None) -> list[Any]:
    """The callbacks that ``describe`` described; ``FileError`` for what cannot be made from a description.

    ``folder``: where those save that had a folder of their own.
    """
    try:
        if own := [entry["name"] for entry in described if "name" in entry]:
            raise FileError(f"callbacks of your own ({printable(', '.join(map(str, own)))}) are not in the folder")
        return [_restore_one(entry, folder) for entry in described]
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise FileError(f"not callbacks that this release knows: {type(error).__name__}: {printable(error)}") from error


def _restore_one(entry: dict[str, Any], folder: Path | str | None) -> Any:
    options = dict(entry["options"])
    named = options.pop("folder", None)  # it leads out of the run folder, and is not believed where it is written down
    if named is not None or entry.get("outside"):
        if folder is None:
            said = "" if named is None else f" ({printable(named, 200)})"
            raise FileError(
                f"its {entry['class']} callback saved to a folder outside of the run{said}: nothing is written there "
                "because a file says so; --checkpoint-folder DIR (in Python checkpoint_folder=) says where it saves"
            )
        options["folder"] = folder
    return _KNOWN[entry["class"]](**options)
