"""What the reservoir is measured beside, each compiled the same way."""

import math

import numpy as np
from numba import njit

from recollect.reservoir.random import exponential, uniform
from recollect.reservoir.ratios import accept_probability, drop_probability, grow


@njit(cache=True, error_model="numpy")
def direct(w, n, rng):
    """The stable form without skipping or deferral: one uniform and O(n) work an item."""
    g, out = np.zeros(n + 1), np.zeros(n + 1)
    g[0] = out[0] = math.inf
    rows, weights = np.zeros((n, n + 1)), np.zeros(n)
    order, kept = np.arange(n), np.zeros(n, np.int64)
    for t in range(len(w)):
        rank = 0
        if t < n:
            rank = 1
        elif uniform(rng) < accept_probability(g[n], w[t]):
            rank = n
            while rank > 1:
                s = order[rank - 1]
                if uniform(rng) < drop_probability(rows[s, rank - 1], rows[s, rank], weights[s]):
                    break
                rank -= 1
        if rank > 0:
            slot = order[rank - 1]
            order[rank - 1 : n - 1] = order[rank:].copy()
            order[n - 1] = slot
            rows[slot] = g
            weights[slot] = w[t]
            kept[slot] = t
        grow(g, w[t], out)
        g, out = out, g
    return kept


@njit(cache=True, error_model="numpy")
def _sift(keys, positions, i):
    n = len(keys)
    while True:
        least = i
        for child in (2 * i + 1, 2 * i + 2):
            if child < n and keys[child] < keys[least]:
                least = child
        if least == i:
            return
        keys[i], keys[least] = keys[least], keys[i]
        positions[i], positions[least] = positions[least], positions[i]
        i = least


@njit(cache=True, error_model="numpy")
def a_expj(w, n, rng):
    """A-ExpJ (Efraimidis and Spirakis 2006): samples successively without replacement, another law, at O(1) an item."""
    keys, positions = np.empty(n), np.arange(n)
    for i in range(n):
        keys[i] = -exponential(rng) / w[i]
    for i in range(n // 2, -1, -1):
        _sift(keys, positions, i)
    jump = exponential(rng) / -keys[0]
    for t in range(n, len(w)):
        jump -= w[t]
        if jump <= 0.0:
            low = math.exp(keys[0] * w[t])
            keys[0] = math.log(low + (1.0 - low) * uniform(rng)) / w[t]
            positions[0] = t
            _sift(keys, positions, 0)
            jump = exponential(rng) / -keys[0]
    return positions
