"""The run folder: what was asked, what came of it, readable without recollect.

``config.json``: the experiment, hyperparameters, seeds, command and versions. ``metrics.jsonl``: one line a completed
bin of episodes, appended as it comes. ``status.json``: "running", "finished" or "failed", and the steps each seed took.
"""

import json
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
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])


def _write_json(path: Path, content: Any) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    with open(temporary, "w", encoding="utf-8") as out:
        json.dump(content, out, indent=1)
        out.write("\n")
        out.flush()
        os.fsync(out.fileno())
    os.replace(temporary, path)


class RunFolder:
    """A run folder that is being written."""

    def __init__(self, path: Path, config: dict[str, Any]):
        """Create the folder; refuses one that exists, before anything is written."""
        self.path = path
        if path.exists():
            raise RecollectError(f"{path} exists already: choose another --out, or remove it")
        try:
            path.mkdir(parents=True)
        except OSError as error:
            raise RecollectError(f"cannot create the run folder {path}: {error.strerror}") from error
        _write_json(path / "config.json", {**config, "command": command_line(), "versions": versions()})
        self.set_status("running")
        (path / "metrics.jsonl").touch()

    def append(self, agent: str, lines: list[dict]) -> None:
        """Append completed bins of the agent called ``agent``."""
        if lines:
            with open(self.path / "metrics.jsonl", "a", encoding="utf-8") as out:
                out.write("".join(json.dumps({"agent": agent, **_plain(line)}) + "\n" for line in lines))

    def set_status(self, status: str, **details: Any) -> None:
        """Replace the status."""
        _write_json(self.path / "status.json", {"status": status, **details})


def _plain(value: Any) -> Any:
    """NaN as null, since JSON has no NaN."""
    if isinstance(value, float) and np.isnan(value):
        return None
    if isinstance(value, list):
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
    """The config, the curves of each agent by name, and the status of a run folder."""
    try:
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
        status = json.loads((path / "status.json").read_text(encoding="utf-8"))
        lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        curves = {}
        for name, agent in config["agents"].items():
            bins = agent["bins"]
            episodes = agent["episodes"] // bins * np.arange(1, bins + 1)
            own = [line for line in lines if line["agent"] == name]
            curves[name] = Curves(own, agent["seeds"], episodes)
    except FileNotFoundError as error:
        raise FileError(f"{path} is not a run folder: {Path(error.filename).name} is missing") from error
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise FileError(f"{path} is not a sound run folder: {type(error).__name__}: {error}") from error
    return config, curves, status
