import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.compiler.compared import agree, compare, computed
from recollect import engines, prng
from recollect.engines.compiler import Unsupported
from recollect.engines.compiler.rules import RULES

EDGES = np.array(
    [0.0, -0.0, 1.0, -1.0, 0.5, -0.3, 2.0, -7.5, 1e-3, 88.0, -90.0, 1e10, -1e10, np.inf, -np.inf, np.nan], np.float32
)
WHOLE = np.array([0, 1, -1, 2, 7, -7, 31, 32, 33, 2**31 - 1, -(2**31), 12345, -99, 64, 3, 5], np.int32)

UNARY = {
    "neg": jnp.negative,
    "abs": jnp.abs,
    "sign": jnp.sign,
    "floor": jnp.floor,
    "ceil": jnp.ceil,
    "round": jnp.round,
    "sqrt": jnp.sqrt,
    "rsqrt": jax.lax.rsqrt,
    "exp": jnp.exp,
    "log": jnp.log,
    "log1p": jnp.log1p,
    "expm1": jnp.expm1,
    "tanh": jnp.tanh,
    "sigmoid": jax.nn.sigmoid,
    "finite": jnp.isfinite,
    "square": jnp.square,
    "cube": lambda x: x**3,
    "inverse": lambda x: x**-2,
    "relu": jax.nn.relu,
    "softplus": jax.nn.softplus,
    "to int": lambda x: x.astype(jnp.int32),
    "to uint": lambda x: x.astype(jnp.uint32),
    "to bool": lambda x: x.astype(bool),
    "bits": lambda x: jax.lax.bitcast_convert_type(x, jnp.int32),
    "erf": jax.scipy.special.erf,
    "atan": jnp.arctan,
}


@pytest.fixture(scope="module")
def of_one():
    return computed(UNARY, (EDGES,), (EDGES[::-1].copy(),))


@pytest.mark.parametrize("name", UNARY)
def test_an_elementwise_function_at_its_edges(name, of_one):
    agree(*of_one[name])


@pytest.mark.parametrize("function", [jnp.sin, jnp.cos], ids=["sin", "cos"])
def test_trigonometry(function):
    compare(function, (np.linspace(-50, 50, 300, dtype=np.float32),), (np.linspace(-3e4, 3e4, 300, dtype=np.float32),))


BINARY = {
    "add": jnp.add,
    "subtract": jnp.subtract,
    "multiply": jnp.multiply,
    "divide": jnp.divide,
    "maximum": jnp.maximum,
    "minimum": jnp.minimum,
    "less": jnp.less,
    "equal": jnp.equal,
    "differ": jnp.not_equal,
    "at least": jnp.greater_equal,
    "atan2": jnp.arctan2,
    "found among sorted": lambda a, b: jnp.searchsorted(jnp.sort(a), b),
    "at most, in total order": jax.lax.le_to_p.bind,
    "below, in total order": jax.lax.lt_to_p.bind,
}


@pytest.fixture(scope="module")
def of_two():
    return computed(BINARY, (EDGES, EDGES[::-1].copy()), (EDGES, np.roll(EDGES, 3)))


@pytest.mark.parametrize("name", BINARY)
def test_two_operands_at_their_edges(name, of_two):
    agree(*of_two[name])


INTEGERS = {
    "add": jnp.add,
    "multiply": jnp.multiply,
    "quotient": jax.lax.div,
    "remainder": jax.lax.rem,
    "modulo": jnp.mod,
    "and": jnp.bitwise_and,
    "xor": jnp.bitwise_xor,
    "left": jnp.left_shift,
    "right": jnp.right_shift,
    "logical": jax.lax.shift_right_logical,
    "less": jnp.less,
    "larger": jnp.maximum,
    "high": jax.lax.mulhi,
}


@pytest.fixture(scope="module")
def of_whole_numbers():
    given = (WHOLE.view(kind) for kind in (np.int32, np.uint32))
    return {x.dtype.type: computed(INTEGERS, (x, x[::-1].copy()), (x, np.roll(x, 5))) for x in given}


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("kind", [np.int32, np.uint32])
def test_whole_numbers_at_their_edges(name, kind, of_whole_numbers):
    agree(*of_whole_numbers[kind][name], exact=True)


def test_powers():
    base = np.abs(np.random.default_rng(0).normal(size=20)).astype(np.float32)
    compare(jnp.power, (base, np.linspace(-3, 3, 20, dtype=np.float32)), (base, np.full(20, 0.5, np.float32)))


