"""Many seeds of the paper's experiments, without the baseline: shares solved, with intervals."""

from collections.abc import Callable
from typing import Any

import numpy as np

from recollect.agents.base import Agent
from recollect.envs.secret_informant import SecretInformant
from recollect.statistics import episodes_to_solve, last_block, share_interval
from recollect.training import Progress, Result, train

SOLVED = 0.95


def summarise(result: Result, env: SecretInformant, episodes: int) -> dict[str, Any]:
    """One row of a results table.

    solved: some block of 1/25 of the budget has a mean return above .95. solved_at_end: the last block does, and all
    episodes were done. Lengths are in units of the shortest episode.
    """
    seeds = len(result.seeds)
    to_solve = episodes_to_solve(result.returns, episodes)
    final, length = last_block(result.returns), last_block(result.lengths)
    solved, at_end = int(np.isfinite(to_solve).sum()), int((final > SOLVED).sum())
    return {
        "seeds": seeds,
        "episodes": episodes,
        "finished": int(result.finished.sum()),
        "solved": solved,
        "solved_interval": share_interval(solved, seeds),
        "solved_at_end": at_end,
        "solved_at_end_interval": share_interval(at_end, seeds),
        "median_episodes_to_solve": float(np.median(to_solve)) if 2 * solved > seeds else None,
        "median_episodes_of_solvers": float(np.median(to_solve[np.isfinite(to_solve)])) if solved else None,
        "mean_final_return_of_finishers": float(np.nanmean(final)) if result.finished.any() else None,
        "median_final_length": float(np.nanmedian(length) / env.shortest_episode) if result.finished.any() else None,
        "median_steps_an_episode": float(np.median(result.steps / episodes) / env.shortest_episode),
    }


def study(
    agent: Agent,
    env: SecretInformant,
    episodes: int,
    seeds: range,
    max_steps: int | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    records_per_call: int = 20,
) -> dict[str, Any]:
    """Train and summarise; ``max_steps`` defaults to 4 times the shortest possible total."""
    max_steps = max_steps or 4 * episodes * env.shortest_episode
    result = train(
        agent, env, episodes, seeds, max_steps=max_steps, on_progress=on_progress, records_per_call=records_per_call
    )
    return summarise(result, env, episodes)
