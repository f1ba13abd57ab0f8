"""The online loop on CPUs: environment, read, act, learn, write for W runs at once, one a vector lane.

The definition is `recollect.agents.episodic`; symbols and order follow it, and tests/engines holds the two equal. A
block of W runs lives in two scratch arrays of fields, one of floats and one of integers, W entries a field: see
`Layout` for the fields and `recollect.engines.lanes` for the vectors. With W = 1 vectors run along the units of a layer
instead. Either way each number goes through the same operations in the same order: a run's results do not depend on
W, on its company or on the number of threads.
"""

import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from recollect.agents.episodic import EpisodicActorCritic
from recollect.cores import cores
from recollect.engines import packing
from recollect.engines.lanes import (
    absolute,
    any_,
    exp,
    expm1,
    floor,
    fma,
    inlined,
    inner,
    least,
    load,
    load_at,
    log,
    log1p,
    log_sigmoid,
    most,
    philox,
    select,
    sigmoid,
    splat,
    store,
    store_at,
    tanh,
    to_float,
    to_int,
    uniform,
)
from recollect.engines.layouts import record_of
from recollect.envs.secret_informant import FORWARD, SecretInformant

RESERVOIR, UNIFORM, FIFO, NONE = range(4)
_MEMORIES = {"reservoir": RESERVOIR, "uniform": UNIFORM, "fifo": FIFO, "none": NONE}
_RESET, _LEARN, _BEGIN = 1, 2, 3  # purposes of a step's random words, as in engines.loop.step_run
_BITS = 2  # second counter word of random bits, as in recollect.prng

_F = np.float32
ZERO, ONE, INF = _F(0), _F(1), _F(np.inf)
_LOG_INFINITY, _LOG_ZERO_WEIGHT = _F(1e36), _F(-2e36)
_LARGEST_LOG_WEIGHT, _LARGEST_UPDATE, _SPACING = _F(1e30), _F(1e30), _F(2.0**23)
WIDEST, _CACHE = 16, 2**20  # runs a block, bytes that a block may take
_WIDE = (0,) * 16  # along the units of a layer
_UNITS = len(_WIDE)


class Layer(NamedTuple):
    """Where an affine map is: fields of its weights and biases, its sizes, and ``out`` with room for whole vectors.

    Weights lie [out, in] for W > 1, and [in, wide] for W = 1 so that vectors run along the outputs.
    """

    weight: int
    bias: int
    out: int
    into: int
    wide: int


class Layout(NamedTuple):
    """Sizes, options and the first field of everything in a block's scratch arrays."""

    # sizes and options
    S: int
    H: int
    A: int
    n: int
    L: int
    D: int
    memory: int
    every: int
    oracle: int
    traces: int
    parameters: int  # of one run, without what fills vectors up
    from_query: int  # the first of them that snapshots hold
    # the networks, all floats from here on
    v1: Layer
    v2: Layer
    p1: Layer
    p2: Layer
    p3: Layer
    q1: Layer
    q2: Layer
    w1: Layer
    w2: Layer
    theta: int
    trace: int  # from a parameter to its trace
    hyper: int
    logw: int
    high: int
    low: int
    drop: int
    score: int
    s: int  # S_t, with m_t right behind it
    m: int
    s_next: int
    stored: int  # the stored states [n, S]
    hq: int
    q: int
    logit: int
    pq: int
    h1: int
    h2: int
    log_pi: int
    pi: int
    hv: int
    hv_next: int
    hw: int
    hw_m: int
    d: int  # gradients at a layer's outputs
    d_in: int
    e: int
    e_in: int
    gradient: int  # of the write network, for the estimator "every"
    inverse_tau: int
    given: int
    reward: int
    keep: int
    u_accept: int
    u_tie: int
    u_read: int
    u_act: int
    log_w: int
    floats: int  # how many
    # integers
    items: int
    ranks: int
    seen: int
    obs: int
    recalled: int
    slot: int
    action: int
    right: int
    chain: int
    position: int
    correct: int
    key: int
    steps: int
    episode: int
    length: int
    faults: int
    next: int  # from here on not packed
    terminated: int
    done: int
    count: int
    accepted: int
    live: int
    words: int
    places: int
    ints: int  # how many
    # rows of the packed tables
    row_score: int


class Hyper(NamedTuple):
    """Hyperparameters, as fields behind ``Layout.hyper``; the order is ``packing.HYPERPARAMETERS``."""

    learning_rate: int
    discount: int
    trace_decay: int
    entropy: int
    value_rate: int
    policy_rate: int
    query_rate: int
    write_rate: int
    bias_rate: int
    terminal_value: int
    log_weight_floor: int
    surprise: int
    credit_cap: int


HYPER = Hyper(*map(packing.HYPERPARAMETERS.index, Hyper._fields))


