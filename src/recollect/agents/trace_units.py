r"""Recurrent trace units: linear recurrences with complex decay, learned by exact real-time recurrence.

Unit j holds a complex number that rotates and decays, and adds what it sees:

.. math::
    h_j \leftarrow \lambda_j h_j + \langle W_j, x \rangle, \qquad \lambda_j = e^{-e^{\nu_j} + i \theta_j}

Because no unit sees another, the derivative of h by a unit's own parameters obeys a recurrence of the same form,

.. math::
    \frac{\partial h}{\partial W} \leftarrow \lambda \frac{\partial h}{\partial W} + x, \qquad
    \frac{\partial h}{\partial \lambda} \leftarrow \lambda \frac{\partial h}{\partial \lambda} + h,

so that the gradient through the whole episode is carried along in as many numbers as there are parameters: nothing is
unrolled (Elelimy et al., *Real-Time Recurrent Learning using Trace Units in Reinforcement Learning*, 2024). Complex
numbers are kept as pairs of real ones, which every engine can compile.
"""

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from recollect.agents.base import take_numbers


class Parameters(NamedTuple):
    """The decays and angles of the units [units], and their weights [units, inputs]; see ``TraceUnits.decays``."""

    nu: Array
    theta: Array
    weight_re: Array
    weight_im: Array


class State(NamedTuple):
    """What the units hold, h ↔ (``re``, ``im``), and its derivatives by W and by λ."""

    re: Array  # [units]
    im: Array
    by_weight_re: Array  # [units, inputs], by the real part of W; by its imaginary part it is i times this
    by_weight_im: Array
    by_decay_re: Array  # [units]
    by_decay_im: Array


@dataclasses.dataclass(frozen=True)
class TraceUnits:
    """How many units there are, and how far back they reach at the start.

    >>> units = TraceUnits(units=3, slowest=100.0)
    >>> [round(float(t), 1) for t in units.time_constants()]
    [3.0, 12.2, 49.7]

    Args:
        units: complex units; each gives two features.
        fastest, slowest: their time constants at the start, in steps, are spread evenly in logarithm between these two.
        sluggishness: a step of the optimizer moves ν by its size over this, and θ by that over the time constant: the
            phase of a unit is θ times the steps it looks back, and a slow unit turned as far as a fast one would lose
            what it held.
    """

    units: int = 24
    fastest: float = 1.5
    slowest: float = 300.0
    sluggishness: float = 10.0

    def __post_init__(self) -> None:
        take_numbers(self, "units", "fastest", "slowest", "sluggishness")
        if type(self.units) is not int or self.units < 0:
            raise ValueError(f"units={self.units!r} must be a whole number of at least 0")
        for name in ("fastest", "slowest", "sluggishness"):
            if not isinstance(getattr(self, name), (int, float)):
                raise ValueError(f"{name}={getattr(self, name)!r} must be a number")
        if not 1.0 < self.fastest <= self.slowest < math.inf:
            raise ValueError(f"fastest={self.fastest} and slowest={self.slowest} must be steps, 1 < fastest <= slowest")
        if not 0.0 < self.sluggishness < math.inf:
            raise ValueError(f"sluggishness={self.sluggishness} must be a number greater than 0")

    @property
    def features(self) -> int:
        """How many features the units give."""
        return 2 * self.units

    def time_constants(self) -> np.ndarray:
        """[units]: steps after which what was seen has faded to about a third, at the start."""
        place = (np.arange(self.units) + 0.5) / max(self.units, 1)
        return np.asarray(self.fastest * (self.slowest / self.fastest) ** place, np.float32)

    def init(self, key: Array, inputs: int) -> Parameters:
        """Random weights and angles; every third unit does not turn, the rest up to four times per time constant."""
        key_theta, key_re, key_im = jax.random.split(key, 3)
        tau = self.time_constants()
        nu = jnp.asarray(np.log(-np.log1p(-1 / tau)) * self.sluggishness, jnp.float32)
        turns = np.minimum(np.pi, 8 * np.pi / tau) * (np.arange(self.units) % 3 > 0)
        theta = jax.random.uniform(key_theta, (self.units,)) * jnp.asarray(turns * tau * self.sluggishness, jnp.float32)
        size = 1 / math.sqrt(2 * inputs)
        re, im = (size * jax.random.normal(k, (self.units, inputs)) for k in (key_re, key_im))
        return Parameters(nu, theta, re, im)

    def start(self, inputs: int) -> State:
        """Nothing seen yet."""
        none, table = jnp.zeros(self.units), jnp.zeros((self.units, inputs))
        return State(none, none, table, table, none, none)

    def decays(self, params: Parameters) -> tuple[Array, Array, Array]:
        """|λ|, and λ as its real and imaginary part."""
        size = jnp.exp(-jnp.exp(params.nu / self.sluggishness))
        angle = params.theta / (self.sluggishness * self.time_constants())
        return size, size * jnp.cos(angle), size * jnp.sin(angle)

    def see(self, params: Parameters, state: State, x: Array) -> State:
        """The units after one more input, without the derivatives: for a look ahead that nothing is learned through."""
        _, re, im = self.decays(params)
        return state._replace(
            re=re * state.re - im * state.im + jnp.sum(params.weight_re * x, axis=-1),
            im=re * state.im + im * state.re + jnp.sum(params.weight_im * x, axis=-1),
        )

    def advance(self, params: Parameters, state: State, x: Array) -> State:
        """The units and their derivatives after one more input."""
        _, re, im = self.decays(params)
        seen = self.see(params, state, x)
        return State(
            re=seen.re,
            im=seen.im,
            by_weight_re=re[:, None] * state.by_weight_re - im[:, None] * state.by_weight_im + x,
            by_weight_im=re[:, None] * state.by_weight_im + im[:, None] * state.by_weight_re,
            by_decay_re=re * state.by_decay_re - im * state.by_decay_im + state.re,
            by_decay_im=re * state.by_decay_im + im * state.by_decay_re + state.im,
        )

    def outputs(self, params: Parameters, state: State) -> Array:
        """[2 · units]: √(1 − |λ|²) h, whose size does not depend on how slowly a unit forgets.

        Its value is that of ``state``; its gradient by ``params`` is that through the whole episode, parameters held
        fixed: the derivatives carried along, times parameters whose value cancels and whose gradient does not.
        """
        size, re, im = self.decays(params)
        hold = jax.lax.stop_gradient
        d_re, d_im = re - hold(re), im - hold(im)
        w_re, w_im, by_re, by_im = params.weight_re, params.weight_im, state.by_weight_re, state.by_weight_im
        h_re = state.re + state.by_decay_re * d_re - state.by_decay_im * d_im
        h_im = state.im + state.by_decay_re * d_im + state.by_decay_im * d_re
        h_re = h_re + carried(w_re, by_re) - carried(w_im, by_im)
        h_im = h_im + carried(w_re, by_im) + carried(w_im, by_re)
        scale = jnp.sqrt(1 - size * size)
        return jnp.concatenate([scale * h_re, scale * h_im])


@jax.custom_jvp
def carried(weight: Array, by: Array) -> Array:
    """[units]: 0, whose derivative by a unit's weights is ``by``."""
    del by
    return jnp.zeros(weight.shape[0])


@carried.defjvp
def _carried_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    return carried(*primals), jnp.sum(tangents[0] * primals[1], axis=-1)


def forget(state: State, when: Array) -> State:
    """Nothing seen, where ``when`` is true."""
    return jax.tree.map(lambda leaf: jnp.where(when, 0.0, leaf), state)
