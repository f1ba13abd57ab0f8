r"""How steady chance is: whether the uniform numbers that draw actions are fresh at every step or kept for a while.

An action is drawn from the policy by inversion of its distribution. With a number that is kept, open choices fall the
same way for a while, and what takes a run of like actions (to swing up, to walk through) is found by chance; where the
policy has settled it makes no difference. With fresh numbers steps are independent, which learns faster where it can.
Which of the two a task wants is found by trying: each episode is drawn one way or the other, and the way whose episodes
returned more is taken more often. Kept numbers have the benefit of the doubt while they are new, and lose it as they
are tried in vain.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from recollect.agents.base import check_fields, number, register

FADING = 0.98
"""What an episode still counts for after one more."""

MANY = 1 / (1 - FADING)
"""Episodes that count in the long run."""

MOST = 0.9
"""Chance of kept numbers at most, however much more they returned."""

WORSE = -3.0
"""Once z is below this, numbers are fresh for good: an episode with kept ones may unlearn what is solved."""


class Tried(NamedTuple):
    """How episodes with fresh numbers [0] and with kept ones [1] went: how much more they returned than was usual."""

    count: Array
    mean: Array
    variance: Array
    usual: Array  # mean return of all episodes of late
    episodes: Array  # that it is of
    settled: Array  # whether numbers are fresh for good


@register
@dataclasses.dataclass(frozen=True)
class Persistence:
    r"""Numbers kept for some steps in some of the episodes.

    .. math::
        z = \frac{m_1 - m_0}{\sqrt{s^2 (1/n_0 + 1/n_1)}}, \qquad
        P(\text{kept}) = \frac{1}{1 + e^{-2 (z - n_1 / N)}}

    symbols: n, m ↔ ``Tried.count``, ``Tried.mean`` of the two ways; N ↔ ``MANY``, what n comes to in the long run; s² ↔
    the variance within both, as if one more episode had been m_1 − m_0 off: a few episodes prove little, however alike
    they are.

    With n_1 = 0, P is close to how likely it is, by what has been seen, that episodes with kept numbers return more
    (Thompson's rule, which has the normal distribution there). Kept numbers that were tried in many episodes must have
    returned more by a standard error to be drawn in half of the next ones: where they make no difference they are in
    one of eight, as they cost something. Returns are counted from what was usual at their time, so that a way tried
    long ago is not blamed for what the agent has learned since.

    Args:
        share: chance that a number is that of the step before, in episodes where numbers are kept; 0 for never.
    """

    share: float = number(0.9, 0.0, 1.0)

    def __post_init__(self) -> None:
        check_fields(self)

    def init(self) -> Tried:
        """Nothing tried."""
        return Tried(jnp.zeros(2), jnp.zeros(2), jnp.zeros(2), jnp.zeros(()), jnp.zeros(()), jnp.zeros((), bool))

    def advantage(self, tried: Tried) -> Array:
        """The z of the class; 0 while one way has not been tried."""
        count, off = jnp.maximum(tried.count, 1e-3), tried.mean[1] - tried.mean[0]
        within = (jnp.sum(count * tried.variance) + off * off) / jnp.sum(count)
        error = jnp.sqrt(within * jnp.sum(1 / count))
        least = 1e-6 * jnp.abs(tried.usual) + 1e-30  # of rounding
        return jnp.where(jnp.all(tried.count > 0), off / jnp.maximum(error, least), 0.0)

    def chance(self, tried: Tried) -> Array:
        """That an episode is to have kept numbers; none before the first has ended, which may be endless."""
        found = jnp.minimum(jax.nn.sigmoid(2 * (self.advantage(tried) - tried.count[1] / MANY)), MOST)
        return jnp.where((tried.episodes > 0) & ~tried.settled, found, 0.0)

    def observe(self, tried: Tried, kept: Array, total: Array) -> Tried:
        """After an episode of this return; one too large for numbers is left out."""
        episodes = FADING * tried.episodes + 1
        usual = tried.usual + (total - tried.usual) / episodes
        chosen = jnp.stack([~kept, kept])
        count = jnp.where(chosen, FADING * tried.count + 1, tried.count)
        share = jnp.where(chosen, 1 / jnp.maximum(count, 1.0), 0.0)
        more = jnp.where(tried.episodes > 0, total - tried.usual, 0.0)
        off = more - tried.mean
        mean = tried.mean + share * off
        variance = tried.variance + share * (off * (more - mean) - tried.variance)
        after = Tried(count, mean, variance, usual, episodes, tried.settled)
        after = after._replace(settled=tried.settled | (self.advantage(after) < WORSE))
        finite = jnp.isfinite(usual) & jnp.all(jnp.isfinite(mean)) & jnp.all(jnp.isfinite(variance))
        return jax.tree.map(lambda new, old: jnp.where(finite, new, old), after, tried)
