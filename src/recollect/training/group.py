"""Runs of one agent, a seed each, under way on an engine: what ``train_iter`` needs of it."""

import abc
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from recollect.training.reports import Result


class Limits(NamedTuple):
    """How far runs go."""

    episodes: int
    bin_size: int  # episodes
    max_episode_length: int
    max_steps: int


class Group(abc.ABC):
    """Runs under way."""

    @property
    @abc.abstractmethod
    def steps(self) -> np.ndarray:
        """[seed]: steps taken."""

    @property
    @abc.abstractmethod
    def episodes(self) -> np.ndarray:
        """[seed]: episodes finished."""

    @property
    @abc.abstractmethod
    def faults(self) -> np.ndarray:
        """[seed]: 0, or the first step with a reward or observation that is not finite; minus it for an update."""

    @property
    @abc.abstractmethod
    def taken(self) -> int:
        """Steps that compiled calls have made of the longest run."""

    @property
    @abc.abstractmethod
    def over(self) -> bool:
        """Whether every run has its episodes or its steps."""

    @abc.abstractmethod
    def advance(self) -> Sequence[dict[str, Any]]:
        """One compiled call; gives the bins that it completed, as ``Progress.new_bins`` has them."""

    @abc.abstractmethod
    def recent_return(self) -> float:
        """Mean over runs of their last complete bin; NaN before the first."""

    @abc.abstractmethod
    def snapshot(self) -> dict[str, np.ndarray]:
        """All that is needed to continue, by name."""

    @abc.abstractmethod
    def result(self) -> Result:
        """What came of it."""
