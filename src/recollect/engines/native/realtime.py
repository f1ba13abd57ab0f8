"""The time step of the GRU with real-time recurrent learning, compiled: the sensitivity is carried along.

``recollect.agents.realtime`` is the definition; a test holds one update here equal to one update there. A row of the
sensitivity is ∂h_i/∂θ over the GRU's parameters in θ's order, filled up with zeros to ``stride(s, h)`` numbers.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from recollect.engines.host import IDLE, TERMINATED, TRUNCATED
from recollect.engines.lanes import absolute, fma, load_at, select, splat, store_at
from recollect.engines.native.gated import decide, directions, move, offsets
from recollect.engines.native.gru import LANES, ONE_BY_ONE, WIDE, ZERO, advance, columns, padded
from recollect.engines.native.kernels import TINY, copy_over, exact, fast

ACTION, TIME = range(2)
TOGETHER = 4  # rows of the sensitivity that share what is loaded of the old ones


class Flat(NamedTuple):
    """Copies of an agent as tables, a row a copy; calls write over them."""

    theta: np.ndarray  # [k, P]
    squares: np.ndarray  # [k, P]
    hidden: np.ndarray  # [k, padded(h)]
    sensitivity: np.ndarray  # [k, h stride(s, h)]
    seen: np.ndarray  # [k, s]: the observation under way
    whole: np.ndarray  # int64 [k, 2]: action, time
    key: np.ndarray  # uint32 [k, words]


@njit(cache=True)
def stride(s, h):
    """How many numbers a row of the sensitivity takes."""
    return padded(3 * h * (s + h + 1))


@fast
def _derivatives(theta, at, s, h, before, gates, mixed, jacobian):
    """∂h_t by the inputs of update gate and candidate, which are returned, of the reset gate, and by h_{t−1}."""
    wide, into = padded(h), s + h
    z, r, h_tilde = gates[:h], gates[wide : wide + h], gates[2 * wide : 2 * wide + h]
    to_reset = at + h * into + h
    to_candidate = to_reset + h * into + h
    by_update, by_candidate = np.empty(h, np.float32), np.empty(h, np.float32)
    for i in range(h):
        by_update[i] = (h_tilde[i] - before[i]) * z[i] * (1.0 - z[i])
        by_candidate[i] = z[i] * (1.0 - h_tilde[i] * h_tilde[i])
        row, w_z = jacobian[i * h : (i + 1) * h], theta[at + i * into + s : at + (i + 1) * into]
        w_c = theta[to_candidate + i * into + s : to_candidate + (i + 1) * into]
        for j in range(h):
            mixed[i, j] = by_candidate[i] * w_c[j] * before[j] * r[j] * (np.float32(1.0) - r[j])
            row[j] = by_update[i] * w_z[j] + by_candidate[i] * w_c[j] * r[j]
        row[i] += np.float32(1.0) - z[i]
        for k in range(h):
            w_r = theta[to_reset + k * into + s : to_reset + (k + 1) * into]
            for j in range(h):
                row[j] += mixed[i, k] * w_r[j]
    return by_update, by_candidate


@exact
def _multiply(jacobian, sensitivity, h, row):
    """Write (∂h_t/∂h_{t−1}) ∂h_{t−1}/∂θ over the sensitivity; rows of the Jacobian beyond h must be there."""
    new = np.empty((h + TOGETHER, LANES), np.float32)
    for b in range(0, row, LANES):
        for i in range(0, h, TOGETHER):
            one, two, three, four = splat(ZERO, WIDE), splat(ZERO, WIDE), splat(ZERO, WIDE), splat(ZERO, WIDE)
            for j in range(h):
                old = load_at(sensitivity, j * row + b, WIDE)
                one = fma(load_at(jacobian, i * h + j, ONE_BY_ONE), old, one)
                two = fma(load_at(jacobian, (i + 1) * h + j, ONE_BY_ONE), old, two)
                three = fma(load_at(jacobian, (i + 2) * h + j, ONE_BY_ONE), old, three)
                four = fma(load_at(jacobian, (i + 3) * h + j, ONE_BY_ONE), old, four)
            store_at(new, i * LANES, one)
            store_at(new, (i + 1) * LANES, two)
            store_at(new, (i + 2) * LANES, three)
            store_at(new, (i + 3) * LANES, four)
        for i in range(h):
            entries = load_at(new, i * LANES, WIDE)
            store_at(sensitivity, i * row + b, select(absolute(entries) < TINY, ZERO, entries))


@fast
def _add_row(sensitivity, at, bias, x, d):
    """Add what one unit's gate, whose input moves the hidden state by d, has of its weights at x and of its bias."""
    for j in range(len(x)):
        sensitivity[at + j] += d * x[j]
    sensitivity[bias] += d


