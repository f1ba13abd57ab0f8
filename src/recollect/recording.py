"""What a learner writes down as it goes: a run folder with config, metrics as JSON lines and CSV, and TensorBoard."""

import csv
from pathlib import Path
from typing import Any

from recollect.errors import RecollectError
from recollect.runs import RunFolder

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


class Recorder:
    """A run folder that a learner writes to, locked while it learns."""

    def __init__(self, path: Path, config: dict[str, Any]):
        self.path = path
        self.folder = RunFolder(path, {"kind": "learner", "agents": {}, **config})
        self._held, self._tensorboard = True, None
        with open(path / "metrics.csv", "w", encoding="utf-8", newline="") as out:
            csv.writer(out).writerow(COLUMNS)

    def begin(self, wanted: int) -> None:
        """Take the folder, until ``finish``; ``wanted``: how many steps there are to be in the end."""
        if not self._held:
            self.folder.take()
            self._held = True
        self.wanted = wanted
        self.folder.set_status("running", wanted=wanted)

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
        with open(self.path / "metrics.csv", "a", encoding="utf-8", newline="") as out:
            csv.DictWriter(out, COLUMNS, restval="", extrasaction="raise").writerows(rows)
        if self._tensorboard is not None:
            for row in rows:
                for name, value in row.items():
                    if name not in ("seed", "steps") and value == value:  # NaN, where nothing was measured
                        self._tensorboard.add_scalar(f"seed {row['seed']}/{name}", value, row["steps"])

    def finish(self, status: str, **details: Any) -> None:
        """Say how it ended."""
        self.folder.set_status(status, wanted=self.wanted, **details)
        self.folder.log(status, **details)
        self.folder.close()
        self._held = False
        if self._tensorboard is not None:
            self._tensorboard.flush()
