"""``Reservoir``: the compiled code against the law, hard streams, wrong input."""

import copy
import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from recollect import Reservoir
from recollect.reservoir import algorithm1, estimates, law, passes, random
from tiers import first_quick


def in_logs(r):
    """The state with every number as a logarithm."""
    r._settle()
    state = r._state.copy()
    if not state.counts[passes.IS_LOG]:
        passes.to_logs(state)
    return state


def snapshot(r):
    r._settle()
    return [a.tobytes() for a in r._state] + [list(r._items), r._given.tobytes()]


def merged_with_itself():
    a, b = Reservoir(5, seed=1), Reservoir(5, seed=2)
    a.merge(b).merge(a)


@pytest.mark.parametrize("seed", [-1, "one", 0.5])
def test_a_wrong_seed_is_named(seed):
    with pytest.raises((TypeError, ValueError), match=r"seed=.* must be a whole number of at least 0"):
        Reservoir(2, seed=seed)


def test_random_words():
    """The generator's published first outputs for the state 1, 2, 3, 4."""
    rng = np.array([1, 2, 3, 4], np.uint64)
    first = [int(random.next_word(rng)) for _ in range(4)]
    assert first == [41943041, 58720359, 3588806011781223, 3591011842654386]


# -- probabilities


@pytest.mark.parametrize("n", [1, 2, 3, 16, 64])
@pytest.mark.parametrize("kind", ["uniform", "lognormal", "growing", "with zeros", "tiny", "log form"])
def test_ratios_match_the_law(n, kind):
    """What the compiled passes accept and drop with: g now, and g before each kept item."""
    rng = np.random.default_rng(n)
    t = 40 * n + 500
    lw = {
        "uniform": np.log(1 - rng.random(t)),
        "lognormal": rng.normal(0, 3, t),
        "growing": 0.02 * np.arange(t),
        "with zeros": np.where(rng.random(t) < 0.3, -np.inf, rng.normal(0, 1, t)),
        "tiny": rng.normal(-600, 2, t),
        "log form": rng.normal(0, 300, t),
    }[kind]
    r = Reservoir(n, seed=3)
    r.extend(range(t), log_weights=lw)
    state = in_logs(r)
    assert bool(r._state.counts[passes.IS_LOG]) == (kind == "log form")
    tolerance = 1e-12 * max(1.0, np.abs(lw[lw > -np.inf]).max())
    assert r.log_ratios() == pytest.approx(law.log_ratios(lw, n), abs=tolerance)
    for slot in state.order:
        before = lw[: state.index[slot]]
        known = min(n, int(np.sum(before > -np.inf)))
        assert (state.rows[slot, known + 1 :] == -np.inf).all()
        if known:
            expected = law.log_ratios(before, known)
            assert state.rows[slot, 1 : known + 1] == pytest.approx(expected, abs=tolerance)
    assert r.inclusion_probabilities() == pytest.approx(
        law.inclusion_probabilities(lw, n)[r.indices], rel=1e-11 * max(1.0, np.abs(lw[lw > -np.inf]).max())
    )
    if n <= 16:
        pairs = law.joint_inclusion_probabilities(lw, n)[np.ix_(r.indices, r.indices)]
        assert r.joint_inclusion_probabilities() == pytest.approx(pairs, rel=1e-9)


@pytest.mark.parametrize("n", first_quick([2, 1, 3]))
@pytest.mark.parametrize("kind", ["mixed", "equal", "log form"])
def test_subsets_follow_the_law(n, kind):
    log_weights = {
        "mixed": [0.0, 1.0, -1.0, 0.5, 2.0, -0.5],
        "equal": [0.0] * 6,
        "log form": [0.0, 500.0, 499.0, 1.0, 500.7, 499.5],
    }[kind]
    law_ = law.enumerate_law(list(np.exp(np.array(log_weights) - (500 if kind == "log form" else 0))), n)
    counts = dict.fromkeys(law_, 0)
    runs = 6000
    for seed in range(runs):
        r = Reservoir(n, seed=seed)
        r.extend(range(6), log_weights=log_weights)
        counts[tuple(r.indices)] += 1
    likely = [s for s, p in law_.items() if p > 1e-3]
    observed, expected = [counts[s] for s in likely], np.array([law_[s] for s in likely])
    assert sum(observed) >= 0.95 * runs
    assert chisquare(observed, expected / expected.sum() * sum(observed)).pvalue > 1e-3


