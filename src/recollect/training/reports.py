"""What training says: a `Progress` after each compiled call, and a `Result` at the end."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from recollect.engines.choice import Choice


@dataclasses.dataclass(frozen=True)
class Result:
    """What came of training; arrays are [seed, bin, …], NaN where a seed did not get so far.

    ``episodes``: [bin], the episode at which each bin ends. ``returns``, ``lengths``: means over the bin's episodes.
    ``write_weights`` [..., 2]: informative, uninformative. ``query_vectors`` [..., decisions, observation_size].
    ``steps`` [seed]: steps taken. ``finished`` [seed]: whether all episodes were done within ``max_steps``.
    ``agent_states``: the trained states, with a leading axis over seeds. ``engine``: what ran the loop, and
    ``passed_over``: why each faster engine did not (see ``recollect.engines.choice``).
    """

    seeds: tuple[int, ...]
    episodes: np.ndarray
    returns: np.ndarray
    lengths: np.ndarray
    write_weights: np.ndarray
    query_vectors: np.ndarray
    steps: np.ndarray
    finished: np.ndarray
    agent_states: Any
    engine: str = ""
    passed_over: Mapping[str, str] = dataclasses.field(default_factory=dict)


class Progress(NamedTuple):
    """Where training stands, after each compiled call."""

    steps: int  # of the longest run
    total_steps: int  # over all runs
    episodes: np.ndarray  # [seed]
    new_bins: Sequence[dict[str, Any]]  # bins that were completed by this call, one entry per seed and bin
    recent_return: float  # mean over seeds of the last complete bin
    snapshot: Callable[[], dict[str, np.ndarray]] = dict  # all it takes to continue; call it before the next report
    choice: Choice = Choice("jax")  # the engine, and why each faster one was passed over
