"""Observations and rewards on a common scale, from running statistics of what was seen so far."""

from typing import Any

import numpy as np

LIMIT = 10.0
"""Normalised numbers are cut to ±10: one outlier early on, when little is known, must not throw the networks."""


class Moments:
    """Running mean and variance of vectors (Welford)."""

    def __init__(self, size: int):
        self.count, self.mean, self.squares = 0, np.zeros(size), np.zeros(size)

    def add(self, x: np.ndarray) -> None:
        """Take in one vector."""
        self.count += 1
        away = x - self.mean
        self.mean += away / self.count
        self.squares += away * (x - self.mean)

    def deviation(self) -> np.ndarray:
        """Standard deviation; 1 where nothing varies yet."""
        variance = self.squares / max(self.count - 1, 1)
        return np.where(variance > 1e-12, np.sqrt(variance), 1.0)


class Normalizer:
    """What a learner does to observations and rewards before its agent sees them.

    Observations: minus the mean, over the standard deviation. Rewards: over the standard deviation of the discounted
    return, so that values are of the order of 1; their sign and their zero stay. ``alone``: each copy is an agent of
    its own, whose rewards have nothing to do with the others'.
    """

    def __init__(self, size: int, copies: int, observations: bool, rewards: bool, discount: float, alone: bool = False):
        self.observations = Moments(size) if observations else None
        self.rewards = [Moments(1) for _ in range(copies if alone else 1)] if rewards else None
        self.discount, self.returns = discount, np.zeros(copies)

    def observe(self, vector: np.ndarray, learn: bool = True) -> None:
        """Normalise an observation in place; ``learn``: let it count."""
        if self.observations is not None:
            if learn:
                self.observations.add(vector)
            scaled = (vector - self.observations.mean) / self.observations.deviation()
            vector[:] = np.clip(scaled, -LIMIT, LIMIT)

    def reward(self, reward: float, copy: int, over: bool) -> float:
        """The scaled reward of one copy's step; ``over``: whether its episode ended with it."""
        if self.rewards is None:
            return reward
        self.returns[copy] = self.returns[copy] * self.discount + reward
        moments = self.rewards[copy % len(self.rewards)]
        moments.add(self.returns[copy : copy + 1])
        if over:
            self.returns[copy] = 0.0
        return float(np.clip(reward / moments.deviation()[0], -LIMIT, LIMIT))

    def state(self) -> dict[str, np.ndarray]:
        """Everything, as arrays."""
        found = {"returns": self.returns.copy()}
        for name, moments in self._moments().items():
            found |= {f"{name}.count": np.array(moments.count, np.int64)}
            found |= {f"{name}.mean": moments.mean.copy(), f"{name}.squares": moments.squares.copy()}
        return found

    def restore(self, arrays: dict[str, Any]) -> None:
        """Go back to what ``state`` gave."""
        self.returns = np.array(arrays["returns"], float)
        for name, moments in self._moments().items():
            moments.count = int(arrays[f"{name}.count"])
            moments.mean = np.array(arrays[f"{name}.mean"])
            moments.squares = np.array(arrays[f"{name}.squares"])

    def _moments(self) -> dict[str, Moments]:
        """All there are, by name; the first of the rewards is called as when it is the only one."""
        found = {} if self.observations is None else {"observations": self.observations}
        for k, moments in enumerate(self.rewards or ()):
            found["rewards" if k == 0 else f"rewards{k}"] = moments
        return found
