"""The paper's grid for the recurrent baseline: 10 learning rates × 4 widths, one run each, best last 100 episodes."""

import functools
import itertools
import math
from collections.abc import Callable

from recollect.agents.recurrent import RecurrentActorCritic
from recollect.envs.secret_informant import SecretInformant
from recollect.experiments.paper import BASELINE_RATES, BASELINE_WIDTHS
from recollect.training import Progress, train


def tune_baseline(
    decisions: int,
    widths: tuple[int, ...] = BASELINE_WIDTHS,
    rates: tuple[float, ...] = BASELINE_RATES,
    episodes: int | None = None,
    seed: int = 0,
    on_progress: Callable[[int, float, Progress], None] = lambda width, rate, progress: None,
) -> list[dict]:
    """One row a combination, best first: mean return of the last 100 episodes of one run.

    Every combination trains by itself, since one that loops would hold up any that train beside it. A run that does
    not finish within twice the shortest possible total of steps loops and scores nothing.
    """
    env = SecretInformant(length=10, decisions=decisions)
    episodes = episodes or {1: 25_000, 2: 50_000}[decisions]
    rows = []
    for width, rate in itertools.product(widths, rates):
        result = train(
            RecurrentActorCritic(width=width, learning_rate=rate),
            env,
            episodes,
            seeds=[seed],
            bins=episodes // 100,
            max_steps=2 * episodes * env.shortest_episode,
            on_progress=functools.partial(on_progress, width, rate),
        )
        last = float(result.returns[0, -1])
        row = {"width": width, "learning_rate": rate, "last_100": None if math.isnan(last) else last}
        rows.append({**row, "steps": int(result.steps[0])})
    return sorted(rows, key=lambda row: -1.0 if row["last_100"] is None else row["last_100"], reverse=True)
