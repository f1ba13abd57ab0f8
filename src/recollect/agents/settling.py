r"""How fast the policy still moves: slower where returns are at their best and no longer vary.

Where every episode returns the same, and as much as ever, there is next to nothing to learn from: what is left of the
errors is noise, and to follow it is to wander off. A solved task is held by standing still. As soon as returns vary
again, or are less than they were, the policy moves as before.
"""

import dataclasses

import jax.numpy as jnp
from jax import Array

from recollect.agents.base import check_fields, number, register
from recollect.agents.persistence import Tried
from recollect.agents.reopening import Reached, gain


@register
@dataclasses.dataclass(frozen=True)
class Settling:
    r"""The share of its step that the policy takes.

    .. math::
        \text{pace} = \min\!\left(1, \max\!\left(c, \frac{k \, (s + \max R - R)}{\max R - \min R}\right)\right)

    symbols: s ↔ the deviation of late returns from what was usual at their time (``Tried.variance``); R ↔ the mean
    return of late, its extremes over the whole run ↔ ``Reached``; k ↔ ``steadiness``; c ↔ ``slowest``. It is 1 until
    something was gained.

    Args:
        steadiness: one in so many parts of what was gained is how much returns vary, or fall short of their best, where
            the policy begins to slow down.
        slowest: the least share; 1 for a policy that never slows down.
    """

    steadiness: float = number(10.0, 0.0, 1e6)
    slowest: float = number(0.1, 0.0, 1.0)

    def __post_init__(self) -> None:
        check_fields(self)

    def pace(self, reached: Reached, tried: Tried) -> Array:
        """See the class."""
        half, something = gain(reached)
        variance = jnp.sum(tried.count * tried.variance) / jnp.maximum(jnp.sum(tried.count), 1.0)
        spread, lost = jnp.sqrt(jnp.maximum(variance, 0.0)) / 2, reached.most / 2 - tried.usual / 2
        share = jnp.maximum(self.steadiness * ((spread + lost) / jnp.where(something, half, 1.0)), self.slowest)
        return jnp.where(something, jnp.minimum(share, 1.0), 1.0)
