"""The loop itself: where it is left makes no difference."""

import re
import time

import gymnasium as gym
import jax
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from recollect import EnvironmentFault, GeneralActorCritic, Learner
from recollect.training import saving
from recollect.training.stepping import _smaller
from training.probes import AGENT, GENERAL, Const, Three


def test_where_it_is_left_makes_no_difference():
    one, other = (Learner(AGENT, Three, seed=1, check=False) for _ in range(2))
    one.advance(50)
    for steps in (np.int64(1), 7, 30, 12):
        other.advance(steps)
    assert {k: v.tobytes() for k, v in saving.arrays_of(one).items()} == {
        k: v.tobytes() for k, v in saving.arrays_of(other).items()
    }


def test_it_ends_at_the_deadline_and_when_asked():
    learner = Learner(AGENT, Three, check=False)
    learner.advance(1)
    learner._advance(10**9, deadline=time.monotonic())
    assert learner.steps == 2, "at least one step is taken"
    learner._advance(10**9, asked=lambda: learner.fleet.steps >= 5)
    assert learner.steps == 5


@pytest.mark.parametrize("engine", ["cpu", "jax"])
def test_a_vector_environment_of_one_copy_teaches_what_a_single_one_does(engine):
    """However it restarts: a step in which the copy waits for its next episode is none for the agent."""
    single = Learner(GENERAL, Const, check=False, engine=engine)
    single.advance(200)
    for mode in AutoresetMode:
        learner = Learner(GENERAL, SyncVectorEnv([Const], autoreset_mode=mode), check=False, engine=engine)
        learner.advance(210 if mode == AutoresetMode.NEXT_STEP else 200)
        state = learner.state()
        assert learner.episodes == [10] and int(state.scales.reward.count) == 200, mode
        assert float(state.tried.usual) == 20.0, mode
        assert all(jax.tree.leaves(jax.tree.map(np.array_equal, state, single.state()))), mode


@pytest.mark.slow
def test_seeds_are_of_agents():
    assert Learner(AGENT, Three, seed=4, copies=3, check=False).seeds == [4]
    assert Learner(AGENT, Three, seed=4, copies=3, learners="each", check=False).seeds == [4, 5, 6]


def test_wrong_counts():
    with pytest.raises(ValueError, match="steps=0"):
        Learner(AGENT, Three, check=False).advance(0)


@pytest.mark.parametrize(
    ("agent", "advice"),
    [
        (
            AGENT,
            r"rewards may be too large \(normalize_rewards=True or --normalize rewards scales them\), or learning_rate",
        ),
        (
            GeneralActorCritic(),
            "or the rate of critic_optimizer, the rate of actor_optimizer, the rate of write_optimizer$",
        ),
    ],
)
def test_what_to_make_smaller_is_what_the_agent_has(agent, advice):
    assert re.search(advice, _smaller(agent))


def test_an_update_that_is_not_finite_names_the_size_of_rewards():
    class Vast(Three):
        def step(self, action):
            observation, _, *rest = super().step(action)
            return observation, 3e38, *rest

    learner = Learner(AGENT.replace(learning_rate=10.0), Vast, check=False)
    with pytest.raises(EnvironmentFault, match="nothing was learned from that step: rewards may be too"):
        learner.advance(1000)


def test_an_update_that_is_not_finite_names_the_size_of_observations():
    class Far(Three):
        observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)

        def step(self, action):
            observation, *rest = super().step(action)
            return observation * np.float32(1e20), *rest

    message = r"observations as large as 7e\+19 have squares that overflow float32 \(normalize_observations=True or"
    with pytest.raises(EnvironmentFault, match=message):
        Learner(GeneralActorCritic(), Far, check=False).advance(20)
    Learner(GeneralActorCritic(), Far, normalize_observations=True, check=False).advance(20)
