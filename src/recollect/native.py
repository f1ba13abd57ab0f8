"""The episodic agent's time step compiled for a CPU: what ``recollect.host`` does, in a tenth of its time.

A step of a small agent is a few thousand multiplications; handed to an array compiler it costs a hundred times that in
dispatch. ``EpisodicActorCritic`` is the definition; a test holds one update here equal to one update there. The random
numbers are others (Philox counted by time and purpose), so that the two are the same in law and not bit for bit.

All parameters of a copy lie in one vector θ, in the order value, policy, query, write, temperature, products, each
layer as its weights [out, in] and its biases; so do the traces. ``supported`` says which agents are known; others go
through JAX.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numba import njit

from recollect import prng
from recollect.agents.base import differs_only_in
from recollect.agents.episodic import (
    NETWORKS,
    ONLY_AT_START,
    PARTS_OF_OTHERS,
    SMALLEST_SQUARE,
    Decision,
    EpisodicActorCritic,
    Parameters,
    State,
)
from recollect.engines.lanes import tanh
from recollect.errors import FileError
from recollect.host import IDLE, REWARD, TERMINATED, TRUNCATED, Live
from recollect.networks import Layer
from recollect.reservoir import kernel

FAST = {"contract", "reassoc", "nsz"}
LAWS = {"reservoir": 0, "uniform": 1, "fifo": 2, "none": 3}
SETTINGS = ("discount", "trace_decay", "entropy", "surprise", "credit_cap", "terminal_value", "log_weight_floor")
SETTINGS += ("square_decay",)
RATES = ("learning_rate", "bias_rate", *(f"{name}_rate" for name in NETWORKS))
KNOWN = {*SETTINGS, *RATES, "memory_size", "hidden", "products", *ONLY_AT_START, *PARTS_OF_OTHERS}
CHOICES = {"memory": tuple(LAWS), "estimator": ("queried", "every"), "critic_output": ("tanh", "linear")}
CHOICES |= {"optimizer": ("sgd", "rmsprop")}
"""What is known of the agent: these options, and in these only some choices."""
READ, ACT, WRITE = 0, 1, 2  # purposes of random numbers
LOG_INFINITY, LOG_ZERO_RATIO, LOG_ZERO_WEIGHT = 1e36, -1e36, -2e36  # as in recollect.reservoir.kernel


def supported(agent: Any) -> bool:
    """Whether this module knows the agent with all its options."""
    return type(agent) is EpisodicActorCritic and differs_only_in(agent, KNOWN, CHOICES)


class Flat(NamedTuple):
    """Copies of an agent as tables, a row a copy; calls write over them."""

    theta: np.ndarray  # [k, P]
    traces: np.ndarray  # [k, P]
    items: np.ndarray  # [k, n, s]
    memory: np.ndarray  # [k, n + 2 (n + 1) + n²]: log-weights, ratios (high, low), drop (the reservoir's alone)
    seen: np.ndarray  # [k, 2, s]: the observation under way, and what was recalled there
    whole: np.ndarray  # int64 [k, n + 4]: ranks, seen, slot, action, time
    key: np.ndarray  # uint32 [k, words]
    squares: np.ndarray  # [k, P], or [k, 0] without RMSProp


class Sizes(NamedTuple):
    """Of one agent: s inputs, h units, a actions, n slots, which law and estimator, k products, and RMSProp or not."""

    s: int
    h: int
    a: int
    n: int
    law: int
    every: bool
    linear: bool
    tracing: bool
    k: int
    rms: bool


@njit(cache=True, error_model="numpy")
def _uniform(key, time, purpose, place):
    """A number in [0, 1) from 53 bits of Philox4x32-10 at a counter of its own."""
    k0, k1 = np.uint64(key[0]), np.uint64(key[1])
    low = np.uint64(0xFFFFFFFF)
    a, b, c, d = np.uint64(place), np.uint64(purpose), np.uint64(time) & low, np.uint64(time) >> np.uint64(32)
    for _ in range(10):
        first, second = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, b, c, d = (second >> np.uint64(32)) ^ b ^ k0, second & low, (first >> np.uint64(32)) ^ d ^ k1, first & low
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & low, (k1 + np.uint64(0xBB67AE85)) & low
    return float((a << np.uint64(21)) | (b >> np.uint64(11))) * 2.0**-53


@njit(cache=True, error_model="numpy", fastmath=FAST)
def _affine(theta, at, out, into, x, y):
    """Write W x + b to y; returns where the next layer begins."""
    bias = at + out * into
    for i in range(out):
        row = theta[at + i * into : at + (i + 1) * into]
        total = theta[bias + i]
        for j in range(into):
            total += row[j] * x[j]
        y[i] = total
    return bias + out


@njit(cache=True, error_model="numpy", fastmath=FAST)
def _affine_back(theta, grad, at, out, into, x, d_y, d_x):
    """Write the gradient by W and b to ``grad`` and that by x to ``d_x``."""
    d_x[:into] = 0.0
    for i in range(out):
        row, d_row, d = theta[at + i * into : at + (i + 1) * into], grad[at + i * into : at + (i + 1) * into], d_y[i]
        for j in range(into):
            d_row[j] = d * x[j]
            d_x[j] += row[j] * d
        grad[at + out * into + i] = d


@njit(cache=True, error_model="numpy", fastmath=FAST)
def _outer(grad, at, out, into, x, d_y):
    """Write the gradient by W and b alone to ``grad``: of a layer that looks at what the agent was given."""
    for i in range(out):
        d_row, d = grad[at + i * into : at + (i + 1) * into], np.float32(d_y[i])
        for j in range(into):
            d_row[j] = d * x[j]
        grad[at + out * into + i] = d


@njit(cache=True, error_model="numpy", fastmath=FAST)
def _tanh(x):
    for i in range(len(x)):
        x[i] = tanh(x[i])


@njit(cache=True, error_model="numpy", fastmath=FAST)
def _shallow(theta, at, into, h, out, x, hidden, y):
    """One hidden layer of tanh units."""
    at = _affine(theta, at, h, into, x, hidden)
    _tanh(hidden)
    return _affine(theta, at, out, h, hidden, y)


@njit(cache=True, error_model="numpy", fastmath=FAST)
def _shallow_back(theta, grad, at, into, h, out, x, hidden, d_y, d_hidden):
    """The gradient of ``_shallow`` by its parameters; ``hidden`` is as it was left there."""
    _affine_back(theta, grad, at + h * into + h, out, h, hidden, d_y, d_hidden)
    for i in range(h):
        d_hidden[i] *= 1.0 - hidden[i] * hidden[i]
    _outer(grad, at, h, into, x, d_hidden)


@njit(cache=True, error_model="numpy")
def _offsets(s, h, a, k):
    """Where policy, query, write and temperature begin in θ; the value network is at 0, products are at the end."""
    policy = h * s + h + h + 1
    query = policy + h * 2 * s + h + h * (h + k) + h + a * h + a
    write = query + h * s + h + s * h + s
    return policy, query, write, write + h * s + h + h + 1


@njit(cache=True, error_model="numpy", fastmath=FAST)
def _policy(theta, at, at_products, s, h, a, k, x, first, factors, second, p):
    """The policy's probabilities at (S_t, m_t), with its hidden layers left in ``first`` and ``second``.

    The last k of ``first`` are the products of the first k of ``factors``, made from S_t, and its last k, from m_t.
    """
    at = _affine(theta, at, h, 2 * s, x, first)
    _tanh(first[:h])
    if k > 0:
        at_products = _affine(theta, at_products, k, s, x[:s], factors[:k])
        _tanh(factors[:k])
        _affine(theta, at_products, k, s, x[s:], factors[k:])
        for i in range(k):
            first[h + i] = factors[i] * factors[k + i]
    at = _affine(theta, at, h, h + k, first, second)
    _tanh(second)
    _affine(theta, at, a, h, second, p)
    _softmax(p, a)


@njit(cache=True, error_model="numpy")
def _softmax(p, count):
    top = p[0]
    for i in range(1, count):
        top = max(top, p[i])
    total = 0.0
    for i in range(count):
        p[i] = math.exp(p[i] - top)
        total += p[i]
    for i in range(count):
        p[i] /= total


@njit(cache=True, error_model="numpy", fastmath=FAST)
def _policy_back(
    theta, grad, at, at_products, s, h, a, k, x, first, factors, second, d_logits, d_second, d_first, d_factors
):
    at_2 = at + h * 2 * s + h
    _affine_back(theta, grad, at_2 + h * (h + k) + h, a, h, second, d_logits, d_second)
    for i in range(h):
        d_second[i] *= 1.0 - second[i] * second[i]
    _affine_back(theta, grad, at_2, h, h + k, first, d_second, d_first)
    if k > 0:
        for i in range(k):
            d_factors[i] = d_first[h + i] * factors[k + i] * (1.0 - factors[i] * factors[i])
            d_factors[k + i] = d_first[h + i] * factors[i]
        _outer(grad, at_products, k, s, x[:s], d_factors[:k])
        _outer(grad, at_products + k * s + k, k, s, x[s:], d_factors[k:])
    for i in range(h):
        d_first[i] *= 1.0 - first[i] * first[i]
    _outer(grad, at, h, 2 * s, x, d_first)


@njit(cache=True, error_model="numpy")
def _draw(p, count, u):
    """The index that u draws from probabilities."""
    for i in range(count - 1):
        if u < p[i]:
            return i
        u -= p[i]
    return count - 1


@njit(cache=True, error_model="numpy", fastmath=FAST)
def _query(theta, at, s, h, n, observation, items, ranks, hidden, q, logits):
    """⟨q(S_t), S_i⟩/τ of the filled slots, packed to the front with their slots; returns how many there are."""
    _shallow(theta, at, s, h, s, observation, hidden, q)
    _tanh(q)
    temperature = math.exp(theta[at + h * s + h + s * h + s + h * s + h + h + 1])
    count = 0
    for i in range(n):
        if ranks[i] > 0:
            total = 0.0
            for j in range(s):
                total += items[i, j] * q[j]
            logits[count] = total / temperature
            count += 1
    return count


@njit(cache=True, error_model="numpy")
def _slot_of(ranks, place):
    """The slot of the filled place of that number."""
    for i in range(len(ranks)):
        if ranks[i] > 0:
            if place == 0:
                return i
            place -= 1
    return 0


@njit(cache=True, error_model="numpy")
def _log_sigmoid(x):
    return -math.log1p(math.exp(-x)) if x > 0 else x - math.log1p(math.exp(x))


@njit(cache=True, error_model="numpy")
def _sigmoid(x):
    return 1.0 / (1.0 + math.exp(-x)) if x > -700 else 0.0


@njit(cache=True, error_model="numpy")
def add(sizes, items, memory, whole, item, log_weight, key, time):
    """Show the memory one item, as ``recollect.reservoir.kernel`` does under each of its laws."""
    n, law = sizes[3], sizes[4]
    if law == 3:
        return
    ranks = whole[:n]
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
    if _uniform(key, time, WRITE, 0) < accept:
        slot = count
        if count == n:
            best = 0
            for i in range(n):
                chance = (
                    drop[i, ranks[i] - 1]
                    if law == 0
                    else (1.0 / ranks[i] if law == 1 else 1.0 if ranks[i] == 1 else 0.0)
                )
                if ranks[i] > best and _uniform(key, time, WRITE, 1 + i) < chance:
                    slot, best = i, ranks[i]
            dropped = ranks[slot]
    if slot < n:
        for i in range(n):
            if ranks[i] > dropped:
                ranks[i] -= 1
        items[slot] = item
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


@njit(cache=True, error_model="numpy")
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


@njit(cache=True, error_model="numpy")
def begin(sizes, theta, items, seen, whole, key, observation):
    """Recall a state, choose an action."""
    s, h, a, n, law, _, _, _, k, _ = sizes
    at_policy, at_query, _, at_temperature = _offsets(s, h, a, k)
    hidden, q, logits, p = np.empty(h, np.float32), np.empty(s, np.float32), np.empty(n), np.empty(a)
    first, factors = np.empty(h + k, np.float32), np.empty(2 * k, np.float32)
    x = np.empty(2 * s, np.float32)
    seen[0], seen[1] = observation, 0.0
    whole[n + 1] = 0
    time = whole[n + 3]
    if law != 3:
        count = _query(theta, at_query, s, h, n, observation, items, whole[:n], hidden, q, logits)
        if count > 0:
            _softmax(logits, count)
            slot = _slot_of(whole[:n], _draw(logits, count, _uniform(key, time, READ, 0)))
            seen[1] = items[slot]
            whole[n + 1] = slot
    x[:s], x[s:] = seen[0], seen[1]
    _policy(theta, at_policy, at_temperature + 1, s, h, a, k, x, first, factors, hidden, p)
    whole[n + 2] = _draw(p, a, _uniform(key, time, ACT, 0))
    whole[n + 3] = time + 1


@njit(cache=True, error_model="numpy", fastmath=FAST)
def gradients(sizes, theta, items, memory, seen, whole, delta, openness, cap, grad, ready, together):
    """The gradient of the scores, times ``delta``, to ``grad``; of the entropy, times ``openness``, to ``ready``.

    Returns log w(S_t). ``together``: both go to ``grad``.
    """
    s, h, a, n, law, every, linear, _, products, _ = sizes
    at_policy, at_query, at_write, at_temperature = _offsets(s, h, a, products)
    at_products = at_temperature + 1
    hidden, first, second = np.empty(h, np.float32), np.empty(h + products, np.float32), np.empty(h, np.float32)
    factors, d_factors = np.empty(2 * products, np.float32), np.empty(2 * products, np.float32)
    d_first = np.empty(h + products, np.float32)
    d_hidden, d_second = np.empty(h, np.float32), np.empty(h, np.float32)
    one, d_one, p, d_logits = np.empty(1, np.float32), np.empty(1, np.float32), np.empty(a), np.empty(a)
    x = np.empty(2 * s, np.float32)
    x[:s], x[s:] = seen[0], seen[1]

    _shallow(theta, 0, s, h, 1, seen[0], hidden, one)
    v = one[0] if linear else math.tanh(one[0])
    d_one[0] = delta * (1.0 if linear else 1.0 - v * v)
    _shallow_back(theta, grad, 0, s, h, 1, seen[0], hidden, d_one, d_hidden)

    _policy(theta, at_policy, at_products, s, h, a, products, x, first, factors, second, p)
    action = whole[n + 2]
    mean = 0.0
    for i in range(a):
        mean += p[i] * math.log(max(p[i], 1e-300))
    for i in range(a):
        d_logits[i] = delta * ((i == action) - p[i])
        if together:
            d_logits[i] -= openness * p[i] * (math.log(max(p[i], 1e-300)) - mean)
    _policy_back(
        theta, grad, at_policy, at_products, s, h, a, products, x, first, factors, second,
        d_logits, d_second, d_first, d_factors,
    )  # fmt: skip
    if not together:
        for i in range(a):
            d_logits[i] = -openness * p[i] * (math.log(max(p[i], 1e-300)) - mean)
        _policy_back(
            theta, ready, at_policy, at_products, s, h, a, products, x, first, factors, second,
            d_logits, d_second, d_first, d_factors,
        )  # fmt: skip

    _shallow(theta, at_write, s, h, 1, seen[0], hidden, one)
    log_w = _log_sigmoid(one[0])
    grad[at_query:at_products] = 0.0
    if law == 3:
        return log_w
    q, d_q, logits, d_items = np.empty(s, np.float32), np.zeros(s, np.float32), np.empty(n), np.empty(n)
    count = _query(theta, at_query, s, h, n, seen[0], items, whole[:n], hidden, q, logits)
    if count == 0:
        return log_w
    slot, place, d_temperature = whole[n + 1], 0, 0.0
    d_items[:] = logits
    _softmax(d_items, count)
    temperature = math.exp(theta[at_temperature])
    for i in range(n):
        if whole[i] > 0:
            d = delta * ((i == slot) - d_items[place])
            d_temperature -= d * logits[place]
            for j in range(s):
                d_q[j] += d * items[i, j] / temperature
            place += 1
    for j in range(s):
        d_q[j] *= 1.0 - q[j] * q[j]
    _shallow_back(theta, grad, at_query, s, h, s, seen[0], hidden, d_q, d_hidden)
    grad[at_temperature] = d_temperature

    size = at_temperature - at_write
    part, total = np.empty(at_temperature, np.float32), np.zeros(size, np.float32)
    for i in range(n):
        if whole[i] > 0 and (every or i == slot):
            _shallow(theta, at_write, s, h, 1, items[i], hidden, one)
            now = _log_sigmoid(one[0])
            d_one[0] = delta * min(math.exp(now - memory[i]), cap) * (1.0 - math.exp(now))
            _shallow_back(theta, part, at_write, s, h, 1, items[i], hidden, d_one, d_hidden)
            for k in range(size):
                total[k] += part[at_write + k]
    for k in range(size):
        grad[at_write + k] = total[k]
    return log_w


@njit(cache=True, error_model="numpy", fastmath=FAST)
def value(sizes, theta, observation):
    """V(S)."""
    hidden, one = np.empty(sizes[1], np.float32), np.empty(1, np.float32)
    _shallow(theta, 0, sizes[0], sizes[1], 1, observation, hidden, one)
    return one[0] if sizes[6] else math.tanh(one[0])


@njit(cache=True, error_model="numpy", fastmath={"reassoc"})
def _finite(x):
    worst = np.float32(0.0)  # of the width of x, and summed in any order: else the longest of all loops, one by one
    for k in range(len(x)):
        worst += x[k] * np.float32(0.0)  # 0 for what is finite, NaN for what is not
    return worst == 0.0


@njit(cache=True, error_model="numpy", fastmath=FAST)
def _follow(theta, rates, direction):
    """Write θ after a step along ``direction`` over it."""
    for k in range(len(theta)):
        direction[k] = theta[k] + rates[k] * direction[k]


@njit(cache=True, error_model="numpy", fastmath=FAST)
def _along_traces(traces, grad, ready, delta, decay):
    """Write the new traces over ``grad``, and over ``ready``, the entropy's gradient, the direction of the step."""
    delta, decay = np.float32(delta), np.float32(decay)  # float64 would halve what is done at once
    for k in range(len(grad)):
        grad[k] += decay * traces[k]
    for k in range(len(grad)):
        ready[k] += delta * grad[k]


