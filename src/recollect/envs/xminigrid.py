"""xminigrid's environments, MiniGrid's Memory among them: views one-hot, ends told apart by the discount."""

import math
from typing import Any

import jax
import jax.numpy as jnp

from recollect.envs.adapters import Adapted, as_written, settled
from recollect.envs.base import TimeStep
from recollect.envs.spaces import SpaceError


class XMiniGridEnvironment(Adapted):
    """An environment of xminigrid; made by `recollect.envs.adapt`."""

    @property
    def observation_size(self) -> int:
        """A number for each tile and each colour that may be at each place of the view."""
        shape = self.original.observation_shape(self.params)
        if isinstance(shape, dict):
            raise SpaceError(f"observations of several parts are not supported ({shape}): adapt it without its wrapper")
        return math.prod(shape[:2]) * sum(_kinds())

    @property
    def num_actions(self) -> int:
        """MiniGrid's actions."""
        return int(self.original.num_actions(self.params))

    def _observe(self, view: jax.Array) -> jax.Array:
        tiles, colours = _kinds()
        parts = jax.nn.one_hot(view[..., 0], tiles), jax.nn.one_hot(view[..., 1], colours)
        return jnp.concatenate(parts, axis=-1).reshape(self.observation_size)

    def reset(self, key: jax.Array) -> tuple[Any, jax.Array]:
        """Begin an episode."""
        with as_written():
            first = self.original.reset(self.params, key)
        return settled(first), self._observe(first.observation)

    def step(self, state: Any, action: jax.Array, key: jax.Array) -> tuple[Any, TimeStep]:
        """Take one action; chance comes from the key in the state, and ``key`` is unused.

        Where the discount is 0 the goal was reached; a last step with another discount is the limit of steps.
        """
        with as_written():
            state = settled(self.original.step(self.params, state, action))
        terminated = state.discount == 0
        timestep = TimeStep(
            self._observe(state.observation),
            jnp.asarray(state.reward, jnp.float32),
            terminated,
            state.last() & ~terminated,
        )
        return state, timestep


def _kinds() -> tuple[int, int]:
    """How many tiles and colours there are."""
    from xminigrid.core.constants import NUM_COLORS, NUM_TILES  # pyright: ignore[reportMissingImports]

    return NUM_TILES, NUM_COLORS
