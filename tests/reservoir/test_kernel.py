"""The kernel against the definition of its law: in fractions, in float64, in float32 and by counting."""

import functools
import itertools
import math
from collections import defaultdict
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from recollect import prng
from recollect.reservoir import kernel
from recollect.reservoir.kernel import FIFO, PRODUCT, UNIFORM
from tiers import first_quick

KERNELS = {"product": PRODUCT, "uniform": UNIFORM, "fifo": FIFO}


@functools.partial(jax.jit, static_argnames=("law", "n", "traced"))
def run(law, n, log_weights, key, traced=False):
    """Stream 0, 1, 2, ...: the last state and, if traced, chances and contents before each item."""

    def step(state, x):
        item, log_weight, key = x
        before = (*law.probabilities(state, log_weight), state.items, state.ranks) if traced else None
        return law.add(state, item, log_weight, key), before

    t = len(log_weights)
    items = jnp.arange(t, dtype=jnp.int32)
    state, trace = jax.lax.scan(step, law.init(n, items[0]), (items, log_weights, jax.random.split(key, t)))
    return (state, trace) if traced else state


def run_many(law, n, log_weights, seed, runs):
    keys = jax.random.split(jax.random.key(seed), runs)
    return jax.vmap(lambda key: run(law, n, jnp.asarray(log_weights, jnp.float32), key))(keys)


def feed(law, n, log_weights, seed=0):
    """As `run`, one call of `add` at a time."""
    state = law.init(n, jnp.int32(0))
    for i, (log_weight, key) in enumerate(
        zip(log_weights, jax.random.split(jax.random.key(seed), len(log_weights)), strict=True)
    ):
        state = law.add(state, jnp.int32(i), jnp.float32(log_weight), key)
    return state


def kept(state):
    return sorted(np.asarray(state.items)[np.asarray(state.filled)].tolist())


def assert_sound(state):
    """No NaN or infinity anywhere but the -inf of empty slots, and ranks that are an order."""
    filled, log_weights = np.asarray(state.filled), np.asarray(state.log_weights)
    assert np.isfinite(log_weights[filled]).all()
    assert (log_weights[~filled] == -np.inf).all()
    assert sorted(np.asarray(state.ranks)[filled].tolist()) == list(range(1, int(state.count) + 1))
    for leaf in jax.tree.leaves(state.law):
        assert np.isfinite(np.asarray(leaf)).all()


# --- exact, from the definition -------------------------------------------------------------------------------------


def polynomials(weights, n):
    """e_0 .. e_n of the weights: the coefficients of prod (1 + w z)."""
    e = [Fraction(1)] + [Fraction(0)] * n
    for w in weights:
        e = [e[0]] + [e[k] + w * e[k - 1] for k in range(1, n + 1)]
    return e


def exact_accept(weights, w, n):
    before, after = polynomials(weights, n), polynomials([*weights, w], n)
    return w * before[n - 1] / after[n] if after[n] else Fraction(1)


def exact_drop(weights_before, w, k):
    """Chance of an item of rank k to be dropped when its turn comes, from what had come before it."""
    if k == 1:
        return Fraction(1)
    e = polynomials(weights_before, k)
    above, own = e[k - 1] / e[k - 2], e[k] / e[k - 1]
    return (above - own) / (above + w)


def product_law(weights, n):
    masses = {s: math.prod(weights[i] for i in s) for s in itertools.combinations(range(len(weights)), n)}
    total = sum(masses.values())
    return {s: mass / total for s, mass in masses.items()}


@pytest.mark.parametrize(("n", "t"), [(1, 6), (2, 6), (3, 7)])
def test_the_exact_chances_give_the_law(n, t):
    weights = [Fraction(w) for w in (3, "1/7", 5, "2/3", 11, "1/2", 4)[:t]]
    law = {(): Fraction(1)}
    for i, w in enumerate(weights):
        grown = defaultdict(Fraction)
        accept = exact_accept(weights[:i], w, n) if i >= n else Fraction(1)
        for subset, mass in law.items():
            if i < n:
                grown[(*subset, i)] += mass
                continue
            grown[subset] += mass * (1 - accept)
            going = mass * accept
            for k in range(n, 0, -1):
                s = subset[k - 1]
                drop = exact_drop(weights[:s], weights[s], k)
                grown[(*subset[: k - 1], *subset[k:], i)] += going * drop
                going *= 1 - drop
        law = grown
    assert {s: p for s, p in law.items() if p} == product_law(weights, n)


