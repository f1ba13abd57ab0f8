"""The run folder: what was asked, what came of it, and how to resume it; readable without recollect.

``config.json``: the experiment, hyperparameters, seeds, command and versions. ``metrics.jsonl``: one line per completed
bin of episodes, appended as it comes. ``status.json``: "running", "finished", "interrupted" or "failed", and the steps
each seed took. ``log.jsonl``: what happened to the run and when: begun, resumed, went back a checkpoint, failed.
``checkpoints/GROUP/checkpoint-NUMBER/``: see ``recollect.store.checkpoints``; a group is what trains in one loop.
``lock.json``: there while a process is at work, see ``recollect.store.lock``. All of it is strict JSON: NaN is null,
infinities are the words "inf" and "-inf". No file holds the folder's own path, so that it can be moved, or any other
outside of it.
"""

import contextlib
import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recollect.errors import FileError, RecollectError
from recollect.store import checkpoints, files
from recollect.store.checkpoints import Checkpoint
from recollect.store.files import Folder
from recollect.store.lock import Lock
from recollect.store.provenance import (
    BITS_DEPEND_ON,
    command_line,
    differences,
    encode,
    plain,
    versions,
    without_versions,
)
from recollect.store.run_reading import group_folder, lines_before, require_files


def write_json(path: Path, content: Any) -> None:
    """Write a file whole or not at all."""
    files.replace(path, encode(content, str(path), indent=1))


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

    def __init__(self, path: Path, config: dict[str, Any], *, numbered: bool = False):
        """Create the folder; refuses one that exists, before anything is written.

        ``numbered``: where the name is taken, take the first of ``path-2``, ``path-3``, … that is not.
        """
        now = versions()
        config = plain({**config, "command": command_line(), "versions": now})
        content = encode(config, "the config", indent=1)  # first of all: what cannot be written leaves nothing
        self._know(self._make(Path(path).absolute(), numbered), config, now)
        self.take()
        try:
            self._place.replace("config.json", content)
            self._place.replace("metrics.jsonl", b"")
            self.set_status("running")
            self.log("begun", command=config["command"])
        except BaseException:
            self.close()
            raise

    @staticmethod
    def _make(path: Path, numbered: bool) -> Path:
        """Make the folder: that it could be made is the proof that the name was free."""
        stem, k = path.name, 1
        if not numbered:
            check_free(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            while True:
                try:
                    path.mkdir()
                    return path
                except FileExistsError:
                    if not numbered:
                        raise
                    k += 1
                    path = path.with_name(f"{stem}-{k}")
        except OSError as error:
            raise RecollectError(f"cannot create the run folder {path}: {error.strerror}") from error

    def _know(self, path: Path, config: dict[str, Any], now: dict[str, str]) -> None:
        self.path, self.config, self.exact, self.versions = path, config, True, now
        self._written: dict[str, Any] = {}  # by group: how many lines, and the SHA-256 of them

    @classmethod
    def reopen(cls, path: Path, *, break_lock: bool = False) -> "RunFolder":
        """Take hold of the folder of a run that has ended or died, to resume it; changes nothing but the lock."""
        path = Path(path).absolute()
        require_files(path)
        folder = cls.__new__(cls)
        folder._know(path, files.read_json(path / "config.json"), versions())
        folder.take(break_lock)
        return folder

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let others in, until ``take``."""
        self.lock.release()
        self._place.close()

    def take(self, break_lock: bool = False) -> None:
        """Open and lock the folder."""
        self._place = Folder(self.path)
        try:
            self.lock = Lock(self.path, break_lock=break_lock)
        except BaseException:
            self._place.close()
            raise

    def append(self, agent: str, lines: Sequence[dict], group: str = "") -> None:
        """Append completed bins of the agent called ``agent``."""
        if lines:
            content = b"".join(encode({"agent": agent, **line}, "a row of metrics") for line in lines)
            self._place.append("metrics.jsonl", content)
            count, sums = self._written.setdefault(group, [0, hashlib.sha256()])
            sums.update(content)
            self._written[group] = [count + len(lines), sums]

    def log(self, event: str, **details: Any) -> None:
        """Append to the log."""
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._place.append("log.jsonl", encode({"time": when, "event": event, **details}, "the log"))

    def write(self, name: str, content: bytes, below: str | None = None) -> None:
        """Put a file in the folder, or in a folder ``below`` it, whole, in the place of the one that is there."""
        with self._at(below) as place:
            place.replace(name, content)

    def add_to(self, name: str, content: bytes, below: str | None = None) -> None:
        """Append to a file in the folder, or in a folder ``below`` it."""
        with self._at(below) as place:
            place.append(name, content)

    def _at(self, below: str | None) -> contextlib.AbstractContextManager[Folder]:
        return contextlib.nullcontext(self._place) if below is None else self._place.below(below, create=True)

    def set_status(self, status: str, **details: Any) -> None:
        """Replace the status."""
        content = {"status": status, "exact": self.exact, **details}
        self._place.replace("status.json", encode(content, "the status", indent=1))

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
        meta = {"finished": finished, "exact": self.exact, "metrics": metrics}
        meta |= {"versions": self.versions, "config": without_versions(self.config)}
        return self.save_checkpoint(group, arrays, meta)

    def save_checkpoint(self, group: str, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> Path:
        """Add a checkpoint of a group."""
        return checkpoints.save_below(self._place, ("checkpoints", group), arrays, plain(meta))

    def metrics_so_far(self, group: str, agent: str, seeds: Sequence[int]) -> dict[str, Any]:
        """Where a group's metrics end, for its checkpoint; they are flushed to disk first."""
        count, sums = self._written.get(group, (0, hashlib.sha256()))
        self._place.flush("metrics.jsonl")
        return {"agent": agent, "seeds": list(seeds), "lines": count, "sha256": sums.hexdigest()}

    def load(self, group: str, like: checkpoints.Shapes, *, fallback: bool = False) -> Checkpoint | None:
        """The newest state of a group, or None where none was ever saved."""
        place = group_folder(self.path, group)
        return checkpoints.load(place, like=like, fallback=fallback) if checkpoints.listing(place) else None

    def refuse_other_versions(self, found: Sequence[Checkpoint], allow_inexact: bool) -> list[str]:
        """What differs from the versions that the checkpoints were made with: refused, unless that is asked for.

        Those of finished groups do not count, as nothing continues from them.
        """
        now, wrong = self.versions, []
        continued = [c.meta.get("versions") for c in found if c.meta.get("finished") is not True]
        for was in continued if found else [self.config.get("versions")]:
            was = was if isinstance(was, dict) else {}
            wrong += differences(*({name: v.get(name) for name in BITS_DEPEND_ON} for v in (was, now)))
        wrong = list(dict.fromkeys(wrong))
        if wrong and not allow_inexact:
            raise RecollectError(
                f"{self.path} would not continue bit for bit: {'; '.join(wrong)}; "
                "--allow-inexact continues nevertheless and marks the run as not exact"
            )
        self.exact = not wrong and all(c.meta.get("exact") is True for c in found)
        return wrong

    def log_resumed(self, found: Mapping[str, Checkpoint], inexact: Sequence[str]) -> None:
        """Log that the run is resumed: from which checkpoints, and what was not as it should be."""
        if self.lock.predecessor:
            self.log("took over the lock", of=self.lock.predecessor)
        for name, checkpoint in found.items():
            for reason in checkpoint.passed_over:
                self.log("went back a checkpoint", group=name, to=checkpoint.path.name, reason=reason)
        if inexact:
            self.log("continues, not bit for bit", differences=list(inexact))
        self.log("resumed", command=command_line(), checkpoints={name: c.path.name for name, c in found.items()})

    def cut_metrics(self, found: Mapping[str, Checkpoint]) -> None:
        """Bring ``metrics.jsonl`` back to where the checkpoints are; what came after them will be written again."""
        path = self.path / "metrics.jsonl"
        kept, self._written = lines_before(path, found)
        if len(kept) != path.stat().st_size:
            self._place.replace(path.name, kept)
