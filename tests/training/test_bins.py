"""Bins against records written by hand."""

import numpy as np
import pytest

from recollect.engines.loop import Record
from recollect.training.bins import Bins, default_bins


def record(episodes):
    """Of one run, after each of several looks; weights and queries tell the look they are from."""
    looks = np.arange(len(episodes), dtype=float)
    weights = np.stack([looks, 10 + looks], axis=1)
    return Record(np.array([episodes]), np.array([looks]), weights[None], looks[None, :, None, None] + np.zeros((1, 2)))


@pytest.mark.parametrize("episodes, bins", [(1, 1), (60, 60), (100, 100), (25_000, 100), (202, 2), (101, 1), (150, 75)])
def test_default_bins(episodes, bins):
    assert default_bins(episodes) == bins


def test_a_bin_is_added_once_with_the_first_look_after_its_end():
    bins = Bins(1, 3, 10, (1, 2))
    sums = np.array([[[7.0, 50.0, 10.0], [4.0, 60.0, 10.0], [0.0, 3.0, 1.0]]])
    assert np.isnan(bins.recent_return()) and bins.add([5], record([4, 9]), np.zeros((1, 3, 3))) == []
    first, second = bins.add([5], record([9, 15, 21]), sums)
    assert (first["seed"], first["episodes"], first["return"], first["length"]) == (5, 10, 0.7, 5.0)
    assert first["write_weights"] == [1.0, 11.0] and second["write_weights"] == [2.0, 12.0]
    assert second["query_vectors"] == [[2.0, 2.0]] and second["episodes"] == 20
    assert bins.recent_return() == 0.4 and bins.add([5], record([21, 25]), sums) == []
    assert np.isnan(bins.returns[0, 2]) and bins.complete.tolist() == [2]


def test_what_a_checkpoint_holds_comes_back():
    bins, again = Bins(1, 3, 10, (1, 2)), Bins(1, 3, 10, (1, 2))
    bins.add([5], record([11]), np.array([[[7.0, 50.0, 10.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]]))
    again.restore(bins.arrays())
    for name, array in bins.arrays().items():
        np.testing.assert_array_equal(again.arrays()[name], array)
    like = Bins.like(1, 3, (1, 2))
    assert {k: (v.shape, v.dtype) for k, v in like.items()} == {k: (v.shape, v.dtype) for k, v in bins.arrays().items()}
    again.returns[:] = 0.0
    assert bins.returns[0, 0] == 0.7, "a copy, not the checkpoint's own"
