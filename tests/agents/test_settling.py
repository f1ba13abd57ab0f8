"""How fast the policy still moves: the formula by hand, and that a policy whose returns no longer vary stands still."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.agents.general import GeneralActorCritic
from recollect.agents.networks import NormedNetwork
from recollect.agents.persistence import Persistence
from recollect.agents.reopening import Reached
from recollect.agents.settling import Settling
from recollect.agents.trace_units import TraceUnits
from recollect.envs.base import TimeStep

DEFAULT, PERSISTENCE = Settling(), Persistence()
pace = jax.jit(DEFAULT.pace)
observe = jax.jit(PERSISTENCE.observe)


def reached(least, most, known=True):
    return Reached(jnp.float32(least), jnp.float32(most), jnp.asarray(known))


def varied(usual, spread, kept=0.0):
    """Episodes that returned so much, of both ways with this deviation, of the second as many as ``kept`` says."""
    return PERSISTENCE.init()._replace(
        count=jnp.array([30.0, kept]), variance=jnp.full(2, spread**2, jnp.float32), usual=jnp.float32(usual)
    )


@pytest.mark.parametrize("kept", [0.0, 5.0])
@pytest.mark.parametrize(
    ("spread", "lost", "share"),
    [(0, 0, 0.1), (3, 0, 0.1), (10, 0, 0.25), (30, 0, 0.75), (80, 0, 1.0), (0, 20, 0.5), (10, 20, 0.75), (0, 300, 1.0)],
)
def test_the_formula_by_hand(spread, lost, share, kept):
    """400 were gained: one part in ten of it is 40."""
    np.testing.assert_allclose(pace(reached(100, 500), varied(500 - lost, spread, kept)), share, rtol=1e-6)


def test_nothing_slows_down_before_anything_was_gained():
    assert float(pace(reached(0, 0, known=False), PERSISTENCE.init())) == 1.0
    assert float(pace(reached(-200, -200), varied(-200, 0.0))) == 1.0
    assert float(pace(reached(499, 500), varied(500, 0.0))) == 1.0


def test_steady_returns_slow_it_down_and_one_that_differs_wakes_it():
    tried = PERSISTENCE.init()
    for _ in range(60):
        tried = observe(tried, jnp.asarray(False), jnp.float32(500.0))
    assert float(pace(reached(20, 500), tried)) == pytest.approx(0.1)
    tried = observe(tried, jnp.asarray(False), jnp.float32(100.0))
    assert float(pace(reached(20, 500), tried)) == 1.0


@settings(max_examples=100, deadline=None)
@given(*[st.floats(-(2.0**126), 2.0**126, width=32)] * 2, st.floats(0, 2.0**120, width=32))
def test_always_a_share(one, other, variance):
    tried = varied(one, 0.0)._replace(count=jnp.array([50.0, 50.0]), variance=jnp.full(2, variance, jnp.float32))
    assert 0.1 <= float(pace(reached(min(one, other), max(one, other)), tried)) * (1 + 1e-6) <= 1.0 + 1e-6


@pytest.mark.parametrize("options", [{"steadiness": -1.0}, {"slowest": 1.5}, {"slowest": "not"}])
def test_bad_numbers_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Settling(**options)


def test_the_actor_alone_takes_shorter_steps():
    agent = GeneralActorCritic(memory_size=2, units=TraceUnits(units=2), network=NormedNetwork((4,)))
    off = jnp.zeros((), bool)
    told = TimeStep(jnp.zeros(2), jnp.ones(()), off, off)

    @jax.jit
    def moved_by(agent):
        state = agent.init(jax.random.key(0), 2, 2)._replace(reached=reached(20, 500), tried=varied(500, 0.0))
        state, _ = agent.begin(state, jnp.ones(2), jax.random.key(1))
        after = agent.learn(state, told, jax.random.key(2))
        return jax.tree.map(jnp.subtract, after.params, state.params)

    def steps(settling):
        return jax.tree.map(np.asarray, moved_by(dataclasses.replace(agent, settling=settling)))

    slow, fast = steps(Settling()), steps(Settling(slowest=1.0))
    moved = False
    for a, b in zip(jax.tree.leaves(slow.actor), jax.tree.leaves(fast.actor), strict=True):
        np.testing.assert_allclose(a, 0.1 * b, atol=1e-6)
        moved |= bool(b.any())
    assert moved
    for a, b in zip(jax.tree.leaves(slow._replace(actor=0)), jax.tree.leaves(fast._replace(actor=0)), strict=True):
        np.testing.assert_array_equal(a, b)
