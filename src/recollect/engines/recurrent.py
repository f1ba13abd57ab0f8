"""The recurrent baseline on CPUs: environment, GRU, backpropagation and RMSProp for W runs at once, one a vector lane.

The definition is `recollect.agents.recurrent`; symbols and order follow it, and tests/training/test_baseline_group.py
holds the two equal. A block of W runs lives in one scratch array of float32 fields, W entries a field (`Layout`,
`recollect.engines.lanes`); what environment and random numbers need stays in the runs' own rows, for scalar code.

Runs are at different steps of their episodes, and the loops over an episode go to the longest of the block. A run that
is not so far has an update gate of 0 there: its hidden state stays as it is, and so does the gradient on its way back,
exactly. Loops are short where episodes begin together: see `_begin_episodes`. A run's results depend neither on its
company nor on W.
"""

import functools
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from recollect.agents.base import why_unknown
from recollect.agents.recurrent import RecurrentActorCritic
from recollect.cores import cores
from recollect.engines.lanes import (
    FloatLike,
    IntLike,
    bits_of,
    exp,
    fma,
    from_bits,
    inlined,
    inner,
    load,
    log,
    most,
    select,
    splat,
    store,
    tanh,
    to_float,
)
from recollect.engines.layouts import record_of
from recollect.envs.secret_informant import FORWARD, SecretInformant
from recollect.reservoir.random import seeded, uniform

WIDTHS = (1, 4, 8, 16)
"""How many lanes a block can have."""

_F = np.float32
ZERO, HALF, ONE, ONE_AND_A_HALF = _F(0), _F(0.5), _F(1), _F(1.5)
_ROOT_MAGIC = 0x5F375A86
_WAIT = 2  # lane-steps a run that a block may spend on waiting between two beginnings

# what a run's row of integers holds, before its chain, right actions and the rows of states it has seen
STEPS, EPISODE, TAKEN, PAST, POSITION, CORRECT, ROW, FAULT, HEAD = range(9)
SETTINGS = ("learning_rate", "discount", "entropy", "decay", "epsilon")
KNOWN = {*SETTINGS, "width", "window", "initializer", "critic_start"}
"""What is known of the agent; all else must be its default."""

_RATE, _DISCOUNT, _ENTROPY, _DECAY, _EPSILON = range(5)


def why_not(agent: Any, env: Any) -> str | None:
    """Why this engine cannot run a pair, or None if it can."""
    if type(env) is not SecretInformant:
        return f"it is written for SecretInformant, not for {type(env).__name__}"
    return why_unknown(agent, RecurrentActorCritic, KNOWN, {})


class Layer(NamedTuple):
    """Where an affine map is: the first fields of its weights [out, into] and of its biases, and its sizes."""

    weight: int
    bias: int
    out: int
    into: int


class Layout(NamedTuple):
    """Sizes, and the first field of everything in a block's scratch array."""

    S: int
    H: int
    A: int
    L: int
    D: int
    window: int
    v1: Layer
    v2: Layer
    p1: Layer
    p2: Layer
    p3: Layer
    zr: Layer  # update and reset gates
    c: Layer  # candidate
    parameters: int  # how many, from field 0 on; RMSProp's mean squares lie behind them
    past: int  # [window + 1]: observation, hidden state before it, and that times the reset gate
    record: int  # how many fields each of those has
    gates: int  # [window, 3 H]: update, reset, candidate; then the gradients by their inputs
    now: int  # S_t and h_t
    next: int  # S_{t+1}
    h1: int
    h2: int
    logit: int
    pi: int
    hv: int
    hv_next: int
    d_logit: int
    d2: int
    d1: int
    d_now: int
    d_v: int
    d_hv: int
    d_h: int
    d_before: int
    d_seen: int
    rate: int
    keep: int
    renew: int
    epsilon: int
    discount: int
    entropy: int
    reward: int
    goes_on: int  # γ, or 0 where the episode ends
    floats: int  # how many fields
    past_length: int  # integers from here on
    action: int
    ints: int


