"""``recollect resume``, ``runs``, ``verify`` and ``plot``: what is in run folders, and resuming it."""

import argparse
import json
from pathlib import Path
from typing import Any

from recollect.cli.arguments import Commands
from recollect.cli.learners import add_env_option, say_where
from recollect.cli.reports import print_table
from recollect.cli.reproduce import add_resume_options, conclude, resume_options
from recollect.errors import RecollectError, printable


def _resume(args: argparse.Namespace) -> None:
    from recollect.store import files

    config = files.read_json(args.folder / "config.json")
    if config.get("kind") == "learner":
        _resume_learner(args)
    else:
        _resume_figure(args, config)


def _resume_learner(args: argparse.Namespace) -> None:
    from recollect.training.resuming import resume

    options = resume_options(args)
    options |= {"checkpoint_every": options.pop("every"), "checkpoint_folder": args.checkpoint_folder}
    learner = resume(args.folder, args.env, progress=True, **options)
    say_where(learner, args.folder)


def _resume_figure(args: argparse.Namespace, config: dict[str, Any]) -> None:
    from recollect.studies import reproduce
    from recollect.studies.drawing import require
    from recollect.training.progress import watching

    require()
    plan = reproduce.plan_of(args.folder, config)
    with watching(plan.figure, [job.name for job in plan.jobs]) as watch:
        reproduce.resume(args.folder, watch, **resume_options(args))
    conclude(args.folder)


def _runs(args: argparse.Namespace) -> None:
    from recollect.store import run_reading

    if not args.folder.is_dir():
        raise RecollectError(f"{args.folder} is not a folder")
    rows = run_reading.summaries(args.folder)
    if args.json:
        print(json.dumps(rows, indent=1))
        return
    if not rows:
        print(f"no runs in {args.folder}")
        return

    def cells(row: dict) -> list[str]:
        last = row.get("last_return")
        progress = f"{row['progress']:.0%}" if "progress" in row else ""
        status = row["status"] + ("" if row.get("exact", True) else ", not bit-exact")
        return [
            row["run"],
            status,
            progress,
            "" if last is None else f"{last:.3f}",
            row.get("error") or row.get("holder") or "",
        ]

    print_table(["run", "status", "progress", "last return", ""], [cells(row) for row in rows])


def _verify(args: argparse.Namespace) -> None:
    from recollect.store import run_reading

    found = run_reading.verify(args.folder)
    for path, fault in found:
        print(f"intact   {printable(path)}" if fault is None else f"DAMAGED  {printable(fault)}")
    if faults := sum(fault is not None for _, fault in found):
        raise RecollectError(f"{args.folder} is damaged in {faults} place{'s' if faults > 1 else ''}")


def _plot(args: argparse.Namespace) -> None:
    from recollect.studies.plots import draw_figure

    print(f"picture: {' '.join(str(picture) for picture in draw_figure(args.folder))}")


def register(commands: Commands) -> None:
    """Add what reads run folders and resumes them."""
    resume = commands.add_parser("resume", help="continue a run that was interrupted or killed, bit for bit")
    resume.add_argument("folder", type=Path, metavar="RUN")
    resume.set_defaults(run=_resume)
    add_resume_options(resume)
    add_env_option(resume)
    resume.add_argument(
        "--checkpoint-folder",
        type=Path,
        metavar="DIR",
        help="where a Checkpoint callback saves that had a folder of its own",
    )

    listing = commands.add_parser("runs", help="list runs: status, progress, last return")
    listing.add_argument("folder", type=Path, metavar="DIR", nargs="?", default=Path("runs"), help="default: runs")
    listing.add_argument("--json", action="store_true", help="print JSON instead of a table")
    listing.set_defaults(run=_runs)

    check = commands.add_parser("verify", help="check a run against its checksums")
    check.add_argument("folder", type=Path, metavar="RUN")
    check.set_defaults(run=_verify)

    plot = commands.add_parser("plot", help="draw a run again from its folder")
    plot.add_argument("folder", type=Path, metavar="DIR")
    plot.set_defaults(run=_plot)
