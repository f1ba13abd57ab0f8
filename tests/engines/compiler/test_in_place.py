"""Which arrays of a state a step may write over, in graphs of a few nodes."""

import jax.numpy as jnp
import numpy as np

from recollect.engines.compiler import Step, in_place
from recollect.engines.compiler.plan import Plan, contract


def _settled(function, *shapes):
    """Of a step's arrays, those that are written over; and the plan."""
    step = Step(function, tuple(np.zeros(s, np.float32) for s in shapes))
    state = step.traced.leaves[: len(shapes)]
    outs = contract(step.traced.graph, step.traced.outs)
    plan = Plan(outs, 1, spread=True)
    over = {o.id: leaf for o, leaf in zip(outs, state, strict=True) if leaf.shape}
    done = in_place.settle(plan, over)
    return [o.id in done for o, leaf in zip(outs, state, strict=True) if leaf.shape], plan, outs


def test_an_array_is_written_over_after_its_last_reader():
    def step(state):
        x, y = state
        return (x * 0.5 + 1, y + jnp.sum(x[::-1] * jnp.arange(6.0))), ()

    done, plan, outs = _settled(step, (6,), (4,))
    assert done == [True, True]
    at = {n.id: k for k, item in enumerate(plan.items) for n in item.nodes}
    readers = [n.id for item in plan.items for n in item.nodes if n.op == "reduce"]
    assert readers and all(at[n] < at[outs[0].id] for n in readers)


def test_an_array_that_its_own_loop_reads_elsewhere_is_not():
    done, _, _ = _settled(lambda state: ((state[0][::-1] * 0.5,), ()), (6,))
    assert done == [False]


def test_two_that_read_each_other_elsewhere_are_not_both():
    def step(state):
        x, y = state
        return (x + y[::-1], y + x[::-1]), ()

    done, _, _ = _settled(step, (6,), (6,))
    assert sum(done) <= 1


def test_where_a_guard_may_choose_the_old_values_they_are_put_aside():
    def step(state):
        (x,) = state
        new = x * 1.5
        return (jnp.where(jnp.sum(new * new) < 10, new, x),), ()

    done, plan, outs = _settled(step, (6,))
    assert done == [True] and outs[0].id in plan.repairs
