"""The T-maze: a cue at the start, a corridor, and a junction where the cue says which way to turn."""

from typing import Any

import gymnasium as gym
import numpy as np

UP, DOWN, CORRIDOR, JUNCTION = range(4)
FORWARD = 2


class TMazeEnv(gym.Env[np.ndarray, np.int64]):
    """A T-maze of adjustable length, after Bakker (2002).

    The first state shows the cue, up or down; then come ``length`` states of corridor, all alike, and the junction. The
    episode ends there, with reward 1 for turning as the cue said and −1 otherwise. Without memory the return is 0 on
    average; the best is 1.

    In the passive maze (Ni et al. 2023) every action leads on until the junction, so that only memory is asked for, and
    there are two actions. In the active one there is a third, forward, the only one that leads on; any other costs
    0.1 and stays, and so does forward at the junction.

    Example:
        >>> env = TMazeEnv(length=1)
        >>> observation, _ = env.reset(seed=0)
        >>> for _ in range(3):
        ...     print(*observation.astype(int), sep="")
        ...     observation, reward, terminated, truncated, _ = env.step(int(env.cue))
        0100
        0010
        0001
        >>> reward, terminated
        (1.0, True)

    Args:
        length: states of corridor between the cue and the junction.
        passive: whether every action leads on.
        oracle: whether the junction shows the cue as well: the control for which no memory is needed.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012 (Gymnasium's own attribute)

    def __init__(self, length: int = 10, passive: bool = True, oracle: bool = False, render_mode: str | None = None):
        if not isinstance(length, int) or isinstance(length, bool) or length < 0:
            raise ValueError(f"length={length!r} must be an integer of at least 0")
        if render_mode not in (None, "ansi"):
            raise ValueError(f"render_mode={render_mode!r} must be None or 'ansi'")
        self.length, self.passive, self.oracle, self.render_mode = length, passive, oracle, render_mode
        self.observation_space = gym.spaces.Box(0.0, 1.0, (4,), np.float32)
        self.action_space = gym.spaces.Discrete(2 if passive else 3)
        self.cue, self.position = 0, -1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Begin an episode with a fair cue."""
        super().reset(seed=seed)
        self.cue, self.position = int(self.np_random.integers(2)), 0
        return self._observe(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Take one action."""
        if not 0 <= self.position <= self.length + 1:
            raise gym.error.ResetNeeded("no episode is under way: call reset() first")
        if not 0 <= action < self.action_space.n:  # type: ignore[attr-defined]
            raise ValueError(f"action={action} must be at least 0 and below {self.action_space}")
        at_junction = self.position == self.length + 1
        if at_junction and action != FORWARD:
            self.position += 1
            return self._observe(), 1.0 if action == self.cue else -1.0, True, False, {}
        if at_junction or (not self.passive and action != FORWARD):
            return self._observe(), -0.1, False, False, {}
        self.position += 1
        return self._observe(), 0.0, False, False, {}

    def render(self) -> str | None:
        """The maze as a line: the cue, the corridor, the junction; the agent's place in brackets."""
        if self.render_mode is None:
            return None
        cells = ["^v"[self.cue], *"." * self.length, "T"]
        return "".join(f"[{c}]" if k == self.position else c for k, c in enumerate(cells))

    def _observe(self) -> np.ndarray:
        observation = np.zeros(4, np.float32)
        if self.position == 0:
            observation[self.cue] = 1.0
        elif self.position <= self.length:
            observation[CORRIDOR] = 1.0
        elif self.position == self.length + 1:
            observation[JUNCTION] = 1.0
            if self.oracle:
                observation[self.cue] = 1.0
        return observation
