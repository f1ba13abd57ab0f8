"""The command from the outside; ``reproduce`` has tests of its own in ``experiments``."""

import json
import subprocess
import sys

import numpy as np
import pytest

import recollect
from recollect import cli, progress
from recollect.experiments.reproduce import Standing, make_plan
from recollect.training import Progress


def test_version_and_help(capsys):
    out = subprocess.run([sys.executable, "-m", "recollect", "--version"], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == f"recollect {recollect.__version__}"
    with pytest.raises(SystemExit) as stop:
        cli.main(["--help"])
    text = capsys.readouterr().out
    assert stop.value.code == 0
    for command in ("reproduce", "plot", "study", "tune", "readings", "bench"):
        assert f"recollect {command}" in text


@pytest.mark.parametrize(
    "arguments", [[], ["nothing"], ["demo"], ["plot"], ["bench"], ["bench", "reservoir", "--items", "0"]]
)
def test_wrong_commands(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2 and "usage:" in capsys.readouterr().err


def test_the_tour_names_commands_that_exist():
    """Every line of the tour that is a command is one that the parser takes."""
    lines = [line.split() for line in cli.TOUR.splitlines() if line.startswith("  recollect ")]
    for _, *words in lines:
        known = words[: 2 if words[0] in ("reproduce", "plot", "tune", "bench") else 1]
        assert cli.parser().parse_args(known).run
    assert len(lines) >= 9


def test_bench_reservoir(capsys):
    assert cli.main(["bench", "reservoir", "--json", "--capacities", "3", "--items", "20000"]) == 0
    report = json.loads(capsys.readouterr().out)
    (row,) = report["nanoseconds_an_item"]
    assert row["n"] == 3 and all(row[m] > 0 for m in ("algorithm1", "direct", "reservoir", "a_expj", "sum"))
    assert report["add_nanoseconds"]["median"] > 0


def test_bench_inclusion(tmp_path, capsys):
    assert cli.main(["bench", "inclusion", "--out", str(tmp_path / "a folder")]) == 0
    assert (tmp_path / "a folder" / "reservoir.png").stat().st_size > 10_000
    (tmp_path / "file").write_text("")
    assert cli.main(["bench", "inclusion", "--out", str(tmp_path / "file")]) == 1
    assert "recollect: " in capsys.readouterr().err


def test_plot_refuses_what_is_no_run(tmp_path, capsys):
    for path in (tmp_path, tmp_path / "nowhere"):
        assert cli.main(["plot", str(path)]) == 1
        assert capsys.readouterr().err == f"recollect: {path} is not a run folder: config.json is missing\n"


@pytest.mark.parametrize("terminal", [False, True])
def test_progress(terminal, monkeypatch, capsys):
    """A line every few seconds in a log, bars on a terminal; both name episodes, speed, return and time left."""
    monkeypatch.setattr(progress, "EVERY", 0.0)
    monkeypatch.setenv("FORCE_COLOR" if terminal else "NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "150")
    plan = make_plan("fig4", episodes=1000)
    standings = {job.name: Standing(job, plan.episodes) for job in plan.jobs}
    with progress.watching("fig4", list(standings)) as show:
        show(standings)
        for episodes in (100, 300, 1000):
            standings["episodic"].update(0, Progress(episodes, episodes, np.full(3, episodes), [], 0.75))
            show(standings)
            show(standings)
    text = capsys.readouterr().err
    for part in ("fig4 episodic", "fig4 recurrent", "compiling", "1,000 of 1,000 episodes", "steps/s", "0.750", "done"):
        assert part in text
    assert ("━" in text) == terminal
    if not terminal:
        assert "0:00 left" in text and text.count("done") == 1