@functools.cache
def layout(S: int, H: int, A: int, L: int, D: int, window: int) -> Layout:
    """The layout for these sizes."""
    field: dict[str, Any] = {"S": S, "H": H, "A": A, "L": L, "D": D, "window": window}
    end = 0
    shapes = {"v1": (H, S), "v2": (1, H), "p1": (H, S + H), "p2": (H, H), "p3": (A, H), "zr": (2 * H, S + H)}
    for name, (out, into) in {**shapes, "c": (H, S + H)}.items():
        field[name] = Layer(end, end + out * into, out, into)
        end += out * into + out
    field["parameters"], field["record"] = end, S + 2 * H
    end *= 2
    parts = {"past": (window + 1) * (S + 2 * H), "gates": window * 3 * H, "now": S + H, "next": S, "h1": H, "h2": H}
    parts |= {"logit": A, "pi": A, "hv": H, "hv_next": H, "d_logit": A, "d2": H, "d1": H, "d_now": S + H, "d_v": 1}
    parts |= {"d_hv": H, "d_h": H, "d_before": H, "d_seen": H, "rate": 1, "keep": 1, "renew": 1, "epsilon": 1}
    parts |= {"discount": 1, "entropy": 1, "reward": 1, "goes_on": 1}
    for name, size in parts.items():
        field[name] = end
        end += size
    return Layout(**field, floats=end, past_length=0, action=1, ints=2)


@intrinsic
def _halve_bits(typingctx, x):
    """The bits of a whole number shifted right by one."""

    def codegen(context, builder, sig, args):
        one = ir.Constant(ir.IntType(32), 1)
        if isinstance(args[0].type, ir.VectorType):
            one = ir.Constant(args[0].type, [one] * args[0].type.count)
        return builder.lshr(args[0], one)

    kind = types.int32 if isinstance(x, types.Integer) else x
    return kind(kind), codegen


@inlined
def _inverse_root(x: FloatLike, w: Any) -> FloatLike:
    """1/√x of a positive normal number, to about a unit in the last place; √ and division take five times as long."""
    guess: IntLike = splat(_ROOT_MAGIC, w) - _halve_bits(bits_of(x))  # pyright: ignore[reportCallIssue]
    y = from_bits(guess)
    half = x * -HALF
    y = y * fma(half * y, y, ONE_AND_A_HALF)
    y = y * fma(half * y, y, ONE_AND_A_HALF)
    return y * fma(half * y, y, ONE_AND_A_HALF)


@inlined
def _sigmoid(x: FloatLike) -> FloatLike:
    """1/(1 + e^-x), the way XLA takes it."""
    return fma(tanh(x * HALF), HALF, HALF)


# -- products: four rows of weights at a time, which share what they load of the vector


@inner
def _product(f, weight, stride, out, into, x, start, y, w):
    """Y_i = start_i + Σ_j W_ij x_j for i < out."""
    i = 0
    while i + 4 <= out:
        a, b = load(f, start + i, w), load(f, start + i + 1, w)
        c, d = load(f, start + i + 2, w), load(f, start + i + 3, w)
        row = weight + i * stride
        for j in range(into):
            x_j = load(f, x + j, w)
            a = fma(load(f, row + j, w), x_j, a)
            b = fma(load(f, row + stride + j, w), x_j, b)
            c = fma(load(f, row + 2 * stride + j, w), x_j, c)
            d = fma(load(f, row + 3 * stride + j, w), x_j, d)
        store(f, y + i, a)
        store(f, y + i + 1, b)
        store(f, y + i + 2, c)
        store(f, y + i + 3, d)
        i += 4
    while i < out:
        a = load(f, start + i, w)
        for j in range(into):
            a = fma(load(f, weight + i * stride + j, w), load(f, x + j, w), a)
        store(f, y + i, a)
        i += 1


@inner
def _back(f, weight, stride, out, into, d, y, w):
    """Y_j ← y_j + Σ_i d_i W_ij for j < into."""
    i = 0
    while i + 4 <= out:
        a, b, c, e = load(f, d + i, w), load(f, d + i + 1, w), load(f, d + i + 2, w), load(f, d + i + 3, w)
        row = weight + i * stride
        for j in range(into):
            total = fma(a, load(f, row + j, w), load(f, y + j, w))
            total = fma(b, load(f, row + stride + j, w), total)
            total = fma(c, load(f, row + 2 * stride + j, w), total)
            store(f, y + j, fma(e, load(f, row + 3 * stride + j, w), total))
        i += 4
    while i < out:
        a = load(f, d + i, w)
        for j in range(into):
            store(f, y + j, fma(a, load(f, weight + i * stride + j, w), load(f, y + j, w)))
        i += 1


