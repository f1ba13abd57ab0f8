"""The command ``recollect``."""

import argparse
import json
import sys
from pathlib import Path

from recollect._version import __version__
from recollect.errors import RecollectError

TOUR = """\
recollect: reinforcement-learning agents that learn online what to remember.

A tour, from a minute to an afternoon:

  recollect demo                 an exact weighted sample of a stream, and its picture
  recollect bench reservoir      how fast the sampler is, beside others, in one run
  recollect bench algorithm1     where the paper's Algorithm 1, as printed, silently stops sampling

In Python:

  from recollect import Reservoir
  r = Reservoir(64, seed=0)
  r.extend(items, weights)       # any stream, in any pieces
  r.items, r.inclusion_probabilities()
"""


def _progress(text: str) -> None:
    print(f"  {text} …", file=sys.stderr, flush=True)


def _print_table(columns: list[str], rows: list[list[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def _bench_reservoir(args: argparse.Namespace) -> None:
    from recollect.bench import reservoir

    rows = reservoir.times(args.capacities, args.items, _progress)
    add = reservoir.add_times()
    if args.json:
        print(json.dumps({"nanoseconds_an_item": rows, "add_nanoseconds": add}, indent=1))
        return
    print("\nnanoseconds an item, uniform weights; the last columns are ratios within this run\n")
    _print_table(
        ["items", "n", *reservoir.METHODS, "algorithm1/reservoir", "reservoir/a_expj"],
        [
            [
                f"{r['items']:,}",
                str(r["n"]),
                *(f"{r[m]:.2f}" for m in reservoir.METHODS),
                f"{r['algorithm1'] / r['reservoir']:.0f}",
                f"{r['reservoir'] / r['a_expj']:.2f}",
            ]
            for r in rows
        ],
    )
    print(f"\nadd(item, weight) from Python, n = 64: median {add['median']:.0f} ns, mean {add['mean']:.0f} ns")


def _bench_algorithm1(args: argparse.Namespace) -> None:
    from recollect.bench import reservoir

    rows = reservoir.shares()
    if args.json:
        print(json.dumps(rows, indent=1))
        return
    print("share of the sample from the last half of a U(0,1] stream; .50 is right\n")
    _print_table(
        ["n", "items", "Algorithm 1 as printed", "first NaN at item", "Reservoir", "± s.e."],
        [
            [
                str(r["n"]),
                f"{r['items']:,}",
                f"{r['algorithm1']:.3f}",
                "none" if r["first_nan"] is None else f"{r['first_nan']:,}",
                f"{r['reservoir']:.3f}",
                f"{r['standard_error']:.3f}",
            ]
            for r in rows
        ],
    )


def _demo(args: argparse.Namespace) -> None:
    from recollect.plots import draw_inclusion

    path = draw_inclusion(args.out)
    print(f"picture: {path}")


def _counts(text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(float(x)) for x in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a comma-separated list of whole numbers") from error
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: every number must be at least 1")
    return numbers


def parser() -> argparse.ArgumentParser:
    """The command's options; kept apart so that tests and documentation can read them."""
    top = argparse.ArgumentParser(prog="recollect", description=TOUR, formatter_class=argparse.RawTextHelpFormatter)
    top.add_argument("--version", action="version", version=f"recollect {__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True)

    demo = commands.add_parser("demo", help="sample a stream and draw what came of it")
    demo.add_argument("--out", type=Path, default=Path("demo"), help="folder for the picture (default: demo)")
    demo.set_defaults(run=_demo)

    bench = commands.add_parser("bench", help="measure the library on this machine")
    subjects = bench.add_subparsers(metavar="SUBJECT", required=True)
    speed = subjects.add_parser("reservoir", help="speed of the sampler beside others")
    speed.add_argument("--json", action="store_true", help="print JSON instead of a table")
    speed.add_argument("--capacities", type=_counts, default=(3, 16, 64, 256, 1024), help="n, comma-separated")
    speed.add_argument("--items", type=_counts, default=(10**6, 10**7), help="stream lengths, comma-separated")
    speed.set_defaults(run=_bench_reservoir)
    printed = subjects.add_parser("algorithm1", help="where Algorithm 1 as printed stops sampling")
    printed.add_argument("--json", action="store_true", help="print JSON instead of a table")
    printed.set_defaults(run=_bench_algorithm1)
    return top


def main(argv: list[str] | None = None) -> int:
    """Run the command; errors that have a cause and a fix come out as one line."""
    args = parser().parse_args(argv)
    try:
        args.run(args)
    except (RecollectError, OSError) as error:
        print(f"recollect: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("recollect: interrupted", file=sys.stderr)
        return 130
    return 0
