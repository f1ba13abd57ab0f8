"""Sweeps: one failed unit is recorded, the rest go on, and resuming does only what is missing."""

import functools
import json
import math
import os
import subprocess
import sys

import pytest

from recollect import FileError, RecollectError, cli
from recollect.studies import executors, sweep, tune
from reliability import commands
from studies.ray_scenario import dies_once, work
from tiers import first_quick


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
    assert list(rows) == ["a", "c"] and errors == {"b": "ValueError: no luck with b"} and done == ["a", *"bbb", "c"]
    lines = [json.loads(line) for line in sweep.journal_of(out).read_bytes().splitlines()][1:]
    failed = {"error": "ValueError: no luck with b"}
    assert lines[1:4] == [{"attempt": k, "at": "b"} | failed for k in (1, 2)] + [{"unit": "b", "attempts": 3} | failed]
    assert [line["unit"] for line in lines if "unit" in line] == ["a", "b", "c"]
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


def test_a_journal_may_be_large(tmp_path, monkeypatch):
    """A sweep of 10^5 runs has a journal of more bytes than any other file of JSON."""
    monkeypatch.setattr("recollect.store.files.LARGEST_JSON", 100)
    out, done = tmp_path / "report.json", []
    sweep.run_all(units(done, "b"), {}, out)
    done.clear()
    assert list(sweep.run_all(units(done), {}, out, resume=True)[0]) == ["a", "b", "c"] and done == ["b"]


def test_work_that_is_shared_out_in_another_way_is_not_done_again(tmp_path):
    """``--jobs`` says how finely a benchmark's seeds are shared out: under another, no row would be found again."""
    names = ["memory_len/0 paper 0-1", "memory_len/0 paper 2-3"]
    out = tmp_path / "report.json"
    sweep.run_all({name: lambda: [] for name in names}, {"x": 1}, out)
    with pytest.raises(
        RecollectError, match=r"rows of 1 units .* such as 'memory_len/0 paper 2-3': .*; --jobs 1 continues it"
    ):
        sweep.run_all({names[0]: lambda: []}, {"x": 1}, out, resume=True)
    lines = sweep.journal_of(out).read_text()
    sweep.journal_of(out).write_text(lines.replace(', "jobs": 1', ""))
    with pytest.raises(RecollectError, match="--jobs as before continues it"):
        sweep.run_all({names[0]: lambda: []}, {"x": 1}, out, resume=True)


@pytest.mark.parametrize("content", [b"3\n", b"{}\n", b"[[]]\n", b"{\n", b'{"config": {"x": 1}}\n{"row": 1}\n'])
def test_damaged_journals_are_named(tmp_path, content):
    sweep.journal_of(tmp_path / "r").write_bytes(content)
    with pytest.raises(FileError, match=r"line [12] is not a line of a sweep"):
        sweep.run_all(units([]), {"x": 1}, tmp_path / "r", resume=True)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda lines: [*lines, b'{"unit": "a", "row": 5}\n'], "line 5 is not a line of a sweep"),
        (lambda lines: [lines[0], lines[1].replace(b'"value"', b'"worth"')], "line 2 is not as it was written"),
        (lambda lines: [lines[0], lines[1].replace(b'"unit": "a"', b'"unit": "b"')], "line 2 is not as it was written"),
    ],
)
def test_rows_that_were_altered_are_named(tmp_path, damage, message):
    sweep.run_all(units([]), {}, tmp_path / "r")
    journal = sweep.journal_of(tmp_path / "r")
    journal.write_bytes(b"".join(damage(journal.read_bytes().splitlines(keepends=True))))
    with pytest.raises(FileError, match=f"is damaged: {message}"):
        sweep.run_all(units([]), {}, tmp_path / "r", resume=True)


def without_sums(journal):
    """The journal as releases without sums wrote it."""
    lines = [json.loads(line) for line in journal.read_bytes().splitlines()]
    journal.write_text("".join(json.dumps({k: line[k] for k in line if k != "sha256"}) + "\n" for line in lines))


