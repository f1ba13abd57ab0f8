"""The compiled passes of ``Reservoir`` over a batch of weights, and the state they work on.

Law and formulas: ``ratios``. Two passes share one state:

* ``pass_linear``, for weights within 2^±400 of the first one. Whether an item is taken is decided by thinning: 1/g_n
  only falls, so an old value of it bounds the chance of every later item. An Exp(1) budget is spent at w/g_n an item;
  the item that exhausts it is a candidate and is taken with the ratio of its true chance to the bound. Items in
  between enter g in blocks, through the power sums of their weights: O(1) an item, O(K) a block.
* ``pass_log``, for everything else: every item on its own, in logarithms, O(K) an item.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import float64, njit, types

from recollect.reservoir.random import exponential, uniform
from recollect.reservoir.ratios import accept_probability, drop_probability, grow, grow_log, margin

RANGE = 400  # binary orders of magnitude around the first weight within which the linear pass works
LEAST, MOST = 2.0**-RANGE, 2.0**RANGE
GROUP = 64  # items looked at together
SPAN = 64  # ranks with a common bound on the probability to stay
POWERS = 12  # power sums that describe a group of items with u = w/g_K ≤ SMALL to 1e-17
SMALL, SMALL_FOR_6, SMALL_FOR_4 = 1 / 30, 1.7e-3, 7e-5  # and below which the first 6 and the first 4 of them do
DEGREE = 24  # of the block's polynomial: with Σ u ≤ FULL what is cut off is below 1e-17
FULL, FULL_FOR_20, FULL_FOR_16, FULL_FOR_12 = 2.12, 1.34, 0.71, 0.27  # and below which a lower degree does

SEEN, HELD, SHIFT, IS_LOG = range(4)  # places in State.counts
BUDGET, UNIT, SUM, POWER_SUMS, POLYNOMIAL = 0, 1, 2, 3, 3 + POWERS  # places in State.block; the last two begin there

VECTOR, READ_ONLY = float64[::1], types.Array(float64, 1, "C", readonly=True)
"""What functions that may round in more than one way are compiled for as the module is loaded, before what calls them.

