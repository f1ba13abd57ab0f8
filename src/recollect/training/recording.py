"""What a learner writes down as it goes: a run folder with config, metrics as JSON lines and CSV, and TensorBoard."""

import contextlib
import csv
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recollect.errors import FileError, RecollectError
from recollect.store import files
from recollect.store.run_folders import LARGEST_METRICS, RunFolder

GROUP = "learner"
"""The name under which a learner's checkpoints and metrics are kept."""

COLUMNS: tuple[str, ...] = (
    "seed",
    "steps",
    "episodes",
    "return",
    "length",
    "write_weight",
    "seconds",
    "steps_per_second",
    "evaluation",
)
"""Of ``metrics.csv``; ``metrics.jsonl`` has the same names."""


def free_folder(stem: str) -> Path:
    """``runs/STEM``, or the first of ``runs/STEM-2``, ``-3``, … that is not there."""
    path, k = Path("runs") / stem, 1
    while path.exists():
        k += 1
        path = Path("runs") / f"{stem}-{k}"
    return path


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of metrics of a learner's run folder, NaN where nothing was measured."""
    whole, _, _ = files.read(path / "metrics.jsonl", LARGEST_METRICS).rpartition(b"\n")
    rows = []
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            row = json.loads(line)
            known = {name: value for name, value in row.items() if name in COLUMNS and name != "seed"}
            numbers = {name: math.nan if value is None else _number(value) for name, value in known.items()}
            rows.append({"seed": int(row["seed"]), **numbers, "steps": int(row["steps"])})
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise FileError(f"{path / 'metrics.jsonl'} is damaged: line {number} is not a row of metrics") from error
    return rows


def _number(value: Any) -> int | float:
    return value if type(value) in (int, float) else float(value)


def _table(rows: Sequence[dict[str, Any]], header: bool = False) -> bytes:
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, COLUMNS, restval="", extrasaction="raise")
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


class Recorder:
    """A run folder that a learner writes to, locked while it learns."""

    def __init__(self, folder: RunFolder, rows: Sequence[dict[str, Any]] = ()):
        """``rows``: those that are in the folder's ``metrics.jsonl`` already."""
        self.path, self.folder, self.wanted = folder.path, folder, 0
        self._held, self._left, self._tensorboard = True, 0, None
        files.replace(self.path / "metrics.csv", _table(rows, header=True))

    @classmethod
    def create(cls, path: Path, config: dict[str, Any]) -> "Recorder":
        """A new folder."""
        return cls(RunFolder(path, {"kind": "learner", "agents": {}, **config}))

    def begin(self, wanted: int) -> None:
        """Take the folder, until ``finish``; ``wanted``: how many steps there are to be in the end."""
        if not self._held:
            self.folder.take()
            self._held = True
            if self._size() != self._left:
                self.release()
                raise RecollectError(f"another process has gone on with {self.path} since: load it to go on from there")
        self.wanted = wanted
        self.folder.set_status("running", wanted=wanted)

    def _size(self) -> int:
        return (self.path / "metrics.jsonl").stat().st_size

    def use_tensorboard(self) -> None:
        """Write for TensorBoard as well, under ``tensorboard/``."""
        if self._tensorboard is None:
            try:
                from tensorboardX import SummaryWriter
            except ImportError as error:
                raise RecollectError("log='tensorboard' needs tensorboardX: pip install 'recollect[log]'") from error
            self._tensorboard: Any = SummaryWriter(str(self.path / "tensorboard"))

    def add(self, agent: str, rows: list[dict[str, Any]]) -> None:
        """Append rows everywhere."""
        self.folder.append(agent, rows, GROUP)
        try:
            with open(self.path / "metrics.csv", "ab") as out:
                out.write(_table(rows))
        except OSError as error:
            raise RecollectError(f"cannot write {self.path / 'metrics.csv'}: {error.strerror}") from error
        if self._tensorboard is not None:
            for row in rows:
                for name, value in row.items():
                    if name not in ("seed", "steps") and value == value:  # NaN, where nothing was measured
                        self._tensorboard.add_scalar(f"seed {row['seed']}/{name}", value, row["steps"])

    def finish(self, status: str, **details: Any) -> None:
        """Say how it ended."""
        self.folder.set_status(status, wanted=self.wanted, **details)
        self.folder.log(status, **details)
        self.release()

    def release(self) -> None:
        """Let others in, and say nothing: to them it looks as if the process had died."""
        if self._held:
            with contextlib.suppress(OSError):
                self._left = self._size()
        self.folder.close()
        self._held = False
        if self._tensorboard is not None:
            self._tensorboard.flush()