@inlined
def _affine_tanh(f, layer, x, y, w):
    _product(f, layer.weight, layer.into, layer.out, layer.into, x, layer.bias, y, w)
    for i in range(layer.out):
        store(f, y + i, tanh(load(f, y + i, w)))


@inlined
def _back_tanh(f, layer, d, h, d_in, w):
    """The gradient at a layer's inputs, outputs h of tanh, from that at its outputs."""
    for j in range(layer.into):
        store(f, d_in + j, splat(ZERO, w))
    _back(f, layer.weight, layer.into, layer.out, layer.into, d, d_in, w)
    for j in range(layer.into):
        h_j = load(f, h + j, w)
        store(f, d_in + j, load(f, d_in + j, w) * (ONE - h_j * h_j))


# -- RMSProp, by the gradient Σ_k d[k]_i x[k]_j, which is never written down


@inlined
def _move(f, P, k, g, rate, keep, renew, epsilon, w):
    """One of P parameters' step; returns 0, or NaN if it is not finite."""
    square = fma(renew * g, g, keep * load(f, P + k, w))
    store(f, P + k, square)
    new = fma(rate * g, _inverse_root(square + epsilon, w), load(f, k, w))
    store(f, k, new)
    return (new + square) * ZERO


@inlined
def _gradient(f, i, j, x, x_step, d, d_step, steps, w):
    g = splat(ZERO, w)
    for k in range(steps):
        g = fma(load(f, d + k * d_step + i, w), load(f, x + k * x_step + j, w), g)
    return g


@inner
def _learn(f, o, weight, stride, bias, out, into, x, x_step, d, d_step, steps, w):
    """Learn columns of a layer's weights, and its biases where ``bias`` is not negative; returns 0, or NaN."""
    rate, keep, renew, epsilon = load(f, o.rate, w), load(f, o.keep, w), load(f, o.renew, w), load(f, o.epsilon, w)
    P, sound = o.parameters, splat(ZERO, w)
    i = 0
    while i + 4 <= out:  # rows by fours share what is loaded of x, columns by twos what is loaded of d
        j = 0
        while j + 2 <= into:
            zero = splat(ZERO, w)
            a_0, a_1, b_0, b_1, c_0, c_1, e_0, e_1 = zero, zero, zero, zero, zero, zero, zero, zero
            for k in range(steps):
                at_d, at_x = d + k * d_step + i, x + k * x_step + j
                x_0, x_1 = load(f, at_x, w), load(f, at_x + 1, w)
                a, b, c, e = load(f, at_d, w), load(f, at_d + 1, w), load(f, at_d + 2, w), load(f, at_d + 3, w)
                a_0, a_1 = fma(a, x_0, a_0), fma(a, x_1, a_1)
                b_0, b_1 = fma(b, x_0, b_0), fma(b, x_1, b_1)
                c_0, c_1 = fma(c, x_0, c_0), fma(c, x_1, c_1)
                e_0, e_1 = fma(e, x_0, e_0), fma(e, x_1, e_1)
            at = weight + i * stride + j
            sound = sound + _move(f, P, at, a_0, rate, keep, renew, epsilon, w)
            sound = sound + _move(f, P, at + 1, a_1, rate, keep, renew, epsilon, w)
            sound = sound + _move(f, P, at + stride, b_0, rate, keep, renew, epsilon, w)
            sound = sound + _move(f, P, at + stride + 1, b_1, rate, keep, renew, epsilon, w)
            sound = sound + _move(f, P, at + 2 * stride, c_0, rate, keep, renew, epsilon, w)
            sound = sound + _move(f, P, at + 2 * stride + 1, c_1, rate, keep, renew, epsilon, w)
            sound = sound + _move(f, P, at + 3 * stride, e_0, rate, keep, renew, epsilon, w)
            sound = sound + _move(f, P, at + 3 * stride + 1, e_1, rate, keep, renew, epsilon, w)
            j += 2
        for row in range(i, i + 4):
            for column in range(j, into):
                g = _gradient(f, row, column, x, x_step, d, d_step, steps, w)
                sound = sound + _move(f, P, weight + row * stride + column, g, rate, keep, renew, epsilon, w)
        i += 4
    for row in range(i, out):
        for column in range(into):
            g = _gradient(f, row, column, x, x_step, d, d_step, steps, w)
            sound = sound + _move(f, P, weight + row * stride + column, g, rate, keep, renew, epsilon, w)
    if bias >= 0:
        for row in range(out):
            g = splat(ZERO, w)
            for k in range(steps):
                g = g + load(f, d + k * d_step + row, w)
            sound = sound + _move(f, P, bias + row, g, rate, keep, renew, epsilon, w)
    return sound


