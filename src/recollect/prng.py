"""Philox4x32-10 as a JAX key type: the random words of a step in one fused loop, the same on CPU and GPU.

JAX's own generator compiles to rolled loops on a CPU, which cost more than the rest of a small agent's step. Philox is
counter-based like it (a word depends on key and position alone) and passes the same test batteries.
Algorithm: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011.

>>> k = key(0)
>>> jax.random.uniform(k, (2,)).shape, jax.random.split(k, 3).shape
((2,), (3,))

A key is four words: Philox's own key, and a place. ``split`` and ``fold_in`` hash all four into a new key at place 0;
``at`` only names another place, which costs nothing: that is how a training loop gets the keys of each step.
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
_SPLIT, _FOLD, _BITS, _SEED = (np.uint32(k) for k in range(4))  # second counter word: keeps the uses apart

_one_call = functools.partial(jax.jit, inline=True)
"""Outside of compiled code one call in place of a hundred small ones; within, the same operations as without it."""


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


def _words(key: Array, position: Array, use: np.uint32) -> tuple[Array, Array, Array, Array]:
    use_, step, purpose = (jnp.full_like(position, word) for word in (use, key[2], key[3]))
    return philox((key[0], key[1]), (position, use_, step, purpose))


def _new_keys(key: Array, position: Array, use: np.uint32) -> Array:
    a, b, _, _ = _words(key, position, use)
    return jnp.stack([a, b, jnp.zeros_like(a), jnp.zeros_like(a)], axis=-1)


@_one_call
def _seed(seed: Array) -> Array:
    low = seed.astype(jnp.uint32)
    high = jax.lax.shift_right_logical(seed, jnp.asarray(32, seed.dtype)).astype(jnp.uint32) if _wide(seed) else low * 0
    return _new_keys(jnp.stack([low, high, low * 0, low * 0]), jnp.zeros((), jnp.uint32), _SEED)


def _wide(seed: Array) -> bool:
    return seed.dtype.itemsize > 4


@functools.partial(_one_call, static_argnums=1)
def _split(key: Array, shape: tuple[int, ...]) -> Array:
    return _new_keys(key, jnp.arange(math.prod(shape), dtype=jnp.uint32), _SPLIT).reshape(*shape, 4)


@_one_call
def _fold_in(key: Array, data: Any) -> Array:
    return _new_keys(key, jnp.asarray(data, jnp.uint32), _FOLD)


@functools.partial(_one_call, static_argnums=(1, 2))
def _random_bits(key: Array, bit_width: int, shape: tuple[int, ...]) -> Array:
    count = math.prod(shape)
    words = count if bit_width <= 32 else 2 * count
    block = _words(key, jnp.arange(-(-words // 4), dtype=jnp.uint32), _BITS)
    flat = jnp.stack(block, axis=-1).reshape(-1)[:words]
    if bit_width == 64:
        halves = flat.reshape(2, count).astype(jnp.uint64)
        flat = (halves[0] << jnp.uint64(32)) | halves[1]
    elif bit_width < 32:
        flat = flat.astype(getattr(jnp, f"uint{bit_width}"))
    return flat.reshape(shape)


NAME = "recollect_philox4x32"
"""Recorded with every run: results are those of this generator."""

IMPL = jax.extend.random.define_prng_impl(
    key_shape=(4,),
    seed=_seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold_in,
    name=NAME,
    tag="rph",
)

key = functools.partial(jax.random.key, impl=IMPL)
"""A key of this type from a whole number, as ``jax.random.key``."""


def key_words(seed: int) -> np.ndarray:
    """The words of ``key(seed)`` for 32 bits, without JAX, which would compile each operation of it.

    >>> bool((key_words(7) == jax.random.key_data(key(np.uint32(7)))).all())
    True
    """
    keys, counter, mask = [seed, 0], [0, int(_SEED), 0, 0], 2**32 - 1
    for _ in range(10):
        first, second = (x * int(m) for x, m in zip(counter[::2], _MULTIPLIERS, strict=True))
        a, c = second >> 32 ^ counter[1] ^ keys[0], first >> 32 ^ counter[3] ^ keys[1]
        counter = [a, second & mask, c, first & mask]
        keys = [k + int(more) & mask for k, more in zip(keys, _INCREMENTS, strict=True)]
    return np.array([*counter[:2], 0, 0], np.uint32)


def at(key: Array, step: Array, purpose: int) -> Array:
    """The key of one purpose at one step, from a key that is at place 0; each pair (step, purpose) gives another."""
    words = jax.random.key_data(key)
    place = jnp.stack([jnp.asarray(step).astype(jnp.uint32), jnp.asarray(purpose, jnp.uint32)])
    return jax.random.wrap_key_data(jnp.concatenate([words[:2], place]), impl=IMPL)