def test_a_journal_without_sums_is_gone_on_with(tmp_path):
    first, _ = sweep.run_all(units([], "b"), {}, tmp_path / "r")
    without_sums(sweep.journal_of(tmp_path / "r"))
    done = []
    for missing in (["b"], []):
        rows, _ = sweep.run_all(units(done), {}, tmp_path / "r", resume=True)
        assert done == missing and rows["a"] == first["a"]
        done.clear()


def test_rows_of_other_versions_are_not_put_together(tmp_path, monkeypatch, capsys):
    """Nothing is taken over from a part that failed; what no bits depend on may differ."""
    there, known = {"python": "3.1", "numpy": "0.1", "jax": "0.2"}, {"python": "3.2", "numpy": "0.9", "jax": "0.2"}
    broken: list[int] = [3]

    def attempt(decisions, width, rates, episodes=None, seed=0):
        if width in broken:
            raise RuntimeError("no luck")
        return [{"width": width, "learning_rate": 1, "last_100": 0.5, "steps": width}]

    monkeypatch.setattr(tune, "try_width", attempt)
    monkeypatch.setattr(sweep, "versions", lambda: there)
    out = tmp_path / "tune.json"
    words = ["lab", "tune", "1", "--rates", "4", "--out", str(out), "--widths"]
    assert cli.main([*words, "2,3"]) == 1
    broken.clear()
    monkeypatch.setattr(sweep, "versions", lambda: known)
    capsys.readouterr()
    assert cli.main([*words, "2,3", "--resume"]) == 1
    said = capsys.readouterr().err
    assert 'numpy: was "0.1", is "0.9"; --allow-inexact' in said and "python" not in said and "jax" not in said
    assert "rows_made_by" not in json.loads(out.read_text())
    assert cli.main([*words, "2,3", "--resume", "--allow-inexact"]) == 0
    assert json.loads(out.read_text())["rows_made_by"] == [there, known]

    out.unlink()
    sweep.journal_of(out).unlink()
    broken[:] = [2, 3]
    assert cli.main([*words, "2,3"]) == 1
    broken.clear()
    monkeypatch.setattr(sweep, "versions", lambda: there)
    assert cli.main([*words, "2,3", "--resume"]) == 0


@pytest.fixture
def tune_nothing(monkeypatch):
    """Words of a sweep that must not begin, without ``--out``."""
    monkeypatch.setattr(tune, "try_width", lambda *a, **k: pytest.fail("the work has begun"))
    return ["lab", "tune", "1", "--widths", "2", "--rates", "4"]


@pytest.mark.parametrize("resume", [[], ["--resume"]])
@pytest.mark.parametrize(
    ("there", "message"),
    [
        ({"r.json": b'{"thesis": 1}'}, "exists already"),
        ({"r.json.rows.jsonl": b"my journal, without an end of line"}, "is not the journal of a report"),
        ({"r.json.rows.jsonl": b"my journal\n"}, "line 1 is not a line of a sweep"),
    ],
)
def test_foreign_files_are_never_taken_for_a_report(tmp_path, capsys, tune_nothing, there, message, resume):
    for name, content in there.items():
        (tmp_path / name).write_bytes(content)
    assert cli.main([*tune_nothing, "--out", str(tmp_path / "r.json"), *resume]) == 1
    said = capsys.readouterr().err
    assert message in said or (not resume and "exists already" in said)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == there


def test_a_journal_that_ends_in_its_first_line_is_begun_again(tmp_path):
    sweep.journal_of(tmp_path / "r").write_bytes(b'{"config": {"x"')
    assert list(sweep.run_all(units([]), {"x": 1}, tmp_path / "r", resume=True)[0]) == ["a", "b", "c"]


@pytest.mark.parametrize("resume", [[], ["--resume"]])
def test_a_link_to_nothing_stays(tmp_path, capsys, tune_nothing, resume):
    (tmp_path / "r.json").symlink_to(tmp_path / "elsewhere")
    assert cli.main([*tune_nothing, "--out", str(tmp_path / "r.json"), *resume]) == 1
    assert f"cannot write {tmp_path / 'r.json'}: it is not an ordinary file" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["r.json"] and (tmp_path / "r.json").is_symlink()