@inlined
def _learn_layer(f, o, layer, x, d, w):
    return _learn(f, o, layer.weight, layer.into, layer.bias, layer.out, layer.into, x, 0, d, 0, 1, w)


# -- the GRU over the episode so far


@inner
def _gates_from_inputs(f, o, layer, gates, steps, w):
    """What observations and biases give to the inputs of gates, four time steps at once, which share the weights."""
    across = 3 * o.H
    for i in range(layer.out):
        row, y, bias = layer.weight + i * layer.into, gates + i, load(f, layer.bias + i, w)
        k = 0
        while k + 4 <= steps:
            x, a, b, c, d = o.past + k * o.record, bias, bias, bias, bias
            for j in range(o.S):
                w_j = load(f, row + j, w)
                a = fma(w_j, load(f, x + j, w), a)
                b = fma(w_j, load(f, x + o.record + j, w), b)
                c = fma(w_j, load(f, x + 2 * o.record + j, w), c)
                d = fma(w_j, load(f, x + 3 * o.record + j, w), d)
            store(f, y + k * across, a)
            store(f, y + (k + 1) * across, b)
            store(f, y + (k + 2) * across, c)
            store(f, y + (k + 3) * across, d)
            k += 4
        while k < steps:
            x, a = o.past + k * o.record, bias
            for j in range(o.S):
                a = fma(load(f, row + j, w), load(f, x + j, w), a)
            store(f, y + k * across, a)
            k += 1


@inner
def _unroll(f, u, o, steps, w):
    """Run the GRU over the episodes so far; h_t of every run is left behind the longest of them."""
    H, S = o.H, o.S
    _gates_from_inputs(f, o, o.zr, o.gates, steps, w)
    _gates_from_inputs(f, o, o.c, o.gates + 2 * H, steps, w)
    length = load(u, o.past_length, w)
    for k in range(steps):
        h, gates = o.past + k * o.record + S, o.gates + k * 3 * H
        _product(f, o.zr.weight + S, S + H, 2 * H, H, h, gates, gates, w)
        for i in range(H):
            r = _sigmoid(load(f, gates + H + i, w))
            store(f, gates + H + i, r)
            store(f, h + H + i, r * load(f, h + i, w))
        _product(f, o.c.weight + S, S + H, H, H, h + H, gates + 2 * H, gates + 2 * H, w)
        within = length > k
        for i in range(H):
            z = select(within, _sigmoid(load(f, gates + i, w)), ZERO)
            c = tanh(load(f, gates + 2 * H + i, w))
            store(f, gates + i, z)
            store(f, gates + 2 * H + i, c)
            store(f, h + o.record + i, fma(z, c, (ONE - z) * load(f, h + i, w)))


