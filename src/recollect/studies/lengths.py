"""How far back: the same task with ever longer waits between what is shown and what is asked, and who still solves it.

A run counts as solved where the mean return over the last tenth of its episodes is .95 or more. How soon is told by the
first block, a fiftieth of the budget, whose mean return is.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recollect.agents import named
from recollect.agents.base import Agent
from recollect.envs.secret_informant import SecretInformant
from recollect.envs.t_maze import TMaze
from recollect.errors import RecollectError
from recollect.studies import ranges
from recollect.studies.statistics import share_interval
from recollect.studies.study import SOLVED, side_by_side
from recollect.training.batch import Progress, Result, train

BLOCKS = 50

FAMILIES: dict[str, Callable[[int], Any]] = {"t-maze": TMaze, "secret-informant": SecretInformant}

KINDS = {name: name for name in ("episodic", "fifo", "uniform", "none")} | {"gru": "gru-rtrl", "gru-full": "gru"}
"""What `recollect.agents.named` calls the agents here; gru-full is for the secret informant, whose loop is compiled."""

_MEMORY = {
    "memory_size": 192,
    "hidden": 10,
    "optimizer": "rmsprop",
    "learning_rate": 0.00205126,
    "square_decay": 0.998888,
    "discount": 0.999561,
    "entropy": 0.000104874,
    "surprise": 0.00137906,
    "trace_decay": 0.225199,
    "value_rate": 1.13586,
    "policy_rate": 2.8495,
    "query_rate": 1.13091,
    "write_rate": 1.63892,
    "query_gain": 0.0347269,
    "write_gain": 0.2973,
    "temperature_start": 0.308164,
    "credit_cap": 3.25969,
}
_GRU = {
    "width": 10,
    "learning_rate": 0.00197975,
    "discount": 0.945901,
    "entropy": 0.0259617,
    "decay": 0.997401,
    "epsilon": 1.12531e-10,
    "update_start": -0.591456,
}
_MEMORIES = ("episodic", "fifo", "uniform", "none")
SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "t-maze": {**dict.fromkeys(_MEMORIES, _MEMORY), "gru": _GRU},
    "secret-informant": {
        **{name: {"memory_size": 4} for name in _MEMORIES},
        "gru": {"width": 10, "discount": 0.99},
        "gru-full": {"width": 5, "learning_rate": 0.003125},
    },
}
"""The agents' options in each family; all else is at its default.

