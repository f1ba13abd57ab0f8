"""The memories of the episodic agent, compiled: ``recollect.reservoir.kernel`` under each of its laws."""

import math

import numpy as np
from numba import njit

from recollect.engines.native.kernels import WRITE, copy_over, exact, uniform

LAWS = {"reservoir": 0, "uniform": 1, "fifo": 2, "none": 3}
LOG_INFINITY, LOG_ZERO_RATIO, LOG_ZERO_WEIGHT = 1e36, -1e36, -2e36  # as in recollect.reservoir.kernel


@exact
def _sigmoid(x):
    return 1.0 / (1.0 + math.exp(-x)) if x > -700 else 0.0


@exact
def holds(items, ranks, item):
    """Whether an item equal to this one is in memory."""
    for i in range(len(ranks)):
        if ranks[i] > 0:
            same = True
            for j in range(len(item)):
                if items[i, j] != item[j]:
                    same = False
                    break
            if same:
                return True
    return False


@exact
def add(sizes, items, memory, whole, item, log_weight, key, time):
    """Show the memory one item, as ``recollect.reservoir.kernel`` does under each of its laws."""
    n, law, distinct = sizes[3], sizes[4], sizes[10]
    if law == 3:
        return
    ranks = whole[:n]
    if distinct and holds(items, ranks, item):
        return  # as if it had weight 0
    high, low = memory[n : 2 * n + 1], memory[2 * n + 1 : 3 * n + 2]
    drop = memory[3 * n + 2 :].reshape(n if law == 0 else 0, n)  # the other laws have no use for it
    zero = not abs(log_weight) <= 1e30
    if zero:
        log_weight = LOG_ZERO_WEIGHT
    count = 0
    for i in range(n):
        count += ranks[i] > 0
    if law == 0:
        accept = _sigmoid((log_weight - high[n]) - low[n])
    else:
        accept = 0.0 if zero else (min(1.0, n / (whole[n] + 1.0)) if law == 1 else 1.0)
    slot, dropped = n, n
    if uniform(key, time, WRITE, 0) < accept:
        slot = count
        if count == n:
            best = 0
            for i in range(n):
                chance = (
                    drop[i, ranks[i] - 1]
                    if law == 0
                    else (1.0 / ranks[i] if law == 1 else 1.0 if ranks[i] == 1 else 0.0)
                )
                if ranks[i] > best and uniform(key, time, WRITE, 1 + i) < chance:
                    slot, best = i, ranks[i]
            dropped = ranks[slot]
    if slot < n:
        for i in range(n):
            if ranks[i] > dropped:
                ranks[i] -= 1
        copy_over(item, items[slot])
        memory[slot] = log_weight
        ranks[slot] = min(count + 1, n)
    if not zero and whole[n] < 2**31 - 1:
        whole[n] += 1
    if law == 0:
        if slot < n:
            for k in range(n):
                gap = (high[k] - high[k + 1]) + (low[k] - low[k + 1])
                drop[slot, k] = -math.expm1(-max(gap, 0.0)) * _sigmoid(-((log_weight - high[k]) - low[k]))
        _grow(high, low, log_weight)


@exact
def _grow(high, low, log_weight):
    """The ratios see one more weight; not fast-math, as the low parts live on rounding."""
    above_high, above_low = high[0], low[0]
    for k in range(1, len(high)):
        m_above = (log_weight - above_high) - above_low
        m = (log_weight - high[k]) - low[k]
        here_high, here_low = high[k], low[k]
        if m_above > 0:
            new_high, new_low = float(above_high), float(above_low)
        elif m > 0:
            new_high, new_low = float(np.float32(log_weight)), 0.0
        else:
            new_high, new_low = float(high[k]), float(low[k])
        new_low += math.log1p(math.exp(-abs(m))) - math.log1p(math.exp(-abs(m_above)))
        total = new_high + new_low
        high[k] = total
        low[k] = total - float(high[k])
        above_high, above_low = here_high, here_low


@njit(cache=True, error_model="numpy")
def clear(sizes, memory, whole):
    """Empty the memory."""
    n = sizes[3]
    memory[:n] = -np.inf
    memory[n] = LOG_INFINITY
    memory[n + 1 : 2 * n + 1] = LOG_ZERO_RATIO
    memory[2 * n + 1 : 3 * n + 2] = 0.0
    whole[: n + 1] = 0
