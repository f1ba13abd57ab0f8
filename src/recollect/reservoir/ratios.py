"""Ratios of elementary symmetric polynomials: the numbers the product law is sampled with.

With e_k(T) the sum over all k-subsets of T of the product of their weights, everything here works on

    g_k = e_k(T) / e_{k-1}(T),   k = 1 … K,   g_0 = ∞,   0 for k > |T|,

which stay in the range of the weights where the e_k themselves would leave any floating-point type, and which only
fall with k: Newton's inequalities give g_{k+1}/g_k ≤ k/(k+1).

The short functions at the top take any number type: tests run their Python source in exact rational arithmetic and
the sampler runs the same source compiled. ``lg`` is always log g.
"""

import math

import numpy as np
from numba import njit


@njit(cache=True, error_model="numpy")
def accept_probability(g_n, w):
    """Probability that a full reservoir takes in a new item of weight w; also the item's inclusion probability."""
    return w / (g_n + w)


@njit(cache=True, error_model="numpy")
def drop_probability(G_before, G_at, w):
    """Probability that the item of rank k goes, given that no newer one went: G_before = G[k−1], G_at = G[k].

    G is the copy of g from just before the item (of weight w) was added; rank 1 goes for certain.
    """
    return (G_before - G_at) / (G_before + w)


@njit(cache=True, error_model="numpy")
def keep_probability(G_rank, G_needed, w):
    """Down-sampling, newest item first: probability to keep the item of rank r when r' are still needed."""
    return (G_rank + w) / (G_needed + w)


@njit(cache=True, error_model="numpy")
def grown(g_below, g_here, w):
    """g_k after an item of weight w joins: g_below = g_{k−1}, g_here = g_k; for k = 1 it is g_1 + w."""
    return g_below * ((g_here + w) / (g_below + w))


@njit(cache=True, error_model="numpy")
def grow(g, w, out):
    """Write to ``out`` all ratios after an item of weight w > 0 joins the set with ratios ``g``; entry 0 stays."""
    below, here, above = g[1:-1], g[2:], out[2:]  # slices from 0: no index can wrap around, so this vectorises
    out[1] = g[1] + w
    for k in range(len(above)):
        above[k] = grown(below[k], here[k], w)


@njit(cache=True, error_model="numpy")
def log_add(a, b):
    """log(exp(a) + exp(b)); −inf stands for 0."""
    top, low = (a, b) if a > b else (b, a)
    return top if low == -math.inf else top + math.log1p(math.exp(low - top))


@njit(cache=True, error_model="numpy")
def grow_log(lg, lw):
    """``grow`` in place on logs, for weights that no common scale brings into floating-point range."""
    previous, joined_previous = lg[1], log_add(lg[1], lw)
    lg[1] = joined_previous
    for k in range(2, len(lg)):
        here = lg[k]
        joined = log_add(here, lw)
        lg[k] = previous + joined - joined_previous
        previous, joined_previous = here, joined


@njit(cache=True, error_model="numpy")
def log_ratios_of(log_weights, K):
    """lg[0 … K] of a whole set; lg[0] = inf."""
    lg = np.full(K + 1, -math.inf)
    lg[0] = math.inf
    for lw in log_weights:
        if lw > -math.inf:
            grow_log(lg, lw)
    return lg


@njit(cache=True, error_model="numpy")
def _powers(lg, shift, up, down):
    """Write exp(lg − shift) and exp(shift − lg); False where one of them might leave the type in a product of two."""
    for k in range(1, len(lg)):
        x = lg[k] - shift
        if x > -math.inf and abs(x) > 300.0:
            return False
        up[k] = math.exp(x)
        down[k] = math.exp(-x) if x > -math.inf else 0.0
    return True


@njit(cache=True, error_model="numpy")
def join_log(lg_a, lg_b, out):
    """Write to ``out`` the log-ratios of the union of two disjoint sets.

    e_m(A ∪ B) = Σ_j e_j(A) e_{m−j}(B), a log-concave sum: it is taken outwards from its largest term, each term from
    its neighbour by g_{j+1}(A)/g_{m−j}(B), and the ratio to e_{m−1} needs only the step between the two largest terms.
    These quotients are products of numbers made beforehand where all of them fit the type, which most do.
    """
    out[0] = math.inf
    j, previous_sum = 0, 1.0
    K = len(out)
    up_a, down_a, up_b, down_b = np.ones(K), np.ones(K), np.ones(K), np.ones(K)
    shift = max(lg_a[1], lg_b[1])
    plain = _powers(lg_a[:K], shift, up_a, down_a) and _powers(lg_b[:K], shift, up_b, down_b)
    for m in range(1, len(out)):
        step = lg_b[m - j]
        if lg_a[j + 1] > step:
            step = lg_a[j + 1]
            j += 1
        if step == -math.inf:
            out[m:] = -math.inf
            return
        total = 1.0
        term, i = 1.0, j
        while i < m and lg_a[i + 1] > -math.inf:
            term *= up_a[i + 1] * down_b[m - i] if plain else math.exp(lg_a[i + 1] - lg_b[m - i])
            total += term
            i += 1
            if term < 1e-19:
                break
        term, i = 1.0, j
        while i > 0 and lg_b[m - i + 1] > -math.inf:
            term *= up_b[m - i + 1] * down_a[i] if plain else math.exp(lg_b[m - i + 1] - lg_a[i])
            total += term
            i -= 1
            if term < 1e-19:
                break
        out[m] = step + math.log(total / previous_sum)
        previous_sum = total