@njit(cache=True, error_model="numpy", fastmath=FAST)
def _over_roots(direction, squares, keep):
    """RMSProp: divide ``direction`` by the roots of its mean squares, and return these."""
    mean, keep = np.empty(len(squares), np.float32), np.float32(keep)
    for k in range(len(squares)):
        mean[k] = keep * squares[k] + (np.float32(1.0) - keep) * direction[k] * direction[k]
        direction[k] /= np.sqrt(mean[k] + np.float32(SMALLEST_SQUARE))
    return mean


@njit(cache=True, error_model="numpy")
def _copy(x, y):
    """Write x over y; an assignment of one slice to another is not done several at once."""
    for k in range(len(x)):
        y[k] = x[k]


@njit(cache=True, error_model="numpy")
def learn(sizes, rates, settings, theta, traces, items, memory, seen, whole, key, squares, row):
    """One update from one time step, then show S_t to the memory (or empty it at the end of the episode).

    Returns whether the update was finite; one that is not is not made.
    """
    s, n, tracing, rms = sizes[0], sizes[3], sizes[7], sizes[9]
    discount, decay, entropy, surprise, cap, terminal_value, floor, keep = settings
    extra = row[2 * s :]
    over = extra[TERMINATED] > 0 or extra[TRUNCATED] > 0
    v_next = terminal_value if extra[TERMINATED] > 0 else value(sizes, theta, row[:s])
    delta = extra[REWARD] + discount * v_next - value(sizes, theta, seen[0])
    openness = entropy + surprise * abs(delta)
    grad = np.empty(len(theta), np.float32)
    moved = grad
    if tracing:
        moved = np.zeros(len(theta), np.float32)
        log_w = gradients(sizes, theta, items, memory, seen, whole, 1.0, openness, cap, grad, moved, False)
        _along_traces(traces, grad, moved, delta, discount * decay)
    else:
        log_w = gradients(sizes, theta, items, memory, seen, whole, delta, openness, cap, grad, grad, True)
    mean = _over_roots(moved, squares, keep) if rms else squares
    _follow(theta, rates, moved)
    # Of what came out, not of the gradient: a finite step can still lead out of the range of float32.
    sound = _finite(moved) and _finite(mean)
    if sound:
        _copy(moved, theta)
        _copy(mean, squares)
        if tracing:
            _copy(grad, traces)
    if over:
        traces[:] = 0.0
    if over:
        clear(sizes, memory, whole)
    else:
        add(sizes, items, memory, whole, seen[0], max(log_w, floor), key, whole[n + 3])
    return sound


