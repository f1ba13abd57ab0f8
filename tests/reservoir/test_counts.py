"""Sampling in parts: the law over every tree, exactly and compiled; hard weights; prescribed probabilities."""

import functools
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chisquare

from recollect.reservoir import counts, law
from recollect.reservoir.random import seeded
from tiers import first_quick


def trees(leaves):
    """Every binary tree over consecutive leaves, as nested pairs."""
    if len(leaves) == 1:
        return [leaves[0]]
    return [
        (left, right)
        for cut in range(1, len(leaves))
        for left, right in itertools.product(trees(leaves[:cut]), trees(leaves[cut:]))
    ]


def coefficients(tree, weights):
    if isinstance(tree, int):
        return [Fraction(1), weights[tree]]
    a, b = (coefficients(side, weights) for side in tree)
    return [sum(a[j] * b[k - j] for j in range(len(a)) if 0 <= k - j < len(b)) for k in range(len(a) + len(b) - 1)]


def drawn(tree, k, weights):
    """The law of what comes out of a tree asked for k items, in exact arithmetic."""
    if isinstance(tree, int):
        return {(tree,) * k: Fraction(1)} if k <= 1 else {}
    a, b = (coefficients(side, weights) for side in tree)
    shares = {j: a[j] * b[k - j] for j in range(len(a)) if 0 <= k - j < len(b)}
    found = {}
    for j, share in shares.items():
        for (s, p), (t, q) in itertools.product(
            drawn(tree[0], j, weights).items(), drawn(tree[1], k - j, weights).items()
        ):
            found[s + t] = found.get(s + t, 0) + share / sum(shares.values()) * p * q
    return found


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_every_tree_gives_the_law_exactly(n):
    """One row a part: 42 trees over six leaves, total variation 0."""
    weights = [Fraction(x) for x in (1, 5, 2, 7, 3, 11)]
    expected = law.enumerate_law(weights, n)
    for tree in trees(tuple(range(6))):
        assert drawn(tree, n, weights) == expected


@pytest.mark.parametrize("cut", first_quick([3, 1, 2, 7]))
@pytest.mark.parametrize("n", [1, 3, 5])
def test_subsets_follow_the_law(n, cut):
    """The compiled code, down to one row a part."""
    weights = np.array([0.3, 5.0, 1.0, 0.02, 40.0, 2.0, 2.0])
    expected = law.enumerate_law(list(weights), n)
    bins = np.zeros(counts.BINS, np.int64)
    counts.tally(weights, bins, 1)
    log_theta = counts.odds_factor(bins, n)
    parts = [weights[k : k + cut] for k in range(0, 7, cut)]
    tree = counts.Tree([counts.count(part, log_theta) for part in parts])
    hits, runs = dict.fromkeys(expected, 0), 6000
    for run in range(runs):
        rng = seeded([run, 7])
        shares = tree.share_out(n, rng)
        places = [
            k * cut + counts.draw(part, leaf, log_theta, share, rng)
            for k, (part, leaf, share) in enumerate(zip(parts, tree.levels[0], shares, strict=True))
        ]
        hits[tuple(np.concatenate(places).tolist())] += 1
    likely = [s for s, p in expected.items() if p * runs > 5]
    p = np.array([expected[s] for s in likely])
    observed = np.array([hits[s] for s in likely])
    assert observed.sum() > 0.97 * runs
    assert chisquare(observed, p / p.sum() * observed.sum()).pvalue > 1e-3


@pytest.mark.slow
def test_long_parts_follow_the_law():
    """Inclusion of every row over blocks of light and heavy rows, where draws with replacement often collide."""
    rng = np.random.default_rng(3)
    weights = rng.lognormal(0, 2.5, 400)
    n, runs = 60, 1500
    p = law.inclusion_probabilities(np.log(weights), n)
    bins = np.zeros(counts.BINS, np.int64)
    counts.tally(weights, bins, 1)
    log_theta = counts.odds_factor(bins, n)
    parts = [weights[k : k + 100] for k in range(0, 400, 100)]
    tree = counts.Tree([counts.count(part, log_theta) for part in parts])
    hits = np.zeros(400)
    for run in range(runs):
        source = seeded(run)
        for k, share in enumerate(tree.share_out(n, source)):
            hits[100 * k + counts.draw(parts[k], tree.levels[0][k], log_theta, share, source)] += 1
    assert hits.sum() == runs * n
    z = (hits - runs * p) / np.sqrt(runs * p * (1 - p))
    assert np.abs(z[p * runs > 5]).max() < 4.5
    assert abs(np.sum(z**2) - 400) < 5 * math.sqrt(800)