A caller brings a copy of them, which may round in another way, and the first that is loaded serves all. Arrays that
come from a worker of a cluster are read-only."""


class State(NamedTuple):
    """Everything a pass reads or writes; K = n + margin(n) ratios so that inclusion probabilities come out exact."""

    g: np.ndarray  # [K+1] ratios, over 2^SHIFT; logs of the unscaled ones when IS_LOG
    rows: np.ndarray  # [n, n+1] g from just before each kept item, by slot, on the scale of g
    least: np.ndarray  # [n, spans of ranks] by slot: bounds from below on the probability to stay; 0 is always one
    weights: np.ndarray  # [n] by slot, on the scale of g
    index: np.ndarray  # [n] position in the stream, by slot
    order: np.ndarray  # [n] slots in order of arrival, empty ones first
    block: np.ndarray  # [4 + POWERS + DEGREE] items not yet in g: see the places above
    counts: np.ndarray  # [4] items seen, items held; binary shift; whether logs
    rng: np.ndarray  # [4] random words

    def copy(self) -> "State":
        """Arrays of its own, the same numbers."""
        held = int(self.counts[HELD])
        rows = np.zeros(self.rows.shape)
        rows[:held] = self.rows[:held]
        return State(**{name: a.copy() for name, a in self._asdict().items() if name != "rows"}, rows=rows)


def _fresh_block() -> np.ndarray:
    block = np.zeros(POLYNOMIAL + DEGREE + 1)
    block[UNIT], block[POLYNOMIAL] = np.inf, 1.0
    return block


def empty(n: int, rng: np.ndarray) -> State:
    """The state before the first item."""
    K = n + margin(n)
    g = np.zeros(K + 1)
    g[0] = np.inf
    return State(
        g,
        np.zeros((n, n + 1)),
        np.zeros((n, (n + SPAN - 1) // SPAN)),
        np.zeros(n),
        np.zeros(n, np.int64),
        np.arange(n),
        _fresh_block(),
        np.zeros(4, np.int64),
        rng.copy(),
    )


@njit(cache=True, error_model="numpy")
def _block_polynomial(block, degree):
    """e_j of the block's items in units of g_K, j = 0 … degree.

    Items came in singly, straight into a polynomial, or in groups, as power sums p_i, which Newton's identities
    j b_j = Σ_i (−1)^{i−1} p_i b_{j−i} turn into one; the product of the two is cut off.
    """
    p = block[POWER_SUMS : POWER_SUMS + POWERS]
    singly = block[POLYNOMIAL:]
    b = np.zeros(degree + 1)
    b[0] = 1.0
    for j in range(1, degree + 1):
        signed = 0.0
        for i in range(min(j, POWERS), 0, -1):
            signed += p[i - 1] * b[j - i] if i % 2 else -p[i - 1] * b[j - i]
        b[j] = signed / j
    product = np.zeros(degree + 1)
    for j in range(degree + 1):
        for i in range(j + 1):
            product[j] += singly[i] * b[j - i]
    return product


@njit(cache=True, error_model="numpy")
def relate(g, relative):
    """Write g_K/g_k to relative[DEGREE + k]; the DEGREE + 1 places before k = 1 hold 0."""
    own = relative[DEGREE:]
    for k in range(1, len(g)):
        own[k] = g[-1] / g[k]


def _nested(degree):
    """Σ_{j ≤ degree} b_j Π_{i<j} g_K/g_{k−i} for all k, compiled for one degree so that the inner loop unrolls."""

    def nested(b, relative, S):
        below = relative[DEGREE - degree :]
        for k in range(len(S)):
            total = b[degree]
            for j in range(1, degree + 1):
                total = b[degree - j] + below[j + k] * total
            S[k] = total

    # Compiled code is linked by name: with one name for all, a program from the cache might get that of another degree.
    nested.__name__ = nested.__qualname__ = f"_nested_{degree}"
    return njit((VECTOR, VECTOR, VECTOR), cache=True, error_model="numpy", fastmath={"contract"})(nested)


_nested_12, _nested_16, _nested_20, _nested_24 = (_nested(degree) for degree in (12, 16, 20, DEGREE))


@njit(cache=True, error_model="numpy")
def _block_sums(relative, block, S):
    """S_k = Σ_j b_j Π_{i<j} g_K/g_{k−i}, b_j the block's elementary symmetric polynomials in units of g_K."""
    if block[SUM] <= FULL_FOR_12:
        _nested_12(_block_polynomial(block, 12), relative, S)
    elif block[SUM] <= FULL_FOR_16:
        _nested_16(_block_polynomial(block, 16), relative, S)
    elif block[SUM] <= FULL_FOR_20:
        _nested_20(_block_polynomial(block, 20), relative, S)
    else:
        _nested_24(_block_polynomial(block, DEGREE), relative, S)


@njit((VECTOR, VECTOR, VECTOR), cache=True, error_model="numpy", fastmath={"contract"})
def _flush(g, relative, block):
    """Let the items of the current block join g: g_k ← g_k S_k / S_{k−1}; ``relative`` goes along."""
    if block[SUM] == 0.0:
        return
    K = len(g) - 1
    S = np.empty(K + 1)
    _block_sums(relative, block, S)
    growth = S[K] / S[K - 1]
    ratios, own, below, here = g[1:], relative[DEGREE + 1 :], S[:-1], S[1:]
    for k in range(K):
        over = 1.0 / (below[k] * here[k])  # one division for S_k / S_{k−1} and its inverse
        ratios[k] *= here[k] * here[k] * over
        own[k] *= growth * (below[k] * below[k] * over)
    block[SUM:] = 0.0
    block[POLYNOMIAL] = 1.0
    block[UNIT] = 1.0 / g[K]


@njit(cache=True, error_model="numpy")
def flush(g, block):
    """Let the items of the current block join g."""
    relative = np.zeros(DEGREE + len(g))
    relate(g, relative)
    _flush(g, relative, block)


