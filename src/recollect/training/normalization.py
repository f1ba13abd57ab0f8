"""Observations and rewards on a common scale, from running statistics of what was seen so far."""

from typing import TYPE_CHECKING, Any

import numpy as np

from recollect.errors import FileError
from recollect.training import arguments

if TYPE_CHECKING:
    from recollect.training.moments import Moments

LIMIT = 10.0
"""Normalised numbers are cut to ±10: one outlier early on, when little is known, must not throw the networks."""


class Normalizer:
    """What a learner does to observations and rewards before its agent sees them.

    Observations: minus the mean, over the standard deviation. Rewards: over the standard deviation of the discounted
    return, so that values are of the order of 1; their sign and their zero stay. ``alone``: each copy is an agent of
    its own, and what it sees has nothing to do with the others'.
    """

    def __init__(self, size: int, copies: int, observations: bool, rewards: bool, discount: float, alone: bool = False):
        observations = arguments.flag("normalize_observations", observations)
        rewards = arguments.flag("normalize_rewards", rewards)
        self.observations, self.rewards = None, None
        if observations or rewards:
            from recollect.training.moments import Moments

            own = range(copies if alone else 1)
            self.observations = [Moments(size) for _ in own] if observations else None
            self.rewards = [Moments(1) for _ in own] if rewards else None
        self.discount, self.returns = discount, np.zeros(copies)

    def observe(self, vector: np.ndarray, copy: int, learn: bool = True) -> None:
        """Normalise one copy's observation in place; ``learn``: let it count."""
        if self.observations is not None:
            moments = self.observations[copy % len(self.observations)]
            if learn:
                moments.add(vector)
            moments.scale(vector)

    def reward(self, reward: float, copy: int, over: bool) -> float:
        """The scaled reward of one copy's step; ``over``: whether its episode ended with it."""
        if self.rewards is None:
            return reward
        self.returns[copy] = self.returns[copy] * self.discount + reward
        moments = self.rewards[copy % len(self.rewards)]
        moments.add(self.returns[copy : copy + 1])
        if over:
            self.returns[copy] = 0.0
        return self.scaled(reward, copy)

    def scaled(self, reward: float, copy: int) -> float:
        """The reward of one copy's step by what is known so far."""
        if self.rewards is None:
            return reward
        deviation = self.rewards[copy % len(self.rewards)].deviation()[0]
        return float(np.clip(reward / deviation, -LIMIT, LIMIT))

    def state(self) -> dict[str, np.ndarray]:
        """Everything, as arrays."""
        found = {"returns": self.returns.copy()}
        for name, moments in self._moments().items():
            found |= {f"{name}.count": np.array(moments.count, np.int64)}
            found |= {f"{name}.mean": moments.mean.copy(), f"{name}.squares": moments.squares.copy()}
        return found

    def restore(self, arrays: dict[str, Any]) -> None:
        """Go back to what ``state`` gave; numbers that no statistics have are a ``FileError``."""
        returns = np.array(arrays["returns"], float)
        if not np.isfinite(returns).all():
            raise FileError("the normaliser is not valid: returns that are not finite")
        found = {}
        for name in self._moments():
            count, mean, squares = (np.array(arrays[f"{name}.{part}"]) for part in ("count", "mean", "squares"))
            if count < 0 or not np.isfinite(mean).all() or not (np.isfinite(squares) & (squares >= 0)).all():
                raise FileError(f"the normaliser is not valid: counts or moments of {name} that cannot be")
            found[name] = int(count), mean, squares
        self.returns = returns
        for name, moments in self._moments().items():
            moments.count, moments.mean, moments.squares = found[name]

    def _moments(self) -> "dict[str, Moments]":
        """All there are, by name; the first of a kind is called as when it is the only one."""
        kinds = {"observations": self.observations or (), "rewards": self.rewards or ()}
        return {f"{kind}{k or ''}": own for kind, all_ in kinds.items() for k, own in enumerate(all_)}
