"""How actions are drawn from the policy network's outputs: one object a kind of action space, hashable and stateless.

An agent's policy network has as many outputs as the distribution asks for; ``draw`` turns them and uniform numbers into
an action, ``log_probability`` and ``entropy`` are what the policy gradient differentiates.

>>> d = MultiCategorical((2, 3))
>>> d.draw(jnp.array([0.0, 9.0, 9.0, 0.0, 0.0]), jnp.array([0.5, 0.5])).tolist()
[1, 0]
"""

import abc
import dataclasses
import itertools
import math

import jax
import jax.numpy as jnp
from jax import Array

from recollect.agents import td

SMALLEST_DEVIATION = 1e-3
"""Least standard deviation of a Gaussian policy, in units of half the action's range."""


class Distribution(abc.ABC):
    """What an agent asks of the distribution of its actions."""

    @property
    @abc.abstractmethod
    def draws(self) -> int:
        """How many uniform numbers one action takes."""

    @abc.abstractmethod
    def nothing(self) -> Array:
        """An action's shape and dtype, for a state in which none was taken yet."""

    @abc.abstractmethod
    def draw(self, outputs: Array, u: Array) -> Array:
        """The action that uniform numbers in [0, 1) draw."""

    @abc.abstractmethod
    def log_probability(self, outputs: Array, action: Array) -> Array:
        """Log π(a), or the log-density of a continuous action."""

    @abc.abstractmethod
    def entropy(self, outputs: Array) -> Array:
        """In nats; of a continuous action the differential entropy."""

    @abc.abstractmethod
    def parameters(self, outputs: Array) -> Array:
        """What a reader is shown of the network's outputs: probabilities, or means and then deviations."""

    @abc.abstractmethod
    def features(self, action: Array, outputs: int) -> Array:
        """An action as a vector of numbers of size 1, for an agent that remembers what it did.

        ``outputs``: how many outputs the policy network has.
        """


@dataclasses.dataclass(frozen=True)
class Categorical(Distribution):
    """One of as many actions as the network has outputs."""

    @property
    def draws(self) -> int:
        """One."""
        return 1

    def nothing(self) -> Array:
        """Action 0."""
        return jnp.zeros((), jnp.int32)

    def draw(self, outputs: Array, u: Array) -> Array:
        """By inversion of the softmax."""
        return td.draw(outputs, u[0])

    def log_probability(self, outputs: Array, action: Array) -> Array:
        """From the log-softmax."""
        return jax.nn.log_softmax(outputs)[action]

    def entropy(self, outputs: Array) -> Array:
        """Of the softmax."""
        return td.entropy(outputs)

    def parameters(self, outputs: Array) -> Array:
        """The probability of each action."""
        return jax.nn.softmax(outputs)

    def features(self, action: Array, outputs: int) -> Array:
        """One-hot."""
        return (jnp.arange(outputs) == action).astype(jnp.float32)


CATEGORICAL = Categorical()


@dataclasses.dataclass(frozen=True)
class MultiCategorical(Distribution):
    """Several independent choices at once; ``sizes``: how many actions each has."""

    sizes: tuple[int, ...]

    @property
    def outputs(self) -> int:
        """One for each action of each choice."""
        return sum(self.sizes)

    @property
    def draws(self) -> int:
        """One a choice."""
        return len(self.sizes)

    def _parts(self, outputs: Array) -> list[Array]:
        ends = list(itertools.accumulate(self.sizes))
        return [outputs[end - size : end] for end, size in zip(ends, self.sizes, strict=True)]

    def nothing(self) -> Array:
        """All 0."""
        return jnp.zeros(len(self.sizes), jnp.int32)

    def draw(self, outputs: Array, u: Array) -> Array:
        """Each choice by itself."""
        return jnp.stack([td.draw(part, u[k]) for k, part in enumerate(self._parts(outputs))])

    def log_probability(self, outputs: Array, action: Array) -> Array:
        """The sum over choices."""
        parts = self._parts(outputs)
        return sum((jax.nn.log_softmax(part)[action[k]] for k, part in enumerate(parts)), jnp.zeros(()))

    def entropy(self, outputs: Array) -> Array:
        """The sum over choices."""
        return sum((td.entropy(part) for part in self._parts(outputs)), jnp.zeros(()))

    def parameters(self, outputs: Array) -> Array:
        """The probability of each action of each choice."""
        return jnp.concatenate([jax.nn.softmax(part) for part in self._parts(outputs)])

    def features(self, action: Array, outputs: int) -> Array:
        """One-hot, each choice by itself."""
        hot = [(jnp.arange(size) == action[k]).astype(jnp.float32) for k, size in enumerate(self.sizes)]
        return jnp.concatenate(hot)


@dataclasses.dataclass(frozen=True)
class Gaussian(Distribution):
    """Independent normal numbers; the network gives a mean and, through softplus, a standard deviation for each."""

    size: int

    @property
    def outputs(self) -> int:
        """A mean and a deviation for each number."""
        return 2 * self.size

    @property
    def draws(self) -> int:
        """One per number."""
        return self.size

    def _split(self, outputs: Array) -> tuple[Array, Array]:
        return outputs[: self.size], jax.nn.softplus(outputs[self.size :]) + SMALLEST_DEVIATION

    def nothing(self) -> Array:
        """All 0."""
        return jnp.zeros(self.size)

    def draw(self, outputs: Array, u: Array) -> Array:
        """By inversion of the normal distribution; 0 and 1, which would be infinite, are kept out."""
        mean, deviation = self._split(outputs)
        return mean + deviation * jax.scipy.special.ndtri(jnp.clip(u, 2.0**-24, 1 - 2.0**-24))

    def log_probability(self, outputs: Array, action: Array) -> Array:
        """The log-density, summed over the numbers."""
        mean, deviation = self._split(outputs)
        z = (action - mean) / deviation
        return jnp.sum(-0.5 * z * z - jnp.log(deviation) - 0.5 * math.log(2 * math.pi))

    def entropy(self, outputs: Array) -> Array:
        """Σ log σ + ½ log 2πe."""
        _, deviation = self._split(outputs)
        return jnp.sum(jnp.log(deviation) + 0.5 * math.log(2 * math.pi * math.e))

    def parameters(self, outputs: Array) -> Array:
        """The means, then the standard deviations."""
        return jnp.concatenate(self._split(outputs))

    def features(self, action: Array, outputs: int) -> Array:
        """The numbers themselves, within ±3."""
        return jnp.clip(action, -3.0, 3.0)
