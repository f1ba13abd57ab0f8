"""Rows of metrics: in JSON lines, in a table whose columns grow, read back as they were."""

import csv
import math

import pytest

from recollect import FileError, RecollectError
from recollect.training.recording import COLUMNS, Recorder, read_rows


def row(steps, **more):
    return {"seed": 0, "steps": steps, "return": math.nan, **more}


def test_rows_come_back(tmp_path):
    recorder = Recorder.create(tmp_path / "run", {})
    recorder.begin(30)
    for rows in ([row(10)], [row(20, loss=0.5)], [row(30, loss=math.inf, note="ü")]):
        recorder.add("a", rows)
        recorder.tell(rows)
    recorder.finish("finished")
    found = read_rows(tmp_path / "run")
    assert [r["steps"] for r in found] == [10, 20, 30] and math.isnan(found[0]["return"])
    assert found[2]["loss"] == math.inf and found[2]["note"] == "ü" and "loss" not in found[0]
    with open(tmp_path / "run" / "metrics.csv", newline="") as file:
        table = list(csv.DictReader(file))
    assert list(table[0]) == [*COLUMNS, "loss", "note"] and [r["loss"] for r in table] == ["", "0.5", "inf"]


@pytest.mark.parametrize("line", [b"{}", b"3", b'{"seed": 0, "steps": "x"}', b'{"seed": 0, "steps": NaN}', b"\xff"])
def test_damaged_rows_are_named(tmp_path, line):
    (tmp_path / "metrics.jsonl").write_bytes(b'{"seed": 0, "steps": 1}\n' + line + b"\n")
    with pytest.raises(FileError, match="line 2 is not a row of metrics"):
        read_rows(tmp_path)


def test_the_folder_is_free_between_and_watched(tmp_path):
    recorder = Recorder.create(tmp_path / "run", {})
    recorder.begin(10)
    recorder.release()
    with recorder.held():
        assert (tmp_path / "run" / "lock.json").exists()
    assert not (tmp_path / "run" / "lock.json").exists()
    (tmp_path / "run" / "metrics.jsonl").write_bytes(b"of somebody else\n")
    with pytest.raises(RecollectError, match="another process has continued"):
        recorder.begin(20)
    assert not (tmp_path / "run" / "lock.json").exists()