def test_powers_at_their_edges():
    edges = np.array([0, -0.0, 1, -1, 2, -2, 0.5, -1.5, 3, -3, np.inf, -np.inf, np.nan, 1e9, 2**24 + 2], np.float32)
    x, y = (a.ravel() for a in np.meshgrid(edges, edges))
    compare(jax.lax.pow, (x, y), (y, x))
    big = np.float32(0.999) + np.arange(30, dtype=np.float32) * 1e-4
    counts = np.arange(30, dtype=np.int32) * 300
    compare(jax.lax.pow, (big, counts), (big[::-1].copy(), counts))


def test_inverse_error_function():
    x = np.linspace(-0.999, 0.999, 100, dtype=np.float32)
    compare(jax.scipy.special.erfinv, (x,), (x[::-1].copy(),), tolerance=1e-5)


shapes = st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple)


def _rows(shape, count=2):
    return [np.random.default_rng(k).normal(size=shape).astype(np.float32) for k in range(count)]


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(shapes, st.data())
def test_reductions_of_any_shape(shape, data):
    axes = data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1).map(sorted).map(tuple))
    compare(
        lambda x: (x.sum(axes), x.max(axes), (x > 0).all(axes), x.prod(axes)),
        *[(x,) for x in _rows(shape)],
        tolerance=2e-5,
    )


@pytest.mark.parametrize("shape", [(200,), (7, 33), (3, 5, 7), (16, 16), (40, 3), (2, 3, 21)])
def test_long_sums_have_one_order(shape):
    compare(lambda x: (x.sum(), jnp.sum(x * x), x.sum(-1), x.sum(0)), *[(x,) for x in _rows(shape)], tolerance=2e-5)


def test_sums_in_a_loop_that_cannot_run_through_all_axes_as_one():
    rows = [(x, y[0], y[1, :7]) for x, y in zip(_rows((7, 33)), _rows((2, 33)), strict=True)]

    def function(x, across, down):
        outer = x + down[:, None] * across
        return outer, jnp.sum(jnp.abs(outer)), jnp.sum(outer * outer), jnp.sum(outer[:, :9])

    compare(function, *rows, tolerance=2e-5)


def test_parts_of_sums_and_sums_of_few_terms():
    def function(x, y):
        product = jnp.sum(x[:, :, None] * y, axis=1)  # [3, 20], of which parts are asked for
        return product[:, 5:19], product[1:, ::3], x.sum(0)[2:30], jnp.tensordot(x[:, 0], x, axes=1), y[:4].mean(0)

    compare(function, *zip(_rows((3, 40)), _rows((40, 20)), strict=True), tolerance=2e-5)


def test_a_sum_of_few_sums_of_three_factors():
    def function(x, y, z, weights):
        return jnp.sum(jnp.sum(x * y * z, axis=1) * weights[:, 0])

    shapes = (3, 40), (3, 40), (3, 40), (3, 1)
    compare(function, *zip(*map(_rows, shapes), strict=True), tolerance=2e-5)


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(shapes, st.data())
def test_views_of_any_shape(shape, data):
    order = data.draw(st.permutations(range(len(shape))))
    other = tuple(shape[d] for d in order)
    compare(
        lambda x: (
            x.transpose(order).reshape(-1) * 2,
            x[..., ::-1] + 1,
            jnp.broadcast_to(x[None], (2, *shape)) * x,
            x.transpose(order) + jnp.ones(other),
        ),
        *[(x,) for x in _rows(shape)],
    )


