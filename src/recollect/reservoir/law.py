"""The product law itself: P(sample = T̂) = Π_{i∈T̂} w_i / Σ over all n-subsets of the same product.

Known in statistics as conditional Poisson sampling (a k-DPP with a diagonal kernel): of all laws of n-subsets with
given inclusion probabilities it has the most entropy. For n = 1 an item's inclusion probability is proportional to
its weight; for n > 1 it is not:

>>> inclusion_probabilities(np.log([1, 2, 4, 8]), 2).round(2).tolist()
[0.2, 0.37, 0.63, 0.8]

Weights come as logarithms, −inf for weight 0, so that no weight is too large or too small.
"""

import itertools
import math
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from recollect.reservoir import counts, ratios


def _checked(log_weights: ArrayLike, n: int) -> np.ndarray:
    lw = np.asarray(log_weights, dtype=np.float64)
    if lw.ndim != 1:
        raise ValueError(f"log_weights must be one-dimensional, got shape {lw.shape}")
    bad = np.flatnonzero(np.isnan(lw) | (lw == np.inf))
    if bad.size:
        raise ValueError(f"log_weights[{bad[0]}] is {lw[bad[0]]}: finite numbers, or -inf for weight 0, are allowed")
    positive = int(np.sum(lw > -np.inf))
    if not 1 <= n <= positive:
        raise ValueError(f"n must be between 1 and the number of positive weights ({positive}), got {n}")
    return lw


def log_ratios(log_weights: ArrayLike, n: int) -> np.ndarray:
    """log(e_k / e_{k−1}) for k = 1 … n, e_k the elementary symmetric polynomials of the weights.

    >>> np.exp(log_ratios(np.log([1, 2, 3]), 3)).round(3).tolist()  # e = 1, 6, 11, 6
    [6.0, 1.833, 0.545]
    """
    return ratios.log_ratios_of(_checked(log_weights, n), n)[1:]


def log_normalizer(log_weights: ArrayLike, n: int) -> float:
    """Log e_n: the logarithm of the sum over all n-subsets of the product of their weights.

    Paper: Eq. (11), denominator
    """
    return float(np.sum(log_ratios(log_weights, n)))


def inclusion_probabilities(log_weights: ArrayLike, n: int) -> np.ndarray:
    """P(item i is in the sample) for every item, from all the weights; they sum to n."""
    lw = _checked(log_weights, n)
    J = ratios.margin(n)
    return ratios.inclusion(ratios.log_ratios_of(lw, n + J), lw, n, J)


def joint_inclusion_probabilities(log_weights: ArrayLike, n: int) -> np.ndarray:
    """P(items i and j are both in the sample) for every pair; the diagonal holds the inclusion probabilities.

    >>> joint_inclusion_probabilities(np.log([1, 2, 4]), 2).round(3).tolist()  # subsets weigh 2, 4 and 8 of 14
    [[0.429, 0.143, 0.286], [0.143, 0.714, 0.571], [0.286, 0.571, 0.857]]
    """
    lw = _checked(log_weights, n)
    J = ratios.margin(n)
    return ratios.joint_inclusion(ratios.log_ratios_of(lw, n + J), lw, n, J)


class Solved(NamedTuple):
    """Weights with prescribed inclusion probabilities.

    Attributes:
        log_weights: their logarithms, −inf where the probability is 0 and inf where it is 1.
        error: the largest difference between a prescribed probability and the one these weights have.
        iterations: how many it took.
    """

    log_weights: np.ndarray
    error: float
    iterations: int


