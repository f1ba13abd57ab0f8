"""What a learner writes down as it goes: a run folder with config, metrics as JSON lines and CSV, and TensorBoard.

``metrics.jsonl`` is what counts: a row is recorded when it is there. ``metrics.csv`` and TensorBoard's file are made
from it, and made again from it when a run is resumed, so that neither ever holds a row twice.
"""

import contextlib
import csv
import io
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from recollect.errors import FileError, RecollectError
from recollect.store import files
from recollect.store.provenance import native
from recollect.store.run_folders import RunFolder

GROUP = "learner"
"""The name under which a learner's checkpoints and metrics are kept."""

COLUMNS: tuple[str, ...] = (
    "seed",
    "steps",
    "episodes",
    "return",
    "length",
    "write_weight",
    "query_entropy",
    "seconds",
    "steps_per_second",
    "evaluation",
)
"""Of ``metrics.csv``, before those that callbacks add; ``metrics.jsonl`` has the same names."""


def put_back(row: dict[str, Any], measured: dict[str, Any]) -> None:
    """Make a row, after a callback had it, one that can be read again: it says which row it is, columns hold numbers.

    ``measured``: as it was before.
    """
    row.pop("agent", None)  # whose row it is
    for name in COLUMNS:
        if name in ("seed", "steps") or not isinstance(native(row.get(name)), (int, float)):
            row[name] = measured.get(name)
            if name not in measured:
                del row[name]


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of metrics of a learner's run folder, NaN where nothing was measured."""
    rows = []
    for number, line in enumerate(files.read_lines(path / "metrics.jsonl"), 1):
        try:
            row = files.parse_json(line)
            numbers = {name: _measured(value) for name, value in row.items() if name not in ("agent", "seed", "steps")}
            known = {name: _number(numbers[name]) for name in COLUMNS if name in numbers}
            rows.append({"seed": int(row["seed"]), "steps": int(row["steps"]), **numbers, **known})
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
            raise FileError(f"{path / 'metrics.jsonl'} is damaged: line {number} is not a row of metrics") from error
    return rows


def _number(value: Any) -> int | float:
    return value if type(value) in (int, float) else float(value)


def _measured(value: Any) -> Any:
    """A value of a row as it was before it was JSON."""
    if value is None:
        return math.nan
    return float(value) if value in ("inf", "-inf") else value


class Recorder:
    """A run folder that a learner writes to, locked while it learns."""

    def __init__(self, folder: RunFolder, rows: Sequence[dict[str, Any]] = ()):
        """``rows``: those that are in the folder's ``metrics.jsonl`` already."""
        self.path, self.folder, self.wanted = folder.path, folder, 0
        self._held, self._left, self._stale = True, 0, False
        self._columns, self._board = list(COLUMNS), None
        self._write_table(rows)

    @classmethod
    def create(cls, path: Path, config: dict[str, Any], *, numbered: bool = False) -> "Recorder":
        """A new folder; ``numbered``: of that name, or of the next that is free."""
        folder = RunFolder(path, {"kind": "learner", "agents": {}, **config}, numbered=numbered)
        try:
            return cls(folder)
        except BaseException:
            folder.close()
            raise

    def begin(self, wanted: int) -> None:
        """Take the folder, until ``finish``; ``wanted``: how many steps there are to be in the end."""
        self._take()
        try:
            if self._stale:
                self._remake()
            self.wanted = wanted
            self.folder.set_status("running", wanted=wanted)
        except BaseException:
            self.release()
            raise

    def _take(self) -> None:
        if not self._held:
            self.folder.take()
            self._held = True
            if self._size() != self._left:
                self.release()
                raise RecollectError(f"another process has continued {self.path} since: load it to continue from there")

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Take the folder, unless it is taken, for as long as this lasts."""
        before = self._held
        self._take()
        try:
            yield
        finally:
            if not before:
                self.release()

    def _size(self) -> int:
        return (self.path / "metrics.jsonl").stat().st_size

    def use_tensorboard(self, wanted: bool) -> None:
        """Write for TensorBoard as well, under ``tensorboard/``, all that there is and all that comes; or do not."""
        from recollect.training.board import Board

        if not wanted:
            self._board = None
        elif self._board is None:
            self._board = Board(self.folder)
            self._board.begin(read_rows(self.path))

    def add(self, agent: str, rows: list[dict[str, Any]]) -> None:
        """Record rows: all of them, or none."""
        self.folder.append(agent, rows, GROUP)

    def tell(self, rows: list[dict[str, Any]]) -> None:
        """Write recorded rows where people look for them; what fails in this is made good by the next ``begin``."""
        try:
            if any(name not in self._columns for row in rows for name in row):
                self._remake()
                return
            self.folder.add_to("metrics.csv", self._table(rows))
            if self._board is not None:
                self._board.add(rows)
        except BaseException:
            self._stale = True
            raise

    def _remake(self) -> None:
        rows = read_rows(self.path)
        self._write_table(rows)
        if self._board is not None:
            self._board.begin(rows)
        self._stale = False

    def _write_table(self, rows: Sequence[dict[str, Any]]) -> None:
        more = dict.fromkeys(name for row in rows for name in row if name not in COLUMNS)
        self._columns = [*COLUMNS, *more]
        self.folder.write("metrics.csv", self._table(rows, header=True))

    def _table(self, rows: Sequence[dict[str, Any]], header: bool = False) -> bytes:
        out = io.StringIO(newline="")
        writer = csv.DictWriter(out, self._columns, restval="")
        if header:
            writer.writeheader()
        writer.writerows(rows)
        return out.getvalue().encode(errors="backslashreplace")

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