@inner
def _backpropagate(f, o, steps, w):
    """The gradients by the gates' inputs, in place of the gates, from ``d_h`` by h_t, which is used up."""
    H, S = o.H, o.S
    for k in range(steps - 1, -1, -1):
        h, gates = o.past + k * o.record + S, o.gates + k * 3 * H
        for i in range(H):
            z, c = load(f, gates + i, w), load(f, gates + 2 * H + i, w)
            d, h_i = load(f, o.d_h + i, w), load(f, h + i, w)
            d_z = d * z
            store(f, gates + 2 * H + i, d_z * (ONE - c * c))
            store(f, gates + i, d_z * (c - h_i) * (ONE - z))
            store(f, o.d_h + i, d - d_z)
            store(f, o.d_seen + i, splat(ZERO, w))
        _back(f, o.c.weight + S, S + H, H, H, gates + 2 * H, o.d_seen, w)
        for i in range(H):
            seen, r, h_i = load(f, o.d_seen + i, w), load(f, gates + H + i, w), load(f, h + i, w)
            seen_r = seen * r
            store(f, gates + H + i, seen_r * h_i * (ONE - r))
            store(f, o.d_h + i, load(f, o.d_h + i, w) + seen_r)
        if k:
            _back(f, o.zr.weight + S, S + H, 2 * H, H, gates, o.d_h, w)


# -- act and learn


@inner
def _policy(f, o, w):
    """The policy at S_t and h_t: probabilities, and their logarithms in place of the logits."""
    _affine_tanh(f, o.p1, o.now, o.h1, w)
    _affine_tanh(f, o.p2, o.h1, o.h2, w)
    _product(f, o.p3.weight, o.p3.into, o.A, o.H, o.h2, o.p3.bias, o.logit, w)
    top = load(f, o.logit, w)
    for i in range(1, o.A):
        top = most(load(f, o.logit + i, w), top)
    total = splat(ZERO, w)
    for i in range(o.A):
        total = total + exp(load(f, o.logit + i, w) - top)
    top = top + log(total)
    for i in range(o.A):
        log_pi = load(f, o.logit + i, w) - top
        store(f, o.logit + i, log_pi)
        store(f, o.pi + i, exp(log_pi))


@inlined
def _value(f, o, x, hidden, w):
    _affine_tanh(f, o.v1, x, hidden, w)
    total = load(f, o.v2.bias, w)
    for j in range(o.H):
        total = fma(load(f, o.v2.weight + j, w), load(f, hidden + j, w), total)
    return tanh(total)


@inner
def _learn_step(f, u, o, steps, w):
    """One update, as `RecurrentActorCritic.update`; returns 0, or NaN in the lanes where it is not finite."""
    H, S = o.H, o.S
    v_next, v = _value(f, o, o.next, o.hv_next, w), _value(f, o, o.now, o.hv, w)
    delta = fma(load(f, o.goes_on, w), v_next, load(f, o.reward, w)) - v
    store(f, o.d_v, delta * (ONE - v * v))
    _back_tanh(f, o.v2, o.d_v, o.hv, o.d_hv, w)

    entropy, action, mean = load(f, o.entropy, w), load(u, o.action, w), splat(ZERO, w)
    for i in range(o.A):
        mean = fma(load(f, o.pi + i, w), load(f, o.logit + i, w), mean)
    for i in range(o.A):
        pi = load(f, o.pi + i, w)
        even = entropy * pi * (load(f, o.logit + i, w) - mean)
        store(f, o.d_logit + i, delta * (to_float(action == i) - pi) - even)
    _back_tanh(f, o.p3, o.d_logit, o.h2, o.d2, w)
    _back_tanh(f, o.p2, o.d2, o.h1, o.d1, w)
    for j in range(H):
        store(f, o.d_h + j, splat(ZERO, w))
    _back(f, o.p1.weight + S, S + H, H, H, o.d1, o.d_h, w)
    _backpropagate(f, o, steps, w)

    sound = _learn_layer(f, o, o.v2, o.hv, o.d_v, w)
    sound = sound + _learn_layer(f, o, o.v1, o.now, o.d_hv, w)
    sound = sound + _learn_layer(f, o, o.p3, o.h2, o.d_logit, w)
    sound = sound + _learn_layer(f, o, o.p2, o.h1, o.d2, w)
    sound = sound + _learn_layer(f, o, o.p1, o.now, o.d1, w)
    x, d, across = o.past, o.gates, 3 * H
    sound = sound + _learn(f, o, o.zr.weight, S + H, o.zr.bias, 2 * H, S + H, x, o.record, d, across, steps, w)
    sound = sound + _learn(f, o, o.c.weight, S + H, o.c.bias, H, S, x, o.record, d + 2 * H, across, steps, w)
    x, d = x + S + H, d + 2 * H
    sound = sound + _learn(f, o, o.c.weight + S, S + H, np.int64(-1), H, H, x, o.record, d, across, steps, w)
    return sound


