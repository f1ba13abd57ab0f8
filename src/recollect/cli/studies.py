"""The experiments, and the pictures of their runs.

``recollect plot``, ``study``, ``atlas``, ``lengths``, ``extensions``, ``looping``, ``tune`` and ``readings``.
"""

import argparse
import dataclasses
import functools
import json
from pathlib import Path

from recollect.cli.arguments import Commands, add_resume, count, counts, multiple, names_among, seed, setting
from recollect.cli.reports import check_out, print_table, progress, run_units, write_report
from recollect.cli.reproduce import FIGURES
from recollect.errors import RecollectError

HARDER = (
    "no-bit",
    "no-bit-20",
    "decisions-3",
    "decisions-4",
    "actions-5",
    "length-50",
    "length-100",
    "memory-32",
)
ATLAS_PARTS = ("numbers", "programs", "general")
AGENTS = ("robust", "paper", "none", "fifo", "uniform", "oracle", "gru")
LENGTHS_FAMILIES = ("t-maze", "secret-informant")
LENGTHS_AGENTS = ("episodic", "fifo", "uniform", "none", "gru", "gru-full")

_figures = names_among("figure", (*FIGURES, *HARDER), FIGURES)


def _plot(args: argparse.Namespace) -> None:
    from recollect.studies.plots import draw_figure

    print(f"picture: {' '.join(str(picture) for picture in draw_figure(args.folder))}")


def _add_plot(commands: Commands) -> None:
    plot = commands.add_parser("plot", help="draw a run again from its folder")
    plot.add_argument("folder", type=Path, metavar="DIR")
    plot.set_defaults(run=_plot)


def _changes(settings: list[tuple[str, object]]) -> dict[str, object]:
    from recollect.agents.episodic import EpisodicActorCritic

    options = [field.name for field in dataclasses.fields(EpisodicActorCritic)]
    for name, value in settings:
        if name not in options:
            raise RecollectError(f"--set {name}: no such option; there are {', '.join(options)}")
        if value is None or isinstance(value, (list, dict)):
            raise RecollectError(f"--set {name}={value}: one number or name is needed")
    return dict(settings)


def _experiments(args: argparse.Namespace) -> dict:
    from recollect.studies.paper import FIGURES, HARDER
    from recollect.studies.study import block_of

    experiments = {name: (FIGURES | HARDER)[name] for name in args.figures}
    if args.episodes is not None:
        experiments = {name: e._replace(episodes=args.episodes) for name, e in experiments.items()}
    for experiment in experiments.values():
        block_of(experiment)
    return experiments


def _study(args: argparse.Namespace) -> None:
    from recollect.studies import study
    from recollect.training.progress import Lines

    check_out(args)
    changes, experiments = _changes(args.set), _experiments(args)
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    limits = {"times_budget": 1 if args.once else 2, "max_steps": args.max_steps}
    units = study.units(args.agents, experiments, seeds, changes, watch=Lines, **limits)
    rows, errors = run_units(args, units)
    write_report(args, {"changes": changes, "rows": list(rows.values())}, errors)


def _add_study(commands: Commands) -> None:
    study = commands.add_parser("study", help="many seeds of the experiments: shares solved, with intervals")
    study.add_argument(
        "--figures", type=_figures, default=FIGURES, help=f"comma-separated; all, or also {', '.join(HARDER)}"
    )
    study.add_argument(
        "--agents",
        type=names_among("agent", AGENTS, AGENTS),
        default=("robust",),
        help=f"comma-separated, or all: {', '.join(AGENTS)} (default: robust)",
    )
    study.add_argument("--seeds", type=count, default=64, help="runs a figure and agent (default: 64)")
    study.add_argument("--first-seed", type=int, default=0, help="seeds count from here (default: 0)")
    study.add_argument("--episodes", type=count, help="the budget; default: the experiment's own")
    study.add_argument("--once", action="store_true", help="end at the budget, not at twice the budget")
    study.add_argument(
        "--set", type=setting, action="append", default=[], metavar="NAME=VALUE", help="change an option of the agent"
    )
    study.add_argument(
        "--max-steps", type=multiple, default=4.0, help="end a run after this many times the fewest steps (default: 4)"
    )
    study.add_argument("--out", type=Path, help="JSON file to write; default: standard output")
    study.set_defaults(run=_study)
    add_resume(study)


