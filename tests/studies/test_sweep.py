"""Sweeps: one failed unit is recorded, the rest go on, and resuming does only what is missing."""

import functools
import json
import math
import os

import pytest

from recollect import FileError, RecollectError, cli
from recollect.studies import sweep, tune


def units(done, broken=()):
    def work(name):
        done.append(name)
        if name in broken:
            raise ValueError(f"no luck with {name}")
        return {"name": name, "value": float("nan")}

    return {name: lambda name=name: work(name) for name in "abc"}


def test_the_rest_go_on_and_only_what_is_missing_is_done_again(tmp_path):
    out, done = tmp_path / "report.json", []
    rows, errors = sweep.run_all(units(done, "b"), {"x": 1}, out)
    assert list(rows) == ["a", "c"] and errors == {"b": "ValueError: no luck with b"} and done == ["a", "b", "c"]
    with open(sweep.journal_of(out), "ab") as lines:
        lines.write(b'{"unit": "b", "ro')  # killed while it wrote
    done.clear()
    rows, errors = sweep.run_all(units(done), {"x": 1}, out, resume=True)
    assert list(rows) == ["a", "b", "c"] and errors == {} and done == ["b"]
    assert rows["a"] == {"name": "a", "value": None}
    done.clear()
    assert sweep.run_all(units(done), {"x": 1}, out, resume=True) == (rows, {}) and done == []
    with pytest.raises(RecollectError, match="x: was 1, is 2"):
        sweep.run_all(units(done), {"x": 2}, out, resume=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report.json.rows.jsonl"]


@pytest.mark.parametrize("content", [b"3\n", b"{}\n", b"[[]]\n", b"{\n", b'{"config": {"x": 1}}\n{"row": 1}\n'])
def test_damaged_journals_are_named(tmp_path, content):
    sweep.journal_of(tmp_path / "r").write_bytes(content)
    with pytest.raises(FileError, match=r"line [12] is not a line of a sweep"):
        sweep.run_all(units([]), {"x": 1}, tmp_path / "r", resume=True)


def test_units_in_processes_are_those_in_this_one(tmp_path):
    works = {name: functools.partial(math.sqrt, x) for name, x in {"a": 4.0, "b": -1.0, "c": 9.0, "d": 16.0}.items()}
    said: list[str] = []
    found = sweep.run_all(works, {}, tmp_path / "report.json", say=said.append, jobs=2)
    rows, errors = sweep.run_all(works, {})
    assert found == (rows, errors) and rows == {"a": 2.0, "c": 3.0, "d": 4.0} and list(errors) == ["b"]
    assert list(found[0]) == list(rows) and len(said) == 4  # in the order of the units, however they ended
    assert sweep.run_all(works, {}, tmp_path / "report.json", resume=True, jobs=2) == (rows, errors)


def test_a_process_that_dies_fails_its_units(tmp_path):
    """And does not keep the sweep waiting."""
    rows, errors = sweep.run_all({"a": functools.partial(os._exit, 3), "b": functools.partial(os._exit, 3)}, {}, jobs=2)
    assert rows == {} and all("BrokenProcessPool" in error for error in errors.values()) and len(errors) == 2


def test_nothing_is_kept_without_a_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows, errors = sweep.run_all(units([], "a"), {})
    assert list(rows) == ["b", "c"] and list(errors) == ["a"] and list(tmp_path.iterdir()) == []


def test_the_command(tmp_path, monkeypatch, capsys):
    """``tune`` with one width that fails: exit 1, the report holds the rest; --resume completes it."""
    tried = []

    def attempt(decisions, width, rates, episodes=None, seed=0):
        tried.append(width)
        if width == 3 and broken:
            raise RuntimeError("no luck")
        return [{"width": width, "learning_rate": rate, "last_100": 0.5, "steps": width} for rate in rates]

    monkeypatch.setattr(tune, "try_width", attempt)
    broken, out = True, tmp_path / "tune.json"
    words = ["lab", "tune", "1", "--widths", "2,3,4", "--rates", "4", "--out", str(out)]
    assert cli.main(words) == 1
    assert "failed: width 3: RuntimeError: no luck; --resume tries again" in capsys.readouterr().err
    report = json.loads(out.read_text())
    assert [row["width"] for row in report["rows"]] == [2, 4] and list(report["errors"]) == ["width 3"]
    assert cli.main(words) == 1 and "exists already" in capsys.readouterr().err
    broken = False
    tried.clear()
    assert cli.main([*words, "--resume"]) == 0
    assert tried == [3] and [row["width"] for row in json.loads(out.read_text())["rows"]] == [2, 3, 4]
    assert cli.main([*words[:3], "2,3", *words[4:], "--resume"]) == 1
    assert "widths: was [2, 3, 4], is [2, 3]" in capsys.readouterr().err
