"""`recollect benchmark memory`: every agent on every task, many seeds, and what can be said of it with confidence."""

import math
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recollect.agents import named
from recollect.errors import RecollectError
from recollect.interrupts import Interrupted
from recollect.learner import Learner
from recollect.statistics import interquartile_mean, stratified_bootstrap
from recollect.tasks import AGENTS, TASKS, Task

BLOCKS = 50
"""Parts of a run over which returns are averaged; the last five are its result."""
LAST_SEED = 2**31 - 2


def check(tasks: Sequence[str], agents: Sequence[str], seeds: int = 1, first_seed: int = 0) -> None:
    """Refuse unknown names, and seeds that no agent can have, before anything is run."""
    if seeds < 1 or first_seed < 0 or first_seed + seeds > LAST_SEED + 1:
        raise RecollectError(f"{seeds} seeds from {first_seed} on: at least one is needed, all from 0 to {LAST_SEED}")
    for kind, names, known in (("task", tasks, TASKS), ("agent", agents, AGENTS)):
        for name in names:
            if name not in known:
                raise RecollectError(f"no {kind} {name!r}; there are {', '.join(known)}")


def run(
    tasks: Sequence[str],
    agents: Sequence[str],
    seeds: int,
    scale: float,
    on_row: Callable[[dict[str, Any]], None],
    first_seed: int = 0,
    progress: bool = False,
) -> list[dict[str, Any]]:
    """One row a task, agent and seed.

    Args:
        tasks: by name.
        agents: by name.
        seeds: runs of each pair; they are played side by side.
        scale: factor on every task's number of steps.
        on_row: called with each row as it is done.
        first_seed: seeds count from here.
        progress: say on stderr how far each pair is.
    """
    check(tasks, agents, seeds, first_seed)
    rows = []
    for name in tasks:
        for agent in agents:
            if agent == "oracle" and TASKS[name].oracle is None:
                continue
            for row in _run_pair(name, TASKS[name], agent, range(first_seed, first_seed + seeds), scale, progress):
                rows.append(row)
                on_row(row)
    return rows


def _run_pair(name: str, task: Task, agent: str, seeds: range, scale: float, progress: bool) -> list[dict[str, Any]]:
    steps = max(BLOCKS, int(task.steps * scale)) // BLOCKS * BLOCKS
    options = dict((task.oracle if agent == "oracle" else None) or task.options)
    made = named.make("none" if agent == "oracle" else agent, **task.agent_options(agent))
    learner = Learner(
        made,
        task.env,
        seed=seeds[0],
        copies=len(seeds),
        learners="each",
        env_options=options,
        normalize_observations=task.normalize_observations,
        normalize_rewards=task.normalize_rewards,
        check=False,
    )
    curves: dict[int, list[dict[str, Any]]] = {}
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as here:
        keep = lambda _, row: curves.setdefault(row["seed"], []).append(row)  # noqa: E731
        try:
            # Not strict: one seed that has lost itself is a result, and must not end those beside it.
            folder = Path(here) / "run"
            log_every = steps // BLOCKS
            learner.learn(steps, log_every=log_every, callbacks=[keep], folder=folder, strict=False, progress=progress)
        except Interrupted as error:
            raise KeyboardInterrupt from error  # its folder is gone in a moment: nothing there to go on with
    learner.close()
    seconds = (time.monotonic() - start) / len(seeds)
    return [_row(name, task, agent, seed, rows, seconds) for seed, rows in sorted(curves.items())]


def _row(name: str, task: Task, agent: str, seed: int, rows: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    """What came of one run; blocks in which no episode ended count as the one before them."""
    episodes = np.diff([0, *(row["episodes"] for row in rows)])
    curve = np.array([row["return"] for row in rows])
    last = curve[-5:][~np.isnan(curve[-5:])]
    weighted = float(np.nansum(curve * episodes) / max(episodes.sum(), 1)) if episodes.sum() else math.nan
    good = np.flatnonzero(curve >= task.solved)
    return {
        "task": name,
        "agent": agent,
        "seed": seed,
        "steps": int(rows[-1]["steps"]),
        "episodes": int(rows[-1]["episodes"]),
        "final": float(last.mean()) if len(last) else math.nan,
        "whole": weighted,
        "steps_to_solve": int(rows[good[0]]["steps"]) if len(good) else None,
        "solved": bool(_measure(task, weighted, float(last.mean()) if len(last) else math.nan) >= task.solved),
        "seconds": round(seconds, 2),
        "curve": [None if math.isnan(x) else round(x, 4) for x in curve.tolist()],
    }


def _measure(task: Task, whole: float, final: float) -> float:
    """The score of bsuite looks at all episodes of training, everything else at the last tenth."""
    return whole if task.env.startswith("bsuite/") else final


def table(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One line a task and agent: interquartile mean of the final return with its interval, and how many solved it."""
    lines = []
    for task, agent in dict.fromkeys((row["task"], row["agent"]) for row in rows):
        own = [row for row in rows if (row["task"], row["agent"]) == (task, agent)]
        final = np.array([row["final"] for row in own], float)
        known = final[~np.isnan(final)]
        low, high = stratified_bootstrap([known]) if len(known) else (math.nan, math.nan)
        needed = sorted(row["steps_to_solve"] or math.inf for row in own)
        lines.append(
            {
                "task": task,
                "agent": agent,
                "seeds": len(own),
                "return": interquartile_mean(known) if len(known) else math.nan,
                "interval": [low, high],
                "solved": sum(row["solved"] for row in own),
                "median_steps": needed[len(needed) // 2],
                "random": TASKS[task].low,
                "optimal": TASKS[task].optimal,
                "options": TASKS[task].agent_options(agent),
                "normalize_observations": TASKS[task].normalize_observations,
                "normalize_rewards": TASKS[task].normalize_rewards,
            }
        )
    return lines


def over_tasks(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """For each agent, over the tasks that all agents ran: returns between random (0) and optimal (1), aggregated."""
    agents = dict.fromkeys(row["agent"] for row in rows if row["agent"] != "oracle")
    shared = [
        t for t in dict.fromkeys(r["task"] for r in rows) if {r["agent"] for r in rows if r["task"] == t} >= set(agents)
    ]
    found = {}
    for agent in agents:
        strata = []
        for name in shared:
            task, own = TASKS[name], [r["final"] for r in rows if (r["task"], r["agent"]) == (name, agent)]
            known = np.array([x for x in own if x is not None and not math.isnan(x)])
            if len(known):
                strata.append((known - task.low) / (task.optimal - task.low))
        if strata:
            low, high = stratified_bootstrap(strata)
            found[agent] = {"mean": interquartile_mean(np.concatenate(strata)), "low": low, "high": high}
    return found
