"""Training many runs at once: ``train`` and ``train_iter``, for every pair of agent and JAX environment.

`recollect.engines.choice` decides what runs the loop; here the runs are begun (or continued from a snapshot), moved on,
and reported.
"""

import dataclasses
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence

import jax
import numpy as np

from recollect.agents.base import Agent
from recollect.engines import choice, forking
from recollect.envs.base import Environment
from recollect.training import device_group, pytree_group, refusing
from recollect.training.bins import default_bins
from recollect.training.group import Limits
from recollect.training.reports import Progress, Result

ENDLESS = 2**31 - 1


def check(
    seeds: Sequence[int], episodes: int, bins: int | None, *, varied: bool = False, **at_least_1: int | None
) -> None:
    """Refuse arguments that are none; ``varied``: runs differ in more than their seed, so that two may share one."""
    for name, value in {"episodes": episodes, "bins": bins, **at_least_1}.items():
        if value is None and name != "episodes":
            continue
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
            raise TypeError(f"{name}={value!r} must be a whole number")
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
        if value > ENDLESS:
            raise ValueError(f"{name} must be below 2^31, got {value}")
    if not seeds:
        raise ValueError("seeds must name at least one seed")
    if len(set(seeds)) != len(seeds) and not varied:
        raise ValueError("seeds must differ from one another")
    if any(not 0 <= seed < 2**31 for seed in seeds):
        raise ValueError("seeds must lie between 0 and 2^31 - 1")
    if bins is not None and episodes % bins:
        raise ValueError(f"episodes={episodes} must be a multiple of bins={bins}")


def train_iter(
    agent: Agent,
    env: Environment,
    episodes: int,
    seeds: Sequence[int],
    *,
    max_steps: int | None = None,
    max_episode_length: int | None = None,
    bins: int | None = None,
    records_per_call: int | None = None,
    engine: str = "auto",
    state: Mapping[str, np.ndarray] | None = None,
) -> Iterator[Progress | Result]:
    """Train, reporting after every compiled call; the last thing yielded is the ``Result``. Arguments as ``train``.

    ``state``: what ``Progress.snapshot`` returned, to continue from there bit for bit. One that is of another agent,
    environment, engine or number of seeds or bins is a ``FileError``, before anything is compiled.
    """
    forking.refuse()
    refusing.no_pair(agent, env)
    try:
        seeds = tuple(operator.index(s) for s in seeds)
    except TypeError as error:
        raise TypeError(f"seeds={seeds!r} must be a sequence of whole numbers, such as range(10)") from error
    lengths = {"max_steps": max_steps, "max_episode_length": max_episode_length, "records_per_call": records_per_call}
    varied = any(np.ndim(leaf) for leaf in jax.tree.leaves(agent))
    check(seeds, episodes, bins, varied=varied, **lengths)
    bins = bins or default_bins(episodes)
    pytree_group.refuse_too_large(agent, env, len(seeds), bins)
    chosen = choice.for_training(agent, env, engine, max_episode_length, len(seeds))
    limits = Limits(episodes, episodes // bins, max_episode_length or ENDLESS, max_steps or ENDLESS)
    kind = device_group.DeviceGroup if chosen.engine == "compiled-gpu" else pytree_group.PytreeGroup
    group = kind(chosen.engine, agent, env, seeds, limits, records_per_call, state)
    refusing.not_finite(env, seeds, group.faults)
    while not group.over:
        new_bins = group.advance()
        refusing.not_finite(env, seeds, group.faults)
        total = int(np.sum(group.steps))
        yield Progress(group.taken, total, group.episodes, new_bins, group.recent_return(), group.snapshot, chosen)
    yield dataclasses.replace(group.result(), engine=chosen.engine, passed_over=chosen.passed_over)


def train(
    agent: Agent,
    env: Environment,
    episodes: int,
    seeds: Sequence[int] = (0,),
    *,
    max_steps: int | None = None,
    max_episode_length: int | None = None,
    bins: int | None = None,
    records_per_call: int | None = None,
    engine: str = "auto",
    on_progress: Callable[[Progress], None] | None = None,
) -> Result:
    """Train one run per seed, all at once.

    Args:
        agent: what learns; a traced hyperparameter may be an array with one entry per seed.
        env: a pure-JAX environment.
        episodes: how many episodes each run trains for.
        seeds: one run each, different whole numbers (unless a hyperparameter is an array).
        max_steps: end runs that have not finished their episodes after so many steps;
            None lets a run that loops continue for ever.
        max_episode_length: truncate longer episodes, and bootstrap there; None for no cap.
        bins: how many equal parts the metrics are averaged over (default: the largest number up to 100 that divides).
        records_per_call: how much one compiled call does; results do not depend on it. None: what suits the engine.
        engine: what runs the loop: "jax" runs everything; "cpu" and "compiled-gpu" (what the step compiler knows, which
            is nearly everything) and "cuda" (the episodic agent on the secret informant) are many times faster; "auto"
            takes the fastest that can serve. One that cannot is refused with the reason. ``Result.engine`` says which
            it was.
        on_progress: called after each compiled call.
    """
    if on_progress is not None and not callable(on_progress):
        raise TypeError(f"on_progress={on_progress!r} must be a function of a Progress, or None")
    result = None
    for report in train_iter(
        agent,
        env,
        episodes,
        seeds,
        max_steps=max_steps,
        max_episode_length=max_episode_length,
        bins=bins,
        records_per_call=records_per_call,
        engine=engine,
    ):
        if isinstance(report, Result):
            result = report
        elif on_progress is not None:
            on_progress(report)
    assert result is not None
    return result
