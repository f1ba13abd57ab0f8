"""The compiled step against the agent it is a copy of."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recollect import prng
from recollect.agents.episodic import EpisodicActorCritic
from recollect.engines.choice import host_for
from recollect.engines.host import REWARD, TERMINATED, TRUNCATED, Host, TimeStep, blank_rows
from recollect.engines.native.episodic_host import EpisodicHost
from recollect.reservoir import law

S, H, A, N = 3, 5, 4, 3
SETTINGS = [
    {},
    {"estimator": "every", "entropy": 0.3},
    {"memory": "uniform", "critic_output": "linear"},
    {"memory": "fifo", "bias_rate": 0.5, "discount": 0.7, "terminal_value": 0.4},
    {"memory": "none", "entropy": 0.1},
    {"trace_decay": 0.0, "surprise": 0.2},
    {"trace_decay": 0.8, "entropy": 0.2, "estimator": "every", "write_rate": 3.0, "credit_cap": 0.9},
    {"log_weight_floor": -0.1, "query_gain": 2.0, "temperature_start": 0.5},
    {"products": 4, "policy_rate": 2.0, "entropy": 0.2, "bias_rate": 0.5},
    {"products": 2, "trace_decay": 0.0, "memory": "fifo"},
    {"optimizer": "rmsprop", "learning_rate": 0.02, "square_decay": 0.9, "epsilon": 0.01},
    {"optimizer": "rmsprop", "learning_rate": 0.02, "trace_decay": 0.0, "entropy": 0.2, "estimator": "every"},
    {"query_openness": 2.0, "entropy": 0.3, "temperature_start": 0.5},
    {"query_openness": 0.5, "trace_decay": 0.0, "surprise": 0.4, "query_gain": 2.0},
]


def agent_of(**options):
    return EpisodicActorCritic(
        **{"memory_size": N, "hidden": H, "learning_rate": 0.2, "critic_start": "random", **options}
    )


def timestep(row):
    extra = row[2 * S :]
    flags = jnp.asarray(extra[TERMINATED] > 0), jnp.asarray(extra[TRUNCATED] > 0)
    return TimeStep(jnp.asarray(row[:S]), jnp.asarray(extra[REWARD]), *flags)


def rows_of(steps, seed=0):
    rng = np.random.default_rng(seed)
    for t in range(steps):
        rows = blank_rows(1, S)
        rows[0, : 2 * S] = rng.normal(size=2 * S)
        rows[0, 2 * S + REWARD] = rng.normal()
        rows[0, 2 * S + (TERMINATED if t % 9 == 5 else TRUNCATED)] = t % 9 in (5, 8)
        yield rows


def again(steps, seed=0):
    """The same, but for observations that are four vectors over and over."""
    few = np.random.default_rng(1).normal(size=(4, S))
    for t, rows in enumerate(rows_of(steps, seed)):
        rows[0, :S], rows[0, S : 2 * S] = few[t % 7 % 4], few[t % 3]
        yield rows


def one(live):
    return jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), live)


@jax.jit
def learn(agent, state, timestep):
    """One program for all agents that differ in numbers alone."""
    return agent.learn(state, timestep, prng.key(0))


DISTINCT = [{"distinct": True, "memory": memory} for memory in ("reservoir", "uniform", "fifo")]


@pytest.mark.parametrize("options, rows_of", [*((x, rows_of) for x in SETTINGS), *((x, again) for x in DISTINCT)])
def test_every_update_is_the_agents(options, rows_of):
    """Through two ends of episodes, with full and filling memories: parameters after each step, from the same state."""
    agent = agent_of(**options)
    host = EpisodicHost(agent, S, A)
    flat = host.start(7)
    flat, _ = host.begin(flat, np.ones((1, S), np.float32))
    for rows in rows_of(14):
        before = one(host.unpack(flat)).agent
        expected = learn(agent, before, timestep(rows[0]))
        flat, *_ = host.step(flat, rows)
        found = one(host.unpack(flat)).agent
        for name in ("params", "traces", "squares") if agent.trace_decay else ("params", "squares"):
            for a, b in zip(*(jax.tree.leaves(getattr(x, name)) for x in (found, expected)), strict=True):
                np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
        if agent.memory == "reservoir":
            ours, theirs = found.memory.law, expected.memory.law
            np.testing.assert_allclose(ours.high + ours.low, theirs.high + theirs.low, rtol=1e-5, atol=1e-5)
        assert int(found.memory.seen) == int(expected.memory.seen)
        assert int(found.memory.count) == int(expected.memory.count)
        if agent.distinct:
            held = np.asarray(found.memory.items)[np.asarray(found.memory.filled)]
            assert len(np.unique(held, axis=0)) == len(held)


def test_memories_keep_what_their_law_says():
    """How often each of five states stays, by its weight, against the law; and for the other two laws."""
    steps, runs = 6, 4000
    agent = agent_of(memory_size=2, write_gain=3.0)
    for memory in ("reservoir", "uniform", "fifo"):
        host = EpisodicHost(agent.replace(memory=memory), S, A, copies=runs)
        flat = host.start(0)
        flat.theta[:] = flat.theta[0]  # one agent, many random streams
        flat, _ = host.begin(flat, np.tile(np.float32([1, 0, 0]), (runs, 1)))
        rng = np.random.default_rng(1)
        seen = [np.float32([1, 0, 0])]
        for _ in range(steps):
            rows = blank_rows(runs, S)
            rows[:, :S] = rng.normal(size=S)
            seen.append(rows[0, :S].copy())
            flat, _ = host.watch(flat, rows)
        params = one(host.unpack(flat)).agent.params
        log_w = np.array(jax.jit(jax.vmap(agent.log_write_weight, (None, 0)))(params, np.stack(seen[:-1])), float)
        kept = np.array([(flat.items == s).all(axis=-1).any(axis=-1).mean() for s in seen[:-1]])
        if memory == "reservoir":
            expected = law.inclusion_probabilities(log_w, 2)
            assert np.ptp(expected) > 0.1
        else:
            expected = np.full(steps, 2 / steps) if memory == "uniform" else np.repeat([0.0, 1.0], [steps - 2, 2])
        np.testing.assert_allclose(kept, expected, atol=4 * 0.5 / np.sqrt(runs))


def test_choices_have_the_agents_probabilities():
    runs = 20_000
    agent = agent_of(memory="fifo", policy_gain=2.0)
    host = EpisodicHost(agent, S, A, copies=runs)
    flat = host.start(3)
    flat.theta[:] = flat.theta[0]
    flat, _ = host.begin(flat, np.tile(np.float32([1, 0, 0]), (runs, 1)))
    for rows in rows_of(3):
        flat, _ = host.watch(flat, np.repeat(rows, runs, axis=0))
    rows = np.repeat(next(rows_of(1, seed=9)), runs, axis=0)
    flat, actions = host.watch(flat, rows)
    live = host.unpack(flat)
    state = one(live).agent
    logits = agent._query_logits(state.params, jnp.asarray(rows[0, :S]), state.memory)
    slots = np.asarray(live.agent.decision.slot)
    np.testing.assert_allclose(np.bincount(slots, minlength=N) / runs, jax.nn.softmax(logits), atol=0.015)
    for slot in range(N):
        p = jax.nn.softmax(agent.policy_logits(state.params, jnp.asarray(rows[0, :S]), state.memory.items[slot]))
        mine = actions[slots == slot]
        np.testing.assert_allclose(np.bincount(mine, minlength=A) / len(mine), p, atol=0.03)


def test_there_and_back():
    host = EpisodicHost(agent_of(products=2), S, A, copies=2)
    flat = host.start(5)
    flat, _ = host.begin(flat, np.ones((2, S), np.float32))
    for rows in rows_of(4):
        flat, *_ = host.step(flat, np.repeat(rows, 2, axis=0))
    again = host.pack(host.unpack(flat))
    assert all(map(np.array_equal, flat, again))
    weights = host.write_weights(flat, np.ones((2, 1, S), np.float32))
    state = jax.tree.map(lambda leaf: leaf[1], host.unpack(flat)).agent
    assert weights[1, 0] == pytest.approx(
        float(jnp.exp(host.agent.log_write_weight(state.params, jnp.ones(S)))), rel=1e-4
    )


def test_what_is_not_finite_is_not_learned():
    host = EpisodicHost(agent_of(), S, A)
    flat = host.start(5)
    flat, _ = host.begin(flat, np.ones((1, S), np.float32))
    before = flat.theta.copy()
    rows = next(rows_of(1))
    rows[0, 2 * S + REWARD] = np.nan
    flat, *_ = host.step(flat, rows)
    assert np.array_equal(flat.theta, before)


def test_who_is_served_by_whom():
    assert isinstance(host_for(agent_of(), S, A), EpisodicHost) and host_for(agent_of(), S, A) is host_for(
        agent_of(), S, A
    )
    assert isinstance(host_for(agent_of(), S, A, 2, True), Host)
    assert isinstance(host_for(agent_of(activation="relu"), S, A), Host)
