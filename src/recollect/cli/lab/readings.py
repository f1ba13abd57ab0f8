"""``recollect lab readings``: a search of the choices that the paper leaves open."""

import argparse
import functools

from recollect.cli.arguments import Commands, add_resume, count, multiple
from recollect.cli.reports import check_out, reading_rows, run_units, write_report
from recollect.cli.reproduce import FIGURES
from recollect.errors import RecollectError


def _readings(args: argparse.Namespace) -> None:
    from recollect.studies.paper import FIGURES
    from recollect.studies.readings import programs, search
    from recollect.training.progress import Lines

    check_out(args)
    if not 0 <= args.part < args.parts:
        raise RecollectError(f"--part {args.part} --parts {args.parts}: parts are numbered from 0 to {args.parts - 1}")
    experiment = FIGURES[args.figure]

    limit = int(args.max_steps * experiment.episodes * experiment.env.shortest_episode)
    units = {
        f"program {k}": functools.partial(
            search,
            experiment,
            k,
            program,
            args.readings,
            args.seeds,
            max_steps=limit,
            on_progress=Lines(args.figure, experiment.episodes),
            records_per_call=args.records,
        )
        for k, program in enumerate(programs())
        if k % args.parts == args.part
    }
    found, errors = run_units(args, units)
    with reading_rows(args):
        rows = [row for rows in found.values() for row in rows]
        ranked = sorted(rows, key=lambda r: (r["solved_at_end"], r["solved"], r["finished"]), reverse=True)
    write_report(args, {"figure": args.figure, "readings": ranked}, errors)


def register(commands: Commands) -> None:
    """Add the command."""
    readings = commands.add_parser("readings", help="search the choices that the paper leaves open, at γ = 1")
    readings.add_argument("--figure", choices=FIGURES, default="fig5")
    readings.add_argument(
        "--readings", type=count, default=16, help="random readings of each of 4 programs (default: 16)"
    )
    readings.add_argument("--seeds", type=count, default=8, help="runs per reading (default: 8)")
    readings.add_argument("--part", type=int, default=0, help="which part of the programs, to share the work")
    readings.add_argument("--parts", type=count, default=1, help="into how many parts the programs go (default: 1)")
    readings.add_argument("--max-steps", type=multiple, default=4.0, help="in multiples of the shortest total")
    readings.add_argument("--records", type=count, default=20, help="steps of one compiled call, in 500 (default: 20)")
    readings.set_defaults(run=_readings)
    add_resume(readings)
