"""Whole agents in whole environments: compiled as `vmap` of JAX has them, and the same bits for any width."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recollect import EpisodicActorCritic, RecurrentActorCritic, SecretInformant
from recollect.agents.realtime import RealTimeActorCritic
from recollect.engines import compiled, compiled_host, loop
from recollect.engines.compiler import cache, fleet
from recollect.engines.compiler.fleet import Fleet
from recollect.engines.compiler.program import Program
from recollect.engines.host import Host, blank_rows
from recollect.envs.signed_informant import SignedInformant
from recollect.envs.t_maze import TMaze

pytestmark = pytest.mark.skipif(
    jax.default_backend() != "cpu", reason="compiled code is compared with XLA's on one CPU"
)

PAIRS = {
    "robust": (EpisodicActorCritic(memory_size=3), SecretInformant(length=4, actions=2)),
    "recommended": (
        EpisodicActorCritic(distinct=True, query_openness=1.0, products=4, critic_output="linear", hidden=5),
        TMaze(length=4),
    ),
    "others": (
        EpisodicActorCritic(memory="fifo", estimator="every", encoder="recurrent", activation="relu", write="before"),
        SignedInformant(3),
    ),
    "uniform": (EpisodicActorCritic(memory="uniform", objective="average", temperature="softplus"), TMaze(length=3)),
    "backpropagation": (RecurrentActorCritic(width=5), TMaze(length=4)),
    "real time": (RealTimeActorCritic(width=5), TMaze(length=4)),
}
LIMITS = (10**6, 10**5, 40, 10**6)
RUNS, STEPS = 3, 400
FEWER = {"backpropagation": 80, "real time": 80}
"""Steps where RMSProp magnifies rounding: of a direction near 0 it makes a full step either way."""


def _started(agent, env):
    agents = loop.broadcast(agent, RUNS)
    return agents, loop.start(agents, env, jnp.arange(RUNS, dtype=jnp.uint32), compiled.LEAST_BINS)


def _compiled(agent, env, runs, lanes, steps):
    step, _ = compiled._programs.__wrapped__(
        jax.tree.structure(agent), env, compiled.LEAST_BINS, lanes, (True,) * _inputs(agent)
    )
    fleet = Fleet(step.state, RUNS, lanes)
    fleet.load(runs)
    for call in fleet.attach(step, [*(np.float32(x) for x in jax.tree.leaves(agent)), *map(np.int32, LIMITS)]):
        call.advance(steps)
    return fleet.unload()


def _inputs(agent):
    return len(jax.tree.leaves(agent)) + len(LIMITS)


def _numbers(tree):
    keyed = lambda x: jnp.issubdtype(x.dtype, jax.dtypes.prng_key)  # noqa: E731
    return [np.asarray(jax.random.key_data(x) if keyed(x) else x) for x in jax.tree.leaves(tree)]


@pytest.mark.parametrize("name", PAIRS)
def test_a_pair_is_what_jax_makes_of_it_and_the_same_bits_in_any_company(name):
    (agent, env), steps = PAIRS[name], FEWER.get(name, STEPS)
    agents, runs = _started(agent, env)
    one = functools.partial(loop.step_run, env=env)

    def many(agent, run):
        return jax.lax.scan(
            lambda r, _: (
                one(agent, run=r, episodes=LIMITS[0], bin_size=LIMITS[1], cap=LIMITS[2], max_steps=LIMITS[3]),
                None,
            ),
            run,
            length=steps,
        )[0]

    wanted = _numbers(jax.jit(jax.vmap(many))(agents, runs))
    alone, together = (_numbers(_compiled(agent, env, runs, lanes, steps)) for lanes in (1, 4))
    for want, a, b in zip(wanted, alone, together, strict=True):
        assert a.tobytes() == b.tobytes()
        if want.dtype.kind == "f":
            np.testing.assert_allclose(a, want, rtol=1e-5, atol=1e-5)
        else:
            np.testing.assert_array_equal(a, want)


@pytest.mark.parametrize(
    ("copies", "shared", "large"), [(1, False, 10**6), (3, False, 10**6), (3, False, 0), (3, True, 10**6)]
)
def test_the_calls_of_a_learner_are_the_hosts(copies, shared, large, monkeypatch):
    monkeypatch.setattr(fleet, "LARGE", large)  # copies that are large are not lanes, but one after another
    agent = EpisodicActorCritic(memory_size=2, hidden=4)
    hosts = [kind(agent, 4, 3, copies, shared) for kind in (Host, compiled_host.CompiledHost)]
    states = [host.start(np.uint32(5)) for host in hosts]
    random, rows = np.random.default_rng(0), blank_rows(copies, 4)
    for t in range(60):
        rows[:, :9] = random.normal(size=(copies, 9))
        rows[:, 9:] = random.uniform(size=(copies, 3)) < 0.1
        rows[:, 11] *= copies > 1
        name = "begin" if t == 0 else "watch" if t % 17 == 16 else "step"
        results = [getattr(h, name)(s, rows[:, :4] if t == 0 else rows) for h, s in zip(hosts, states, strict=True)]
        states = [result[0] for result in results]
        np.testing.assert_array_equal(*(np.asarray(result[1]) for result in results))
        if name == "step":
            assert [int(result[2]) for result in results] == [-1, -1]
    ends = [host.unpack(host.forget(state)) for host, state in zip(hosts, states, strict=True)]
    for want, got in zip(*map(_numbers, ends), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    again = hosts[1].pack(ends[1])
    for want, got in zip(_numbers(ends[1]), _numbers(hosts[1].unpack(again)), strict=True):
        np.testing.assert_array_equal(got, want)


def test_an_update_that_is_not_finite_is_reported_and_not_made():
    agent = EpisodicActorCritic(memory_size=2, hidden=4)
    host = compiled_host.CompiledHost(agent, 4, 3)
    rows = blank_rows(1, 4)
    state, _ = host.begin(host.start(np.uint32(0)), rows[:, :4])
    before = _numbers(host.unpack(state).agent.params)
    rows[:, 8] = np.inf
    state, _, bad = host.step(state, rows)
    assert bad == 0
    for want, got in zip(before, _numbers(host.unpack(state).agent.params), strict=True):
        np.testing.assert_array_equal(got, want)


def test_code_is_kept_on_disk_and_made_again_where_it_is_damaged(tmp_path, monkeypatch):
    monkeypatch.setenv("RECOLLECT_CACHE", str(tmp_path))
    assert cache.get("a") is None
    cache.put("a", b"code")
    assert cache.get("a") == b"code" and cache.get("b") is None
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    assert cache.get("a") is None
    monkeypatch.setenv("RECOLLECT_CACHE", "")
    cache.put("a", b"code")
    assert cache.get("a") is None
    monkeypatch.setenv("RECOLLECT_CACHE", str(file / "below a file"))
    cache.put("a", b"code")


def test_programs_are_small(tmp_path):
    """Code does not grow with the number of units: loops stay loops."""
    sizes = []
    for hidden in (32, 64):
        agent = EpisodicActorCritic(hidden=hidden)
        program = Program(compiled._traced(jax.tree.structure(agent), TMaze(length=4), 128)[0], 1)
        sizes.append(len(program.emitted.text))
    assert sizes[1] < 1.2 * sizes[0]
