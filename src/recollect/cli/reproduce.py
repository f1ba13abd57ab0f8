"""``recollect reproduce``: a figure of the paper, trained, drawn and held against its claims."""

import argparse
import sys
from pathlib import Path
from typing import Any

from recollect.cli.arguments import Commands, add_gpus, add_on, count, multiple
from recollect.cli.reports import executor_of
from recollect.errors import RecollectError
from recollect.training.progress import say

FIGURES = ("fig3", "fig4", "fig5", "fig6")
PRESETS = ("paper", "robust")
GROUP = 16  # seeds of a unit where an executor does them


def _reproduce(args: argparse.Namespace) -> None:
    from recollect.studies import reproduce

    names = FIGURES if args.figure == "all" else (args.figure,)
    in_threads = args.on == "local" and args.jobs is None
    plans = {}
    for name in names:
        plan = reproduce.make_plan(
            name,
            args.preset,
            args.seeds,
            args.episodes,
            max_steps=args.max_steps,
            with_baseline=not args.no_baseline,
            group=args.group or (None if in_threads else GROUP),
        )
        default = (args.out or Path("runs")) / f"{name}-{args.preset}"
        plans[default if args.figure == "all" else args.out or default] = plan
    there = {path for path in plans if args.resume and path.exists()}
    reproduce.check({path: plan for path, plan in plans.items() if path not in there})
    with executor_of(args, in_threads) as executor:
        failures = _train_all(args, plans, there, executor)
    if failures:
        ((_, only), *more) = failures.items()
        raise RecollectError(
            f"{len(failures)} of {len(plans)} failed: {', '.join(map(str, failures))}" if more else only
        )


def _train_all(args: argparse.Namespace, plans: dict[Path, Any], there: set[Path], executor: Any) -> dict[Path, str]:
    from recollect.studies import reproduce
    from recollect.training.progress import watching

    failures = {}
    for path, plan in plans.items():
        seeds = " and ".join(f"{len(job.seeds)} seeds of the {job.name} agent" for job in plan.jobs)
        print(f"{plan.figure}: {seeds}, {plan.episodes:,} episodes each", file=sys.stderr, flush=True)
        try:
            with watching(plan.figure, [job.name for job in plan.jobs]) as watch:
                if path in there:
                    reproduce.resume(path, watch, plan=plan, executor=executor, say=say, **resume_options(args))
                else:
                    reproduce.train(plan, path, watch, args.checkpoint_every or reproduce.EVERY, executor, say)
            conclude(path)
        except RecollectError as error:
            # The other figures continue; the folder of this one says what happened.
            failures[path] = str(error)
            if len(plans) > 1:
                print(f"recollect: {path}: {error}", file=sys.stderr, flush=True)
    return failures


def conclude(path: Path) -> None:
    """Hold a finished run against the paper's claims, draw it, say where it is."""
    from recollect.studies import reproduce

    verdict, pictures = reproduce.conclude(path)
    _print_verdict(verdict)
    print(f"picture: {' '.join(str(picture) for picture in pictures)}")
    print(f"folder:  {path}")


def _print_verdict(verdict: dict) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console = Console(width=140)
    table = Table(show_lines=True, title=f"{verdict['figure']}: {verdict['title']}, preset {verdict['preset']}")
    for column in ("figure", "claim", "measured", "seeds", "verdict"):
        table.add_column(column, min_width=len(column), ratio=3 if column in ("claim", "measured") else None)
    for row in verdict["rows"]:
        colour = "green" if row["verdict"] == "holds" else "yellow" if row["holding"] else "red"
        claim = f"{escape(row['claim'])}\n[dim]{escape(row['criterion'])}[/dim]"
        outcome = f"[{colour}]{row['verdict']}[/{colour}]"
        table.add_row(verdict["figure"], claim, escape(row["measured"]), str(row["seeds"]), outcome)
    console.print(table)
    if verdict["note"]:
        console.print(f"mind: {verdict['note']}", style="yellow")


def resume_options(args: argparse.Namespace) -> dict:
    """What ``add_resume_options`` asked, by the names that ``studies.reproduce`` has for it."""
    return {
        "fallback": args.fallback,
        "allow_inexact": args.allow_inexact,
        "break_lock": args.break_lock,
        "every": args.checkpoint_every,
    }


def add_resume_options(command: argparse.ArgumentParser) -> None:
    """How to continue a run: for ``reproduce`` and ``resume``."""
    command.add_argument(
        "--checkpoint-every",
        type=multiple,
        metavar="SECONDS",
        help="between checkpoints (default: 60, or as before)",
    )
    command.add_argument(
        "--fallback", action="store_true", help="resuming, go back where the newest checkpoint is damaged"
    )
    command.add_argument(
        "--allow-inexact",
        action="store_true",
        help="resume under other versions, or with an environment whose episode is not reproducible; the run is marked",
    )
    command.add_argument(
        "--break-lock", action="store_true", help="resume a run whose lock is left from another host or a restart"
    )


def register(commands: Commands) -> None:
    """Add ``reproduce``."""
    again = commands.add_parser("reproduce", help="a figure of the paper: train, draw, check its claims")
    again.add_argument("figure", choices=(*FIGURES, "all"))
    again.add_argument("--seeds", type=count, help="runs of the episodic agent (default: the paper's 3)")
    again.add_argument("--preset", choices=PRESETS, default="paper", help="default: paper")
    again.add_argument("--episodes", type=count, help="a multiple of 25 (default: the paper's)")
    again.add_argument("--out", type=Path, help="run folder, for all its parent (default: runs/FIGURE-PRESET)")
    again.add_argument(
        "--max-steps",
        type=multiple,
        default=4.0,
        help="end a seed after this many times the fewest steps its episodes can take (default: 4)",
    )
    again.add_argument("--no-baseline", action="store_true", help="leave out the recurrent baseline")
    again.add_argument(
        "--resume", action="store_true", help="continue folders that are there; train only what is missing"
    )
    again.add_argument(
        "--group",
        type=count,
        metavar="SEEDS",
        help=f"seeds that train side by side as one unit (default: all; {GROUP} with --jobs or --on); same results",
    )
    again.add_argument("--jobs", type=count, help="processes that train (default: threads of one process)")
    add_on(again)
    add_gpus(again)
    again.set_defaults(run=_reproduce)
    add_resume_options(again)