@pytest.mark.parametrize(
    ("n", "t", "runs"), first_quick([(200, 3000, 300), (3, 300, 3000), (16, 600, 1500), (64, 2000, 500)])
)
def test_long_streams_follow_the_law(n, t, runs):
    """Inclusion of every item, with skipping and deferred blocks at work."""
    rng = np.random.default_rng(0)
    w = rng.lognormal(0, 1, t)
    p = law.inclusion_probabilities(np.log(w), n)
    hits = np.zeros(t)
    for seed in range(runs):
        r = Reservoir(n, seed=seed)
        r.extend(range(t), w)
        hits[r.indices] += 1
    z = (hits - runs * p) / np.sqrt(runs * p * (1 - p))
    assert hits.sum() == runs * n
    assert np.abs(z).max() < 5
    # A sum of squared z-scores under a fixed total; its spread is that of a chi-square to within the correlations.
    assert abs(np.sum(z**2) - t) < 5 * math.sqrt(2 * t)


@pytest.mark.parametrize("n", [2, 64, 65, 200])
def test_the_search_for_an_item_to_drop(n):
    """Its bounds hold at every rank, and it draws as one flip a rank would."""
    rng = np.random.default_rng(n)
    r = Reservoir(n, seed=0)
    r.extend(range(20 * n), rng.lognormal(0, 1, 20 * n))
    state = r._state
    before, at = state.rows[:, 1:-1], state.rows[:, 2:]  # by slot; of ranks 2 … n
    goes = (before - at) / (before + state.weights[:, None])
    span = np.arange(1, n) // passes.SPAN
    assert (state.least[:, span] <= 1 - goes + 1e-15).all()
    stay = state.least[state.order, np.arange(n) // passes.SPAN]
    assert (stay > 0.5).any() == (n > passes.SPAN)
    goes = np.append(1.0, goes[state.order[1:], np.arange(n - 1)])  # by rank
    law_of_rank = goes * np.append(np.cumprod((1 - goes)[:0:-1])[::-1], 1.0)
    ranks = [passes._rank_to_drop(state.rows, state.weights, state.order, stay, state.rng) for _ in range(50 * n)]
    assert chisquare(np.bincount(ranks, minlength=n + 1)[1:], law_of_rank * len(ranks)).pvalue > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(("a", "b", "more"), [(200, 300, 0), (50, 400, 150), (10, 7, 100)])
def test_merged_streams_follow_the_law(a, b, more):
    n, runs = 8, 3000
    rng = np.random.default_rng(1)
    w = rng.lognormal(0, 1, a + b + more)
    p = law.inclusion_probabilities(np.log(w), n)
    hits = np.zeros(len(w))
    for seed in range(runs):
        x, y = Reservoir(n, seed=[seed, 0]), Reservoir(n, seed=[seed, 1])
        x.extend(range(a), w[:a])
        y.extend(range(b), w[a : a + b])
        c = x.merge(y)
        c.extend(range(more), w[a + b :])
        hits[c.indices] += 1
    z = (hits - runs * p) / np.sqrt(runs * p * (1 - p))
    assert np.abs(z).max() < 5 and abs(np.sum(z**2) - len(w)) < 5 * math.sqrt(2 * len(w))


def test_merged_state_is_that_of_the_joint_stream():
    rng = np.random.default_rng(2)
    n, w = 16, rng.lognormal(0, 2, 900)
    parts = [Reservoir(n, seed=[7, k]) for k in range(3)]
    for k, r in enumerate(parts):
        r.extend(range(300 * k, 300 * k + 300), w[300 * k : 300 * k + 300])
    before = [snapshot(r) for r in parts]
    c = Reservoir.merge_all(parts)
    assert [snapshot(r) for r in parts] == before
    assert c.seen == 900 and len(c) == n
    assert c.items == c.indices.tolist() and np.array_equal(c.weights, w[c.indices])
    assert c.log_ratios() == pytest.approx(law.log_ratios(np.log(w), n), abs=1e-11)
    state = in_logs(c)
    for rank, slot in enumerate(state.order, 1):  # an item's rank only falls: ratios beyond it are not kept
        expected = law.log_ratios(np.log(w[: state.index[slot]]), min(rank, int(state.index[slot])))
        assert state.rows[slot, 1 : len(expected) + 1] == pytest.approx(expected, abs=1e-11)
        assert (state.rows[slot, rank + 1 :] == -np.inf).all()
    assert c.inclusion_probabilities() == pytest.approx(law.inclusion_probabilities(np.log(w), n)[c.indices])
    c.extend(range(10_000), np.ones(10_000))
    assert c.seen == 10_900


def test_merging_extremes():
    a, b = Reservoir(3, seed=1), Reservoir(3, seed=2)
    a.extend("ab", log_weights=[-9000.0, 3.0])
    b.extend("cd", log_weights=[9000.0, 0.0])
    c = a.merge(b)
    assert (
        set(c.items) >= {"b", "c"} and len(c) == 3 and c.inclusion_probabilities() == pytest.approx([1, 1, 1], abs=0.2)
    )
    empty = Reservoir(3, seed=4).merge(Reservoir(3, seed=5))
    assert len(empty) == 0 and empty.seen == 0
    alone = Reservoir(3, seed=4).merge(a)
    assert alone.items == ["a", "b"]
    alone.add("z", 1.0)
    assert alone.items == ["a", "b", "z"]


# -- hard streams


@pytest.mark.parametrize(("n", "t", "printed"), [(64, 200_000, 0.29), (256, 20_000, 0.14), (1024, 10_000, 0.05)])
def test_late_items_keep_their_share(n, t, printed):
    """Where Algorithm 1 as printed stops swapping and its share falls to ``printed``."""
    w = 1 - np.random.default_rng(n).random(t)
    repeats = 12
    shares = []
    for seed in range(repeats):
        r = Reservoir(n, seed=seed)
        r.extend(range(t), w)
        shares.append(np.mean(r.indices >= t // 2))
    assert abs(np.mean(shares) - 0.5) < 4 * 0.5 / math.sqrt(repeats * n)
    assert np.mean(shares) > printed + 0.1


def test_algorithm1_as_printed_fails_silently():
    w = (1 - np.random.default_rng(256).random(3000)).tolist()
    kept = algorithm1.sample(w, 256, seed=0)
    r = Reservoir(256, seed=0)
    r.extend(range(3000), w)
    assert np.mean(np.array(kept) >= 1500) < 0.4 < np.mean(r.indices >= 1500)


def test_ten_million_items():
    w = 1 - np.random.default_rng(5).random(10_000_000)
    r = Reservoir(64, seed=0)
    r.extend(range(len(w)), w)
    assert r.seen == 10_000_000
    assert math.exp(r.log_ratios()[0]) == pytest.approx(w.sum(), rel=1e-12)
    assert 0.25 < np.mean(r.indices >= 5_000_000) < 0.75


def test_large_capacity():
    w = 1 - np.random.default_rng(5).random(60_000)
    r = Reservoir(4096, seed=0)
    r.extend(range(len(w)), w)
    p = r.inclusion_probabilities()
    assert ((p > 0) & (p < 1)).all()
    assert r.estimate_total(np.ones(4096)).total == pytest.approx(60_000, rel=0.2)


@pytest.mark.parametrize(
    "log_weights",
    [
        np.tile([-690.0, 690.0, 0.0], 700),  # 1e±300 mixed
        np.full(2000, -744.0),  # subnormal
        np.full(2000, 709.0),
        np.zeros(2000),
        0.0953 * np.arange(4000),  # 1.1^t
        -0.0953 * np.arange(4000),
        np.random.default_rng(0).uniform(-1e4, 1e4, 3000),
        np.repeat([1e4, -1e4], [2, 2000]),
        np.repeat([-1e4, 1e4], [2000, 2]),
    ],
    ids=["1e±300", "subnormal", "huge", "equal", "growing", "shrinking", "±1e4", "two heavy first", "two heavy last"],
)
@pytest.mark.parametrize("n", [1, 3, 64])
def test_hard_weights(log_weights, n):
    r = Reservoir(n, seed=1)
    r.extend(range(len(log_weights)), log_weights=log_weights)
    assert len(r) == n and r.seen == len(log_weights)
    assert not any(np.isnan(a).any() for a in r._state if a.dtype == np.float64)
    p = r.inclusion_probabilities()
    assert np.isfinite(p).all() and (p >= 0).all() and (p <= 1 + 1e-9).all()
    if n == 3 and log_weights[0] == 1e4:
        # One of three slots is left for 2000 equal items: late ones must get in.
        third = []
        for seed in range(60):
            r = Reservoir(3, seed=seed)
            r.extend(range(len(log_weights)), log_weights=log_weights)
            third.append(r.indices[-1])
        assert 0.3 < np.mean(np.array(third) >= 1002) < 0.7


@settings(max_examples=60, deadline=None)
@example([1e300, 1e-300], 3, [])
@example([1.7e308, 5e-324, 1.0], 3, [1])
@given(
    st.lists(st.floats(0.0, allow_nan=False, allow_infinity=False), max_size=60),
    st.integers(1, 12),
    st.lists(st.integers(0, 60), max_size=3),
)
def test_any_weights_any_cut(weights, n, cuts):
    """However a stream is cut into calls, one seed gives one sample."""
    whole = Reservoir(n, seed=9)
    whole.extend(range(len(weights)), weights)
    pieces = Reservoir(n, seed=9)
    edges = sorted({0, len(weights), *(min(c, len(weights)) for c in cuts)})
    for k, (a, b) in enumerate(itertools.pairwise(edges)):
        if k % 2:
            for i in range(a, b):
                pieces.add(i, weights[i])
        else:
            pieces.extend(iter(range(a, b)), weights[a:b])
    positive = sum(w > 0 for w in weights)
    assert len(whole) == min(n, positive) and whole.seen == len(weights)
    assert all(weights[i] > 0 for i in whole.indices)
    assert np.array_equal(whole.indices, pieces.indices)
    assert whole.items == whole.indices.tolist()
    p = whole.inclusion_probabilities()
    assert np.isfinite(p).all() and (p >= 0).all() and (p <= 1 + 1e-9).all()


# -- estimates


@pytest.mark.slow
def test_estimate_total_is_unbiased_and_its_variance_right():
    rng = np.random.default_rng(3)
    w = rng.lognormal(0, 1, 200)
    y = w * rng.uniform(0.5, 1.5, 200)
    estimates = []
    for seed in range(3000):
        r = Reservoir(12, seed=seed)
        r.extend(range(200), w)
        estimates.append(r.estimate_total(y[r.indices]))
    totals = np.array([e.total for e in estimates])
    assert totals.mean() == pytest.approx(y.sum(), abs=4 * totals.std() / math.sqrt(3000))
    assert np.mean([e.variance for e in estimates]) == pytest.approx(totals.var(), rel=0.12)


@pytest.mark.slow
def test_the_interval_covers_the_total_also_where_values_do_not_follow_weights():
    """There the plain one, ±1.96 standard errors, falls short; docs/reservoir.md has the measurement."""
    rng = np.random.default_rng(2)
    weights = rng.lognormal(0.0, 1.0, 2000)
    values = {"follow": weights * rng.uniform(0.5, 1.5, 2000), "do not": rng.lognormal(0.0, 0.5, 2000)}
    covered = {name: np.zeros(2) for name in values}
    for seed in range(300):
        r = Reservoir(32, seed=seed)
        r.extend(range(2000), weights)
        p = r.inclusion_probabilities()
        for name, y in values.items():
            found = estimates.total(y[r.indices], p)
            low, high = found.interval()
            assert low < found.total < high
            covered[name] += low <= y.sum() <= high, abs(found.total - y.sum()) <= 1.96 * found.standard_error
    share = {name: counts / 300 for name, counts in covered.items()}
    assert share["follow"].min() > 0.92 and share["do not"][0] > 0.9
    assert share["do not"][1] < share["do not"][0] - 0.03


def test_estimate_total_while_everything_is_kept():
    r = Reservoir(5, seed=0)
    assert r.estimate_total([]) == (0.0, 0.0)
    r.extend("abc", [1, 2, 3])
    assert r.estimate_total([1, 2, 3]) == (6.0, 0.0)
    assert r.estimate_total([1, 2, 3]).standard_error == 0.0
    one = Reservoir(1, seed=0)
    one.extend("abc", [1, 2, 3])
    assert math.isnan(one.estimate_total([1.0]).standard_error)


# -- items of every kind


def test_items_of_every_kind():
    r = Reservoir(2, seed=0)
    rows = np.arange(6.0).reshape(3, 2)
    r.extend(rows, [1.0, 1.0, 1.0])
    rows[:] = -1
    assert all((item >= 0).all() for item in r.items)  # kept rows are copies
    r = Reservoir(3, seed=0)
    buffer = np.zeros(2)
    for k in range(3):
        buffer[:] = k
        r.add(buffer, 1.0)
    assert [item.tolist() for item in r.items] == [[0, 0], [1, 1], [2, 2]]
    r = Reservoir(4, seed=0)
    r.extend((c for c in "wxyz"), (x for x in [1, 2, 3, 4]))
    assert r.items == ["w", "x", "y", "z"] and r.weights.tolist() == [1, 2, 3, 4]
    r = Reservoir(4, seed=0)
    r.add({"any": "object"}, log_weight=800.0)
    assert r.items == [{"any": "object"}] and r.weights.tolist() == [math.inf] and r.log_weights.tolist() == [800.0]
    assert repr(r) == "<Reservoir: 1 of 1 items kept, capacity 4>"


# -- wrong input: a clear error, nothing changed


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda r: r.add("x", math.nan), "item 50 of the stream: weight is nan"),
        (lambda r: r.add("x", math.inf), "item 50 of the stream: weight is inf"),
        (lambda r: r.add("x", -1.0), "item 50 of the stream: weight is -1.0"),
        (lambda r: r.add("x", log_weight=math.nan), "item 50 of the stream: log_weight is nan"),
        (lambda r: r.extend("xyz", [1.0, 2.0, math.nan]), "item 52 of the stream"),
        (lambda r: r.extend(range(3), [1.0, -2.0, 1.0]), "item 51 of the stream: weight is -2.0"),
        (lambda r: r.extend(range(3), log_weights=[1.0, 2.0, math.inf]), "item 52 of the stream: log_weight is inf"),
        (lambda r: r.extend(range(3), [1.0, 2.0]), "3 items, 2 weights"),
        (lambda r: r.extend(range(3), [[1.0, 2.0, 3.0]]), "3 items, 1 weights"),
        (lambda r: r.extend(range(2), [[1.0, 2.0], [1.0, 2.0]]), "2 items, weights of shape"),
        (
            lambda r: r.extend(range(70_000), np.append(np.ones(69_999), math.nan)),
            "item 70049 of the stream: weight is nan",
        ),
        (lambda r: r.extend(iter(range(3)), iter([1.0, 2.0])), "3 items, weights of shape"),
        (lambda r: r.extend(iter(range(70_000)), iter([1.0] * 69_999 + [-1.0])), "item 70049 of the stream"),
        (lambda r: r.estimate_total([1.0]), "values must have one entry per kept item"),
        (lambda r: r.estimate_total([math.nan] * 5), r"values\[0\] is not finite"),
        (lambda r: r.merge(Reservoir(6, seed=1)), "capacities differ: 5 and 6"),
        (lambda r: r.merge(Reservoir(5, seed=0)), "share their seed"),
        (lambda r: r.merge(r), "share their seed"),
        (lambda r: Reservoir.merge_all([]), "at least one"),
        (lambda r: Reservoir(0), "capacity must be at least 1, got 0"),
        (lambda r: Reservoir(10**9), "needs 8,000,000,008,000,000,000 bytes"),
        (lambda r: r.add("x", 10**400), "item 50 of the stream: weight is inf"),
        (lambda r: r.add("x", log_weight=1e10), "item 50 of the stream: log_weight is 10000000000.0"),
        (lambda r: r.extend("xy", log_weights=[0.0, 1e19]), "item 51 of the stream: log_weight is 1e"),
        (lambda r: merged_with_itself(), "one was merged from the other"),
    ],
)
def test_wrong_values(call, message):
    r = Reservoir(5, seed=0)
    r.extend(range(50), np.arange(1, 51))
    before = snapshot(r)
    with pytest.raises(ValueError, match=message):
        call(r)
    assert snapshot(r) == before and r.seen == 50


