"""The memory of one episode as a part: which states are kept, what counts as the same state, and what a query sees."""

import dataclasses
import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from recollect.agents.base import check_choice, take_numbers
from recollect.agents.memory import LAWS
from recollect.reservoir import kernel

AGES = (1, 2, 3, 4, 5, 7, 12, 30, 100)
"""The ages at which a stored state's age features peak, in steps."""


class Stored(NamedTuple):
    """What a slot holds: the observation as it came, and the time step of the episode that it came at."""

    observation: Array
    time: Array


@dataclasses.dataclass(frozen=True)
class EpisodeMemory:
    """A few past observations of the episode, kept by a law and found by what they are and how long ago they came.

    Args:
        law: "reservoir" (each n-subset with probability proportional to the product of its learned weights),
            "uniform", "fifo" (the last n) or "none".
        radius: a state within this distance of a stored one, in deviations of the observation's elements, is the same
            state once more, and is not stored; None stores every visit. Where observations are noisy no two are
            equal, and a memory that knows equality alone fills with what is always there.
    """

    law: str = "reservoir"
    radius: float | None = 1.0

    def __post_init__(self) -> None:
        check_choice("law", self.law, LAWS)
        take_numbers(self, "radius")
        number = isinstance(self.radius, (int, float)) and not isinstance(self.radius, bool)
        if self.radius is not None and not (number and 0.0 <= self.radius < math.inf):
            raise ValueError(f"radius={self.radius!r} must be None or a number of at least 0")

    def init(self, size: int, observation_size: int) -> kernel.State:
        """An empty memory of so many slots."""
        return LAWS[self.law].init(size, Stored(jnp.zeros(observation_size), jnp.zeros((), jnp.int32)))

    def keys(self, stored: kernel.State, states: Array, now: Array) -> Array:
        """[n, s + ages]: what the query is compared with, each stored state beside the features of its age."""
        return jnp.concatenate([states, age_features(now - stored.items.time)], axis=-1)

    def write(
        self, stored: kernel.State, states: Array, state: Array, item: Stored, log_weight: Array, key: Array
    ) -> kernel.State:
        """Show the memory one state, ``state`` and ``states`` being it and those stored in standard units."""
        return LAWS[self.law].add(
            stored, item, self.given_weight(stored, states, state, item.observation, log_weight), key
        )

    def placed(
        self, stored: kernel.State, states: Array, state: Array, item: Stored, log_weight: Array, key: Array
    ) -> Array:
        """The slot that ``write`` puts the state in, the number of slots where it is not kept."""
        given = self.given_weight(stored, states, state, item.observation, log_weight)
        return LAWS[self.law].place(stored, item, given, key)[1]

    def chance(self, stored: kernel.State, states: Array, state: Array, observation: Array, log_weight: Array) -> Array:
        """That ``write`` would store the state."""
        given = self.given_weight(stored, states, state, observation, log_weight)
        return LAWS[self.law].probabilities(stored, given)[0]

    def given_weight(
        self, stored: kernel.State, states: Array, state: Array, observation: Array, log_weight: Array
    ) -> Array:
        """The log of the weight that a state is shown to the memory with: 0 for one that is held already."""
        if self.radius is not None:
            distances = jnp.sum(jnp.square(states - state), axis=-1)
            held = jnp.any(stored.filled & (distances <= self.radius * self.radius))
            log_weight = jnp.where(held, -jnp.inf, log_weight)
        # A state that is not finite gets weight 0: its row, even emptied, would turn later gradients into NaN.
        return jnp.where(jnp.all(jnp.isfinite(observation)), log_weight, -jnp.inf)


def age_features(age: Array) -> Array:
    """[..., ages]: how near an age is to each of ``AGES``, on a logarithmic scale, between 0 and 1; they sum to 1.

    >>> age_features(jnp.array([1, 2, 250])).round(2).tolist()[1]
    [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    peaks = np.log(np.asarray(AGES, np.float32))
    place = jnp.log(jnp.maximum(age, 1).astype(jnp.float32))[..., None]
    rising = (place - np.concatenate([[-1.0], peaks[:-1]])) / np.diff(peaks, prepend=-1.0)
    falling = (np.concatenate([peaks[1:], [np.inf]]) - place) / np.diff(peaks, append=peaks[-1] + 1.0)
    last = np.arange(len(AGES)) == len(AGES) - 1
    return jnp.clip(jnp.where(last, rising, jnp.minimum(rising, falling)), 0.0, 1.0).astype(jnp.float32)
