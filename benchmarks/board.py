"""The board's tables in Markdown, from one or several reports of ``recollect benchmark memory --out``.

    python benchmarks/board.py benchmarks/data/board-whole-36000.json
    python benchmarks/board.py part-1.json part-2.json --steps --join both.json

Rows of several reports are put together. Refused are two reports with the same seed of the same agent on the same task,
and runs of different lengths on one task. A line per family of tasks has the interquartile mean over seeds at each
level, and in brackets how many seeds are at the mark. Below, over the tasks that all agents ran, are the interquartile
mean from random (0) to best (1) with its interval, the runs at the mark, and the tasks where most seeds are.
``--steps`` gives the median steps to the mark instead of the returns; ``--join`` writes the rows of all reports, which
may be of several machines, into one that is read here like them.
"""

import argparse
import json
import math
import re
import sys
from pathlib import Path
from typing import Any

from recollect.studies.benchmark import over_tasks, table
from recollect.studies.tasks import TASKS

LEVELS = ("Easy", "Medium", "Hard")
MANY = 18
"""Tasks of one family of which a line says no more than how many are at the mark."""

Line = dict[str, Any]


def read(paths: list[Path]) -> list[Line]:
    """The rows of all reports; refused if they are not of runs that can stand beside one another."""
    rows: dict[tuple[str, str, int], Line] = {}
    for path in paths:
        for row in json.loads(path.read_text())["rows"]:
            name = row["task"], row["agent"], row["seed"]
            if name in rows:
                sys.exit(f"{path}: {row['task']}, {row['agent']}, seed {row['seed']} is in another report as well")
            row["final"] = math.nan if row["final"] is None else float(row["final"])
            rows[name] = row
    for task in dict.fromkeys(row["task"] for row in rows.values()):
        if len(steps := {row["steps"] for row in rows.values() if row["task"] == task}) > 1:
            sys.exit(f"{task}: runs of {', '.join(f'{n:,}' for n in sorted(steps))} steps are in one table")
    return list(rows.values())


def join(paths: list[Path], rows: list[Line], out: Path) -> None:
    """One report of several, a row to a line, with the commands and versions that made them."""
    reports = [json.loads(path.read_text()) for path in paths]
    made = [part for r in reports for part in r.get("made", [{key: r.get(key) for key in ("command", "versions")}])]
    if len(scales := {r["scale"] for r in reports}) > 1:
        sys.exit(f"reports of the scales {', '.join(map(str, sorted(scales)))} are not one")
    written = [json.dumps({**row, "final": None if math.isnan(row["final"]) else row["final"]}) for row in rows]
    head = json.dumps({"scale": scales.pop(), "made": made}, indent=1)
    try:
        with out.open("x") as file:
            file.write(head.removesuffix("\n}") + ',\n "rows": [\n' + ",\n".join(written) + "\n ]\n}\n")
    except FileExistsError:
        sys.exit(f"{out} exists already: choose another name, or remove it")


def family(task: str) -> tuple[str, str]:
    """What a task is called without its level, and the level."""
    for level in LEVELS:
        if task.endswith(level):
            return f"popgym {task.removesuffix(level)}", level.lower()
    found = re.fullmatch(r"(.*?)-?(S?\d+)(-2)?", task)
    if found is None:
        return task, ""
    return found[1] + (", two decisions" if found[3] else ""), found[2]


def number(value: float) -> str:
    """Two digits after the point, none where they say nothing; a true minus."""
    text = f"{value:.0f}" if abs(value) >= 10 else f"{value:.2f}".replace("0.", ".", 1)
    return text.replace("-.00", ".00").replace("-", "−")


def cell(own: dict[str, Line], tasks: list[str]) -> str:
    """What one agent reached on the tasks of a family."""
    marked = marked_of(own, tasks)
    if len(tasks) > MANY:
        runs, good = sum(own[task]["seeds"] for task in marked), sum(own[task]["solved"] for task in marked)
        least = min((own[task]["return"], task) for task in marked)
        return f"{good} of {runs} runs at the mark; least {number(least[0])} ({family(least[1])[1]})"
    returns = ", ".join(number(own[task]["return"]) if task in own else "–" for task in tasks)
    seeds = max(own[task]["seeds"] for task in tasks if task in own)
    if seeds == 1 or not any(own[task]["solved"] for task in marked):
        return returns
    return f"{returns} ({', '.join(str(own[task]['solved']) if task in own else '–' for task in tasks)})"