The T-maze's are what `--search` and `--best` found, see docs/environments.md; the secret informant's are the robust
preset's and what the paper's grid chose for its baseline.
"""

WINDOW = 4
"""The window of gru-full, in shortest episodes: one that only sometimes goes forward is still seen whole."""


RANGES: dict[str, dict[str, ranges.Range]] = {
    **dict.fromkeys(_MEMORIES, ranges.MEMORY),
    "gru": ranges.GRU,
    "gru-full": {name: within for name, within in ranges.GRU.items() if name != "update_start"},
}
"""What a search draws from; the compiled loop of gru-full knows no ``update_start``."""


def make_agent(family: str, name: str, env: Any, changes: dict[str, Any]) -> Any:
    """The agent called ``name`` for an environment of a family, with what changes are options of its kind."""
    kind = KINDS[name]
    options = {"window": WINDOW * env.shortest_episode} if name == "gru-full" else {}
    known = {field.name for field in dataclasses.fields(named.NAMES[kind][0])}  # type: ignore[arg-type]
    own = {option: value for option, value in changes.items() if option in known}
    return named.make(kind, **{**options, **SETTINGS[family][name], **own})


def draw(name: str, count: int, fixed: Collection[str] = ()) -> list[dict[str, float]]:
    """Settings of an agent drawn at random, but for what is fixed."""
    return ranges.draw(RANGES[name], count, fixed)


def best(report: Path, agents: Sequence[str], count: int, fixed: Collection[str] = ()) -> dict[str, list[dict]]:
    """The best settings of each agent in the report of a search, but for what is fixed."""
    return {name: ranges.best(report, RANGES[name], count, fixed, agent=name) for name in agents}


def _quantile(values: np.ndarray, q: float) -> int | None:
    """The least of the counts that so large a share does not exceed; None where it is infinite."""
    found = np.sort(values)[math.ceil(q * len(values)) - 1]
    return round(float(found)) if math.isfinite(found) else None


def summarise(returns: np.ndarray, lengths: np.ndarray, episodes: int) -> dict[str, Any]:
    """One row, from means over equal blocks of the episodes, [seed, block]; NaN where a run did not get so far."""
    seeds, blocks = returns.shape
    final = returns[:, blocks - math.ceil(blocks / 10) :].mean(axis=1)
    solved = int((final >= SOLVED).sum())
    row: dict[str, Any] = {
        "seeds": seeds,
        "episodes": episodes,
        "finished": int(np.isfinite(final).sum()),
        "solved": solved,
        "share": solved / seeds,
        "share_interval": share_interval(solved, seeds),
    }
    over = returns >= SOLVED
    each, first = np.arange(seeds), np.argmax(over, axis=1)
    taken = {"episodes": np.ones_like(lengths), "steps": lengths}
    for unit, amount in taken.items():
        until = np.cumsum(amount, axis=1)[each, first] * (episodes // blocks)
        until = np.where(over.any(axis=1), until, np.inf)
        row[f"median_{unit}_to_solve"] = _quantile(until, 0.5)
        row[f"quartiles_{unit}_to_solve"] = [_quantile(until, 0.25), _quantile(until, 0.75)]
    row["mean_final_return"] = float(np.nanmean(final)) if row["finished"] else None
    return row


class Task(NamedTuple):
    """One agent in one environment, and how the rows about it begin."""

    head: dict[str, Any]
    agent: Agent
    env: Any


def tasks(
    families: Sequence[str], lengths: Sequence[int], agents: Sequence[str], changes: dict[str, Any]
) -> dict[str, Task]:
    """Every family at every length with every agent, by name; what is wrong with any is said here."""
    found, unused = {}, set(changes)
    for family, length, name in itertools.product(families, lengths, agents):
        if name == "gru-full" and family != "secret-informant":
            raise RecollectError(f"gru-full runs on secret-informant alone, not on {family}: take gru there")
        env = FAMILIES[family](length)
        agent = make_agent(family, name, env, changes)
        unused -= {field.name for field in dataclasses.fields(agent)}
        found[f"{family} {length} {name}"] = Task({"family": family, "length": length, "agent": name}, agent, env)
    if unused:
        raise RecollectError(f"none of {', '.join(agents)} has an option {', '.join(sorted(unused))}")
    return found


class Budget(NamedTuple):
    """What every setting gets: its seeds, the episodes of each, and the most steps in units of the fewest."""

    seeds: range
    episodes: int
    max_steps: float = 4.0

    def check(self) -> None:
        """Refuse episodes that do not divide into blocks."""
        if self.episodes % BLOCKS:
            raise RecollectError(f"episodes={self.episodes}: a multiple of {BLOCKS} is needed, for blocks to judge by")


def _train(task: Task, budget: Budget, on_progress: Callable[[Progress], None]) -> Result:
    _, agent, env = task
    seeds, episodes, multiple = budget
    limit = min(int(multiple * episodes * env.shortest_episode), 2**31 - 1)
    return train(agent, env, episodes, seeds, bins=BLOCKS, max_steps=limit, on_progress=on_progress)


def study(task: Task, budget: Budget, on_progress: Callable[[Progress], None] = lambda report: None) -> dict[str, Any]:
    """The row of a task."""
    result = _train(task, budget, on_progress)
    return task.head | summarise(result.returns, result.lengths, budget.episodes)


def search(
    task: Task,
    budget: Budget,
    drawn: list[dict[str, float]],
    on_progress: Callable[[Progress], None] = lambda report: None,
) -> list[dict[str, Any]]:
    """A row for each setting, the best first; all run side by side in one loop, each with fresh seeds."""
    count, first = len(budget.seeds), budget.seeds.start
    whole = budget._replace(seeds=range(first, first + count * len(drawn)))
    result = _train(task._replace(agent=side_by_side(task.agent, drawn, count)), whole, on_progress)
    rows = []
    for k, settings in enumerate(drawn):
        own = slice(k * count, (k + 1) * count)
        found = summarise(result.returns[own], result.lengths[own], budget.episodes)
        rows.append(task.head | {"settings": settings} | found)
    return ranked(rows)


def ranked(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By share solved, then by median steps, then by final return: the best first."""

    def merit(row: dict[str, Any]) -> tuple[float, ...]:
        steps, final = row["median_steps_to_solve"], row["mean_final_return"]
        return -row["share"], math.inf if steps is None else steps, math.inf if final is None else -final

    return sorted(rows, key=merit)


COLUMNS = ["family", "length", "agent", "solved", "95% interval", "median steps", "final return"]


def table(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Rows as ``COLUMNS`` has them, for people."""

    def number(value: float | None, form: str) -> str:
        return "–" if value is None else f"{value:{form}}"

    return [
        [
            *(str(row[x]) for x in ("family", "length", "agent")),
            f"{row['solved']} of {row['seeds']}",
            "{:.2f} to {:.2f}".format(*row["share_interval"]),
            number(row["median_steps_to_solve"], ",.0f"),
            number(row["mean_final_return"], ".3f"),
        ]
        for row in rows
    ]