@pytest.mark.parametrize(
    "call",
    [
        lambda r: r.add("x"),
        lambda r: r.add("x", 1.0, log_weight=0.0),
        lambda r: r.extend("x"),
        lambda r: r.merge("x"),
        lambda r: r.add("x", "heavy"),
        lambda r: r.add("x", np.array([2.0])),
        lambda r: r.add("x", 1j),
        lambda r: r.extend(["x"], ["1.5"]),
        lambda r: r.extend(["x"], np.ma.masked_array([1.0], [True])),
        lambda r: r.extend("x", 1.0),
        lambda r: r.extend(5, [1.0]),
        lambda r: Reservoir.merge_all(["x"]),
        lambda r: Reservoir(2.5),
        lambda r: Reservoir(True),
    ],
)
def test_wrong_types(call):
    r = Reservoir(5, seed=0)
    r.extend(range(50), np.arange(1, 51))
    before = snapshot(r)
    with pytest.raises(TypeError):
        call(r)
    assert snapshot(r) == before


def test_weight_zero_is_seen_and_never_kept():
    r = Reservoir(3, seed=0)
    r.extend("abc", [0, 0, 0])
    assert len(r) == 0 and r.seen == 3 and r.items == [] and r.inclusion_probabilities().tolist() == []
    r.extend("de", [1, 0])
    assert r.items == ["d"] and r.inclusion_probabilities().tolist() == [1.0]
    r.extend("fg", [1e-300, 1e300])
    assert r.items == ["d", "f", "g"]


def test_a_sequence_that_fails_leaves_the_reservoir_as_it_was():
    class Failing(Sequence):
        def __len__(self):
            return 300

        def __getitem__(self, i):
            if i > 250:
                raise OSError("disk")
            return i

    r = Reservoir(3, seed=0)
    r.extend(range(50), np.ones(50))
    before = snapshot(r)
    with pytest.raises(OSError, match="disk"):
        r.extend(Failing(), np.arange(1, 301) ** 8.0)
    assert snapshot(r) == before


def test_copies_are_independent():
    r = Reservoir(3, seed=0)
    r.extend(range(50), np.ones(50))
    twin, before = copy.copy(r), snapshot(r)
    twin.extend(range(50), np.full(50, 1e6))
    assert snapshot(r) == before and twin.seen == 100
