"""``recollect lab study``: many seeds of the experiments, beside control memories and the baseline."""

import argparse
import dataclasses

from recollect.cli.arguments import Commands, add_resume, add_seeds, add_set, count, multiple, names_among, seeds_of
from recollect.cli.lab.experiments import HARDER, experiments_of, figures
from recollect.cli.reports import check_out, run_units, write_report
from recollect.cli.reproduce import FIGURES
from recollect.errors import RecollectError

AGENTS = ("robust", "paper", "none", "fifo", "uniform", "oracle", "gru", "general")


def _changes(settings: list[tuple[str, object]]) -> dict[str, object]:
    from recollect.agents.episodic import EpisodicActorCritic

    options = [field.name for field in dataclasses.fields(EpisodicActorCritic)]
    for name, value in settings:
        if name not in options:
            raise RecollectError(f"--set {name}: no such option; there are {', '.join(options)}")
        if value is None or isinstance(value, (list, dict)):
            raise RecollectError(f"--set {name}={value}: one number or name is needed")
    return dict(settings)


def _study(args: argparse.Namespace) -> None:
    from recollect.studies import study

    check_out(args)
    changes, experiments = _changes(args.set), experiments_of(args)
    limits = {"times_budget": 1 if args.once else 2, "max_steps": args.max_steps}
    units = study.units(args.agents, experiments, seeds_of(args), changes, **limits)
    rows, errors = run_units(args, units)
    write_report(args, {"changes": changes, "rows": list(rows.values())}, errors)


def register(commands: Commands) -> None:
    """Add the command."""
    study = commands.add_parser("study", help="many seeds of the experiments: shares solved, with intervals")
    study.add_argument(
        "--figures", type=figures, default=FIGURES, help=f"comma-separated; all, or also {', '.join(HARDER)}"
    )
    study.add_argument(
        "--agents",
        type=names_among("agent", AGENTS),
        default=("robust",),
        help=f"comma-separated, or all: {', '.join(AGENTS)} (default: robust)",
    )
    add_seeds(study, 64, "runs per figure and agent")
    study.add_argument("--episodes", type=count, help="the budget; default: the experiment's own")
    study.add_argument("--once", action="store_true", help="end at the budget, not at twice the budget")
    add_set(study, "change an option of the agent")
    study.add_argument(
        "--max-steps", type=multiple, default=4.0, help="end a run after this many times the fewest steps (default: 4)"
    )
    study.set_defaults(run=_study)
    add_resume(study)
