"""Merging two samples of disjoint streams into one of their union, exactly, and so that it streams on.

How many items come from each side is drawn first (the union's law splits as e_k(A) e_{n−k}(B)), then each side is
brought down to its share, newest item first; a prefix, a suffix or a uniform choice would not follow the law. Last,
the copies of g that the items of B carry are re-based, as if B's stream had followed A's.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from recollect.reservoir import passes
from recollect.reservoir.passes import HELD, IS_LOG, SEEN, SHIFT, State
from recollect.reservoir.random import uniform
from recollect.reservoir.ratios import join_log, log_add


def split_log_probabilities(lg_a, lg_b, size):
    """Log P(k items from A), k = 0 … size, not normalised: log e_k(A) + log e_{size−k}(B)."""
    log_e_a = np.concatenate([[0.0], np.cumsum(lg_a[1 : size + 1])])
    log_e_b = np.concatenate([[0.0], np.cumsum(lg_b[1 : size + 1])])
    return log_e_a + log_e_b[::-1]


@njit(cache=True, error_model="numpy")
def survivors(rows, shift, is_log, log_weights, order, held, need, rng):
    """Mark the ``need`` items that stay when a sample of ``held`` items is brought down to that size.

    ``rows`` are on the scale of the state, e^``shift``, or logarithms.
    """
    stays = np.zeros(len(order), np.bool_)
    empty = len(order) - held
    rank = held
    while rank > 0 and need > 0:
        s = order[empty + rank - 1]
        lw = log_weights[s]
        at_rank, at_need = rows[s, rank], rows[s, need]
        if not is_log:
            at_rank, at_need = math.log(at_rank) + shift, math.log(at_need) + shift
        # keep_probability, in logs
        if need == rank or uniform(rng) < math.exp(log_add(at_rank, lw) - log_add(at_need, lw)):
            stays[s] = True
            need -= 1
        rank -= 1
    return stays


def _draw_split(log_p: np.ndarray, rng: np.ndarray) -> int:
    p = np.exp(log_p - log_p.max())
    cumulative = np.cumsum(p)
    return int(np.searchsorted(cumulative, uniform(rng) * cumulative[-1], side="right"))


class _Side(NamedTuple):
    """One of the two states: its small parts as logarithms, its rows, which are large, as they are."""

    state: State
    lg: np.ndarray
    log_weights: np.ndarray
    shift: float

    def row(self, slot: int, length: int) -> np.ndarray:
        """The first ratios from before an item came, as logarithms."""
        row = self.state.rows[slot, :length]
        if self.state.counts[IS_LOG]:
            return row
        with np.errstate(divide="ignore"):
            return np.log(row) + self.shift

    def survivors(self, need: int, rng: np.ndarray) -> np.ndarray:
        """Which slots stay when ``need`` items do."""
        state = self.state
        is_log, held = bool(state.counts[IS_LOG]), int(state.counts[HELD])
        return survivors(state.rows, self.shift, is_log, self.log_weights, state.order, held, need, rng)


def _side(state: State) -> _Side:
    if state.counts[IS_LOG]:
        return _Side(state, state.g, state.weights, 0.0)
    shift = float(state.counts[SHIFT]) * math.log(2.0)
    g = state.g.copy()
    passes.flush(g, state.block.copy())
    with np.errstate(divide="ignore"):
        return _Side(state, np.log(g) + shift, np.log(state.weights) + shift, shift)


def merge(a: State, b: State, rng: np.ndarray) -> tuple[State, list[tuple[int, int]]]:
    """The merged state, and where each of its slots came from: (0 for a, 1 for b; slot there).

    An item's rank only falls, so of its ratios those up to its rank are worked out and the others left out.
    """
    shift = int(a.counts[SHIFT] if a.counts[HELD] else b.counts[SHIFT])
    sides = _side(a), _side(b)
    n = len(a.order)
    merged = passes.empty(n, rng)
    size = min(n, int(a.counts[HELD]) + int(b.counts[HELD]))
    from_a = _draw_split(split_log_probabilities(sides[0].lg, sides[1].lg, size), merged.rng) if size else 0
    stays = sides[0].survivors(from_a, merged.rng), sides[1].survivors(size - from_a, merged.rng)

    origin = [(side, int(s)) for side in (0, 1) for s in (a, b)[side].order if stays[side][s]]
    for slot, (side, s) in enumerate(origin):
        source, length = sides[side], slot + 2
        merged.weights[slot] = source.log_weights[s]
        merged.index[slot] = source.state.index[s] + (int(a.counts[SEEN]) if side else 0)
        merged.rows[slot] = -math.inf
        if side:
            join_log(sides[0].lg[:length], source.row(s, length), merged.rows[slot, :length])
        else:
            merged.rows[slot, :length] = source.row(s, length)
    join_log(sides[0].lg, sides[1].lg, merged.g)
    merged.order[:] = np.concatenate([np.arange(size, n), np.arange(size)])
    merged.counts[:] = a.counts[SEEN] + b.counts[SEEN], size, 0, 1
    passes.to_linear_if_possible(merged, shift)
    return merged, origin
