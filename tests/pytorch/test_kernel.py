"""The reservoir on tensors: its law by enumeration, and step for step what the JAX kernel does on the same numbers."""

import itertools
import math
from collections import defaultdict
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pytorch.trained import drawn_from
from recollect.reservoir import kernel as definition
from tiers import first_quick

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0")
kernel = pytest.importorskip("recollect.torch.kernel")

OF_JAX = {"product": definition.PRODUCT, "uniform": definition.UNIFORM, "fifo": definition.FIFO}
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}


def product_law(weights, n):
    masses = {s: math.prod(weights[i] for i in s) for s in itertools.combinations(range(len(weights)), n)}
    total = sum(masses.values())
    return {s: float(mass / total) for s, mass in masses.items()}


def law_by_enumeration(law, n, weights, before=lambda state: state):
    """The law of what is kept: every branch of every ``add``, one row of the batch each, with its probability.

    Whether the item is accepted and which rank is dropped are forced by uniform numbers at the ends of [0, 1); what
    such a branch weighs is the product of the chances that ``probabilities`` gives.
    """
    never, always = 1 - 2.0**-52, 0.0
    state = kernel.init(law, 1, n, 1, dtype=torch.float64)
    mass = torch.ones(1, dtype=torch.float64)
    for i, w in enumerate(weights):
        state = before(state)
        log_weight = torch.full((len(mass),), math.log(w), dtype=torch.float64)
        accept, drop = kernel.probabilities(law, state, log_weight)
        rows, uniforms, masses = [], [], []
        for row in range(len(mass)):
            p = float(accept[row])
            if p < 1:
                rows.append(row), uniforms.append([never] * (n + 3)), masses.append(mass[row] * (1 - p))
            if p > 0 and int(state.count[row]) < n:
                rows.append(row), uniforms.append([always] * (n + 3)), masses.append(mass[row] * p)
                continue
            going = mass[row] * p
            for k in range(n, 0, -1):
                slot = int((state.ranks[row] == k).nonzero())
                chance = float(drop[row, slot])
                decided = [never] * n
                decided[slot] = always
                if going * chance > 0:
                    rows.append(row), uniforms.append([always, always, *decided, always]), masses.append(going * chance)
                going = going * (1 - chance)
        state = kernel.State(*(part[rows] for part in state))
        mass = torch.stack(masses)
        item, log_weight = torch.full((len(mass), 1), float(i), dtype=torch.float64), log_weight[rows]
        state = kernel.add(law, state, item, log_weight, torch.tensor(uniforms, dtype=torch.float64))
    found = defaultdict(float)
    for row in range(len(mass)):
        found[tuple(sorted(int(x) for x in state.items[row, state.filled[row], 0]))] += float(mass[row])
    return dict(found)


@pytest.mark.parametrize(("n", "t"), [(1, 5), (2, 5), (3, 6)])
def test_the_product_law_by_enumeration(n, t):
    weights = [Fraction(w) for w in (3, "1/7", 5, "2/3", 11, "1/2")[:t]]
    assert law_by_enumeration("product", n, weights) == pytest.approx(product_law(weights, n), abs=1e-12)


def test_the_uniform_law_by_enumeration():
    weights = [3, 0.2, 5, 0.7, 11]
    assert law_by_enumeration("uniform", 2, weights) == pytest.approx(product_law([1] * 5, 2), abs=1e-12)


def test_the_last_are_kept_by_enumeration():
    assert law_by_enumeration("fifo", 3, [3, 0.2, 5, 0.7, 11, 2]) == {(3, 4, 5): 1.0}


def test_weights_that_fade_by_enumeration():
    weights, rho = [3, 0.2, 5, 0.7, 11], 0.8
    found = law_by_enumeration("product", 2, weights, before=lambda state: kernel.age(state, rho))
    assert found == pytest.approx(product_law([w * math.exp(rho * t) for t, w in enumerate(weights)], 2), abs=1e-12)


