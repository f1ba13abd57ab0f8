"""Episodes strung into one life: where one would end, the next begins, and nothing says so."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from recollect.envs.base import Environment, TimeStep


@dataclasses.dataclass(frozen=True)
class Continuing:
    """Any environment without ends: the step that would end an episode pays, and shows the next one's first state.

    >>> from recollect.envs.secret_informant import SecretInformant
    >>> env = Continuing(SecretInformant(length=2))
    >>> env.observation_size, env.num_actions
    (8, 3)
    """

    base: Environment[Any]

    @property
    def observation_size(self) -> int:
        """That of the episodes."""
        return self.base.observation_size

    @property
    def num_actions(self) -> int:
        """That of the episodes."""
        return self.base.num_actions

    def reset(self, key: jax.Array) -> tuple[Any, jax.Array]:
        """Begin the life."""
        return self.base.reset(key)

    def step(self, state: Any, action: jax.Array, key: jax.Array) -> tuple[Any, TimeStep]:
        """Take one action."""
        key_step, key_reset = jax.random.split(key)
        state, timestep = self.base.step(state, action, key_step)
        over = timestep.terminated | timestep.truncated
        fresh, first = self.base.reset(key_reset)
        state = jax.tree.map(lambda new, old: jnp.where(over, new, old), fresh, state)
        never = jnp.zeros_like(over)
        return state, TimeStep(jnp.where(over, first, timestep.observation), timestep.reward, never, never)