@pytest.mark.parametrize("n", [1, 2, 4, 6])
def test_float64_equals_fractions(n):
    for seed, scale in enumerate((0.5, 3.0, 12.0)):
        log_weights = np.random.default_rng([n, seed]).normal(0, scale, 30)
        with jax.enable_x64(True):
            state, trace = run(PRODUCT, n, jnp.asarray(log_weights), jax.random.key(seed), traced=True)
            assert state.log_weights.dtype == trace[0].dtype == trace[1].dtype == jnp.float64
            accept, drop, items, ranks = map(np.asarray, trace)
        weights = [Fraction(math.exp(x)) for x in log_weights]
        drop_of = functools.cache(lambda s, k, weights=weights: float(exact_drop(weights[:s], weights[s], k)))
        for i in range(len(weights)):
            exact = float(exact_accept(weights[:i], weights[i], n)) if i >= n else 1.0
            assert accept[i] == pytest.approx(exact, abs=1e-12)
            for slot in range(n):
                exact = drop_of(items[i, slot], ranks[i, slot]) if i >= n else 0.0
                assert drop[i, slot] == pytest.approx(exact, abs=1e-12)


# --- float32 --------------------------------------------------------------------------------------------------------

T = 4000
STREAMS = {
    "spread": lambda rng: rng.uniform(-80, 80, T),
    "normal": lambda rng: rng.normal(0, 3, T),
    "offset": lambda rng: 79 + rng.normal(0, 0.3, T),
    "alternating": lambda rng: 80.0 * (-1) ** np.arange(T),
    "two levels": lambda rng: rng.choice([-80.0, 80.0], T, p=[0.99, 0.01]),
    "equal": lambda rng: np.full(T, -80.0),
    "growing": lambda rng: np.linspace(-80, 80, T),
    "shrinking": lambda rng: np.linspace(80, -80, T),
    "jumping": lambda rng: np.tile(np.linspace(-80, 80, 40), T // 40),
}


def log_ratios_float64(log_weights, n):
    """[streams, t, n+1]: log g_k before each item, by the recursion as it is written."""
    streams, t = log_weights.shape
    lg = np.full((t, streams, n + 1), -np.inf)
    lg[:, :, 0] = np.inf
    for i, lw in enumerate(log_weights.T[:-1, :, None]):
        sums = np.logaddexp(lg[i], lw)
        known = min(i + 1, n)
        lg[i + 1, :, 1] = sums[:, 1]
        lg[i + 1, :, 2 : known + 1] = (lg[i, :, 1:known] - sums[:, 1:known]) + sums[:, 2 : known + 1]
    return lg.swapaxes(0, 1)


@pytest.mark.parametrize("n", first_quick([3, 1, 16, 64]))
def test_float32_equals_float64(n):
    log_weights = np.stack([stream(np.random.default_rng(n)) for stream in STREAMS.values()]).astype(np.float32)
    states, trace = jax.vmap(lambda lw: run(PRODUCT, n, lw, jax.random.key(n), traced=True))(jnp.asarray(log_weights))
    lg_all, lw_all = log_ratios_float64(log_weights.astype(float), n), log_weights.astype(float)
    for i, kind in enumerate(STREAMS):
        assert_sound(jax.tree.map(lambda x, i=i: np.asarray(x)[i], states))
        accept, drop, items, ranks = (np.asarray(x)[i] for x in trace)
        assert accept.dtype == drop.dtype == np.float32
        lg, lw = lg_all[i], lw_all[i]
        s, k = items[n:], ranks[n:]
        with np.errstate(over="ignore"):
            exact_accept = 1 / (1 + np.exp(lg[:, n] - lw))
            above, own = np.minimum(lg[s, k - 1], 1e9), lg[s, k]
            exact_drop = -np.expm1(own - above) / (1 + np.exp(lw[s] - above))
        np.testing.assert_allclose(accept, exact_accept, atol=1e-6, rtol=0, err_msg=kind)
        np.testing.assert_allclose(drop[n:], exact_drop, atol=1e-6, rtol=0, err_msg=kind)
        assert (drop[:n] == 0).all()


@pytest.mark.slow
def test_float32_does_not_stand_still():
    n, t, runs, late = 16, 200_000, 3, 0
    # At -80 an ulp is 8e-6, more than late items add to log g_k.
    states = run_many(PRODUCT, n, jnp.full(t, -80.0), 0, runs)
    for seed in range(runs):
        state = jax.tree.map(lambda x, seed=seed: x[seed], states)
        assert_sound(state)
        assert int(state.seen) == t
        assert float(kernel.probabilities(state, -80.0)[0]) == pytest.approx(n / (t + 1), rel=1e-4)
        late += sum(item >= t // 2 for item in kept(state))
    assert stats.binomtest(late, n * runs, 0.5).pvalue > 1e-2


@pytest.mark.parametrize("size", [1e4, 1e30])
def test_float32_survives_extremes_mixed_in_one_stream(size):
    n, t = 16, 2000
    heavy = np.random.default_rng(0).random(t) < 0.3
    state = run(PRODUCT, n, jnp.where(heavy, size, -size).astype(jnp.float32), jax.random.key(0))
    assert_sound(state)
    assert heavy[kept(state)].all()
    accept, _ = kernel.probabilities(state, size)
    assert float(accept) == pytest.approx(n / (heavy.sum() + 1), rel=1e-4)
    assert float(kernel.probabilities(state, -size)[0]) == 0


def test_float32_survives_steep_slopes():
    n, t = 16, 2000
    slope = np.linspace(-1e4, 1e4, t, dtype=np.float32)
    growing, shrinking = (run(PRODUCT, n, jnp.asarray(x), jax.random.key(0)) for x in (slope, slope[::-1]))
    for state in (growing, shrinking):
        assert_sound(state)
    assert kept(growing) == list(range(t - n, t))
    assert kept(shrinking) == list(range(n))


# --- the laws, by counting ------------------------------------------------------------------------------------------


def assert_follows(states, law):
    n = states.capacity
    counts = defaultdict(int)
    for row in np.sort(np.asarray(states.items), axis=1).tolist():
        assert len(row) == n
        counts[tuple(row)] += 1
    runs = sum(counts.values())
    assert set(counts) <= set(law)
    expected = np.array([float(law[s]) * runs for s in law])
    assert expected.min() > 5
    assert stats.chisquare([counts[s] for s in law], expected).pvalue > 1e-3


@pytest.mark.parametrize(("n", "seed"), [(1, 0), (2, 1), (4, 2)])
def test_product_law(n, seed):
    weights = [0.5, 2.0, 1.0, 0.3, 1.5, 0.8]
    assert_follows(run_many(PRODUCT, n, np.log(weights), seed, 20_000), product_law(weights, n))


@pytest.mark.parametrize(("n", "seed"), [(1, 0), (3, 1)])
def test_uniform_law(n, seed):
    log_weights = np.log([0.5, 2.0, 1.0, 0.3, 1.5, 0.8])
    states = run_many(UNIFORM, n, log_weights, seed, 20_000)
    assert_follows(states, product_law([1] * 6, n))
    np.testing.assert_array_equal(states.log_weights, log_weights.astype(np.float32)[np.asarray(states.items)])


def test_product_law_includes_each_item_as_often_as_it_should():
    n, t, runs = 8, 40, 4000
    weights = np.exp(np.random.default_rng(0).normal(0, 1.5, t)).tolist()
    total = polynomials(weights, n)[n]
    chance = np.array(
        [w * polynomials(weights[:i] + weights[i + 1 :], n)[n - 1] / total for i, w in enumerate(weights)]
    )
    assert chance.sum() == pytest.approx(n)
    counts = np.bincount(np.asarray(run_many(PRODUCT, n, np.log(weights), 0, runs).items).ravel(), minlength=t)
    z = (counts - runs * chance) / np.sqrt(runs * chance * (1 - chance))
    assert np.abs(z).max() < 4


def test_product_law_of_equal_weights_is_the_uniform_law():
    key, log_weights = jax.random.key(0), jnp.full(50, 1.5)
    (_, product), (_, uniform) = (run(law, 4, log_weights, key, traced=True) for law in (PRODUCT, UNIFORM))
    np.testing.assert_allclose(product[0], uniform[0], atol=1e-6)
    np.testing.assert_allclose(product[1], uniform[1], atol=1e-6)
    np.testing.assert_allclose(uniform[0], np.minimum(1, 4 / np.arange(1, 51)), atol=1e-6)


@pytest.mark.parametrize("t", [0, 3, 4, 5, 50])
def test_fifo_keeps_the_last(t):
    log_weights = np.random.default_rng(0).normal(size=t).astype(np.float32)
    state = feed(FIFO, 4, log_weights)
    assert_sound(state)
    assert kept(state) == list(range(max(0, t - 4), t))
    for item, log_weight, rank in zip(*map(np.asarray, (state.items, state.log_weights, state.ranks)), strict=True):
        if rank:
            assert log_weight == log_weights[item]
            assert rank == item + 1 - max(0, t - 4)


def test_chances_below_the_spacing_of_a_uniform():
    def draw(first, second, chance):
        return bool(kernel._happens(jnp.array([first, second]), jnp.full(1, chance, jnp.float32))[0])

    spacing = 2.0**-23
    assert draw(0.0, 0.3, 0.31 * spacing)
    assert not draw(0.0, 0.3, 0.29 * spacing)
    assert draw(0.0, 5e-7, 1e-13)
    assert draw(5 * spacing, 0.3, 5.5 * spacing)
    assert not draw(5 * spacing, 0.7, 5.5 * spacing)
    assert draw(1 - spacing, 1 - spacing, 1.0)
    assert not draw(0.0, 0.0, 0.0)


# --- weights that fade ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [0.3, 3.0])
def test_ageing_is_the_law_of_weights_that_grow(rho):
    """Ageing by ρ before each item keeps what weights w e^(ρt) keep, draw by draw, and its ratios are those shifted."""
    log_weights = np.random.default_rng(1).normal(0, 2, 40).astype(np.float32)
    fades = grows = kernel.init(3, 0)
    for t, key in enumerate(jax.random.split(jax.random.key(0), 40)):
        fades = kernel.add(kernel.age(fades, rho), t, log_weights[t], key)
        grows = kernel.add(grows, t, log_weights[t] + np.float32(rho * t), key)
        assert fades.items.tolist() == grows.items.tolist()
        held = min(t + 1, 3)
        for part, most in ((fades.law.high[1 : held + 1], 0.0), (fades.law.drop, None)):
            other = grows.law.high[1 : held + 1] - np.float32(rho * t) if most is not None else grows.law.drop
            np.testing.assert_allclose(part, other, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(fades.log_weights[fades.ranks > 0], log_weights[fades.items])


def test_ageing_lets_new_items_in_for_ever():
    """Equal weights, n = 1: Σ e^(−ρ age) = e^−ρ/(1 − e^−ρ), so a new item gets in with probability 1 − e^−ρ."""

    def step(state, key):
        return kernel.add(kernel.age(state, 0.1), 0, 0.0, key), None

    state, _ = jax.lax.scan(step, kernel.init(1, 0), jax.random.split(jax.random.key(0), 20_000))
    accept, _ = kernel.probabilities(kernel.age(state, 0.1), 0.0)
    assert float(accept) == pytest.approx(1 - np.exp(-0.1), rel=1e-4)


@pytest.mark.parametrize("law", [UNIFORM, FIFO, kernel.NONE], ids=["uniform", "fifo", "none"])
def test_ageing_leaves_laws_without_weights_alone(law):
    state = law.init(2, 0)
    assert kernel.age(state, 1.0) is state


# --- the interface --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", KERNELS.values(), ids=KERNELS)
def test_weight_zero_is_seen_and_never_kept(law):
    bad = [-np.inf, np.nan, np.inf, 3e38, -3e38]
    good = np.random.default_rng(0).normal(0, 1, 12)
    mixed = np.concatenate([bad, good[:2], bad, good[2:], bad]).astype(np.float32)
    state = feed(law, 4, mixed)
    assert_sound(state)
    assert int(state.count) == 4
    assert int(state.seen) == len(good)
    assert (np.abs(mixed[kept(state)]) < 10).all()
    for x in bad:
        assert float(law.probabilities(state, x)[0]) == 0
        assert float(law.probabilities(law.init(4, 0.0), x)[0]) == 0
    plain = feed(law, 4, good)
    assert float(law.probabilities(state, 0.5)[0]) == float(law.probabilities(plain, 0.5)[0])


@pytest.mark.parametrize("law", KERNELS.values(), ids=KERNELS)
def test_only_weights_of_zero_leave_it_empty(law):
    state = feed(law, 4, [-np.inf] * 20)
    assert_sound(state)
    assert int(state.count) == int(state.seen) == 0
    assert not state.filled.any()


@pytest.mark.parametrize("law", KERNELS.values(), ids=KERNELS)
def test_fills_every_slot_first(law):
    state = law.init(4, jnp.int32(0))
    for t, key in enumerate(jax.random.split(jax.random.key(0), 4)):
        accept, drop = law.probabilities(state, -3.0)
        assert float(accept) == 1
        np.testing.assert_array_equal(drop, 0)
        state = law.add(state, jnp.int32(t), jnp.float32(3 * t - 5), key)
        assert_sound(state)
        assert int(state.count) == int(state.seen) == t + 1
        assert kept(state) == list(range(t + 1))


@pytest.mark.parametrize("law", KERNELS.values(), ids=KERNELS)
def test_a_cleared_memory_is_as_good_as_new(law):
    log_weights = np.random.default_rng(0).normal(size=12)
    used = feed(law, 4, log_weights)
    for a, b in zip(jax.tree.leaves(kernel.clear(used, False)), jax.tree.leaves(used), strict=True):
        np.testing.assert_array_equal(a, b)
    cleared, new = kernel.clear(used), law.init(4, jnp.int32(0))
    assert_sound(cleared)
    for i, key in enumerate(jax.random.split(jax.random.key(1), 12)):
        chances = [law.probabilities(state, log_weights[i]) for state in (cleared, new)]
        for a, b in zip(*chances, strict=True):
            np.testing.assert_array_equal(a, b)
        cleared, new = (law.add(x, jnp.int32(i), jnp.float32(log_weights[i]), key) for x in (cleared, new))
    for a, b in zip(jax.tree.leaves(cleared), jax.tree.leaves(new), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("law", KERNELS.values(), ids=KERNELS)
def test_items_may_be_any_pytree(law):
    def item(i):
        return {
            "x": jnp.full((3,), 0.5 * i, jnp.float32),
            "y": (jnp.asarray(i, jnp.int32), jnp.asarray([i > 3, i > 5])),
        }

    state = law.init(3, item(0))
    add = jax.jit(law.add)
    for i, key in enumerate(jax.random.split(jax.random.key(0), 12)):
        state = add(state, item(i), 0.1 * i, key)
    ids = np.asarray(state.items["y"][0])
    assert len(set(ids.tolist())) == 3
    np.testing.assert_array_equal(state.items["x"], np.repeat(0.5 * ids[:, None], 3, axis=1))
    np.testing.assert_array_equal(state.items["y"][1], np.stack([ids > 3, ids > 5], axis=1))
    np.testing.assert_allclose(state.log_weights, 0.1 * ids, rtol=1e-6)
    assert state.items["y"][1].dtype == bool


@pytest.mark.parametrize("law", KERNELS.values(), ids=KERNELS)
def test_scan_and_vmap_equal_a_loop(law):
    log_weights = np.random.default_rng(1).normal(size=(5, 12)).astype(np.float32)
    keys = jnp.stack([jax.random.key(seed) for seed in range(5)])
    together = jax.vmap(lambda lw, key: run(law, 4, lw, key))(log_weights, keys)
    np.testing.assert_array_equal(together.count, 4)
    assert together.filled.shape == (5, 4)
    for seed in range(5):
        alone = feed(law, 4, log_weights[seed], seed)
        for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(np.asarray(a)[seed], np.asarray(b), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("law", KERNELS.values(), ids=KERNELS)
def test_compiles_once(law):
    traces = 0

    @jax.jit
    def add(state, item, log_weight, key):
        nonlocal traces
        traces += 1
        return law.add(state, item, log_weight, key)

    state = law.init(3, jnp.zeros(2))
    for i, key in enumerate(jax.random.split(jax.random.key(0), 10)):
        state = add(state, jnp.full(2, float(i)), jnp.float32(-np.inf if i == 7 else i), key)
    assert traces == 1


@pytest.mark.parametrize("law", KERNELS.values(), ids=KERNELS)
def test_wrong_arguments_say_what_is_wrong(law):
    with pytest.raises(ValueError, match="capacity=0"):
        law.init(0, jnp.zeros(2))
    with pytest.raises(TypeError):
        law.init(2.5, jnp.zeros(2))
    with pytest.raises(ValueError, match="at least one array"):
        law.init(3, {})
    state = law.init(3, jnp.zeros(2))
    for item in (jnp.zeros(3), jnp.zeros(()), jnp.zeros(2, jnp.int32)):
        with pytest.raises(ValueError, match="match the example"):
            law.add(state, item, 0.0, jax.random.key(0))
    with pytest.raises(ValueError, match=r"."):
        law.add(state, (jnp.zeros(2),), 0.0, jax.random.key(0))


def test_holds_what_equals_in_every_part():
    item = {"place": jnp.zeros(2), "kind": jnp.int32(0)}
    state = kernel.init(3, item)
    assert not kernel.holds(state, item), "rows that were never written are not items"
    kept = {"place": jnp.array([1.0, 2.0]), "kind": jnp.int32(7)}
    state = kernel.add(state, kept, 0.0, prng.key(0))
    assert kernel.holds(state, kept)
    assert not kernel.holds(state, kept | {"kind": jnp.int32(8)})
    assert not kernel.holds(state, kept | {"place": jnp.array([1.0, 3.0])})
    assert not kernel.holds(kernel.clear(state), kept)


def test_state_is_frozen():
    state = kernel.init(3, jnp.zeros(2))
    with pytest.raises(AttributeError):
        state.ranks = jnp.zeros(3)
    assert state.capacity == 3
    np.testing.assert_array_equal(state.log_weights, -np.inf)
