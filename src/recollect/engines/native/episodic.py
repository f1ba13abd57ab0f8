"""The episodic agent's time step, compiled.

``EpisodicActorCritic`` is the definition; a test holds one update here equal to one update there.

All parameters of a copy lie in one vector θ, in the order value, policy, query, write, temperature, products, each
layer as its weights [out, in] and its biases; so do the traces.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from recollect.engines.host import IDLE, REWARD, TERMINATED, TRUNCATED
from recollect.engines.native.kernels import (
    ACT,
    READ,
    affine,
    affine_back,
    copy_over,
    draw,
    exact,
    fast,
    finite,
    follow,
    outer,
    over_roots,
    shallow,
    shallow_back,
    softmax,
    tanh_each,
    uniform,
    value,
)
from recollect.engines.native.memory import add, clear


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
    """Of one agent: s inputs, h units, a actions, n slots, which law and estimator, k products, and other choices."""

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
    distinct: bool


@exact
def _offsets(s, h, a, k):
    """Where policy, query, write and temperature begin in θ; the value network is at 0, products are at the end."""
    policy = h * s + h + h + 1
    query = policy + h * 2 * s + h + h * (h + k) + h + a * h + a
    write = query + h * s + h + s * h + s
    return policy, query, write, write + h * s + h + h + 1


@fast
def _policy(theta, at, at_products, s, h, a, k, x, first, factors, second, p):
    """The policy's probabilities at (S_t, m_t), with its hidden layers left in ``first`` and ``second``.

    The last k of ``first`` are the products of the first k of ``factors``, made from S_t, and its last k, from m_t.
    """
    at = affine(theta, at, h, 2 * s, x, first)
    tanh_each(first[:h])
    if k > 0:
        at_products = affine(theta, at_products, k, s, x[:s], factors[:k])
        tanh_each(factors[:k])
        affine(theta, at_products, k, s, x[s:], factors[k:])
        for i in range(k):
            first[h + i] = factors[i] * factors[k + i]
    at = affine(theta, at, h, h + k, first, second)
    tanh_each(second)
    affine(theta, at, a, h, second, p)
    softmax(p, a)


@fast
def _policy_back(
    theta, grad, at, at_products, s, h, a, k, x, first, factors, second, d_logits, d_second, d_first, d_factors
):
    at_2 = at + h * 2 * s + h
    affine_back(theta, grad, at_2 + h * (h + k) + h, a, h, second, d_logits, d_second)
    for i in range(h):
        d_second[i] *= 1.0 - second[i] * second[i]
    affine_back(theta, grad, at_2, h, h + k, first, d_second, d_first)
    if k > 0:
        for i in range(k):
            d_factors[i] = d_first[h + i] * factors[k + i] * (1.0 - factors[i] * factors[i])
            d_factors[k + i] = d_first[h + i] * factors[i]
        outer(grad, at_products, k, s, x[:s], d_factors[:k])
        outer(grad, at_products + k * s + k, k, s, x[s:], d_factors[k:])
    for i in range(h):
        d_first[i] *= 1.0 - first[i] * first[i]
    outer(grad, at, h, 2 * s, x, d_first)


@fast
def _query(theta, at, s, h, n, observation, items, ranks, hidden, q, logits):
    """⟨q(S_t), S_i⟩/τ of the filled slots, packed to the front with their slots; returns how many there are."""
    shallow(theta, at, s, h, s, observation, hidden, q)
    tanh_each(q)
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


@fast
def _query_back(theta, grad, at, s, h, n, observation, items, ranks, hidden, q, logits, d_logits):
    """The gradient by the query network and by the temperature's logarithm, of what ``_query`` made."""
    temperature = math.exp(theta[at + h * s + h + s * h + s + h * s + h + h + 1])
    d_q, d_hidden = np.zeros(s, np.float32), np.empty(h, np.float32)
    place, d_temperature = 0, 0.0
    for i in range(n):
        if ranks[i] > 0:
            d = d_logits[place]
            d_temperature -= d * logits[place]
            share = np.float32(d / temperature)
            for j in range(s):
                d_q[j] += share * items[i, j]
            place += 1
    for j in range(s):
        d_q[j] *= 1.0 - q[j] * q[j]
    shallow_back(theta, grad, at, s, h, s, observation, hidden, d_q, d_hidden)
    return d_temperature


@fast
def _mean_log(p, count):
    """Σ p log p."""
    total = 0.0
    for i in range(count):
        total += p[i] * math.log(max(p[i], 1e-300))
    return total


