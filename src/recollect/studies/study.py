"""Many seeds of an experiment: how many runs are solved, how soon, and whether they stay so; with the control memories.

A run counts as solved where the mean return over 1,000 episodes is .95 or more: at the end of the experiment's budget,
and at twice that budget.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from recollect.agents.base import Agent
from recollect.agents.episodic import EpisodicActorCritic
from recollect.agents.general import GeneralActorCritic
from recollect.studies.paper import Experiment, baseline
from recollect.studies.statistics import share_interval
from recollect.training.batch import Progress, train
from recollect.training.progress import Lines

SOLVED = 0.95
BLOCK = 1_000  # episodes
Learning = TypeVar("Learning", bound=Agent)


def episodic(name: str, experiment: Experiment, **changes: Any) -> EpisodicActorCritic:
    """The agent of a preset's name, or the robust one with another memory, for an experiment.

    "oracle" writes exactly the informative states.
    """
    if name == "oracle":
        changes = {"oracle_bit": experiment.env.informative_bit, **changes}
    elif name in ("none", "fifo", "uniform"):
        changes = {"memory": name, **changes}
    preset = "paper" if name == "paper" else "robust"
    return EpisodicActorCritic.preset(preset, **{"memory_size": experiment.memory_size, **changes})


def side_by_side(agent: Learning, settings: Sequence[Mapping[str, float]], count: int) -> Learning:
    """The agent of ``count`` runs of each setting in succession: one compiled loop trains them all.

    Settings are of options that are numbers; what one does not name is the agent's own.
    """
    names = sorted({name for setting in settings for name in setting})
    values = {name: [setting.get(name, getattr(agent, name)) for setting in settings] for name in names}
    return agent.replace(**{name: np.repeat(np.array(each, np.float32), count) for name, each in values.items()})


def summarise(returns: np.ndarray, lengths: np.ndarray, shortest: int, budget: int, block: int = BLOCK) -> dict:
    """One row of a results table, from means over blocks of episodes, [seed, block].

    NaN where a run did not get so far. Lengths are in units of the shortest episode.
    """
    seeds = len(returns)
    last = budget // block - 1
    solved = returns >= SOLVED
    ever = solved[:, : last + 1].any(axis=1)
    to_solve = np.where(ever, (np.argmax(solved, axis=1) + 1) * block, np.inf)
    at_budget, at_twice = solved[:, last], solved[:, -1]
    both = int((at_budget & at_twice).sum())
    length = lengths[:, last] / shortest
    there = np.isfinite(length)
    return {
        "seeds": seeds,
        "budget": budget,
        "episodes": returns.shape[1] * block,
        "reached_budget": int(there.sum()),
        "solved_at_some_time": int(ever.sum()),
        "solved_at_budget": int(at_budget.sum()),
        "solved_at_end": int(at_twice.sum()),
        "solved_at_both": both,
        "share": both / seeds,
        "share_interval": share_interval(both, seeds),
        "median_episodes_to_solve": float(np.median(to_solve)) if 2 * ever.sum() > seeds else None,
        "slowest_episodes_to_solve": float(to_solve.max()) if ever.all() else None,
        "return_at_budget": float(np.mean(returns[there, last])) if there.any() else None,
        "length_at_budget": float(np.mean(length[there])) if there.any() else None,
        "longest_at_budget": float(np.max(length[there])) if there.any() else None,
    }


def study(
    agent: Agent,
    experiment: Experiment,
    seeds: Sequence[int],
    *,
    times_budget: int = 2,
    max_steps: float = 4.0,
    engine: str = "auto",
    on_progress: Callable[[Progress], None] | None = None,
) -> dict[str, Any]:
    """Train to ``times_budget`` times the experiment's episodes and summarise; ``max_steps`` in shortest totals."""
    block = block_of(experiment)
    episodes = times_budget * experiment.episodes
    result = train(
        agent,
        experiment.env,
        episodes,
        seeds,
        max_steps=int(max_steps * episodes * experiment.env.shortest_episode),
        bins=episodes // block,
        engine=engine,
        on_progress=on_progress,
    )
    return summarise(result.returns, result.lengths, experiment.env.shortest_episode, experiment.episodes, block)


def block_of(experiment: Experiment) -> int:
    """Episodes of a block: 1,000, or fewer in an experiment that is itself short."""
    block = min(BLOCK, experiment.episodes)
    if experiment.episodes % block:
        raise ValueError(
            f"episodes={experiment.episodes} must be a multiple of {block}, the block results are judged by"
        )
    return block


def units(
    agents: Sequence[str],
    experiments: dict[str, Experiment],
    seeds: Sequence[int],
    changes: dict[str, Any],
    *,
    times_budget: int = 2,
    max_steps: float = 4.0,
) -> dict[str, Callable[[], dict[str, Any]]]:
    """One piece of work per experiment and agent, each giving a row; what is wrong is said before the first."""
    found: dict[str, Callable[[], dict[str, Any]]] = {}
    for title, experiment in experiments.items():
        for name in agents:
            agent = _agent(name, experiment, changes)
            limits = {"times_budget": times_budget, "max_steps": max_steps}
            found[f"{title} {name}"] = functools.partial(_unit, title, name, agent, experiment, seeds, limits)
    return found


def _agent(name: str, experiment: Experiment, changes: dict[str, Any]) -> Agent:
    if name == "gru":
        return baseline(min(experiment.decisions, 2))
    if name != "general":
        return episodic(name, experiment, **changes)
    if changes:
        raise ValueError(f"general is studied with nothing set, not with {', '.join(changes)}: leave it out or those")
    return GeneralActorCritic()


def _unit(
    title: str,
    name: str,
    agent: Agent,
    experiment: Experiment,
    seeds: Sequence[int],
    limits: dict[str, Any],
) -> dict[str, Any]:
    """One piece of work, as a function that can be sent to a worker."""
    lines = Lines(f"{title} {name}", limits["times_budget"] * experiment.episodes)
    return {"experiment": title, "agent": name, **study(agent, experiment, seeds, on_progress=lines, **limits)}