# -- a lane's episode: scalar code on the row of integers of its run


@njit
def _begin_episode(run, o, rng):
    """A random instance: rows of the table of states, as ``SecretInformant.states`` orders them."""
    L, D, A = o.L, o.D, o.A
    chain, right, informative = HEAD, HEAD + L, D * A
    for i in range(L):
        run[chain + i] = 1 + informative + int(uniform(rng) * informative)
    free = np.arange(L)
    for d in range(D):
        k = d + int(uniform(rng) * (L - d))
        free[d], free[k] = free[k], free[d]
        run[right + d] = int(uniform(rng) * A)
        run[chain + free[d]] = 1 + d * A + run[right + d]
    run[POSITION], run[CORRECT], run[ROW], run[PAST], run[TAKEN] = 0, 1, 0, 0, 0


@inner
def _walk(run, o, action):
    """Take an action; returns whether the episode is over."""
    L, D, position = o.L, o.D, run[POSITION]
    if position > L:
        run[CORRECT] &= action == run[HEAD + L + position - L - 1]
        position += 1
    elif action == FORWARD:
        position += 1
    run[POSITION], run[ROW] = position, 0
    if position > L + D:
        return True
    if position > L:
        run[ROW] = 1 + 2 * D * o.A + 2 * (position - L - 1) + run[CORRECT]
    elif position > 0:
        run[ROW] = run[HEAD + position - 1]
    return False


@inner
def _show(f, table, row, at, size, r, W):
    for j in range(size):
        f[(at + j) * W + r] = table[row * size + j]


@inner
def _observe(f, u, o, ints, table, columns, live, w):
    """Append S_t of every run to its past; once the window is full the oldest step moves into the state before it."""
    W, S, H, seen = len(w), o.S, o.H, HEAD + o.L + o.D
    full = False
    for r in range(W):
        full |= live[r] and ints[columns[r], PAST] == o.window
    if full:
        for r in range(W):
            u[o.past_length * W + r] = live[r] and ints[columns[r], PAST] == o.window
        h = o.past + S
        for i in range(H):  # the state after the oldest step stands where that before the second will be
            store(f, o.d_before + i, load(f, h + o.record + i, w))
        _unroll(f, u, o, np.int64(1), w)
        for i in range(H):
            after = load(f, h + o.record + i, w)
            store(f, h + o.record + i, load(f, o.d_before + i, w))
            store(f, h + i, select(load(u, o.past_length, w) > 0, after, load(f, h + i, w)))
    longest = 0
    for r in range(W):
        if live[r]:
            run = ints[columns[r]]
            if run[PAST] == o.window:
                for k in range(o.window - 1):
                    run[seen + k] = run[seen + k + 1]
                    for j in range(S):
                        at = (o.past + k * o.record + j) * W + r
                        f[at] = f[at + o.record * W]
                run[PAST] -= 1
            run[seen + run[PAST]] = run[ROW]
            _show(f, table, run[ROW], o.past + run[PAST] * o.record, S, r, W)
            _show(f, table, run[ROW], o.now, S, r, W)
            run[PAST] += 1
            u[o.past_length * W + r] = run[PAST]
            longest = max(longest, run[PAST])
        else:
            u[o.past_length * W + r] = 0
    return longest


@inner
def _begin_episodes(f, o, ints, rng, columns, live, waits, waited, W):
    """Begin episodes where one is over; returns the lane-steps waited since the last beginning.

    Loops are as long as the longest episode so far, so runs wait for each other to begin together, but only where that
    costs little: while those that wait, times the fewest steps the others can still take, are few lane-steps.
    """
    waiting, going, left = 0, 0, 0
    for r in range(W):
        if waits[r]:
            waiting += 1
        elif live[r]:
            going += 1
            left = max(left, o.L + o.D + 1 - ints[columns[r], POSITION])
    if waiting == 0:
        return waited
    if going and waited + waiting * left <= _WAIT * (waiting + going):
        return waited + waiting
    for r in range(W):
        if waits[r]:
            _begin_episode(ints[columns[r]], o, rng[columns[r]])
            for i in range(o.H):
                f[(o.past + o.S + i) * W + r] = ZERO
            waits[r], live[r] = False, True
    return 0