@fast
def _entropy_slope(p, i, mean):
    """Of −Σ p log p by the i-th logit; ``mean`` is Σ p log p."""
    return -p[i] * (math.log(max(p[i], 1e-300)) - mean)


@exact
def _slot_of(ranks, place):
    """The slot of the filled place of that number."""
    for i in range(len(ranks)):
        if ranks[i] > 0:
            if place == 0:
                return i
            place -= 1
    return 0


@exact
def _log_sigmoid(x):
    return -math.log1p(math.exp(-x)) if x > 0 else x - math.log1p(math.exp(x))


@exact
def begin(sizes, theta, items, seen, whole, key, observation):
    """Recall a state, choose an action."""
    s, h, a, n, law, _, _, _, k, _, _ = sizes
    at_policy, at_query, _, at_temperature = _offsets(s, h, a, k)
    hidden, q, logits, p = np.empty(h, np.float32), np.empty(s, np.float32), np.empty(n), np.empty(a)
    first, factors = np.empty(h + k, np.float32), np.empty(2 * k, np.float32)
    copy_over(observation, seen[0])
    seen[1] = 0.0
    whole[n + 1] = 0
    time = whole[n + 3]
    if law != 3:
        count = _query(theta, at_query, s, h, n, observation, items, whole[:n], hidden, q, logits)
        if count > 0:
            softmax(logits, count)
            slot = _slot_of(whole[:n], draw(logits, count, uniform(key, time, READ, 0)))
            copy_over(items[slot], seen[1])
            whole[n + 1] = slot
    _policy(theta, at_policy, at_temperature + 1, s, h, a, k, seen.reshape(2 * s), first, factors, hidden, p)
    whole[n + 2] = draw(p, a, uniform(key, time, ACT, 0))
    whole[n + 3] = time + 1


@fast
def gradients(sizes, theta, items, memory, seen, whole, delta, openness, query_openness, cap, grad, ready, together):
    """The gradient of the scores, times ``delta``, to ``grad``; of the entropies, times openness, to ``ready``.

    Returns log w(S_t). ``together``: both go to ``grad``.
    """
    s, h, a, n, law, every, linear, _, products, _, _ = sizes
    at_policy, at_query, at_write, at_temperature = _offsets(s, h, a, products)
    at_products = at_temperature + 1
    hidden, first, second = np.empty(h, np.float32), np.empty(h + products, np.float32), np.empty(h, np.float32)
    factors, d_factors = np.empty(2 * products, np.float32), np.empty(2 * products, np.float32)
    d_first = np.empty(h + products, np.float32)
    d_hidden, d_second = np.empty(h, np.float32), np.empty(h, np.float32)
    one, d_one, p, d_logits = np.empty(1, np.float32), np.empty(1, np.float32), np.empty(a), np.empty(a)
    x = seen.reshape(2 * s)

    shallow(theta, 0, s, h, 1, seen[0], hidden, one)
    v = one[0] if linear else math.tanh(one[0])
    d_one[0] = delta * (1.0 if linear else 1.0 - v * v)
    shallow_back(theta, grad, 0, s, h, 1, seen[0], hidden, d_one, d_hidden)

    _policy(theta, at_policy, at_products, s, h, a, products, x, first, factors, second, p)
    action = whole[n + 2]
    mean = _mean_log(p, a)
    for i in range(a):
        d_logits[i] = delta * ((i == action) - p[i])
        if together:
            d_logits[i] += openness * _entropy_slope(p, i, mean)
    _policy_back(
        theta, grad, at_policy, at_products, s, h, a, products, x, first, factors, second,
        d_logits, d_second, d_first, d_factors,
    )  # fmt: skip
    if not together:
        for i in range(a):
            d_logits[i] = openness * _entropy_slope(p, i, mean)
        _policy_back(
            theta, ready, at_policy, at_products, s, h, a, products, x, first, factors, second,
            d_logits, d_second, d_first, d_factors,
        )  # fmt: skip

    shallow(theta, at_write, s, h, 1, seen[0], hidden, one)
    log_w = _log_sigmoid(one[0])
    grad[at_query:at_products] = 0.0
    if law == 3:
        return log_w
    q, logits, shares, d_slots = np.empty(s, np.float32), np.empty(n), np.empty(n), np.empty(n)
    ranks = whole[:n]
    count = _query(theta, at_query, s, h, n, seen[0], items, ranks, hidden, q, logits)
    if count == 0:
        return log_w
    slot, place = whole[n + 1], 0
    copy_over(logits, shares)
    softmax(shares, count)
    mean = _mean_log(shares, count) if query_openness > 0 else 0.0
    for i in range(n):
        if ranks[i] > 0:
            d_slots[place] = delta * ((i == slot) - shares[place])
            if together and query_openness > 0:
                d_slots[place] += query_openness * _entropy_slope(shares, place, mean)
            place += 1
    grad[at_temperature] = _query_back(
        theta, grad, at_query, s, h, n, seen[0], items, ranks, hidden, q, logits, d_slots
    )
    if query_openness > 0 and not together:
        for i in range(count):
            d_slots[i] = query_openness * _entropy_slope(shares, i, mean)
        ready[at_temperature] = _query_back(
            theta, ready, at_query, s, h, n, seen[0], items, ranks, hidden, q, logits, d_slots
        )

    size = at_temperature - at_write
    part, total = np.empty(at_temperature, np.float32), np.zeros(size, np.float32)
    for i in range(n):
        if whole[i] > 0 and (every or i == slot):
            shallow(theta, at_write, s, h, 1, items[i], hidden, one)
            now = _log_sigmoid(one[0])
            d_one[0] = delta * min(math.exp(now - memory[i]), cap) * (1.0 - math.exp(now))
            shallow_back(theta, part, at_write, s, h, 1, items[i], hidden, d_one, d_hidden)
            for k in range(size):
                total[k] += part[at_write + k]
    for k in range(size):
        grad[at_write + k] = total[k]
    return log_w