@njit(cache=True, error_model="numpy")
def _watch(sizes, settings, theta, items, memory, seen, whole, key, row):
    """The memory goes on as in ``learn``, the parameters stay."""
    s, h, a, n, _, _, _, _, k, _ = sizes
    if row[2 * s + TERMINATED] > 0 or row[2 * s + TRUNCATED] > 0:
        clear(sizes, memory, whole)
        return
    hidden, one = np.empty(h, np.float32), np.empty(1, np.float32)
    _shallow(theta, _offsets(s, h, a, k)[2], s, h, 1, seen[0], hidden, one)
    add(sizes, items, memory, whole, seen[0], max(_log_sigmoid(one[0]), settings[6]), key, whole[n + 3])


@njit(cache=True, error_model="numpy")
def step(sizes, rates, settings, flat, rows, learning, actions):
    """Every copy that is not idle: take in its row, learning or not, and act.

    Returns the first copy whose update was not finite, and so was not made, or −1.
    """
    theta, traces, items, memory, seen, whole, key, squares = flat
    s, n, bad = sizes[0], sizes[3], -1
    for k in range(len(rows)):
        row = rows[k]
        if row[2 * s + IDLE] > 0:
            continue
        if learning:
            if not learn(
                sizes,
                rates,
                settings,
                theta[k],
                traces[k],
                items[k],
                memory[k],
                seen[k],
                whole[k],
                key[k],
                squares[k],
                row,
            ):
                bad = k if bad < 0 else bad
        else:
            _watch(sizes, settings, theta[k], items[k], memory[k], seen[k], whole[k], key[k], row)
        over = row[2 * s + TERMINATED] > 0 or row[2 * s + TRUNCATED] > 0
        begin(sizes, theta[k], items[k], seen[k], whole[k], key[k], row[s : 2 * s] if over else row[:s])
        actions[k] = whole[k, n + 2]
    return bad


