"""gymnax's environments, by its own rules: one step without its restart at the end of an episode."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from recollect.envs.adapters import Adapted, as_written, settled
from recollect.envs.base import TimeStep
from recollect.envs.spaces import SpaceError, scaling
from recollect.errors import RecollectError

Encoder = Callable[[Any], jax.Array]


def check(env: Any) -> None:
    """Refuse a release that does not tell terminated from truncated, and actions that are not discrete."""
    if not hasattr(env, "is_truncated"):
        raise RecollectError(
            f"{type(env).__name__} is of a gymnax before 1.0, which does not tell terminated from truncated: "
            "pip install 'recollect[jax-envs]'"
        )
    space = env.action_space(env.default_params)
    if not hasattr(space, "n"):
        raise SpaceError(f"{env.name}: {space} actions are not supported in JAX environments, only Discrete")


class GymnaxEnvironment(Adapted):
    """An environment of gymnax; made by `recollect.envs.adapt`."""

    @property
    def observation_size(self) -> int:
        """Numbers in an observation."""
        return self._encoder[0]

    @property
    def num_actions(self) -> int:
        """Actions of its discrete space."""
        return int(self.original.action_space(self.params).n)

    @functools.cached_property
    def _encoder(self) -> tuple[int, Encoder]:
        return _vector(self.original.observation_space(self.params), "observation space")

    @property
    def _arrays(self) -> Any:
        """The parameters as gymnax's compiled ``step`` has them: numbers of 32 bits, not Python's of 64."""
        return jax.tree.map(jnp.asarray, self.params)

    def reset(self, key: jax.Array) -> tuple[Any, jax.Array]:
        """Begin an episode."""
        with as_written():
            observation, state = self.original.reset_env(key, self._arrays)
        return settled(state), self._encoder[1](observation)

    def step(self, state: Any, action: jax.Array, key: jax.Array) -> tuple[Any, TimeStep]:
        """What gymnax's own ``step`` does with the same key before it restarts."""
        key_step, _ = jax.random.split(key)
        params = self._arrays
        with as_written():
            observation, state, reward, terminated, _ = self.original.step_env(key_step, state, action, params)
            truncated = self.original.is_truncated(state, params)
        seen = self._encoder[1](observation)
        flags = (jnp.asarray(terminated, bool), jnp.asarray(truncated, bool))
        return settled(state), TimeStep(seen, jnp.asarray(reward, jnp.float32), *flags)


def _vector(space: Any, place: str) -> tuple[int, Encoder]:
    """Length of the vector that observations of a gymnax space become, and what makes them so."""
    from gymnax.environments import spaces  # pyright: ignore[reportMissingImports]

    if isinstance(space, spaces.Discrete):
        return space.n, lambda x: jax.nn.one_hot(x, space.n)
    if isinstance(space, spaces.Box):
        return _box(space)
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        named = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        parts = [(name, *_vector(part, f"{place}, {name!r}")) for name, part in named]

        def joined(x: Any) -> jax.Array:
            return jnp.concatenate([encode(_part(x, name)) for name, _, encode in parts])

        return sum(size for _, size, _ in parts), joined
    raise SpaceError(f"{place}: {type(space).__name__} observations are not supported ({space})")


def _part(observation: Any, name: Any) -> Any:
    by_attribute = isinstance(name, str) and hasattr(observation, name)
    return getattr(observation, name) if by_attribute else observation[name]


def _box(space: Any) -> tuple[int, Encoder]:
    shape = tuple(np.atleast_1d(space.shape)) if space.shape != () else ()
    size = math.prod(int(n) for n in shape)
    if not jnp.issubdtype(space.dtype, jnp.integer):
        return size, lambda x: jnp.asarray(x, jnp.float32).reshape(size)
    low, high = (np.broadcast_to(np.asarray(x), shape).ravel() for x in (space.low, space.high))
    base, span = (part.astype(np.float32) for part in scaling(low, high))
    if (base == 0).all() and (span == 1).all():
        return size, lambda x: jnp.asarray(x, jnp.float32).reshape(size)
    return size, lambda x: (jnp.asarray(x, jnp.float32).reshape(size) - base) / span