def _atlas(args: argparse.Namespace) -> None:
    from recollect.studies import atlas
    from recollect.training.progress import Lines

    if args.draw is not None:
        from recollect.studies import plots

        report = json.loads(args.draw.read_text(encoding="utf-8"))
        path = args.picture or args.draw.with_suffix(".png")
        plots.draw_atlas(report["rows"], path)
        print(f"written: {path}")
        return
    check_out(args)
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    units = atlas.units(_experiments(args), seeds, args.parts, max_steps=args.max_steps, watch=Lines)
    found, errors = run_units(args, units)
    write_report(args, {"rows": [row for rows in found.values() for row in rows]}, errors)


def _add_atlas(commands: Commands) -> None:
    atlas = commands.add_parser("atlas", help="every choice of the robust agent, alone and in pairs: one page")
    atlas.add_argument("--figures", type=_figures, default=("fig4", "fig5"), help="comma-separated")
    atlas.add_argument("--seeds", type=count, default=64, help="runs a choice (default: 64)")
    atlas.add_argument("--first-seed", type=int, default=0, help="seeds count from here (default: 0)")
    atlas.add_argument("--episodes", type=count, help="the budget; default: the experiment's own")
    atlas.add_argument(
        "--parts",
        type=names_among("part", ATLAS_PARTS, ATLAS_PARTS),
        default=("numbers", "programs"),
        help="comma-separated: numbers, programs, general (choices that only the general, slower loop knows), or all",
    )
    atlas.add_argument(
        "--max-steps", type=multiple, default=2.0, help="end a run after this many times the fewest steps (default: 2)"
    )
    atlas.add_argument("--out", type=Path, help="JSON file to write; default: standard output")
    atlas.add_argument("--draw", type=Path, metavar="JSON", help="no training: draw the page from such a file")
    atlas.add_argument("--picture", type=Path, help="where --draw puts it; default: beside the file")
    atlas.set_defaults(run=_atlas)
    add_resume(atlas)


def _lengths(args: argparse.Namespace) -> None:
    from recollect.studies import lengths, plots
    from recollect.training.progress import Lines

    if args.draw is not None:
        reports = [json.loads(path.read_text(encoding="utf-8")) for path in args.draw]
        path = args.picture or args.draw[0].with_suffix(".png")
        plots.draw_lengths([row for report in reports for row in report["rows"]], path)
        print(f"written: {path}")
        return
    check_out(args)
    if args.search is not None and (len(args.lengths) != 1 or args.picture is not None):
        raise RecollectError("--search: it is made at one of the --lengths, and has no --picture")
    if args.best is not None and args.search is None:
        raise RecollectError("--best: of a search, --search K says how many")
    if args.picture is not None:
        plots.require()
    changes = dict(args.set)
    budget = lengths.Budget(range(args.first_seed, args.first_seed + args.seeds), args.episodes, args.max_steps)
    budget.check()

    def work(title: str, task: lengths.Task) -> dict | list[dict]:
        if args.search is None:
            return lengths.study(task, budget, Lines(title, args.episodes))
        name = task.head["agent"]
        drawn = earlier[name] if earlier else lengths.draw(name, args.search, changes)
        return lengths.search(task, budget, drawn, Lines(title, args.episodes))

    earlier = args.best and lengths.best(Path(args.best), args.agents, args.search or 1, changes)
    tasks = lengths.tasks(args.families, args.lengths, args.agents, changes)
    found, errors = run_units(args, {title: functools.partial(work, title, task) for title, task in tasks.items()})
    rows = shown = list(found.values())
    if args.search is not None:
        rows, shown = ([row for each in found.values() for row in each[:most]] for most in (args.search, 5))
    if args.picture is not None and rows:
        plots.draw_lengths(rows, args.picture)
    if not args.json:
        print_table(lengths.COLUMNS, lengths.table(shown))
        for row in shown if args.search is not None else ():
            print(f"{row['agent']}:", *(f"--set {name}={value:g}" for name, value in row["settings"].items()))
    if args.json or args.out is not None or errors:
        settings = {family: {name: lengths.SETTINGS[family][name] for name in args.agents} for family in args.families}
        write_report(args, {"settings": settings, "changes": changes, "rows": rows}, errors)


