"""Searches that learn from their trials, by Optuna, whose study is kept in a file and can be continued.

The fixed draws of ``ranges`` stay the rule: every agent gets the same settings there, so budgets are equal. Optuna is
for finding a good setting of one agent with few trials. It comes with ``recollect[search]``.
"""

import functools
import itertools
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recollect.errors import RecollectError
from recollect.store.provenance import plain
from recollect.studies import benchmark
from recollect.studies.ranges import Range


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise RecollectError("--study needs Optuna: pip install 'recollect[search]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def units(
    tasks: Sequence[str],
    agents: Sequence[str],
    seeds: range,
    scale: float,
    count: int,
    fixed: dict[str, Any],
    study: Path,
) -> dict[str, Callable[[], list[dict[str, Any]]]]:
    """One piece of work per task and agent, each giving the rows of all its trials."""
    benchmark.check_search(tasks, agents, seeds, scale)
    _optuna()
    known = seeds, scale, count, fixed, study.absolute()
    return {
        f"{task} {agent}": functools.partial(search, task, agent, *known)
        for task, agent in itertools.product(tasks, agents)
    }


def search(
    task: str, agent: str, seeds: range, scale: float, count: int, fixed: dict[str, Any], study: Path
) -> list[dict[str, Any]]:
    """The trials of one task and agent, those of earlier searches in the same file among them; ``count`` in all.

    Only those that were made with the same seeds, scale and ``fixed`` options are of the same study.
    """
    within = {name: r for name, r in benchmark.RANGES[agent].items() if name not in fixed}
    under = f", {json.dumps(plain(fixed), sort_keys=True)}" if fixed else ""
    return optimise(
        lambda settings: benchmark.try_settings(task, agent, seeds, scale, fixed, settings),
        within,
        count,
        study,
        f"{task} {agent} {len(seeds)} seeds from {seeds.start}, scale {scale:g}{under}",
    )


def optimise(
    attempt: Callable[[dict[str, float]], dict[str, Any]],
    within: dict[str, Range],
    count: int,
    study: Path,
    name: str,
) -> list[dict[str, Any]]:
    """The row of each trial: those that the study has already, and as many more as make ``count``.

    Args:
        attempt: gives the row of a setting, with ``solved`` and ``whole``.
        within: what settings are drawn from.
        count: how many trials, in all.
        study: file of the study.
        name: what tells this study from others in the file.
    """
    optuna = _optuna()
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(study)))
    found = optuna.create_study(
        storage=storage,
        study_name=name,
        direction="maximize",
        load_if_exists=True,
        sampler=optuna.samplers.TPESampler(seed=0),
    )
    done = [trial for trial in found.trials if trial.state == optuna.trial.TrialState.COMPLETE]
    for _ in range(count - len(done)):
        trial = found.ask()
        settings = {option: _suggested(trial, option, r) for option, r in within.items()}
        row = attempt(settings)
        trial.set_user_attr("row", row)
        found.tell(trial, merit(row))
        done.append(found.trials[trial.number])
    return [trial.user_attrs["row"] for trial in done]


def _suggested(trial: Any, option: str, within: Range) -> float:
    """A number of the range, at a share of the way through it that Optuna suggests."""
    return float(within.at(np.array([trial.suggest_float(option, 0.0, 1.0)]))[0])


def merit(row: dict[str, Any]) -> float:
    """What is made large: seeds solved, and among equals the mean return of all episodes.

    >>> merit({"solved": 2, "whole": -5.0}) > merit({"solved": 1, "whole": 9.0}) > merit({"solved": 1, "whole": None})
    True
    """
    whole = -math.inf if row["whole"] is None or math.isnan(row["whole"]) else row["whole"]
    return row["solved"] + 0.5 * (1.0 + math.tanh(0.1 * whole)) * 0.999
