"""Whole agents in whole environments: compiled as `vmap` of JAX has them, and the same bits for any width."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from engines.compiler.compared import in_lanes, inputs_of, numbers, on_host, recommended
from recollect import EpisodicActorCritic, RecurrentActorCritic, SecretInformant
from recollect.agents.general import GeneralActorCritic
from recollect.agents.networks import NormedNetwork
from recollect.agents.optimizers import BoundedRMS
from recollect.agents.realtime import RealTimeActorCritic
from recollect.agents.trace_units import TraceUnits
from recollect.engines import compiled, compiled_host, loop
from recollect.engines.compiler import Step, cache, fleet
from recollect.engines.compiler.emission import entered
from recollect.engines.compiler.writer import Writer
from recollect.engines.host import RECENT, Host, blank_rows
from recollect.envs.signed_informant import SignedInformant
from recollect.envs.t_maze import TMaze

pytestmark = pytest.mark.skipif(
    jax.default_backend() != "cpu", reason="compiled code is compared with XLA's on one CPU"
)

PAIRS = {
    "robust": (EpisodicActorCritic(memory_size=3, hidden=4), SecretInformant(length=4, actions=2)),
    "recommended": (recommended(hidden=5), TMaze(length=4)),
    "others": (
        EpisodicActorCritic(
            memory="fifo", estimator="every", encoder="recurrent", encoding_size=4, activation="relu", write="before"
        ),
        SignedInformant(3),
    ),
    "uniform": (
        EpisodicActorCritic(memory="uniform", objective="average", temperature="softplus", hidden=4),
        TMaze(length=3),
    ),
    "backpropagation": (RecurrentActorCritic(width=5), TMaze(length=4)),
    "real time": (RealTimeActorCritic(width=5), TMaze(length=4)),
    "general": (
        # ε as large as directions are: of one that is 0 but for rounding, p of the default would make a step.
        GeneralActorCritic(
            4,
            network=NormedNetwork((18, 5)),
            units=TraceUnits(3),
            critic_optimizer=BoundedRMS(0.001, 0.1, epsilon=1e-3),
            actor_optimizer=BoundedRMS(0.0005, epsilon=1e-3, floor=0.03),
            write_optimizer=BoundedRMS(0.001, epsilon=1e-3),
        ),
        SecretInformant(length=4, actions=2),
    ),
}
LIMITS = (10**6, 10**5, 40, 10**6)
RUNS, STEPS, LANES = 3, 1000, 4
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def _in_jax(agent, env):
    """The states before each step and after the last, [run, step, …], by `vmap` of a scan."""
    agents = loop.broadcast(agent, RUNS)
    runs = loop.start(agents, env, jnp.arange(RUNS, dtype=jnp.uint32), compiled.LEAST_BINS)

    def many(agent, run):
        def step(run, _):
            return loop.step_run(agent, env, run, *map(jnp.int32, LIMITS)), run

        last, before = jax.lax.scan(step, run, length=STEPS)
        return jax.tree.map(lambda x, y: jnp.concatenate([x, y[None]]), before, last)

    return jax.tree.map(on_host, jax.jit(jax.vmap(many))(agents, runs))


def _compiled(agent, env, states, lanes, steps, often=True):
    """States, with a leading axis, so many steps later."""
    step = compiled.steps_of(jax.tree.structure(agent), env, compiled.LEAST_BINS).step
    return numbers(in_lanes(step, states, inputs_of(agent, LIMITS), steps, lanes=lanes, often=often))


def test_between_loops_only_what_the_later_one_needs_is_in_memory():
    """The scale and the direction of a step stay in their loop, and their product is what the second one reads."""

    def step(state, x):
        weight, mean = state
        direction = jnp.tanh(x) * x
        mean = mean + 0.1 * (direction * direction - mean)
        scale = 1 / (jnp.sqrt(mean) + 1e-3)
        rate = 0.1 / jnp.maximum(1.0, jnp.sum(scale * jnp.abs(x)))
        return (weight + rate * (scale * direction), mean), ()

    like = np.zeros(2000, np.float32)
    assert [size for _, size in Step(step, (like, like), (like,)).write(Writer(1), [False]).scratch] == [8000]


def _largest(arrays):
    """Of each array, its largest finite number or 1, whichever is more."""
    finite = np.where(np.isfinite(arrays), np.abs(arrays), 0).reshape(len(arrays), -1)
    return np.maximum(1, finite.max(1)).reshape(-1, *[1] * (arrays.ndim - 1))


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
def test_a_pair_is_what_jax_makes_of_it_and_the_same_bits_in_any_company(name):
    """Every step of 1,000, each from the state that JAX has there; and all of them in a row, alone and beside others,
    optimised by LLVM or as it stands.

    From the same state, for in a row RMSProp magnifies rounding: it makes a full step of a direction near 0, whichever
    its sign. Parameters of the GRU agents are then 2e-3 apart after 1,000 steps; those of JAX itself are 4e-2 apart if
    each step changes them by a unit in the last place. One step from the same state is within 2e-7; that of the general
    agent is so of the largest number in an array: traces through a normalised layer of nearly equal units are sums of
    hundreds that cancel.
    """
    agent, env = PAIRS[name]
    states = _in_jax(agent, env)
    flat = jax.tree.map(lambda x: x[:, :-1].reshape(-1, *x.shape[2:]), states)
    wanted = numbers(jax.tree.map(lambda x: x[:, 1:].reshape(-1, *x.shape[2:]), states))
    for want, got in zip(wanted, _compiled(agent, env, flat, LANES, 1), strict=True):
        if want.dtype.kind == "f":
            scale = _largest(want) if name == "general" else 1.0
            np.testing.assert_allclose(got / scale, want / scale, **CLOSE)
        else:
            np.testing.assert_array_equal(got, want)
    first = jax.tree.map(lambda x: x[:, 0], states)
    alone, together = (_compiled(agent, env, first, lanes, STEPS) for lanes in (1, LANES))
    unoptimised = _compiled(agent, env, first, LANES, STEPS, often=False)
    assert [x.tobytes() for x in alone] == [x.tobytes() for x in together] == [x.tobytes() for x in unoptimised]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("copies", "shared", "large"),
    [
        (1, False, 10**6),
        *((3, *rest) for rest in ((False, 10**6), (False, 0), (True, 10**6))),
    ],
)
def test_the_calls_of_a_learner_are_the_hosts(copies, shared, large, monkeypatch):
    monkeypatch.setattr(fleet, "LARGE", large)  # copies that are large are not lanes, but one after another
    agent = EpisodicActorCritic(memory_size=2, hidden=4)
    hosts = [kind(agent, 4, 3, copies, shared) for kind in (Host, compiled_host.CompiledHost)]
    assert hosts[0].together and hosts[1].together == (shared or copies == 1 or large > 0)
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
            recent = random.normal(size=(copies, RECENT, 4)).astype(np.float32)
            weights = [h.write_weights(s, recent) for h, s in zip(hosts, states, strict=True)]
            np.testing.assert_allclose(*weights, rtol=1e-5)
            assert [int(result[2]) for result in results] == [-1, -1]
    ends = [host.unpack(host.forget(state)) for host, state in zip(hosts, states, strict=True)]
    for want, got in zip(*map(numbers, ends), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    again = hosts[1].pack(ends[1])
    for want, got in zip(numbers(ends[1]), numbers(hosts[1].unpack(again)), strict=True):
        np.testing.assert_array_equal(got, want)


def test_an_update_that_is_not_finite_is_reported_and_not_made():
    agent = EpisodicActorCritic(memory_size=2, hidden=4)
    host = compiled_host.CompiledHost(agent, 4, 3)
    rows = blank_rows(1, 4)
    state, _ = host.begin(host.start(np.uint32(0)), rows[:, :4])
    before = numbers(host.unpack(state).agent.params)
    rows[:, 8] = np.inf
    state, _, bad = host.step(state, rows)
    assert bad == 0
    for want, got in zip(before, numbers(host.unpack(state).agent.params), strict=True):
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


def test_a_process_first_removes_the_oldest_code_beyond_the_limit_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setenv("RECOLLECT_CACHE", str(tmp_path))
    for age, name in enumerate("abc"):
        (tmp_path / f"{name * 64}.o").write_bytes(bytes(60))
        os.utime(tmp_path / f"{name * 64}.o", (1000 - age, 1000 - age))
    (tmp_path / "mine.o").write_bytes(bytes(1000))
    monkeypatch.setattr(cache, "LARGEST", 100)
    cache.put("new", b"code")  # 36 bytes with its sum, and the newest
    assert cache.get("new") == b"code"
    kept = [name for name in "abc" if (tmp_path / f"{name * 64}.o").exists()]
    assert kept == ["a"] and (tmp_path / "mine.o").exists()


@pytest.mark.slow
def test_programs_are_small(tmp_path):
    """Code does not grow with the number of units: loops stay loops."""
    sizes = []
    for hidden in (32, 64):
        agent = EpisodicActorCritic(hidden=hidden)
        step = compiled.steps_of(jax.tree.structure(agent), TMaze(length=4), 128).step
        sizes.append(len(entered(step.write(Writer(1), [True] * len(step.inputs.shapes)))))
    assert sizes[1] < 1.2 * sizes[0]