@pytest.mark.slow
def test_units_in_processes_are_those_in_this_one(tmp_path):
    works = {name: functools.partial(math.sqrt, x) for name, x in {"a": 4.0, "b": -1.0, "c": 9.0, "d": 16.0}.items()}
    said: list[str] = []
    found = sweep.run_all(works, {}, tmp_path / "report.json", say=said.append, jobs=2)
    rows, errors = sweep.run_all(works, {})
    assert found == (rows, errors) and rows == {"a": 2.0, "c": 3.0, "d": 4.0} and list(errors) == ["b"]
    assert list(found[0]) == list(rows) and len(said) == 4 + 2  # in the order of the units, however they ended
    assert sweep.run_all(works, {}, tmp_path / "report.json", resume=True, jobs=2) == (rows, errors)


def fails_twice(count):
    """Raises the first two times, counting in a file."""
    with open(count, "a") as file:
        file.write("x")
    if os.path.getsize(count) < 3:
        raise OSError("not yet")
    return os.path.getsize(count)


@pytest.mark.parametrize("jobs", first_quick([1, 2]))
def test_a_unit_that_fails_twice_is_no_error(tmp_path, jobs):
    said: list[str] = []
    works = {name: functools.partial(fails_twice, str(tmp_path / name)) for name in "ab"}
    assert sweep.run_all(works, {}, tmp_path / "r", say=said.append, jobs=jobs) == ({"a": 3, "b": 3}, {})
    assert sum("OSError: not yet; again, attempt 3 of 3" in text for text in said) == 2
    assert sweep.run_all(works, {}, tmp_path / "r", resume=True) == ({"a": 3, "b": 3}, {})  # attempts are no rows


@pytest.mark.slow
def test_a_process_that_dies_fails_its_units(tmp_path):
    """And does not keep the sweep waiting."""
    rows, errors = sweep.run_all({"a": functools.partial(os._exit, 3), "b": functools.partial(os._exit, 3)}, {}, jobs=2)
    assert rows == {} and all("WorkerLostError" in error for error in errors.values()) and len(errors) == 2


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
    assert cli.main([*words[:-1], str(tmp_path), "--resume"]) == 1 and tried == []  # before the work, not after it
    assert f"cannot write {tmp_path}: it is not an ordinary file" in capsys.readouterr().err
    assert cli.main([*words, "--resume"]) == 0
    assert tried == [3] and [row["width"] for row in json.loads(out.read_text())["rows"]] == [2, 3, 4]
    assert cli.main([*words[:4], "2,3", *words[5:], "--resume"]) == 1
    assert "widths: was [2, 3, 4], is [2, 3]" in capsys.readouterr().err


def test_an_interrupted_sweep_names_its_journal(tmp_path, monkeypatch, capsys):
    """What is done is kept, and the message says where and how it goes on."""

    def stop():
        raise KeyboardInterrupt

    units = {"a": lambda: {"x": 1}, "b": stop}
    with pytest.raises(KeyboardInterrupt, match=r"what was done is in .*report\.json\.rows\.jsonl; .* --resume"):
        sweep.run_all(units, {}, tmp_path / "report.json")
    found, errors = sweep.run_all({**units, "b": lambda: {"x": 2}}, {}, tmp_path / "report.json", resume=True)
    assert found == {"a": {"x": 1}, "b": {"x": 2}} and errors == {}
    with pytest.raises(KeyboardInterrupt, match="nothing was kept; --out FILE"):
        sweep.run_all(units, {})
    monkeypatch.setattr("recollect.studies.benchmark.pair", lambda *a, **k: stop())
    words = ["benchmark", "memory", "--tasks", "t-maze-40", "--seeds", "1", "--jobs", "1"]
    assert cli.main([*words, "--out", str(tmp_path / "bench.json")]) == 130
    assert "bench.json.rows.jsonl; the same command with --resume does the rest" in capsys.readouterr().err