@njit(cache=True, error_model="numpy")
def logistic(x):
    """1 / (1 + exp(−x)), for any x."""
    return 1.0 / (1.0 + math.exp(min(-x, 709.0)))


@njit(cache=True, error_model="numpy")
def _copy(x, to):
    """An assignment would bring in Numba's text functions, for an error message, which take long to compile."""
    for k in range(len(x)):
        to[k] = x[k]


@njit(cache=True, error_model="numpy")
def _grow_now(g, relative, block, w):
    scratch = np.empty_like(g)
    scratch[0] = g[0]
    grow(g, w, scratch)
    _copy(scratch, g)
    block[UNIT] = 1.0 / g[-1] if g[-1] > 0.0 else math.inf
    if g[-1] > 0.0:
        relate(g, relative)


@njit(cache=True, error_model="numpy")
def _rank_to_drop(rows, weights, order, stay, rng):
    """The rank that goes, from the newest down, by thinning: stay[k−1] ≤ the probability that rank k stays.

    Most ranks are passed by what ``stay`` alone tells; rows, each far from the next in memory, are rarely read.
    """
    limit, passed = uniform(rng), 1.0
    for k in range(len(order), 1, -1):
        passed *= stay[k - 1]
        if passed <= limit:
            s = order[k - 1]
            if uniform(rng) * (1.0 - stay[k - 1]) < drop_probability(rows[s, k - 1], rows[s, k], weights[s]):
                return k
            limit, passed = uniform(rng), 1.0
    return 1


@njit(cache=True, error_model="numpy")
def _rank_to_drop_log(rows, weights, order, rng):
    k = len(order)
    while k > 1:
        s = order[k - 1]
        before, at = rows[s, k - 1], rows[s, k]
        if uniform(rng) < -math.expm1(at - before) * logistic(before - weights[s]):
            break
        k -= 1
    return k


@njit(cache=True, error_model="numpy")
def _place(g, rows, weights, index, order, rank, w, position):
    """Store an item as the newest, in the slot that stands at ``rank`` in the order of arrival."""
    slot = order[rank - 1]
    to, newer = order[rank - 1 : -1], order[rank:]  # no index can wrap around, so the loop vectorises
    for k in range(len(newer)):
        to[k] = newer[k]
    order[-1] = slot
    _copy(g[: len(order) + 1], rows[slot])
    weights[slot] = w
    index[slot] = position


@njit(cache=True, error_model="numpy")
def _least_stay(G, w, least):
    """Write, for each span of SPAN ranks, a bound from below on 1 − drop_probability: G only falls with the rank."""
    steps = np.zeros(SPAN * len(least))
    own, before, at = steps[1:], G[1:-1], G[2:]
    for k in range(len(before)):
        own[k] = before[k] - at[k]
    bits, steepest = steps.view(np.int64), least.view(np.int64)  # numbers ≥ 0 order as their bits: maxima vectorise
    for span in range(len(least)):
        here, top = bits[span * SPAN : (span + 1) * SPAN], 0
        for k in range(SPAN):
            top = max(top, here[k])
        steepest[span] = top
    for span in range(len(least)):
        flattest = G[min((span + 1) * SPAN, len(G) - 1) - 1]
        least[span] = max(0.0, 1.0 - least[span] / (flattest + w))


