"""A function compiled for one run and for lanes, against JAX; whole agents in lanes, for others to be compared with."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from recollect import EpisodicActorCritic
from recollect.engines.compiler import Step
from recollect.engines.compiler.fleet import Fleet
from recollect.engines.compiler.program import Program

LANES = 4


def recommended(**options):
    """An agent with everything that is recommended, smaller by ``options``."""
    rest = {"distinct": True, "query_openness": 1.0, "products": 4, "critic_output": "linear"}
    return EpisodicActorCritic(optimizer="rmsprop", **rest, **options)


def is_key(x):
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def on_host(x):
    """As NumPy's, which compiles no program for each shape it takes apart; keys are JAX's alone."""
    return x if is_key(x) else np.asarray(x)


def numbers(tree):
    """The leaves as arrays of numbers, random keys among them."""
    return [np.asarray(jax.random.key_data(x) if is_key(x) else x) for x in jax.tree.leaves(tree)]


def bits(tree):
    """The leaves as bytes."""
    return [x.tobytes() for x in numbers(tree)]


def inputs_of(agent, limits):
    """What a run's step takes besides its state: the agent's numbers and the limits."""
    return [*(np.float32(x) for x in jax.tree.leaves(agent)), *map(np.int32, limits)]


_program = functools.lru_cache(maxsize=8)(Program)


def in_lanes(step, tree, inputs, steps, shared=None, lanes=16, often=False):
    """States with a leading axis so many steps later; ``shared``: which inputs all have in common, by default all.

    Not optimised by LLVM unless it is to run ``often``: `test_steps` holds that its bits are the same.
    """
    fleet = Fleet(step.state, len(jax.tree.leaves(tree)[0]), lanes)
    fleet.load(tree)
    for call in fleet.attach(_program(step, lanes, tuple(shared or (True,) * len(inputs)), often), inputs):
        call.advance(steps)
    return fleet.unload()


def run(function, rows, lanes):
    """The function on each of ``rows`` (tuples of arrays), compiled; outputs with a leading axis over them."""
    step = Step(lambda state, *inputs: (state, function(*inputs)), np.zeros((), np.float32), rows[0])
    fleet = Fleet(step.state, len(rows), lanes)
    columns = [np.stack(column) for column in zip(*(jax.tree.leaves(row) for row in rows), strict=True)]
    calls = fleet.attach(Program(step, lanes), columns)
    for call in calls:
        call.advance()
    return jax.tree.unflatten(step.outputs.tree, fleet.stacked([[call.outputs] for call in calls]))


def computed(functions, *rows):
    """What each of several functions gives on the rows: alone, in lanes, and in JAX, of which each is one program."""

    def all_of_them(*row):
        return {name: function(*row) for name, function in functions.items()}

    in_jax = jax.jit(all_of_them)
    wanted = [in_jax(*map(jnp.asarray, row)) for row in rows]
    alone, together = run(all_of_them, rows, 1), run(all_of_them, rows, LANES)
    return {name: (alone[name], together[name], [row[name] for row in wanted]) for name in functions}


def agree(alone, together, wanted, tolerance=2e-6, exact=False):
    """What was compiled is JAX's to rounding, and the same bits in lanes as alone."""
    for a, b in zip(jax.tree.leaves(alone), jax.tree.leaves(together), strict=True):
        assert a.tobytes() == b.tobytes()
    for k, row in enumerate(wanted):
        for want, got in zip(jax.tree.leaves(row), jax.tree.leaves(alone), strict=True):
            want, got = np.asarray(want), got[k, 0]
            assert want.shape == got.shape and want.dtype == got.dtype
            if want.dtype.kind == "f" and not exact:
                np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
            else:
                np.testing.assert_array_equal(got, want)


def compare(function, *rows, tolerance=2e-6, exact=False):
    """The compiled function is JAX's to rounding, and the same bits in lanes as alone."""
    agree(*computed({"": function}, *rows)[""], tolerance, exact)
