"""``recollect lab lengths``: how far back each agent still remembers, and how long it takes to learn."""

import argparse
import functools
from pathlib import Path

from recollect.cli.arguments import (
    Commands,
    add_resume,
    add_seeds,
    add_set,
    count,
    counts,
    multiple,
    names_among,
    seeds_of,
)
from recollect.cli.reports import check_out, draw_reports, print_table, reading_rows, run_units, write_report
from recollect.errors import RecollectError

FAMILIES = ("t-maze", "secret-informant")
AGENTS = ("episodic", "fifo", "uniform", "none", "gru", "gru-full")


def _lengths(args: argparse.Namespace) -> None:
    from recollect.studies import drawing, lab_plots, lengths
    from recollect.training.progress import Lines

    if args.draw is not None:
        draw_reports(args, "lab lengths", args.draw, lab_plots.draw_lengths)
        return
    check_out(args, args.picture)
    if args.search is not None and (len(args.lengths) != 1 or args.picture is not None):
        raise RecollectError("--search: it is made at one of the --lengths, and has no --picture")
    if args.best is not None and args.search is None:
        raise RecollectError("--best: of a search, --search K says how many")
    if args.picture is not None:
        drawing.require(args.picture)
    changes = dict(args.set)
    budget = lengths.Budget(seeds_of(args), args.episodes, args.max_steps)
    budget.check()

    earlier = args.best and lengths.best(Path(args.best), args.agents, args.search or 1, changes)
    tasks = lengths.tasks(args.families, args.lengths, args.agents, changes)
    units = {}
    for title, task in tasks.items():
        watch, name = Lines(title, args.episodes), task.head["agent"]
        if args.search is None:
            units[title] = functools.partial(lengths.study, task, budget, watch)
        else:
            drawn = earlier[name] if earlier else lengths.draw(name, args.search, changes)
            units[title] = functools.partial(lengths.search, task, budget, drawn, watch)
    found, errors = run_units(args, units)
    with reading_rows(args):
        rows = shown = list(found.values())
        if args.search is not None:
            rows, shown = ([row for each in found.values() for row in each[:most]] for most in (args.search, 5))
        if args.picture is not None and rows:
            lab_plots.draw_lengths(rows, args.picture)
        if not args.json:
            print_table(lengths.COLUMNS, lengths.table(shown))
            for row in shown if args.search is not None else ():
                print(f"{row['agent']}:", *(f"--set {name}={value:g}" for name, value in row["settings"].items()))
    if args.json or args.out is not None or errors:
        settings = {family: {name: lengths.SETTINGS[family][name] for name in args.agents} for family in args.families}
        write_report(args, {"settings": settings, "changes": changes, "rows": rows}, errors)


def register(commands: Commands) -> None:
    """Add the command."""
    lengths = commands.add_parser("lengths", help="how far back each agent still remembers: shares solved by length")
    lengths.add_argument(
        "--families",
        type=names_among("family", FAMILIES),
        default=("t-maze",),
        help=f"comma-separated, or all: {', '.join(FAMILIES)} (default: t-maze)",
    )
    lengths.add_argument(
        "--lengths", type=counts, default=(5, 10, 20, 40, 80, 160), help="comma-separated (default: 5,10,20,40,80,160)"
    )
    lengths.add_argument(
        "--agents",
        type=names_among("agent", AGENTS),
        default=("episodic", "gru"),
        help=f"comma-separated, or all: {', '.join(AGENTS)} (default: episodic,gru); "
        "gru carries its gradients forward, gru-full backpropagates through the episode, on secret-informant alone",
    )
    add_seeds(lengths, 64, "runs per row")
    lengths.add_argument(
        "--episodes", type=count, default=20_000, help="of each run, a multiple of 50 (default: 20,000)"
    )
    add_set(lengths, "change an option of every agent that has it")
    lengths.add_argument(
        "--search",
        type=count,
        metavar="K",
        help="tune instead, at one length: K random settings per agent, side by side, the best first",
    )
    lengths.add_argument("--best", metavar="JSON", help="search among the best K of that search instead of random ones")
    lengths.add_argument(
        "--max-steps", type=multiple, default=4.0, help="end a run after this many times the fewest steps (default: 4)"
    )
    lengths.add_argument("--json", action="store_true", help="print JSON instead of a table")
    lengths.add_argument("--picture", type=Path, help="PNG file to draw the shares and steps to")
    lengths.add_argument(
        "--draw", type=Path, nargs="+", metavar="JSON", help="no training: draw the rows of such files together"
    )
    lengths.set_defaults(run=_lengths)
    add_resume(lengths, out="JSON file to write as well")
