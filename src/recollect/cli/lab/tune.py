"""``recollect lab tune``: the paper's grid for the recurrent baseline."""

import argparse
import functools

from recollect.cli.arguments import Commands, add_resume, count, counts
from recollect.cli.reports import check_out, reading_rows, run_units, write_report
from recollect.errors import RecollectError


def _rates(text: str) -> tuple[int, ...]:
    if not set(text.split(",")) <= set("0123456789"):
        raise argparse.ArgumentTypeError(f"{text!r}: each must be a whole number from 0 to 9")
    return tuple(map(int, text.split(",")))


def _tune(args: argparse.Namespace) -> None:
    from recollect.studies.paper import BASELINE_RATES
    from recollect.studies.tune import ranked, try_width

    check_out(args)
    if args.episodes is not None and args.episodes % 100:
        raise RecollectError(f"--episodes {args.episodes}: a multiple of 100 is needed, the last 100 decide")
    rates = tuple(BASELINE_RATES[x] for x in args.rates)
    units = {
        f"width {width}": functools.partial(try_width, args.decisions, width, rates, args.episodes)
        for width in args.widths
    }
    found, errors = run_units(args, units)
    with reading_rows(args):
        rows = [row for rows in found.values() for row in rows]
        best = ranked(rows)
    write_report(args, {"decisions": args.decisions, "rows": best}, errors)


def register(commands: Commands) -> None:
    """Add the command."""
    tune = commands.add_parser("tune", help="the paper's grid for the recurrent baseline")
    tune.add_argument("decisions", type=int, choices=(1, 2))
    tune.add_argument("--widths", type=counts, default=(5, 10, 15, 20), help="comma-separated")
    tune.add_argument("--rates", type=_rates, default=tuple(range(10)), help="x of 0.05 · 2^-x, comma-separated")
    tune.add_argument("--episodes", type=count, help="default: the paper's 25,000 or 50,000")
    tune.set_defaults(run=_tune)
    add_resume(tune)
