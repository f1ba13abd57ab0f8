"""Merging two samples of disjoint streams into one of their union, exactly, and so that it streams on.

How many items come from each side is drawn first (the union's law splits as e_k(A) e_{n−k}(B)), then each side is
brought down to its share, newest item first; a prefix, a suffix or a uniform choice would not follow the law. Last,
the copies of g that the items of B carry are re-based, as if B's stream had followed A's.
"""

import math

import numpy as np
from numba import njit

from recollect.reservoir import passes
from recollect.reservoir.passes import HELD, SEEN, SHIFT, State
from recollect.reservoir.random import uniform
from recollect.reservoir.ratios import join_log, log_add


def split_log_probabilities(lg_a, lg_b, size):
    """Log P(k items from A), k = 0 … size, not normalised: log e_k(A) + log e_{size−k}(B)."""
    log_e_a = np.concatenate([[0.0], np.cumsum(lg_a[1 : size + 1])])
    log_e_b = np.concatenate([[0.0], np.cumsum(lg_b[1 : size + 1])])
    return log_e_a + log_e_b[::-1]


@njit(cache=True, error_model="numpy")
def survivors(rows, log_weights, order, held, need, rng):
    """Mark the ``need`` items that stay when a sample of ``held`` items, in logs, is brought down to that size."""
    stays = np.zeros(len(order), np.bool_)
    empty = len(order) - held
    rank = held
    while rank > 0 and need > 0:
        s = order[empty + rank - 1]
        lw = log_weights[s]
        # keep_probability, in logs
        if need == rank or uniform(rng) < math.exp(log_add(rows[s, rank], lw) - log_add(rows[s, need], lw)):
            stays[s] = True
            need -= 1
        rank -= 1
    return stays


def _draw_split(log_p: np.ndarray, rng: np.ndarray) -> int:
    p = np.exp(log_p - log_p.max())
    cumulative = np.cumsum(p)
    return int(np.searchsorted(cumulative, uniform(rng) * cumulative[-1], side="right"))


def merge(a: State, b: State, rng: np.ndarray) -> tuple[State, list[tuple[int, int]]]:
    """The merged state, and where each of its slots came from: (0 for a, 1 for b; slot there)."""
    shift = int(a.counts[SHIFT] if a.counts[HELD] else b.counts[SHIFT])
    a, b = a.copy(), b.copy()
    for state in (a, b):
        if not state.counts[passes.IS_LOG]:
            passes.to_logs(state)
    n = len(a.order)
    merged = passes.empty(n, rng)
    held_a, held_b = int(a.counts[HELD]), int(b.counts[HELD])
    size = min(n, held_a + held_b)
    from_a = _draw_split(split_log_probabilities(a.g, b.g, size), merged.rng) if size else 0
    stays_a = survivors(a.rows, a.weights, a.order, held_a, from_a, merged.rng)
    stays_b = survivors(b.rows, b.weights, b.order, held_b, size - from_a, merged.rng)

    origin = [(0, int(s)) for s in a.order if stays_a[s]] + [(1, int(s)) for s in b.order if stays_b[s]]
    for slot, (side, s) in enumerate(origin):
        source = (a, b)[side]
        merged.weights[slot] = source.weights[s]
        merged.index[slot] = source.index[s] + (int(a.counts[SEEN]) if side else 0)
        if side:
            join_log(a.g[: n + 1], source.rows[s], merged.rows[slot])
        else:
            merged.rows[slot] = source.rows[s]
    join_log(a.g, b.g, merged.g)
    merged.order[:] = np.concatenate([np.arange(size, n), np.arange(size)])
    merged.counts[:] = a.counts[SEEN] + b.counts[SEEN], size, 0, 1
    passes.to_linear_if_possible(merged, shift)
    return merged, origin
