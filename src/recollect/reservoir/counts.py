"""How many items of a part belong to a sample of the whole: the product law by divide and conquer.

Where the data can be read twice no item needs to carry anything. With odds u = θ w, any θ, the coefficients of

    Π (1 + u_i x) = Σ_k c_k x^k,      c_k = θ^k e_k,

of a part say how it takes part in the law: given that k items come from A ∪ B, j of them come from A with probability
∝ c_j(A) c_{k−j}(B), and inside each part the law is the product law again. So vectors c go up a tree, numbers of items
come down it, and what is left is to draw k items from a small part. θ cancels; with Σ u/(1+u) near n the vectors of
parts are bells around the numbers that are likely, and can be cut off where they are 10⁻⁴⁰ of their largest entry.
A part needs O(√n) numbers where a reservoir needs n².
"""

import itertools
import math
from typing import NamedTuple

import numpy as np
from numba import float64, njit

from recollect.reservoir import passes, ratios
from recollect.reservoir.passes import FULL, GROUP, POLYNOMIAL, POWER_SUMS, SMALL, SUM
from recollect.reservoir.random import uniform

NEGLIGIBLE = 1e-40  # of a vector's largest entry; what is cut off is less likely than that
RUN = 16 * GROUP  # items whose odds are summed, so that one of them is found without a look at the others
LEFT_OUT = 4e-19  # an item: how much of the first power sum that is not worked out may be
TRIES = 32  # draws of k items with replacement before a part is halved instead

_SHIFT = 46  # bits of a float64 below those that name its bin: sign (0), exponent and six bits of the mantissa
BINS = 2047 << (52 - _SHIFT)


class Counts(NamedTuple):
    """The coefficients c_k of a part for k = first … first + len(mass) − 1, summing to 1; negligible elsewhere.

    Of a part that was counted item by item, ``sums`` are the sums of its odds over runs of ``RUN`` items.
    """

    first: int
    mass: np.ndarray
    sums: np.ndarray | None = None

    @property
    def mean(self) -> float:
        """How many items a Poisson sample with these odds takes from the part, on average."""
        return float(np.dot(np.arange(self.first, self.first + len(self.mass)), self.mass))


NOTHING = Counts(0, np.ones(1))


# -- how large θ is


@njit(cache=True, nogil=True, error_model="numpy")
def positives(weights):
    """How many weights are positive, and how many are weights at all: 0 or positive and finite."""
    # Positive numbers order as their bits do; comparing these takes a sixth of the time of comparing numbers.
    bits, infinite, positive = weights.view(np.int64), np.int64(0x7FF0000000000000), 0
    for k in range(len(bits)):
        positive += (bits[k] > 0) & (bits[k] < infinite)
    if positive == len(weights):
        return positive, positive
    valid = 0
    for w in weights:
        valid += (w >= 0.0) & (w < math.inf)
    return positive, valid


@njit(cache=True, error_model="numpy")  # of a chunk, 16 groups: too short to let go of Python's lock
def tally(weights, bins, every):
    """Count positive weights by size, to about 1 %, looking at one group of 64 in so many."""
    bits = weights.view(np.int64)
    for start in range(0, len(weights), GROUP * every):
        for i in range(start, min(start + GROUP, len(weights))):
            if weights[i] > 0.0:
                bins[bits[i] >> _SHIFT] += every


def odds_factor(bins: np.ndarray, n: int) -> float:
    """Log θ with Σ θw/(1 + θw) near n, from the tally of weights; the law does not depend on how near."""
    there = np.flatnonzero(bins)
    middles = ((there.astype(np.int64) << _SHIFT) + (1 << (_SHIFT - 1))).view(np.float64)
    return solve_scale(np.log(middles), bins[there], n, 1e-9)


def solve_scale(lw: np.ndarray, numbers: np.ndarray | int, n: int, within: float) -> float:
    """Log θ with Σ θw/(1 + θw) = n, given log-weights and how many items have each of them, to ``within``."""
    low, high = -lw.max() - 60.0, -lw.min() + 60.0
    while high - low > within * max(1.0, abs(high)):
        middle = 0.5 * (low + high)
        expected = float(np.sum(numbers / (1.0 + np.exp(np.minimum(-(lw + middle), 700.0)))))
        low, high = (middle, high) if expected < n else (low, middle)
    return 0.5 * (low + high)


def in_range(weights: np.ndarray, log_theta: float) -> tuple[np.ndarray, float]:
    """The weights and θ such that θ is a float64; odds beyond the type become inf, certain, or 0, never taken."""
    if abs(log_theta) < 600.0:
        return weights, math.exp(log_theta)
    half = math.exp(0.5 * log_theta)
    with np.errstate(over="ignore", under="ignore"):
        return weights * half, half