def test_a_lock_from_before_a_restart_is_broken_when_asked(tmp_path, monkeypatch, capsys):
    """The machine of the driver went down: the message names a way out, and the command knows it."""
    monkeypatch.setattr(
        tune, "try_width", lambda *a, **k: [{"width": 2, "learning_rate": 1, "last_100": 1, "steps": 2}]
    )
    words = ["lab", "tune", "1", "--widths", "2", "--rates", "4", "--out", str(tmp_path / "tune.json")]
    (tmp_path / "tune.json.lock").write_text(json.dumps({"host": "h", "pid": 7, "started": "then", "boot": "before"}))
    assert cli.main(words) == 1
    assert f"{tmp_path / 'tune.json'} is locked by process 7 on h, started then" in (said := capsys.readouterr().err)
    assert "--break-lock takes the lock over" in said
    assert cli.main([*words, "--break-lock"]) == 0 and (tmp_path / "tune.json").exists()
    (tmp_path / "tune.json").unlink()
    assert cli.main([*words, "--resume"]) == 0  # it is not of what the rows depend on


@pytest.mark.slow
def test_the_driver_is_killed(tmp_path):
    """kill -9 in the middle: finished units have their line, --resume does the rest, none twice."""
    import signal

    out = tmp_path / "report.json"
    code = (
        "import functools, pathlib, time; from recollect.studies import sweep\n"
        "if __name__ == '__main__':\n"
        "    works = {str(k): functools.partial(time.sleep, 0.05 if k < 3 else 600) for k in range(6)}\n"
        f"    sweep.run_all(works, {{}}, pathlib.Path({str(out)!r}), jobs=2)\n"
    )
    script = tmp_path / "drive.py"
    script.write_text(code)
    driver = subprocess.Popen([sys.executable, script], start_new_session=True)
    journal = sweep.journal_of(out)
    commands.wait_for(lambda: journal.exists() and journal.read_bytes().count(b"unit") >= 3, driver)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    works = {str(k): functools.partial(math.sqrt, float(k)) for k in range(6)}
    rows, errors = sweep.run_all(works, {}, out, resume=True)
    assert errors == {} and list(rows) == list("012345") and rows["0"] is None and rows["5"] == math.sqrt(5.0)
    units = [json.loads(line)["unit"] for line in journal.read_bytes().splitlines() if b'"unit"' in line]
    assert sorted(units) == list("012345")


WAITING = """
import functools, os, sys, time
from recollect.studies import sweep

def say_who_and_wait(path):
    with open(path, "w") as file:
        file.write(f"{os.getpid()}\\n")
    time.sleep(600)

if __name__ == "__main__":
    sweep.run_all({path: functools.partial(say_who_and_wait, path) for path in sys.argv[1:]}, {}, jobs=2)
"""


@pytest.mark.slow
def test_workers_end_with_their_driver(tmp_path):
    """It alone is killed, as when memory runs out: no process stays behind, waiting for ever."""
    script, said = tmp_path / "drive.py", [tmp_path / "a", tmp_path / "b"]
    script.write_text(WAITING)
    driver = subprocess.Popen([sys.executable, script, *said], env=commands.environment())
    commands.wait_for(lambda: all(path.exists() and path.read_text().endswith("\n") for path in said))
    workers = [int(path.read_text()) for path in said]
    assert all(alive(worker) for worker in workers)
    driver.kill()
    driver.wait()
    commands.wait_for(lambda: not any(alive(worker) for worker in workers))


def alive(process):
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"  # nobody may be there to collect it
    except OSError:
        return False


@pytest.mark.slow
def test_a_worker_that_dies_once_is_no_error(tmp_path):
    said: list[str] = []
    works = {"a": functools.partial(dies_once, 3, str(tmp_path / "marker")), "b": functools.partial(math.sqrt, 4.0)}
    assert sweep.run_all(works, {}, say=said.append, jobs=2) == ({"a": work(3), "b": 2.0}, {})
    assert sum("again, attempt 2 of 3" in text for text in said) == 1


@pytest.mark.slow
def test_versions_are_compared(monkeypatch):
    """A worker that has another version than the driver ends the sweep, by name."""
    monkeypatch.setattr(executors, "_expected", lambda: {"numpy": "0.1", "numba": "0.2"})
    with pytest.raises(executors.VersionsDifferError, match=r"numpy '2.*the driver has '0\.1'; numba"):
        sweep.run_all({name: functools.partial(math.sqrt, 4.0) for name in "ab"}, {}, jobs=2)


def test_places_that_are_not_known():
    with pytest.raises(RecollectError, match="local, ray and ray://HOST:PORT are known"):
        executors.make("mars", 2)