def _add_lengths(commands: Commands) -> None:
    lengths = commands.add_parser("lengths", help="how far back each agent still remembers: shares solved by length")
    lengths.add_argument(
        "--families",
        type=names_among("family", LENGTHS_FAMILIES, LENGTHS_FAMILIES),
        default=("t-maze",),
        help=f"comma-separated, or all: {', '.join(LENGTHS_FAMILIES)} (default: t-maze)",
    )
    lengths.add_argument(
        "--lengths", type=counts, default=(5, 10, 20, 40, 80, 160), help="comma-separated (default: 5,10,20,40,80,160)"
    )
    lengths.add_argument(
        "--agents",
        type=names_among("agent", LENGTHS_AGENTS, LENGTHS_AGENTS),
        default=("episodic", "gru"),
        help=f"comma-separated, or all: {', '.join(LENGTHS_AGENTS)} (default: episodic,gru); "
        "gru carries its gradients forward, gru-full backpropagates through the episode, on secret-informant alone",
    )
    lengths.add_argument("--seeds", type=count, default=64, help="runs a row (default: 64)")
    lengths.add_argument("--first-seed", type=seed, default=0, help="seeds count from here (default: 0)")
    lengths.add_argument(
        "--episodes", type=count, default=20_000, help="of each run, a multiple of 50 (default: 20,000)"
    )
    lengths.add_argument(
        "--set",
        type=setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="change an option of every agent that has it",
    )
    lengths.add_argument(
        "--search",
        type=count,
        metavar="K",
        help="tune instead, at one length: K random settings an agent, side by side, the best first",
    )
    lengths.add_argument("--best", metavar="JSON", help="search among the best K of that search instead of random ones")
    lengths.add_argument(
        "--max-steps", type=multiple, default=4.0, help="end a run after this many times the fewest steps (default: 4)"
    )
    lengths.add_argument("--json", action="store_true", help="print JSON instead of a table")
    lengths.add_argument("--out", type=Path, help="JSON file to write as well")
    lengths.add_argument("--picture", type=Path, help="PNG file to draw the shares and steps to")
    lengths.add_argument(
        "--draw", type=Path, nargs="+", metavar="JSON", help="no training: draw the rows of such files together"
    )
    lengths.set_defaults(run=_lengths)
    add_resume(lengths)


def _extensions(args: argparse.Namespace) -> None:
    from recollect.studies.extensions import study_abstract, study_continuing

    args.resume = False
    check_out(args)
    if args.amount is not None and args.amount % 10:
        raise RecollectError(f"--amount {args.amount}: a multiple of 10 is needed, the last tenth is measured")
    if args.study == "continuing":
        rows = study_continuing(args.seeds, args.amount or 80_000, args.first_seed)
    else:
        rows = study_abstract(args.seeds, args.amount or 12_000, args.first_seed)
    write_report(args, {"study": args.study, "first_seed": args.first_seed, "rows": rows}, {})


def _add_extensions(commands: Commands) -> None:
    extensions = commands.add_parser("extensions", help="tasks without ends, states that are more than an observation")
    extensions.add_argument("study", choices=("continuing", "abstract"))
    extensions.add_argument("--seeds", type=count, default=16, help="runs a row (default: 16)")
    extensions.add_argument("--first-seed", type=int, default=0, help="seeds count from here (default: 0)")
    extensions.add_argument("--amount", type=count, help="steps of a life (80,000), or episodes (12,000)")
    extensions.add_argument("--out", type=Path, help="JSON file to write; default: standard output")
    extensions.set_defaults(run=_extensions)


def _looping(args: argparse.Namespace) -> None:
    from recollect.studies import looping
    from recollect.studies.plots import draw_looping, require

    args.resume = False
    check_out(args)
    if args.picture is not None:
        require()
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    report = looping.run(seeds, args.steps, progress, args.workers)
    if args.picture is not None:
        draw_looping(report, args.picture)
    if args.json or args.out is not None:
        write_report(args, report, {})
    if not args.json:
        print_table(looping.COLUMNS, looping.table(report))