# -- from items to vectors


@njit(
    list(itertools.product((passes.VECTOR, passes.READ_ONLY), repeat=2)),
    cache=True,
    nogil=True,
    error_model="numpy",
    fastmath={"contract"},
)
def _convolve(a, b):
    out = np.zeros(len(a) + len(b) - 1)
    if len(a) > len(b):
        a, b = b, a
    for i in range(len(a)):
        factor, to = a[i], out[i : i + len(b)]
        for j in range(len(b)):
            to[j] += factor * b[j]
    return out


@njit(cache=True, nogil=True, error_model="numpy")
def _cut(mass):
    """What is not negligible of a vector, divided by its sum, and how many entries were cut off in front."""
    top, total = 0.0, 0.0
    for m in mass:
        top = max(top, m)
    low, high = 0, len(mass)
    while mass[low] < NEGLIGIBLE * top:
        low += 1
    while mass[high - 1] < NEGLIGIBLE * top:
        high -= 1
    for k in range(low, high):
        total += mass[k]
    out = np.empty(high - low)
    for k in range(low, high):
        out[k - low] = mass[k] / total
    return out, low


@njit(cache=True, nogil=True, error_model="numpy")
def _joined(a, b):
    return _cut(_convolve(a, b))


@njit(cache=True, nogil=True, error_model="numpy")
def _with_block(mass, block):
    """The vector with the items of a block joined to it, and what was cut off in front; the block is then empty."""
    if block[SUM] == 0.0:
        return mass, 0
    degree = 12 if block[SUM] <= passes.FULL_FOR_12 else 16 if block[SUM] <= passes.FULL_FOR_16 else passes.DEGREE
    grown, cut = _joined(mass, passes._block_polynomial(block, degree))
    block[SUM:] = 0.0
    block[POLYNOMIAL] = 1.0
    return grown, cut


@njit(cache=True, nogil=True, error_model="numpy")
def _with_item(mass, u):
    """The vector with one item of odds u joined to it, whatever u."""
    p = 1.0 if u == math.inf else u / (1.0 + u)
    out = np.empty(len(mass) + 1)
    out[0] = (1.0 - p) * mass[0]
    for k in range(1, len(mass)):
        out[k] = (1.0 - p) * mass[k] + p * mass[k - 1]
    out[len(mass)] = p * mass[-1]
    return _cut(out)


@njit(cache=True, nogil=True, error_model="numpy")
def _add_together(group, unit, top, sums, block):
    """Let items that are all small join the block by the sums of their powers, of which the first four are known."""
    powers, left_out = 4, LEFT_OUT * len(group)
    # Σ u^5 ≤ top Σ u^4 and Σ u^7 ≤ top Σ u^6: what is left out of a block stays below 1e-14.
    if top * sums[3] > left_out:
        powers = 6
        passes._sums_5_and_6(group, unit, sums)
        if top * sums[5] > left_out:
            powers = passes.POWERS
            passes._sums_from_7(group, unit, sums)
    block[SUM] += sums[0]
    for m in range(powers):
        block[POWER_SUMS + m] += sums[m]


@njit(cache=True, nogil=True, error_model="numpy")
def _add_items(group, unit, mass, block):
    """Let items join the block one by one; the vector, which they may have joined, and what was cut off in front."""
    first = 0
    for i in range(len(group)):
        here = group[i] * unit
        if here == 0.0:
            continue
        if here + block[SUM] > FULL:
            mass, cut = _with_block(mass, block)
            first += cut
        if here <= FULL:
            passes._add_singly(here, block)
        else:
            mass, cut = _with_item(mass, here)
            first += cut
    return mass, first


