"""``recollect benchmark``: agents on tasks that ask for memory."""

import argparse
import math
from pathlib import Path
from typing import Any

from recollect.cli.arguments import Commands, add_resume, add_seeds, add_set, count, multiple, names, seeds_of
from recollect.cli.reports import check_out, picture_of, print_rows, reading_rows, run_units, write_report
from recollect.cores import cores
from recollect.errors import RecollectError
from recollect.studies.tasks import AGENTS

SHOWN = 5
"""Settings of a search that are printed, of each task and agent."""


def _benchmark(args: argparse.Namespace) -> None:
    from recollect.store.provenance import plain
    from recollect.studies import benchmark, drawing, plots

    tasks, agents = benchmark.chosen(args.tasks), ("general",) if args.agents is None else args.agents
    seeds = seeds_of(args)
    picture = picture_of(args.out) if args.out is not None and args.search is None else None
    check_out(args, picture)
    if args.search is not None:
        _search(args, tasks, agents, seeds)
        return
    if args.best is not None or args.study is not None:
        raise RecollectError(f"{'--study' if args.best is None else '--best'}: of a search, --search K says how many")
    if args.set:
        raise RecollectError("--set: options are fixed for a --search; on the board every agent has one setting")
    if picture is not None:
        drawing.require(picture)  # before the work, not after it
    units = benchmark.units(tasks, agents, seeds, args.scale, progress=True, jobs=args.jobs)
    options = plain(benchmark.options(tasks, agents))
    found, errors = run_units(args, units, settings=options)
    with reading_rows(args):
        rows = [row for pair in found.values() for row in pair]
        lines, together = benchmark.table(rows), benchmark.over_tasks(rows)
        _print_board(lines, together)
        if rows and picture is not None:
            print(f"picture: {plots.draw_benchmark(picture, rows)}")
    if args.out is not None:
        report = {"scale": args.scale, "options": options, "table": lines, "over_tasks": together, "rows": rows}
        write_report(args, plain(report), errors)
    elif errors:
        raise RecollectError("; ".join(f"{name}: {error}" for name, error in errors.items()))


def _print_board(lines: list[dict[str, Any]], together: dict[str, dict[str, float]]) -> None:
    """A line per task and agent, and one per agent over all tasks."""
    columns = {"task": "{task}", "agent": "{agent}", "return": "{return:.3f}"}
    columns |= {"95% interval": "{interval[0]:.3f} to {interval[1]:.3f}", "least": "{least:.3f}", "at the mark": "{at}"}
    columns |= {"median steps": "{soon}", "random": "{random:.2f}", "best": "{best:.2f}", "PPO-GRU": "{ppo}"}
    told = [
        {
            **line,
            "at": "-" if math.isnan(line["mark"]) else f"{line['solved']} of {line['seeds']}",
            "soon": _steps(line["median_steps"]),
            "ppo": "" if math.isnan(line["published"]) else f"{line['published']:.2f}",
        }
        for line in lines
    ]
    print_rows(columns, told)
    for agent, found in together.items():
        print(f"{agent}: {found['mean']:.3f} ({found['low']:.3f} to {found['high']:.3f}) of random to best, all tasks")


def _search(args: argparse.Namespace, tasks: tuple[str, ...], agents: tuple[str, ...], seeds: range) -> None:
    from recollect.store.provenance import plain
    from recollect.studies import adaptive_search, benchmark

    fixed = dict(args.set)
    if args.study is None:
        units = benchmark.search_units(tasks, agents, seeds, args.scale, args.search, fixed, args.best)
    else:
        units = adaptive_search.units(tasks, agents, seeds, args.scale, args.search, fixed, args.study)
    options = plain(benchmark.options(tasks, agents))
    found, errors = run_units(args, units, settings=options)
    with reading_rows(args):
        rows = benchmark.ranked([row for one in found.values() for row in (one if isinstance(one, list) else [one])])
        _print_search(rows)
    if args.out is not None or errors:
        write_report(args, {"scale": args.scale, "fixed": fixed, "rows": rows}, errors)


def _print_search(rows: list[dict[str, Any]]) -> None:
    """The best settings of each task and agent."""
    from recollect.studies.benchmark import by_pair

    shown = [row for own in by_pair(rows).values() for row in own[:SHOWN]]
    columns = {"task": "{task}", "agent": "{agent}", "solved": "{solved} of {seeds}", "return at the end": "{return}"}
    columns |= {"over all episodes": "{whole}", "median steps": "{soon}"}
    means = [{k: "-" if row[k] is None else f"{row[k]:.3f}" for k in ("return", "whole")} for row in shown]
    told = [row | mean | {"soon": _steps(row["median_steps"])} for row, mean in zip(shown, means, strict=True)]
    print_rows(columns, told)
    for row in shown:
        print(f"{row['task']} {row['agent']}:", *(f"{name}={value:g}" for name, value in row["settings"].items()))


def _steps(median: Any) -> str:
    return "-" if median in (None, "inf", math.inf) else f"{median:,}"


def register(commands: Commands) -> None:
    """Add ``benchmark``."""
    compare = commands.add_parser("benchmark", help="agents on tasks that ask for memory")
    suites = compare.add_subparsers(metavar="SUITE", required=True)
    suite = suites.add_parser("memory", help="the board: bsuite, popgym, MiniGrid, control and our own tasks")
    suite.add_argument("--tasks", type=names, help="comma-separated, or all (default: one of each kind)")
    suite.add_argument("--agents", type=names, help=f"comma-separated, of {', '.join(AGENTS)} (default: general)")
    add_seeds(suite, 10, "of each pair")
    suite.add_argument("--scale", type=multiple, default=1.0, help="factor on every task's steps (default: 1)")
    suite.add_argument(
        "--search",
        type=count,
        metavar="K",
        help="tune instead: K random settings per task and agent, the same ones every time, the best first",
    )
    where = suite.add_mutually_exclusive_group()
    where.add_argument("--best", metavar="JSON", help="search among the best K of that search instead of random ones")
    where.add_argument(
        "--study",
        type=Path,
        metavar="FILE",
        help="search adaptively, by Optuna: K trials of each task and agent in all, kept in FILE",
    )
    add_set(suite, "an option of the agents that a --search does not draw")
    out = "JSON file for the results; without --search a picture, NAME.png, is put beside it"
    add_resume(suite, cores(), "pairs", out)
    suite.set_defaults(run=_benchmark)
