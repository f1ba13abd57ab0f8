"""The paper's grid for the recurrent baseline: 10 learning rates × 4 widths, one run each, best last 100 episodes."""

import math
from typing import Any

import numpy as np

from recollect.agents.recurrent import RecurrentActorCritic
from recollect.envs.secret_informant import SecretInformant
from recollect.training.batch import train


def try_width(
    decisions: int, width: int, rates: tuple[float, ...], episodes: int | None = None, seed: int = 0
) -> list[dict]:
    """The rows of one width, all its rates side by side: mean return of the last 100 episodes of one run.

    A run that does not finish within 4 times the shortest possible total of steps loops and scores nothing.
    """
    env = SecretInformant(length=10, decisions=decisions)
    episodes = episodes or {1: 25_000, 2: 50_000}[decisions]
    agent: Any = RecurrentActorCritic(width=width, learning_rate=np.array(rates))  # type: ignore[arg-type]
    limit = 4 * episodes * env.shortest_episode
    result = train(agent, env, episodes, [seed] * len(rates), bins=episodes // 100, max_steps=limit)
    ends = zip(rates, result.returns[:, -1].tolist(), result.steps.tolist(), strict=True)
    return [
        {"width": width, "learning_rate": rate, "last_100": None if math.isnan(last) else last, "steps": steps}
        for rate, last, steps in ends
    ]


def ranked(rows: list[dict]) -> list[dict]:
    """The best first, ties by fewer steps."""
    return sorted(rows, key=lambda row: (row["last_100"] is None, -(row["last_100"] or 0.0), row["steps"]))
