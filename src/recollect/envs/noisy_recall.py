"""Recall in noise: one moment of an episode counts, every other is noise, and no two observations are ever equal."""

from typing import Any

import gymnasium as gym
import numpy as np

from recollect.envs.base import check_sizes

SIGNAL, MARK, ASKED, NOISE = range(4)  # what the elements of an observation are
RIGHT, WRONG = 1.0, -1.0  # rewards


class NoisyRecallEnv(gym.Env[np.ndarray, np.int64]):
    """At one moment, which is marked, the signal is the answer; at the end it is asked for.

    The signal is −1 or 1 when it is marked, and a standard normal number at every other time, as the last element of
    the observation always is. After ``length`` steps the third element asks: the episode ends with the action there, a
    reward of 1 for the sign of the marked signal (0 for −1, 1 for 1) and −1 for the other. Without memory the return
    is 0 on average; the best is 1. A memory of few states has to learn which one to keep, as all of them are new.

    Example:
        >>> env = NoisyRecallEnv(length=1)
        >>> observation, _ = env.reset(seed=0)
        >>> observation[[SIGNAL, MARK, ASKED]].tolist()
        [1.0, 1.0, 0.0]
        >>> env.step(0)[0][[MARK, ASKED]].tolist(), env.step(1)[1:3]
        ([0.0, 1.0], (1.0, True))

    Args:
        length: steps before the question.
        anywhere: whether the mark comes at any of these steps, rather than at the first.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own attribute)

    def __init__(self, length: int = 20, anywhere: bool = False):
        self.length, self.anywhere = length, bool(anywhere)
        check_sizes(self, length=1)
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.answer, self.marked, self.time = 0, 0, -1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Begin an episode with a fair answer."""
        super().reset(seed=seed)
        self.answer = int(self.np_random.integers(2))
        self.marked = int(self.np_random.integers(self.length)) if self.anywhere else 0
        self.time = 0
        return self._observe(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Take one action; only that at the question counts."""
        if not 0 <= self.time <= self.length:
            raise gym.error.ResetNeeded("no episode is under way: call reset() first")
        if not 0 <= action < 2:
            raise ValueError(f"action={action} must be 0 or 1")
        asked = self.time == self.length
        self.time += 1
        reward = 0.0 if not asked else RIGHT if action == self.answer else WRONG
        return self._observe(), reward, asked, False, {}

    def _observe(self) -> np.ndarray:
        observation = np.zeros(4, np.float32)
        observation[[SIGNAL, NOISE]] = self.np_random.standard_normal(2)
        if self.time == self.marked:
            observation[SIGNAL] = 2 * self.answer - 1
        observation[MARK], observation[ASKED] = self.time == self.marked, self.time == self.length
        return observation
