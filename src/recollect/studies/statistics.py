"""What the result tables are made of."""

import math

import numpy as np


def mean_and_standard_error(values: np.ndarray, axis: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Mean over ``axis`` and its standard error, over the entries that are not NaN (NaN where there are none).

    >>> mean_and_standard_error(np.array([1.0, 3.0, np.nan]))
    (np.float64(2.0), np.float64(1.0))
    """
    count = np.sum(~np.isnan(values), axis=axis)
    safe = np.maximum(count, 1)
    mean = np.where(count > 0, np.nansum(values, axis=axis) / safe, np.nan)
    squares = np.nansum((values - np.expand_dims(mean, axis)) ** 2, axis=axis)
    error = np.where(count > 1, np.sqrt(squares / np.maximum(count - 1, 1) / safe), np.nan)
    return mean[()], error[()]


def share_interval(hits: int, trials: int) -> tuple[float, float]:
    """Wilson's 95% interval for a share.

    >>> tuple(round(x, 3) for x in share_interval(64, 64))
    (0.943, 1.0)
    """
    if trials == 0:
        return 0.0, 1.0
    from scipy.stats import binomtest  # takes half a second to import

    low, high = binomtest(hits, trials).proportion_ci(0.95, method="wilson")
    return float(low), float(high)


def interquartile_mean(values: np.ndarray) -> float:
    """Mean of the middle half of all values; of values that do not divide by four, the ends count in part.

    >>> interquartile_mean(np.array([0.0, 1.0, 2.0, 100.0]))
    1.5
    """
    ordered = np.sort(np.ravel(values))
    edges = np.clip(np.arange(len(ordered) + 1) / len(ordered), 0.25, 0.75)
    return float(np.sum(ordered * np.diff(edges)) * 2)


def stratified_bootstrap(strata: list[np.ndarray], draws: int = 2000, seed: int = 0) -> tuple[float, float]:
    """95% interval of the interquartile mean over strata (tasks), resampling runs within each.

    >>> low, high = stratified_bootstrap([np.array([0.0, 1.0, 1.0]), np.array([1.0, 1.0, 1.0])])
    >>> 0 <= low <= high <= 1
    True
    """
    rng = np.random.default_rng(seed)
    found = [
        interquartile_mean(np.concatenate([rng.choice(stratum, len(stratum)) for stratum in strata]))
        for _ in range(draws)
    ]
    low, high = np.quantile(found, [0.025, 0.975])
    return float(low), float(high)


def blocks_of(values: np.ndarray, blocks: int) -> np.ndarray:
    """Means over ``blocks`` equal stretches of the last axis; NaN where a stretch is not complete.

    >>> blocks_of(np.array([[1.0, 3.0, 5.0, np.nan]]), 2)
    array([[ 2., nan]])
    """
    bins = values.shape[-1]
    if bins % blocks:
        raise ValueError(f"{bins} bins do not divide into {blocks} blocks")
    return values.reshape(*values.shape[:-1], blocks, bins // blocks).mean(axis=-1)


def episodes_to_solve(returns: np.ndarray, episodes: int, threshold: float = 0.95, blocks: int = 25) -> np.ndarray:
    """For each run, the end of the first block of 1/25 of the budget whose mean return exceeds the threshold.

    Infinity where there is none. ``returns`` is [run, bin] over ``episodes`` episodes.
    """
    blocks = math.gcd(blocks, returns.shape[-1])
    over = blocks_of(returns, blocks) > threshold
    first = np.argmax(over, axis=-1)
    return np.where(over.any(axis=-1), (first + 1) * (episodes // blocks), np.inf)


def last_block(values: np.ndarray, blocks: int = 25) -> np.ndarray:
    """The mean over the last block of each run; NaN for runs that did not finish."""
    return blocks_of(values, math.gcd(blocks, values.shape[-1]))[..., -1]