@pytest.mark.parametrize(("size", "n", "spread"), [(200, 20, 1.0), (3000, 500, 2.0), (50, 49, 3.0), (2000, 1, 1.0)])
def test_the_vector_of_the_whole_is_that_of_the_law(size, n, spread):
    rng = np.random.default_rng(size)
    weights = rng.lognormal(0, spread, size)
    bins = np.zeros(counts.BINS, np.int64)
    counts.tally(weights, bins, 1)
    log_theta = counts.odds_factor(bins, n)
    whole = counts.Tree([counts.count(weights[k : k + 37], log_theta) for k in range(0, size, 37)]).root
    assert whole.mean == pytest.approx(n, rel=0.01)
    p = counts.inclusion_probabilities(whole, log_theta, np.log(weights), n)
    assert p == pytest.approx(law.inclusion_probabilities(np.log(weights), n), rel=1e-12)
    one = counts.count(weights, log_theta)
    at = slice(max(one.first, whole.first), min(one.first + len(one.mass), whole.first + len(whole.mass)))
    a, b = (c.mass[at.start - c.first : at.stop - c.first] for c in (one, whole))
    assert a == pytest.approx(b, rel=1e-11)


@pytest.mark.parametrize("scale", [-700.0, -300.0, 300.0, 680.0])
def test_weights_beyond_what_a_factor_can_scale(scale):
    """The same law for weights of any size: the largest are certain, the smallest take no part."""
    lw = np.array([0.0, 1.0, 2.0, 0.5, 0.1])
    weights = np.exp(lw + scale)
    bins = np.zeros(counts.BINS, np.int64)
    counts.tally(weights, bins, 1)
    log_theta = counts.odds_factor(bins, 2)
    whole = counts.count(weights, log_theta)
    p = counts.inclusion_probabilities(whole, log_theta, np.log(weights), 2)
    assert p == pytest.approx(law.inclusion_probabilities(lw, 2), rel=1e-6)


def test_certain_and_impossible_rows():
    weights = np.array([1e300, 1.0, 0.0, 1e300, 1.0, 0.0])
    part = counts.count(weights, 0.0)
    for seed in range(50):
        got = counts.draw(weights, part, 0.0, 3, seeded(seed)).tolist()
        assert {0, 3} < set(got) and not {2, 5} & set(got)
    assert counts.draw(weights, part, 0.0, 4, seeded(0)).tolist() == [0, 1, 3, 4]
    assert counts.draw(weights, part, 0.0, 0, seeded(0)).tolist() == []


def test_parts_that_cannot_hold_what_is_asked():
    part = counts.count(np.ones(2), 0.0)
    with pytest.raises(ArithmeticError, match="9 items cannot be shared out"):
        counts.split(part, part, 9, seeded(0))


@functools.cache
def solved(n):
    pi = np.random.default_rng(n).dirichlet(np.ones(3 * n)) * n
    while (pi > 0.95).any():
        pi = np.minimum(pi, 0.9)
        pi *= n / pi.sum()
    return pi, law.weights_for(pi)


@pytest.mark.parametrize("n", [1, 2, 7, 64])
def test_weights_for_prescribed_probabilities(n):
    pi, found = solved(n)
    assert found.error < 1e-12
    assert law.inclusion_probabilities(found.log_weights, n) == pytest.approx(pi, abs=1e-11)


def test_weights_for_the_published_example():
    """Chen, Dempster and Liu's law by brute force: what R's UPmaxentropy computes, from the same definition."""
    pi = np.array([0.07, 0.17, 0.41, 0.61, 0.83, 0.91])
    found = law.weights_for(pi)
    enumerated = law.enumerate_law(list(np.exp(found.log_weights)), 3)
    for k in range(6):
        assert sum(p for s, p in enumerated.items() if k in s) == pytest.approx(pi[k], abs=1e-12)


@pytest.mark.parametrize("digits", [7, 8, 9])
def test_weights_for_rounded_probabilities(digits):
    """Their sum is not quite whole: what no law can keep is shared out, and ``error`` says how much that is."""
    pi, _ = solved(7)
    rounded = pi.round(digits)
    off = abs(rounded.sum() - 7)
    found = law.weights_for(rounded)
    assert 1e-12 < off < 1e-6 and found.error <= off
    p = law.inclusion_probabilities(found.log_weights, 7)
    assert p.sum() == pytest.approx(7, abs=1e-12) and np.abs(p - rounded).max() == pytest.approx(found.error, abs=1e-12)


@pytest.mark.parametrize(
    "pi", [[3e-309, 1 / 6, 2 / 6, 0.5], [1 - 1e-12] * 5 + [5e-12], [1e-200] * 40 + [0.5, 0.5], [1 - 2**-53, 2**-53]]
)
def test_weights_for_probabilities_near_0_and_1(pi):
    assert law.weights_for(pi).error < 1e-12


def test_weights_for_what_cannot_be():
    with pytest.raises(ValueError, match="whole number"):
        law.weights_for([0.5, 0.6])
    with pytest.raises(ValueError, match=r"pi\[1\] is 1.5"):
        law.weights_for([0.5, 1.5])
    assert law.weights_for([1.0, 0.0]).log_weights.tolist() == [math.inf, -math.inf]
    some = law.weights_for([1.0, 0.5, 0.5, 0.0])
    assert some.log_weights[1] == some.log_weights[2] and some.error < 1e-12
