"""The recurrent baseline's time step, compiled: backpropagation through the last steps of the episode.

``recollect.agents.recurrent`` is the definition; a test holds one update here equal to one update there. Row t of the
table of hidden states is the one before step t of the window, and so row 0 is ``Past.before`` and the row after the
last step ``Unrolled.h``.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from recollect.engines.host import IDLE, TERMINATED, TRUNCATED
from recollect.engines.lanes import absolute, any_, fma, load_at, select, splat, store_at
from recollect.engines.native.gated import decide, directions, move, offsets
from recollect.engines.native.gru import LANES, ONE, ONE_BY_ONE, WIDE, ZERO, advance, columns, padded
from recollect.engines.native.kernels import TINY, copy_over, exact

LENGTH, ACTION, TIME = range(3)


class Flat(NamedTuple):
    """Copies of an agent as tables, a row a copy; calls write over them. H is ``padded(h)``."""

    theta: np.ndarray  # [k, P]
    squares: np.ndarray  # [k, P]
    observations: np.ndarray  # [k, window s]
    gates: np.ndarray  # [k, window 3 H]
    hidden: np.ndarray  # [k, (window + 1) H]
    seen: np.ndarray  # [k, s]: the observation under way
    whole: np.ndarray  # int64 [k, 3]: length, action, time
    key: np.ndarray  # uint32 [k, words]


@exact
def begin(sizes, theta, past, seen, whole, key, observation):
    """Take in the observation, run the GRU over the window, choose an action."""
    s, h, a, window, _ = sizes
    observations, gates, hidden = past
    wide = padded(h)
    table, reset = columns(theta, offsets(s, h, a)[1], s, h), np.empty(wide, np.float32)
    length = whole[LENGTH]
    if length == 0:
        gates[:], hidden[wide:] = 0.0, 0.0
    if length == window:  # its oldest step moves into the hidden state before it
        advance(table, s, h, observations, 0, hidden, 0, gates, 0, reset, 0)
        for k in range((window - 1) * s):
            observations[k] = observations[k + s]
        length -= 1
    for j in range(s):
        observations[length * s + j] = observation[j] if np.isfinite(observation[j]) else 0.0
    length += 1
    for t in range(length):
        advance(table, s, h, observations, t * s, hidden, t * wide, gates, t * 3 * wide, reset, (t + 1) * wide)
    copy_over(observation, seen)
    whole[LENGTH] = length
    whole[ACTION] = decide(sizes, theta, seen, hidden[length * wide :], key, whole[TIME])
    whole[TIME] += 1


@exact
def backpropagate(theta, at, s, h, observations, length, gates, hidden, d_h, grad):
    """The gradient by the GRU's parameters, which are at that place of θ, given that by h_t; writes over ``d_h``."""
    wide, into = padded(h), s + h
    row = 3 * wide
    recurrent = np.zeros((3 * h, wide), np.float32)
    for gate in range(3):
        for i in range(h):
            for j in range(h):
                recurrent[gate * h + i, j] = theta[at + gate * (h * into + h) + i * into + s + j]
    d_gates, reset = np.empty((length, row), np.float32), np.empty((length, wide), np.float32)
    first, flows = length, True  # steps before the first have gradients of 0
    while first > 0 and flows:
        first -= 1
        here, before, flows = first * row, first * wide, False
        for b in range(0, wide, LANES):
            d, h_t = load_at(d_h, b, WIDE), load_at(hidden, before + b, WIDE)
            z, h_tilde = load_at(gates, here + b, WIDE), load_at(gates, here + 2 * wide + b, WIDE)
            store_at(d_gates, here + b, d * (h_tilde - h_t) * z * (ONE - z))
            store_at(d_gates, here + 2 * wide + b, d * z * (ONE - h_tilde * h_tilde))
            store_at(d_h, b, d * (ONE - z))
        for b in range(0, wide, LANES):
            d_seen = splat(ZERO, WIDE)
            for i in range(h):
                d = load_at(d_gates, here + 2 * wide + i, ONE_BY_ONE)
                d_seen = fma(load_at(recurrent, (2 * h + i) * wide + b, WIDE), d, d_seen)
            r, h_t = load_at(gates, here + wide + b, WIDE), load_at(hidden, before + b, WIDE)
            store_at(reset, before + b, r * h_t)
            store_at(d_gates, here + wide + b, d_seen * h_t * r * (ONE - r))
            store_at(d_h, b, load_at(d_h, b, WIDE) + d_seen * r)
        for b in range(0, wide, LANES):
            by_z, by_r = load_at(d_h, b, WIDE), splat(ZERO, WIDE)
            for i in range(h):
                d_z, d_r = load_at(d_gates, here + i, ONE_BY_ONE), load_at(d_gates, here + wide + i, ONE_BY_ONE)
                by_z = fma(load_at(recurrent, i * wide + b, WIDE), d_z, by_z)
                by_r = fma(load_at(recurrent, (h + i) * wide + b, WIDE), d_r, by_r)
            d = by_z + by_r
            d = select(absolute(d) < TINY, ZERO, d)
            flows |= any_(d != ZERO)
            store_at(d_h, b, d)

    total = np.empty((into + 1, row), np.float32)  # as in ``columns``
    for b in range(0, wide, LANES):
        for j in range(into):
            z, r, c = splat(ZERO, WIDE), splat(ZERO, WIDE), splat(ZERO, WIDE)
            for t in range(first, length):
                if j < s:
                    x = load_at(observations, t * s + j, ONE_BY_ONE)
                    x_c = x
                else:
                    x = load_at(hidden, t * wide + j - s, ONE_BY_ONE)
                    x_c = load_at(reset, t * wide + j - s, ONE_BY_ONE)
                z = fma(load_at(d_gates, t * row + b, WIDE), x, z)
                r = fma(load_at(d_gates, t * row + wide + b, WIDE), x, r)
                c = fma(load_at(d_gates, t * row + 2 * wide + b, WIDE), x_c, c)
            store_at(total, j * row + b, z)
            store_at(total, j * row + wide + b, r)
            store_at(total, j * row + 2 * wide + b, c)
    for b in range(0, row, LANES):
        bias = splat(ZERO, WIDE)
        for t in range(first, length):
            bias = bias + load_at(d_gates, t * row + b, WIDE)
        store_at(total, into * row + b, bias)
    for gate in range(3):
        for i in range(h):
            here = gate * wide + i
            for j in range(into):
                store_at(grad, at + i * into + j, load_at(total, j * row + here, ONE_BY_ONE))
            store_at(grad, at + h * into + i, load_at(total, into * row + here, ONE_BY_ONE))
        at += h * into + h


