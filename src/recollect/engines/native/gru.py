"""One step of the GRU, compiled; ``recollect.agents.networks.apply_gru`` is the definition.

Vectors of the units go through registers of ``LANES`` numbers (`recollect.engines.lanes`), and so lie in tables whose
rows are filled up with zeros to ``padded(h)`` numbers. There the gates' inputs are 0, and so stay hidden state and
gradients.
"""

import numpy as np
from numba import njit

from recollect.engines.lanes import fma, inlined, load_at, store_at, tanh
from recollect.engines.native.kernels import exact

LANES = 8
WIDE, ONE_BY_ONE = (0,) * LANES, (0,)
ZERO, HALF, ONE = np.float32(0), np.float32(0.5), np.float32(1)


@njit(cache=True)
def padded(units):
    """How many numbers a vector of the units takes."""
    return (units + LANES - 1) // LANES * LANES


@exact
def columns(theta, at, s, h):
    """[s + h + 1, 3 padded(h)]: of the GRU at that place of θ, the weights by what they look at, and the biases."""
    wide, into = padded(h), s + h
    row = 3 * wide
    table = np.zeros((into + 1, row), np.float32)
    for gate in range(3):
        weight, bias = at, at + h * into
        for i in range(h):
            here = gate * wide + i
            for j in range(into):
                store_at(table, j * row + here, load_at(theta, weight + i * into + j, ONE_BY_ONE))
            store_at(table, into * row + here, load_at(theta, bias + i, ONE_BY_ONE))
        at = bias + h
    return table


@inlined
def _sigmoid(x):
    return fma(tanh(x * HALF), HALF, HALF)


@exact
def advance(table, s, h, observations, x_at, hidden, h_at, gates, gates_at, seen, after_at):
    """One step from the hidden state at ``h_at`` to that at ``after_at``, which may be the same place.

    ``table``: from ``columns``; ``gates``: update, reset and candidate are written there from ``gates_at`` on;
    ``seen``: takes what the candidate sees of the hidden state.
    """
    wide = padded(h)
    row = 3 * wide
    bias = (s + h) * row
    for b in range(0, wide, LANES):
        z, r = load_at(table, bias + b, WIDE), load_at(table, bias + wide + b, WIDE)
        for j in range(s):
            x = load_at(observations, x_at + j, ONE_BY_ONE)
            z = fma(load_at(table, j * row + b, WIDE), x, z)
            r = fma(load_at(table, j * row + wide + b, WIDE), x, r)
        for j in range(h):
            x = load_at(hidden, h_at + j, ONE_BY_ONE)
            z = fma(load_at(table, (s + j) * row + b, WIDE), x, z)
            r = fma(load_at(table, (s + j) * row + wide + b, WIDE), x, r)
        z, r = _sigmoid(z), _sigmoid(r)
        store_at(gates, gates_at + b, z)
        store_at(gates, gates_at + wide + b, r)
        store_at(seen, b, r * load_at(hidden, h_at + b, WIDE))
    for b in range(0, wide, LANES):
        h_tilde = load_at(table, bias + 2 * wide + b, WIDE)
        for j in range(s):
            x = load_at(observations, x_at + j, ONE_BY_ONE)
            h_tilde = fma(load_at(table, j * row + 2 * wide + b, WIDE), x, h_tilde)
        for j in range(h):
            x = load_at(seen, j, ONE_BY_ONE)
            h_tilde = fma(load_at(table, (s + j) * row + 2 * wide + b, WIDE), x, h_tilde)
        h_tilde = tanh(h_tilde)
        store_at(gates, gates_at + 2 * wide + b, h_tilde)
        z = load_at(gates, gates_at + b, WIDE)
        store_at(hidden, after_at + b, (ONE - z) * load_at(hidden, h_at + b, WIDE) + z * h_tilde)
