"""Running mean and variance, by hand and beside NumPy's."""

import numpy as np
import pytest

from recollect.training.moments import Moments
from recollect.training.normalization import LIMIT


def test_outliers_are_cut():
    moments = Moments(1)
    for x in (0.0, 1.0, 2.0):
        moments.add(np.array([x]))
    far = np.array([1e9])
    moments.scale(far)
    assert far[0] == LIMIT


def test_they_are_numpys():
    seen, moments = np.random.default_rng(0).normal(3.0, 2.0, (50, 3)), Moments(3)
    for x in seen:
        moments.add(x)
    assert moments.mean == pytest.approx(seen.mean(axis=0))
    assert moments.deviation() == pytest.approx(seen.std(axis=0, ddof=1))