@fast
def _along_traces(traces, grad, ready, delta, decay):
    """Write the new traces over ``grad``, and over ``ready``, the entropy's gradient, the direction of the step."""
    delta, decay = np.float32(delta), np.float32(decay)  # float64 would halve what is done at once
    for k in range(len(grad)):
        grad[k] += decay * traces[k]
    for k in range(len(grad)):
        ready[k] += delta * grad[k]


@exact
def learn(sizes, rates, settings, theta, traces, items, memory, seen, whole, key, squares, row):
    """One update from one time step, then show S_t to the memory (or empty it at the end of the episode).

    Returns whether the update was finite; one that is not is not made.
    """
    s, h, _, n, _, _, linear, tracing, _, rms, _ = sizes
    discount, decay, entropy, surprise, cap, terminal_value, floor, keep, epsilon, query_openness = settings
    extra = row[2 * s :]
    over = extra[TERMINATED] > 0 or extra[TRUNCATED] > 0
    v_next = terminal_value if extra[TERMINATED] > 0 else value(theta, s, h, linear, row[:s])
    delta = extra[REWARD] + discount * v_next - value(theta, s, h, linear, seen[0])
    openness = entropy + surprise * abs(delta)
    grad = np.empty(len(theta), np.float32)
    moved = np.zeros(len(theta), np.float32) if tracing else grad
    scale = 1.0 if tracing else delta
    of_query = query_openness * openness
    log_w = gradients(
        sizes, theta, items, memory, seen, whole, scale, openness, of_query, cap, grad, moved, not tracing
    )
    if tracing:
        _along_traces(traces, grad, moved, delta, discount * decay)
    mean = over_roots(moved, squares, keep, epsilon) if rms else squares
    follow(theta, rates, moved)
    # Of what came out, not of the gradient: a finite step can still lead out of the range of float32.
    sound = finite(moved) and finite(mean)
    if sound:
        copy_over(moved, theta)
        copy_over(mean, squares)
        if tracing:
            copy_over(grad, traces)
    if over:
        traces[:] = 0.0
    if over:
        clear(sizes, memory, whole)
    else:
        add(sizes, items, memory, whole, seen[0], max(log_w, floor), key, whole[n + 3])
    return sound


@exact
def _watch(sizes, settings, theta, items, memory, seen, whole, key, row):
    """The memory goes on as in ``learn``, the parameters stay."""
    s, h, a, n, _, _, _, _, k, _, _ = sizes
    if row[2 * s + TERMINATED] > 0 or row[2 * s + TRUNCATED] > 0:
        clear(sizes, memory, whole)
        return
    hidden, one = np.empty(h, np.float32), np.empty(1, np.float32)
    shallow(theta, _offsets(s, h, a, k)[2], s, h, 1, seen[0], hidden, one)
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
