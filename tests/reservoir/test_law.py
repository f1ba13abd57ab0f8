"""The law's numbers against enumeration in rational arithmetic."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.reservoir import law, ratios


def exact_inclusion(weights, n, order):
    subsets = law.enumerate_law([Fraction(w) for w in weights], n)
    return {
        s: float(sum(p for subset, p in subsets.items() if set(s) <= set(subset)))
        for s in itertools.combinations(range(len(weights)), order)
    }


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("spread", [1, 4, 40])
def test_inclusion_of_all_items(n, spread):
    rng = np.random.default_rng(n * 100 + spread)
    weights = np.exp(rng.normal(0, spread / 2, 9))
    single = law.inclusion_probabilities(np.log(weights), n)
    pairs = law.joint_inclusion_probabilities(np.log(weights), n)
    for (i,), p in exact_inclusion(weights, n, 1).items():
        assert single[i] == pytest.approx(p, rel=1e-12, abs=1e-15)
        assert pairs[i, i] == single[i]
    for (i, j), p in exact_inclusion(weights, n, 2).items():
        assert pairs[i, j] == pytest.approx(p, rel=1e-11, abs=1e-15)
        assert pairs[j, i] == pairs[i, j]


def test_inclusion_is_not_proportional_to_weight():
    assert law.inclusion_probabilities(np.log([1, 2, 4, 8]), 2) == pytest.approx([14 / 70, 26 / 70, 44 / 70, 56 / 70])


def test_ratios_and_normaliser():
    w = [Fraction(1, 3), Fraction(2), Fraction(7, 2), Fraction(1, 1000), Fraction(40)]
    e = [sum(math.prod(s) for s in itertools.combinations(w, k)) for k in range(6)]
    lw = np.log([float(x) for x in w])
    assert law.log_ratios(lw, 5) == pytest.approx([math.log(e[k] / e[k - 1]) for k in range(1, 6)], abs=1e-13)
    assert law.log_normalizer(lw, 3) == pytest.approx(math.log(e[3]), abs=1e-13)


@pytest.mark.parametrize("n", [1, 7, 64, 300])
def test_inclusion_sums_to_n_for_large_sets(n):
    lw = np.random.default_rng(n).normal(0, 3, 900)
    assert law.inclusion_probabilities(lw, n).sum() == pytest.approx(n, rel=1e-11)
    pairs = law.joint_inclusion_probabilities(lw, n)
    assert pairs.sum(axis=1) == pytest.approx(n * np.diagonal(pairs), rel=1e-10)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=40), st.integers(1, 12))
def test_any_log_weights(log_weights, n):
    n = min(n, len(log_weights))
    p = law.inclusion_probabilities(log_weights, n)
    assert np.isfinite(p).all() and (p >= 0).all() and (p <= 1 + 1e-12).all()
    assert p.sum() == pytest.approx(n, rel=1e-9)


@pytest.mark.parametrize("n", [1, 2, 5, 16, 100])
def test_union_of_two_sets(n):
    rng = np.random.default_rng(n)
    a, b = rng.normal(0, 4, 150), rng.normal(1, 2, 70)
    K = n + 10
    out = np.empty(K + 1)
    ratios.join_log(ratios.log_ratios_of(a, K), ratios.log_ratios_of(b, K), out)
    assert out[1:] == pytest.approx(ratios.log_ratios_of(np.concatenate([a, b]), K)[1:], abs=1e-12)


def test_union_with_small_and_empty_sets():
    empty = ratios.log_ratios_of(np.empty(0), 5)
    two = ratios.log_ratios_of(np.log([3.0, 5.0]), 5)
    out = np.empty(6)
    ratios.join_log(empty, two, out)
    assert np.array_equal(out[3:], [-np.inf] * 3) and np.allclose(out[:3], two[:3])
    ratios.join_log(two, two, out)
    assert np.exp(out[1:5]) == pytest.approx([16, 94 / 16, 240 / 94, 225 / 240]) and out[5] == -np.inf


@pytest.mark.parametrize("n", [1, 3, 16, 64, 256, 1024, 4096])
def test_margin_is_enough(n):
    J = ratios.margin(n)
    assert sum(math.log1p(j / n) for j in range(1, J + 1)) >= math.log(1e14)


def test_wrong_arguments():
    with pytest.raises(ValueError, match=r"log_weights\[1\] is nan"):
        law.inclusion_probabilities([0.0, math.nan], 1)
    with pytest.raises(ValueError, match="between 1 and the number of positive weights"):
        law.log_ratios([0.0, -math.inf], 2)
    with pytest.raises(ValueError, match="one-dimensional"):
        law.log_ratios(np.zeros((2, 2)), 1)


@pytest.mark.parametrize(
    ("weights", "n", "message"),
    [
        ([1.0, math.nan], 1, r"weights\[1\] is nan: weights must be finite"),
        ([1, -1], 1, r"weights\[1\] is -1"),
        ([1, 0, 0], 2, "fewer than n=2 weights are positive"),
        ([1, 2], 3, "n=3 must be from 0 to the number of weights, 2"),
        ([1] * 60, 30, "subsets are too many to enumerate"),
    ],
)
def test_what_cannot_be_enumerated(weights, n, message):
    with pytest.raises(ValueError, match=message):
        law.enumerate_law(weights, n)