def margin(n: int) -> int:
    """How many ratios on either side of n fix an inclusion probability at n to 1e-14.

    The recursions of ``inclusion`` forget where they started by a factor of at most n/(n+1) · n/(n+2) · … whatever
    the weights, by Newton's inequalities; the same holds downwards.
    """
    forgotten, j = 0.0, 0
    while forgotten < 32.3:
        j += 1
        forgotten += math.log1p(j / n)
    return j


@njit(cache=True, error_model="numpy")
def _top(lg):
    """The largest k with e_k > 0 among those kept."""
    k = len(lg) - 1
    while k > 0 and lg[k] == -math.inf:
        k -= 1
    return k


@njit(cache=True, error_model="numpy")
def inclusion(lg, log_weights, n, J):
    """P(item in the sample of size n) for items that belong to the set with log-ratios lg[0 … n+J].

    With p_k the probability in a sample of size k, p_{k+1} = (w/g_{k+1})(1 − p_k): upwards this damps errors while
    w ≤ g, downwards while w > g, so light items start below n and heavy ones above it.
    """
    top = _top(lg)
    p = np.empty(len(log_weights))
    for i in range(len(log_weights)):
        lw = log_weights[i]
        if lw == -math.inf:
            p[i] = 0.0
        elif top <= n:
            p[i] = 1.0
        elif lw <= lg[n]:
            start = max(0, n - J)
            here = 0.0 if start == 0 else 0.5
            for k in range(start + 1, n + 1):
                here = math.exp(lw - lg[k]) * (1.0 - here)
            p[i] = here
        else:
            here = 1.0
            for k in range(top, n, -1):
                here = 1.0 - math.exp(lg[k] - lw) * here
            p[i] = here
    return p


@njit(cache=True, error_model="numpy")
def joint_inclusion(lg, log_weights, n, J):
    """P(both items in the sample of size n) for every pair of items; the diagonal holds the single probabilities.

    With a_k the pair's probability at size k and p_k that of its heavier item, a_{k+1} = (w/g_{k+1})(p_k − a_k), w the
    lighter weight: the recursion of ``inclusion`` once more, run the way that damps errors.
    """
    m = len(log_weights)
    single = inclusion(lg, log_weights, n, J)
    pairs = np.zeros((m, m))
    for i in range(m):
        pairs[i, i] = single[i]
    top = _top(lg)
    if top <= n:
        for i in range(m):
            for j in range(m):
                pairs[i, j] = min(single[i], single[j])
        return pairs
    order = np.argsort(log_weights)
    light = 0
    while light < m and log_weights[order[light]] <= lg[n]:
        light += 1
    # Ratios to g_n: both factors of w/g_k (and of g_k/w) are at most 1 wherever they are used.
    up = np.empty(m)
    down = np.empty(m)
    for s in range(m):
        up[s] = math.exp(min(0.0, log_weights[order[s]] - lg[n]))
        down[s] = math.exp(min(0.0, lg[n] - log_weights[order[s]]))
    p = np.empty(top + 1)
    a = np.empty(m)
    start = max(0, n - J)
    for s in range(m):
        lw = log_weights[order[s]]
        if lw == -math.inf:
            continue
        first = max(0, n - 2 * J)
        turn = top
        while turn > first and lg[turn] < lw:
            turn -= 1
        p[first] = 0.0 if first == 0 else 0.5
        for k in range(first + 1, turn + 1):
            p[k] = math.exp(lw - lg[k]) * (1.0 - p[k - 1])
        if turn < top:
            p[top] = 1.0
            for k in range(top, turn + 1, -1):
                p[k - 1] = 1.0 - math.exp(lg[k] - lw) * p[k]
        for j in range(s):
            a[j] = 0.0
        for k in range(start + 1, n + 1):
            rise = math.exp(lg[n] - lg[k])
            for j in range(min(s, light)):
                a[j] = up[j] * rise * (p[k - 1] - a[j])
        for j in range(light, s):
            a[j] = p[top]
        for k in range(top, n, -1):
            fall = math.exp(lg[k] - lg[n])
            for j in range(light, s):
                a[j] = p[k - 1] - down[j] * fall * a[j]
        for j in range(s):
            pairs[order[s], order[j]] = a[j]
            pairs[order[j], order[s]] = a[j]
    return pairs
