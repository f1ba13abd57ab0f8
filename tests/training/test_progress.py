"""What is shown while training goes on, to people and to logs."""

import numpy as np
import pytest

from recollect.studies.reproduce import make_plan
from recollect.studies.standing import Standing
from recollect.training import progress
from recollect.training.reports import Progress


@pytest.mark.parametrize("terminal", [False, True])
def test_figures_on_a_terminal_and_in_a_log(terminal, monkeypatch, capsys):
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


def test_a_learner_in_a_log(monkeypatch, capsys):
    """One line when it is time, one at the end; what was not measured is left out of it."""
    with progress.showing("maze", 0, 200, wanted=True) as show:
        show(100, [])
        show(200, [{"return": 0.5, "length": float("nan"), "write_weight": 0.25, "steps_per_second": 1234.0}])
    assert capsys.readouterr().err == "  maze: 200 of 200 steps, 1,234 steps/s, return 0.500, write weight 0.25\n"
    monkeypatch.setattr(progress, "EVERY", 0.0)
    with progress.showing("maze", 0, 200, wanted=True) as show:
        show(100, [])
    assert capsys.readouterr().err == "  maze: 100 of 200 steps\n"
    with progress.showing("maze", 0, 200, wanted=False) as show:
        show(200, [])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("terminal", [False, True])
def test_what_is_counted(terminal, monkeypatch, capsys):
    monkeypatch.setattr(progress, "EVERY", 0.0)
    monkeypatch.setenv("FORCE_COLOR" if terminal else "NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    for wanted in (True, False):
        with progress.counting("playing maze", 2000, "episodes", wanted) as tell:
            tell(1500)
        said = capsys.readouterr().err
        assert ("1,500 of 2,000 episodes" in said) == ("playing maze" in said) == wanted
        assert ("━" in said) == (terminal and wanted)


def test_a_line_of_a_study(monkeypatch, capsys):
    lines, report = progress.Lines("fig4", 100), Progress(50, 150, np.array([20, 40, 60]), [], 0.5)
    lines(report)
    assert capsys.readouterr().err == ""  # five seconds have not passed
    monkeypatch.setattr(progress, "EVERY", 0.0)
    lines(report)
    said = capsys.readouterr().err
    assert said.startswith("  fig4:  40% of episodes, ")
    assert said.endswith("return 0.500, slowest seed 20 episodes after 50 steps\n")