def _up(size: int) -> int:
    return -(-size // _UNITS) * _UNITS


@functools.cache
def layout(sizes: tuple[int, ...], options: tuple[int, ...], single: bool) -> tuple[Layout, np.ndarray]:
    """The layout for (S, H, A, n, L, D) and (memory, every, oracle, traces); and the field of each packed parameter."""
    S, H, A, n, L, D = sizes
    memory = options[0]
    field: dict[str, Any] = {}
    places: list[np.ndarray] = []
    end = 0

    def take(name: str, size: int) -> None:
        nonlocal end
        field[name] = end
        end += _up(size) if single else size

    def layer(name: str, out: int, into: int) -> None:
        nonlocal end
        wide = _up(out) if single and out > 1 else out
        weight, i, j = end, np.arange(out)[:, None], np.arange(into)
        places.append((weight + (j * wide + i if single else i * into + j)).ravel())
        bias = weight + (_up(wide * into) if single else out * into)
        places.append(bias + np.arange(out))
        field[name] = Layer(weight, bias, out, into, wide)
        end = bias + (_up(out) if single else out)

    shapes = {"v1": (H, S), "v2": (1, H), "p1": (H, 2 * S), "p2": (H, H), "p3": (A, H)}
    shapes |= {"q1": (H, S), "q2": (S, H), "w1": (H, S), "w2": (1, H)}
    for name, (out, into) in shapes.items():
        layer(name, out, into)
    places.append(np.array([end]))
    take("theta", 1)
    field["trace"] = end
    end *= 2
    widest = max(H, S, A, 2 * S)
    take("hyper", len(Hyper._fields))
    parts = {"logw": n, "high": n + 1, "low": n + 1, "drop": n, "score": 1, "s": 2 * S, "s_next": S, "stored": n * S}
    parts |= {"hq": H, "q": S, "logit": n, "pq": n, "h1": H, "h2": H, "log_pi": A, "pi": A}
    parts |= {"hv": H, "hv_next": H, "hw": H, "hw_m": H, "d": widest, "d_in": widest, "e": widest, "e_in": widest}
    parts["gradient"] = field["theta"] - field["w1"].weight
    parts |= dict.fromkeys(
        ("inverse_tau", "given", "reward", "keep", "u_accept", "u_tie", "u_read", "u_act", "log_w"), 1
    )
    for name, size in parts.items():
        take(name, size)
    field["m"] = field["s"] + S
    field["floats"], end, single = end, 0, False
    parts = {"items": n, "ranks": n, "seen": 1, "obs": 1, "recalled": 1, "slot": 1, "action": 1, "right": D, "chain": L}
    parts |= {"position": 1, "correct": 1, "key": 4, "steps": 1, "episode": 1, "length": 1, "faults": 1}
    # so far as packed
    parts |= dict.fromkeys(("next", "terminated", "done", "count", "accepted", "live"), 1)
    parts |= {"words": 2 * D + L + 3, "places": D}
    for name, size in parts.items():
        take(name, size)
    field["ints"] = end
    order = np.concatenate(places).astype(np.int64)
    P = len(order)
    before_query = sum(out * into + out for out, into in list(shapes.values())[:5])
    row_score = 2 * P + n + (2 * (n + 1) if memory == RESERVOIR else 0)
    names = dict(zip(("S", "H", "A", "n", "L", "D"), sizes, strict=True))
    names |= dict(zip(("memory", "every", "oracle", "traces"), options, strict=True))
    rows = {"parameters": P, "from_query": before_query, "row_score": row_score}
    return Layout(**names, **rows, **field), order


# -- layers: vectors of W runs, or for W = 1 along the units


@inlined
def _affine(f, layer, x, y, w):
    """Y = W x + b; with W = 1 inputs that are 0, as most bits of a state are, are passed over."""
    if len(w) == 1:
        for i in range(0, layer.wide, _UNITS):
            store_at(f, y + i, load_at(f, layer.bias + i, _WIDE))
        for j in range(layer.into):
            if f[x + j] != ZERO:
                x_j, row = splat(f[x + j], _WIDE), layer.weight + j * layer.wide
                for i in range(0, layer.wide, _UNITS):
                    store_at(f, y + i, fma(load_at(f, row + i, _WIDE), x_j, load_at(f, y + i, _WIDE)))
    else:
        for i in range(layer.out):
            store(f, y + i, _sum(f, layer.weight + i * layer.into, layer.bias + i, layer.into, x, w))


@inlined
def _sum(f, weight, bias, into, x, w):
    """One output: Σ_j W_j x_j + b."""
    total = load(f, bias, w)
    for j in range(into):
        total = fma(load(f, weight + j, w), load(f, x + j, w), total)
    return total


@inlined
def _tanh(f, y, size, w):
    """Tanh of ``size`` fields, in place."""
    if len(w) == 1:
        for i in range(0, size, _UNITS):
            store_at(f, y + i, tanh(load_at(f, y + i, _WIDE)))
    else:
        for i in range(size):
            store(f, y + i, tanh(load(f, y + i, w)))


@inlined
def _back(f, layer, d, h, d_in, w):
    """Gradients at the layer's inputs, themselves outputs h of tanh, from those at its outputs: (Wᵀ d)(1 - h²)."""
    across, down = (layer.wide, 1) if len(w) == 1 else (1, layer.into)
    for j in range(layer.into):
        total = splat(ZERO, w)
        for i in range(layer.out):
            total = fma(load(f, layer.weight + j * across + i * down, w), load(f, d + i, w), total)
        h_j = load(f, h + j, w)
        store(f, d_in + j, total * (ONE - h_j * h_j))


@inlined
def _back_one(f, layer, d, h, d_in, w):
    """The same for a layer of one output."""
    for j in range(layer.into):
        h_j = load(f, h + j, w)
        store(f, d_in + j, d * load(f, layer.weight + j, w) * (ONE - h_j * h_j))


# -- learning: p ← p + step z with z ← decay z + g; g the outer product of gradients d at outputs and inputs x


@inlined
def _move(f, at, away, g, step, decay, width):
    """One vector of parameters, whose traces lie ``away`` behind."""
    z = fma(decay, load_at(f, at + away, width), g)
    store_at(f, at + away, z)
    store_at(f, at, fma(step, z, load_at(f, at, width)))


@inlined
def _add(f, at, a, b, width):
    """P ← p + a b."""
    store_at(f, at, fma(a, b, load_at(f, at, width)))


@inlined
def _learn(f, o, layer, x, d, step, decay, w):
    """A layer's step."""
    step_b = step * load(f, o.hyper + HYPER.bias_rate, w)
    W, away = len(w), o.trace * len(w)
    if len(w) == 1:
        for i in range(0, layer.wide, _UNITS):
            d_i = load_at(f, d + i, _WIDE)
            if o.traces:
                for j in range(layer.into):
                    _move(f, layer.weight + j * layer.wide + i, away, d_i * f[x + j], step, decay, _WIDE)
                _move(f, layer.bias + i, away, d_i, step_b, decay, _WIDE)
            else:
                for j in range(layer.into):
                    if f[x + j] != ZERO:
                        _add(f, layer.weight + j * layer.wide + i, d_i * step, f[x + j], _WIDE)
                _add(f, layer.bias + i, step_b, d_i, _WIDE)
    else:
        for i in range(layer.out):
            d_i, row = load(f, d + i, w), (layer.weight + i * layer.into) * W
            if o.traces:
                for j in range(layer.into):
                    _move(f, row + j * W, away, d_i * load(f, x + j, w), step, decay, w)
                _move(f, (layer.bias + i) * W, away, d_i, step_b, decay, w)
            else:
                for j in range(layer.into):
                    _add(f, row + j * W, d_i * step, load(f, x + j, w), w)
                _add(f, (layer.bias + i) * W, step_b, d_i, w)


@inlined
def _learn_open(f, o, layer, x, d, e, step, even, decay, w):
    """A layer's step in the policy: on top, ``even`` times the gradient of the entropy, which is e at the outputs."""
    rate_b = load(f, o.hyper + HYPER.bias_rate, w)
    step_b, even_b = step * rate_b, even * rate_b
    W, away = len(w), o.trace * len(w)
    if len(w) == 1:
        for i in range(0, layer.wide, _UNITS):
            d_i, e_i = load_at(f, d + i, _WIDE), load_at(f, e + i, _WIDE)
            for j in range(layer.into):
                at, x_j = layer.weight + j * layer.wide + i, f[x + j]
                _add(f, at, even * e_i, x_j, _WIDE)
                _move(f, at, away, d_i * x_j, step, decay, _WIDE)
            _add(f, layer.bias + i, even_b, e_i, _WIDE)
            _move(f, layer.bias + i, away, d_i, step_b, decay, _WIDE)
    else:
        for i in range(layer.out):
            d_i, e_i, row = load(f, d + i, w), load(f, e + i, w), (layer.weight + i * layer.into) * W
            for j in range(layer.into):
                x_j = load(f, x + j, w)
                _add(f, row + j * W, even * e_i, x_j, w)
                _move(f, row + j * W, away, d_i * x_j, step, decay, w)
            _add(f, (layer.bias + i) * W, even_b, e_i, w)
            _move(f, (layer.bias + i) * W, away, d_i, step_b, decay, w)


@inlined
def _learn_one(f, o, layer, x, d, step, decay, w):
    """The step of a layer of one output, its gradient d."""
    step_b = step * load(f, o.hyper + HYPER.bias_rate, w)
    W, away = len(w), o.trace * len(w)
    if len(w) == 1:
        for j in range(0, layer.into, _UNITS):
            x_j = load_at(f, x + j, _WIDE)
            if o.traces:
                _move(f, layer.weight + j, away, x_j * d, step, decay, _WIDE)
            else:
                _add(f, layer.weight + j, d * step, x_j, _WIDE)
    else:
        for j in range(layer.into):
            x_j = load(f, x + j, w)
            if o.traces:
                _move(f, (layer.weight + j) * W, away, x_j * d, step, decay, w)
            else:
                _add(f, (layer.weight + j) * W, d * step, x_j, w)
    _learn_number(f, o, layer.bias, d, step_b, decay, w)


@inlined
def _learn_number(f, o, k, g, step, decay, w):
    """The step of one parameter, its gradient g."""
    if o.traces:
        _move(f, k * len(w), o.trace * len(w), g, step, decay, w)
    else:
        _add(f, k * len(w), step, g, w)


# -- begin: recall a state, choose an action


@inlined
def _see(f, u, o, table, row, x, w):
    """The states whose rows are in integer field ``row``, as bits."""
    W = len(w)
    for r in range(W):
        at = u[row * W + r] * o.S
        for j in range(o.S):
            f[(x + j) * W + r] = table[at + j]


@inlined
def _draw(f, shares, size, total, u_draw, w):
    """The index that a uniform number draws from unnormalised ``shares``: `td.draw`."""
    below, index = splat(ZERO, w), splat(0, w)
    for i in range(size - 1):
        below = below + load(f, shares + i, w)
        index = index + to_int(u_draw * total >= below)
    return index


@inner
def _recall(f, u, o, filled, drawing, w):
    """m_t ~ Q(· | M_t) by the query q(S_t); ``filled`` bounds the slots that any run has filled."""
    _affine(f, o.q1, o.s, o.hq, w)
    _tanh(f, o.hq, o.H, w)
    _affine(f, o.q2, o.hq, o.q, w)
    _tanh(f, o.q, o.S, w)
    inverse_tau, count = exp(-load(f, o.theta, w)), load(u, o.count, w)
    store(f, o.inverse_tau, inverse_tau)
    top, total = splat(-INF, w), splat(ZERO, w)
    for i in range(filled):
        dot = splat(ZERO, w)
        for j in range(o.S):
            dot = fma(load(f, o.stored + i * o.S + j, w), load(f, o.q + j, w), dot)
        logit = select(count > i, dot * inverse_tau, -INF)
        store(f, o.logit + i, logit)
        top = most(logit, top)
    for i in range(filled):
        share = select(count > i, exp(load(f, o.logit + i, w) - top), ZERO)
        store(f, o.pq + i, share)
        total = total + share
    if drawing:
        u_read = load(f, o.u_read, w)
        anywhere = least(floor(u_read * _F(o.n)), _F(o.n - 1))  # from an empty memory: a slot, but nothing is in it
        slot = _draw(f, o.pq, filled, total, u_read, w)
        store(f, o.given, anywhere)
        store(u, o.slot, slot)
        _fetch_recalled(f, u, o, len(w))
    for i in range(filled):
        share = load(f, o.pq + i, w)
        store(f, o.pq + i, select(total > ZERO, share / total, ZERO))


@inner
def _fetch_recalled(f, u, o, W):
    for r in range(W):
        if u[o.count * W + r] == 0:
            u[o.slot * W + r] = int(f[o.given * W + r])
            u[o.recalled * W + r] = 0
        else:
            u[o.recalled * W + r] = u[(o.items + u[o.slot * W + r]) * W + r]


@inner
def _act(f, u, o, drawing, w):
    """A_t ~ π(· | S_t, m_t)."""
    _affine(f, o.p1, o.s, o.h1, w)
    _tanh(f, o.h1, o.H, w)
    _affine(f, o.p2, o.h1, o.h2, w)
    _tanh(f, o.h2, o.H, w)
    _affine(f, o.p3, o.h2, o.log_pi, w)
    top, total = load(f, o.log_pi, w), splat(ZERO, w)
    for i in range(1, o.A):
        top = most(load(f, o.log_pi + i, w), top)
    for i in range(o.A):
        logit = load(f, o.log_pi + i, w) - top
        share = exp(logit)
        store(f, o.log_pi + i, logit)
        store(f, o.pi + i, share)
        total = total + share
    if drawing:
        store(u, o.action, _draw(f, o.pi, o.A, total, load(f, o.u_act, w), w))
    log_total = log(total)
    for i in range(o.A):
        store(f, o.log_pi + i, load(f, o.log_pi + i, w) - log_total)
        store(f, o.pi + i, load(f, o.pi + i, w) / total)


# -- the environment: `SecretInformant`, a run at a time


@inner
def _walk(f, u, o, cap, W):
    for r in range(W):
        position, correct = u[o.position * W + r], u[o.correct * W + r]
        action = u[o.action * W + r]
        deciding = position > o.L
        if deciding:
            correct &= action == u[(o.right + position - o.L - 1) * W + r]
        moves = deciding or action == FORWARD
        position += moves
        terminated = position > o.L + o.D
        if position == 0 or terminated:
            row = 0
        elif position <= o.L:
            row = u[(o.chain + position - 1) * W + r]
        else:
            row = 1 + 2 * o.D * o.A + 2 * (position - o.L - 1) + correct
        reward = ONE if terminated and correct else ZERO
        u[o.position * W + r], u[o.correct * W + r], u[o.next * W + r] = position, correct, row
        u[o.length * W + r] += 1
        u[o.terminated * W + r] = terminated
        u[o.done * W + r] = terminated or u[o.length * W + r] >= cap
        f[o.reward * W + r] = reward
        f[o.score * W + r] += reward
        f[o.given * W + r] = f[(o.logw + u[o.slot * W + r]) * W + r]


@inner
def _renew(f, u, o, reach, r, W):
    """Empty the memory of run r and begin a new episode: `kernel.clear`, `SecretInformant.sample`."""
    for i in range(u[o.count * W + r]):
        u[(o.ranks + i) * W + r] = 0
        f[(o.logw + i) * W + r] = -INF
    u[o.seen * W + r] = u[o.count * W + r] = 0
    for k in range(1, reach + 1):
        f[(o.high + k) * W + r] = -_LOG_INFINITY
        f[(o.low + k) * W + r] = ZERO
    u[o.position * W + r], u[o.correct * W + r], u[o.length * W + r] = 0, 1, 0
    f[o.score * W + r] = ZERO
    _sample(u, o, r, W)


@inner
def _below(word, span):
    """A whole number below ``span`` from a random word."""
    return (np.int64(np.uint32(word)) * span) >> 32


@inner
def _sample(u, o, r, W):
    """`SecretInformant.sample`: first all words, then the right actions and their places, then the chain."""
    D, L, A, words, places = o.D, o.L, o.A, o.words, o.places
    for k in range(0, 2 * D + L, 4):
        drawn = philox(u[o.key * W + r], u[(o.key + 1) * W + r], k // 4, _BITS, u[o.steps * W + r], _RESET)
        for i in range(4):
            u[(words + k + i) * W + r] = drawn[i]
    for d in range(D):
        u[(o.right + d) * W + r] = _below(u[(words + d) * W + r], A)
        u[(places + d) * W + r] = _below(u[(words + D + d) * W + r], L - d)
    for d in range(D - 2, -1, -1):  # each place counts only those that decisions before left free
        for e in range(d + 1, D):
            u[(places + e) * W + r] += u[(places + e) * W + r] >= u[(places + d) * W + r]
    for i in range(L):
        u[(o.chain + i) * W + r] = 1 + D * A + _below(u[(words + 2 * D + i) * W + r], D * A)
    for d in range(D):
        u[(o.chain + u[(places + d) * W + r]) * W + r] = 1 + d * A + u[(o.right + d) * W + r]


# -- learn


@inner
def _learn_from_step(f, u, o, filled, w):
    """δ_t and, from it, one step of every network; also log w(S_t) for the memory."""
    h = o.hyper
    _affine(f, o.v1, o.s, o.hv, w)
    _tanh(f, o.hv, o.H, w)
    _affine(f, o.v1, o.s_next, o.hv_next, w)
    _tanh(f, o.hv_next, o.H, w)
    v = tanh(_sum(f, o.v2.weight, o.v2.bias, o.H, o.hv, w))
    v_next = tanh(_sum(f, o.v2.weight, o.v2.bias, o.H, o.hv_next, w))
    v_next = select(load(u, o.terminated, w) != 0, load(f, h + HYPER.terminal_value, w), v_next)
    gamma = load(f, h + HYPER.discount, w)
    delta = load(f, o.reward, w) + gamma * v_next - v
    _weigh(f, o, w)

    g_theta = _query_gradient(f, u, o, filled, w)
    if o.every:
        d_write = _write_gradient(f, u, o, filled, w)
    else:
        _affine(f, o.w1, o.m, o.hw_m, w)
        _tanh(f, o.hw_m, o.H, w)
        d_write = _credit(f, u, o, o.hw_m, 0, load(f, o.given, w), w)

    # An update that is not finite is not made: everything else is bounded by products of these.
    sound = (absolute(delta) < _LARGEST_UPDATE) & (d_write < _LARGEST_UPDATE) & (absolute(g_theta) < _LARGEST_UPDATE)
    faults = load(u, o.faults, w)
    store(u, o.faults, select(sound, faults, select(faults != 0, faults, -1 - load(u, o.steps, w))))
    alpha, rate_p = load(f, h + HYPER.learning_rate, w), load(f, h + HYPER.policy_rate, w)
    openness = load(f, h + HYPER.entropy, w) + load(f, h + HYPER.surprise, w) * absolute(delta)
    pull = select(sound, alpha * delta, ZERO)
    even = select(sound, alpha * rate_p * openness, ZERO)
    keep = load(f, o.keep, w)
    decay = select(sound, gamma * load(f, h + HYPER.trace_decay, w) * keep, keep)
    store(f, o.keep, ONE - to_float(load(u, o.done, w)))

    _learn_query(f, o, select(sound, g_theta, ZERO), sound, pull * load(f, h + HYPER.query_rate, w), decay, w)
    _learn_policy(f, u, o, sound, pull * rate_p, even, decay, w)
    d = select(sound, ONE - v * v, ZERO)
    _learn_small(f, o, o.v1, o.v2, o.s, o.hv, d, pull * load(f, h + HYPER.value_rate, w), decay, w)
    step = pull * load(f, h + HYPER.write_rate, w)
    if o.every:
        _learn_write_by_all(f, o, sound, step, decay, w)
    else:
        _learn_small(f, o, o.w1, o.w2, o.m, o.hw_m, select(sound, d_write, ZERO), step, decay, w)


@inlined
def _weigh(f, o, w):
    """Log w(S_t), as the memory is given it."""
    if o.oracle >= 0:
        log_w = select(load(f, o.s + o.oracle, w) > ZERO, ZERO, -INF)
    else:
        _affine(f, o.w1, o.s, o.hw, w)
        _tanh(f, o.hw, o.H, w)
        log_w = log_sigmoid(_sum(f, o.w2.weight, o.w2.bias, o.H, o.hw, w))
        log_w = most(log_w, load(f, o.hyper + HYPER.log_weight_floor, w))
    store(f, o.log_w, select(absolute(log_w) <= _LARGEST_LOG_WEIGHT, log_w, _LOG_ZERO_WEIGHT))


@inlined
def _credit(f, u, o, hidden, slot, given, w):
    """The gradient of w(S_i; θ)/w_i at the write network's output, 0 where the slot is empty; see `memory.credit`."""
    out = _sum(f, o.w2.weight, o.w2.bias, o.H, hidden, w)
    quotient = least(exp(log_sigmoid(out) - given), load(f, o.hyper + HYPER.credit_cap, w))
    return select((load(u, o.count, w) > slot) & (splat(o.oracle, w) < 0), quotient * sigmoid(-out), ZERO)


@inlined
def _query_gradient(f, u, o, filled, w):
    """The gradients of log Q by the query vector before its tanh, to field d, and by θ = log τ, returned."""
    slot, inverse_tau = load(u, o.slot, w), load(f, o.inverse_tau, w)
    mean, chosen = splat(ZERO, w), splat(ZERO, w)
    for i in range(filled):
        p, here = load(f, o.pq + i, w), slot == i
        logit = select(p > ZERO, load(f, o.logit + i, w), ZERO)
        mean = fma(p, logit, mean)
        chosen = select(here, load(f, o.logit + i, w), chosen)
        store(f, o.pq + i, to_float(here) - p)
    some = load(u, o.count, w) > 0
    for j in range(o.S):
        total, q = splat(ZERO, w), load(f, o.q + j, w)
        for i in range(filled):
            total = fma(load(f, o.pq + i, w), load(f, o.stored + i * o.S + j, w), total)
        store(f, o.d + j, select(some, total * (inverse_tau * (ONE - q * q)), ZERO))
    return select(some, mean - chosen, ZERO)


@inlined
def _learn_query(f, o, g_theta, sound, step, decay, w):
    for j in range(o.S):
        store(f, o.d + j, select(sound, load(f, o.d + j, w), ZERO))
    _back(f, o.q2, o.d, o.hq, o.d_in, w)
    _learn(f, o, o.q2, o.hq, o.d, step, decay, w)
    _learn(f, o, o.q1, o.s, o.d_in, step, decay, w)
    _learn_number(f, o, o.theta, g_theta, step, decay, w)


@inlined
def _learn_policy(f, u, o, sound, step, even, decay, w):
    """Along the gradients of log π, to field d, and of the entropy, to e; without traces along their sum at once."""
    action, mean_log = load(u, o.action, w), splat(ZERO, w)
    for i in range(o.A):
        mean_log = fma(load(f, o.pi + i, w), load(f, o.log_pi + i, w), mean_log)
    for i in range(o.A):
        pi, log_pi = load(f, o.pi + i, w), load(f, o.log_pi + i, w)
        d, e = to_float(action == i) - pi, -pi * (log_pi - mean_log)
        if o.traces:
            store(f, o.d + i, select(sound, d, ZERO))
            store(f, o.e + i, select(sound, e, ZERO))
        else:
            store(f, o.d + i, fma(step, d, even * e))
    if len(w) == 1:  # what fills the vectors up is 0
        for i in range(o.A, o.p3.wide):
            f[o.d + i] = ZERO
    if o.traces:
        _back(f, o.p3, o.d, o.h2, o.d_in, w)
        _back(f, o.p3, o.e, o.h2, o.e_in, w)
        _learn_open(f, o, o.p3, o.h2, o.d, o.e, step, even, decay, w)
        _back(f, o.p2, o.d_in, o.h1, o.d, w)
        _back(f, o.p2, o.e_in, o.h1, o.e, w)
        _learn_open(f, o, o.p2, o.h1, o.d_in, o.e_in, step, even, decay, w)
        _learn_open(f, o, o.p1, o.s, o.d, o.e, step, even, decay, w)
    else:
        one = splat(ONE, w)
        _back(f, o.p3, o.d, o.h2, o.d_in, w)
        _learn(f, o, o.p3, o.h2, o.d, one, decay, w)
        _back(f, o.p2, o.d_in, o.h1, o.d, w)
        _learn(f, o, o.p2, o.h1, o.d_in, one, decay, w)
        _learn(f, o, o.p1, o.s, o.d, one, decay, w)


@inlined
def _learn_small(f, o, first, second, x, hidden, d, step, decay, w):
    """A network of one hidden layer and one output, d its gradient there."""
    _back_one(f, second, d, hidden, o.d_in, w)
    _learn_one(f, o, second, hidden, d, step, decay, w)
    _learn(f, o, first, x, o.d_in, step, decay, w)


@inlined
def _write_gradient(f, u, o, filled, w):
    """The write network's gradient by all stored states; returns the largest at its output."""
    shift, largest, one = o.gradient - o.w1.weight, splat(ZERO, w), splat(ONE, w)
    for k in range(o.gradient, o.gradient + o.theta - o.w1.weight):
        store(f, k, splat(ZERO, w))
    for i in range(filled):
        x = o.stored + i * o.S
        _affine(f, o.w1, x, o.hw_m, w)
        _tanh(f, o.hw_m, o.H, w)
        d = _credit(f, u, o, o.hw_m, i, load(f, o.logw + i, w), w)
        largest = select(d < largest, largest, d)  # which a NaN is, too
        _back_one(f, o.w2, d, o.hw_m, o.d_in, w)
        for j in range(o.H):
            _add(f, (o.w2.weight + shift + j) * len(w), d, load(f, o.hw_m + j, w), w)
            d_j = load(f, o.d_in + j, w)
            across, start = (o.w1.wide, j) if len(w) == 1 else (1, j * o.S)
            for k in range(o.S):
                _add(f, (o.w1.weight + shift + start + k * across) * len(w), d_j, load(f, x + k, w), w)
            _add(f, (o.w1.bias + shift + j) * len(w), one, d_j, w)
        _add(f, (o.w2.bias + shift) * len(w), one, d, w)
    return largest


@inlined
def _learn_write_by_all(f, o, sound, step, decay, w):
    step_b, shift = step * load(f, o.hyper + HYPER.bias_rate, w), o.gradient - o.w1.weight
    for k in range(o.w1.weight, o.theta):
        g = select(sound, load(f, k + shift, w), ZERO)
        is_bias = (o.w1.bias <= k < o.w2.weight) or k >= o.w2.bias
        _learn_number(f, o, k, g, step_b if is_bias else step, decay, w)


# -- show S_t to the memory: `kernel.add`


@inlined
def _happens(u_own, u_tie, p):
    """`kernel._happens`: an event whose chance may lie far below the spacing of a uniform number."""
    drawn, leading = floor(u_own * _SPACING), floor(p * _SPACING)
    return (drawn < leading) | ((drawn == leading) & (u_tie < p * _SPACING - leading))


@inner
def _remember(f, u, o, drops, columns, reach, w):
    """Draw whether S_t is kept, and where; ``reach`` bounds the ratios that are not 0 after it."""
    log_w, seen = load(f, o.log_w, w), load(u, o.seen, w)
    counted = log_w != _LOG_ZERO_WEIGHT
    if o.memory == RESERVOIR:
        accept = sigmoid((log_w - load(f, o.high + o.n, w)) - load(f, o.low + o.n, w))
        _grow(f, o, log_w, reach, w)
    elif o.memory == UNIFORM:
        accept = select(counted, least(_F(o.n) / (to_float(seen) + ONE), ONE), ZERO)
    else:
        accept = to_float(counted)
    accepted = _happens(load(f, o.u_accept, w), load(f, o.u_tie, w), accept)
    store(u, o.accepted, to_int(accepted))
    store(u, o.seen, seen + to_int(counted & (seen < 0x7FFFFFFF)))
    if any_(accepted):
        for r in range(len(w)):
            if u[o.accepted * len(w) + r]:
                _place(f, u, o, drops, columns[r], reach, r, len(w))


@inlined
def _grow(f, o, log_w, reach, w):
    """`kernel._grow`, and `kernel._drop_by_rank` to field ``drop``: g_k ← g_{k-1} (g_k + w)/(g_{k-1} + w) in logs."""
    high_b, low_b = load(f, o.high, w), load(f, o.low, w)
    margin_b = (log_w - high_b) - low_b
    odds_b = exp(-absolute(margin_b))
    excess_b = log1p(odds_b)
    for k in range(1, reach + 1):
        high, low = load(f, o.high + k, w), load(f, o.low + k, w)
        margin = (log_w - high) - low
        odds = exp(-absolute(margin))
        excess = log1p(odds)
        gap = (high_b - high) + (low_b - low)
        spare = select(margin_b > ZERO, odds_b, ONE) / (ONE + odds_b)  # sigmoid(-margin)
        store(f, o.drop + k - 1, -expm1(-most(gap, ZERO)) * spare)
        above, between = margin_b > ZERO, margin > ZERO
        median = select(above, high_b, select(between, log_w, high))
        rest = select(above, low_b, select(between, ZERO, low)) + (excess - excess_b)
        total = median + rest  # Knuth's two-sum: total + error is median + rest exactly
        part = total - median
        store(f, o.high + k, total)
        store(f, o.low + k, (median - (total - part)) + (rest - part))
        high_b, low_b, margin_b, odds_b, excess_b = high, low, margin, odds, excess


@inner
def _place(f, u, o, drops, run, reach, r, W):
    """Put S_t of run r where there is room, or in place of the state that is drawn to be dropped."""
    n, count = o.n, u[o.count * W + r]
    if count == n:
        slot = _dropped(u, o, drops, run, r, W)
        dropped = u[(o.ranks + slot) * W + r]
        for i in range(n):
            u[(o.ranks + i) * W + r] -= u[(o.ranks + i) * W + r] > dropped
    else:
        slot = count
        u[o.count * W + r] = count + 1
    u[(o.ranks + slot) * W + r] = min(count + 1, n)
    u[(o.items + slot) * W + r] = u[o.obs * W + r]
    f[(o.logw + slot) * W + r] = f[o.log_w * W + r]
    for j in range(o.S):
        f[(o.stored + slot * o.S + j) * W + r] = f[(o.s + j) * W + r]
    if o.memory == RESERVOIR and u[o.live * W + r]:
        first = slot * n
        for k in range(reach):
            drops[run, first + k] = f[(o.drop + k) * W + r]
        for k in range(reach, n):
            drops[run, first + k] = ZERO


@inner
def _dropped(u, o, drops, run, r, W):
    """The slot of a full memory that is given up: from the newest, each with its own chance."""
    n, k0, k1, step = o.n, u[o.key * W + r], u[(o.key + 1) * W + r], u[o.steps * W + r]
    words = philox(k0, k1, (n + 2) // 4, _BITS, step, _LEARN)
    u_tie, best, slot = uniform(words[(n + 2) % 4]), 0, 0
    for i in range(n):
        if i == 0 or i % 4 == 2:
            words = philox(k0, k1, (i + 2) // 4, _BITS, step, _LEARN)
        rank = u[(o.ranks + i) * W + r]
        if rank > best:
            if o.memory == RESERVOIR:
                drop = drops[run, i * n + rank - 1]
            elif o.memory == UNIFORM:
                drop = ONE / _F(rank)
            else:
                drop = ONE if rank == 1 else ZERO
            if _happens(uniform(words[(i + 2) % 4]), u_tie, drop):
                best, slot = rank, i
    return slot


# -- a block of runs


@inner
def _take(f, u, o, places, floats, ints, hyper, run, r, W):
    """Read a run into lane r."""
    P, n = o.parameters, o.n
    for k in range(P):
        f[places[k] * W + r] = floats[k, run]
        f[(places[k] + o.trace) * W + r] = floats[P + k, run]
    for k in range(len(hyper)):
        f[(o.hyper + k) * W + r] = hyper[k, run]
    for i in range(n):
        f[(o.logw + i) * W + r] = floats[2 * P + i, run]
    for k in range(n + 1 if o.memory == RESERVOIR else 0):
        f[(o.high + k) * W + r] = floats[2 * P + n + k, run]
        f[(o.low + k) * W + r] = floats[2 * P + 2 * n + 1 + k, run]
    f[o.score * W + r], f[o.keep * W + r] = floats[o.row_score, run], ONE
    for k in range(o.next):
        u[k * W + r] = ints[k, run]
    for i in range(n):
        u[o.count * W + r] += u[(o.ranks + i) * W + r] > 0


@inner
def _give(f, u, o, places, floats, ints, run, r, W):
    """Write lane r back to its run."""
    P, n = o.parameters, o.n
    for k in range(P):
        floats[k, run] = f[places[k] * W + r]
        if o.traces:
            floats[P + k, run] = f[(places[k] + o.trace) * W + r] * f[o.keep * W + r]
    for i in range(n):
        floats[2 * P + i, run] = f[(o.logw + i) * W + r]
    for k in range(n + 1 if o.memory == RESERVOIR else 0):
        floats[2 * P + n + k, run] = f[(o.high + k) * W + r]
        floats[2 * P + 2 * n + 1 + k, run] = f[(o.low + k) * W + r]
    floats[o.row_score, run] = f[o.score * W + r]
    for k in range(o.next):
        ints[k, run] = u[k * W + r]


@inner
def _record(f, u, o, places, snapshots, marks, record, run, r, W):
    for k in range(o.from_query, o.parameters):
        snapshots[record, k - o.from_query, run] = f[places[k] * W + r]
    marks[record, 0, run], marks[record, 1, run] = u[o.episode * W + r], u[o.steps * W + r]


@inner
def _finish(u, f, o, sums, bin_size, reach, columns, W):
    """Count the episodes that are over, begin new ones, and go on to the next state."""
    for r in range(W):
        if u[o.done * W + r]:
            if u[o.live * W + r]:
                entry = sums[columns[r], min(u[o.episode * W + r] // bin_size, sums.shape[1] - 1)]
                entry[0] += f[o.score * W + r]
                entry[1] += _F(u[o.length * W + r])
                entry[2] += ONE
            u[o.episode * W + r] += 1
            u[o.next * W + r] = 0
            _renew(f, u, o, reach, r, W)
        u[o.obs * W + r] = u[o.next * W + r]
        u[o.steps * W + r] += 1


@inner
def _retire(f, u, o, places, floats, ints, snapshots, marks, limits, t, record, columns, W):
    """Record what is due after t steps, and write back the runs that are at their end; how many go on."""
    episodes, _, _, max_steps = limits
    records, going = snapshots.shape[0], 0
    for r in range(W):
        if u[o.live * W + r]:
            if t > 0 and t % record == 0:
                _record(f, u, o, places, snapshots, marks, t // record - 1, columns[r], r, W)
            if u[o.episode * W + r] < episodes and u[o.steps * W + r] < max_steps and t < records * record:
                going += 1
            else:
                for k in range(t // record, records):
                    _record(f, u, o, places, snapshots, marks, k, columns[r], r, W)
                _give(f, u, o, places, floats, ints, columns[r], r, W)
                u[o.live * W + r] = 0
    return going


@inner
def _randomness(f, u, o, w):
    """The uniform numbers of this step's write, and of the next read and action."""
    k0, k1, step = load(u, o.key, w), load(u, o.key + 1, w), load(u, o.steps, w)
    accept, tie, _, _ = philox(k0, k1, 0, _BITS, step, _LEARN)
    read, act, _, _ = philox(k0, k1, 0, _BITS, step, _BEGIN)
    store(f, o.u_accept, uniform(accept))
    store(f, o.u_tie, uniform(tie))
    store(f, o.u_read, uniform(read))
    store(f, o.u_act, uniform(act))


@njit(nogil=True, cache=True)
def advance_block(
    floats, ints, drops, hyper, sums, snapshots, marks, table, places, columns, own, o, limits, record, f, u, w
) -> None:
    """Go on for all records with the runs in ``columns``, the first ``own`` of them; the others only fill lanes."""
    W = len(w)
    for r in range(W):
        _take(f, u, o, places, floats, ints, hyper, columns[r], r, W)
        u[o.live * W + r] = r < own
        for i in range(o.n):
            for j in range(o.S):
                f[(o.stored + i * o.S + j) * W + r] = table[u[(o.items + i) * W + r] * o.S + j]
    t = np.int64(0)  # a plain 0 is a type of its own, and all that is called with it would be compiled for it, too
    while True:
        filled, reach = np.int64(0), np.int64(0)
        for r in range(W):
            filled = max(filled, u[o.count * W + r])
            reach = max(reach, u[o.seen * W + r])
        reach = min(reach, o.n - 1) + 1
        _see(f, u, o, table, o.obs, o.s, w)
        _recall(f, u, o, filled, t > 0, w)
        _see(f, u, o, table, o.recalled, o.m, w)
        _act(f, u, o, t > 0, w)
        if _retire(f, u, o, places, floats, ints, snapshots, marks, limits, t, record, columns, W) == 0:
            break
        _walk(f, u, o, limits[2], W)
        _see(f, u, o, table, o.next, o.s_next, w)
        _randomness(f, u, o, w)
        _learn_from_step(f, u, o, filled, w)
        if o.memory != NONE:
            _remember(f, u, o, drops, columns, reach, w)
        _finish(u, f, o, sums, limits[1], reach, columns, W)
        t += 1


def _aligned(size: int, dtype: Any) -> np.ndarray:
    """Zeros that begin at a cache line."""
    raw = np.zeros(size + 16, dtype)
    start = -raw.ctypes.data % 64 // 4
    return raw[start : start + size]


def advance(
    agents: EpisodicActorCritic,
    env: SecretInformant,
    packed: packing.Packed,
    limits: tuple[int, int, int, int],
    records: int,
    record: int,
    width: int | None = None,
    threads: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Go on for ``records`` times ``record`` steps, in place; gives snapshots [record, P, run], marks [record, 2, run].

    A snapshot is every parameter from the query network on, a mark the episodes and steps done. A run that has its
    episodes or steps stays as it is.

    Args:
        agents: with a leading axis over runs on its hyperparameters.
        env: the environment.
        packed: the tables of `packing.pack`, as writable NumPy arrays, the chances to drop apart: those of a run have
            to lie together, as n² numbers in columns would miss the cache one by one.
        limits: episodes, episodes a bin, the longest episode, the most steps.
        records: how many snapshots to take.
        record: steps from one to the next.
        width: runs a block, 1, 4, 8 or 16; None to choose. Results do not depend on it, nor on ``threads``.
        threads: None for one a core.
    """
    threads = threads or cores()
    hyper = np.asarray(packing.hyperparameters(agents))
    traces = bool(np.any(hyper[HYPER.trace_decay] > 0))  # without, those in ``packed`` are left as they are
    floats, ints, sums, drops = (_writable(table) for table in packed)
    sizes = (env.observation_size, agents.hidden, env.num_actions, agents.memory_size, env.length, env.decisions)
    oracle = -1 if agents.oracle_bit is None else agents.oracle_bit
    options = (_MEMORIES[agents.memory], int(agents.estimator == "every"), oracle, int(traces))
    o, _ = layout(sizes, options, False)
    snapshots = np.empty((records, o.parameters - o.from_query, ints.shape[1]), np.float32)
    marks = np.empty((records, 2, ints.shape[1]), np.int32)
    snapshots[:], marks[:] = floats[o.from_query : o.parameters], ints[[o.episode, o.steps]]
    active = np.flatnonzero((ints[o.episode] < limits[0]) & (ints[o.steps] < limits[3]))
    width = width or choose_width(len(active), o.parameters, threads)
    if width == 1 and o.H == 1:
        width = WIDEST  # vectors along the units of a layer need more than one
    o, places = layout(sizes, options, width == 1)
    compact, table = record_of(o), np.ascontiguousarray(env.states, np.float32).ravel()

    def block(first: int) -> None:
        own = min(width, len(active) - first)
        columns = active[np.minimum(np.arange(first, first + width), len(active) - 1)]
        f, u = _aligned(o.floats * width, np.float32), _aligned(o.ints * width, np.int32)
        out = (sums, snapshots, marks)
        advance_block(
            floats, ints, drops, hyper, *out, table, places, columns, own, compact, limits, record, f, u, (0,) * width
        )

    starts = range(0, len(active), width)
    if min(threads, len(starts)) <= 1:
        for first in starts:
            block(first)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(block, starts))
    return snapshots, marks


def choose_width(runs: int, parameters: int, threads: int) -> int:
    """16 runs take about as long as 3 one by one, so long as their parameters and traces fit a core's cache."""
    fits = 2 * 4 * WIDEST * parameters <= _CACHE
    return WIDEST if fits and runs > 3 * threads else 1


def _writable(table: Any) -> np.ndarray:
    if not isinstance(table, np.ndarray) or not table.flags.writeable or not table.flags.c_contiguous:
        raise TypeError("the CPU engine works in place: pack's tables must be writable, contiguous NumPy arrays")
    return table
