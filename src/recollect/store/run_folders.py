"""The run folder: what was asked, what came of it, and how to go on; readable without recollect.

``config.json``: the experiment, hyperparameters, seeds, command and versions. ``metrics.jsonl``: one line a completed
bin of episodes, appended as it comes. ``status.json``: "running", "finished", "interrupted" or "failed", and the steps
each seed took. ``log.jsonl``: what happened to the run and when: begun, resumed, went back a checkpoint, failed.
``checkpoints/GROUP/NUMBER/``: see ``recollect.store.checkpoints``; a group is what trains in one loop.
``lock.json``: there while a process is at work, see ``recollect.store.lock``. All of it is strict JSON: NaN is null,
infinities are the words "inf" and "-inf". No file holds the folder's own path, so that it can be moved.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recollect.errors import FileError, RecollectError
from recollect.store import checkpoints, files
from recollect.store.checkpoints import Checkpoint
from recollect.store.lock import Lock, holder
from recollect.store.provenance import BITS_DEPEND_ON, command_line, differences, plain, versions

MAY_CHANGE = ("checkpoints",)
"""The fields of a config that need not be the same when a run is resumed; no result depends on them."""

LARGEST_METRICS = 2**30  # bytes
LARGEST_CURVES = 10**8  # numbers

__all__ = [
    "RunFolder",
    "check_free",
    "command_line",
    "read",
    "refuse_changes",
    "saved",
    "summary",
    "verify",
    "versions",
    "write_json",
]


SNAPSHOTS = "snapshots"
"""The folder beside a run's checkpoints for those that are kept to look back at."""


def write_json(path: Path, content: Any) -> None:
    """Write a file whole or not at all."""
    files.replace(path, (json.dumps(plain(content), indent=1, allow_nan=False) + "\n").encode())


def check_free(path: Path) -> None:
    """Refuse a place where no run folder can be made, without making anything."""
    if path.exists() or path.is_symlink():
        raise RecollectError(f"{path} exists already: choose another --out, or remove it")
    parent = next(p for p in path.absolute().parents if p.exists())
    if not parent.is_dir():
        raise RecollectError(f"cannot create the run folder {path}: {parent} is not a folder")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise RecollectError(f"cannot create the run folder {path}: no permission to write in {parent}")


