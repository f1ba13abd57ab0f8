"""What the agent learns from one step: unbatched functions; the caller maps them."""

import jax
import jax.numpy as jnp
from jax import Array


def td_error(r_t: Array, discount_t: Array | float, v_t: Array, v_tm1: Array) -> Array:
    """δ = r + γ V(S') − V(S), γ 0 at the end of an episode.

    Paper: section 3, the TD error δ_t
    """
    return r_t + discount_t * v_t - v_tm1


def draw(logits: Array, u: Array) -> Array:
    """The index that a uniform number in [0, 1) draws from the softmax of ``logits``, by inversion."""
    shares = jnp.cumsum(jnp.exp(logits - jnp.max(logits)))
    return jnp.sum(u * shares[-1] >= shares[:-1], dtype=jnp.int32)


def trace(z: Array, gradient: Array, decay: Array | float) -> Array:
    """The accumulating eligibility trace z ← γλ z + ∇, with γλ ↔ ``decay``."""
    return decay * z + gradient


def entropy(logits: Array) -> Array:
    """Entropy of the softmax of ``logits``, in nats."""
    log_p = jax.nn.log_softmax(logits)
    return -jnp.sum(jnp.exp(log_p) * log_p)


def all_finite(tree) -> Array:
    """Whether every number in a pytree is finite."""
    return jnp.all(jnp.array([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]))
