"""From a sample to sums over everything it was drawn from: estimates, their variance, their intervals."""

import math
from typing import NamedTuple

import numpy as np

PAIRS = 512
"""Up to so many items the variance is estimated from the probabilities of all pairs, an amount of work ∝ n²·√n."""


class _TotalAndVariance(NamedTuple):
    total: float
    variance: float


class Estimate(_TotalAndVariance):
    """An estimate of a sum over the whole stream; as a tuple, the total and its variance.

    Attributes:
        total: Horvitz and Thompson's estimate of the sum.
        variance: an estimate of its variance.
        skewness: an estimate of its skewness, third central moment over the variance to the power 1.5.
        degrees: of freedom that the estimate of the variance rests on.
    """

    skewness: float
    degrees: float

    def __new__(cls, total: float, variance: float, skewness: float = 0.0, degrees: float = math.inf) -> "Estimate":
        """What was found; without the last two, as if the estimate had a normal distribution."""
        self = super().__new__(cls, total, variance)
        self.skewness, self.degrees = skewness, degrees
        return self

    @property
    def standard_error(self) -> float:
        """Square root of the variance estimate (0 where that estimate came out negative)."""
        return math.sqrt(max(self.variance, 0.0)) if not math.isnan(self.variance) else math.nan

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """An interval that covers the sum with about that probability.

        Quantiles of Student's t, with the skewness of the estimate taken out by Hall's cubic transformation: where few
        items of small probability carry much of the sum, as they do when values have nothing to do with weights, the
        interval reaches further up than down. docs/reservoir.md has its measured coverage.

        >>> low, high = Estimate(100.0, 25.0, degrees=9.0).interval()
        >>> round(low, 2), round(high, 2)
        (88.69, 111.31)
        """
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must be between 0 and 1, got {level}")
        error = self.standard_error
        if math.isnan(error):
            return math.nan, math.nan
        t = t_quantile(0.5 + 0.5 * level, self.degrees)
        return self.total - error * _unskewed(t, self.skewness), self.total - error * _unskewed(-t, self.skewness)


def _unskewed(x: float, a: float) -> float:
    """The t-statistic that Hall's transformation t + a t²/3 + a² t³/27 + a/6 takes to x."""
    if abs(a) < 1e-9:
        return x
    inner = 1.0 + a * (x - a / 6.0)
    return 3.0 / a * (math.copysign(abs(inner) ** (1.0 / 3.0), inner) - 1.0)


def t_quantile(p: float, degrees: float) -> float:
    """The p-quantile of Student's t, p > 1/2.

    >>> round(t_quantile(0.975, 5.0), 4), round(t_quantile(0.975, math.inf), 4)
    (2.5706, 1.96)
    """
    from scipy.special import ndtri, stdtrit  # takes a tenth of a second to import

    return float(ndtri(p) if degrees > 1e7 else stdtrit(degrees, p))


def checked(values: np.ndarray, size: int) -> np.ndarray:
    """Values of the kept items as float64, one each and all finite."""
    y = np.asarray(values, dtype=np.float64)
    if y.shape != (size,):
        raise ValueError(f"values must have one entry per kept item: {size} items, values of shape {y.shape}")
    if not np.isfinite(y).all():
        raise ValueError(f"values[{int(np.argmin(np.isfinite(y)))}] is not finite")
    return y


def total(y: np.ndarray, p: np.ndarray, pairs: np.ndarray | None = None) -> Estimate:
    """Estimate a sum from values and inclusion probabilities of the kept items.

    The variance is Sen, Yates and Grundy's where the probabilities of pairs are given, and else Deville's, which needs
    those of single items alone and was made for designs of largest entropy such as this one.
    """
    if not len(y):
        return Estimate(0.0, 0.0)
    scaled = y / p
    open_ = np.maximum(1.0 - p, 0.0)  # by how much each item's presence is left to chance
    sum_open = float(open_.sum())
    if sum_open <= 1e-12 * len(y):
        return Estimate(float(scaled.sum()), 0.0)
    if len(y) == 1:
        return Estimate(float(scaled.sum()), math.nan)
    shares = open_ / sum_open
    from_mean = scaled - np.dot(shares, scaled)
    if pairs is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(pairs > 0, np.outer(p, p) / pairs - 1.0, 0.0)
        variance = 0.5 * float(np.sum(share * (scaled[:, None] - scaled[None, :]) ** 2))
    else:
        variance = float(np.sum(open_ * from_mean**2) / (1.0 - np.sum(shares**2)))
    effective = 1.0 / float(np.sum(shares**2))
    second, third = (float(np.dot(shares, from_mean**k)) for k in (2, 3))
    skewness = third / second**1.5 / math.sqrt(effective) if second > 0.0 else 0.0
    return Estimate(float(scaled.sum()), variance, skewness, max(effective - 1.0, 1.0))
