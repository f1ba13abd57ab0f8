"""What the compiled agents with a GRU share: value and policy networks, gradients down to the hidden state, RMSProp.

``recollect.agents.gated`` is the definition. All parameters of a copy lie in one vector θ, in the order value, policy,
update gate, reset gate, candidate, each layer as its weights [out, in] and its biases; so do RMSProp's mean squares.
"""

import math
from typing import NamedTuple

import numpy as np

from recollect.engines.host import REWARD, TERMINATED
from recollect.engines.native.kernels import (
    ACT,
    affine,
    affine_back,
    copy_over,
    draw,
    exact,
    fast,
    finite,
    follow,
    over_roots,
    shallow,
    shallow_back,
    softmax,
    tanh_each,
    uniform,
    value,
)


class Sizes(NamedTuple):
    """Of one agent: s inputs, h units, a actions, the longest stretch, and whether the critic's output is linear."""

    s: int
    h: int
    a: int
    window: int
    linear: bool


@exact
def offsets(s, h, a):
    """Where policy and GRU begin in θ; the value network is at 0."""
    policy = h * s + h + h + 1
    return policy, policy + h * (s + h) + h + h * h + h + a * h + a


@fast
def _policy(theta, at, into, h, a, x, first, second, p):
    """The policy's probabilities at (S_t, h_t), with its hidden layers left in ``first`` and ``second``."""
    at = affine(theta, at, h, into, x, first)
    tanh_each(first)
    at = affine(theta, at, h, h, first, second)
    tanh_each(second)
    affine(theta, at, a, h, second, p)
    softmax(p, a)


@exact
def _joined(seen, now, s, h):
    x = np.empty(s + h, np.float32)
    copy_over(seen, x[:s])
    copy_over(now[:h], x[s:])
    return x


@exact
def decide(sizes, theta, seen, now, key, time):
    """An action at S_t and h_t."""
    s, h, a, _, _ = sizes
    first, second, p = np.empty(h, np.float32), np.empty(h, np.float32), np.empty(a)
    _policy(theta, offsets(s, h, a)[0], s + h, h, a, _joined(seen, now, s, h), first, second, p)
    return draw(p, a, uniform(key, time, ACT, 0))


@fast
def directions(sizes, settings, theta, seen, now, action, row, grad, d_h):
    """Where this step's losses pull the value network, the policy network and h_t."""
    s, h, a, _, linear = sizes
    discount, entropy = settings[0], settings[1]
    at = offsets(s, h, a)[0]
    hidden, first, second = np.empty(h, np.float32), np.empty(h, np.float32), np.empty(h, np.float32)
    d_hidden, d_first, d_second = np.empty(h, np.float32), np.empty(h, np.float32), np.empty(h, np.float32)
    one, d_one, d_x = np.empty(1, np.float32), np.empty(1, np.float32), np.empty(s + h, np.float32)
    p, d_logits = np.empty(a), np.empty(a, np.float32)

    v_next = 0.0 if row[2 * s + TERMINATED] > 0 else value(theta, s, h, linear, row[:s])
    shallow(theta, 0, s, h, 1, seen, hidden, one)
    v = one[0] if linear else math.tanh(one[0])
    delta = row[2 * s + REWARD] + discount * v_next - v
    d_one[0] = delta * (1.0 if linear else 1.0 - v * v)
    shallow_back(theta, grad, 0, s, h, 1, seen, hidden, d_one, d_hidden)

    x = _joined(seen, now, s, h)
    _policy(theta, at, s + h, h, a, x, first, second, p)
    mean = 0.0
    for i in range(a):
        mean += p[i] * math.log(max(p[i], 1e-300))
    for i in range(a):
        d_logits[i] = delta * ((i == action) - p[i]) - entropy * p[i] * (math.log(max(p[i], 1e-300)) - mean)
    at_2 = at + h * (s + h) + h
    affine_back(theta, grad, at_2 + h * h + h, a, h, second, d_logits, d_second)
    for i in range(h):
        d_second[i] *= 1.0 - second[i] * second[i]
    affine_back(theta, grad, at_2, h, h, first, d_second, d_first)
    for i in range(h):
        d_first[i] *= 1.0 - first[i] * first[i]
    affine_back(theta, grad, at, h, s + h, x, d_first, d_x)
    for i in range(h):
        d_h[i] = d_x[s + i]


@exact
def move(theta, squares, rates, settings, direction):
    """One RMSProp step, unless what it led to were not finite; returns whether it was. Writes over ``direction``."""
    mean = over_roots(direction, squares, settings[2], settings[3])
    follow(theta, rates, direction)
    sound = finite(direction) and finite(mean)
    if sound:
        copy_over(direction, theta)
        copy_over(mean, squares)
    return sound
