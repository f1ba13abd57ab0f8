"""What the compiled agents share: random numbers, layers of tanh units and their gradients, steps of the parameters.

A layer lies in a vector θ from some place on, as its weights [out, in] and its biases.
"""

import math
from typing import Any

import numpy as np
from numba import njit

from recollect.engines.lanes import INNER, tanh

FAST = {"contract", "reassoc", "nsz"}
_njit: Any = njit
exact = _njit(**INNER, error_model="numpy")
fast = _njit(**INNER, error_model="numpy", fastmath=FAST)
TINY = np.float32(1e-36)
"""Less is taken for 0, as JAX does from 1e-38 on: with numbers that small, processors are a hundred times slower."""
READ, ACT, WRITE = 0, 1, 2  # purposes of random numbers


@exact
def uniform(key, time, purpose, place):
    """A number in [0, 1) from 53 bits of Philox4x32-10 at a counter of its own."""
    k0, k1 = np.uint64(key[0]), np.uint64(key[1])
    low = np.uint64(0xFFFFFFFF)
    a, b, c, d = np.uint64(place), np.uint64(purpose), np.uint64(time) & low, np.uint64(time) >> np.uint64(32)
    for _ in range(10):
        first, second = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, b, c, d = (second >> np.uint64(32)) ^ b ^ k0, second & low, (first >> np.uint64(32)) ^ d ^ k1, first & low
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & low, (k1 + np.uint64(0xBB67AE85)) & low
    return float((a << np.uint64(21)) | (b >> np.uint64(11))) * 2.0**-53


@fast
def affine(theta, at, out, into, x, y):
    """Write W x + b to y; returns where the next layer begins."""
    bias = at + out * into
    for i in range(out):
        row = theta[at + i * into : at + (i + 1) * into]
        total = theta[bias + i]
        for j in range(into):
            total += row[j] * x[j]
        y[i] = total
    return bias + out


@fast
def affine_back(theta, grad, at, out, into, x, d_y, d_x):
    """Write the gradient by W and b to ``grad`` and that by x to ``d_x``."""
    d_x[:into] = 0.0
    for i in range(out):
        row, d_row, d = theta[at + i * into : at + (i + 1) * into], grad[at + i * into : at + (i + 1) * into], d_y[i]
        for j in range(into):
            d_row[j] = d * x[j]
            d_x[j] += row[j] * d
        grad[at + out * into + i] = d


@fast
def outer(grad, at, out, into, x, d_y):
    """Write the gradient by W and b alone to ``grad``: of a layer that looks at what the agent was given."""
    for i in range(out):
        d_row, d = grad[at + i * into : at + (i + 1) * into], np.float32(d_y[i])
        for j in range(into):
            d_row[j] = d * x[j]
        grad[at + out * into + i] = d


@fast
def tanh_each(x):
    """Write tanh over x."""
    for i in range(len(x)):
        x[i] = tanh(x[i])


@fast
def shallow(theta, at, into, h, out, x, hidden, y):
    """One hidden layer of tanh units."""
    at = affine(theta, at, h, into, x, hidden)
    tanh_each(hidden)
    return affine(theta, at, out, h, hidden, y)


@fast
def shallow_back(theta, grad, at, into, h, out, x, hidden, d_y, d_hidden):
    """The gradient of ``_shallow`` by its parameters; ``hidden`` is as it was left there."""
    affine_back(theta, grad, at + h * into + h, out, h, hidden, d_y, d_hidden)
    for i in range(h):
        d_hidden[i] *= 1.0 - hidden[i] * hidden[i]
    outer(grad, at, h, into, x, d_hidden)


@fast
def value(theta, s, h, linear, observation):
    """V(S); the value network is at the beginning of θ."""
    hidden, one = np.empty(h, np.float32), np.empty(1, np.float32)
    shallow(theta, 0, s, h, 1, observation, hidden, one)
    return one[0] if linear else math.tanh(one[0])


@exact
def softmax(p, count):
    """Write the softmax of the first ``count`` over them."""
    top = p[0]
    for i in range(1, count):
        top = max(top, p[i])
    total = 0.0
    for i in range(count):
        p[i] = math.exp(p[i] - top)
        total += p[i]
    for i in range(count):
        p[i] /= total


@exact
def draw(p, count, u):
    """The index that u draws from probabilities; the first one if they are NaN, as in ``recollect.agents.td.draw``."""
    for i in range(count - 1):
        if not u >= p[i]:
            return i
        u -= p[i]
    return count - 1


@_njit(**INNER, error_model="numpy", fastmath={"reassoc"})
def finite(x):
    """Whether every number is finite."""
    worst = np.float32(0.0)  # of the width of x, and summed in any order: else the longest of all loops, one by one
    for k in range(len(x)):
        worst += x[k] * np.float32(0.0)  # 0 for what is finite, NaN for what is not
    return worst == 0.0


@fast
def follow(theta, rates, direction):
    """Write θ after a step along ``direction`` over it."""
    for k in range(len(theta)):
        direction[k] = theta[k] + rates[k] * direction[k]


@fast
def over_roots(direction, squares, keep, epsilon):
    """RMSProp: divide ``direction`` by the roots of its mean squares, and return these."""
    mean, keep, epsilon = np.empty(len(squares), np.float32), np.float32(keep), np.float32(epsilon)
    for k in range(len(squares)):
        square = keep * squares[k] + (np.float32(1.0) - keep) * direction[k] * direction[k]
        mean[k] = np.float32(0.0) if square < TINY else square
        direction[k] /= np.sqrt(mean[k] + epsilon)
    return mean


@exact
def copy_over(x, y):
    """Write x over y: an assignment of one slice to another is not done several at once, and takes long to compile."""
    for k in range(len(x)):
        y[k] = x[k]
