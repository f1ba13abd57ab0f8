"""A life without ends: where an episode would end, the next begins."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recollect import prng
from recollect.agents.episodic import EpisodicActorCritic
from recollect.envs.continuing import Continuing
from recollect.envs.secret_informant import FORWARD, SecretInformant
from recollect.training.endless import live

BASE = SecretInformant(length=2)
ENV = Continuing(BASE)


def test_the_next_instance_begins_where_one_would_end():
    state, _ = jax.jit(ENV.reset)(prng.key(0))
    step = jax.jit(lambda state, action, t: ENV.step(state, action, prng.at(prng.key(1), t, 0)))
    observe = jax.jit(BASE.observe)
    instances, rewards = [], []
    for t in range(12):
        right = state.instance.right_actions[0] if int(state.position) == 3 else FORWARD
        instances.append(np.asarray(state.instance.chain).tolist())
        state, timestep = step(state, jnp.int32(right), jnp.uint32(t))
        rewards.append(float(timestep.reward))
        assert not bool(timestep.terminated) and not bool(timestep.truncated)
        assert np.array_equal(timestep.observation, observe(state))
    assert rewards == [0, 0, 0, 1] * 3
    assert all(instances[k] == instances[k - k % 4] for k in range(12))
    assert len({tuple(instances[k]) for k in (0, 4, 8)}) > 1


@pytest.mark.slow
def test_a_life_has_no_resets():
    """The memory has seen every step, and the rate is that of rewards: at most one in a shortest episode."""
    agent = EpisodicActorCritic(memory_size=1, hidden=4, objective="average", reset_memory=False, forgetting=0.5)
    rates, states = live(agent, ENV, 300, (0, 1), blocks=3)
    assert rates.shape == (2, 3) and (rates >= 0).all() and (rates <= 1 / 3).all() and rates.sum() > 0
    assert np.asarray(states.memory.seen).tolist() == [300, 300]
    assert (np.asarray(states.reward_rate) != 0).all()
