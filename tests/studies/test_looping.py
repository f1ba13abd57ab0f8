"""The looping experiment: its loop is the agent's, its measures are what they say, its switches cut one thing each."""

import copy
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recollect import cli
from recollect.agents.episodic import Decision, EpisodicActorCritic
from recollect.envs.base import TimeStep
from recollect.envs.secret_informant import FORWARD
from recollect.studies import looping, scalar

pytestmark = pytest.mark.slow

ENV = looping.ENV
AGENT = EpisodicActorCritic.preset("paper", memory_size=3)
STATES = np.asarray(ENV.states, np.float64)
FIRST = ENV.decision_row(0, 0)
ON = ENV.decision_row(1, 1)
MEMORY = scalar.Memory(np.array([3, 8, 1]), np.array([0.3, 0.6, 0.5]), np.zeros(3), np.array([3]))


@jax.jit
def agent_state(seed):
    """An agent with three states in memory, and a V that is not 0."""
    state = AGENT.replace(critic_start="random").init(jax.random.key(seed), ENV.observation_size, ENV.num_actions)
    for row in MEMORY.rows:
        state = state._replace(memory=AGENT._write(state, jnp.asarray(ENV.states[row]), jax.random.key(0)))
    items, log_weights = jnp.asarray(ENV.states[MEMORY.rows]), jnp.log(jnp.asarray(MEMORY.weights, jnp.float32))
    return state._replace(memory=state.memory._replace(items=items, log_weights=log_weights))


def learnt(params, switches=scalar.Switches(), row=ON, delta=0.4, delta_critic=0.4):  # noqa: B008
    params = copy.deepcopy(params)
    scalar.learn(params, STATES, row, 8, 1, 2, MEMORY, delta, delta_critic, row >= FIRST, switches)
    return params


def same(left, right):
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True))


@pytest.mark.parametrize("row", [5, ON])
def test_one_update_is_the_agents(row):
    state = agent_state(3)
    s, m = (jnp.asarray(ENV.states[r]) for r in (row, 8))
    state = state._replace(decision=Decision(s, m, jnp.int32(1), jnp.int32(2)))
    after = jnp.asarray(ENV.states[7])
    timestep = TimeStep(after, jnp.float32(0.7), jnp.array(False), jnp.array(False))
    expected = scalar.parameters(jax.jit(AGENT.learn)(state, timestep, jax.random.key(1)).params)
    params = scalar.parameters(state.params)
    delta = 0.7 + scalar.value(params.value, STATES[7]) - scalar.value(params.value, STATES[row])
    found = learnt(params, row=row, delta=delta, delta_critic=delta)
    for a, b in zip(found.policy, expected.policy, strict=True):
        np.testing.assert_allclose(a[0], b[0], atol=2e-6)
    for name in ("value", "query", "write", "log_tau"):
        for a, b in zip(jax.tree.leaves(getattr(found, name)), jax.tree.leaves(getattr(expected, name)), strict=True):
            np.testing.assert_allclose(a, b, atol=2e-6)
    assert not same(found.value, params.value) and not same(found.write, params.write)


def test_switches_cut_one_thing_each():
    params = scalar.parameters(agent_state(4).params)
    plain, off = learnt(params), learnt(params, row=5)
    rest = ("value", "query", "write", "log_tau")

    divided = learnt(params, scalar.Switches(divided=True))
    for before, usual, now in zip(params.policy, plain.policy, divided.policy, strict=True):
        assert np.array_equal(now[0], before[0]) and np.array_equal(now[1], usual[0])
    assert all(same(getattr(divided, name), getattr(plain, name)) for name in rest)
    assert same(learnt(params, scalar.Switches(divided=True), row=5), off)

    critics = learnt(params, scalar.Switches(divided_critic=True))
    assert same(critics.value, params.value) and same(critics.critic, plain.value)
    assert all(same(getattr(critics, name), getattr(plain, name)) for name in ("policy", "query", "write", "log_tau"))
    assert same(learnt(params, scalar.Switches(divided_critic=True), row=5), off)

    frozen = learnt(params, scalar.Switches(frozen=True), row=5)
    assert same(frozen.policy, params.policy) and all(same(getattr(frozen, name), getattr(off, name)) for name in rest)
    assert same(learnt(params, scalar.Switches(frozen=True)), plain)

    capped = learnt(params, scalar.Switches(most=0.01))
    assert all(same(getattr(capped, name), getattr(plain, name)) for name in rest)
    h, p, q = np.empty(10), np.empty(3), np.empty(3)
    scalar.probabilities(params.policy, 0, STATES[ON], STATES[8], h, h.copy(), p)
    scalar.probabilities(plain.policy, 0, STATES[ON], STATES[8], h, h.copy(), q)
    assert same(capped.policy, params.policy) == (q.max() > p.max())
    assert same(learnt(params, scalar.Switches(most=0.01), row=5), off)

    exact = learnt(params, delta=-0.1)  # another δ for all but V
    assert same(exact.value, plain.value) and not same(exact.policy, plain.policy)


def test_measures_of_hand_set_policies():
    params = scalar.parameters(agent_state(5).params)
    for x in params.policy:
        x[:] = 0.0
    out, forward = np.empty(4), np.empty(FIRST)
    scalar.summarise(params.policy, False, STATES, FIRST, out, forward)
    np.testing.assert_allclose(out, 1 / 3)
    params.policy[5][0, FORWARD] = np.log(2.0)  # the chain's policy; that of the decisions stays uniform
    scalar.summarise(params.policy, True, STATES, FIRST, out, forward)
    np.testing.assert_allclose(out, [1 / 2, 1 / 2, 1 / 3, 1 / 3])
    np.testing.assert_allclose(forward, 1 / 2)
    scalar.summarise(params.policy, False, STATES, FIRST, out, forward)
    np.testing.assert_allclose(out, 1 / 2)


def test_counts_of_a_short_run():
    steps = 4000
    record = scalar.train(AGENT, ENV, scalar.Switches(), 0, steps, looping.WINDOWS)
    assert record.rows[..., 0].sum() == steps
    visits = record.rows[..., 0].sum(0)
    episodes = record.episodes.sum()
    assert abs(visits[ENV.decision_row(0, 1)] - episodes) <= 1 and visits[ENV.decision_row(0, 0)] == 0
    assert abs(visits[ON] + visits[ENV.decision_row(1, 0)] - episodes) <= 1
    assert record.rewards.sum() <= visits[ON] and 0.02 < record.rewards.sum() / episodes < 0.25
    np.testing.assert_array_equal(
        record.rows, scalar.train(AGENT, ENV, scalar.Switches(), 0, steps, looping.WINDOWS).rows
    )
    frozen = scalar.train(AGENT, ENV, scalar.Switches(frozen=True), 0, steps, looping.WINDOWS)
    assert not frozen.pushes[:, 0].any() and frozen.pushes[:, 2].any()
    divided = scalar.train(AGENT, ENV, scalar.Switches(divided=True), 0, steps, looping.WINDOWS)
    assert divided.pushes[:, 0].any() and not divided.pushes[:, 1:].any()


def test_the_command(tmp_path, capsys):
    arguments = ["lab", "looping", "--seeds", "2", "--steps", "400", "--picture", str(tmp_path / "l.png")]
    assert cli.main([*arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert set(report["interventions"]) == set(looping.INTERVENTIONS) and report["command"]
    assert (tmp_path / "l.png").stat().st_size > 10_000
    assert cli.main(["lab", "looping", "--seeds", "1", "--steps", "401"]) == 1
    assert "multiple of 40" in capsys.readouterr().err
