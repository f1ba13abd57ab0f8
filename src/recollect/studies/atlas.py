"""The atlas: what each choice does to the robust agent, alone and the important ones in pairs.

A choice is a change to the robust preset (or to the paper preset). Choices that are numbers run side by side in one
compiled loop, a block of seeds each; choices that change the program run one after another.
"""

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

from recollect.agents.episodic import PRESETS, EpisodicActorCritic
from recollect.studies.paper import Experiment
from recollect.studies.study import block_of, episodic, side_by_side, summarise
from recollect.training.batch import train
from recollect.training.progress import Lines

NUMBERS: dict[str, tuple[float, ...]] = {
    "learning_rate": (0.005, 0.01, 0.02, 0.04, 0.08),
    "discount": (0.95, 0.97, 0.99, 0.995, 1.0),
    "trace_decay": (0.0, 0.3, 0.5, 0.7, 0.9),
    "entropy": (0.0, 0.0003, 0.001, 0.003, 0.01),
    "surprise": (0.0, 0.01, 0.03, 0.1, 0.3),
    "credit_cap": (1.0, 2.0, 5.0, 20.0, math.inf),
    "value_rate": (0.5, 1.0, 2.0, 4.0),
    "policy_rate": (0.5, 1.0, 2.0),
    "query_rate": (0.25, 0.5, 1.0, 2.0),
    "write_rate": (0.0, 0.5, 1.0, 2.0, 4.0),
    "bias_rate": (0.0, 0.3, 1.0),
    "policy_gain": (0.3, 0.7, 1.0, 1.5),
    "query_gain": (0.0, 0.1, 0.3, 1.0),
    "write_gain": (0.1, 0.3, 1.0, 2.0),
    "temperature_start": (0.1, 0.3, 1.0, 3.0),
    "terminal_value": (-0.1, 0.0),
}
"""Each alone; the robust preset's own value is among them."""

PAIRS = (
    ("discount", "surprise"),
    ("discount", "trace_decay"),
    ("learning_rate", "trace_decay"),
    ("query_rate", "query_gain"),
    ("credit_cap", "write_gain"),
    ("entropy", "surprise"),
)

NAMES: dict[str, tuple[Any, ...]] = {
    "estimator": ("every",),
    "hidden": (5, 16, 24),
    "memory": ("fifo", "uniform", "none"),
    "initializer": ("glorot", "uniform"),
    "critic_start": ("random",),
}
"""Choices that change the program, each alone."""

GENERAL: dict[str, tuple[Any, ...]] = {
    "activation": ("relu", "sigmoid"),
    "temperature": ("softplus",),
    "empty_read": ("current",),
    "partial_read": ("all",),
    "write": ("before",),
    "reset_memory": (False,),
}
"""As ``NAMES``, for the general loop alone, which is slower."""

LADDER = ("discount", "learning_rate", "entropy", "surprise", "value_rate", "query_rate", "query_gain", "write_gain")
LADDER += ("credit_cap", "trace_decay")
"""From the paper preset to the robust one, one change at a time."""


def number_choices() -> list[dict[str, float]]:
    """Every choice of numbers, as changes to the robust preset: alone, in pairs, and the empty one first."""
    alone = [{name: value} for name, values in NUMBERS.items() for value in values]
    pairs = [
        {first: a, second: b}
        for first, second in PAIRS
        for a, b in itertools.product(_three(NUMBERS[first], first), _three(NUMBERS[second], second))
    ]
    robust = {name: PRESETS["robust"].get(name, None) for name in NUMBERS}
    fresh = [{}]
    for choice in alone + pairs:
        changed = {name: value for name, value in choice.items() if value != robust[name]}
        if len(changed) == len(choice) and choice not in fresh:
            fresh.append(choice)
    return fresh


def _three(values: tuple[float, ...], name: str) -> tuple[float, ...]:
    """The robust value's neighbours in the list: what a pair is made of."""
    at = values.index(PRESETS["robust"].get(name, 1.0))
    return tuple(values[k] for k in (at - 1, at + 1) if 0 <= k < len(values))


def ladder() -> list[tuple[str, dict[str, Any]]]:
    """The paper preset, then with each change of the robust one added to those before it."""
    steps: list[tuple[str, dict[str, Any]]] = [("the paper preset", dict(PRESETS["paper"]))]
    for name in LADDER:
        steps.append((f"+ {name} = {PRESETS['robust'][name]}", {**steps[-1][1], name: PRESETS["robust"][name]}))
    return steps


Rows = list[dict[str, Any]]
Choice = tuple[str, dict[str, Any], dict[str, float]]
"""Its kind, how a row tells it, and the numbers that it changes."""


def units(
    experiments: dict[str, Experiment],
    seeds: range,
    parts: tuple[str, ...] = ("numbers", "programs"),
    *,
    max_steps: float = 2.0,
) -> dict[str, Callable[[], Rows]]:
    """Pieces of work, each giving rows: ``kind`` (robust, alone, pair, ladder, program), ``changes``, the summary."""
    programs = (NAMES if "programs" in parts else {}) | (GENERAL if "general" in parts else {})
    found: dict[str, Callable[[], Rows]] = {}
    for title, experiment in experiments.items():
        robust = episodic("robust", experiment)
        known = title, experiment, seeds, max_steps
        if "numbers" in parts:
            kinds = [("robust" if not c else "alone" if len(c) == 1 else "pair", c, c) for c in number_choices()]
            steps = [("ladder", {"step": name}, changes) for name, changes in ladder()]
            found[f"{title} numbers"] = functools.partial(_train, *known, "numbers", robust, kinds + steps)
        for name, values in programs.items():
            for value in values:
                agent, told = robust.replace(**{name: value}), f"{name}={value}"
                only = [("program", {name: value}, {})]
                found[f"{title} {told}"] = functools.partial(_train, *known, told, agent, only)
    return found


def _train(
    title: str,
    experiment: Experiment,
    seeds: range,
    max_steps: float,
    told: str,
    base: EpisodicActorCritic,
    choices: list[Choice],
) -> Rows:
    """A row per choice, all trained in one loop; every choice gets ``len(seeds)`` fresh seeds."""
    count, env, block = len(seeds), experiment.env, block_of(experiment)
    result = train(
        side_by_side(base, [numbers for _, _, numbers in choices], count),
        env,
        experiment.episodes,
        range(seeds.start, seeds.start + count * len(choices)),
        max_steps=int(max_steps * experiment.episodes * env.shortest_episode),
        bins=experiment.episodes // block,
        on_progress=Lines(f"{title} {told}", experiment.episodes),
    )
    rows = []
    for k, (kind, changes, _) in enumerate(choices):
        returns, lengths = (x[k * count : (k + 1) * count] for x in (result.returns, result.lengths))
        row = summarise(returns, lengths, env.shortest_episode, experiment.episodes, block)
        rows.append({"experiment": title, "kind": kind, "changes": changes, **row})
    return rows
