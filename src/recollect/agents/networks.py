"""The small networks: layers as plain pytrees, initialisers by name, a GRU cell that reads as its equations."""

import dataclasses
import itertools
import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array


class Layer(NamedTuple):
    """An affine map; W ↔ ``weight`` [out, in], b ↔ ``bias`` [out]."""

    weight: Array
    bias: Array


Network = tuple[Layer, ...]


def _normal(key: Array, out: int, into: int) -> Layer:
    return Layer(jax.random.normal(key, (out, into)) / jnp.sqrt(float(into)), jnp.zeros(out))


def _glorot(key: Array, out: int, into: int) -> Layer:
    limit = jnp.sqrt(6.0 / (out + into))
    return Layer(jax.random.uniform(key, (out, into), minval=-limit, maxval=limit), jnp.zeros(out))


def _uniform(key: Array, out: int, into: int) -> Layer:
    key_weight, key_bias = jax.random.split(key)
    limit = 1.0 / jnp.sqrt(float(into))
    return Layer(
        jax.random.uniform(key_weight, (out, into), minval=-limit, maxval=limit),
        jax.random.uniform(key_bias, (out,), minval=-limit, maxval=limit),
    )


INITIALIZERS = {"normal": _normal, "glorot": _glorot, "uniform": _uniform}
"""normal: N(0, 1/fan_in), biases 0. glorot: U(±√(6/(fan_in+fan_out))), biases 0. uniform: U(±1/√fan_in), both."""

ACTIVATIONS = {"tanh": jnp.tanh, "relu": jax.nn.relu, "sigmoid": jax.nn.sigmoid}


def init_network(key: Array, sizes: Sequence[int], initializer: str) -> Network:
    """Layers from ``sizes[0]`` inputs to ``sizes[-1]`` outputs."""
    keys = jax.random.split(key, len(sizes) - 1)
    return tuple(INITIALIZERS[initializer](k, out, into) for k, into, out in zip(keys, sizes, sizes[1:], strict=False))


def scaled(layers: Iterable[Layer], gain: Any) -> Network:
    """The layers with their weights, not their biases, times a factor."""
    return tuple(layer._replace(weight=layer.weight * gain) for layer in layers)


def apply_network(network: Network, x: Array, activation: str) -> Array:
    """The network's output before any output activation."""
    for layer in network[:-1]:
        x = ACTIVATIONS[activation](affine(layer, x))
    return affine(network[-1], x)


@dataclasses.dataclass(frozen=True)
class NormedNetwork:
    """A network whose hidden layers are normalised, so that no input and no growth of a weight drowns the rest.

    Each hidden layer is affine, then brought to mean 0 and variance 1 over its units (without parameters), then
    leaky-rectified; the last layer is affine.

    Args:
        hidden: units of each hidden layer.
    """

    hidden: tuple[int, ...] = (64, 32)

    def __post_init__(self) -> None:
        try:
            hidden = tuple(operator.index(units) for units in self.hidden)
        except TypeError:
            raise ValueError(f"hidden={self.hidden!r} must be whole numbers, such as (64, 32)") from None
        object.__setattr__(self, "hidden", hidden)  # a list or an array cannot be hashed
        if not hidden or min(hidden) < 2:
            raise ValueError(f"hidden={hidden} must name at least one layer, of at least 2 units each")

    def init(self, key: Array, inputs: int, outputs: int, gain: float = 1.0) -> Network:
        """Weights U(±1/√fan_in), biases 0, the last layer's weights times ``gain``."""
        sizes = (inputs, *self.hidden, outputs)
        layers = [
            Layer(jax.random.uniform(k, (out, into), minval=-1.0, maxval=1.0) / math.sqrt(into), jnp.zeros(out))
            for k, (into, out) in zip(jax.random.split(key, len(sizes) - 1), itertools.pairwise(sizes), strict=True)
        ]
        return (*layers[:-1], layers[-1]._replace(weight=gain * layers[-1].weight))

    def apply(self, network: Network, x: Array) -> Array:
        """The outputs for one input."""
        for layer in network[:-1]:
            x = jax.nn.leaky_relu(normalize(affine(layer, x)), 0.01)
        return affine(network[-1], x)


def normalize(h: Array) -> Array:
    """Layer normalisation without parameters: mean 0 and variance 1 over the units."""
    off = h - jnp.mean(h)
    return off * jax.lax.rsqrt(jnp.mean(off * off) + 1e-5)


def affine(layer: Layer, x: Array) -> Array:
    """W x + b, as multiply-and-sum: unlike a matrix product it fuses with what surrounds it."""
    return jnp.sum(layer.weight * x, axis=-1) + layer.bias


class GRU(NamedTuple):
    """A gated recurrent unit (Cho et al. 2014); each gate is an affine map of (input, hidden state)."""

    update: Layer
    reset: Layer
    candidate: Layer


def init_gru(key: Array, inputs: int, units: int, initializer: str) -> GRU:
    """Three gates from ``inputs + units`` to ``units``."""
    return GRU(*(INITIALIZERS[initializer](k, units, inputs + units) for k in jax.random.split(key, 3)))


def apply_gru(gru: GRU, h: Array, x: Array) -> Array:
    """One step: h ← (1 − z) h + z h̃, with z the update gate and h̃ the candidate seen through the reset gate r."""
    xh = jnp.concatenate([x, h])
    z = jax.nn.sigmoid(affine(gru.update, xh))
    r = jax.nn.sigmoid(affine(gru.reset, xh))
    h_tilde = jnp.tanh(affine(gru.candidate, jnp.concatenate([x, r * h])))
    return (1 - z) * h + z * h_tilde
