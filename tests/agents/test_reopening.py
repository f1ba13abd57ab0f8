"""When choices are opened again: the formula by hand, and that what has settled wrongly is opened."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.agents.general import GeneralActorCritic
from recollect.agents.networks import NormedNetwork
from recollect.agents.reopening import ENOUGH, MARGIN, Reached, Reopening
from recollect.agents.trace_units import TraceUnits
from recollect.engines.host import REWARD, TERMINATED, Host, blank_rows
from recollect.envs.base import TimeStep

DEFAULT = Reopening()
SMALL = GeneralActorCritic(memory_size=2, units=TraceUnits(units=2), network=NormedNetwork((4,)))
observe = jax.jit(DEFAULT.observe)
openness = jax.jit(DEFAULT.openness)


def after(usuals, episodes=ENOUGH):
    """What has been reached after mean returns of late, one after another."""
    reached = DEFAULT.init()
    for usual in usuals:
        reached = observe(reached, jnp.float32(usual), jnp.float32(episodes))
    return reached


def test_the_formula_by_hand():
    reached = after([-500, -420, -100, -180])
    assert tuple(map(float, reached)) == (-500.0, -100.0, 1.0)
    for usual, lost in ((-100, 0.0), (-180, 0.2), (-300, 0.5), (-500, 1.0)):
        expected = 0.1 * max(0.0, lost - MARGIN)
        np.testing.assert_allclose(openness(reached, jnp.float32(usual)), expected, atol=1e-7)


def test_nothing_is_open_before_anything_was_gained():
    assert float(openness(DEFAULT.init(), jnp.float32(-500.0))) == 0.0
    assert float(openness(after([-500] * 30), jnp.float32(-500.0))) == 0.0


def test_a_gain_of_next_to_nothing_is_none():
    assert float(openness(after([499.0, 500.0]), jnp.float32(499.0))) == 0.0
    assert float(openness(after([400.0, 500.0]), jnp.float32(400.0))) > 0.0


@pytest.mark.slow
def test_copies_that_share_an_agent_count_their_own_episodes():
    """Every episode returns the same, and they end at different steps: nothing was gained, so nothing was lost."""
    host = Host(SMALL, 2, 2, copies=4, shared=True)
    packed, _ = host.begin(host.start(np.uint32(0)), np.zeros((4, 2), np.float32))
    rows = blank_rows(4, 2)
    for t in range(200):
        over = (t + 2 * np.arange(4)) % 8 == 7
        rows[:, 4 + REWARD], rows[:, 4 + TERMINATED] = np.where(over, -200.0, 0.0), over
        packed, _, _ = host.step(packed, rows.copy())  # JAX may read what it was given later
    state = host.unpack(packed).agent
    np.testing.assert_array_equal(state.tried.usual, -200.0)
    assert np.all(np.asarray(jax.vmap(DEFAULT.openness)(state.reached, state.tried.usual)) == 0.0)
    assert all((np.asarray(x) == np.asarray(x)[:1]).all() for x in jax.tree.leaves(state.params))


def test_the_first_few_episodes_say_nothing():
    assert after([3.0, -8.0], episodes=ENOUGH - 1) == DEFAULT.init()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-(2.0**126), 2.0**126, width=32), min_size=1, max_size=6))
def test_never_more_than_its_weight_and_always_finite(usuals):
    found = float(openness(after(usuals), jnp.float32(usuals[-1])))
    assert 0.0 <= found <= DEFAULT.weight * (1 - MARGIN) * (1 + 1e-6)


@pytest.mark.parametrize("weight", [-0.1, 20.0, "much"])
def test_bad_weights_are_refused(weight):
    with pytest.raises(ValueError, match="weight"):
        Reopening(weight)


@functools.cache
def begun(agent):
    return jax.jit(lambda: agent.init(jax.random.key(0), 2, 2))()


@functools.cache
def entropies_of(agent):
    """The policy's entropies while nothing happens, as a function of the state, in one program."""
    nothing = TimeStep(jnp.ones(2), jnp.zeros(()), jnp.zeros((), bool), jnp.zeros((), bool))

    def one(state, key):
        state, _ = agent.begin(state, jnp.ones(2), key)
        features = agent.units.outputs(state.params.actor.units, state.units.actor)
        outputs = agent.policy_outputs(state.params.actor, state.decision.inputs, features, state.decision.recalled)
        return agent.learn(state, nothing, key), agent.actions.entropy(outputs)

    return jax.jit(lambda state: jax.lax.scan(one, state, jax.random.split(jax.random.key(1), 300))[1])


def test_a_settled_policy_is_opened_where_returns_were_lost():
    """Nothing surprises: no reward, no error. Entropy rises all the same, but for a weight of 0 or nothing lost."""

    def entropies(agent, reached):
        state = begun(agent)
        *rest, last = jax.tree.leaves(state.params.actor.policy)
        settled = jax.tree.unflatten(jax.tree.structure(state.params.actor.policy), [*rest, last.at[..., 0].add(3.0)])
        params = state.params._replace(actor=state.params.actor._replace(policy=settled))
        found = entropies_of(agent)(state._replace(params=params, reached=reached))
        return float(found[0]), float(found[-1])

    fallen = Reached(jnp.float32(-1.0), jnp.float32(9.0), jnp.array(True))  # the mean return of late is 0
    first, last = entropies(SMALL, fallen)
    assert last > first + 0.1
    for agent, reached in ((SMALL, SMALL.reopening.init()), (SMALL.replace(reopening=Reopening(0.0)), fallen)):
        first, last = entropies(agent, reached)
        assert last == pytest.approx(first, abs=1e-3)
