"""Trace units: the derivatives they carry are those of backpropagation through time, and options are checked."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recollect.agents import trace_units
from recollect.agents.trace_units import TraceUnits

INPUTS, STEPS = 3, 12


def watched(units, params, xs):
    state = units.start(INPUTS)
    for x in xs:
        state = units.advance(params, state, x)
    return state


def test_the_gradient_is_that_of_backpropagation_through_time():
    units = TraceUnits(units=5, slowest=40.0)
    params = units.init(jax.random.key(0), INPUTS)
    xs = jax.random.normal(jax.random.key(1), (STEPS, INPUTS))
    readout = jax.random.normal(jax.random.key(2), (units.features,))

    def unrolled(params):
        size, re, im = units.decays(params)
        h_re = h_im = jnp.zeros(units.units)
        for x in xs:
            h_re, h_im = (
                re * h_re - im * h_im + params.weight_re @ x,
                re * h_im + im * h_re + params.weight_im @ x,
            )
        scale = jnp.sqrt(1 - size * size)
        return jnp.concatenate([scale * h_re, scale * h_im]) @ readout

    state = watched(units, params, xs)
    value, gradient = jax.jit(jax.value_and_grad(lambda p: units.outputs(p, state) @ readout))(params)
    expected, through_time = jax.jit(jax.value_and_grad(unrolled))(params)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    for carried, back in zip(gradient, through_time, strict=True):
        assert float(jnp.abs(back).max()) > 1e-3
        np.testing.assert_allclose(carried, back, rtol=1e-4, atol=1e-6)


def test_a_look_ahead_sees_what_the_units_will_hold():
    units = TraceUnits(units=4)
    params = units.init(jax.random.key(0), INPUTS)
    state = watched(units, params, jax.random.normal(jax.random.key(1), (4, INPUTS)))
    x = jnp.array([1.0, -2.0, 0.5])
    ahead, after = units.see(params, state, x), units.advance(params, state, x)
    np.testing.assert_array_equal(units.outputs(params, ahead), units.outputs(params, after))


def test_time_constants_at_the_start():
    units = TraceUnits(units=6, fastest=2.0, slowest=50.0)
    size, *_ = units.decays(units.init(jax.random.key(0), INPUTS))
    np.testing.assert_allclose(1 - 1 / units.time_constants(), size, rtol=1e-5)
    assert (np.diff(units.time_constants()) > 0).all()


def test_a_step_of_the_optimizer_turns_a_slow_unit_less():
    """However slow a unit: the same step changes its phase one time constant back by the same angle."""
    units = TraceUnits(units=8)
    params = units.init(jax.random.key(0), INPUTS)

    def angles(params):
        _, re, im = units.decays(params)
        return np.unwrap(np.arctan2(np.asarray(im), np.asarray(re)))

    turned = angles(params._replace(theta=params.theta + 0.01)) - angles(params)
    np.testing.assert_allclose(turned * units.time_constants(), 0.01 / units.sluggishness, rtol=0.02)


def test_forgetting():
    units = TraceUnits(units=2)
    state = watched(units, units.init(jax.random.key(0), INPUTS), jnp.ones((3, INPUTS)))
    kept, gone = trace_units.forget(state, jnp.array(False)), trace_units.forget(state, jnp.array(True))
    assert all((np.asarray(a) == np.asarray(b)).all() for a, b in zip(kept, state, strict=True))
    assert not any(np.asarray(leaf).any() for leaf in gone)


@pytest.mark.parametrize(
    "options",
    [{"units": wrong} for wrong in (-1, 2.5, "eight", None, True)]
    + [{"fastest": wrong} for wrong in (1.0, "fast", None, np.array([2.0, 3.0]))]
    + [{"slowest": 1.2}, {"sluggishness": 0.0}, {"sluggishness": [1.0]}],
)
def test_options_are_checked(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        TraceUnits(**options)


def test_arrays_of_one_number_are_numbers():
    units = TraceUnits(units=np.int64(3), slowest=jnp.array(100.0))  # type: ignore[arg-type]
    assert hash(units) == hash(TraceUnits(units=3, slowest=100.0)) and type(units.units) is int
