"""Real-time recurrent learning: its gradient is that of backpropagation through the episode."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recollect import prng
from recollect.agents.realtime import RealTimeActorCritic
from recollect.agents.recurrent import RecurrentActorCritic
from recollect.engines.host import TimeStep

S, A, UNITS = 3, 2, 4
OPTIONS = {"width": UNITS, "critic_start": "random", "initializer": "uniform", "entropy": 0.1}


@jax.jit
def begun(agent, observation):
    return agent.begin(agent.init(prng.key(0), S, A), observation, prng.key(1))[0]


step = jax.jit(lambda agent, *args: agent.step(*args))
learn = jax.jit(lambda agent, *args: agent.learn(*args))


def lives(agent, steps, rate):
    """States after each of some steps on the same observations, rewards and keys."""
    agent = agent.replace(learning_rate=rate)
    rng = np.random.default_rng(0)
    state, found = begun(agent, jnp.asarray(rng.normal(size=S), jnp.float32)), []
    for t in range(steps):
        flags = jnp.array(t == 3), jnp.array(False)
        timestep = TimeStep(jnp.asarray(rng.normal(size=S), jnp.float32), jnp.float32(rng.normal()), *flags)
        state, action = step(agent, state, timestep, prng.key(2 + t))
        found.append((state, int(action)))
    return found


@pytest.mark.slow
def test_with_fixed_parameters_both_see_the_same_gradient():
    """With a vanishing rate the parameters stay, and RMSProp's mean squares hold every step's squared gradients."""
    forward = lives(RealTimeActorCritic(**OPTIONS), 7, 1e-9)
    back = lives(RecurrentActorCritic(**OPTIONS, window=16), 7, 1e-9)
    for (a, chosen), (b, other) in zip(forward, back, strict=True):
        assert chosen == other
        for x, y in zip(jax.tree.leaves(a.optimizer), jax.tree.leaves(b.optimizer), strict=True):
            np.testing.assert_allclose(x, y, rtol=5e-3, atol=1e-3 * float(np.max(y)))
    assert any(np.max(leaf) > 1e-9 for leaf in jax.tree.leaves(forward[-1][0].optimizer.nu.gru))


@pytest.mark.slow
def test_the_sensitivity_ends_with_the_episode():
    agent = RealTimeActorCritic(**OPTIONS)
    state, _ = lives(agent, 3, 0.01)[-1]
    end = TimeStep(jnp.zeros(S), jnp.zeros(()), jnp.array(True), jnp.array(False))
    after = learn(agent, state, end, prng.key(0))
    assert any(np.any(leaf) for leaf in jax.tree.leaves(state.sensitivity))
    assert not any(np.any(leaf) for leaf in jax.tree.leaves((after.sensitivity, after.h)))


def test_too_wide_is_refused():
    with pytest.raises(ValueError, match=r"width=65: .*width⁴ a step"):
        RealTimeActorCritic(width=65)


def test_the_update_gate_begins_where_it_is_told_to():
    plain, shifted = (
        agent.init(prng.key(0), S, A).params.gru
        for agent in (RealTimeActorCritic(**OPTIONS), RealTimeActorCritic(**OPTIONS, update_start=-4.0))
    )
    np.testing.assert_allclose(shifted.update.bias, plain.update.bias - 4.0, rtol=1e-6)
    np.testing.assert_array_equal(shifted.reset.bias, plain.reset.bias)
    np.testing.assert_array_equal(shifted.update.weight, plain.update.weight)
