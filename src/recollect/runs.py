"""The run folder: what was asked, what came of it, readable without recollect.

``config.json``: the experiment, hyperparameters, seeds, command and versions. ``metrics.jsonl``: one line a completed
bin of episodes, appended as it comes. ``status.json``: "running", "finished", "interrupted" or "failed", and the steps
each seed took. All of it is strict JSON: NaN is null, infinities are the words "inf" and "-inf".
"""

import json
import math
import os
import platform
import shlex
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from recollect._version import __version__
from recollect.errors import FileError, RecollectError


def versions() -> dict[str, str]:
    """The versions that results depend on."""
    found = {"recollect": __version__, "python": platform.python_version(), "platform": platform.platform()}
    for package in ("jax", "jaxlib", "numpy"):
        found[package] = metadata.version(package)
    return found


def command_line() -> str:
    """The command this process was started with, ready to paste."""
    program = Path(sys.argv[0]).name
    return shlex.join(["recollect" if program == "__main__.py" else program, *sys.argv[1:]])


def write_json(path: Path, content: Any) -> None:
    """Write a file whole or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    with open(temporary, "w", encoding="utf-8") as out:
        json.dump(_plain(content), out, indent=1, allow_nan=False)
        out.write("\n")
        out.flush()
        os.fsync(out.fileno())
    os.replace(temporary, path)


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
    """A run folder that is being written."""

    def __init__(self, path: Path, config: dict[str, Any]):
        """Create the folder; refuses one that exists, before anything is written."""
        self.path = path
        check_free(path)
        try:
            path.mkdir(parents=True)
        except OSError as error:
            raise RecollectError(f"cannot create the run folder {path}: {error.strerror}") from error
        write_json(path / "config.json", {**config, "command": command_line(), "versions": versions()})
        self.set_status("running")
        (path / "metrics.jsonl").touch()

    def append(self, agent: str, lines: list[dict]) -> None:
        """Append completed bins of the agent called ``agent``."""
        if lines:
            with open(self.path / "metrics.jsonl", "a", encoding="utf-8") as out:
                rows = ({"agent": agent, **_plain(line)} for line in lines)
                out.write("".join(json.dumps(row, allow_nan=False) + "\n" for row in rows))

    def set_status(self, status: str, **details: Any) -> None:
        """Replace the status."""
        write_json(self.path / "status.json", {"status": status, **details})


def _plain(value: Any) -> Any:
    """NaN as null and infinities as words, since JSON has neither."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return value


class Curves:
    """What a run folder says of one agent: arrays [seed, bin, …], NaN where a seed did not get so far."""

    def __init__(self, lines: list[dict], seeds: list[int], episodes: np.ndarray):
        self.seeds, self.episodes = seeds, episodes
        rows = {seed: k for k, seed in enumerate(seeds)}
        bins = {int(e): k for k, e in enumerate(episodes)}
        shape = (len(seeds), len(episodes))
        self.returns, self.lengths = np.full(shape, np.nan), np.full(shape, np.nan)
        self.write_weights = np.full((*shape, 2), np.nan)
        sample = np.array(lines[0]["query_vectors"], float) if lines else np.zeros((1, 1))
        self.query_vectors = np.full((*shape, *sample.shape), np.nan)
        for line in lines:
            at = rows[line["seed"]], bins[line["episodes"]]
            self.returns[at], self.lengths[at] = line["return"], line["length"]
            self.write_weights[at] = np.array(line["write_weights"], float)
            self.query_vectors[at] = np.array(line["query_vectors"], float)


def read(path: Path) -> tuple[dict[str, Any], dict[str, Curves], dict[str, Any]]:
    """The config, the curves of each agent by name, and the status of a run folder, finished or not."""
    try:
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
        status = json.loads((path / "status.json").read_text(encoding="utf-8"))
        # A run under way may be writing its last line just now: what has no end of line yet is not read.
        whole, _, _ = (path / "metrics.jsonl").read_text(encoding="utf-8").rpartition("\n")
        lines = [json.loads(line) for line in whole.splitlines()]
        curves = {}
        for name, agent in config["agents"].items():
            bins, episodes = agent["bins"], agent["episodes"]
            if not 1 <= bins <= episodes or episodes % bins:
                raise ValueError(f"{episodes} episodes of {name} do not divide into {bins} bins")
            own = [line for line in lines if line["agent"] == name]
            curves[name] = Curves(own, agent["seeds"], episodes // bins * np.arange(1, bins + 1))
        status["status"]
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileError(f"{path} is not a run folder: {Path(error.filename).name} is missing") from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise FileError(f"{path} is not a sound run folder: {type(error).__name__}: {error}") from error
    return config, curves, status