class RunFolder:
    """A run folder that is being written, by this process alone."""

    def __init__(self, path: Path, config: dict[str, Any], keep: int = checkpoints.KEEP):
        """Create the folder; refuses one that exists, before anything is written."""
        check_free(path)
        try:
            path.mkdir(parents=True)
        except OSError as error:
            raise RecollectError(f"cannot create the run folder {path}: {error.strerror}") from error
        self._enter(path, Lock(path), keep)
        config = {**config, "command": command_line(), "versions": self.versions}
        write_json(path / "config.json", config)
        self.config = plain(config)
        files.replace(path / "metrics.jsonl", b"")
        self.set_status("running")
        self.log("begun", command=config["command"])

    def _enter(self, path: Path, lock: Lock, keep: int) -> None:
        self.path, self.lock, self.keep, self.exact, self.versions = path, lock, keep, True, versions()
        self.config: dict[str, Any] = {}
        self._written: dict[str, Any] = {}  # by group: how many lines, and the SHA-256 of them

    @classmethod
    def reopen(cls, path: Path, *, break_lock: bool = False, keep: int = checkpoints.KEEP) -> "RunFolder":
        """Take hold of the folder of a run that has ended or died, to go on with it; changes nothing but the lock."""
        _require_files(path)
        config = files.read_json(path / "config.json")
        folder = cls.__new__(cls)
        folder._enter(path, Lock(path, break_lock=break_lock), keep)
        folder.config = config
        return folder

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let others in."""
        self.lock.release()

    def append(self, agent: str, lines: list[dict], group: str = "") -> None:
        """Append completed bins of the agent called ``agent``."""
        if lines:
            rows = ({"agent": agent, **plain(line)} for line in lines)
            content = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows).encode()
            self._append("metrics.jsonl", content)
            count, sums = self._written.setdefault(group, [0, hashlib.sha256()])
            sums.update(content)
            self._written[group] = [count + len(lines), sums]

    def log(self, event: str, **details: Any) -> None:
        """Append to the log."""
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line = json.dumps({"time": when, "event": event, **plain(details)}, ensure_ascii=False, allow_nan=False)
        self._append("log.jsonl", line.encode() + b"\n")

    def _append(self, name: str, content: bytes) -> None:
        try:
            with open(self.path / name, "ab") as out:
                out.write(content)
        except OSError as error:
            raise RecollectError(f"cannot write {self.path / name}: {error.strerror}") from error

    def set_status(self, status: str, **details: Any) -> None:
        """Replace the status."""
        write_json(self.path / "status.json", {"status": status, "exact": self.exact, **details})

    def wall_seconds(self) -> float:
        """How long the run has taken so far, by its status; 0 where that does not say."""
        try:
            found = files.read_json(self.path / "status.json").get("wall_seconds")
        except FileError:
            return 0.0
        return float(found) if isinstance(found, (int, float)) and 0 <= found < 1e12 else 0.0

    # -- checkpoints

    def save(
        self, group: str, agent: str, seeds: Sequence[int], arrays: Mapping[str, np.ndarray], finished: bool = False
    ) -> Path:
        """Save the state of the agent's runs of these seeds, and where their metrics end, which are flushed first."""
        metrics = self.metrics_so_far(group, agent, seeds)
        config = {name: value for name, value in self.config.items() if name != "versions"}
        meta = {"finished": finished, "exact": self.exact, "metrics": metrics}
        meta |= {"versions": self.versions, "config": config}
        return checkpoints.save(self.path / "checkpoints" / group, arrays, meta, self.keep)

    def metrics_so_far(self, group: str, agent: str, seeds: Sequence[int]) -> dict[str, Any]:
        """Where a group's metrics end, for its checkpoint; they are flushed to disk first."""
        count, sums = self._written.get(group, (0, hashlib.sha256()))
        try:
            with open(self.path / "metrics.jsonl", "ab") as out:
                os.fsync(out.fileno())
        except OSError as error:
            raise RecollectError(f"cannot write {self.path / 'metrics.jsonl'}: {error.strerror}") from error
        return {"agent": agent, "seeds": list(seeds), "lines": count, "sha256": sums.hexdigest()}

    def take(self) -> None:
        """Lock the folder again after ``close``."""
        self.lock = Lock(self.path)

    def load(self, group: str, like: checkpoints.Shapes, *, fallback: bool = False) -> Checkpoint | None:
        """The newest state of a group, or None where none was ever saved."""
        place = self.path / "checkpoints" / group
        if place.is_symlink() or place.parent.is_symlink():
            raise FileError(f"{place} cannot be read: it is a link")
        return checkpoints.load(place, like=like, fallback=fallback) if checkpoints.listing(place) else None

    def refuse_other_versions(self, found: Sequence[Checkpoint], allow_inexact: bool) -> list[str]:
        """What differs from the versions that the checkpoints were made with: refused, unless that is asked for.

        Those of finished groups do not count, as nothing goes on from them.
        """
        now, wrong = self.versions, []
        going_on = [c.meta.get("versions") for c in found if c.meta.get("finished") is not True]
        for was in going_on if found else [self.config.get("versions")]:
            was = was if isinstance(was, dict) else {}
            wrong += differences(*({name: v.get(name) for name in BITS_DEPEND_ON} for v in (was, now)))
        wrong = list(dict.fromkeys(wrong))
        if wrong and not allow_inexact:
            raise RecollectError(
                f"{self.path} would not go on bit for bit: {'; '.join(wrong)}; "
                "--allow-inexact goes on nevertheless and marks the run as not exact"
            )
        self.exact = not wrong and all(c.meta.get("exact") is True for c in found)
        return wrong

    def log_resumed(self, found: Mapping[str, Checkpoint], inexact: Sequence[str]) -> None:
        """Log that the run goes on: from which checkpoints, and what was not as it should be."""
        if self.lock.predecessor:
            self.log("took over the lock", of=self.lock.predecessor)
        for name, checkpoint in found.items():
            for reason in checkpoint.passed_over:
                self.log("went back a checkpoint", group=name, to=checkpoint.path.name, reason=reason)
        if inexact:
            self.log("goes on, not bit for bit", differences=list(inexact))
        self.log("resumed", command=command_line(), checkpoints={name: c.path.name for name, c in found.items()})

    def cut_metrics(self, found: Mapping[str, Checkpoint]) -> None:
        """Bring ``metrics.jsonl`` back to where the checkpoints are; what came after them will come again."""
        path = self.path / "metrics.jsonl"
        content = files.read(path, LARGEST_METRICS)
        kept, self._written = _lines_before(path, content, found)
        if kept != content:
            files.replace(path, kept)


