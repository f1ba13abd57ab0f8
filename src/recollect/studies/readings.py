"""A search among the readings of the paper: what it leaves open drawn at random, at γ = 1 and without entropy."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from recollect.agents.episodic import EpisodicActorCritic
from recollect.studies.paper import Experiment
from recollect.studies.statistics import episodes_to_solve
from recollect.studies.study import side_by_side
from recollect.training.batch import Progress, train

CHOICES = {"estimator": ("queried", "every"), "write": ("after", "before")}
"""Options that change the compiled program: one program per combination."""

NETWORKS = ("value", "policy", "query", "write")


def draw_numbers(rng: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """Options that are numbers, drawn for ``count`` readings: gains, biases, temperature, step size of V."""
    gains = {f"{name}_gain": np.exp(rng.uniform(np.log(0.1), np.log(3.0), count)) for name in NETWORKS}
    return {
        **gains,
        "bias_rate": rng.choice([0.0, 1.0], count),
        "temperature_start": np.exp(rng.uniform(np.log(0.1), np.log(3.0), count)),
        "value_rate": rng.choice([1.0, 2.0], count),
    }


def programs() -> list[dict[str, str]]:
    """Every combination of ``CHOICES``."""
    return [dict(zip(CHOICES, values, strict=True)) for values in itertools.product(*CHOICES.values())]


def search(
    experiment: Experiment,
    k: int,
    program: dict[str, str],
    readings: int,
    seeds: int,
    *,
    max_steps: int,
    records_per_call: int,
    on_progress: Callable[[Progress], None],
) -> list[dict[str, Any]]:
    """Train ``seeds`` runs of each of so many readings of program ``k``; a row per reading.

    It holds the options and, of its seeds, how many finished, were ever solved, and were solved at the end.
    """
    numbers = draw_numbers(np.random.default_rng([0, k]), readings)
    settings = [dict(zip(numbers, map(float, row), strict=True)) for row in zip(*numbers.values(), strict=True)]
    agent = EpisodicActorCritic.preset("paper", memory_size=experiment.memory_size, **program)
    result = train(
        side_by_side(agent, settings, seeds),
        experiment.env,
        experiment.episodes,
        seeds=range(readings * seeds),
        max_steps=max_steps,
        on_progress=on_progress,
        records_per_call=records_per_call,
    )
    solved = np.isfinite(episodes_to_solve(result.returns, experiment.episodes))
    at_end = np.nan_to_num(result.returns[:, -4:].mean(axis=1)) > 0.95
    told = {"finished": result.finished, "solved": solved, "solved_at_end": at_end}
    return [
        {**program, **setting, "seeds": seeds}
        | {name: int(each[r * seeds : (r + 1) * seeds].sum()) for name, each in told.items()}
        for r, setting in enumerate(settings)
    ]
