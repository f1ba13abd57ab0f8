r"""When choices are opened again: once returns have lost a good part of what they had gained.

A policy that has settled on what it should not is not surprised by what comes of it, so surprise alone leaves it there
for good: in Acrobot, one that never swings up costs the same at every step. That it once did better tells.
"""

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from recollect.agents.base import check_fields, number, register

MARGIN = 0.2
"""Share of the gain that returns may lose as they come and go."""

ENOUGH = 10
"""Episodes before the mean return of late says anything."""

SOMETHING = 0.01
"""Share of the best return that a gain has at least: less is how returns come and go, or rounding."""


class Reached(NamedTuple):
    """The least and the most that the mean return of late has been, and whether it has been anything."""

    least: Array
    most: Array
    known: Array


def gain(reached: Reached) -> tuple[Array, Array]:
    """Half of what the mean return of late has gained, as the whole may overflow, and whether that is anything."""
    half = reached.most / 2 - reached.least / 2
    return half, half > SOMETHING / 2 * jnp.abs(reached.most)


@register
@dataclasses.dataclass(frozen=True)
class Reopening:
    r"""How open choices are to be for having lost what was gained.

    .. math::
        \text{openness} = c \, \max\!\left(0, \frac{\max R - R}{\max R - \min R} - 0.2\right)

    symbols: R ↔ the mean return of late, its extremes over the whole run ↔ ``Reached``; c ↔ ``weight``. A gain that is
    less than a hundredth of the best return is none.

    Args:
        weight: openness, in units of \|δ\|, for having lost everything, nearly; 0 for none.
    """

    weight: float = number(0.1, 0.0, 10.0)

    def __post_init__(self) -> None:
        check_fields(self)

    def init(self) -> Reached:
        """Nothing reached."""
        return Reached(jnp.zeros(()), jnp.zeros(()), jnp.zeros((), bool))

    def observe(self, reached: Reached, usual: Array, episodes: Array) -> Reached:
        """After an episode; ``usual``: the mean return of late, which is of so many ``episodes``."""
        enough = episodes >= ENOUGH
        least = jnp.where(reached.known, jnp.minimum(reached.least, usual), usual)
        most = jnp.where(reached.known, jnp.maximum(reached.most, usual), usual)
        return Reached(
            jnp.where(enough, least, reached.least), jnp.where(enough, most, reached.most), reached.known | enough
        )

    def openness(self, reached: Reached, usual: Array) -> Array:
        """See the class; 0 until returns have gained something."""
        half, something = gain(reached)
        share = (reached.most / 2 - usual / 2) / jnp.where(something, half, 1.0)
        return jnp.where(something, self.weight * jnp.maximum(share - MARGIN, 0.0), 0.0)
