"""A search among the readings of the paper: what it leaves open drawn at random, at γ = 1 and without entropy."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from recollect.agents.episodic import EpisodicActorCritic
from recollect.studies.paper import Experiment
from recollect.studies.statistics import episodes_to_solve
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
    readings_a_program: int,
    seeds: int,
    which: list[tuple[int, dict[str, str]]],
    seed: int = 0,
    on_progress: Callable[[Progress], None] | None = None,
    max_steps: int | None = None,
    records_per_call: int = 20,
) -> Iterator[dict[str, Any]]:
    """Train ``seeds`` runs of each reading of the numbered programs ``which``; yields one row a reading.

    Each row holds the options and, of its seeds, how many finished, were ever solved, and were solved at the end.
    """
    env = experiment.env
    for k, program in which:
        numbers = draw_numbers(np.random.default_rng([seed, k]), readings_a_program)
        spread = {name: np.repeat(values, seeds).astype(np.float32) for name, values in numbers.items()}
        agent = EpisodicActorCritic.preset("paper", memory_size=experiment.memory_size, **program).replace(**spread)
        result = train(
            agent,
            env,
            experiment.episodes,
            seeds=range(readings_a_program * seeds),
            max_steps=max_steps or 4 * experiment.episodes * env.shortest_episode,
            on_progress=on_progress,
            records_per_call=records_per_call,
        )
        to_solve = episodes_to_solve(result.returns, experiment.episodes).reshape(-1, seeds)
        finished = result.finished.reshape(-1, seeds)
        at_end = (np.nan_to_num(result.returns[:, -4:].mean(axis=1)) > 0.95).reshape(-1, seeds)
        for r in range(readings_a_program):
            yield {
                **program,
                **{name: float(values[r]) for name, values in numbers.items()},
                "seeds": seeds,
                "finished": int(finished[r].sum()),
                "solved": int(np.isfinite(to_solve[r]).sum()),
                "solved_at_end": int(at_end[r].sum()),
            }


def rows_of(*args: Any, **kwargs: Any) -> list[dict[str, Any]]:
    """All rows of ``search``, as a function that can be sent to a worker."""
    return list(search(*args, **kwargs))