@njit(cache=True, error_model="numpy")
def begin_all(sizes, flat, rows, actions):
    """Every copy's first action."""
    theta, _, items, _, seen, whole, key, _ = flat
    for k in range(len(rows)):
        begin(sizes, theta[k], items[k], seen[k], whole[k], key[k], rows[k])
        actions[k] = whole[k, sizes[3] + 2]


class NativeHost:
    """As ``recollect.host.Host``, for independent copies of the agents that ``supported`` names."""

    def __init__(self, agent: Any, observation_size: int, outputs: int, copies: int = 1):
        self.agent, self.size, self.outputs, self.copies = agent, observation_size, outputs, copies
        n = agent.memory_size
        self.sizes = Sizes(
            observation_size,
            agent.hidden,
            outputs,
            n,
            LAWS[agent.memory],
            agent.estimator == "every",
            agent.critic_output == "linear",
            float(agent.trace_decay) > 0,
            agent.products,
            agent.optimizer == "rmsprop",
        )
        self.settings = tuple(float(getattr(agent, name)) for name in SETTINGS)
        self._state = jax.eval_shape(lambda: agent.init(prng.key(0), observation_size, outputs))
        self.rates = self._rates()

    def _rates(self) -> np.ndarray:
        """The step size of every parameter."""
        agent = self.agent

        def of(name: str) -> float:
            return float(getattr(agent, f"{name}_rate"))

        def parts(name: str, rate: float) -> list[np.ndarray]:
            found = []
            for layer in getattr(self._state.params, name):
                found.append(np.full(math.prod(layer.weight.shape), rate))
                found.append(np.full(layer.bias.shape, rate * float(agent.bias_rate)))
            return found

        networks = [part for name in NETWORKS for part in parts(name, of(name))]
        rates = np.concatenate([*networks, [of("query")], *parts("products", of("policy"))])
        return (rates * float(agent.learning_rate)).astype(np.float32)

    def start(self, seed: Any) -> Flat:
        """Fresh copies with this seed and those after it; parameters as ``agent.init`` draws them."""
        seeds = np.arange(self.copies, dtype=np.uint32) + np.uint32(seed)
        return self.pack(_start(self.agent, self.size, self.outputs, jnp.asarray(seeds)))

    def begin(self, flat: Flat, rows: np.ndarray) -> tuple[Flat, np.ndarray]:
        """First actions."""
        actions = np.zeros(self.copies, np.int64)
        begin_all(tuple(self.sizes), tuple(flat), np.ascontiguousarray(rows), actions)
        return flat, actions

    def step(self, flat: Flat, rows: np.ndarray) -> tuple[Flat, np.ndarray, int]:
        """Learn and act; and the first copy whose update was not finite, and so was not made, or −1."""
        actions = np.zeros(self.copies, np.int64)
        bad = step(tuple(self.sizes), self.rates, self.settings, tuple(flat), rows, True, actions)
        return flat, actions, bad

    def watch(self, flat: Flat, rows: np.ndarray) -> tuple[Flat, np.ndarray]:
        """Act without learning."""
        actions = np.zeros(self.copies, np.int64)
        step(tuple(self.sizes), self.rates, self.settings, tuple(flat), rows, False, actions)
        return flat, actions

    def forget(self, flat: Flat) -> Flat:
        """End the episode everywhere without learning from it."""
        for k in range(self.copies):
            clear(tuple(self.sizes), flat.memory[k], flat.whole[k])
            flat.traces[k] = 0.0
        return flat

    def write_weights(self, flat: Flat, observations: np.ndarray) -> np.ndarray:
        """[copy, observation]: w(S) of each copy's own observations."""
        params = self.unpack(flat).agent.params
        first, last = params.write
        hidden = np.tanh(np.einsum("khs,kos->koh", first.weight, observations) + first.bias[:, None])
        outputs = np.einsum("kh,koh->ko", last.weight[:, 0], hidden) + last.bias
        return 0.5 + 0.5 * np.tanh(outputs / 2)

    def like(self) -> Live:
        """The form of what ``unpack`` gives; nothing is computed."""
        seeds = jax.ShapeDtypeStruct((self.copies,), jnp.uint32)
        return jax.eval_shape(functools.partial(_start, self.agent, self.size, self.outputs), seeds)

    def unpack(self, flat: Flat) -> Live:
        """The copies as the agent's own states, with a leading axis."""
        n = self.sizes.n
        params, at = {}, 0
        for source in ("theta", "traces", *(["squares"] if self.sizes.rms else [])):
            table, at, networks = getattr(flat, source), 0, {}
            for name in (*NETWORKS, "products"):
                if name == "products":
                    networks["temperature"] = table[:, at].copy()
                    at += 1
                layers = []
                for layer in getattr(self._state.params, name):
                    out, into = layer.weight.shape
                    weight = table[:, at : at + out * into].reshape(-1, out, into).copy()
                    at += out * into
                    layers.append(Layer(weight, table[:, at : at + out].copy()))
                    at += out
                networks[name] = tuple(layers)
            params[source] = Parameters(**networks)
        m: Any = flat.memory
        ints: Any = flat.whole.astype(np.int32)
        seen: Any = flat.seen.copy()
        key: Any = flat.key.copy()
        law: Any = ()
        if self.agent.memory == "reservoir":
            law = kernel.Ratios(
                m[:, n : 2 * n + 1].copy(),
                m[:, 2 * n + 1 : 3 * n + 2].copy(),
                m[:, 3 * n + 2 :].reshape(-1, n, n).copy(),
            )
        stored = kernel.State(flat.items.copy(), m[:, :n].copy(), ints[:, :n], ints[:, n], law)
        decision = Decision(seen[:, 0], seen[:, 1], ints[:, n + 1], ints[:, n + 2])
        idle: Any = np.zeros(len(ints), np.float32)  # the reward rate, which the discounted objective has no use for
        state = State(params["theta"], params["traces"], stored, decision, idle, None, params.get("squares", ()))
        return Live(key, ints[:, n + 3], state)

    def pack(self, live: Any) -> Flat:
        """The other way."""
        live = jax.tree.map(lambda leaf: np.array(leaf), live)
        state, n, copies = live.agent, self.sizes.n, self.copies

        def vector(params: Any) -> np.ndarray:
            layers = [layer for name in NETWORKS for layer in getattr(params, name)]
            before, after = ([leaf for layer in part for leaf in layer] for part in (layers, params.products))
            parts = [*before, params.temperature, *after]
            return np.concatenate([np.reshape(x, (copies, -1)) for x in parts], axis=1)

        theta = vector(state.params).astype(np.float32)
        traces = vector(state.traces).astype(np.float32)
        squares = vector(state.squares).astype(np.float32) if self.sizes.rms else np.zeros((copies, 0), np.float32)
        reservoir = self.agent.memory == "reservoir"
        memory = np.zeros((copies, n + 2 * (n + 1) + (n * n if reservoir else 0)), np.float32)
        memory[:, :n] = state.memory.log_weights
        if reservoir:
            law = state.memory.law
            memory[:, n:] = np.concatenate([law.high, law.low, law.drop.reshape(copies, -1)], axis=1)
        d = state.decision
        ints = [state.memory.ranks, *(x[:, None] for x in (state.memory.seen, d.slot, d.action, live.time))]
        whole = np.concatenate(ints, axis=1).astype(np.int64)
        # They are indices, and compiled code does not look where they point.
        for name, found, most in (("ranks", whole[:, :n], n), ("actions", whole[:, n + 2], self.outputs - 1)):
            if ((found < 0) | (found > most)).any():
                raise FileError(f"the state is not sound: {name} are outside 0 to {most}")
        seen = np.stack([d.observation, d.recalled], axis=1)
        items = np.ascontiguousarray(state.memory.items)
        return Flat(theta, traces, items, memory, seen, whole, live.key, squares)


@functools.partial(jax.jit, static_argnums=(1, 2))
def _start(agent: EpisodicActorCritic, size: int, outputs: int, seeds: Any) -> Live:
    def one(seed):
        key_init, key = jax.random.split(prng.key(seed))
        state = agent.init(key_init, size, outputs)
        return Live(jax.random.key_data(key), jnp.zeros((), jnp.int32), state)

    return jax.vmap(one)(seeds)
