"""What the agent takes for its state when the raw observation is not it: fixed random encodings of observations.

Nothing here is learned: a wide random layer keeps what it is given, so the four networks can learn on top of it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

ENCODERS = ("raw", "projection", "recurrent")

ECHO = 0.8  # spread of the recurrent weights' eigenvalues: below 1, so that the past fades


class Encoder(NamedTuple):
    """W ↔ ``into`` [units, observation]; U ↔ ``back`` [units, units], h ↔ ``hidden`` [units], None if without."""

    into: Array
    back: Array | None
    hidden: Array | None


def init_encoder(kind: str, key: Array, observation_size: int, units: int) -> Encoder | None:
    """Random weights, the hidden state at 0; None for "raw"."""
    if kind == "raw":
        return None
    key_into, key_back = jax.random.split(key)
    into = jax.random.normal(key_into, (units, observation_size))
    if kind == "projection":
        return Encoder(into, None, None)
    return Encoder(into, jax.random.normal(key_back, (units, units)) * (ECHO / units**0.5), jnp.zeros(units))


def encode(encoder: Encoder | None, o: Array) -> tuple[Encoder | None, Array]:
    r"""The encoder after the observation o, and the state S.

    raw: S = o. projection: :math:`S = \tanh(W o)`. recurrent: S = (o, h) with :math:`h \leftarrow \tanh(W o + U h)`,
    an echo state network, so that S tells what came before o too.
    """
    if encoder is None:
        return None, o
    x = jnp.sum(encoder.into * o, axis=-1)
    if encoder.back is None or encoder.hidden is None:
        return encoder, jnp.tanh(x)
    h = jnp.tanh(x + jnp.sum(encoder.back * encoder.hidden, axis=-1))
    return encoder._replace(hidden=h), jnp.concatenate([o, h])


def forget(encoder: Encoder | None, when: Array) -> Encoder | None:
    """The encoder with its hidden state back at 0 where ``when`` is true."""
    if encoder is None or encoder.hidden is None:
        return encoder
    return encoder._replace(hidden=jnp.where(when, 0.0, encoder.hidden))
