"""The compiled steps of the agents with a GRU against the agents they are copies of."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recollect import prng
from recollect.agents.distributions import Gaussian
from recollect.agents.realtime import RealTimeActorCritic
from recollect.agents.recurrent import RecurrentActorCritic
from recollect.engines.choice import host_for
from recollect.engines.host import IDLE, REWARD, TERMINATED, TRUNCATED, Host, TimeStep, blank_rows
from recollect.engines.native import gated_host
from recollect.engines.native.gated_host import GatedHost, RealTimeHost, RecurrentHost
from recollect.errors import FileError

S, A = 3, 4
START = {"width": 5, "learning_rate": 0.02, "critic_start": "random"}
SHORT, LONG = RecurrentActorCritic(**START, window=4), RecurrentActorCritic(**START, window=20)
REAL_TIME = RealTimeActorCritic(**START)
AGENTS = {
    "short": SHORT,
    "short-gates-closed": SHORT.replace(update_start=-2.0, entropy=0.3, discount=0.6),
    "long": LONG,
    "long-slow": LONG.replace(decay=0.99, epsilon=1e-3, learning_rate=0.1),
    "long-linear": LONG.replace(critic_output="linear", initializer="uniform", entropy=0.0),
    "two-registers": SHORT.replace(width=11, window=6, critic_start="zero"),
    "one-step": SHORT.replace(width=8, window=1),
    "real-time": REAL_TIME,
    "real-time-gates-closed": REAL_TIME.replace(update_start=-2.0, entropy=0.3, discount=0.6, epsilon=1e-3),
    "real-time-linear": REAL_TIME.replace(width=11, critic_output="linear", initializer="uniform"),
}
EACH = pytest.mark.parametrize("agent", [SHORT, REAL_TIME], ids=["recurrent", "real-time"])


def rows_of(steps, seed=0, copies=1):
    """Episodes of 6 and of 3 steps, which end in the one way and in the other."""
    rng = np.random.default_rng(seed)
    for t in range(steps):
        rows = blank_rows(copies, S)
        rows[:, : 2 * S] = rng.normal(size=(copies, 2 * S))
        rows[:, 2 * S + REWARD] = rng.normal(size=copies)
        rows[:, 2 * S + (TERMINATED if t % 9 == 5 else TRUNCATED)] = t % 9 in (5, 8)
        yield rows


def begun(agent, copies=1, seed=7):
    host = host_for(agent, S, A, copies)
    assert isinstance(host, GatedHost)
    return host, host.begin(host.start(seed), np.ones((copies, S), np.float32))[0]


def one(live):
    return jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), live)


@jax.jit
def after(agent, state, row):
    """The definition's next state; one program for all agents that differ in numbers alone."""
    over = (row[2 * S + TERMINATED] > 0) | (row[2 * S + TRUNCATED] > 0)
    timestep = TimeStep(row[:S], row[2 * S + REWARD], row[2 * S + TERMINATED] > 0, row[2 * S + TRUNCATED] > 0)
    state, sound = agent.update(state, timestep, prng.key(0))
    return agent.begin(state, jnp.where(over, row[S : 2 * S], row[:S]), prng.key(0))[0], sound


def compared(state):
    """What two states must agree in: not the action, drawn by other random numbers, nor what is left of older steps."""
    state = state._replace(decision=state.decision._replace(action=0))
    if not hasattr(state, "past"):
        return state
    length = int(state.past.length)
    unrolled = state.unrolled._replace(gates=state.unrolled.gates[:length], earlier=state.unrolled.earlier[:length])
    return state._replace(past=state.past._replace(observations=state.past.observations[:length]), unrolled=unrolled)


def assert_close(found, expected):
    """Two states alike up to rounding."""
    found, expected = compared(found), compared(expected)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=3e-4, atol=3e-5, err_msg=jax.tree_util.keystr(path))