def _lines_before(path: Path, content: bytes, found: Mapping[str, Checkpoint]) -> tuple[bytes, dict[str, Any]]:
    """The lines that were there when the checkpoints were made, and how many and with what sum for each group.

    Lines that are missing or are not what they were are a ``FileError``.
    """
    wanted, owner = {}, {}
    for name, checkpoint in found.items():
        agent, seeds, lines, sum_ = _metrics_of(checkpoint)
        wanted[name] = lines, sum_
        owner |= {(agent, seed): name for seed in seeds}
    kept: list[bytes] = []
    written: dict[str, Any] = {name: [0, hashlib.sha256()] for name in found}
    for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(keepends=True), 1):
        try:
            row = json.loads(line)
            name = owner.get((row["agent"], row["seed"]))
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise FileError(f"{path} is damaged: line {number} is not a line of metrics") from error
        if name is not None and written[name][0] < wanted[name][0]:
            kept.append(line)
            written[name][0] += 1
            written[name][1].update(line)
    for name, (lines, sum_) in wanted.items():
        if written[name][0] < lines:
            raise FileError(f"{path} is truncated: {written[name][0]} lines of {name}, its checkpoint had {lines}")
        if written[name][1].hexdigest() != sum_:
            raise FileError(f"{path} is damaged: its lines of {name} are not those that its checkpoint had")
    return b"".join(kept), written


def _metrics_of(checkpoint: Checkpoint) -> tuple[str, list[int], int, str]:
    found = checkpoint.meta.get("metrics")
    kinds = {"agent": str, "seeds": list, "lines": int, "sha256": str}
    if not isinstance(found, dict) or any(type(found.get(name)) is not kind for name, kind in kinds.items()):
        raise FileError(f"{checkpoint.path} is not a checkpoint of a run: it does not say where its metrics end")
    if not all(type(seed) is int for seed in found["seeds"]):
        raise FileError(f"{checkpoint.path} is not a checkpoint of a run: its seeds are no whole numbers")
    return found["agent"], found["seeds"], found["lines"], found["sha256"]


def verify(path: Path) -> list[tuple[Path, str | None]]:
    """Every part of a run folder with what is wrong with it, or None: the JSON files, each checkpoint, the metrics."""
    found: list[tuple[Path, str | None]] = []

    def check(part: Path, function: Callable[[], object]) -> None:
        try:
            function()
            found.append((part, None))
        except FileError as error:
            found.append((part, str(error)))

    check(path, lambda: read(path))
    newest = {}
    for part in saved(path):
        check(part, lambda part=part: newest.update({part.parent.name: checkpoints.verify(part)}))
    for part in checkpoints.listing(path / SNAPSHOTS):
        check(part, lambda part=part: checkpoints.verify(part))
    if newest:
        metrics = path / "metrics.jsonl"
        check(metrics, lambda: _lines_before(metrics, files.read(metrics, LARGEST_METRICS), newest))
    return found


def refuse_changes(was: Any, now: Any, where: str, may_change: Sequence[str] = MAY_CHANGE) -> None:
    """Refuse to go on with another config, naming every field that differs."""
    if wrong := differences(was, now, may_change):
        allowed = f"only {', '.join(may_change)} may change" if may_change else "nothing may change"
        raise RecollectError(f"{where}: the config is not the one it began with: {'; '.join(wrong)} ({allowed})")


class Curves:
    """What a run folder says of one agent: arrays [seed, bin, …], NaN where a seed did not get so far."""

    def __init__(self, lines: list[dict], seeds: list[int], episodes: np.ndarray):
        self.seeds, self.episodes = seeds, episodes
        rows = {seed: k for k, seed in enumerate(seeds)}
        bins = {int(e): k for k, e in enumerate(episodes)}
        shape = (len(seeds), len(episodes))
        sample = np.array(lines[0]["query_vectors"], float) if lines else np.zeros((1, 1))
        if len(seeds) * len(episodes) * max(sample.size, 2) > LARGEST_CURVES:
            raise ValueError(f"{len(seeds)} seeds of {len(episodes)} bins are more than can be read")
        self.returns, self.lengths = np.full(shape, np.nan), np.full(shape, np.nan)
        self.write_weights = np.full((*shape, 2), np.nan)
        self.query_vectors = np.full((*shape, *sample.shape), np.nan)
        for line in lines:
            at = rows[line["seed"]], bins[line["episodes"]]
            self.returns[at], self.lengths[at] = line["return"], line["length"]
            self.write_weights[at] = np.array(line["write_weights"], float)
            self.query_vectors[at] = np.array(line["query_vectors"], float)


