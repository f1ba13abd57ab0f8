"""xoshiro256++ for compiled loops: four words of state, a few nanoseconds a draw, saved and restored bit for bit.

numba can use NumPy's generators, but handing one to a compiled function costs more than adding an item does.
Algorithm: Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2021.
"""

import math

import numpy as np
from numba import njit

_U17, _U19, _U23, _U41, _U45 = (np.uint64(k) for k in (17, 19, 23, 41, 45))
_U11 = np.uint64(11)


def seeded(seed) -> np.ndarray:
    """Four words of state from anything ``numpy.random.SeedSequence`` takes (None: from the operating system)."""
    try:
        sequence = np.random.SeedSequence(seed)
    except (TypeError, ValueError) as error:
        raise type(error)(f"seed={seed!r} must be a whole number of at least 0, a sequence of them, or None") from error
    return sequence.generate_state(4, np.uint64)


@njit(cache=True, error_model="numpy")
def next_word(rng):
    """Advance ``rng`` and return 64 random bits."""
    a, b, c, d = rng[0], rng[1], rng[2], rng[3]
    x = a + d
    word = ((x << _U23) | (x >> _U41)) + a
    t = b << _U17
    c ^= a
    d ^= b
    b ^= c
    a ^= d
    c ^= t
    d = (d << _U45) | (d >> _U19)
    rng[0], rng[1], rng[2], rng[3] = a, b, c, d
    return word


@njit(cache=True, error_model="numpy")
def uniform(rng):
    """A double in [0, 1), a multiple of 2^-53."""
    return float(next_word(rng) >> _U11) * 1.1102230246251565e-16


@njit(cache=True, error_model="numpy")
def exponential(rng):
    """A draw from Exp(1)."""
    return -math.log1p(-uniform(rng))
