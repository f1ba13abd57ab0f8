"""Files of earlier releases: verified, loaded and resumed as if this release had written them."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from recollect import Learner, RecollectError, Reservoir, cli
from recollect.store import checkpoints, run_reading, trees
from recollect.training.resuming import resume

pytestmark = pytest.mark.slow

OLD = Path(__file__).parents[1] / "fixtures" / "release-0.1"
RUNS = ("learner-whole", "learner-interrupted", "figure-whole", "figure-interrupted")
OF_THE_CLOCK = {"seconds", "steps_per_second"}


def metrics(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in OF_THE_CLOCK} for line in lines]


@pytest.fixture
def copied(tmp_path):
    def copy(name):
        return shutil.copytree(OLD / name, tmp_path / name)

    return copy


@pytest.mark.parametrize("name", RUNS)
def test_runs_are_listed_and_verified(name, capsys):
    summary = run_reading.summary(OLD / name)
    assert summary["status"] == ("finished" if name.endswith("whole") else "interrupted")
    assert 0 < summary["progress"] <= 1
    assert cli.main(["verify", str(OLD / name)]) == 0
    assert "DAMAGED" not in capsys.readouterr().out


def test_an_interrupted_learner_resumes(copied):
    """On the steps of today's engine, which is why it has to be asked for; refused otherwise."""
    run = copied("learner-interrupted")
    with pytest.raises(RecollectError, match="recollect"):
        resume(run)
    learner = resume(run, allow_inexact=True)
    assert learner.steps == 400 and run_reading.summary(run)["status"] == "finished"
    expected = metrics(OLD / "learner-whole")
    assert [row["steps"] for row in metrics(run)] == [row["steps"] for row in expected]


def test_a_finished_learner_is_left_as_it_is(copied):
    run = copied("learner-whole")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert resume(run, allow_inexact=True).steps == 400
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_a_saved_learner_loads_plays_and_learns(tmp_path):
    learner = Learner.load(OLD / "learner-saved")
    assert learner.steps == 120 and learner.agent.memory_size == 2
    assert np.isfinite(learner.evaluate(episodes=5).mean)
    learner.learn(30, folder=tmp_path / "more")
    assert learner.steps == 150


def test_an_interrupted_figure_resumes(copied):
    run = copied("figure-interrupted")
    assert cli.main(["resume", str(run), "--allow-inexact"]) == 0
    expected = metrics(OLD / "figure-whole")
    assert [row["episodes"] for row in metrics(run)] == [row["episodes"] for row in expected]


def test_a_checkpoint_loads():
    like = {
        "weights": np.zeros((2, 3), np.float32),
        "key": np.zeros(2, np.uint64),
        "nested": (np.int64(0), np.zeros(2, bool)),
    }
    found = checkpoints.load(OLD / "checkpoint", like=trees.shapes(like))
    state = trees.restore(found.arrays, like)
    assert found.meta == {"step": 7}
    np.testing.assert_array_equal(state["weights"], np.arange(6).reshape(2, 3))
    np.testing.assert_array_equal(state["key"], np.array([1, 2**63], np.uint64))
    assert state["nested"][0] == 7 and state["nested"][1].tolist() == [True, False]


def test_a_reservoir_loads_and_continues():
    old = Reservoir.load(OLD / "reservoir.zip")
    assert old.items == [(1, "a"), 23, 27, 72, 73, 157] and old.seen == 207
    same = Reservoir(6, seed=5)
    items = [None, 3, 2.5, "é", b"\x00\xff", (1, "a"), {"k": [1]}, *range(200)]
    same.extend(items, np.random.default_rng(0).lognormal(0, 1, 207))
    for reservoir in (old, same):
        reservoir.extend(range(300), np.random.default_rng(1).lognormal(0, 1, 300))
    assert old.items == same.items
    np.testing.assert_array_equal(old.weights, same.weights)
