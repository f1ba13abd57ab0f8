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
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from recollect.reservoir import ratios


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


def enumerate_law(weights: Sequence[Any], n: int) -> dict[tuple[Hashable, ...], Any]:
    """Every n-subset of positions with its probability, by brute force; exact for ``fractions.Fraction`` weights.

    >>> enumerate_law([1.0, 1.0, 2.0], 2)
    {(0, 1): 0.2, (0, 2): 0.4, (1, 2): 0.4}

    Paper: Eq. (11)
    """
    products = {s: math.prod(weights[i] for i in s) for s in itertools.combinations(range(len(weights)), n)}
    total = sum(products.values())
    return {subset: product / total for subset, product in products.items()}