@njit(cache=True, nogil=True, error_model="numpy")
def _count(weights, unit):
    mass, first = np.ones(1), 0
    block = np.zeros(POLYNOMIAL + passes.DEGREE + 1)
    block[POLYNOMIAL] = 1.0
    sums = np.empty(passes.POWERS)
    runs = np.zeros((len(weights) + RUN - 1) // RUN)
    squares, positive = 0.0, 0
    for k in range(len(runs)):
        run = weights[k * RUN : (k + 1) * RUN]
        low, top = passes._sums_to_4(run, unit, sums)
        if low > 0.0 and top < math.inf:
            positive += len(run)
        elif low >= 0.0 and top < math.inf:
            for w in run:
                positive += w > 0.0
        else:
            return mass, first, runs, squares, -1
        runs[k] = sums[0]
        squares += sums[1]
        # All of a run together, or its groups, or where even these hold large items each on its own.
        size = RUN if top * unit <= SMALL and sums[0] <= FULL else GROUP
        for at in range(0, len(run), size):
            group = run[at : at + size]
            if size < RUN:
                _, top = passes._sums_to_4(group, unit, sums)
            if top * unit <= SMALL and sums[0] <= FULL:
                if block[SUM] + sums[0] > FULL:
                    mass, cut = _with_block(mass, block)
                    first += cut
                _add_together(group, unit, top * unit, sums, block)
            else:
                mass, cut = _add_items(group, unit, mass, block)
                first += cut
    mass, cut = _with_block(mass, block)
    return mass, first + cut, runs, squares, positive


def count(weights: np.ndarray, log_theta: float) -> Counts:
    """The vector of a part from the weights of its items."""
    mass, first, sums, _, _ = _count(*in_range(weights, log_theta))
    return Counts(first, mass, sums)


def count_checked(weights: np.ndarray, log_theta: float) -> tuple[Counts, float, int]:
    """The same, with the sum of the squares of the odds, and how many weights are positive: −1 if one is no weight."""
    scaled, unit = in_range(weights, log_theta)
    mass, first, sums, squares, positive = _count(scaled, unit)
    if scaled is not weights:  # what left the type in scaling passed for 0, or for no weight
        positive, valid = positives(weights)
        positive = positive if valid == len(weights) else -1
    return Counts(first, mass, sums), squares, positive


def joined(a: Counts, b: Counts) -> Counts:
    """The vector of two disjoint parts together."""
    mass, cut = _joined(a.mass, b.mass)
    return Counts(a.first + b.first + cut, mass)


# -- back down


@njit(cache=True, nogil=True, error_model="numpy")
def _added_up(sums):
    cumulative, total = np.empty(len(sums)), 0.0
    for run in range(len(sums)):
        total += sums[run]
        cumulative[run] = total
    return cumulative, total


@njit(cache=True, error_model="numpy")  # too short to let go of Python's lock, which would take longer to get back
def _split(a, b, k, rng):
    """How many of k items beyond those that both parts surely give come from a; −1 if there are not so many."""
    low, high = max(0, k - len(b) + 1), min(len(a) - 1, k)
    if low > high:
        return -1
    cumulative, total = _added_up(a[low : high + 1] * b[k - high : k - low + 1][::-1])
    return low + np.searchsorted(cumulative, uniform(rng) * total, side="right")


def split(a: Counts, b: Counts, k: int, rng: np.ndarray) -> int:
    """Draw how many of k items come from a."""
    drawn = _split(a.mass, b.mass, k - a.first - b.first, rng)
    if drawn < 0:
        raise ArithmeticError(f"{k} items cannot be shared out among parts whose vectors end before that")
    return a.first + int(drawn)


class Tree:
    """Vectors of consecutive parts, joined two by two in an order that depends on their number alone."""

    def __init__(self, parts: list[Counts]):
        self.levels = [parts]
        while len(self.levels[-1]) > 1:
            below = self.levels[-1]
            pairs = [joined(below[k], below[k + 1]) for k in range(0, len(below) - 1, 2)]
            self.levels.append(pairs + below[len(below) // 2 * 2 :])

    @property
    def root(self) -> Counts:
        """The vector of all parts together."""
        return self.levels[-1][0] if self.levels[-1] else NOTHING

    def share_out(self, k: int, rng: np.ndarray) -> list[int]:
        """Draw how many of k items come from each part."""
        numbers = [k]
        for below in reversed(self.levels[:-1]):
            drawn = []
            for pair, number in enumerate(numbers):
                left, right = below[2 * pair], below[2 * pair + 1] if 2 * pair + 1 < len(below) else None
                from_left = number if right is None else split(left, right, number, rng) if number else 0
                drawn += [from_left] if right is None else [from_left, number - from_left]
            numbers = drawn
        return numbers


@njit(
    [(passes.VECTOR, float64), (passes.READ_ONLY, float64)],
    cache=True,
    nogil=True,
    error_model="numpy",
    fastmath={"reassoc", "contract", "nsz"},
)
def _sum(weights, unit):
    total = 0.0
    for w in weights:
        total += w * unit
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _place_of(weights, unit, cumulative, x):
    """Where the odds, summed up from the first, come to exceed x: first among runs, then groups, then items."""
    run = np.searchsorted(cumulative, x, side="right")
    x -= cumulative[run - 1] if run else 0.0
    end = min((run + 1) * RUN, len(weights))
    for at in range(run * RUN, end, GROUP):
        group = weights[at : min(at + GROUP, end)]
        total = _sum(group, unit)
        if x < total:
            end = at + len(group)
            for i in range(len(group)):
                x -= group[i] * unit
                if x < 0.0:
                    return at + i
            break
        x -= total
    # By rounding, what is left may exceed the sum of what is there: it is the last of positive odds then.
    last = end - 1
    while last > 0 and weights[last] * unit == 0.0:
        last -= 1
    return last


@njit(cache=True, nogil=True, error_model="numpy")
def draw_repeatedly(weights, unit, sums, rng, places):
    """Fill ``places`` with places drawn independently of each other, each ∝ its weight."""
    cumulative, total = _added_up(sums)
    for i in range(len(places)):
        places[i] = _place_of(weights, unit, cumulative, uniform(rng) * total)


@njit(cache=True, nogil=True, error_model="numpy")
def _draw_all_different(weights, unit, sums, k, rng, chosen):
    """Draw k places ∝ their weights until all are different; False where that does not come about.

    Given that they are, each set of places has a probability ∝ the product of its weights.
    """
    cumulative, total = _added_up(sums)
    if not 0.0 < total < math.inf:
        return False
    for _ in range(TRIES):
        different = True
        for i in range(k):
            chosen[i] = _place_of(weights, unit, cumulative, uniform(rng) * total)
            for j in range(i):
                different &= chosen[j] != chosen[i]
            if not different:
                break
        if different:
            return True
    return False


def draw(weights: np.ndarray, part: Counts, log_theta: float, k: int, rng: np.ndarray) -> np.ndarray:
    """Draw k places by the product law, in rising order, from a part that was counted with θ."""
    if k == 0:
        return np.zeros(0, np.int64)
    chosen = np.empty(k, np.int64)
    scaled, unit = in_range(weights, log_theta) if k * k < 8 * len(weights) else (weights, 0.0)
    if unit and _draw_all_different(scaled, unit, part.sums, k, rng, chosen):
        chosen.sort()
        return chosen
    positive = np.flatnonzero(weights)
    if len(positive) == k:
        return positive
    # Weights too uneven, or k too large, for all to differ: share the k items out among two halves.
    log_theta = solve_scale(np.log(weights[positive]), 1, k, 1e-3)
    middle = len(weights) // 2
    halves = weights[:middle], weights[middle:]
    left, right = (count(half, log_theta) for half in halves)
    from_left = split(left, right, k, rng)
    return np.concatenate(
        [
            draw(halves[0], left, log_theta, from_left, rng),
            middle + draw(halves[1], right, log_theta, k - from_left, rng),
        ]
    )


# -- what the whole says about its items


def log_ratios(whole: Counts, log_theta: float) -> tuple[np.ndarray, int]:
    """log(e_k/e_{k−1}) up to the end of the vector, and the first k from which they are known."""
    lg = np.full(whole.first + len(whole.mass), math.inf)
    lg[whole.first + 1 :] = np.log(whole.mass[1:] / whole.mass[:-1]) - log_theta
    return lg, whole.first


def inclusion_probabilities(whole: Counts, log_theta: float, log_weights: np.ndarray, n: int) -> np.ndarray:
    """P(item in a sample of n of the whole) for items of the whole, from its vector alone.

    It is a smooth function of the weight, so for many items it is worked out at Chebyshev's points alone: the log-odds,
    less the log-weight, in spans of log-weights of ``_SPAN``, to about 1e-14.
    """
    lg, first = log_ratios(whole, log_theta)
    if len(log_weights) <= 4 * _POINTS:
        return ratios.inclusion(lg, log_weights, n, n - first)
    p = np.empty(len(log_weights))
    order = np.argsort(log_weights, kind="stable")
    ordered = log_weights[order]
    at = 0
    while at < len(order):
        low = ordered[at]
        end = int(np.searchsorted(ordered, low + _SPAN, side="right"))
        if low == -math.inf:
            end = int(np.searchsorted(ordered, low, side="right"))
            p[order[at:end]] = 0.0
        elif end - at <= 2 * _POINTS:
            p[order[at:end]] = ratios.inclusion(lg, ordered[at:end], n, n - first)
        else:
            p[order[at:end]] = _interpolated(lg, first, n, low, ordered[at:end])
        at = end
    return p


_SPAN, _POINTS = 0.5, 14


def _interpolated(lg: np.ndarray, first: int, n: int, low: float, log_weights: np.ndarray) -> np.ndarray:
    chebyshev = np.polynomial.chebyshev
    places = chebyshev.chebpts1(_POINTS)
    at = low + 0.5 * _SPAN * (places + 1.0)
    # Of what is nearly certain the probability to be left out is what matters; both come from the same recursion.
    p = ratios.inclusion(lg, at, n, n - first)
    excess = np.log(p) - np.log1p(-p) - at
    if not np.isfinite(excess).all():
        return ratios.inclusion(lg, log_weights, n, n - first)
    values = chebyshev.chebval(
        (log_weights - low) / (0.5 * _SPAN) - 1.0, chebyshev.chebfit(places, excess, _POINTS - 1)
    )
    return 1.0 / (1.0 + np.exp(-(values + log_weights)))