def _add_looping(commands: Commands) -> None:
    looping = commands.add_parser("looping", help="why the paper's recipe loops: each link measured, and cut alone")
    looping.add_argument("--seeds", type=count, default=32, help="runs an intervention (default: 32)")
    looping.add_argument("--first-seed", type=int, default=0, help="seeds count from here (default: 0)")
    looping.add_argument(
        "--steps", type=count, default=300_000, help="of each run, a multiple of 40 (default: 300,000)"
    )
    looping.add_argument("--workers", type=count, help="threads (default: one a core); results do not depend on it")
    looping.add_argument("--json", action="store_true", help="print JSON instead of a table")
    looping.add_argument("--out", type=Path, help="JSON file to write as well")
    looping.add_argument("--picture", type=Path, help="PNG file to draw the measures to")
    looping.set_defaults(run=_looping)


def _rates(text: str) -> tuple[int, ...]:
    choices = {str(x): x for x in range(10)}
    if not set(text.split(",")) <= set(choices):
        raise argparse.ArgumentTypeError(f"{text!r}: each must be a whole number from 0 to 9")
    return tuple(choices[x] for x in text.split(","))


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
    rows = [row for rows in found.values() for row in rows]
    write_report(args, {"decisions": args.decisions, "rows": ranked(rows)}, errors)


def _add_tune(commands: Commands) -> None:
    tune = commands.add_parser("tune", help="the paper's grid for the recurrent baseline")
    tune.add_argument("decisions", type=int, choices=(1, 2))
    tune.add_argument("--widths", type=counts, default=(5, 10, 15, 20), help="comma-separated")
    tune.add_argument("--rates", type=_rates, default=tuple(range(10)), help="x of 0.05 · 2^-x, comma-separated")
    tune.add_argument("--episodes", type=count, help="default: the paper's 25,000 or 50,000")
    tune.add_argument("--out", type=Path, help="JSON file to write; default: standard output")
    tune.set_defaults(run=_tune)
    add_resume(tune)


def _readings(args: argparse.Namespace) -> None:
    from recollect.studies.paper import FIGURES
    from recollect.studies.readings import programs, search
    from recollect.training.progress import Lines

    check_out(args)
    if not 0 <= args.part < args.parts:
        raise RecollectError(f"--part {args.part} --parts {args.parts}: parts are numbered from 0 to {args.parts - 1}")
    experiment = FIGURES[args.figure]

    def work(k: int, program: dict[str, str]) -> list[dict]:
        rows = search(
            experiment,
            args.readings,
            args.seeds,
            [(k, program)],
            max_steps=int(args.max_steps * experiment.episodes * experiment.env.shortest_episode),
            on_progress=Lines(args.figure, experiment.episodes),
            records_per_call=args.records,
        )
        return list(rows)

    which = {k: program for k, program in enumerate(programs()) if k % args.parts == args.part}
    found, errors = run_units(args, {f"program {k}": functools.partial(work, k, p) for k, p in which.items()})
    rows = [row for rows in found.values() for row in rows]
    ranked = sorted(rows, key=lambda r: (r["solved_at_end"], r["solved"], r["finished"]), reverse=True)
    write_report(args, {"figure": args.figure, "readings": ranked}, errors)


def _add_readings(commands: Commands) -> None:
    readings = commands.add_parser("readings", help="search the choices that the paper leaves open, at γ = 1")
    readings.add_argument("--figure", choices=FIGURES, default="fig5")
    readings.add_argument(
        "--readings", type=count, default=16, help="random readings of each of 4 programs (default: 16)"
    )
    readings.add_argument("--seeds", type=count, default=8, help="runs a reading (default: 8)")
    readings.add_argument("--part", type=int, default=0, help="which part of the programs, to share the work")
    readings.add_argument("--parts", type=count, default=1, help="into how many parts the programs go (default: 1)")
    readings.add_argument("--max-steps", type=multiple, default=4.0, help="in multiples of the shortest total")
    readings.add_argument("--records", type=count, default=20, help="steps of one compiled call, in 500 (default: 20)")
    readings.add_argument("--out", type=Path, help="JSON file to write; default: standard output")
    readings.set_defaults(run=_readings)
    add_resume(readings)


def register(commands: Commands) -> None:
    """Add the experiments, and the pictures of their runs."""
    adds = (_add_plot, _add_study, _add_atlas, _add_lengths, _add_extensions, _add_looping, _add_tune, _add_readings)
    for add in adds:
        add(commands)