@pytest.mark.parametrize("agent", AGENTS.values(), ids=AGENTS)
def test_every_step_is_the_agents(agent):
    """Through four ends of episodes, with full and filling windows: everything after each step, from the same state."""
    host, flat = begun(agent)
    for rows in rows_of(20):
        expected, _ = after(agent, one(host.unpack(flat)).agent, rows[0])
        flat, actions, bad = host.step(flat, rows)
        found = one(host.unpack(flat)).agent
        assert_close(found, expected)
        assert bad == -1 and actions[0] == int(found.decision.action)


def test_gradients_that_vanish():
    """With a GRU that forgets within a step, nothing comes back to the steps before, and the rest is the agent's."""
    host, flat = begun(LONG.replace(update_start=30.0))
    live = host.unpack(flat)
    gru = live.agent.params.gru
    faint = gru.candidate._replace(weight=gru.candidate.weight * np.float32(1e-20))
    params = live.agent.params._replace(gru=gru._replace(candidate=faint))
    flat = host.pack(live._replace(agent=live.agent._replace(params=params)))
    for rows in rows_of(5):
        expected, _ = after(LONG, one(host.unpack(flat)).agent, rows[0])
        still = flat.theta.copy()
        flat, *_ = host.step(flat, rows)
        assert_close(one(host.unpack(flat)).agent, expected)
        flat.theta[:] = still


@EACH
def test_states_go_to_jax_and_back(agent):
    """What one host saves, the other goes on with."""
    host, flat = begun(agent, copies=2)
    for rows in rows_of(4, copies=2):
        flat, *_ = host.step(flat, rows)
    live = host.unpack(flat)
    shapes = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), live)
    assert shapes == jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), host.like())
    jax.tree.map(np.testing.assert_array_equal, host.unpack(host.pack(live)), live)
    other = Host(agent, S, A, copies=2, shared=False)
    assert shapes == jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), other.like())
    packed = other.pack(live)
    for rows in rows_of(8, copies=2, seed=1):
        there = other.unpack(packed)
        flat, *_ = host.step(host.pack(there), rows)
        packed, *_ = other.step(packed, rows)
        assert_close(one(host.unpack(flat)).agent, one(other.unpack(packed)).agent)
    assert np.array_equal(live.key, other.unpack(packed).key) and int(there.time[0]) == 12


@EACH
def test_fresh_agents_are_the_same(agent):
    host, other = host_for(agent, S, A, 2), Host(agent, S, A, 2, shared=False)
    ours, theirs = host.unpack(host.start(3)), other.unpack(other.start(np.uint32(3)))
    jax.tree.map(np.testing.assert_array_equal, ours, jax.tree.map(np.asarray, theirs))


@EACH
def test_what_is_not_finite_is_not_learned(agent):
    """Nor does it stay: an observation is taken in as 0, and learning goes on from the next step."""
    host, flat = begun(agent, copies=2)
    steps = rows_of(8, copies=2)
    before = [x.copy() for x in (flat.theta, flat.squares)]
    for spoil in (2 * S + REWARD, 1):
        rows = next(steps)
        rows[1, spoil] = np.nan
        flat, _, bad = host.step(flat, rows)
        assert bad == 1
        assert np.array_equal(flat.theta[1], before[0][1]) and np.array_equal(flat.squares[1], before[1][1])
        assert not np.array_equal(flat.theta[0], before[0][0])
    expected, sound = after(agent, jax.tree.map(lambda leaf: jnp.asarray(leaf[1]), host.unpack(flat)).agent, rows[0])
    flat, actions, bad = host.step(flat, np.repeat(rows[:1], 2, axis=0))
    assert bad == 1 and not sound, "the observation under way is the one that was spoilt"
    assert 0 <= actions[1] < A
    assert_close(jax.tree.map(lambda leaf: leaf[1], host.unpack(flat)).agent, expected)
    flat, _, bad = host.step(flat, next(steps))
    assert bad == -1 and not np.array_equal(flat.theta[1], before[0][1])


