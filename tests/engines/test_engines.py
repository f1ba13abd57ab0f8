"""Compiled loops against the definition: the same runs, step for step."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recollect.agents.episodic import EpisodicActorCritic
from recollect.engines import compiled, loop, packing
from recollect.envs.secret_informant import SecretInformant
from tiers import first_quick

STEPS = 150
LIMITS = (10**6, 3, 40, 10**6)

# (agent, environment): all memories, estimators and sizes between them; hyperparameters are drawn for each run.
CONFIGURATIONS = [
    ({}, {"length": 6, "decisions": 2}),
    ({"memory": "uniform", "memory_size": 5, "hidden": 17, "estimator": "every"}, {"length": 7, "actions": 2}),
    ({"memory": "fifo", "estimator": "every", "hidden": 1}, {"length": 4, "decisions": 3, "actions": 4}),
    ({"memory": "none", "trace_decay": 0.0, "hidden": 16}, {"length": 1, "correct_path_bit": False}),
    ({"oracle_bit": 3, "memory_size": 40, "hidden": 4, "trace_decay": 0.0}, {"length": 12, "path_bit_in_chain": True}),
]


def drawn_agents(options, runs, seed):
    """The agent with hyperparameters that differ from run to run."""
    rng = np.random.default_rng(seed)

    def one_each(low, high):
        return jnp.asarray(rng.uniform(low, high, runs), jnp.float32)

    changes = {
        "learning_rate": one_each(0.005, 0.05),
        "discount": one_each(0.9, 1.0),
        "entropy": one_each(0.0, 0.01),
        "surprise": one_each(0.0, 0.05),
        "trace_decay": one_each(0.0, 0.9),
        "value_rate": one_each(0.5, 2.0),
        "policy_rate": one_each(0.5, 2.0),
        "query_rate": one_each(0.5, 2.0),
        "write_rate": one_each(0.5, 2.0),
        "bias_rate": one_each(0.0, 1.0),
        "terminal_value": one_each(-0.2, 0.2),
        "credit_cap": jnp.where(one_each(0, 1) < 0.5, 1.5, math.inf),
        "log_weight_floor": jnp.where(one_each(0, 1) < 0.5, -0.7, -math.inf),
        "query_gain": 1.0,
        "write_gain": 1.0,
    }
    agent = EpisodicActorCritic(**options)
    fields = {**changes, **options}
    values = {name: fields[name] for name in changes}
    leaves = {name: jnp.broadcast_to(jnp.asarray(value, jnp.float32), runs) for name, value in values.items()}
    agents = loop.broadcast(agent, runs)
    for name, value in leaves.items():
        object.__setattr__(agents, name, value)
    return agent, agents


def runs_of(case):
    """Five runs of a configuration before their first step."""
    options, world = CONFIGURATIONS[case]
    env, (agent, agents) = SecretInformant(**world), drawn_agents(options, 5, case)
    return env, agent, agents, loop.start(agents, env, jnp.arange(5, dtype=jnp.uint32) + 100 * case, 4)


@functools.partial(jax.jit, static_argnames=("env", "steps"))
def defined(agents, env, runs, limits, steps):
    def one(agent, run):
        return jax.lax.scan(lambda r, _: (loop.step_run(agent, env, r, *limits), None), run, length=steps)[0]

    return jax.vmap(one)(agents, runs)


@pytest.fixture
def short_records(monkeypatch):
    """Three records in the steps of a test."""
    monkeypatch.setattr(loop, "RECORD", STEPS // 3)


def numbers(runs):
    return [np.asarray(x) for x in jax.tree.leaves(runs._replace(key=jax.random.key_data(runs.key)))]


def close(got, wanted):
    for a, b in zip(numbers(got), numbers(wanted), strict=True):
        if b.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
        else:
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("case", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in range(1, len(CONFIGURATIONS)))])
def test_compiled_runs_follow_the_definition(case, short_records):
    """Hyperparameters that differ from run to run among it."""
    env, _, agents, start = runs_of(case)
    runs, record = compiled.advance(agents, env, start, LIMITS, 3)
    end = defined(agents, env, start, tuple(jnp.int32(x) for x in LIMITS), STEPS)
    close(runs, end)
    np.testing.assert_array_equal(record.episode[:, -1], end.episode)
    read = jax.vmap(lambda a, r: loop.read_record(a, env, r.episode, r.steps, r.agent.params))(agents, end)
    np.testing.assert_allclose(record.query_vectors[:, -1], read.query_vectors, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(record.write_weights[:, -1], read.write_weights, rtol=1e-5, atol=1e-5)
    assert int(end.episode.min()) >= 1


def test_bits_do_not_depend_on_company_or_on_how_many_records_a_call_makes(short_records):
    env, _, agents, start = runs_of(0)
    whole, _ = compiled.advance(agents, env, start, LIMITS, 3)
    first, _ = compiled.advance(agents, env, start, LIMITS, 1)
    again, _ = compiled.advance(agents, env, first, LIMITS, 2)
    take = lambda tree, k: jax.tree.map(lambda x: x[k : k + 2], tree)  # noqa: E731
    pair, _ = compiled.advance(take(agents, 2), env, take(start, 2), LIMITS, 3)
    for a, b, c in zip(numbers(whole), numbers(again), numbers(pair), strict=True):
        assert a.tobytes() == b.tobytes() and a[2:4].tobytes() == c.tobytes()


def test_runs_stop_at_their_episodes_or_steps(short_records):
    env, _, agents, start = runs_of(0)
    limits = (4, 1, 40, 90)
    runs, _ = compiled.advance(agents, env, start, limits, 3)
    end = defined(agents, env, start, tuple(jnp.int32(x) for x in limits), STEPS)
    np.testing.assert_array_equal(runs.episode, end.episode)
    np.testing.assert_array_equal(runs.steps, end.steps)
    np.testing.assert_array_equal(runs.sums, end.sums)
    assert set(np.asarray(end.episode) == 4) == {True, False}, "runs should end either way"


@pytest.mark.parametrize("case", first_quick([0, 2]), ids=["reservoir", "fifo"])
def test_tables_there_and_back(case):
    """With the chances to drop among the other numbers, as on a GPU, and in a table of their own, as on a CPU."""
    env, _, agents, start = runs_of(case)
    runs = defined(agents, env, start, tuple(jnp.int32(x) for x in LIMITS), STEPS)
    packed = packing.pack(env, runs)
    again = packing.unpack(env, packed, runs)
    for a, b in zip(*(jax.tree.leaves(x._replace(key=jax.random.key_data(x.key))) for x in (runs, again)), strict=True):
        np.testing.assert_array_equal(a, b)
