"""A JAX environment played from Python: what ``recollect train`` and ``Learner`` take."""

import functools
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import jax
import numpy as np

from recollect import prng
from recollect.envs.base import Environment


@functools.lru_cache(maxsize=64)
def _compiled(env: Environment[Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Reset and step, which take the words of an episode's key; the same for equal environments."""

    def reset(words: jax.Array) -> Any:
        return env.reset(jax.random.wrap_key_data(words, impl=prng.IMPL))

    def step(state: Any, action: jax.Array, words: jax.Array, t: jax.Array) -> Any:
        return env.step(state, action, prng.at(jax.random.wrap_key_data(words, impl=prng.IMPL), t, 0))

    return jax.jit(reset), jax.jit(step)


class JaxEnv(gym.Env[np.ndarray, np.int64]):
    """Any JAX environment for Gymnasium: each step is one compiled call.

    The call costs more than most environments' arithmetic: to train many runs, give the JAX environment itself to
    ``recollect.train``.

    >>> from recollect.envs.t_maze import TMaze
    >>> env = JaxEnv(TMaze(length=1))
    >>> observation, _ = env.reset(seed=0)
    >>> observation.shape, env.action_space
    ((4,), Discrete(2))
    """

    metadata = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own attribute)

    def __init__(self, rules: Environment[Any]):
        self.rules = rules
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (rules.observation_size,), np.float32)
        self.action_space = gym.spaces.Discrete(rules.num_actions)
        self._reset, self._step = _compiled(rules)
        self._state: Any = None
        self._words, self._t = np.zeros(4, np.uint32), 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Begin an episode, with a key from Gymnasium's generator."""
        super().reset(seed=seed)
        self._words = np.zeros(4, np.uint32)
        self._words[:2] = self.np_random.integers(2**32, size=2, dtype=np.uint32)
        self._state, observation = self._reset(self._words)
        self._t = 1  # the place of the key at 0 is the reset's
        return np.asarray(observation), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Take one action."""
        if self._state is None:
            raise gym.error.ResetNeeded("no episode is under way: call reset() first")
        if not self.action_space.contains(action):
            raise ValueError(f"action={action} must be at least 0 and below {self.rules.num_actions}")
        self._state, seen = self._step(self._state, np.int32(action), self._words, np.uint32(self._t))
        self._t += 1
        observation, reward, terminated, truncated = map(np.asarray, seen)
        return observation, float(reward), bool(terminated), bool(truncated), {}
