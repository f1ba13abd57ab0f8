"""Reading run folders of anybody's: one damaged or unreadable among many, odd types, terminal escapes."""

import json
import os

import numpy as np
import pytest

from recollect import FileError, RecollectError, cli
from recollect.store import run_folders, run_reading


@pytest.fixture
def runs(tmp_path):
    for name in ("good", "other"):
        with run_folders.RunFolder(tmp_path / name, {"kind": "learner", "agents": {}}) as folder:
            folder.append("a", [{"seed": 0, "steps": 5, "return": 1.0}, {"seed": 1, "steps": 5, "return": 3.0}])
            folder.append("a", [{"seed": 0, "steps": 10, "return": None}, {"seed": 1, "steps": 10, "return": 5.0}])
            folder.set_status("finished", wanted=20)
    return tmp_path


def test_the_mean_over_the_last_of_each_agent(runs):
    found = run_reading.summary(runs / "good")
    assert found["last_return"] == 3.0 and found["progress"] == 0.5 and found["status"] == "finished"


@pytest.mark.parametrize(
    "status",
    [
        {"status": ["\x1b[2J"], "error": {"a": 1}, "wanted": "many", "exact": 3},
        {"status": "\x1b]0;owned\x07", "error": "[bold red]x[/]\x9b31m\u202e", "wanted": -1},
        {"status": None, "error": 3.5, "wanted": 1e300},
        {"status": "running\n\nfinished", "wanted": True},
    ],
)
def test_a_strangers_status_is_printed_harmlessly(runs, status, capsys):
    (runs / "good" / "status.json").write_text(json.dumps(status))
    config = json.loads((runs / "good" / "config.json").read_text())
    (runs / "good" / "config.json").write_text(json.dumps({**config, "command": {"rm": "-rf"}}))
    for words in (["runs"], ["runs", "--json"], ["verify"]):
        target = runs / "good" if words == ["verify"] else runs
        assert cli.main([words[0], str(target), *words[1:]]) == 0
        out = capsys.readouterr().out
        assert (all(c.isprintable() or c == "\n" for c in out) and "other" in out) or words == ["verify"]
    assert run_reading.summary(runs / "other")["status"] == "finished"


def test_text_is_not_markup(runs, capsys):
    (runs / "good" / "status.json").write_text(json.dumps({"status": "failed", "error": "[red]danger[/red]"}))
    assert cli.main(["runs", str(runs)]) == 0 and "[red]danger[/red]" in capsys.readouterr().out


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look into every folder")
def test_a_folder_that_may_not_be_looked_into(runs):
    (runs / "good").chmod(0)
    rows = run_reading.summaries(runs)
    (runs / "good").chmod(0o755)
    assert [row["status"] for row in rows] == ["unreadable", "finished"]


def test_one_that_fails_does_not_hide_the_others(runs, monkeypatch, capsys):
    (runs / "bad").mkdir()
    (runs / "bad" / "config.json").write_text("{")
    summary = run_reading.summary

    def odd(path):
        if path.name == "good":
            raise PermissionError(13, "Permission denied")
        return summary(path)

    monkeypatch.setattr(run_reading, "summary", odd)
    assert [row["status"] for row in run_reading.summaries(runs)] == ["damaged", "unreadable", "finished"]
    assert cli.main(["runs", str(runs)]) == 0
    assert "Permission denied" in " ".join(capsys.readouterr().out.split())  # a long path makes the table wrap it


def test_seconds_between_checkpoints(tmp_path):
    read = run_reading.seconds_between_checkpoints
    assert [read(tmp_path, {"checkpoints": {"every": x}}) for x in (5, 0.5, "inf")] == [5, 0.5, float("inf")]
    assert read(tmp_path, {"checkpoints": {"every": 10**400}}) == 1e300
    for wrong in (None, 0, -1, True, "5", float("nan"), []):
        with pytest.raises(FileError, match=r"checkpoints\.every"):
            read(tmp_path, {"checkpoints": {"every": wrong}})


def test_links_to_checkpoints_are_refused(tmp_path):
    (tmp_path / "checkpoints").symlink_to("/")
    with pytest.raises(RecollectError, match="it is a link"):
        run_reading.group_folder(tmp_path, "a")
    assert run_reading.saved(tmp_path) == []


def test_verifying_beside_a_run_that_saves_often(runs, monkeypatch):
    """A checkpoint that is removed while it is looked at was not damaged."""
    import shutil

    import numpy as np

    from recollect.store import checkpoints

    with run_folders.RunFolder.reopen(runs / "good") as folder:
        for _ in range(2):
            folder.save("a", "a", [0, 1], {"x": np.zeros(3)})
    verify, removed = checkpoints.verify, []

    def gone(path):
        if not removed:
            removed.append(path)
            shutil.rmtree(path)
        return verify(path)

    monkeypatch.setattr(checkpoints, "verify", gone)
    assert [wrong for _, wrong in run_reading.verify(runs / "good") if wrong] == [] and removed


def test_another_config_than_the_checkpoints_is_not_intact(runs, capsys):
    run = runs / "good"
    config = json.loads((run / "config.json").read_text())
    with run_folders.RunFolder.reopen(run) as folder:
        folder.save("a", "a", [0], {"x": np.zeros(3)})
    assert cli.main(["verify", str(run)]) == 0
    (run / "config.json").write_text(json.dumps({**config, "checkpoints": {"every": 5}}))
    assert cli.main(["verify", str(run)]) == 0
    (run / "config.json").write_text(json.dumps({**config, "rate": 0.35}))
    assert cli.main(["verify", str(run)]) == 1
    out, err = capsys.readouterr()
    assert "config.json: the config is not the one it began with: rate: was absent, is 0.35" in out and "1 place" in err


def test_nothing_is_not_intact(tmp_path, capsys):
    """A run that is not there, as after a slip of the pen, has not been verified."""
    (_, fault), *more = run_reading.verify(tmp_path / "nowhere")
    assert "is not a run folder" in fault and more == []
    assert cli.main(["verify", str(tmp_path / "nowhere")]) == 1
    assert "nowhere is damaged in 1 place" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["checkpoints", "checkpoints/a-0", "snapshots"])
def test_checkpoints_behind_a_link_are_not_intact(runs, name):
    """Resuming refuses them, so verifying must not pass them over in silence."""
    run, elsewhere = runs / "good", runs / "elsewhere"
    elsewhere.mkdir()
    (run / "checkpoints").mkdir(exist_ok=True)
    assert all(fault is None for _, fault in run_reading.verify(run))
    if name == "checkpoints":
        (run / name).rmdir()
    (run / name).symlink_to(elsewhere)
    assert [part for part, fault in run_reading.verify(run) if fault and "it is a link" in fault] == [run / name]