PRODUCTS = {
    "vector matrix": ("i,ij->j", (33,), (33, 20)),
    "matrix vector": ("ij,j->i", (20, 40), (40,)),
    "outer": ("i,j->ij", (5,), (18,)),
    "inner": ("i,i->", (50,), (50,)),
    "matrices": ("ij,jk->ik", (6, 9), (9, 17)),
    "batch": ("bij,bj->bi", (3, 4, 35), (3, 35)),
    "transposed": ("ji,jk->ki", (8, 3), (8, 5)),
    "two axes": ("ijk,kj->i", (4, 5, 6), (6, 5)),
    "large": ("ij,jkl->ikl", (7, 40), (40, 11, 23)),  # blocks with their rows, some left over on every axis
    "large, few rows": ("ij,jk->ik", (3, 34), (34, 256)),
    "large, rows of two axes": ("jab,jk->akb", (33, 3, 5), (33, 260)),
    "large batch": ("bij,bjk->bik", (2, 5, 40), (2, 40, 260)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name):
    how, left, right = PRODUCTS[name]
    pairs = list(zip(_rows(left), _rows(right), strict=True))
    compare(lambda a, b: jnp.tanh(jnp.einsum(how, a, b) / 5), *pairs, tolerance=1e-5)


X = np.random.default_rng(1).normal(size=(6, 5)).astype(np.float32)

INDEXING = {
    "row": lambda x, i: x[i],
    "set": lambda x, i: x.at[i].set(7.0),
    "set or drop": lambda x, i: x.at[i].set(7.0, mode="drop"),
    "add": lambda x, i: x.at[i, 2].add(1.5),
    "add many": lambda x, i: x.at[jnp.stack([i, i, i + 1, i - 1, i, i])].add(1.0),
    "multiply": lambda x, i: x.at[i].multiply(3.0),
    "largest": lambda x, i: x.at[i].max(0.5),
    "rows": lambda x, i: x[jnp.stack([i, i + 1, 0 * i])],
    "filled": lambda x, i: x.at[i].get(mode="fill", fill_value=-1.0),
    "slice": lambda x, i: jax.lax.dynamic_slice(x, (i, i), (2, 3)),
    "update": lambda x, i: jax.lax.dynamic_update_slice(x, jnp.ones((2, 2)), (i, 1)),
    "update row": lambda x, i: jax.lax.dynamic_update_slice(x, jnp.ones((1, 5)), (i, 0)),
    "along": lambda x, i: jnp.take_along_axis(x, jnp.full((6, 1), i), axis=1),
    "mapped": lambda x, i: jax.vmap(lambda row, k: row.at[k].set(0.0)[k + 1])(x, jnp.arange(6) + i),
    "table": lambda x, i: jnp.asarray(X)[i] + x[0],
}


@pytest.mark.parametrize("name", INDEXING)
def test_computed_places_inside_and_outside(name):
    compare(INDEXING[name], *[(X, np.int32(i)) for i in (0, 3, 5, 6, -1, -9, 100)], exact=True)


LINES = {
    "argmax": lambda x: (jnp.argmax(x), jnp.argmin(x, 1), jnp.argmax(x, 0)),
    "cumulative": lambda x: (jnp.cumsum(x, 0), jax.lax.cummax(x, 1), jax.lax.cumsum(x, 1, reverse=True)),
    "sort": lambda x: (jnp.sort(x, 0), jnp.argsort(x, 1), jax.lax.top_k(x, 2)),
    "concatenate": lambda x: (
        jnp.concatenate([x[:1], x * 2, x[3:]]),
        jnp.concatenate([x, jnp.concatenate([x[:0], x[1:1]])]),  # of which one is nothing after nothing
        jnp.stack([x[:, 0], x[:, 1]], 1),
        jnp.pad(x, ((1, 2), (0, 3))),
    ),
    "tile": lambda x: (jnp.tile(x, (2, 3)), jnp.tile(x[0], 3) + 1, jnp.repeat(x, 2, axis=0)),
    "softmax": lambda x: (jax.nn.softmax(x), jax.nn.log_softmax(x, 0), jax.scipy.special.logsumexp(x, 1)),
    "scan": lambda x: jax.lax.scan(lambda c, r: (c * 0.5 + r, c.sum()), jnp.zeros(5), x),
    "backwards": lambda x: jax.lax.scan(lambda c, r: (c + r, c * r), jnp.ones(5), x, reverse=True),
    "short scan": lambda x: jax.lax.scan(lambda c, r: (c * 0.5 + r, c.sum()), jnp.zeros(5), x[:3]),
    "cond": lambda x: jax.lax.cond(x[0, 0] > 0, lambda: x * 2, lambda: x - 1),
    "switch": lambda x: jax.lax.switch(jnp.int32(x[0, 0] * 3), [lambda: x, lambda: x + 1, lambda: x + 2]),
    "computed again": jax.grad(lambda x: jax.checkpoint(jnp.tanh)(x).sum()),
    "gradient": jax.grad(lambda x: jnp.sum(jnp.tanh(x @ x.T)[jnp.argmax(x[:, 0])])),
}


@pytest.mark.parametrize("name", LINES)
def test_along_lines_and_in_control_flow(name):
    compare(LINES[name], *[(x,) for x in _rows((6, 5), 3)], tolerance=1e-5)


def test_not_a_number_is_the_largest_and_sorts_last():
    x = np.array([1.0, np.nan, 3.0, -np.inf, np.nan, np.inf], np.float32)
    compare(lambda x: (jnp.argmax(x), jnp.argmin(x), jnp.sort(x), x.max(), x.min()), (x,), (x[::-1].copy(),))


def test_a_while_loop_stops_for_each_lane_on_its_own():
    def collatz(n):
        return jax.lax.while_loop(
            lambda c: c[0] > 1, lambda c: (jnp.where(c[0] % 2 == 0, c[0] // 2, 3 * c[0] + 1), c[1] + 1), (n, 0)
        )

    def counted(n):
        return jax.lax.fori_loop(
            0, n, lambda k, c: (c[0].at[k].set(k * 2.0), c[1] + c[0].sum()), (jnp.zeros((9, 3)), 0.0)
        )

    compare(counted, *[(np.int32(n),) for n in (0, 3, 9, 1, 5)])
    compare(collatz, *[(np.int32(n),) for n in (1, 6, 27, 97, 2)], exact=True)


@pytest.mark.parametrize("make", [jax.random.key, prng.key], ids=["threefry", "philox"])
def test_random_numbers_are_the_same(make):
    def draw(seed):
        first, second = jax.random.split(jax.random.fold_in(make(0), seed))
        return jax.random.uniform(first, (5,)), jax.random.randint(second, (3,), 0, 10), jax.random.key_data(second)

    compare(draw, *[(np.uint32(s),) for s in (0, 1, 2**31)], exact=True)
    seeds = np.arange(3, dtype=np.uint32)
    compare(lambda seeds: jax.random.key_data(jax.vmap(make)(seeds)), (seeds,), (seeds + 5,), exact=True)


def test_a_parallel_sum_of_gradients_of_parts_is_their_concatenation():
    def loss(w):
        return jnp.sum(w[:6].reshape(2, 3) ** 2) + jnp.sum(jnp.tanh(w[6:9])) + w[9] ** 3

    compare(jax.grad(loss), *[(x,) for x in _rows((12,))])


@pytest.mark.parametrize(
    ("function", "like", "names"),
    [
        (lambda x: jnp.fft.fft(x).real, np.zeros(4, np.float32), "complex64"),
        (lambda x: jax.lax.conv(x, x, (1, 1), "SAME"), np.zeros((1, 1, 3, 3), np.float32), "'conv_general_dilated'"),
        (lambda x: x + 1, np.zeros(4, np.int16), "int16"),
        (lambda x: x.astype(jnp.float16), np.zeros(4, np.float32), "float16"),
        (jnp.linalg.inv, np.zeros((3, 3), np.float32), "primitive"),
    ],
)
def test_what_cannot_be_compiled_is_named(function, like, names):
    with pytest.raises(Unsupported) as refused:
        engines.compile(lambda s, x: (s, function(x)), np.zeros((), np.float32), like)
    assert names in str(refused.value)


class Otherwise:
    """An equation of a scan as later releases of JAX write it."""

    def __init__(self, equation):
        old = equation.params
        n, m = old["num_consts"], old["num_carry"]
        tree = types.SimpleNamespace(unpack=lambda: ([None] * n, [None] * m, [None] * (len(equation.invars) - n - m)))
        self.params = {k: v for k, v in old.items() if k not in ("num_consts", "num_carry")} | {"ft_in": tree}
        self.outvars, self.primitive = equation.outvars, equation.primitive


def _summed(x):
    return jax.lax.scan(lambda c, row: (c * x[0, 0] + row, c), x[0], x)


@pytest.mark.skipif(
    "num_consts" not in jax.make_jaxpr(_summed)(jnp.zeros((9, 2))).eqns[-1].params, reason="a later JAX"
)
def test_a_scan_as_later_releases_of_jax_write_it(monkeypatch):
    known = RULES["scan"]
    monkeypatch.setitem(RULES, "scan", lambda graph, e, x: known(graph, Otherwise(e), x))
    compare(_summed, *[(x,) for x in _rows((9, 2))])


def test_an_equation_that_another_jax_writes_otherwise_is_named(monkeypatch):
    def lacking(graph, equation, x):
        return equation.params["of_another_release"]

    monkeypatch.setitem(RULES, "tanh", lacking)
    with pytest.raises(Unsupported, match=r"'tanh' without 'of_another_release', as JAX"):
        engines.compile(lambda s, x: (s, jnp.tanh(x)), np.zeros((), np.float32), np.zeros(2, np.float32))
