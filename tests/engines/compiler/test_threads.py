"""A step as the work of a GPU's thread: the bits of the lanes, on a processor that does one thread after another."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from engines.compiler.compared import bits, in_lanes, inputs_of, recommended
from engines.compiler.stand_in import StandIn
from recollect import EpisodicActorCritic, SecretInformant
from recollect.agents.general import GeneralActorCritic
from recollect.agents.networks import NormedNetwork
from recollect.agents.trace_units import TraceUnits
from recollect.engines import compiled, compiled_gpu, loop
from recollect.engines.compiler import Step, Unsupported, pool, ptx, threads
from recollect.engines.compiler.grid import COPIES, Grid, GridProgram
from recollect.envs.t_maze import TMaze
from recollect.training.device_group import DeviceGroup
from recollect.training.group import Limits
from recollect.training.pytree_group import PytreeGroup

pytestmark = pytest.mark.skipif(jax.default_backend() != "cpu", reason="held against the processor's engine")

SMALL = (EpisodicActorCritic(memory_size=2, hidden=4), SecretInformant(length=4, actions=2))
RECOMMENDED = (recommended(memory_size=4, hidden=5), SecretInformant(length=4))
GENERAL = GeneralActorCritic(
    memory_size=2,
    units=TraceUnits(units=3),
    network=NormedNetwork((8,)),
    query_network=NormedNetwork((4,)),
    write_network=NormedNetwork((4,)),
)
WHOLE = (RECOMMENDED, (GENERAL, TMaze(length=4)))
LIMITS = (10**6, 10**5, 40, 10**6)


@pytest.fixture(autouse=True)
def _one_run_per_thread(monkeypatch):
    monkeypatch.setattr(compiled_gpu, "way_for", lambda *_: {"teams": False})


def _in_threads(step, tree, inputs, steps, shared=None):
    device = StandIn()
    program = GridProgram(device, step, shared or (True,) * len(inputs))
    grid = Grid(device, step.state, len(jax.tree.leaves(tree)[0]))
    grid.load(tree)
    grid.give(program, inputs)
    for count in steps:
        grid.advance(program, count)
    return grid.unload()


def _functions(state, table, scale):
    """A bit of everything that lanes and threads write differently: places, branches, loops, sorting, truth values."""
    x, k, on, most = state
    y = jnp.tanh(x) * scale + jnp.exp(-jnp.abs(x)) + jnp.log1p(jnp.abs(x)) + jnp.sin(x) + jnp.sqrt(jnp.abs(x)) ** 1.7
    y = jnp.sort(y) + jnp.cumsum(x) / (1 + jnp.arange(6, dtype=jnp.float32))
    at = (jnp.argmax(y) + k).astype(jnp.int32)
    row = jax.lax.dynamic_index_in_dim(table, at % 9, keepdims=False)
    y = y.at[at % 7].add(row[at % 3])  # 6 is outside, and dropped
    long = jnp.sum(jnp.outer(y, row) * jnp.arange(18.0).reshape(6, 3) * 0.01) + jnp.sum(jnp.tile(y, 7) ** 2)
    turns = jax.lax.while_loop(lambda c: (c[0] < 3.0) & (c[1] < k % 5 + 2), lambda c: (c[0] + 0.7, c[1] + 1), (y[0], 0))
    total, seen = jax.lax.scan(lambda c, v: (c * 0.5 + v, c), long, y)
    most = jax.lax.dynamic_update_slice(most, (seen > 0)[:2], (k % 4,))
    return (y * 0.3 + total * 0.01, k * 3 // (at + 2) + turns[1], on ^ (turns[0] > 1), most), ()


def functions_hold(together, runs, **options):
    """``together`` has the bits of the lanes on functions, places that are computed, and loops."""
    rng = np.random.default_rng(1)
    state = (
        rng.normal(size=(runs, 6)).astype(np.float32),
        rng.integers(0, 50, runs).astype(np.int32),
        rng.random(runs) < 0.5,
        np.zeros((runs, 5), bool),
    )
    table, scale = rng.normal(size=(9, 3)).astype(np.float32), rng.normal(size=runs).astype(np.float32)
    step = Step(_functions, jax.tree.map(lambda x: x[0], state), (table, scale[0]))
    shared = (True, False)
    wanted = in_lanes(step, state, [table, scale], 7, shared)
    assert bits(together(step, state, [table, scale], [1, 4, 2], shared, **options)) == bits(wanted)
    assert all(np.isfinite(x).all() for x in wanted[:2]) and wanted[3].any() and not wanted[3].all()


def test_functions_places_and_loops_have_the_bits_of_the_lanes():
    functions_hold(_in_threads, 35)


@pytest.mark.parametrize("pair", [SMALL, pytest.param(RECOMMENDED, marks=pytest.mark.slow)])
def test_a_pair_has_the_bits_of_the_lanes(pair):
    agent, env = pair
    runs = 33  # more than a block
    agents = loop.broadcast(agent, runs)
    started = loop.start(agents, env, jnp.arange(runs, dtype=jnp.uint32), compiled.LEAST_BINS)
    step = compiled.steps_of(jax.tree.structure(agent), env, compiled.LEAST_BINS).step
    inputs = inputs_of(agent, LIMITS)
    wanted = in_lanes(step, started, inputs, 201)
    assert bits(_in_threads(step, started, inputs, [150, 51])) == bits(wanted)


DEVICE = StandIn()
VARIED = SMALL[0].replace(learning_rate=np.linspace(0.001, 0.1, 20, dtype=np.float32))


@pytest.mark.slow
def test_a_group_on_a_device_is_the_cpu_engines_from_the_same_snapshot(monkeypatch):
    monkeypatch.setattr(loop, "WHOLE", 4)
    agent, env = VARIED, SMALL[1]
    limits, seeds = Limits(60, 20, 100, 10**6), tuple(range(20))
    monkeypatch.setattr(DeviceGroup, "device", DEVICE)
    group = DeviceGroup("compiled-gpu", agent, env, seeds, limits, 1, None)
    assert group.steps.sum() == 0 and not group.over and np.isnan(group.recent_return())
    first = group.advance()
    seen, snapshot = list(first), group.snapshot()
    others = [
        DeviceGroup("compiled-gpu", agent, env, seeds, limits, 1, snapshot),
        PytreeGroup("cpu", agent, env, seeds, limits, 1, snapshot),
    ]
    while not group.over:
        told = list(group.advance())
        seen += told
        for other in others:
            assert repr(list(other.advance())) == repr(told) and other.recent_return() == group.recent_return()
    assert sorted((line["seed"], line["episodes"]) for line in seen) == [(s, e) for s in seeds for e in (20, 40, 60)]
    wanted = group.snapshot()
    for other in others:
        found = other.snapshot()
        assert other.over and {k: v.tobytes() for k, v in found.items()} == {k: v.tobytes() for k, v in wanted.items()}
    results = [g.result() for g in (group, *others)]
    for other in results[1:]:
        assert bits(other.agent_states) == bits(results[0].agent_states)
        for name in ("returns", "lengths", "write_weights", "query_vectors", "steps", "finished"):
            np.testing.assert_array_equal(getattr(other, name), getattr(results[0], name))
    assert results[0].finished.all() and not np.isnan(results[0].write_weights).any()


@pytest.mark.slow
def test_runs_begun_on_a_device_are_the_cpu_engines_and_the_definitions_to_rounding():
    agent, env = VARIED, SMALL[1]
    runs = compiled_gpu.Runs(loop.rows(agent, 20), env, Limits(60, 20, 100, 10**6), DEVICE)
    runs.begin(range(20))
    wanted = loop.start(loop.broadcast(agent, 20), env, jnp.arange(20, dtype=jnp.uint32), 3)
    found = runs.runs()
    assert bits(found) == bits(compiled.start(loop.rows(agent, 20), env, range(20), 3))
    np.testing.assert_array_equal(jax.random.key_data(found.key), jax.random.key_data(wanted.key))
    for a, b in zip(jax.tree.leaves(found._replace(key=())), jax.tree.leaves(wanted._replace(key=())), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def _assembly(pair, names, written_out):
    agent, env = pair
    traced = compiled_gpu._traced(jax.tree.structure(agent), env, compiled.LEAST_BINS)
    inputs = (True,) * len(jax.tree.leaves(agent))
    shared = {"start": (*inputs, False), "step": (*inputs, *(True,) * 4), "collect": (*inputs, *(True,) * 4)}
    for name, step in zip(shared, traced, strict=True):
        if name in names:
            kernel = threads.emit_thread(step, shared[name], written_out=written_out)
            yield name, ptx.assembly(ptx.for_gpu([ptx.Routine("run", kernel.text, ptx.STEP)]), (9, 0))


@pytest.mark.parametrize(
    "pair, names",
    [(SMALL, ("start", "step", "collect")), *(pytest.param(p, ("step",), marks=pytest.mark.slow) for p in WHOLE)],
)
def test_assembly_for_a_gpu_rounds_every_operation_and_calls_nothing(pair, names):
    found = dict(_assembly(pair, names, threads.OFTEN if pair is SMALL else threads.ONCE))
    assert set(found) == set(names)
    for text in found.values():
        assert ".visible .entry run(" in text and ".target sm_90" in text
        assert not re.search(r"\b(add|sub|mul|fma|div|sqrt|rcp)(\.ftz)?\.f32", text), "rounding is named everywhere"
        assert not re.search(r"\.(approx|full)\b|\bcall\b", text)
    assert "fma.rn.ftz.f32" in found["step"]


def test_the_copying_routines_are_assembly_too():
    text = ptx.assembly(ptx.for_gpu(COPIES), (8, 0))
    assert all(f".visible .entry {way}{width}(" in text for way in ("in", "out") for width in (4, 1))
    assert ".target sm_80" in text


def test_what_a_gpu_cannot_do_with_the_processors_bits_is_named():
    step = Step(lambda s: (jnp.arctan2(s, s + 1), ()), np.float32(1))
    assert "'atan2'" in (threads.why_not(step) or "")
    inside = Step(lambda s: (jax.lax.fori_loop(0, 9, lambda _, x: jnp.arctan2(x, x + 1), s), ()), np.float32(1))
    with pytest.raises(Unsupported, match="atan2"):
        threads.emit_thread(inside, ())
    with pytest.raises(ValueError, match="no outputs"):
        threads.emit_thread(Step(lambda s: (s, s), np.float32(1)), ())


def test_arrays_share_memory_unless_they_are_needed_at_once():
    def address(name, of, at):
        return f"  {name} = getelementptr inbounds float, ptr {of}, i64 {at}"

    lines = [
        address("%v1", "%b1", "%i0"),
        "  store float 0.0, ptr %v1, align 4",
        "  br label %p5",
        "p5:",
        "  br label %l5",
        "l5:",
        address("%v2", "%b1", "%i5"),
        "  %v3 = load float, ptr %v2, align 4",
        address("%v4", "%b2", "%i5"),
        "  store float %v3, ptr %v4, align 4",
        "  br i1 %c5, label %l5, label %x5",
        "x5:",
        address("%v5", "%b3", "%i0"),
        "  store float 0.0, ptr %v5, align 4",
        "  %v6 = load float, ptr %v5, align 4",
        address("%v7", "%b2", "%i0"),
        "  %v8 = load float, ptr %v7, align 4",
        address("%v9", "%b4", "3"),
        "  %v10 = load float, ptr %v9, align 4",
        address("%v11", "%b5", "%i0"),
        "  store float 0.0, ptr %v11, align 4",
    ]
    sizes = {"%b1": 40, "%b2": 40, "%b3": 40, "%b4": 16, "%b5": 40}
    at, total = pool.places(sizes, lines)
    assert total == 96 and at == {"%b1": 0, "%b2": 48, "%b3": 0}, "b4 is for registers, and nothing reads b5"
    at, total = pool.places(sizes, lines, still=True)
    assert total == 96 and at["%b4"] == at["%b5"] == 0


def test_large_arrays_are_in_the_scratch_space():
    def step(state, by):
        far = jnp.cumsum(jnp.outer(state, state).reshape(-1))  # 4,900 elements
        flags = jnp.cumsum(jnp.where(far > 0, 1, 0)) % 2 == 1
        return jnp.sort(state + far[:70] * by + flags[-70:].astype(jnp.float32) * 0.1) * 0.1, ()

    state = np.random.default_rng(0).normal(size=(40, 70)).astype(np.float32)
    traced = Step(step, state[0], (np.float32(0.1),))
    assert threads.emit_thread(traced, (True,)).scratch >= 32 * 4900 * 4
    wanted = in_lanes(traced, state, [np.float32(0.01)], 3)
    assert bits(_in_threads(traced, state, [np.float32(0.01)], [3])) == bits(wanted)
