"""Philox4x32-10 as a JAX key type: the random words of a step in one fused loop, the same on CPU and GPU.

JAX's own generator compiles to rolled loops on a CPU, which cost more than the rest of a small agent's step. Philox is
counter-based like it (a word depends on key and position alone) and passes the same test batteries.
Algorithm: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011.

>>> k = key(0)
>>> jax.random.uniform(k, (2,)).shape, jax.random.split(k, 3).shape
((2,), (3,))
"""

import functools
import math
from typing import Any

import jax
import jax.extend.random
import jax.numpy as jnp
import numpy as np
from jax import Array

_MULTIPLIERS = np.uint32(0xD2511F53), np.uint32(0xCD9E8D57)
_INCREMENTS = np.uint32(0x9E3779B9), np.uint32(0xBB67AE85)
_SPLIT, _FOLD, _BITS, _SEED = (np.uint32(k) for k in range(4))  # third counter word: keeps the uses apart


def philox(key: tuple[Array, Array], counter: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
    """Ten rounds; all words uint32 arrays of one shape (or scalars)."""
    k0, k1 = key
    a, b, c, d = counter
    for _ in range(10):
        low_a, high_a = a * _MULTIPLIERS[0], jax.lax.mulhi(a, jnp.full_like(a, _MULTIPLIERS[0]))
        low_c, high_c = c * _MULTIPLIERS[1], jax.lax.mulhi(c, jnp.full_like(c, _MULTIPLIERS[1]))
        a, b, c, d = high_c ^ b ^ k0, low_c, high_a ^ d ^ k1, low_a
        k0, k1 = k0 + _INCREMENTS[0], k1 + _INCREMENTS[1]
    return a, b, c, d


def _words(key: Array, count: int, use: np.uint32, extra: Array | None = None) -> tuple[Array, Array, Array, Array]:
    position = jnp.arange(count, dtype=jnp.uint32)
    third = jnp.full_like(position, use)
    fourth = jnp.zeros_like(position) if extra is None else jnp.full_like(position, extra)
    return philox((key[0], key[1]), (position, jnp.zeros_like(position), third, fourth))


def _seed(seed: Array) -> Array:
    low = seed.astype(jnp.uint32)
    high = jax.lax.shift_right_logical(seed, jnp.asarray(32, seed.dtype)).astype(jnp.uint32) if _wide(seed) else low * 0
    a, b, _, _ = _words(jnp.stack([low, high]), 1, _SEED)
    return jnp.stack([a[0], b[0]])


def _wide(seed: Array) -> bool:
    return seed.dtype.itemsize > 4


def _split(key: Array, shape: tuple[int, ...]) -> Array:
    a, b, _, _ = _words(key, math.prod(shape), _SPLIT)
    return jnp.stack([a, b], axis=-1).reshape(*shape, 2)


def _fold_in(key: Array, data: Any) -> Array:
    a, b, _, _ = _words(key, 1, _FOLD, jnp.asarray(data, jnp.uint32))
    return jnp.stack([a[0], b[0]])


def _random_bits(key: Array, bit_width: int, shape: tuple[int, ...]) -> Array:
    count = math.prod(shape)
    words = count if bit_width <= 32 else 2 * count
    block = _words(key, -(-words // 4), _BITS)
    flat = jnp.concatenate(block)[:words]
    if bit_width == 64:
        halves = flat.reshape(2, count).astype(jnp.uint64)
        flat = (halves[0] << jnp.uint64(32)) | halves[1]
    elif bit_width < 32:
        flat = flat.astype(getattr(jnp, f"uint{bit_width}"))
    return flat.reshape(shape)


NAME = "recollect_philox4x32"
"""Recorded with every run: results are those of this generator."""

IMPL = jax.extend.random.define_prng_impl(
    key_shape=(2,),
    seed=_seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold_in,
    name=NAME,
    tag="rph",
)

key = functools.partial(jax.random.key, impl=IMPL)
"""A key of this type from a whole number, as ``jax.random.key``."""
