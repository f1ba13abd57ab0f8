"""Running moments: those of NumPy, at any scale, and standard units that stay within bounds."""

import jax.numpy as jnp
import numpy as np
import pytest

from recollect.agents import scaling


def seen(rows):
    moments = scaling.nothing_seen(rows.shape[1:])
    for row in rows:
        moments = scaling.observe(moments, jnp.asarray(row))
    return moments


@pytest.mark.parametrize("scale", [1e-7, 1.0, 1e6])
def test_moments_at_any_scale(scale):
    rows = np.random.default_rng(0).normal(3.0, 2.0, (300, 4)).astype(np.float32) * np.float32(scale)
    moments = seen(rows)
    np.testing.assert_allclose(moments.mean, rows.mean(0), rtol=1e-4)
    np.testing.assert_allclose(scaling.deviation(moments), rows.std(0), rtol=1e-3)
    standard = scaling.standardize(moments, jnp.asarray(rows), 5.0)
    np.testing.assert_allclose(standard.std(0), 1.0, rtol=1e-2)


def test_what_has_not_varied_is_not_blown_up():
    moments = seen(np.full((50, 2), [0.1, 7e5], np.float32))
    np.testing.assert_array_equal(scaling.deviation(moments), [1.0, 1.0])
    assert np.abs(scaling.standardize(moments, jnp.array([0.1, 7e5]), 5.0)).max() < 0.1


def test_bounds():
    moments = seen(np.array([[0.0], [1.0]] * 20, np.float32))
    assert scaling.standardize(moments, jnp.array([1e9]), 5.0).tolist() == [5.0]


def test_the_mean_follows_once_it_has_seen_enough():
    moments = scaling.Moments(jnp.zeros(()), jnp.ones(()), jnp.asarray(scaling.LONGEST))
    assert float(scaling.observe(moments, jnp.asarray(100.0)).mean) == pytest.approx(100.0 / scaling.LONGEST)
