"""A small convolutional network from pictures to the vectors that the agent's other networks and its memory work on."""

import dataclasses
import itertools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array


class Kernel(NamedTuple):
    """A convolution; ``weight`` [height, width, in, out], ``bias`` [out]."""

    weight: Array
    bias: Array


@dataclasses.dataclass(frozen=True)
class Convolution:
    """Convolutions of 3 by 3 with rectified units, then one layer of ``features`` tanh units.

    The first convolutions halve the picture until a side is 8 or less; one more looks at that. What the memory holds
    and is asked by are the features, not the picture.

    >>> Convolution((7, 7, 20)).strides, Convolution((84, 84, 3)).strides
    ((1,), (2, 2, 2, 2, 1))

    Args:
        shape: height, width and channels of the picture, which comes flattened.
        features: length of the vector that comes out.
        channels: of every convolution.
    """

    shape: tuple[int, int, int]
    features: int = 32
    channels: int = 16

    def __post_init__(self) -> None:
        if len(self.shape) != 3 or min(self.shape) < 1:
            raise ValueError(f"shape={self.shape} must be (height, width, channels), each at least 1")
        if self.features < 1 or self.channels < 1:
            raise ValueError(f"features={self.features} and channels={self.channels} must be at least 1")

    @property
    def strides(self) -> tuple[int, ...]:
        """Of each convolution."""
        side, strides = max(self.shape[:2]), []
        while side > 8:
            side = -(-side // 2)
            strides.append(2)
        return (*strides, 1)

    def _sizes(self) -> list[int]:
        """Channels into and out of each convolution, and what the last layer takes."""
        height, width, into = self.shape
        for stride in self.strides:
            height, width = -(-height // stride), -(-width // stride)
        return [into, *[self.channels] * len(self.strides), height * width * self.channels]

    def init(self, key: Array) -> tuple[Kernel, ...]:
        """Weights N(0, 2/fan_in) in the convolutions, N(0, 1/fan_in) in the last layer; biases 0."""
        *sizes, last = self._sizes()
        keys = jax.random.split(key, len(self.strides) + 1)
        layers = []
        for k, (into, out) in enumerate(itertools.pairwise(sizes)):
            weight = jax.random.normal(keys[k], (3, 3, into, out)) * math.sqrt(2 / (9 * into))
            layers.append(Kernel(weight, jnp.zeros(out)))
        weight = jax.random.normal(keys[-1], (last, self.features)) / math.sqrt(last)
        return (*layers, Kernel(weight, jnp.zeros(self.features)))

    def apply(self, layers: tuple[Kernel, ...], x: Array) -> Array:
        """The features of one flattened picture."""
        x = x.reshape(1, *self.shape)
        for layer, stride in zip(layers[:-1], self.strides, strict=True):
            form = ("NHWC", "HWIO", "NHWC")
            x = jax.lax.conv_general_dilated(x, layer.weight, (stride, stride), "SAME", dimension_numbers=form)
            x = jax.nn.relu(x + layer.bias)
        return jnp.tanh(x.reshape(-1) @ layers[-1].weight + layers[-1].bias)