@inner
def _take(f, o, theta, squares, before, ints, settings, table, run, r, W):
    """Read a run into lane r."""
    P = o.parameters
    for k in range(P):
        f[k * W + r], f[(P + k) * W + r] = theta[run, k], squares[run, k]
    for i in range(o.H):
        f[(o.past + o.S + i) * W + r] = before[run, i]
    for k in range(ints[run, PAST]):
        _show(f, table, ints[run, HEAD + o.L + o.D + k], o.past + k * o.record, o.S, r, W)
    f[o.discount * W + r], f[o.entropy * W + r] = settings[run, _DISCOUNT], settings[run, _ENTROPY]
    f[o.epsilon * W + r] = settings[run, _EPSILON]


@inner
def _give(f, o, theta, squares, before, run, r, W):
    """Write lane r back to its run."""
    P = o.parameters
    for k in range(P):
        theta[run, k], squares[run, k] = f[k * W + r], f[(P + k) * W + r]
    for i in range(o.H):
        before[run, i] = f[(o.past + o.S + i) * W + r]


@njit(nogil=True, cache=True)
def advance_block(theta, squares, before, ints, rng, sums, settings, table, columns, o, limits, steps, f, u, w) -> None:
    """Go on with the runs in ``columns``, in place, for so many steps of the block; see `Runs`."""
    W, own = len(w), len(columns)
    episodes, bin_size, max_steps = limits
    live, waits = np.zeros(W, np.bool_), np.zeros(W, np.bool_)
    for r in range(own):
        run = columns[r]
        _take(f, o, theta, squares, before, ints, settings, table, run, r, W)
        going = ints[run, EPISODE] < episodes and ints[run, STEPS] < max_steps and ints[run, FAULT] == 0
        live[r] = going and ints[run, TAKEN] > 0
        waits[r] = going and ints[run, TAKEN] == 0
    for r in range(own, W):
        f[o.epsilon * W + r] = ONE
    waited = np.int64(0)
    for _ in range(steps):
        waited = _begin_episodes(f, o, ints, rng, columns, live, waits, waited, W)
        longest = _observe(f, u, o, ints, table, columns, live, w)
        if longest == 0:
            break
        _unroll(f, u, o, longest, w)
        for i in range(o.H):
            store(f, o.now + o.S + i, load(f, o.past + longest * o.record + o.S + i, w))
        _policy(f, o, w)
        for r in range(W):
            f[o.rate * W + r], f[o.keep * W + r], f[o.renew * W + r] = ZERO, ONE, ZERO
            if live[r]:
                run = columns[r]
                row, left, action = ints[run], uniform(rng[run]), 0
                while action < o.A - 1 and left >= f[(o.pi + action) * W + r]:
                    left -= f[(o.pi + action) * W + r]
                    action += 1
                over = _walk(row, o, action)
                row[STEPS] += 1
                row[TAKEN] += 1
                u[o.action * W + r] = action
                f[o.reward * W + r] = ONE if over and row[CORRECT] else ZERO
                f[o.goes_on * W + r] = ZERO if over else f[o.discount * W + r]
                decay = _F(settings[run, _DECAY])
                f[o.rate * W + r] = settings[run, _RATE]
                f[o.keep * W + r], f[o.renew * W + r] = decay, ONE - decay
                _show(f, table, row[ROW], o.next, o.S, r, W)
        store(f, o.d_v, _learn_step(f, u, o, longest, w))
        for r in range(own):
            if live[r]:
                run = columns[r]
                row = ints[run]
                if f[o.d_v * W + r] != ZERO:
                    row[FAULT] = row[STEPS]
                over = row[POSITION] > o.L + o.D
                if over:
                    entry = sums[run, min(row[EPISODE] // bin_size, sums.shape[1] - 1)]
                    entry[0] += f[o.reward * W + r]
                    entry[1] += row[TAKEN]
                    row[EPISODE] += 1
                    row[TAKEN], row[PAST] = 0, 0
                going = row[EPISODE] < episodes and row[STEPS] < max_steps and row[FAULT] == 0
                live[r], waits[r] = going and not over, going and over
    for r in range(own):
        _give(f, o, theta, squares, before, columns[r], r, W)


class Runs(NamedTuple):
    """Everything that changes in a number of runs, one row a run."""

    theta: np.ndarray  # [run, parameter], as `flatten` orders them
    squares: np.ndarray  # RMSProp's
    before: np.ndarray  # [run, unit]: the hidden state before the window
    ints: np.ndarray  # counts, and the episode under way
    rng: np.ndarray  # [run, 4]
    sums: np.ndarray  # [run, bin, 2]: return and length


def runs_like(agent: RecurrentActorCritic, env: SecretInformant, runs: int, bins: int) -> Runs:
    """Runs of the right form, all zeros."""
    o = _layout(agent, env)
    return Runs(
        np.zeros((runs, o.parameters), np.float32),
        np.zeros((runs, o.parameters), np.float32),
        np.zeros((runs, o.H), np.float32),
        np.zeros((runs, HEAD + o.L + o.D + o.window), np.int64),
        np.zeros((runs, 4), np.uint64),
        np.zeros((runs, bins, 2)),
    )


def start(
    agent: RecurrentActorCritic, env: SecretInformant, seeds: Sequence[int], theta: np.ndarray, bins: int
) -> Runs:
    """Runs before their first step, with these parameters [run, parameter]."""
    runs = runs_like(agent, env, len(seeds), bins)
    runs.theta[:] = theta
    runs.rng[:] = [seeded([seed, 1]) for seed in seeds]
    return runs


def _layout(agent: RecurrentActorCritic, env: SecretInformant) -> Layout:
    return layout(env.observation_size, agent.width, env.num_actions, env.length, env.decisions, agent.window)


def aligned(size: int, dtype: Any) -> np.ndarray:
    """Zeros that begin at a cache line."""
    raw = np.zeros(size + 16, dtype)
    start = -raw.ctypes.data % 64 // 4
    return raw[start : start + size]


class Engine:
    """Moves runs on, a block of lanes a core at a time."""

    def __init__(
        self,
        agent: RecurrentActorCritic,
        env: SecretInformant,
        limits: tuple[int, int, int],
        settings: np.ndarray,
        width: int | None = None,
        threads: int | None = None,
    ):
        """Make ready.

        Args:
            agent: its sizes count; hyperparameters are taken from ``settings``.
            env: the environment.
            limits: episodes, episodes a bin, the most steps.
            settings: [run, setting], in the order of ``SETTINGS``.
            width: lanes a block, of ``WIDTHS``; None to choose. Results do not depend on it, nor on ``threads``.
            threads: None for one a core.
        """
        self.layout, self.limits, self.settings = _layout(agent, env), limits, settings
        self.table = np.ascontiguousarray(env.states, np.float32).ravel()
        self.threads = threads or cores()
        share = min(-(-len(settings) // self.threads), WIDTHS[-1])
        self.width = width or next(W for W in WIDTHS if share <= W)
        self.pace = 0.0  # seconds a step of a block

    def going(self, runs: Runs) -> np.ndarray:
        """Which runs have episodes and steps left."""
        return (runs.ints[:, EPISODE] < self.limits[0]) & (runs.ints[:, STEPS] < self.limits[2])

    def advance(self, runs: Runs, columns: np.ndarray, steps: int) -> None:
        """Go on with these runs, in this order, for so many steps of each block."""
        o, compact = self.layout, record_of(self.layout)
        blocks = max(-(-len(columns) // self.width), min(self.threads, len(columns)))

        def block(some: np.ndarray) -> float:
            begun = time.perf_counter()
            f, u = aligned(o.floats * self.width, np.float32), aligned(o.ints * self.width, np.int32)
            w = (0,) * self.width
            advance_block(*runs, self.settings, self.table, some, compact, self.limits, steps, f, u, w)
            return time.perf_counter() - begun

        parts = np.array_split(columns, blocks)
        if len(parts) == 1:
            seconds = block(parts[0])
        else:
            with ThreadPoolExecutor(self.threads) as pool:
                seconds = max(pool.map(block, parts))
        self.pace = seconds / steps * -(-blocks // self.threads)
