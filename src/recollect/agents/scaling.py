"""Running means and variances of what comes in, so that nothing depends on the units that a task is written in."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

LONGEST = 1e6
"""Observations after which the mean follows what comes rather than all that came."""

RESOLUTION = 1e-6
"""A deviation below this share of the mean is rounding, not variation."""


class Moments(NamedTuple):
    """Mean and variance of the numbers seen, elementwise, and how many were seen."""

    mean: Array
    variance: Array
    count: Array


def nothing_seen(shape: tuple[int, ...]) -> Moments:
    """Moments before the first number."""
    return Moments(jnp.zeros(shape), jnp.zeros(shape), jnp.zeros(()))


def observe(moments: Moments, x: Array) -> Moments:
    """The moments with one more observation (Welford's recurrence, divided by the count at every step).

    Dividing at once keeps float32 from standing still: a sum of squares would, once it is 2²⁴ times what is added.
    """
    count = jnp.minimum(moments.count + 1, LONGEST)
    off = x - moments.mean
    mean = moments.mean + off / count
    return Moments(mean, moments.variance + (off * (x - mean) - moments.variance) / count, count)


def deviation(moments: Moments) -> Array:
    """Standard deviation; 1 where nothing has varied yet."""
    deviation = jnp.sqrt(jnp.maximum(moments.variance, 0.0))
    return jnp.where(deviation > RESOLUTION * jnp.abs(moments.mean), deviation, 1.0)


def standardize(moments: Moments, x: Array, most: float) -> Array:
    """(x − mean) / deviation, within ±``most``."""
    return jnp.clip((x - moments.mean) / deviation(moments), -most, most)
