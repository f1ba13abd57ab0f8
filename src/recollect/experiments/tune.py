"""The paper's grid for the recurrent baseline: 10 learning rates × 4 widths, one run each, best last 100 episodes."""

import itertools
import math
from collections.abc import Callable

from recollect.agents.recurrent import RecurrentActorCritic
from recollect.compiled import train_iter
from recollect.envs.secret_informant import SecretInformant
from recollect.experiments.paper import BASELINE_RATES, BASELINE_WIDTHS
from recollect.training import Result


def tune_baseline(
    decisions: int,
    widths: tuple[int, ...] = BASELINE_WIDTHS,
    rates: tuple[float, ...] = BASELINE_RATES,
    episodes: int | None = None,
    seed: int = 0,
    on_row: Callable[[dict], None] = lambda row: None,
) -> list[dict]:
    """One row a combination, best first: mean return of the last 100 episodes of one run, ties by fewer steps.

    A run that does not finish within 4 times the shortest possible total of steps loops and scores nothing.
    """
    rows = []
    for width, rate in itertools.product(widths, rates):
        rows.append(try_combination(decisions, width, rate, episodes, seed))
        on_row(rows[-1])
    return ranked(rows)


def try_combination(decisions: int, width: int, rate: float, episodes: int | None = None, seed: int = 0) -> dict:
    """One row of the grid."""
    env = SecretInformant(length=10, decisions=decisions)
    episodes = episodes or {1: 25_000, 2: 50_000}[decisions]
    agent = RecurrentActorCritic(width=width, learning_rate=rate)
    limit = 4 * episodes * env.shortest_episode
    *_, result = train_iter(agent, env, episodes, seed, bins=episodes // 100, max_steps=limit)
    assert isinstance(result, Result)
    last = float(result.returns[0, -1])
    row = {"width": width, "learning_rate": rate, "last_100": None if math.isnan(last) else last}
    return {**row, "steps": int(result.steps[0])}


def ranked(rows: list[dict]) -> list[dict]:
    """The best first."""
    return sorted(rows, key=lambda row: (row["last_100"] is None, -(row["last_100"] or 0.0), row["steps"]))
