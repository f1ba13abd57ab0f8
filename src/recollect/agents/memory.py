"""Reading, writing and crediting the memory: one function an equation, unbatched; the caller maps them."""

import jax
import jax.numpy as jnp
from jax import Array

from recollect.agents import td
from recollect.agents.base import check_count
from recollect.reservoir import kernel

LAWS = {"reservoir": kernel.PRODUCT, "uniform": kernel.UNIFORM, "fifo": kernel.FIFO, "none": kernel.NONE}
"""Which states a memory keeps, by the names that agents know the laws by."""

LARGEST = 2**32  # bytes


def check_size(memory_size: int, law: str) -> None:
    """Refuse a number of states that is none, or whose law needs more room than any agent should take."""
    check_count("memory_size", memory_size)
    need = 4 * int(memory_size) ** 2
    if law == "reservoir" and need > LARGEST:
        raise ValueError(f"memory_size={memory_size} needs {need:,} bytes per run (4 n²), over {LARGEST:,}")


def early_key(key: Array) -> Array:
    """The key of a write that comes before reading, from the one that the decision is drawn with."""
    return jax.random.fold_in(key, 0)


def query_logits(q: Array, items: Array, filled: Array, tau: Array) -> Array:
    """⟨q(S_t), S_i⟩/τ for each stored state; −inf for empty slots.

    Symbols: q(S_t) ↔ ``q`` [s], S_{t_i} ↔ ``items`` [n, s], τ ↔ ``tau``.

    Paper: Eq. (1)
    """
    return jnp.where(filled, jnp.sum(items * q, axis=-1) / tau, -jnp.inf)


def log_query_probability(logits: Array, chosen: Array) -> Array:
    """Log Q(S_i | M_t) of the stored state that was recalled; 0 while the memory is empty.

    Paper: Eq. (1)
    """
    empty = jnp.all(logits == -jnp.inf)
    safe = jnp.where(empty, jnp.zeros_like(logits), logits)
    return jnp.where(empty, 0.0, jax.nn.log_softmax(safe)[chosen])


def query_entropy(logits: Array) -> Array:
    """−Σ Q log Q over the stored states; 0 while the memory is empty."""
    stored = logits > -jnp.inf
    safe = jnp.where(jnp.any(stored), jnp.where(stored, logits, -1e30), 0.0)  # −inf would make gradients NaN
    log_q = jax.nn.log_softmax(safe)
    return jnp.where(jnp.any(stored), -jnp.sum(jnp.where(stored, jnp.exp(log_q) * log_q, 0.0)), 0.0)


def measured_entropy(logits: Array) -> Array:
    """``query_entropy`` for looking at: NaN while the memory is empty."""
    return jnp.where(jnp.any(logits > -jnp.inf), query_entropy(logits), jnp.nan)


def query_probabilities(logits: Array) -> Array:
    """Q(S_i | M_t) of every slot; 0 where it is empty.

    Paper: Eq. (1)
    """
    stored = logits > -jnp.inf
    return jnp.where(jnp.any(stored), jax.nn.softmax(jnp.where(stored, logits, -1e30)), 0.0)


def recall(logits: Array, items: Array, u: Array) -> tuple[Array, Array]:
    """The recalled state m_t that a uniform number draws: its slot, and the state (zeros while the memory is empty).

    Paper: Eq. (1)
    """
    empty = jnp.all(logits == -jnp.inf)
    chosen = td.draw(jnp.where(empty, jnp.zeros_like(logits), logits), u)
    return chosen, jnp.where(empty, jnp.zeros_like(items[0]), items[chosen])


def log_write_weight(output: Array) -> Array:
    """Log w(S_t), from the write network's output before its sigmoid; finite however small w is."""
    return jax.nn.log_sigmoid(output)


def credit(log_weight_now: Array, log_weight_stored: Array, most: Array | float = jnp.inf) -> Array:
    """w(S_i; θ)/w_i, whose gradient times δ_t is G_{i,t} ∂w(S_i)/∂θ with G_{i,t} = δ_t/w_i.

    Symbols: w(S_i; θ) ↔ ``exp(log_weight_now)`` under the current parameters, w_i ↔ ``exp(log_weight_stored)``, the
    weight from when S_i was written. The quotient is taken in logs: δ/w alone overflows once w does not fit its type.
    ``most`` bounds the quotient, not its gradient by log w: a weight that has grown since S_i was written would get a
    step as much larger, and grow again. The paper has no bound.

    Paper: Eq. (6), Eq. (9), Eq. (10)
    """
    quotient = jnp.minimum(jnp.exp(jax.lax.stop_gradient(log_weight_now - log_weight_stored)), most)
    return quotient * (1.0 + log_weight_now - jax.lax.stop_gradient(log_weight_now))
