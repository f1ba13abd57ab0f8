"""Pytrees as named arrays and back."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recollect import FileError, prng
from recollect.store import checkpoints, trees


class Pair(NamedTuple):
    first: object
    second: object


def tree(seed=0):
    keys = [prng.key(seed), jax.random.split(prng.key(seed), 3), jax.random.key(seed)]
    return Pair({"w": jnp.arange(6.0).reshape(2, 3), "keys": keys}, (np.int32(3), jnp.bool_(True)))


def test_a_tree_comes_back(tmp_path):
    checkpoints.save(tmp_path, trees.flatten(tree()), {})
    found = checkpoints.load(tmp_path, like=trees.shapes(tree()))
    assert list(found.arrays) == [
        "first.keys.0",
        "first.keys.1",
        "first.keys.2",
        "first.w",
        "second.0",
        "second.1",
    ]
    for like in (tree(1), jax.eval_shape(tree)):
        back = trees.restore(found.arrays, like)
        assert jax.tree.structure(back) == jax.tree.structure(tree())
        a, b = trees.flatten(back), trees.flatten(tree())
        assert all(np.array_equal(a[name], b[name]) and a[name].dtype == b[name].dtype for name in b)
        assert jax.random.uniform(back.first["keys"][0]) == jax.random.uniform(prng.key(0))


def test_a_copy_is_taken():
    """A compiled call that is given its argument's memory must not reach what was flattened."""
    x = jnp.zeros(1000)
    kept = trees.flatten({"x": x})
    jax.jit(lambda x: x + 1, donate_argnums=0)(x)
    assert not kept["x"].any() and kept["x"].flags.owndata


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, r"a: expected float32\[2\], got nothing"),
        ({"a": np.zeros(3)}, r"a: expected float32\[2\], got float64\[3\]"),
        ({"a": np.zeros(2, np.int32)}, r"a: expected float32\[2\], got int32\[2\]"),
    ],
)
def test_differences_are_named(arrays, message):
    with pytest.raises(FileError, match=message):
        trees.restore(arrays, {"a": jnp.zeros(2)})
