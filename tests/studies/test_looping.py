"""The looping experiment: its update is the agent's, its measures are what they say, a switch cuts one thing."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recollect import cli
from recollect.agents.episodic import Decision, EpisodicActorCritic
from recollect.envs.base import TimeStep
from recollect.envs.secret_informant import FORWARD
from recollect.studies import altered, looping

pytestmark = pytest.mark.slow

ENV = looping.ENV
AGENT = EpisodicActorCritic.preset("paper", memory_size=3)
FIRST = ENV.decision_row(0, 0)
ON = ENV.decision_row(1, 1)
ROWS, WEIGHTS = np.array([3, 8, 1]), np.array([0.3, 0.6, 0.5], np.float32)
REST = ("value", "query", "write", "temperature")


@jax.jit
def agent_state(seed):
    """An agent with three states in memory, and a V that is not 0."""
    state = AGENT.replace(critic_start="random").init(jax.random.key(seed), ENV.observation_size, ENV.num_actions)
    for row in ROWS:
        state = state._replace(memory=AGENT._write(state, jnp.asarray(ENV.states[row]), jax.random.key(0)))
    items, log_weights = jnp.asarray(ENV.states[ROWS]), jnp.log(WEIGHTS)
    return state._replace(memory=state.memory._replace(items=items, log_weights=log_weights))


def decision(row):
    s, m = (jnp.asarray(ENV.states[r]) for r in (row, 8))
    return Decision(s, m, jnp.int32(1), jnp.int32(2))


@functools.partial(jax.jit, static_argnames="row")
def _updated(state, switches, row, delta, delta_critic):
    networks = altered.Networks(state.params, state.params.policy, state.params.value)
    deltas = jnp.float32(delta), jnp.float32(delta_critic)
    return altered.learn(AGENT, networks, decision(row), state.memory, deltas, row >= FIRST, switches)


def updated(state, row=ON, delta=0.4, delta_critic=0.4, **switches):
    return _updated(state, altered.as_numbers(altered.Switches(**switches)), row, delta, delta_critic)


def same(left, right):
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True))


def same_but(name, left, right):
    return all(same(getattr(left.params, other), getattr(right.params, other)) for other in REST if other != name)


@pytest.mark.parametrize("row", [5, ON])
def test_one_update_is_the_agents(row):
    state = agent_state(3)._replace(decision=decision(row))
    timestep = TimeStep(jnp.asarray(ENV.states[7]), jnp.float32(0.7), jnp.array(False), jnp.array(False))
    expected = jax.jit(AGENT.learn)(state, timestep, jax.random.key(1)).params
    delta = float(AGENT.td_error(state, timestep))
    found = updated(state, row, delta, delta)
    for a, b in zip(jax.tree.leaves(found.params), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    assert same(found.policy, state.params.policy) and same(found.value, state.params.value)
    assert not same(found.params.value, state.params.value) and not same(found.params.write, state.params.write)


def test_switches_cut_one_thing_each():
    state = agent_state(4)
    params, plain, off = state.params, updated(state), updated(state, row=5)

    divided = updated(state, divided=True)
    assert same(divided.params.policy, params.policy) and same(divided.policy, plain.params.policy)
    assert same_but("policy", divided, plain) and same(updated(state, row=5, divided=True), off)

    critics = updated(state, divided_critic=True)
    assert same(critics.params.value, params.value) and same(critics.value, plain.params.value)
    assert same(critics.params.policy, plain.params.policy) and same_but("value", critics, plain)
    assert same(updated(state, row=5, divided_critic=True), off)

    frozen = updated(state, row=5, frozen=True)
    assert same(frozen.params.policy, params.policy) and same_but("policy", frozen, off)
    assert same(updated(state, frozen=True), plain)

    capped = updated(state, most=0.01)
    chances = [
        max(jax.nn.softmax(AGENT.policy_logits(p, decision(ON).observation, decision(ON).recalled)))
        for p in (params, plain.params)
    ]
    assert same_but("policy", capped, plain)
    assert same(capped.params.policy, params.policy) == bool(chances[1] > chances[0])
    assert same(updated(state, row=5, most=0.01), off)

    exact = updated(state, delta=-0.1)  # another δ for all but V
    assert same(exact.params.value, plain.params.value) and not same(exact.params.policy, plain.params.policy)


def test_measures_of_hand_set_policies():
    params = agent_state(5).params
    nothing = jax.tree.map(jnp.zeros_like, params.policy)
    ahead = (*nothing[:-1], nothing[-1]._replace(bias=nothing[-1].bias.at[FORWARD].set(np.log(2.0))))

    def measured(policy, divided):
        networks = altered.Networks(params._replace(policy=policy), nothing, params.value)
        return altered.summarise(AGENT, ENV, networks, divided)

    np.testing.assert_allclose(measured(nothing, False)[0], 1 / 3, rtol=1e-6)
    out, forward = measured(ahead, True)  # the chain's policy; that of the decisions stays uniform
    np.testing.assert_allclose(out, [1 / 2, 1 / 2, 1 / 3, 1 / 3], rtol=1e-6)
    np.testing.assert_allclose(forward, 1 / 2, rtol=1e-6)
    np.testing.assert_allclose(measured(ahead, False)[0], 1 / 2, rtol=1e-6)


def test_counts_of_a_short_run():
    steps, seeds = 4000, (0, 1)
    train = functools.partial(altered.train, AGENT, ENV, seeds=seeds, steps=steps, windows=looping.WINDOWS)
    record = train(switches=altered.Switches())
    assert (record.rows[..., 0].sum((1, 2)) == steps).all()
    visits, episodes = record.rows[..., 0].sum(1), record.episodes.sum(1)
    assert (np.abs(visits[:, ENV.decision_row(0, 1)] - episodes) <= 1).all()
    assert not visits[:, ENV.decision_row(0, 0)].any()
    assert (np.abs(visits[:, ON] + visits[:, ENV.decision_row(1, 0)] - episodes) <= 1).all()
    assert (record.rewards.sum(1) <= visits[:, ON]).all() and 0.02 < record.rewards.sum() / episodes.sum() < 0.25
    np.testing.assert_array_equal(record.rows, train(switches=altered.Switches(), workers=1).rows)
    frozen = train(switches=altered.Switches(frozen=True))
    assert not frozen.pushes[..., 0].any() and frozen.pushes[..., 2].any()
    divided = train(switches=altered.Switches(divided=True))
    assert divided.pushes[..., 0].any() and not divided.pushes[..., 1:].any()


def test_the_command(tmp_path, capsys):
    arguments = ["lab", "looping", "--seeds", "2", "--steps", "400", "--picture", str(tmp_path / "l.png")]
    assert cli.main([*arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert set(report["interventions"]) == set(looping.INTERVENTIONS) and report["command"]
    assert (tmp_path / "l.png").stat().st_size > 10_000
    assert cli.main(["lab", "looping", "--seeds", "1", "--steps", "401"]) == 1
    assert "multiple of 40" in capsys.readouterr().err
