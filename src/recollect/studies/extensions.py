"""What the paper leaves to future work, tried: a life without ends, and states that are more than an observation."""

from typing import Any

import numpy as np

from recollect.agents.episodic import EpisodicActorCritic
from recollect.envs.continuing import Continuing
from recollect.envs.secret_informant import SecretInformant
from recollect.envs.signed_informant import SignedInformant
from recollect.studies.statistics import mean_and_standard_error, share_interval
from recollect.studies.study import SOLVED, side_by_side
from recollect.training.batch import train
from recollect.training.endless import live

OPEN = {"entropy": 0.003, "surprise": 0.1}
"""More exploration than the defaults: with theirs, some seeds settle on two of the three actions for good."""

INFORMANT = SecretInformant(length=5, correct_path_bit=False)

CONTINUING = Continuing(INFORMANT)

LIVES: dict[str, dict[str, float]] = {
    "forgetting": {"forgetting": 1.0},
    "no forgetting": {"forgetting": 0.0},
    "forgetting, weights not learned": {"forgetting": 1.0, "write_rate": 0.0, "write_gain": 0.0},
}
"""What is compared on the continuing task; all numbers, so that one compiled loop lives all of them."""

SIGNED = SignedInformant(actions=3, copies=1)


def _row(rewards: np.ndarray) -> dict[str, Any]:
    """Of each seed's reward at the end, 1 being the best possible: share solved with its interval, mean, median."""
    solved = int((rewards > SOLVED).sum())
    mean, error = mean_and_standard_error(rewards)
    return {
        "seeds": len(rewards),
        "solved": solved,
        "solved_interval": share_interval(solved, len(rewards)),
        "mean": float(mean),
        "standard_error": float(error),
        "median": float(np.median(rewards)),
    }


def study_continuing(seeds: int, steps: int, first_seed: int = 0) -> dict[str, dict[str, Any]]:
    """Average-reward agents with one stored state, memory over the whole life, on the secret informant without ends.

    A row an entry of ``LIVES``: reward per shortest episode over the last tenth of the life; solved above .95.
    """
    agent = EpisodicActorCritic(memory_size=1, objective="average", reset_memory=False, **OPEN)
    places = range(first_seed, first_seed + seeds * len(LIVES))
    rates, _ = live(side_by_side(agent, [*LIVES.values()], seeds), CONTINUING, steps, places, blocks=10)
    rewards = rates[:, -1].reshape(len(LIVES), seeds) * INFORMANT.shortest_episode
    return {name: _row(row) for name, row in zip(LIVES, rewards, strict=True)}


def study_abstract(seeds: int, episodes: int, first_seed: int = 0) -> dict[str, dict[str, Any]]:
    """The signed informant with raw, projected and recurrent states: mean return over the last tenth of training."""
    rows = {}
    for encoder in ("raw", "projection", "recurrent"):
        agent = EpisodicActorCritic(memory_size=3, encoder=encoder, **OPEN)
        result = train(agent, SIGNED, episodes, range(first_seed, first_seed + seeds), bins=10)
        rows[encoder] = _row(result.returns[:, -1])
    return rows
