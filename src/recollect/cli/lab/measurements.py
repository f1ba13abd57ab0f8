"""``recollect lab estimators``, ``inclusion``, ``endless``, ``checkpoints``, ``algorithm1`` and ``soak``."""

import argparse
import json
from pathlib import Path

from recollect.cli.arguments import Commands, count, multiple
from recollect.cli.reports import print_rows, print_table, progress
from recollect.errors import RecollectError


def _soak(args: argparse.Namespace) -> None:
    from recollect.store.run_folders import write_json
    from recollect.studies import reliability

    if args.out.exists():
        raise RecollectError(f"{args.out} exists already: choose another --out, or remove it")
    found = reliability.soak(args.minutes, args.checkpoint_every or 5.0, args.out, lambda text: print(text, flush=True))
    write_json(args.out / "soak.json", found)
    del found["samples"]
    print(json.dumps(found, indent=1))
    if found["damaged"]:
        raise RecollectError(f"{len(found['damaged'])} damaged files: {found['damaged'][0]}")


def _estimators(args: argparse.Namespace) -> None:
    from recollect.studies import estimator_report

    progress("enumerating, then playing episodes: about a minute")
    report = estimator_report.report(episodes=args.episodes)
    if args.json:
        print(json.dumps(report, indent=1))
        return
    for title, columns, rows in estimator_report.tables(report):
        print(f"\n{title}\n")
        print_table(columns, rows)


def _inclusion(args: argparse.Namespace) -> None:
    from recollect.studies.plots import draw_inclusion

    print(f"picture: {draw_inclusion(args.out)}")


def _endless(args: argparse.Namespace) -> None:
    from recollect.studies import reliability

    progress(f"one episode of {args.steps:,} steps")
    rows = reliability.endless(args.steps)
    if args.json:
        print(json.dumps(rows, indent=1))
        return
    print_rows({"steps": "{steps:,}", "steps/s": "{steps_a_second:,}", "resident MiB": "{resident_mib:.1f}"}, rows)


def _checkpoints(args: argparse.Namespace) -> None:
    from recollect.studies import reliability

    progress("training figure 4 with checkpoints for half a minute")
    print(json.dumps(reliability.checkpoint_cost(), indent=1))


def _algorithm1(args: argparse.Namespace) -> None:
    from recollect.studies.algorithm1 import shares

    rows = shares()
    if args.json:
        print(json.dumps(rows, indent=1))
        return
    print("share of the sample from the last half of a U(0,1] stream; .50 is right\n")
    columns = {"n": "{n}", "items": "{items:,}", "Algorithm 1 as printed": "{algorithm1:.3f}"}
    columns |= {"first NaN at item": "{nan}", "Reservoir": "{reservoir:.3f}", "± s.e.": "{standard_error:.3f}"}
    print_rows(columns, [row | {"nan": "none" if (at := row["first_nan"]) is None else f"{at:,}"} for row in rows])


def register(commands: Commands) -> None:
    """Add the commands."""
    bias = commands.add_parser("estimators", help="how biased the write-gradient estimators are, by enumeration")
    bias.add_argument("--json", action="store_true", help="print JSON instead of tables")
    bias.add_argument("--episodes", type=count, default=100_000, help="of each Monte Carlo estimate")
    bias.set_defaults(run=_estimators)
    inclusion = commands.add_parser("inclusion", help="sample one stream many times and draw what stayed")
    inclusion.add_argument("--out", type=Path, default=Path("runs/inclusion"), help="folder (default: runs/inclusion)")
    inclusion.set_defaults(run=_inclusion)
    long = commands.add_parser("endless", help="one episode that never ends: is memory flat, is speed")
    long.add_argument("--json", action="store_true", help="print JSON instead of a table")
    long.add_argument("--steps", type=count, default=10**7, help="default: 10 million")
    long.set_defaults(run=_endless)
    saving = commands.add_parser("checkpoints", help="what a checkpoint costs")
    saving.set_defaults(run=_checkpoints)
    printed = commands.add_parser("algorithm1", help="where Algorithm 1 as printed stops sampling")
    printed.add_argument("--json", action="store_true", help="print JSON instead of a table")
    printed.set_defaults(run=_algorithm1)
    soak = commands.add_parser("soak", help="train with checkpoints for long and watch memory and open files")
    soak.add_argument("--minutes", type=multiple, default=60.0, help="default: 60")
    soak.add_argument("--checkpoint-every", type=multiple, metavar="SECONDS", help="default: 5")
    soak.add_argument("--out", type=Path, default=Path("runs/soak"), help="folder (default: runs/soak)")
    soak.set_defaults(run=_soak)
