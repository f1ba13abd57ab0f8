"""`recollect benchmark memory`: every agent on every task, many seeds, and what can be said of it with confidence."""

import functools
import itertools
import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from recollect.agents import named
from recollect.errors import RecollectError
from recollect.store.interrupts import Interrupted
from recollect.studies import ranges
from recollect.studies.statistics import interquartile_mean, stratified_bootstrap
from recollect.studies.tasks import AGENTS, KINDS, NORMALIZED, TASKS, Task
from recollect.training.online import Learner

BLOCKS = 50
"""Parts of a run over which returns are averaged; the last five are its result."""
ROWS = 20
"""Parts of a block: a stretch as long as a block, to tell how soon, may begin at any of them."""
LAST_SEED = 2**31 - 2

RANGES = {
    "general": {
        "critic_optimizer.rate": ranges.Range(0.0001, 0.01, "log"),
        "actor_optimizer.rate": ranges.Range(0.0001, 0.01, "log"),
        "write_optimizer.rate": ranges.Range(0.0001, 0.01, "log"),
        "trace_decay": ranges.Range(0.0, 0.9, "linear"),
        "surprise": ranges.Range(0.01, 1.0, "log"),
    },
    "gru": ranges.GRU,
    "gru-rtrl": ranges.GRU,
    "paper": ranges.MEMORY,
    "episodic": ranges.MEMORY,
}
"""What a search draws from, for each agent that can be tuned."""


def chosen(tasks: Sequence[str] | None) -> tuple[str, ...]:
    """The tasks that are asked for: those named, all of them by "all", one of each kind where nothing is said."""
    if tasks is None:
        return KINDS
    return tuple(TASKS) if list(tasks) == ["all"] else tuple(tasks)


def check(tasks: Sequence[str], agents: Sequence[str], seeds: range, scale: float) -> None:
    """Refuse unknown names, seeds that no agent can have, and runs too short to be told, before anything is run."""
    if not seeds or seeds[0] < 0 or seeds[-1] > LAST_SEED:
        raise RecollectError(
            f"{len(seeds)} seeds from {seeds.start} on: at least one is needed, all from 0 to {LAST_SEED}"
        )
    for kind, names, known in (("task", tasks, TASKS), ("agent", agents, AGENTS)):
        if not names:
            raise RecollectError(f"at least one {kind} is needed; names are separated by commas")
        for name in names:
            if name not in known:
                raise RecollectError(f"no {kind} {name!r}; there are {', '.join(known)}")
    for name in tasks:
        if int(TASKS[name].steps * scale) < BLOCKS * ROWS:
            least = f"{math.ceil(1e6 * BLOCKS * ROWS / TASKS[name].steps) / 1e6:g}"
            raise RecollectError(
                f"a scale of {scale:g} leaves {name} fewer than {BLOCKS * ROWS:,} of its {TASKS[name].steps:,} steps, "
                f"which is too short to be told in {BLOCKS} parts; the least is {least}"
            )


def options(tasks: Sequence[str], agents: Sequence[str]) -> dict[str, Any]:
    """All that ``recollect.studies.tasks`` says of these tasks and agents, and that their results depend on."""
    return {
        "tasks": {
            name: {"env": TASKS[name].env, "env_options": dict(TASKS[name].options), "steps": TASKS[name].steps}
            for name in tasks
        },
        "agents": {agent: {**AGENTS[agent], "normalized": agent in NORMALIZED} for agent in agents},
    }


