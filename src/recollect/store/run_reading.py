"""What a run folder holds, read without trusting it: its config, its curves, where its metrics end, what is damaged."""

import hashlib
import math
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from recollect.errors import FileError, RecollectError, printable
from recollect.store import checkpoints, files
from recollect.store.checkpoints import Checkpoint
from recollect.store.lock import holder
from recollect.store.provenance import refuse_changes, without_versions

LARGEST_CURVES = 10**8  # numbers


def group_folder(run: Path, group: str) -> Path:
    """Where the checkpoints of a group are, which no link may lead to."""
    place = run / "checkpoints" / group
    files.refuse_links(place.parent, place)
    return place


def seconds_between_checkpoints(path: Path, config: Mapping[str, Any]) -> float:
    """What a run's config says of them; infinity is the word "inf"."""
    found = config.get("checkpoints")
    every = found.get("every") if isinstance(found, dict) else None
    every = float("inf") if every == "inf" else every
    if isinstance(every, bool) or not isinstance(every, (int, float)) or not every > 0:
        raise FileError(f"{path / 'config.json'}: checkpoints.every is {every!r} and should be a number of seconds")
    return float(min(every, 1e300)) if isinstance(every, int) else every


def lines_before(path: Path, found: Mapping[str, Checkpoint]) -> tuple[bytes, dict[str, Any]]:
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
    for number, line in enumerate(files.read_lines(path), 1):
        try:
            row = files.parse_json(line)
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


SNAPSHOTS = "snapshots"
"""The folder beside a run's checkpoints for those that are kept to look back at."""


def verify(path: Path) -> list[tuple[Path, str | None]]:
    """Every part of a run folder with what is wrong with it, or None: the JSON files, each checkpoint, the metrics.

    Checkpoints are held to their SHA-256, the metrics to the sum and the config to the copy in each group's newest.
    """
    found: list[tuple[Path, str | None]] = []

    def check(part: Path, function: Callable[[], object]) -> None:
        try:
            function()
            found.append((part, None))
        except RecollectError as error:
            # A run that continues removes checkpoints that are no longer needed; the run itself has to be there.
            if part == path or os.path.lexists(part):
                found.append((part, str(error)))

    check(path, lambda: read(path))
    for place in _links(path):
        check(place, lambda place=place: files.refuse_links(place))
    newest = {}
    for part in saved(path):
        check(part, lambda part=part: newest.update({part.parent.name: checkpoints.verify(part)}))
    for part in [] if (path / SNAPSHOTS).is_symlink() else checkpoints.listing(path / SNAPSHOTS):
        check(part, lambda part=part: checkpoints.verify(part))
    if newest:
        metrics = path / "metrics.jsonl"
        check(metrics, lambda: lines_before(metrics, newest))
        check(path / "config.json", lambda: _require_config(path / "config.json", newest.values()))
    return found


def _require_config(path: Path, found: Iterable[Checkpoint]) -> None:
    config = without_versions(files.read_json(path))
    for was in [checkpoint.meta["config"] for checkpoint in found if "config" in checkpoint.meta]:
        refuse_changes(was, config, str(path))


def _links(path: Path) -> list[Path]:
    """Links where the folders of a run's checkpoints belong: nothing is read through them, so nothing is known."""
    places = [path / "checkpoints", path / SNAPSHOTS]
    if places[0].is_dir() and not places[0].is_symlink():
        places += sorted(places[0].iterdir())
    return [place for place in places if place.is_symlink()]


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


def require_files(path: Path) -> None:
    """Refuse what is not a run folder."""
    for name in ("config.json", "status.json", "metrics.jsonl"):
        if not (path / name).exists():
            raise FileError(f"{path} is not a run folder: {name} is missing")


def read(path: Path) -> tuple[dict[str, Any], dict[str, Curves], dict[str, Any]]:
    """The config, the curves of each agent by name, and the status of a run folder, finished or not."""
    require_files(path)
    try:
        config, status = files.read_json(path / "config.json"), files.read_json(path / "status.json")
        lines = [files.parse_json(line) for line in files.read_lines(path / "metrics.jsonl")]
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
        raise FileError(f"{path} is not a valid run folder: {kind}{' '.join(str(error).split())}") from error
    return config, curves, status


def saved(path: Path) -> list[Path]:
    """Every checkpoint of a run folder, group by group, oldest first."""
    place = path / "checkpoints"
    if place.is_symlink() or not place.is_dir():
        return []
    groups = sorted(entry for entry in place.iterdir() if entry.is_dir() and not entry.is_symlink())
    return [found for group in groups for found in checkpoints.listing(group)]


def _learners_progress(path: Path, status: dict[str, Any]) -> tuple[list[float], list[float]]:
    """Of a learner's run: the share of the steps that were asked for, and the last return of each of its agents."""
    lines = files.read_lines(path / "metrics.jsonl")
    last: dict[int, float] = {}
    steps = 0.0
    try:
        for line in lines:
            row = files.parse_json(line)
            steps = float(row["steps"])
            if row["return"] is not None:
                last[int(row["seed"])] = float(row["return"])
    except (ValueError, LookupError, TypeError, OverflowError) as error:
        raise FileError(f"{path / 'metrics.jsonl'} is damaged: {type(error).__name__}: {error}") from error
    wanted = status.get("wanted")
    if not lines or not isinstance(wanted, int) or not 0 < wanted < 2**63 or not 0 <= steps < 2**63:
        return [], list(last.values())
    return [min(1.0, steps / wanted)], list(last.values())


def _text(value: Any) -> str | None:
    """What a file says where text belongs, for people to read."""
    return None if value is None else printable(value)


def summary(path: Path) -> dict[str, Any]:
    """One line of ``recollect runs``: status, share of the episodes done, last return, who is at work.

    Texts are as ``printable`` makes them: the files may be anybody's.
    """
    config, curves, status = read(path)
    at_work, said = holder(path), printable(status["status"], 100)
    done, last = [], []
    for found in curves.values():
        reached = np.isfinite(found.returns)
        done += list(reached.sum(axis=1) / reached.shape[1])
        last += [returns[has][-1] for returns, has in zip(found.returns, reached, strict=True) if has.any()]
    if config.get("kind") == "learner":
        done, last = _learners_progress(path, status)
    mean = float(np.mean(last)) if last else None
    return {
        "run": printable(path.name),
        "status": "stopped" if said == "running" and at_work is None else said,
        "progress": float(np.mean(done)) if done else 0.0,
        "last_return": mean if mean is not None and math.isfinite(mean) else None,
        "exact": status.get("exact") is not False,
        "holder": at_work,
        "error": _text(status.get("error")),
        "command": _text(config.get("command")),
    }


def summaries(folder: Path) -> list[dict[str, Any]]:
    """The lines of ``recollect runs``: of a run folder, or of every one in a folder, damaged ones among them."""
    try:
        found = [folder] if (folder / "config.json").exists() else sorted(folder.iterdir())
    except OSError as error:
        raise FileError(f"{folder} cannot be read: {error.strerror}") from error
    rows = []
    for path in found:
        try:
            if (path / "config.json").exists():
                rows.append(summary(path))
        except FileError as error:
            rows.append({"run": printable(path.name), "status": "damaged", "error": printable(error)})
        except OSError as error:  # one that may not even be looked into
            why = f"{path} cannot be read: {error.strerror}"
            rows.append({"run": printable(path.name), "status": "unreadable", "error": printable(why)})
    return rows
