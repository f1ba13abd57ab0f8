"""Running mean and variance of vectors, compiled by numba, which is imported where something is normalised."""

import numpy as np
from numba import njit

from recollect.training.normalization import LIMIT

VARIES = 1e-18
"""A variance counts as one from this part of the squared mean on: a deviation of a billionth of the mean. What varies
less differs by rounding; observations, which are float32, either vary more than that or not at all. There is no
absolute bound, as quantities in units of a billionth are as good as any."""


@njit(cache=True, error_model="numpy")
def _add(x, count, mean, squares):
    for k in range(len(x)):
        away = x[k] - mean[k]
        mean[k] += away / count
        squares[k] += away * (x[k] - mean[k])


@njit(cache=True, error_model="numpy")
def _scale(x, count, mean, squares):
    for k in range(len(x)):
        variance = squares[k] / max(count - 1, 1)
        varies = variance > VARIES * mean[k] * mean[k]
        scaled = (x[k] - mean[k]) / (np.sqrt(variance) if varies else 1.0)
        x[k] = min(max(scaled, -LIMIT), LIMIT)


class Moments:
    """Running mean and variance of vectors (Welford)."""

    def __init__(self, size: int):
        self.count, self.mean, self.squares = 0, np.zeros(size), np.zeros(size)

    def add(self, x: np.ndarray) -> None:
        """Take in one vector."""
        self.count += 1
        _add(x, self.count, self.mean, self.squares)

    def scale(self, x: np.ndarray) -> None:
        """Make of a vector, in place, how many deviations it is from the mean, to ±LIMIT."""
        _scale(x, self.count, self.mean, self.squares)

    def deviation(self) -> np.ndarray:
        """Standard deviation; 1 where nothing varies yet."""
        variance = self.squares / max(self.count - 1, 1)
        return np.where(variance > VARIES * self.mean**2, np.sqrt(variance), 1.0)