def steps_cell(own: dict[str, Line], tasks: list[str]) -> str:
    """The median steps after which one agent was first at the mark, where most seeds were."""
    found = [own[task]["median_steps"] if task in own else math.inf for task in tasks]
    if len(tasks) > MANY:
        return " to ".join(shown_steps(steps) for steps in (min(found), max(found)))
    return ", ".join(map(shown_steps, found))


def shown_steps(steps: float) -> str:
    """A number of steps, or a dash for never."""
    return "–" if steps == math.inf else f"{steps:,}"


def marked_of(own: dict[str, Line], tasks: list[str]) -> list[str]:
    """The tasks with a mark that one agent ran."""
    return [task for task in tasks if task in own and not math.isnan(TASKS[task].mark)]


def print_families(lines: list[Line], agents: list[str], steps: bool) -> None:
    """One line per family of tasks."""
    by_agent = {agent: {line["task"]: line for line in lines if line["agent"] == agent} for agent in agents}
    families: dict[str, list[str]] = {}
    for task in TASKS:
        if any(task in (marked_of(own, [task]) if steps else own) for own in by_agent.values()):
            families.setdefault(family(task)[0], []).append(task)
    last = [] if steps else ["random"]
    print(f"| {' | '.join(['task', *agents, *last])} |\n|---|{'--:|' * (len(agents) + len(last))}")
    for name, tasks in families.items():
        levels = [family(task)[1] for task in tasks]
        shown = ", ".join(levels) if len(tasks) <= MANY else f"{levels[0]} to {levels[-1]}"
        cells = [
            (steps_cell if steps else cell)(own, tasks) if any(task in own for task in tasks) else "–"
            for own in (by_agent[agent] for agent in agents)
        ]
        if not steps:
            cells.append(", ".join(dict.fromkeys(number(TASKS[task].low) for task in tasks)))
        print(f"| {name}{', ' * bool(shown)}{shown} | {' | '.join(cells)} |")


def print_together(rows: list[Line], lines: list[Line], agents: list[str]) -> None:
    """Over the tasks that all agents ran."""
    ran = {agent: {line["task"] for line in lines if line["agent"] == agent} for agent in agents}
    shared = set.intersection(*ran.values())
    marked = {task for task in shared if not math.isnan(TASKS[task].mark)}
    print(f"\n| {len(shared)} tasks, {len(marked)} with a mark | {' | '.join(agents)} |\n|---|{'--:|' * len(agents)}")
    together = over_tasks(rows)
    means = [f"{number(m['mean'])} ({number(m['low'])} to {number(m['high'])})" for m in (together[a] for a in agents)]
    print(f"| interquartile mean from random (0) to best (1) | {' | '.join(means)} |")
    runs, most, seeds = [], [], []
    for agent in agents:
        own = [line for line in lines if line["agent"] == agent and line["task"] in marked]
        runs.append(f"{sum(line['solved'] for line in own)} of {sum(line['seeds'] for line in own)}")
        most.append(f"{sum(2 * line['solved'] > line['seeds'] for line in own)}")
        seeds.append("–".join(str(n) for n in sorted({line["seeds"] for line in own})))
    print(f"| runs at the mark | {' | '.join(runs)} |")
    print(f"| tasks where more than half of the seeds are | {' | '.join(most)} |")
    print(f"| seeds | {' | '.join(seeds)} |")


def main() -> None:
    """Read, and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="+", type=Path, help="JSON files of recollect benchmark memory --out")
    parser.add_argument("--agents", help="comma-separated, in this order (default: all)")
    parser.add_argument("--steps", action="store_true", help="median steps to the mark instead of returns")
    parser.add_argument("--join", type=Path, metavar="OUT", help="write one report of all")
    args = parser.parse_args()
    rows = read(args.reports)
    known = list(dict.fromkeys(row["agent"] for row in rows))
    agents = known if args.agents is None else args.agents.split(",")
    if unknown := [agent for agent in agents if agent not in known]:
        parser.error(f"no {', '.join(unknown)} in these reports; there are {', '.join(known)}")
    rows = [row for row in rows if row["agent"] in agents]
    if args.join is not None:
        join(args.reports, rows, args.join)
    lines = table(rows)
    print_families(lines, agents, args.steps)
    print_together(rows, lines, agents)


if __name__ == "__main__":
    main()
