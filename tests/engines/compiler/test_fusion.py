"""Which arrays of a step need no memory, in graphs of a few nodes."""

import jax.numpy as jnp
import numpy as np
import pytest

from recollect.engines.compiler import Step
from recollect.engines.compiler.plan import Plan, contract


def _kept(step, *shapes):
    """The arrays that pass through memory from loop to loop, of those that are not outputs."""
    traced = Step(step, tuple(np.zeros(s, np.float32) for s in shapes)).traced
    outs = contract(traced.graph, traced.outs)
    plan = Plan(outs, 8)
    in_loops = {n.id for item in plan.items if item.space for n in item.nodes if n.shape}
    return in_loops - plan.passing - {n.id for n in outs}


@pytest.mark.parametrize("reads_between", [False, True])
def test_a_trace_waits_for_the_loop_that_uses_it_and_what_is_left_of_it_waits_with_it(reads_between):
    def step(state):
        trace, parameters, x = state
        trace = jnp.tanh(trace * 0.9 + parameters)  # dear enough not to be computed twice
        other = jnp.max(trace) if reads_between else 2.0
        surprise = jnp.cumsum(x * other + 1)[-1]
        return (jnp.where(x[0] > 0, trace, 0.0), parameters + surprise * trace, x + 1), ()

    kept = _kept(step, (6,), (6,), (5,))
    assert bool(kept) == reads_between, "only what something else needs before is kept"