def weights_for(pi: ArrayLike, tolerance: float = 1e-12, most: int = 200) -> Solved:
    """Weights under which the law includes item i with probability pi[i]: for surveys, which prescribe these.

    They exist and are unique up to a common factor for any 0 < pi < 1 whose sum n is a whole number. With R_i =
    e_{n−1}/e_n of the others, pi/(1 − pi) = w_i R_i, the fixed point that is iterated; a step with the full matrix of
    pairs, Newton's, follows where few items make the iteration slow. Items of probability 0 and 1 are set aside.

    >>> solved = weights_for([0.2, 0.5, 0.6, 0.7])
    >>> inclusion_probabilities(solved.log_weights, 2).round(9).tolist(), solved.error < 1e-12
    ([0.2, 0.5, 0.6, 0.7], True)

    Args:
        pi: the probabilities; their sum must be a whole number, to within 1e-6 in all, as of rounded ones. The rest to
            it, which no law can keep, is shared out among them by a common factor on their odds.
        tolerance: the largest error to stop at, besides that rest; what rounding allows is near 1e-13.
        most: iterations before a ``ValueError`` says how far it came.
    """
    p = np.asarray(pi, dtype=np.float64)
    if p.ndim != 1 or not len(p):
        raise ValueError(f"pi must be one-dimensional and not empty, got shape {p.shape}")
    wrong = np.flatnonzero(~((p >= 0.0) & (p <= 1.0)))
    if wrong.size:
        raise ValueError(f"pi[{wrong[0]}] is {p[wrong[0]]}: probabilities are from 0 to 1")
    lw = np.where(p == 1.0, np.inf, -np.inf)
    free = np.flatnonzero((p > 0.0) & (p < 1.0))
    wanted = p[free]
    total = math.fsum(wanted)
    n = round(total)
    if abs(total - n) > 1e-6:
        raise ValueError(f"pi sums to {math.fsum(p)}: a sample of fixed size needs a whole number")
    if not len(free):
        return Solved(lw, 0.0, 0)
    if n == 0 or n == len(free):
        raise ValueError(f"pi has {len(free)} probabilities strictly between 0 and 1 that sum to {n}: no law has these")
    target = _summing_to(n, np.log(wanted) - np.log1p(-wanted))
    summing = wanted if total == n else 1.0 / (1.0 + np.exp(np.minimum(-target, 700.0)))
    here, error, slow, before = target.copy(), math.inf, False, math.inf
    for iteration in range(1, most + 1):
        now = counts.inclusion_probabilities(_count_all(here), 0.0, here, n)
        error = float(np.abs(now - summing).max())
        if error <= tolerance:
            lw[free] = here
            return Solved(lw, float(np.abs(now - wanted).max()), iteration)
        now = np.clip(now, 5e-324, 1.0 - 2.0**-53)
        slow = slow or (iteration > 3 and error > 0.2 * before)
        before = error
        step = _newton_step(here, n, summing - now) if slow and len(free) <= _NEWTON else None
        here = here + (target - (np.log(now) - np.log1p(-now)) if step is None else step)
        here += counts.solve_scale(here, 1, n, 1e-6)  # the vectors of ``counts`` are then bells around n
    raise ValueError(f"after {most} iterations the largest error is {error:.1e}, not {tolerance:.1e}")


_NEWTON = 1_500  # items up to which a step may solve a full system of equations


def _count_all(log_weights: np.ndarray) -> counts.Counts:
    weights = np.exp(log_weights)
    return counts.Tree([counts.count(weights[at : at + 256], 0.0) for at in range(0, len(weights), 256)]).root


def _summing_to(n: int, logits: np.ndarray) -> np.ndarray:
    """Logits, all of them changed by the same, whose probabilities sum to n; they nearly do already."""
    for _ in range(3):
        p = 1.0 / (1.0 + np.exp(np.minimum(-logits, 700.0)))
        spread = float(np.dot(p, 1.0 - p))
        logits = logits - np.clip((math.fsum(p) - n) / spread, -1.0, 1.0) if spread else logits
    return logits


def _newton_step(log_weights: np.ndarray, n: int, missing: np.ndarray) -> np.ndarray | None:
    """The change of log-weights that makes up for what probabilities lack: covariances are their derivatives.

    None where probabilities are so near 0 and 1 that these tell nothing.
    """
    pairs = joint_inclusion_probabilities(log_weights, n)
    p = np.diagonal(pairs)
    covariance = pairs - np.outer(p, p)
    # A common factor changes nothing, so the matrix is singular in that direction alone: fix it.
    try:
        step = np.linalg.solve(covariance + np.full_like(covariance, 1.0 / len(p)), missing)
    except np.linalg.LinAlgError:
        return None
    return np.clip(step - step.mean(), -3.0, 3.0)


MOST_SUBSETS = 10**7
"""More are not enumerated: they would take gigabytes."""


def enumerate_law(weights: Sequence[Any], n: int) -> dict[tuple[Hashable, ...], Any]:
    """Every n-subset of positions with its probability, by brute force; exact for ``fractions.Fraction`` weights.

    >>> enumerate_law([1.0, 1.0, 2.0], 2)
    {(0, 1): 0.2, (0, 2): 0.4, (1, 2): 0.4}

    Paper: Eq. (11)
    """
    if not 0 <= n <= len(weights):
        raise ValueError(f"n={n} must be from 0 to the number of weights, {len(weights)}")
    if wrong := [f"weights[{i}] is {w}" for i, w in enumerate(weights) if not 0 <= w < math.inf]:
        raise ValueError(f"{wrong[0]}: weights must be finite and not negative")
    if sum(w > 0 for w in weights) < n:
        raise ValueError(f"fewer than n={n} weights are positive: no subset has a probability")
    if (count := math.comb(len(weights), n)) > MOST_SUBSETS:
        raise ValueError(f"{count:,} subsets are too many to enumerate; inclusion_probabilities needs no enumeration")
    products = {s: math.prod(weights[i] for i in s) for s in itertools.combinations(range(len(weights)), n)}
    total = sum(products.values())
    return {subset: product / total for subset, product in products.items()}
