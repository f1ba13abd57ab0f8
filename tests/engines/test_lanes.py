"""Vectors: every function is accurate, and a lane's result is the same at every width."""

import numpy as np
import pytest
from numba import njit

from recollect import prng
from recollect.engines import lanes

WIDTHS = (1, 4, 8, 16)


def applied(function, x, width):
    @njit
    def run(x, y, width):
        for k in range(len(x) // len(width)):
            lanes.store(y, k, function(lanes.load(x, k, width)))

    y = np.empty_like(x)
    run(x, y, (0,) * width)
    return y


def over(low, high):
    rng = np.random.default_rng(0)
    near_0 = rng.uniform(-1, 1, 8000) * 10.0 ** rng.uniform(-6, 0, 8000)
    return np.clip(np.concatenate([near_0, rng.uniform(low, high, 8000)]), low, high).astype(np.float32)


@pytest.mark.parametrize(
    ("name", "exact", "low", "high", "relative"),
    [
        ("exp", np.exp, -87, 88, 2e-7),
        ("expm1", np.expm1, -30, 30, 3e-7),
        ("tanh", np.tanh, -12, 12, 4e-7),
        ("sigmoid", lambda x: 1 / (1 + np.exp(-x)), -80, 80, 3e-7),
        ("log1p", np.log1p, 1e-8, 1, 3e-7),
        ("log_sigmoid", lambda x: -np.logaddexp(0, -x), -50, 50, 4e-7),
    ],
)
def test_functions_are_accurate_and_the_same_at_every_width(name, exact, low, high, relative):
    x = over(low, high)
    wide, one = (applied(getattr(lanes, name), x, width) for width in (16, 1))
    np.testing.assert_array_equal(wide, one)
    np.testing.assert_allclose(one, exact(x.astype(np.float64)), rtol=relative)


def test_log_is_accurate():
    x = np.abs(over(1e-6, 1e6))
    np.testing.assert_allclose(applied(lanes.log, x, 8), np.log(x.astype(np.float64)), rtol=3e-7, atol=1e-7)


def test_the_ends_of_the_scale():
    x = np.array([np.inf, -np.inf, np.nan, 1e36, -1e36, 89, -88, 0], np.float32)
    np.testing.assert_array_equal(applied(lanes.exp, x, 8), [np.inf, 0, np.nan, np.inf, 0, np.inf, 0, 1])
    np.testing.assert_array_equal(applied(lanes.expm1, x, 8), [np.inf, -1, np.nan, np.inf, -1, np.inf, -1, 0])
    np.testing.assert_array_equal(applied(lanes.sigmoid, x, 8)[:5], [1, 0, np.nan, 1, 0])
    assert np.isnan(applied(lanes.tanh, x, 8)[2])


@pytest.mark.parametrize("width", WIDTHS)
def test_random_words_are_those_of_prng(width):
    @njit
    def run(counters, out, width):
        words = lanes.philox(1, -2, lanes.load(counters, 0, width), 2, 5, -7)
        for i in range(4):
            lanes.store(out, i, words[i])

    counters = np.arange(width, dtype=np.int32)
    out = np.empty(4 * width, np.int32)
    run(counters, out, (0,) * width)
    unsigned = [np.full(width, k, np.int64).astype(np.uint32) for k in (1, -2, 2, 5, -7)]
    k0, k1, b, c, d = unsigned
    expected = prng.philox((k0, k1), (counters.astype(np.uint32), b, c, d))
    np.testing.assert_array_equal(out.reshape(4, width).astype(np.uint32), np.stack(expected))