@EACH
def test_watching_and_waiting(agent):
    """Watching moves no parameters and sees all; a copy that is idle stays as it is."""
    host, flat = begun(agent, copies=2)
    other = Host(agent, S, A, copies=2, shared=False)
    packed = other.pack(host.unpack(flat))
    for t, rows in enumerate(rows_of(8, copies=2)):
        rows[1, 2 * S + IDLE] = t > 4
        still = jax.tree.map(lambda leaf: leaf[1], host.unpack(flat))
        flat, _ = host.watch(flat, rows)
        packed, _ = other.watch(packed, rows)
        if t > 4:
            now = jax.tree.map(lambda leaf: leaf[1], host.unpack(flat))
            jax.tree.map(np.testing.assert_array_equal, now, still)
        assert_close(one(host.unpack(flat)).agent, one(other.unpack(packed)).agent)
    step = host.step(flat, rows)
    jax.tree.map(np.testing.assert_array_equal, jax.tree.map(lambda leaf: leaf[1], host.unpack(step[0])), still)


@EACH
def test_forgetting(agent):
    """The next episode is as a first one."""
    first = np.float32([[0.3, -1.0, 2.0]])
    host, flat = begun(agent)
    for rows in rows_of(3):
        flat, _ = host.watch(flat, rows)
    flat, _ = host.begin(host.forget(flat), first)
    fresh, _ = host.begin(host.start(7), first)
    assert_close(one(host.unpack(flat)).agent, one(host.unpack(fresh)).agent)
    assert np.isnan(host.write_weights(flat, np.zeros((1, 5, S), np.float32))).all()


@EACH
def test_choices_have_the_agents_probabilities(agent):
    runs = 20_000
    host = host_for(agent, S, A, runs)
    flat = host.start(0)
    flat.theta[:] = 3 * flat.theta[0]  # one agent, with choices that are not alike, many random streams
    rows = np.repeat(next(rows_of(1)), runs, axis=0)
    flat, _ = host.begin(flat, rows[:, :S])
    flat, actions = host.watch(flat, rows)
    state = one(host.unpack(flat)).agent
    h = state.unrolled.h if isinstance(agent, RecurrentActorCritic) else state.h
    p = jax.nn.softmax(agent.policy_logits(state.params, jnp.asarray(rows[0, :S]), h))
    assert np.ptp(p) > 0.1
    np.testing.assert_allclose(np.bincount(actions, minlength=A) / runs, p, atol=0.015)


@EACH
def test_states_that_point_elsewhere_are_refused(agent):
    host, flat = begun(agent)
    live = host.unpack(flat)
    spoilt = [live._replace(agent=live.agent._replace(decision=live.agent.decision._replace(action=np.int32([A]))))]
    if isinstance(agent, RecurrentActorCritic):
        for length in (-1, agent.window + 1):
            past = live.agent.past._replace(length=np.int32([length]))
            spoilt.append(live._replace(agent=live.agent._replace(past=past)))
    for state in spoilt:
        with pytest.raises(FileError, match="not sound"):
            host.pack(state)


@EACH
def test_who_is_served_by_whom(agent):
    assert isinstance(host_for(agent, S, A), GatedHost) and host_for(agent, S, A) is host_for(agent, S, A)
    assert isinstance(host_for(agent, S, A, 2, True), Host)
    other = {"activation": "relu", "critic_output": "linear", "actions": Gaussian(2)}
    for field in dataclasses.fields(agent):
        if field.name not in gated_host.KNOWN:
            known = other[field.name] in gated_host.CHOICES.get(field.name, ())
            assert isinstance(host_for(agent.replace(**{field.name: other[field.name]}), S, A), GatedHost) == known


def test_each_has_its_own():
    assert type(host_for(SHORT, S, A)) is RecurrentHost and type(host_for(REAL_TIME, S, A)) is RealTimeHost