def units(
    tasks: Sequence[str], agents: Sequence[str], seeds: range, scale: float = 1.0, progress: bool = False, jobs: int = 1
) -> dict[str, Callable[[], list[dict[str, Any]]]]:
    """Pieces of work by name, each giving a row per seed; what is wrong is said here.

    Args:
        tasks: by name.
        agents: by name.
        seeds: of each pair.
        scale: factor on every task's number of steps.
        progress: say on stderr how far each piece is.
        jobs: how many run at once: a pair's seeds are one piece, or so many that all of them have work.
    """
    check(tasks, agents, seeds, scale)
    parts = min(len(seeds), max(1, math.ceil(jobs / (len(tasks) * len(agents)))))
    found = {}
    for task, agent, part in itertools.product(tasks, agents, range(parts)):
        own = seeds[part * len(seeds) // parts : (part + 1) * len(seeds) // parts]
        name = f"{task} {agent}" + (f" {own[0]}-{own[-1]}" if parts > 1 else "")
        found[name] = functools.partial(pair, task, agent, own, scale, progress=progress)
    return found


def check_search(tasks: Sequence[str], agents: Sequence[str], seeds: range, scale: float) -> None:
    """Refuse what cannot be searched, before anything runs."""
    check(tasks, agents, seeds, scale)
    for agent in agents:
        if agent not in RANGES:
            raise RecollectError(f"{agent} has nothing to tune; a search takes {', '.join(RANGES)}")


def search_units(
    tasks: Sequence[str],
    agents: Sequence[str],
    seeds: range,
    scale: float,
    count: int,
    fixed: dict[str, Any],
    best: str | None = None,
) -> dict[str, Callable[[], dict[str, Any]]]:
    """One piece of work per task, agent and setting, each giving a row; ``fixed`` holds for all of them.

    ``best``: the settings are those that did best in the report of another search.
    """
    check_search(tasks, agents, seeds, scale)
    found = {}
    for task, agent in itertools.product(tasks, agents):
        named.make(agent, **AGENTS[agent] | fixed)
        if best is not None:
            settings = ranges.best(Path(best), RANGES[agent], count, fixed, task=task, agent=agent)
        else:
            settings = ranges.draw(RANGES[agent], count, fixed)
        for k, drawn in enumerate(settings):
            found[f"{task} {agent} {k}"] = functools.partial(try_settings, task, agent, seeds, scale, fixed, drawn)
    return found


def try_settings(
    task: str, agent: str, seeds: range, scale: float, fixed: dict[str, Any], drawn: dict[str, float]
) -> dict[str, Any]:
    """What came of one setting."""
    rows = pair(task, agent, seeds, scale, fixed | drawn)
    (line,) = table(rows)
    mean = float(np.mean([row["whole"] for row in rows]))
    known = {name: line[name] for name in ("task", "agent", "seeds", "solved", "return", "median_steps")}
    return known | {"whole": mean, "steps": rows[0]["steps"], "settings": drawn}


def by_pair(rows: Sequence[dict[str, Any]]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The rows of each task and agent."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["task"], row["agent"]), []).append(row)
    return found


def ranked(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The settings of a search, the best of each task and agent first: by seeds solved, then by how soon.

    The mean return of all episodes of training tells that.
    """
    merit = lambda row: (-row["solved"], math.inf if row["whole"] is None else -row["whole"])  # noqa: E731
    return [row for own in by_pair(rows).values() for row in sorted(own, key=merit)]


def pair(
    name: str,
    agent: str,
    seeds: range,
    scale: float,
    changes: Mapping[str, Any] = MappingProxyType({}),
    progress: bool = False,
) -> list[dict[str, Any]]:
    """One agent on one task: one row per seed."""
    task = TASKS[name]
    steps = int(task.steps * scale) // (BLOCKS * ROWS) * (BLOCKS * ROWS)
    made = named.make(agent, **AGENTS[agent] | dict(changes))

    def learner(own: range) -> Learner:
        return Learner(
            made,
            task.env,
            seed=own[0],
            copies=len(own),
            learners="each",
            env_options=dict(task.options),
            normalize_observations=agent in NORMALIZED,
            normalize_rewards=agent in NORMALIZED,
            check=False,
        )

    first, rows = learner(seeds), []
    if first.host.together:
        return _train(first, name, agent, seeds, steps, progress)
    first.close()
    for seed in seeds:
        own = range(seed, seed + 1)
        rows += _train(learner(own), name, agent, own, steps, progress)
    return rows


def _train(learner: Learner, name: str, agent: str, seeds: range, steps: int, progress: bool) -> list[dict[str, Any]]:
    """What comes of a learner's copies, one for each seed."""
    curves: dict[int, list[dict[str, Any]]] = {}
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as here:
        keep = lambda _, row: curves.setdefault(row["seed"], []).append(row)  # noqa: E731
        try:
            # Not strict: one seed that diverged is a result, and must not end those beside it.
            folder = Path(here) / "run"
            log_every = steps // (BLOCKS * ROWS)
            learner.learn(steps, log_every=log_every, callbacks=[keep], folder=folder, strict=False, progress=progress)
        except Interrupted as error:
            raise KeyboardInterrupt from error  # its folder is gone in a moment: nothing there to resume
    learner.close()
    seconds = (time.monotonic() - start) / len(seeds)
    return [_row(name, TASKS[name], agent, seed, rows, seconds) for seed, rows in sorted(curves.items())]


def _row(name: str, task: Task, agent: str, seed: int, rows: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    """What came of one run."""
    episodes = np.diff([0, *(row["episodes"] for row in rows)])
    totals = np.array([row["return"] for row in rows]) * episodes
    totals[episodes == 0] = 0.0
    with np.errstate(invalid="ignore"):
        curve = totals.reshape(-1, ROWS).sum(1) / episodes.reshape(-1, ROWS).sum(1)
    last = curve[-5:][~np.isnan(curve[-5:])]
    final = float(last.mean()) if len(last) else math.nan
    weighted = float(totals.sum() / episodes.sum()) if episodes.sum() else math.nan
    good = first_good(totals, episodes, task.mark)
    return {
        "task": name,
        "agent": agent,
        "seed": seed,
        "steps": int(rows[-1]["steps"]),
        "episodes": int(rows[-1]["episodes"]),
        "final": final,
        "whole": weighted,
        "steps_to_solve": None if good is None else int([0, *(row["steps"] for row in rows)][good]),
        "solved": bool(final >= task.mark),
        "seconds": round(seconds, 2),
        "curve": [None if math.isnan(x) else round(x, 4) for x in curve.tolist()],
    }


def first_good(totals: np.ndarray, episodes: np.ndarray, mark: float) -> int | None:
    """The number of rows before the first stretch, as long as a block, whose mean return is at ``mark``; None without.

    What a run has done up to there is what it needed: from there on it is as good as the mark. One lucky episode is no
    stretch: ten must end in it, or as many as do on average in a run so short, or in its last tenth, if
    any does (where a good episode is a long one, few end).

    Args:
        totals: the sum of the returns of the episodes that ended in each row.
        episodes: how many did.
        mark: the mean return that is asked for.
    """
    returns, ended = (np.convolve(part, np.ones(ROWS), "valid") for part in (totals, episodes))
    usual, late = (part.sum() / len(part) * ROWS for part in (episodes, episodes[-len(episodes) // 10 :]))
    enough = max(1, min(10, round(usual), int(late) if late else 10))
    good = np.flatnonzero((ended >= enough) & (returns >= mark * ended - 1e-6))
    return int(good[0]) if len(good) else None


def table(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One line per task and agent: interquartile mean of the final return with its interval, and how many solved it."""
    lines = []
    for (task, agent), own in by_pair(rows).items():
        final = np.array([row["final"] for row in own], float)
        known = final[~np.isnan(final)]
        low, high = stratified_bootstrap([known]) if len(known) else (math.nan, math.nan)
        needed = sorted(math.inf if row["steps_to_solve"] is None else row["steps_to_solve"] for row in own)
        lines.append(
            {
                "task": task,
                "agent": agent,
                "seeds": len(own),
                "return": interquartile_mean(known) if len(known) else math.nan,
                "interval": [low, high],
                "solved": sum(row["solved"] for row in own),
                "median_steps": needed[len(needed) // 2],
                "least": float(known.min()) if len(known) else math.nan,
                "random": TASKS[task].low,
                "best": TASKS[task].best,
                "mark": TASKS[task].mark,
                "published": TASKS[task].published,
            }
        )
    return lines


def over_tasks(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """For each agent, over the tasks that all agents ran: returns between random (0) and best (1), aggregated."""
    pairs, found = by_pair(rows), {}
    agents, tasks = dict.fromkeys(agent for _, agent in pairs), dict.fromkeys(task for task, _ in pairs)
    shared = [task for task in tasks if all((task, agent) in pairs for agent in agents)]
    for agent in agents:
        strata = []
        for name in shared:
            task, own = TASKS[name], [row["final"] for row in pairs[name, agent]]
            known = np.array([x for x in own if x is not None and not math.isnan(x)])
            if len(known):
                strata.append((known - task.low) / (task.best - task.low))
        if strata:
            low, high = stratified_bootstrap(strata)
            found[agent] = {"mean": interquartile_mean(np.concatenate(strata)), "low": low, "high": high}
    return found
