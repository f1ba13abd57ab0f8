"""Statistics against numbers worked out by hand."""

import numpy as np
import pytest

from recollect.studies import statistics

NAN = np.nan


def test_mean_and_standard_error():
    values = np.array([[1.0, NAN, 5.0], [2.0, NAN, NAN], [6.0, NAN, NAN]])
    mean, error = statistics.mean_and_standard_error(values)
    # Column 0: deviations −2, −1, 3, so variance 14/2 = 7 and standard error √(7/3).
    np.testing.assert_allclose(mean, [3.0, NAN, 5.0])
    np.testing.assert_allclose(error, [np.sqrt(7 / 3), NAN, NAN])
    np.testing.assert_allclose(statistics.mean_and_standard_error(values, axis=1)[0], [3.0, 2.0, 6.0])


@pytest.mark.parametrize(
    ("hits", "trials", "expected"),
    # Wilson's interval with z² = 3.841459: for 0 of n it is [0, z²/(n + z²)], and k of n mirrors n − k of n.
    [(0, 10, (0.0, 0.277533)), (10, 10, (0.722467, 1.0)), (5, 10, (0.236593, 0.763407)), (0, 0, (0.0, 1.0))],
)
def test_share_interval(hits, trials, expected):
    np.testing.assert_allclose(statistics.share_interval(hits, trials), expected, atol=1e-6)


def test_blocks():
    values = np.array([[1.0, 3.0, 2.0, 6.0], [1.0, 3.0, 2.0, NAN]])
    np.testing.assert_allclose(statistics.blocks_of(values, 2), [[2.0, 4.0], [2.0, NAN]])
    np.testing.assert_allclose(statistics.blocks_of(values, 4), values)
    with pytest.raises(ValueError, match="4 bins do not divide into 3 blocks"):
        statistics.blocks_of(values, 3)


def test_episodes_to_solve():
    returns = np.full((4, 50), 0.3)
    returns[0, 10:] = 1.0  # blocks are two bins: the sixth is the first above .95
    returns[1, 11:] = 1.0  # half of the sixth is not enough
    returns[2, 10:12] = 1.0  # once is enough, even if it falls back
    returns[3, 10] = NAN  # an incomplete block is not solved
    np.testing.assert_array_equal(statistics.episodes_to_solve(returns, 5_000), [1_200, 1_400, 1_200, np.inf])
    # 10 bins only divide into 5 of the 25 blocks: each is then a fifth of the budget.
    np.testing.assert_array_equal(statistics.episodes_to_solve(np.ones((1, 10)), 1_000), [200])
    assert statistics.episodes_to_solve(np.full((1, 25), 0.95), 25)[0] == np.inf


def test_last_block():
    values = np.arange(100.0).reshape(2, 50)
    values[1, -1] = NAN
    np.testing.assert_allclose(statistics.last_block(values), [48.5, NAN])
