"""A step as the work of a team of threads: the bits of the lanes, on warps that NumPy runs, and no races."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from engines.compiler.compared import bits, in_lanes, inputs_of, recommended
from engines.compiler.test_threads import GENERAL, functions_hold
from engines.compiler.warps import WarpDevice
from recollect import EpisodicActorCritic, SecretInformant
from recollect.agents.recurrent import RecurrentActorCritic
from recollect.engines import compiled
from recollect.engines.compiler import Step
from recollect.engines.compiler.graph import DTYPES
from recollect.engines.compiler.grid import Grid, GridProgram
from recollect.envs.t_maze import TMaze
from tiers import first_quick

pytestmark = pytest.mark.skipif(jax.default_backend() != "cpu", reason="held against the processor's engine")

LIMITS = (10**6, 10**5, 6, 10**6)  # an episode has six steps at most: more than any memory here has slots
SMALL = (EpisodicActorCritic(memory_size=2, hidden=4), SecretInformant(length=4, actions=2))
PAIRS = {
    "small": SMALL,
    "recommended": (recommended(memory_size=4, hidden=5), SecretInformant(length=4)),
    "wide": (EpisodicActorCritic(memory_size=3, hidden=18), TMaze(length=3)),
    "general": (GENERAL, TMaze(length=4)),
    "backpropagation": (RecurrentActorCritic(width=5), TMaze(length=4)),
}


def _together(step, tree, inputs, steps, shared=None, **options):
    device = WarpDevice()
    program = GridProgram(device, step, shared or (True,) * len(inputs), teams=True, **options)
    grid = Grid(device, step.state, len(jax.tree.leaves(tree)[0]), teams=True)
    grid.load(tree)
    grid.give(program, inputs)
    for count in steps:
        grid.advance(program, count)
    return grid.unload()


@pytest.mark.parametrize("room", first_quick([1 << 12, 0]))
def test_functions_places_and_loops_have_the_bits_of_the_lanes(room):
    functions_hold(_together, 3, room=room)


@pytest.mark.parametrize("columns", [32, 40])
def test_sums_over_rows_longer_than_a_team_are_in_the_order_of_the_lanes(columns):
    def step(x, rows):
        new = x * 0.9 + rows[:, None] * jnp.cos(x)
        return new + jnp.sum(new * rows[:, None]), ()

    rng = np.random.default_rng(columns)
    x, rows = (rng.normal(size=s).astype(np.float32) for s in ((3, 5, columns), 5))
    made = Step(step, x[0], (rows,))
    assert bits(_together(made, x, [rows], [3])) == bits(in_lanes(made, x, [rows], 3))


def _started(agent, env, runs):
    """Runs before their first step, and the step."""
    steps = compiled.steps_of(jax.tree.structure(agent), env, compiled.LEAST_BINS)
    layout = steps.start.state
    empty = [np.zeros((runs, *s), DTYPES[k]) for s, k in zip(layout.shapes, layout.kinds, strict=True)]
    inputs = [*(np.float32(x) for x in jax.tree.leaves(agent)), np.arange(runs, dtype=np.uint32)]
    shared = (*(True,) * (len(inputs) - 1), False)
    return in_lanes(steps.start, layout.wrap(empty), inputs, 1, shared), steps.step


@pytest.mark.parametrize("name", first_quick(PAIRS))
def test_a_pair_has_the_bits_of_the_lanes(name):
    agent, env = PAIRS[name]
    started, step = _started(agent, env, 3)
    inputs = inputs_of(agent, LIMITS)
    wanted = in_lanes(step, started, inputs, 9)
    assert bits(_together(step, started, inputs, [1, 8])) == bits(wanted)
    assert np.asarray(wanted.episode).all()


@pytest.mark.slow
@pytest.mark.parametrize("room", [700, 0, 1 << 14])
def test_what_a_guard_keeps_is_kept_on_the_chip_and_off_it(room):
    agent, env = SMALL
    rates = np.array([0.01, 3e38, 1e30], np.float32)
    started, step = _started(agent, env, 3)
    inputs = inputs_of(agent, (10**6, 10**5, 9, 6))  # after six steps nothing is learnt
    at = next(k for k, x in enumerate(jax.tree.leaves(agent.replace(learning_rate=7.5))) if x == 7.5)
    inputs[at] = rates
    shared = tuple(k != at for k in range(len(inputs)))
    wanted = in_lanes(step, started, inputs, 8, shared)
    found = _together(step, started, inputs, [5, 3], shared, room=room)
    assert bits(found) == bits(wanted)
    assert wanted.faults[0] == 0 and (np.asarray(wanted.faults)[1:] != 0).any()
