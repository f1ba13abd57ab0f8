"""Callbacks: per agent where several learn, described without leading out of the folder, and made again."""

import math

import numpy as np
import pytest

from recollect import EpisodicActorCritic, FileError, Learner
from recollect.training import callbacks


class Group:
    """As much of a learner as callbacks ask for."""

    def __init__(self, *seeds):
        self.seeds, self.played = list(seeds), []

    def evaluate(self, episodes, copy):
        self.played.append(copy)
        return type("Evaluation", (), {"mean": 10.0 * copy})

    def check_can_play(self):
        pass


def row(seed, steps, value):
    return {"seed": seed, "steps": steps, "return": value}


def test_patience_is_counted_for_each_agent():
    stop, group = callbacks.EarlyStop(1.0, patience=3), Group(0, 1, 2)
    assert [stop(group, row(seed, 10, 5.0)) for seed in group.seeds] == [False] * 3
    assert [stop(group, row(seed, 20, 5.0)) for seed in group.seeds] == [False] * 3
    assert [stop(group, row(seed, 30, 5.0)) for seed in group.seeds] == [False, False, True]
    late = callbacks.EarlyStop(1.0, patience=2)
    for steps, values in ((10, (5, 5)), (20, (0, 5)), (30, (5, 5))):
        assert [late(Group(0, 1), row(seed, steps, value)) for seed, value in enumerate(values)] == [False, False]
    assert [late(Group(0, 1), row(seed, 40, 5)) for seed in (0, 1)][-1]


def test_rows_without_a_measurement_are_passed_over():
    stop = callbacks.EarlyStop(1.0, patience=2)
    assert [stop(Group(0), row(0, k, value)) for k, value in enumerate((1.0, math.nan, 1.0))] == [False, False, True]


def test_every_agent_is_evaluated():
    evaluate, group = callbacks.Evaluate(10, 1), Group(4, 5)
    rows = [row(seed, steps, 0.0) for steps in (5, 10, 15, 20) for seed in group.seeds]
    for each in rows:
        evaluate(group, each)
    assert group.played == [0, 1, 0, 1] and evaluate.by_seed == {4: [(10, 0.0), (20, 0.0)], 5: [(10, 10.0), (20, 10.0)]}
    again = callbacks.Evaluate(10, 1)
    for each in rows:
        again.recall(each)
    assert again.by_seed == evaluate.by_seed and again.results == evaluate.results
    again(group, row(4, 25, 0.0))
    assert group.played == [0, 1, 0, 1], "it is not time yet"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([3], "^callbacks: 3 is no function of the learner and a row of metrics"),
        (print, r"^callbacks=<built-in function print> must be a list of callbacks: callbacks=\[<built-in"),
        ([callbacks.EarlyStop], r"^callbacks: EarlyStop is a class: give an object of it"),
    ],
)
def test_what_is_no_callback_is_refused_before_anything_is_made(given, message, tmp_path):
    learner = Learner(EpisodicActorCritic(memory_size=2), "CartPole-v1", check=False)
    with pytest.raises(TypeError, match=message):
        learner.learn(10, callbacks=given, folder=tmp_path / "run")
    assert learner.folder is None and not (tmp_path / "run").exists()


def test_a_threshold_is_a_number():
    with pytest.raises(ValueError, match="threshold=nan must be a number"):
        callbacks.EarlyStop(math.nan)


def test_described_and_made_again():
    given = [
        callbacks.Evaluate(np.int64(5), 2),
        callbacks.EarlyStop(np.float32(0.5)),
        callbacks.Checkpoint(np.int16(3)),
    ]
    found = callbacks.restore(callbacks.describe(given))
    assert [type(c) for c in found] == [type(c) for c in given] and found[0].every == 5 and found[1].threshold == 0.5
    assert all(type(found[k].every) is int for k in (0, 2))


def test_a_folder_of_ones_own_is_not_written_down_and_not_believed(tmp_path):
    described = callbacks.describe([callbacks.Checkpoint(5, tmp_path / "mine")])
    assert described == [{"class": "Checkpoint", "options": {"every": 5}, "outside": ["folder"]}]
    forged = [{"class": "Checkpoint", "options": {"every": 1, "folder": "/home/you/photos"}}]
    for one in (described, forged):
        with pytest.raises(FileError, match=r"outside of the run.*--checkpoint-folder DIR"):
            callbacks.restore(one)
        assert callbacks.restore(one, tmp_path / "told")[0].folder == tmp_path / "told"


@pytest.mark.parametrize(
    "described",
    [
        [{"class": "Popen", "options": {}}],
        [{"class": "Evaluate", "options": {"every": 0}}],
        [{}],
        [3],
        3,
        [{"class": "Evaluate", "options": {"every": "5"}}],
        [{"name": "\x1b[2J"}],
    ],
)
def test_what_cannot_be_made_again(described):
    with pytest.raises(FileError) as raised:
        callbacks.restore(described)
    assert str(raised.value).isprintable()
