"""The atlas: what each choice does to the robust agent, alone and the important ones in pairs.

A choice is a change to the robust preset (or to the paper preset). Choices that are numbers run side by side in one
compiled loop, a block of seeds each; choices that change the program run one after another.
"""

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from recollect.agents.episodic import PRESETS, EpisodicActorCritic
from recollect.studies.paper import Experiment
from recollect.studies.study import block_of, episodic, summarise, unwatched
from recollect.training.batch import Progress, train

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


def side_by_side(
    experiment: Experiment,
    choices: list[dict[str, float]],
    seeds: range,
    base: EpisodicActorCritic,
    max_steps: float = 2.0,
    on_progress: Callable[[Progress], None] | None = None,
) -> list[dict[str, Any]]:
    """Summaries of choices that are numbers, all in one loop; every choice gets ``len(seeds)`` fresh seeds."""
    count = len(seeds)
    names = sorted({name for choice in choices for name in choice})
    spread = {
        name: np.repeat(np.array([c.get(name, getattr(base, name)) for c in choices], np.float32), count)
        for name in names
    }
    env, block = experiment.env, block_of(experiment)
    result = train(
        base.replace(**spread),
        env,
        experiment.episodes,
        range(seeds.start, seeds.start + count * len(choices)),
        max_steps=int(max_steps * experiment.episodes * env.shortest_episode),
        bins=experiment.episodes // block,
        on_progress=on_progress,
    )
    rows = []
    for k in range(len(choices)):
        own = slice(k * count, (k + 1) * count)
        rows.append(
            summarise(result.returns[own], result.lengths[own], env.shortest_episode, experiment.episodes, block)
        )
    return rows


Rows = list[dict[str, Any]]


def units(
    experiments: dict[str, Experiment],
    seeds: range,
    parts: tuple[str, ...] = ("numbers", "programs"),
    *,
    max_steps: float = 2.0,
    watch: Callable[[str, int], Callable[[Progress], None]] = unwatched,
) -> dict[str, Callable[[], Rows]]:
    """Pieces of work, each giving rows: ``kind`` (robust, alone, pair, ladder, program), ``changes``, the summary."""
    programs = (NAMES if "programs" in parts else {}) | (GENERAL if "general" in parts else {})
    found: dict[str, Callable[[], Rows]] = {}
    for title, experiment in experiments.items():
        known = title, experiment, seeds, max_steps, watch
        if "numbers" in parts:
            found[f"{title} numbers"] = functools.partial(_numbers, *known)
        for name, values in programs.items():
            for value in values:
                found[f"{title} {name}={value}"] = functools.partial(_program, *known, name, value)
    return found


Watch = Callable[[str, int], Callable[[Progress], None]]


def _numbers(title: str, experiment: Experiment, seeds: range, max_steps: float, watch: Watch) -> Rows:
    """The unit of all choices that are numbers, and of the ladder."""
    choices, steps = number_choices(), ladder()
    kinds = ["robust" if not c else "alone" if len(c) == 1 else "pair" for c in choices]
    named = [*zip(kinds, choices, strict=True), *(("ladder", {"step": name}) for name, _ in steps)]
    both = choices + [changes for _, changes in steps]
    watched = watch(f"{title} numbers", experiment.episodes)
    rows = side_by_side(experiment, both, seeds, episodic("robust", experiment), max_steps, watched)
    return [
        {"experiment": title, "kind": kind, "changes": changes, **row}
        for (kind, changes), row in zip(named, rows, strict=True)
    ]


def _program(
    title: str, experiment: Experiment, seeds: range, max_steps: float, watch: Watch, name: str, value: Any
) -> Rows:
    """The unit of one choice that changes the program."""
    agent = episodic("robust", experiment).replace(**{name: value})
    watched = watch(f"{title} {name}={value}", experiment.episodes)
    (row,) = side_by_side(experiment, [{}], seeds, agent, max_steps, watched)
    return [{"experiment": title, "kind": "program", "changes": {name: value}, **row}]