@exact
def carry(theta, at, s, h, x, before, gates, reset, sensitivity):
    """∂h_t/∂θ ← (∂h_t/∂h_{t−1}) ∂h_{t−1}/∂θ + ∂h_t/∂θ|, for the GRU at that place of θ."""
    row, into = stride(s, h), s + h
    gate = h * into + h  # numbers of one gate
    mixed, jacobian = np.empty((h, h), np.float32), np.zeros((h + TOGETHER) * h, np.float32)
    by_update, by_candidate = _derivatives(theta, at, s, h, before, gates, mixed, jacobian)
    _multiply(jacobian, sensitivity, h, row)
    xh, xr = np.empty(into, np.float32), np.empty(into, np.float32)
    for part, of in ((xh, before), (xr, reset)):
        copy_over(x, part[:s])
        copy_over(of[:h], part[s:])
    for i in range(h):
        own = sensitivity[i * row : (i + 1) * row]
        _add_row(own, i * into, h * into + i, xh, by_update[i])
        for k in range(h):  # every reset gate is seen by every candidate
            _add_row(own, gate + k * into, gate + h * into + k, xh, mixed[i, k])
        _add_row(own, 2 * gate + i * into, 2 * gate + h * into + i, xr, by_candidate[i])


@exact
def begin(sizes, theta, hidden, sensitivity, seen, whole, key, observation):
    """Take in the observation, carry the sensitivity along, choose an action."""
    s, h, a, _, _ = sizes
    at, wide = offsets(s, h, a)[1], padded(h)
    x = np.empty(s, np.float32)
    for j in range(s):
        x[j] = observation[j] if np.isfinite(observation[j]) else 0.0
    gates, reset, before = np.empty(3 * wide, np.float32), np.empty(wide, np.float32), hidden.copy()
    advance(columns(theta, at, s, h), s, h, x, 0, hidden, 0, gates, 0, reset, 0)
    carry(theta, at, s, h, x, before, gates, reset, sensitivity)
    copy_over(observation, seen)
    whole[ACTION] = decide(sizes, theta, seen, hidden, key, whole[TIME])
    whole[TIME] += 1


@fast
def learn(sizes, rates, settings, theta, squares, hidden, sensitivity, seen, whole, row):
    """One update from one time step; returns whether it was finite. One that is not is not made."""
    s, h, a, _, _ = sizes
    at, width = offsets(s, h, a)[1], stride(s, h)
    direction, d_h = np.empty(len(theta), np.float32), np.empty(h, np.float32)
    directions(sizes, settings, theta, seen, hidden, whole[ACTION], row, direction, d_h)
    d_gru = direction[at:]
    d_gru[:] = 0.0
    for i in range(h):
        own = sensitivity[i * width : (i + 1) * width]
        for k in range(len(d_gru)):
            d_gru[k] += d_h[i] * own[k]
    return move(theta, squares, rates, settings, direction)


@njit(cache=True)
def step(sizes, rates, settings, flat, rows, learning, actions):
    """Every copy that is not idle: take in its row, learning or not, and act.

    Returns the first copy whose update was not finite, and so was not made, or −1.
    """
    theta, squares, hidden, sensitivity, seen, whole, key = flat
    s, bad = sizes[0], -1
    for k in range(len(rows)):
        row = rows[k]
        if row[2 * s + IDLE] > 0:
            continue
        if learning:
            sound = learn(
                sizes, rates, settings, theta[k], squares[k], hidden[k], sensitivity[k], seen[k], whole[k], row
            )
            if not sound and bad < 0:
                bad = k
        over = row[2 * s + TERMINATED] > 0 or row[2 * s + TRUNCATED] > 0
        if over:
            hidden[k], sensitivity[k] = 0.0, 0.0
        observation = row[s : 2 * s] if over else row[:s]
        begin(sizes, theta[k], hidden[k], sensitivity[k], seen[k], whole[k], key[k], observation)
        actions[k] = whole[k, ACTION]
    return bad


@njit(cache=True)
def begin_all(sizes, flat, rows, actions):
    """Every copy's first action."""
    theta, _, hidden, sensitivity, seen, whole, key = flat
    for k in range(len(rows)):
        begin(sizes, theta[k], hidden[k], sensitivity[k], seen[k], whole[k], key[k], rows[k])
        actions[k] = whole[k, ACTION]
