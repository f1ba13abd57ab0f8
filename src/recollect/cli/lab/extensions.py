"""``recollect lab extensions``: tasks without ends, states that are more than an observation."""

import argparse
from pathlib import Path

from recollect.cli.arguments import Commands, add_seeds, count
from recollect.cli.reports import check_out, write_report
from recollect.errors import RecollectError


def _extensions(args: argparse.Namespace) -> None:
    from recollect.studies.extensions import study_abstract, study_continuing

    check_out(args)
    if args.amount is not None and args.amount % 10:
        raise RecollectError(f"--amount {args.amount}: a multiple of 10 is needed, the last tenth is measured")
    if args.study == "continuing":
        rows = study_continuing(args.seeds, args.amount or 80_000, args.first_seed)
    else:
        rows = study_abstract(args.seeds, args.amount or 12_000, args.first_seed)
    write_report(args, {"study": args.study, "first_seed": args.first_seed, "rows": rows}, {})


def register(commands: Commands) -> None:
    """Add the command."""
    extensions = commands.add_parser("extensions", help="tasks without ends, states that are more than an observation")
    extensions.add_argument("study", choices=("continuing", "abstract"))
    add_seeds(extensions, 16, "runs per row")
    extensions.add_argument("--amount", type=count, help="steps of a life (80,000), or episodes (12,000)")
    extensions.add_argument("--out", type=Path, help="JSON file to write; default: standard output")
    extensions.set_defaults(run=_extensions)