@pytest.mark.parametrize("dtype", first_quick(TOLERANCE), ids=["float64", "float32"])
@pytest.mark.parametrize("law", first_quick(kernel.LAWS))
def test_step_for_step_as_in_jax(law, dtype):
    """Random weights of all sizes, weights that count as 0, ageing and clearing; the same uniforms from JAX's keys."""
    rng = np.random.default_rng(0)
    real = np.float64 if dtype == torch.float64 else np.float32
    close = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
    batch, n, steps = 6, 4, 60
    with jax.enable_x64(dtype == torch.float64):
        ours = kernel.init(law, batch, n, 2, dtype=dtype)
        first = OF_JAX[law].init(n, jnp.zeros(2, real))
        theirs = jax.tree.map(lambda leaf: jnp.stack([leaf] * batch), first)

        @jax.jit
        @jax.vmap
        def advance(state, item, log_weight, key, over, by):
            state = definition.age(definition.clear(state, over), by)
            return OF_JAX[law].add(state, item, log_weight, key), OF_JAX[law].probabilities(state, log_weight)

        for step in range(steps):
            items = rng.normal(size=(batch, 2)).astype(real)
            log_weights = (rng.normal(size=batch) * rng.choice([0.1, 3.0, 60.0], batch)).astype(real)
            log_weights[rng.random(batch) < 0.1] = rng.choice([-np.inf, np.nan, np.inf, 1e31])
            over, by = rng.random(batch) < 0.03, float(rng.choice([0.0, 0.05, 2.0]))
            keys = jax.random.split(jax.random.key(step), batch)
            uniforms = np.array(drawn_from(keys, n + 3, real))
            theirs, chances = advance(theirs, items, log_weights, keys, over, np.full(batch, by, real))
            before = kernel.age(kernel.clear(ours, torch.tensor(over)), by)
            log_weights = torch.tensor(log_weights)
            for a, b in zip(kernel.probabilities(law, before, log_weights), chances, strict=True):
                np.testing.assert_allclose(a, b, **close)
            ours = kernel.add(law, before, torch.tensor(items), log_weights, torch.tensor(uniforms))
            np.testing.assert_array_equal(ours.ranks, theirs.ranks)
            np.testing.assert_array_equal(ours.seen, theirs.seen)
            np.testing.assert_array_equal(ours.items, theirs.items)
            np.testing.assert_array_equal(ours.log_weights, theirs.log_weights)
            if law == "product":
                whole = np.asarray(theirs.law.high, float) + np.asarray(theirs.law.low, float)
                np.testing.assert_allclose(ours.high.double() + ours.low.double(), whole, **close)
                np.testing.assert_allclose(ours.drop, theirs.law.drop, **close)
        assert int(ours.seen.max()) > n


def test_chances_below_the_spacing_of_a_uniform():
    def draw(first, second, chance):
        return bool(kernel._happens(torch.tensor([[first, second]]), torch.tensor([[chance]]))[0, 0])

    spacing = 2.0**-23
    assert draw(0.0, 0.3, 0.31 * spacing)
    assert not draw(0.0, 0.3, 0.29 * spacing)
    assert draw(0.0, 5e-7, 1e-13)
    assert draw(1 - spacing, 1 - spacing, 1.0)
    assert not draw(0.0, 0.0, 0.0)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=["float64", "float32"])
def test_the_largest_uniform_never_points_behind_the_last_share(dtype):
    """The largest uniform that PyTorch draws has one bit more than the mantissa; u times the sum must not round up."""
    largest = 1 - 2.0 ** -(kernel.DTYPES[dtype] + 1)
    logits = torch.randn(10_000, 3, dtype=dtype, generator=torch.Generator().manual_seed(0))
    logits[:, 2] = -torch.inf
    assert int(kernel.draw(logits, torch.full((10_000,), largest, dtype=dtype)).max()) == 1


@pytest.mark.slow
def test_float32_does_not_stand_still():
    """At -80 an ulp is 8e-6, more than late items add to log g_k."""
    n, t = 4, 20_000
    state, log_weight = kernel.init("product", 1, n, 1), torch.full((1,), -80.0)
    for step in range(t):
        state = state._replace(seen=state.seen * 0 + step)
        high, low = kernel._grow(state, log_weight)
        state = state._replace(high=high, low=low)
    accept, _ = kernel.probabilities("product", state, log_weight)
    assert float(accept) == pytest.approx(n / (t + 1), rel=1e-4)


def test_holds_what_is_kept_and_equal():
    state = kernel.init("fifo", 2, 2, 2)
    assert kernel.holds(state, torch.zeros(2, 2)).tolist() == [False, False], "rows never written are not items"
    item = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    state = kernel.add("fifo", state, item, torch.zeros(2), torch.rand(2, 5))
    assert kernel.holds(state, item).tolist() == [True, True]
    assert kernel.holds(state, torch.tensor([[1.0, 2.0], [3.0, 5.0]])).tolist() == [True, False]
    state = kernel.clear(state, torch.tensor([True, False]))
    assert kernel.holds(state, item).tolist() == [False, True]


def test_state_as_a_dict_and_back():
    state = kernel.init("product", 2, 3, 1)
    again = kernel.State.from_state_dict(state.state_dict())
    assert all(a is b for a, b in zip(state, again, strict=True))
    with pytest.raises(ValueError, match="'log_weights'"):
        kernel.State.from_state_dict({"items": state.items})
    assert state.to("cpu").detach().capacity == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"law": "lifo"}, "choose one of 'product'"),
        ({"batch": 0}, "batch=0 must be"),
        ({"capacity": 2.0}, "capacity=2.0 must be"),
        ({"dtype": torch.float16}, "float32 or torch.float64"),
    ],
)
def test_wrong_arguments_say_what_is_wrong(change, message):
    arguments = {"law": "product", "batch": 1, "capacity": 2, "features": 1, **change}
    with pytest.raises(ValueError, match=message):
        kernel.init(**arguments)
