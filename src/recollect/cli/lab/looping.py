"""``recollect lab looping``: why the paper's recipe loops, each link measured and cut alone."""

import argparse
from pathlib import Path

from recollect.cli.arguments import Commands, add_seeds, count, seeds_of
from recollect.cli.reports import check_out, print_table, progress, write_report


def _looping(args: argparse.Namespace) -> None:
    from recollect.studies import looping
    from recollect.studies.drawing import require
    from recollect.studies.lab_plots import draw_looping

    check_out(args, args.picture)
    if args.picture is not None:
        require(args.picture)
    report = looping.run(seeds_of(args), args.steps, progress, args.workers)
    if args.picture is not None:
        draw_looping(report, args.picture)
    if args.json or args.out is not None:
        write_report(args, report, {})
    if not args.json:
        print_table(looping.COLUMNS, looping.table(report))


def register(commands: Commands) -> None:
    """Add the command."""
    looping = commands.add_parser("looping", help="why the paper's recipe loops: each link measured, and cut alone")
    add_seeds(looping, 32, "runs per intervention")
    looping.add_argument(
        "--steps", type=count, default=300_000, help="of each run, a multiple of 40 (default: 300,000)"
    )
    looping.add_argument("--workers", type=count, help="threads (default: one per core); results do not depend on it")
    looping.add_argument("--json", action="store_true", help="print JSON instead of a table")
    looping.add_argument("--out", type=Path, help="JSON file to write as well")
    looping.add_argument("--picture", type=Path, help="PNG file to draw the measures to")
    looping.set_defaults(run=_looping)
