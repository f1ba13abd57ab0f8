"""bsuite's experiments as Gymnasium environments; bsuite itself comes with the extra ``tasks``."""

import contextlib
import copy
import io
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np

from recollect.errors import RecollectError


def load(bsuite_id: str) -> Any:
    """Bsuite's own environment for an id such as ``memory_len/12``."""
    try:
        import bsuite
    except ImportError as error:
        raise RecollectError(f"bsuite/{bsuite_id} needs bsuite: pip install 'recollect[tasks]'") from error
    with contextlib.redirect_stdout(io.StringIO()):  # it announces what it loads
        try:
            return bsuite.load_from_id(bsuite_id)
        except (KeyError, ValueError, AttributeError, NotImplementedError) as error:
            raise RecollectError(f"bsuite has no experiment {bsuite_id!r}") from error


class BsuiteEnv(gym.Env[np.ndarray, np.int64]):
    """One bsuite experiment; its rewards, observations and counts of mistakes are bsuite's own.

    ``reset(seed=...)`` seeds the experiment's random numbers, which bsuite itself seeds only when it is made.
    """

    def __init__(self, bsuite_id: str = "memory_len/0"):
        self.bsuite_id, self.inner = bsuite_id, load(bsuite_id)
        spec, actions = self.inner.observation_spec(), self.inner.action_spec()
        low = np.broadcast_to(getattr(spec, "minimum", -np.inf), spec.shape)
        high = np.broadcast_to(getattr(spec, "maximum", np.inf), spec.shape)
        self.observation_space = gym.spaces.Box(low.astype(spec.dtype), high.astype(spec.dtype), dtype=spec.dtype)
        self.action_space = gym.spaces.Discrete(actions.num_values)
        self._numbers = list(self._own_numbers())

    def _own_numbers(self) -> Iterator[tuple[np.random.RandomState | None, bool]]:
        """The random numbers of each layer, its own from now on, and whether the layer wraps another.

        They are seeded again at every reset, which takes a hundredth of the time that making them takes.
        """
        layer = self.inner
        while layer is not None:
            inner = vars(layer).get("_env")
            if "_rng" in vars(layer):
                layer._rng = copy.deepcopy(layer._rng)
            yield vars(layer).get("_rng"), inner is not None
            layer = inner

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Begin an episode."""
        super().reset(seed=seed)
        if seed is not None:
            self._seed(seed % 2**32)
        return self.inner.reset().observation, {}

    def _seed(self, seed: int) -> None:
        """Of the experiment and of what is wrapped around it, noise on rewards for instance."""
        for depth, (numbers, wraps) in enumerate(self._numbers):
            if numbers is not None:
                numbers.seed([seed, depth] if wraps else seed)

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Take one action; where bsuite gives a discount of 1 at the last step, the episode was cut."""
        timestep = self.inner.step(int(action))
        over = timestep.last()
        cut = bool(over and timestep.discount)
        return timestep.observation, float(timestep.reward), bool(over and not cut), cut, {}

    def info(self) -> dict[str, float]:
        """What bsuite has counted so far, such as ``total_perfect``."""
        return dict(self.inner.bsuite_info())
