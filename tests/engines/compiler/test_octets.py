"""Arrays of uint8, which are compiled as words: the last eight bits of everything are JAX's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from engines.compiler.compared import compare
from recollect import engines
from recollect.engines.compiler import Unsupported

A = np.array([0, 1, 2, 127, 128, 200, 254, 255], np.uint8)
B = np.array([255, 3, 0, 1, 128, 7, 254, 9], np.uint8)

OPERATIONS = {
    "add": jnp.add,
    "subtract": jnp.subtract,
    "multiply": jnp.multiply,
    "quotient": jax.lax.div,
    "remainder": jax.lax.rem,
    "maximum": jnp.maximum,
    "less": jnp.less,
    "negative": lambda a, b: -a,
    "not": lambda a, b: ~a,
    "left": lambda a, b: a << (b & jnp.uint8(7)),
    "right": lambda a, b: a >> (b & jnp.uint8(7)),
    "far left": lambda a, b: jax.lax.shift_left(a, b),
    "power": lambda a, b: a**3,
    "sum": lambda a, b: jnp.sum(a, dtype=jnp.uint8),
    "cumulative": lambda a, b: jnp.cumsum(a, dtype=jnp.uint8),
    "largest": lambda a, b: jnp.max(a),
    "sorted": lambda a, b: jnp.sort(b),
    "from integers": lambda a, b: (a.astype(jnp.int32) - 300).astype(jnp.uint8),
    "to floats": lambda a, b: a.astype(jnp.float32) / 2,
    "placed": lambda a, b: a.at[b[1]].set(b[0]).at[2:4].add(b[3:5]),
    "beyond the end": lambda a, b: a.at[b.astype(jnp.int32)].get(mode="fill"),
    "chosen": lambda a, b: jax.lax.switch(b[1].astype(jnp.int32), [lambda: a, lambda: b, lambda: a + b]),
    "random": lambda a, b: jax.random.bits(jax.random.key(3), (5,), jnp.uint8) + a[:5],
    "scan": lambda a, b: jax.lax.scan(lambda c, x: (c + x, c * x), jnp.uint8(250), a)[1],
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_bytes_are_jaxs(name):
    def function(a, b):
        result = OPERATIONS[name](a.astype(jnp.uint8), b.astype(jnp.uint8))
        return result.astype(jnp.int32) if result.dtype == jnp.uint8 else result

    compare(function, (A, B), (B, A))


def test_a_state_of_bytes_stays_one():
    def step(state, x):
        return state * jnp.uint8(3) + x, state[0].astype(jnp.float32)

    run = engines.compile(step, A, np.uint8(7))
    expected = A
    for _ in range(5):
        assert run(np.uint8(7)) == expected[0]
        expected = (expected * np.uint8(3) + np.uint8(7)).astype(np.uint8)
    assert run.state.dtype == np.uint8
    np.testing.assert_array_equal(run.state, expected)
    with pytest.raises(ValueError, match="uint8 where that is uint8"):
        engines.compile(lambda state: (state.astype(jnp.uint32), ()), A)


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (lambda x: jax.lax.clz(x), "clz of uint8"),
        (lambda x: x.astype(jnp.float32).astype(jnp.uint8), "floats as uint8"),
        (lambda x: jax.lax.bitcast_convert_type(x, jnp.int8), "uint8"),
    ],
)
def test_what_is_not_the_same_on_words_is_refused(function, named):
    with pytest.raises(Unsupported, match=named):
        engines.compile(lambda state, x: (state, function(x)), np.float32(0), A)