def _require_files(path: Path) -> None:
    for name in ("config.json", "status.json", "metrics.jsonl"):
        if not (path / name).exists():
            raise FileError(f"{path} is not a run folder: {name} is missing")


def read(path: Path) -> tuple[dict[str, Any], dict[str, Curves], dict[str, Any]]:
    """The config, the curves of each agent by name, and the status of a run folder, finished or not."""
    _require_files(path)
    try:
        config, status = files.read_json(path / "config.json"), files.read_json(path / "status.json")
        # A run under way may be writing its last line just now: what has no end of line yet is not read.
        whole, _, _ = files.read(path / "metrics.jsonl", LARGEST_METRICS).decode("utf-8").rpartition("\n")
        lines = [json.loads(line) for line in whole.splitlines()]
        curves = {}
        for name, agent in config["agents"].items():
            bins, episodes = agent["bins"], agent["episodes"]
            if type(bins) is not int or type(episodes) is not int:
                raise TypeError(f"bins and episodes of {name} must be whole numbers")
            if not 1 <= bins <= episodes or episodes % bins or bins > LARGEST_CURVES or episodes > 2**31:
                raise ValueError(f"{episodes} episodes of {name} do not divide into {bins} bins")
            own = [line for line in lines if line["agent"] == name]
            curves[name] = Curves(own, agent["seeds"], episodes // bins * np.arange(1, bins + 1))
        status["status"]
    except Exception as error:  # whatever a damaged folder provokes is the folder's fault
        kind = "" if isinstance(error, FileError) else f"{type(error).__name__}: "
        raise FileError(f"{path} is not a sound run folder: {kind}{' '.join(str(error).split())}") from error
    return config, curves, status


def saved(path: Path) -> list[Path]:
    """Every checkpoint of a run folder, group by group, oldest first."""
    place = path / "checkpoints"
    if place.is_symlink() or not place.is_dir():
        return []
    groups = sorted(entry for entry in place.iterdir() if entry.is_dir() and not entry.is_symlink())
    return [found for group in groups for found in checkpoints.listing(group)]


def _learners_progress(path: Path, status: dict[str, Any]) -> tuple[list[float], list[float]]:
    """Of a learner's run: the share of the steps that were asked for, and the last return that was measured."""
    whole, _, _ = files.read(path / "metrics.jsonl", LARGEST_METRICS).rpartition(b"\n")
    try:
        rows = [json.loads(line) for line in whole.splitlines()]
        returns = [float(row["return"]) for row in rows if row["return"] is not None]
        steps = float(rows[-1]["steps"]) if rows else 0.0
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError) as error:
        raise FileError(f"{path / 'metrics.jsonl'} is damaged: {type(error).__name__}: {error}") from error
    wanted = status.get("wanted")
    share = [min(1.0, steps / wanted)] if rows and isinstance(wanted, int) and 0 < wanted < 2**63 else []
    return share, returns[-1:]


def summary(path: Path) -> dict[str, Any]:
    """One line of ``recollect runs``: status, share of the episodes done, last return, who is at work."""
    config, curves, status = read(path)
    at_work, said = holder(path), str(status["status"])
    done, last = [], []
    for found in curves.values():
        reached = np.isfinite(found.returns)
        done += list(reached.sum(axis=1) / reached.shape[1])
        last += [returns[has][-1] for returns, has in zip(found.returns, reached, strict=True) if has.any()]
    if config.get("kind") == "learner":
        done, last = _learners_progress(path, status)
    return {
        "run": path.name,
        "status": "stopped" if said == "running" and at_work is None else said,
        "progress": float(np.mean(done)) if done else 0.0,
        "last_return": float(np.mean(last)) if last else None,
        "exact": status.get("exact") is not False,
        "holder": at_work,
        "error": status.get("error"),
        "command": config.get("command"),
    }
