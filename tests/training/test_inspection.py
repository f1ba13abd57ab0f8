"""Looking inside an agent."""

import numpy as np
import pytest

from recollect import Learner, cli
from recollect.agents.episodic import EpisodicActorCritic
from recollect.agents.recurrent import RecurrentActorCritic
from recollect.errors import RecollectError
from recollect.training import inspection

OPTIONS = {"env_options": {"length": 4}, "check": False}


def test_an_episode_shows_what_was_held_and_recalled():
    learner = Learner(EpisodicActorCritic(memory_size=2, hidden=4), "recollect/TMaze-v0", **OPTIONS)
    moments = inspection.play(learner, seed=1)
    assert len(moments) == 6 and moments[0].slot == -1 and np.isnan(moments[0].weights).all()
    for t, m in enumerate(moments[1:], 1):
        held = ~np.isnan(m.weights)
        assert held.sum() == min(t, 2) and m.probabilities[held].sum() == pytest.approx(1, abs=1e-5)
        assert np.array_equal(m.recalled, m.items[m.slot]) and (m.since[held] < t).all()
        assert ((m.weights[held] > 0) & (m.weights[held] < 1)).all()
    assert moments[-1].reward in (-1.0, 1.0)
    columns, rows = inspection.lines(moments)
    assert len(rows) == 6 and all(len(row) == len(columns) for row in rows)
    assert rows[0][-3] == "nothing" and sum("▸" in cell for cell in rows[3]) == 1


def test_agents_without_a_memory_are_refused():
    learner = Learner(RecurrentActorCritic(width=2, window=2), "recollect/TMaze-v0", **OPTIONS)
    with pytest.raises(RecollectError, match="no episodic memory"):
        inspection.play(learner)


@pytest.mark.slow
def test_the_default_agents_memory_can_be_looked_into():
    moments = inspection.play(Learner(env="recollect/TMaze-v0", **OPTIONS), seed=1)
    assert len(moments) == 6 and moments[0].slot == -1
    for t, m in enumerate(moments[1:], 1):
        held = ~np.isnan(m.weights)
        assert held.sum() == min(t, 2), "the cue, and the corridor once"
        assert m.probabilities[held].sum() == pytest.approx(1, abs=1e-5) and sorted(m.since[held]) == [
            *range(held.sum())
        ]
        assert np.array_equal(m.recalled, m.items[m.slot])


@pytest.mark.slow
def test_from_training_to_a_picture_on_the_command_line(tmp_path, capsys):
    run = str(tmp_path / "run")
    train = [
        "train",
        "--env",
        "recollect/TMaze-v0",
        "--env-set",
        "length=2",
        "--steps",
        "300",
        "--agent",
        "episodic",
        "--set",
        "hidden=4",
    ]
    assert cli.main([*train, "--out", run, "--log-every", "100", "--evaluate-every", "200"]) == 0
    assert cli.main(["evaluate", run, "--episodes", "5"]) == 0
    assert cli.main(["inspect", run]) == 0
    out = capsys.readouterr().out
    assert "folder:" in out and "5 episodes" in out and "in 4 steps; ▸ marks" in out
    assert (tmp_path / "run" / "episode-0.png").stat().st_size > 5000
    assert cli.main([*train, "--out", run]) == 1
    assert "exists already" in capsys.readouterr().err
    assert cli.main([*train, "--set", "nonsense=1"]) == 1
    assert "has no option 'nonsense'" in capsys.readouterr().err
