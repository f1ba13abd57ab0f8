"""``recollect lab atlas``: what each choice of the agent does, alone and in pairs, on one page."""

import argparse
from pathlib import Path

from recollect.cli.arguments import Commands, add_resume, add_seeds, count, multiple, names_among, seeds_of
from recollect.cli.lab.experiments import experiments_of, figures
from recollect.cli.reports import check_out, draw_reports, reading_rows, run_units, write_report

PARTS = ("numbers", "programs", "general")


def _atlas(args: argparse.Namespace) -> None:
    from recollect.studies import atlas

    if args.draw is not None:
        from recollect.studies import lab_plots

        draw_reports(args, "lab atlas", [args.draw], lab_plots.draw_atlas)
        return
    check_out(args)
    units = atlas.units(experiments_of(args), seeds_of(args), args.parts, max_steps=args.max_steps)
    found, errors = run_units(args, units)
    with reading_rows(args):
        rows = [row for rows in found.values() for row in rows]
    write_report(args, {"rows": rows}, errors)


def register(commands: Commands) -> None:
    """Add the command."""
    atlas = commands.add_parser("atlas", help="every choice of the robust agent, alone and in pairs: one page")
    atlas.add_argument("--figures", type=figures, default=("fig4", "fig5"), help="comma-separated")
    add_seeds(atlas, 64, "runs per choice")
    atlas.add_argument("--episodes", type=count, help="the budget; default: the experiment's own")
    atlas.add_argument(
        "--parts",
        type=names_among("part", PARTS),
        default=("numbers", "programs"),
        help="comma-separated: numbers, programs, general (choices that only the general, slower loop knows), or all",
    )
    atlas.add_argument(
        "--max-steps", type=multiple, default=2.0, help="end a run after this many times the fewest steps (default: 2)"
    )
    atlas.add_argument("--draw", type=Path, metavar="JSON", help="no training: draw the page from such a file")
    atlas.add_argument("--picture", type=Path, help="where --draw puts it; default: beside the file")
    atlas.set_defaults(run=_atlas)
    add_resume(atlas)