@exact
def learn(sizes, rates, settings, theta, squares, past, seen, whole, row):
    """One update from one time step; returns whether it was finite. One that is not is not made."""
    s, h, a, _, _ = sizes
    observations, gates, hidden = past
    wide, length = padded(h), whole[LENGTH]
    direction, d_h = np.empty(len(theta), np.float32), np.zeros(wide, np.float32)
    directions(sizes, settings, theta, seen, hidden[length * wide :], whole[ACTION], row, direction, d_h)
    backpropagate(theta, offsets(s, h, a)[1], s, h, observations, length, gates, hidden, d_h, direction)
    return move(theta, squares, rates, settings, direction)


@njit(cache=True)
def forget(sizes, hidden, whole):
    """The episode ends."""
    hidden[: padded(sizes[1])] = 0.0
    whole[LENGTH] = 0


@njit(cache=True)
def step(sizes, rates, settings, flat, rows, learning, actions):
    """Every copy that is not idle: take in its row, learning or not, and act.

    Returns the first copy whose update was not finite, and so was not made, or −1.
    """
    theta, squares, observations, gates, hidden, seen, whole, key = flat
    s, bad = sizes[0], -1
    for k in range(len(rows)):
        row = rows[k]
        if row[2 * s + IDLE] > 0:
            continue
        past = observations[k], gates[k], hidden[k]
        if learning:
            sound = learn(sizes, rates, settings, theta[k], squares[k], past, seen[k], whole[k], row)
            if not sound and bad < 0:
                bad = k
        over = row[2 * s + TERMINATED] > 0 or row[2 * s + TRUNCATED] > 0
        if over:
            forget(sizes, hidden[k], whole[k])
        observation = row[s : 2 * s] if over else row[:s]
        begin(sizes, theta[k], past, seen[k], whole[k], key[k], observation)
        actions[k] = whole[k, ACTION]
    return bad


@njit(cache=True)
def begin_all(sizes, flat, rows, actions):
    """Every copy's first action."""
    theta, _, observations, gates, hidden, seen, whole, key = flat
    for k in range(len(rows)):
        past = observations[k], gates[k], hidden[k]
        begin(sizes, theta[k], past, seen[k], whole[k], key[k], rows[k])
        actions[k] = whole[k, ACTION]
