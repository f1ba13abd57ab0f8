"""Environments side by side: seeds, faults, vector environments of every kind, calls from outside."""

import gymnasium as gym
import numpy as np
import pytest

from recollect import EnvironmentFault, Learner
from recollect.engines.host import blank_rows
from recollect.envs import spaces
from recollect.training.env_pool import Copies, Vector
from recollect.training.normalization import Normalizer
from training.probes import AGENT, Three


def pool_of(kind, env, copies):
    one = Three()
    known = spaces.observations(one.observation_space), spaces.actions(one.action_space)
    return kind(env, "Three", copies, *known, Normalizer(2, copies, False, False, 0.9), [(3, k) for k in range(copies)])


def test_episodes_are_seeded_one_by_one():
    rows = [blank_rows(2, 2) for _ in range(2)]
    pools = [pool_of(Copies, [Three(), Three()], 2) for _ in rows]
    for pool, own in zip(pools, rows, strict=True):
        pool.reset(own)
        for _ in range(7):
            pool.step(np.array([0, 1]), own)
    assert np.array_equal(*rows) and pools[0].episodes == [2, 2] and pools[0].lengths == [1, 1]
    assert [e.score for e in pools[0].finished] == [0.0, 3.0, 0.0, 3.0]


def test_calls_from_outside_are_noticed_and_training_is_none():
    env = Three()
    pool = pool_of(Copies, [env], 1)
    rows = blank_rows(1, 2)
    pool.reset(rows)
    pool.step(np.array([0]), rows)
    assert not pool.touched
    env.reset(seed=0)
    assert pool.touched
    pool.touched = False
    env.step(0)
    assert pool.touched
    pool.close()
    assert "reset" not in vars(env) and "step" not in vars(env)


class Fixed:
    """A vector environment that returns what it is told to."""

    def __new__(cls, **odd):
        class Odd(gym.vector.VectorEnv):
            num_envs = 2
            single_observation_space, single_action_space = Three.observation_space, Three.action_space
            observation_space = gym.vector.utils.batch_space(single_observation_space, 2)
            action_space = gym.vector.utils.batch_space(single_action_space, 2)
            metadata = {"autoreset_mode": odd.pop("mode", gym.vector.AutoresetMode.NEXT_STEP)}  # noqa: RUF012

            def reset(self, *, seed=None, options=None):
                if isinstance(seed, list) and odd.get("one_seed"):
                    raise TypeError("Seed must be a python integer")
                return np.zeros((2, 2), np.float32), {}

            def step(self, actions):
                found = {
                    "o": np.zeros((2, 2), np.float32),
                    "r": np.zeros(2),
                    "t": np.zeros(2, bool),
                    "u": np.zeros(2, bool),
                }
                return *{k: odd.get(k, v) for k, v in found.items()}.values(), {}

        return Odd()


def test_one_seed_for_all_where_that_is_what_reset_takes():
    pool = pool_of(Vector, Fixed(one_seed=True), 2)
    pool.reset(blank_rows(2, 2))
    pool.reset(blank_rows(2, 2))


@pytest.mark.parametrize(
    "odd",
    [
        {"r": np.zeros(3)},
        {"t": None},
        {"r": np.array(["a", "b"])},
        {"o": np.zeros((3, 2))},
        {"o": np.full((2, 2), np.nan)},
        {"t": np.array([True, True]), "mode": gym.vector.AutoresetMode.SAME_STEP},
        {"u": np.array([0.5, 0.5])},
    ],
    ids=["sizes", "none", "text", "copies", "nan", "final_obs", "half"],
)
def test_vector_environments_that_misbehave(odd, tmp_path):
    with pytest.raises(EnvironmentFault, match="seed 4, step 1: "):
        Learner(AGENT, Fixed(**odd), seed=4, check=False).learn(6, folder=tmp_path / "run")
