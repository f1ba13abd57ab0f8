"""Total variation 0 from the product law, over every branch, in rational arithmetic."""

import itertools
from fractions import Fraction

import pytest

from recollect.reservoir.algorithm1 import Algorithm1
from recollect.reservoir.law import enumerate_law
from reservoir.branches import distribution, total_variation
from reservoir.reference import Plain, merged

WEIGHTS = {
    "growing": [1, 2, 4, 8, 16, 32, 64, 128],
    "mixed": [Fraction(3, 7), 5, Fraction(1, 9), 2, 2, Fraction(11, 3), Fraction(1, 100), 7],
    "equal": [1] * 8,
}
CASES = [(name, n, t) for name in WEIGHTS for n, t in [(1, 8), (2, 7), (3, 6), (4, 6)]]


def weights_of(name, t):
    return [Fraction(w) for w in WEIGHTS[name][:t]]


@pytest.mark.parametrize(
    ("name", "n", "t"), [case if case[1] == 2 else pytest.param(*case, marks=pytest.mark.slow) for case in CASES]
)
def test_algorithm1(name, n, t):
    w = weights_of(name, t)

    def run(permutation):
        def procedure(flip):
            r = Algorithm1(w[:n], permutation)
            for i in range(n, t):
                r.update(w[i], i, flip)
            return tuple(sorted(r.T_hat))

        return distribution(procedure)

    permutations = list(itertools.permutations(range(n)))
    law = {}
    for permutation in permutations:
        for subset, p in run(permutation).items():
            law[subset] = law.get(subset, 0) + p / len(permutations)
    assert total_variation(law, enumerate_law(w, n)) == 0


@pytest.mark.parametrize("n", [2, 3])
def test_algorithm1_needs_its_permutation(n):
    w = weights_of("growing", 5)

    def procedure(flip):
        r = Algorithm1(w[:n], range(n))
        for i in range(n, 5):
            r.update(w[i], i, flip)
        return tuple(sorted(r.T_hat))

    assert total_variation(distribution(procedure), enumerate_law(w, n)) > 0


def streamed(w, n, flip):
    r = Plain(n, Fraction(0))
    for x in w:
        r.add(x, flip)
    return r


@pytest.mark.parametrize(("name", "n", "t"), [*CASES, ("mixed", 2, 8), ("mixed", 3, 8), ("mixed", 4, 8)])
def test_streaming(name, n, t):
    w = weights_of(name, t)
    law = distribution(lambda flip: streamed(w, n, flip).positions())
    assert total_variation(law, enumerate_law(w, n)) == 0


@pytest.mark.parametrize(("n", "t", "need"), [(2, 5, 1), (3, 6, 1), (3, 6, 2), (4, 6, 2), (4, 6, 3), (4, 3, 2)])
def test_down_sampling(n, t, need):
    w = weights_of("mixed", t)
    law = distribution(lambda flip: tuple(sorted(p for p, _, _ in streamed(w, n, flip).downsampled(need, flip))))
    assert total_variation(law, enumerate_law(w, need)) == 0


@pytest.mark.parametrize(
    ("n", "ta", "tb"), [(1, 3, 3), (2, 4, 4), (3, 4, 4), (3, 2, 5), (3, 5, 2), (3, 1, 1), (4, 3, 3)]
)
def test_merging(n, ta, tb):
    w = weights_of("mixed", ta + tb)

    def procedure(flip):
        return merged(streamed(w[:ta], n, flip), streamed(w[ta:], n, flip), flip).positions()

    assert total_variation(distribution(procedure), enumerate_law(w, min(n, ta + tb))) == 0


@pytest.mark.parametrize(
    ("n", "ta", "tb", "more"), [(1, 2, 2, 3), (2, 3, 3, 2), (3, 3, 3, 1), (3, 2, 2, 2), (2, 1, 3, 2)]
)
def test_merging_then_streaming_on(n, ta, tb, more):
    w = weights_of("mixed", ta + tb + more)

    def procedure(flip):
        c = merged(streamed(w[:ta], n, flip), streamed(w[ta : ta + tb], n, flip), flip)
        for x in w[ta + tb :]:
            c.add(x, flip)
        return c.positions()

    assert total_variation(distribution(procedure), enumerate_law(w, n)) == 0


@pytest.mark.parametrize("cut", ["prefix", "suffix"])
def test_the_obvious_smaller_samples_are_wrong(cut):
    w = weights_of("growing", 6)

    def procedure(flip):
        kept = streamed(w, 3, flip).positions()
        return kept[:2] if cut == "prefix" else kept[1:]

    assert total_variation(distribution(procedure), enumerate_law(w, 2)) > Fraction(1, 20)
