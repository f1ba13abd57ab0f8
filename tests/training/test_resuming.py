"""How a run goes on: by its newest checkpoint, or by its config; bits are compared in ``tests/reliability``."""

import json

import pytest

from recollect import FileError, Learner
from recollect.store import checkpoints
from recollect.training.recording import read_rows
from recollect.training.resuming import resume
from training.probes import AGENT, Three


@pytest.fixture
def run(tmp_path):
    """One that was to take 40 steps and has taken 20."""
    learner = Learner(AGENT, Three, check=False).learn(20, log_every=10, folder=tmp_path / "run")
    learner.goal = 40
    learner.save(tmp_path / "run")
    return tmp_path / "run"


def test_to_where_it_was_to_end(run):
    assert resume(run, Three).steps == 40 and [row["steps"] for row in read_rows(run)] == [10, 20, 30, 40]
    assert resume(run, Three).steps == 40


def test_callbacks_are_told_of_earlier_rows(run):
    class Told:
        rows = ()

        def recall(self, row):
            self.rows = (*self.rows, row["steps"])

        def __call__(self, learner, row):
            self.rows = (*self.rows, -row["steps"])

    told = Told()
    resume(run, Three, callbacks=[told])
    assert told.rows == (10, 20, -30, -40)


@pytest.mark.parametrize(
    "change", [{"steps": 0}, {"log_every": "1"}, {"log": "wandb"}, {"callbacks": 3}, {"start": -1}]
)
def test_how_it_was_to_learn_is_checked(run, change):
    found = checkpoints.load(run / "checkpoints" / "learner")
    meta = {**found.meta, "learning": {**found.meta["learning"], **change}}
    checkpoints.save(run / "checkpoints" / "learner", found.arrays, meta)
    with pytest.raises(FileError, match=r"does not say how|learning is not valid"):
        resume(run, Three)


def test_what_is_not_a_learners_run(run):
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "kind": "other"}))
    with pytest.raises(FileError, match=r"is not the run of a learner"):
        resume(run, Three)


@pytest.mark.parametrize("every", [0, "60", None, True, [], -1.0])
def test_how_often_is_checked(run, every):
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "checkpoints": {"every": every, "keep": 3}}))
    with pytest.raises(FileError, match=r"checkpoints\.every is .* and should be a number of seconds"):
        resume(run, Three)


def test_how_often_may_be_changed(run):
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "checkpoints": {"every": "inf", "keep": 3}}))
    assert resume(run, Three)._learning["checkpoint_every"] == float("inf")
