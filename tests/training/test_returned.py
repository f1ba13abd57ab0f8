"""What an environment may return, and what stops with environment, seed and step."""

import fractions
import pickle
from decimal import Decimal

import gymnasium as gym
import numpy as np
import pytest

from recollect import EnvironmentFault, EpisodicActorCritic, Learner
from recollect.training import returned

AGENT = EpisodicActorCritic(memory_size=2, hidden=4)


def fault(what):
    return EnvironmentFault("Env", 3, 7, what)


@pytest.mark.parametrize(
    "reward", [1, 1.0, True, np.float32(1), np.int64(1), np.array(1.0), np.array([1.0]), fractions.Fraction(1), [1.0]]
)
def test_numbers_are_rewards(reward):
    found = returned.number(reward, fault)
    assert found == 1.0 and type(found) is float


@pytest.mark.parametrize(
    "reward",
    [
        10**400,
        "1.0",
        None,
        1j,
        np.array([1.0, 2.0]),
        [1, [2]],
        np.datetime64("2026-01-01"),
        np.nan,
        -np.inf,
        1e39,
        {},
        Decimal("1"),
        b"1",
        np.array("1"),
        10**5000,
        object(),
    ],
    ids=lambda r: f"{type(r).__name__}",
)
def test_what_is_no_reward(reward):
    with pytest.raises(EnvironmentFault, match=r"Env, seed 3, step 7: the reward is"):
        returned.number(reward, fault)


@pytest.mark.parametrize("value", [True, np.True_, 1, np.array(True), np.array([1]), np.int8(1)])
def test_truth_values(value):
    assert returned.flag("terminated", value, fault) is True


@pytest.mark.parametrize("value", [np.array([True, False]), "no", None, 2, 0.0, [], np.array([]), float("nan"), {}])
def test_what_is_no_truth_value(value):
    with pytest.raises(EnvironmentFault, match=r"step 7: truncated is .*, not true or false"):
        returned.flag("truncated", value, fault)


@pytest.mark.parametrize("found", [None, 3, (1, 2), (1, 2, 3, 4), (1, 2.0, True, False, {}, 6), "fives"])
def test_what_is_no_step(found):
    if found == "fives":  # five letters are five values, of which none is a reward
        with pytest.raises(EnvironmentFault, match=r"the reward is no number"):
            returned.step(lambda action: found, 0, fault)
        return
    with pytest.raises(EnvironmentFault, match=r"step\(0\) returned .*, not observation, reward, terminated"):
        returned.step(lambda action: found, 0, fault)


def test_what_is_no_reset():
    with pytest.raises(EnvironmentFault, match=r"reset\(seed=5\) returned 3, not an observation and a dict"):
        returned.reset(lambda seed: 3, fault, seed=5)
    with pytest.raises(EnvironmentFault, match=r"reset\(seed=5\) raised ZeroDivisionError"):
        returned.reset(lambda seed: 1 / 0, fault, seed=5)


class Odd(gym.Env):
    """Well-behaved until step 3, when it returns what it was told to."""

    def __init__(self, space=None, **odd):
        self.observation_space = space or gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.odd, self.t = odd, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.low * 0 if isinstance(self.observation_space, gym.spaces.Box) else (0, 1), {}

    def step(self, action):
        self.t += 1
        found = {"observation": np.zeros(2, np.float32), "reward": 0.0, "terminated": False, "truncated": False}
        if self.t == 3:
            found |= self.odd
        return *found.values(), {}


ODD = {
    "strings": {"observation": ["a", "b"]},
    "ragged": {"observation": [[0.0], [0.0, 0.0]]},
    "datetime": {"observation": np.array(["2026-01-01", "2026-01-02"], "datetime64[D]")},
    "complex": {"observation": np.zeros(2, complex)},
    "object": {"observation": np.array([None, 0.0])},
    "none": {"observation": None},
    "dict": {"observation": {"a": 1}},
    "huge": {"reward": 10**400},
    "text": {"reward": "1.0"},
    "array": {"terminated": np.array([False, True])},
}


@pytest.mark.parametrize("odd", ODD.values(), ids=list(ODD))
def test_training_names_environment_seed_and_step(odd, tmp_path):
    with pytest.raises(EnvironmentFault, match=r"Odd, seed 5, step 3: .*; the state before it is saved in"):
        Learner(AGENT, Odd(**odd), seed=5, check=False).learn(9, folder=tmp_path / "run")
    with pytest.raises(EnvironmentFault, match=r"Odd, seed 4, step [23]: evaluation episode 0: "):
        Learner(AGENT, lambda: Odd(**odd), seed=5, check=False).evaluate(1, seed=4)


def test_the_fault_can_be_pickled():
    found = pickle.loads(pickle.dumps(EnvironmentFault("Env", 3, 7, "what", "where")))
    assert str(found) == "Env, seed 3, step 7: what; the state before it is saved in where" and found.step == 7