@njit(cache=True, error_model="numpy")
def _stay_after(rank, order, least, stay):
    """Let ``stay`` follow ``_place``: ranks above ``rank`` fell by one, and some so entered the span below."""
    n = len(order)
    to, newer = stay[rank - 1 : -1], stay[rank:]
    for k in range(len(newer)):
        to[k] = newer[k]
    for k in range(SPAN * ((rank + SPAN - 1) // SPAN), n, SPAN):
        stay[k - 1] = least[order[k - 1], k // SPAN - 1]
    stay[n - 1] = least[order[n - 1], (n - 1) // SPAN]


_summing = njit(
    [(VECTOR, float64, VECTOR), (READ_ONLY, float64, VECTOR)],
    cache=True,
    error_model="numpy",
    fastmath={"reassoc", "contract", "nsz"},
)


@_summing
def _sums_to_4(w, unit, sums):
    """Power sums 1 … 4 of u = w · unit over a group, and the least and largest w; written out so that it vectorises.

    Numbers ≥ 0 order as their bits do, and extremes of integers vectorise where those of numbers do not. With a
    negative number among them the least is negative; with a NaN the largest, the least or the sums are not numbers.
    """
    bits, p1, p2, p3, p4 = w.view(np.int64), 0.0, 0.0, 0.0, 0.0
    low, top = np.int64(0x7FFFFFFFFFFFFFFF), np.int64(-0x7FFFFFFFFFFFFFFF)
    for i in range(len(w)):
        u = w[i] * unit
        v = u * u
        p1 += u
        p2 += v
        p3 += v * u
        p4 += v * v
        low = min(low, bits[i])
        top = max(top, bits[i])
    extremes = sums.view(np.int64)
    extremes[0], extremes[1] = low, top
    least, largest = sums[0], sums[1]
    sums[0], sums[1], sums[2], sums[3] = p1, p2, p3, p4
    return least, largest


@_summing
def _sums_5_and_6(w, unit, sums):
    """Power sums 5 and 6 of u = w · unit over a group."""
    p5 = p6 = 0.0
    for i in range(len(w)):
        u = w[i] * unit
        v = u * u
        x = v * v
        p5 += x * u
        p6 += x * v
    sums[4], sums[5] = p5, p6


@_summing
def _sums_from_7(w, unit, sums):
    """Power sums 7 … 12 of u = w · unit over a group."""
    p7 = p8 = p9 = p10 = p11 = p12 = 0.0
    for i in range(len(w)):
        u = w[i] * unit
        v = u * u
        x = v * u
        y = x * x
        p7 += y * u
        p8 += y * v
        p9 += y * x
        p10 += y * v * v
        p11 += y * v * x
        p12 += y * y
    sums[6], sums[7], sums[8], sums[9], sums[10], sums[11] = p7, p8, p9, p10, p11, p12


@njit(cache=True, error_model="numpy")
def _add_singly(u, block):
    block[SUM] += u
    for j in range(POLYNOMIAL + DEGREE, POLYNOMIAL, -1):
        block[j] += u * block[j - 1]


@njit(cache=True, error_model="numpy")
def pass_linear(w, g, rows, least, weights, index, order, block, counts, rng):
    """Show the weights ``w`` (already over 2^SHIFT) to the reservoir; 0 is seen and never kept.

    Returns how many it took: it stops before the first that is not a weight or that does not fit the scale.
    """
    n = len(order)
    K = len(g) - 1
    sums = np.empty(POWERS)
    stay = np.empty(n)
    for k in range(n):
        stay[k] = least[order[k], k // SPAN]
    relative = np.zeros(DEGREE + len(g))
    if g[K] > 0.0:
        relate(g, relative)
    start = counts[SEEN]
    i = 0
    while i < len(w):
        if g[K] > 0.0:
            unit = block[UNIT]
            spend = g[K] / g[n]
            while i + GROUP <= len(w):
                group = w[i : i + GROUP]
                low, top = _sums_to_4(group, unit, sums)
                top *= unit
                calm = low >= 0.0 and top <= SMALL and block[SUM] + sums[0] <= FULL  # false where there is a NaN
                if not calm or block[BUDGET] < sums[0] * spend:
                    break
                block[SUM] += sums[0]
                block[BUDGET] -= sums[0] * spend
                powers = 4
                if top > SMALL_FOR_4:
                    powers = 6
                    _sums_5_and_6(group, unit, sums)
                if top > SMALL_FOR_6:
                    powers = POWERS
                    _sums_from_7(group, unit, sums)
                for m in range(powers):
                    block[POWER_SUMS + m] += sums[m]
                i += GROUP
        for j in range(i, min(i + GROUP, len(w))):
            here = w[j]
            i = j + 1
            if here == 0.0:
                continue
            # With all K ratios positive no weight is too small: it adds to them, or it is lost in their rounding.
            if not (here <= MOST and (here >= LEAST or (here > 0.0 and g[K] > 0.0))):
                counts[SEEN] = start + j
                return j
            flushed = here * block[UNIT] + block[SUM] > FULL
            if flushed:
                _flush(g, relative, block)
            rank = 0
            if counts[HELD] < n:
                rank = 1  # empty slots stand before the filled ones
                counts[HELD] += 1
                if counts[HELD] == n:
                    block[BUDGET] = exponential(rng)
            else:
                hazard = here / g[n]
                block[BUDGET] -= hazard
                if block[BUDGET] < 0.0:
                    flushed = True
                    _flush(g, relative, block)
                    bound = -math.expm1(-hazard)
                    if uniform(rng) * bound < accept_probability(g[n], here):
                        rank = _rank_to_drop(rows, weights, order, stay, rng)
                    block[BUDGET] = exponential(rng)
            if rank > 0:
                _place(g, rows, weights, index, order, rank, here, start + j)
                _least_stay(rows[order[n - 1]], here, least[order[n - 1]])
                _stay_after(rank, order, least, stay)
            u = here * block[UNIT]
            if u <= FULL:
                _add_singly(u, block)
            else:
                _grow_now(g, relative, block, here)
            if flushed:
                break  # a new block: from here on items may go in groups again
    counts[SEEN] = start + len(w)
    return len(w)


@njit(cache=True, error_model="numpy")
def pass_log(lw, lg, rows, weights, index, order, counts, rng):
    """Show the log-weights ``lw`` to a reservoir in logarithmic form; −inf is seen and never kept."""
    n = len(order)
    start = counts[SEEN]
    for i in range(len(lw)):
        here = lw[i]
        if here == -math.inf:
            continue
        rank = 0
        if counts[HELD] < n:
            rank = 1
            counts[HELD] += 1
        elif uniform(rng) < logistic(here - lg[n]):
            rank = _rank_to_drop_log(rows, weights, order, rng)
        if rank > 0:
            _place(lg, rows, weights, index, order, rank, here, start + i)
        grow_log(lg, here)
    counts[SEEN] = start + len(lw)


def to_logs(state: State) -> None:
    """Turn a linear state into the logarithmic one, in place."""
    flush(state.g, state.block)
    shift = float(state.counts[SHIFT]) * math.log(2.0)
    held = int(state.counts[HELD])
    with np.errstate(divide="ignore"):
        state.g[:] = np.log(state.g) + shift
        for row in state.rows[:held]:  # one at a time: all together would take as much memory again
            row[:] = np.log(row) + shift
        state.weights[:held] = np.log(state.weights[:held]) + shift
    state.counts[IS_LOG], state.counts[SHIFT] = 1, 0


def to_linear_if_possible(state: State, shift: int) -> None:
    """Turn a logarithmic state into the linear one over 2^shift, in place, where every number then fits."""
    held = int(state.counts[HELD])
    scale = shift * math.log(2.0)
    limit = (RANGE + 100) * math.log(2.0)
    for a in (state.g[1:], *state.rows[:held, 1:], state.weights[:held]):
        finite = a[a > -np.inf] - scale
        if finite.size and max(abs(finite.min()), abs(finite.max())) > limit:
            return
    state.g[:] = np.exp(state.g - scale)
    for row in state.rows[:held]:
        row[:] = np.exp(row - scale)
    state.weights[:held] = np.exp(state.weights[:held] - scale)
    state.counts[IS_LOG], state.counts[SHIFT] = 0, shift
    state.block[:] = _fresh_block()
    state.block[UNIT] = 1.0 / state.g[-1] if state.g[-1] > 0.0 else np.inf
    if held == len(state.order):
        state.block[BUDGET] = exponential(state.rng)
