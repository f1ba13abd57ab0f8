"""A function compiled for one run and for lanes, against JAX."""

import jax
import jax.numpy as jnp
import numpy as np

from recollect.engines.compiler import Step
from recollect.engines.compiler.fleet import Fleet
from recollect.engines.compiler.program import Program

LANES = 4


def run(function, rows, lanes):
    """The function on each of ``rows`` (tuples of arrays), compiled; outputs with a leading axis over them."""
    step = Step(lambda state, *inputs: (state, function(*inputs)), np.zeros((), np.float32), rows[0])
    fleet = Fleet(step.state, len(rows), lanes)
    columns = [np.stack(column) for column in zip(*(jax.tree.leaves(row) for row in rows), strict=True)]
    calls = fleet.attach(Program(step, lanes), columns)
    for call in calls:
        call.advance()
    return jax.tree.unflatten(step.outputs.tree, fleet.stacked([[call.outputs] for call in calls]))


def compare(function, *rows, tolerance=2e-6, exact=False):
    """The compiled function is JAX's to rounding, and the same bits in lanes as alone."""
    alone, together = run(function, rows, 1), run(function, rows, LANES)
    for a, b in zip(jax.tree.leaves(alone), jax.tree.leaves(together), strict=True):
        assert a.tobytes() == b.tobytes()
    for k, row in enumerate(rows):
        wanted = jax.tree.leaves(jax.jit(function)(*map(jnp.asarray, row)))
        for want, got in zip(wanted, jax.tree.leaves(alone), strict=True):
            want, got = np.asarray(want), got[k, 0]
            assert want.shape == got.shape and want.dtype == got.dtype
            if want.dtype.kind == "f" and not exact:
                np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
            else:
                np.testing.assert_array_equal(got, want)
