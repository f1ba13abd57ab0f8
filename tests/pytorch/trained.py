"""Agents whose parameters are away from their start, for PyTorch's modules to be made from."""

import functools

import jax
import jax.numpy as jnp

from recollect import EpisodicActorCritic, GeneralActorCritic, prng
from recollect.agents.distributions import MultiCategorical
from recollect.agents.persistence import Tried
from recollect.agents.scaling import Moments

EPISODIC = {
    "plain": EpisodicActorCritic(memory_size=3),
    "all": EpisodicActorCritic(
        memory_size=4, products=5, distinct=True, critic_output="linear", activation="relu", temperature="softplus"
    ),
    "uniform": EpisodicActorCritic(memory_size=2, memory="uniform", activation="sigmoid", forgetting=0.1),
}


@functools.partial(jax.jit, static_argnums=(1, 2))
def drawn_from(keys, count, dtype=jnp.float32):
    """So many random numbers of each key, in one call."""
    return jax.vmap(lambda key: jax.random.uniform(key, (count,), dtype))(keys)


@functools.cache
def started(agent, size=4, actions=3):
    """A state of the agent, all of whose layers are other than 0."""
    outputs = agent.actions.outputs if isinstance(agent.actions, MultiCategorical) else actions

    @jax.jit
    def made():
        state = agent.init(prng.key(1), size, outputs)
        noisy = jax.tree.map(lambda p: p + 0.3 * jax.random.normal(prng.key(2), p.shape), state.params)
        return state._replace(params=noisy)

    state = made()
    if isinstance(agent, GeneralActorCritic):
        seen = Moments(jnp.linspace(-1.0, 1.0, size), jnp.linspace(0.0, 3.0, size), jnp.array(9.0))
        # Of the two ways, such that numbers are kept in about half of the episodes.
        seen_of_ways = (jnp.array(x) for x in ([9.0, 5.0], [1.0, 1.1], [0.5, 0.5], 1.0, 9.0, False))
        tried = Tried(*seen_of_ways)
        state = state._replace(scales=state.scales._replace(observation=seen), tried=tried)
    return state
