"""Steps: the bound by hand, plain RMSProp without it, and optax's in the same place."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from recollect.agents.optimizers import BoundedRMS, Optax, moved_by, reach

DIRECTION = {"a": jnp.array([3.0, -4.0]), "b": jnp.array([[0.5]])}
TRACES = {"a": jnp.array([[1.0, 2.0], [0.0, 1.0]]), "b": jnp.array([[[4.0]], [[-2.0]]])}  # two horizons
ERRORS = jnp.array([0.5, -3.0])
PARAMS = jax.tree.map(jnp.ones_like, DIRECTION)


def test_reach_by_hand():
    scale = {"a": jnp.array([2.0, 1.0]), "b": jnp.array([[0.5]])}
    # Horizon 0: 2·1 + 1·2 + .5·4 = 6, times max(.5, 1); horizon 1: 0 + 1 + 1 = 2, times 3.
    assert float(reach(scale, TRACES, ERRORS)) == 6.0
    assert float(reach(scale, TRACES, 4 * ERRORS)) == 24.0


def test_the_first_step_by_hand():
    """After one step the corrected mean square is d² itself, so that p = 1/|d| and Δ = η sign(d) / max(1, M)."""
    rate, overshoot = 0.1, 20.0
    optimizer = BoundedRMS(rate, overshoot)
    step, state = optimizer.update(DIRECTION, TRACES, ERRORS, optimizer.init(DIRECTION), PARAMS)
    sums = [1 / 3 + 2 / 4 + 4 / 0.5, 1 / 4 + 2 / 0.5]
    m = rate * overshoot * max(1 * sums[0], 3 * sums[1])
    assert m > 1
    np.testing.assert_allclose(step["a"], np.array([1, -1]) * rate / m, rtol=1e-5)
    np.testing.assert_allclose(step["b"], [[rate / m]], rtol=1e-5)
    np.testing.assert_allclose(state.mean["a"], 0.001 * np.array([9.0, 16.0]), rtol=1e-4)
    assert float(state.count) == 1


def test_without_a_bound_it_is_rmsprop():
    optimizer = BoundedRMS(0.01, overshoot=0.0, decay=0.9)
    state, squares = optimizer.init(DIRECTION), np.zeros(2)
    for k in range(1, 5):
        step, state = optimizer.update(DIRECTION, TRACES, k * ERRORS, state, PARAMS)
        squares = 0.9 * squares + 0.1 * np.square([3.0, -4.0])
        expected = 0.01 * np.array([3.0, -4.0]) / np.sqrt(squares / (1 - 0.9**k))
        np.testing.assert_allclose(step["a"], expected, rtol=1e-5)


def test_after_a_calm_a_step_is_no_longer_than_the_long_run_allows():
    """The mean square of late has faded to 1/100 of that in the long run and below."""
    decay, floor, calm = 0.9, 0.25, 60
    optimizer = BoundedRMS(0.01, overshoot=0.0, decay=decay, floor=floor)
    state, sizes = optimizer.init(DIRECTION), [1.0] * 120 + [0.001] * calm
    for size in sizes:
        step, state = optimizer.update({name: size * d for name, d in DIRECTION.items()}, TRACES, ERRORS, state, PARAMS)
    u = np.mean(np.square(np.array(sizes) * 3.0))
    assert float(state.lasting["a"][0]) == pytest.approx(u, rel=1e-4) and u > 100 * float(state.mean["a"][0])
    np.testing.assert_allclose(step["a"][0], 0.01 * 0.003 / np.sqrt(floor * u), rtol=1e-3)
    after, _ = optimizer.update(DIRECTION, TRACES, ERRORS, state, PARAMS)
    plain = BoundedRMS(0.01, overshoot=0.0, decay=decay)
    assert (
        float(after["a"][0]) < 0.0246 < 0.03 < float(plain.update(DIRECTION, TRACES, ERRORS, state, PARAMS)[0]["a"][0])
    )


def test_a_floor_below_the_mean_square_of_late_changes_nothing():
    optimizer, plain = BoundedRMS(0.01, floor=0.03), BoundedRMS(0.01)
    state, other = optimizer.init(DIRECTION), plain.init(DIRECTION)
    for _ in range(5):
        step, state = optimizer.update(DIRECTION, TRACES, ERRORS, state, PARAMS)
        expected, other = plain.update(DIRECTION, TRACES, ERRORS, other, PARAMS)
        np.testing.assert_array_equal(step["a"], expected["a"])


@pytest.mark.parametrize(
    "optimizer", [BoundedRMS(floor=0.1), BoundedRMS(overshoot=0.0), Optax(optax.sgd(0.1, momentum=0.9))]
)
@pytest.mark.parametrize("size", [0.0, 1.0, 1e18, 1e19, 2e19, 1e25, np.inf, np.nan])
def test_what_an_update_moves_by_is_finite_if_all_of_it_is(optimizer, size):
    """Squares beyond the largest number, infinite traces beside a vanishing error: none goes unnoticed."""
    state = optimizer.init(DIRECTION)
    traces = {name: size * z for name, z in TRACES.items()}
    direction = {name: jnp.tensordot(ERRORS, z, axes=1) for name, z in traces.items()}
    step, after = optimizer.update(direction, traces, ERRORS, state, PARAMS)
    all_finite = all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves((step, after)))
    assert bool(jnp.isfinite(moved_by(step, after))) == all_finite


def test_optax_goes_along_the_direction():
    optimizer = Optax(optax.sgd(0.5))
    step, _ = optimizer.update(DIRECTION, TRACES, ERRORS, optimizer.init(DIRECTION), PARAMS)
    np.testing.assert_allclose(step["a"], [1.5, -2.0])


def test_optax_is_given_the_parameters():
    decayed = Optax(optax.chain(optax.add_decayed_weights(0.25), optax.sgd(1.0)))
    step, _ = decayed.update(DIRECTION, TRACES, ERRORS, decayed.init(PARAMS), PARAMS)
    np.testing.assert_allclose(step["a"], [2.75, -4.25])
    lion = Optax(optax.lion(0.1))
    lion.update(DIRECTION, TRACES, ERRORS, lion.init(PARAMS), PARAMS)


def test_what_asks_for_more_than_gradients_is_refused():
    with pytest.raises(ValueError, match="more than gradients and parameters"):
        Optax(optax.lbfgs()).init(PARAMS)


@pytest.mark.parametrize(
    "options",
    [
        {"rate": -1.0},
        {"overshoot": -0.1},
        {"decay": 1.5},
        {"decay": 1.0},
        {"decay": 1 - 1e-9},
        {"epsilon": 0.0},
        {"epsilon": 1e-40},
        {"floor": 1.1},
        {"floor": "none"},
        {"rate": None},
        {"rate": "fast"},
        {"decay": [0.9]},
    ],
)
def test_options_are_checked(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        BoundedRMS(**options)
