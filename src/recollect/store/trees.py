"""Pytrees as named NumPy arrays and back, so that checkpoints need to know neither agents nor environments.

A leaf's name is its path, as in ``agent.params.value.0.weight``. Typed JAX keys become their words, ``uint32``.
"""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from recollect import prng
from recollect.errors import FileError
from recollect.store import checkpoints

_IMPLEMENTATIONS = (prng.IMPL, "threefry2x32", "rbg", "unsafe_rbg")


def flatten(tree: Any) -> dict[str, np.ndarray]:
    """The leaves of a pytree by name, copied to the host.

    >>> flatten({"a": np.zeros(2), "b": [1.5]})
    {'a': array([0., 0.]), 'b.0': array(1.5)}
    """
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    words = jax.device_get([jax.random.key_data(leaf) if _is_key(leaf) else leaf for _, leaf in leaves])
    # A copy, since on a CPU the host's view is the device's memory, which a compiled call may be given to write over.
    return {_name(path): np.array(leaf) for (path, _), leaf in zip(leaves, words, strict=True)}


def shapes(like: Any) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype of every leaf, as ``recollect.store.checkpoints.load`` takes them; nothing is computed.

    ``like``: a pytree of arrays or of what ``jax.eval_shape`` returns.
    """
    found = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(like)[0]:
        if _is_key(leaf):
            leaf = jax.eval_shape(jax.random.key_data, leaf)
        found[_name(path)] = tuple(np.shape(leaf)), np.dtype(getattr(leaf, "dtype", type(leaf))).name
    return found


def size(like: Any) -> int:
    """Bytes of all leaves; nothing is computed."""
    return sum(math.prod(shape) * np.dtype(kind).itemsize for shape, kind in shapes(like).values())


def restore(arrays: Mapping[str, np.ndarray], like: Any) -> Any:
    """The pytree of the form of ``like`` with the values of ``arrays``; any difference is a ``FileError``."""
    expected = shapes(like)
    got = {name: (array.shape, array.dtype.name) for name, array in arrays.items()}
    checkpoints.refuse_differences("the state", expected, got)

    def leaf(path: Any, pattern: Any) -> Any:
        value = arrays[_name(path)]
        return (
            jax.random.wrap_key_data(jnp.asarray(value), impl=_implementation(pattern)) if _is_key(pattern) else value
        )

    return jax.tree_util.tree_map_with_path(leaf, like)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _is_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _implementation(key: Any) -> Any:
    for candidate in _IMPLEMENTATIONS:
        if jax.eval_shape(lambda c=candidate: jax.random.key(0, impl=c)).dtype == key.dtype:
            return candidate
    raise FileError(f"keys of type {key.dtype} are of a PRNG that this release does not know")
