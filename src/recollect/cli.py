"""The command ``recollect``."""

import argparse
import json
import sys
import time
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


class _Live:
    """One line a second or so on stderr: enough for a log file and for a terminal."""

    def __init__(self, label: str, episodes: int):
        self.label, self.episodes = label, episodes
        self.start = self.shown = time.monotonic()

    def __call__(self, progress) -> None:
        now = time.monotonic()
        if now - self.shown < 5:
            return
        self.shown = now
        done = float(progress.episodes.mean()) / self.episodes
        rate = progress.total_steps / (now - self.start)
        print(
            f"  {self.label}: {done:4.0%} of episodes, {rate:,.0f} steps/s, return {progress.recent_return:.3f}, "
            f"slowest seed {progress.episodes.min():,} episodes after {progress.steps:,} steps",
            file=sys.stderr,
            flush=True,
        )


def _write_report(args: argparse.Namespace, report: dict) -> None:
    from recollect.runs import command_line, versions

    text = json.dumps({"command": command_line(), "versions": versions(), **report}, indent=1)
    if args.out is None:
        print(text)
    else:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(text + "\n")
        print(f"written: {args.out}")


def _study(args: argparse.Namespace) -> None:
    from recollect.agents.episodic import EpisodicActorCritic
    from recollect.experiments.paper import FIGURES
    from recollect.experiments.study import study

    rows = {}
    for name in args.figures:
        experiment = FIGURES[name]
        agent = EpisodicActorCritic.preset(args.preset, memory_size=experiment.memory_size, **dict(args.set))
        rows[name] = study(
            agent,
            experiment.env,
            args.episodes or experiment.episodes,
            range(args.first_seed, args.first_seed + args.seeds),
            on_progress=_Live(name, args.episodes or experiment.episodes),
            records_per_call=args.records,
            max_steps=int(args.max_steps * (args.episodes or experiment.episodes) * experiment.env.shortest_episode),
        )
        print(f"  {name}: {rows[name]}", file=sys.stderr, flush=True)
    _write_report(args, {"preset": args.preset, "changes": dict(args.set), "figures": rows})


def _tune(args: argparse.Namespace) -> None:
    from recollect.experiments.paper import BASELINE_RATES
    from recollect.experiments.tune import tune_baseline

    lives: dict[tuple, _Live] = {}
    episodes = args.episodes or {1: 25_000, 2: 50_000}[args.decisions]
    rates = tuple(BASELINE_RATES[x] for x in args.rates)

    def show(width, rate, progress):
        lives.setdefault((width, rate), _Live(f"width {width}, rate {rate:.6f}", episodes))(progress)

    rows = tune_baseline(args.decisions, args.widths, rates, episodes, on_progress=show)
    _write_report(args, {"decisions": args.decisions, "rows": rows})


def _readings(args: argparse.Namespace) -> None:
    from recollect.experiments.paper import FIGURES
    from recollect.experiments.readings import programs, search

    experiment = FIGURES[args.figure]
    which = programs()[args.part :: args.parts]
    rows = []
    live = _Live(args.figure, experiment.episodes)
    for row in search(experiment, args.readings, args.seeds, which, on_progress=live, records_per_call=args.records):
        rows.append(row)
        if len(rows) % args.readings == 0:
            best = max(rows, key=lambda r: r["solved_at_end"])
            print(f"  {len(rows)} readings; best so far {best}", file=sys.stderr, flush=True)
            rows.sort(key=lambda r: (r["solved_at_end"], r["solved"], r["finished"]), reverse=True)
            if args.out is not None:
                _write_report(args, {"figure": args.figure, "readings": rows})
    if args.out is None:
        _write_report(args, {"figure": args.figure, "readings": rows})


def _demo(args: argparse.Namespace) -> None:
    from recollect.plots import draw_inclusion

    path = draw_inclusion(args.out)
    print(f"picture: {path}")


def _count(text: str) -> int:
    (number,) = _counts(text)
    return number


def _rates(text: str) -> tuple[int, ...]:
    choices = {str(x): x for x in range(10)}
    if not set(text.split(",")) <= set(choices):
        raise argparse.ArgumentTypeError(f"{text!r}: each must be a whole number from 0 to 9")
    return tuple(choices[x] for x in text.split(","))


def _setting(text: str) -> tuple[str, object]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form name=value")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


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

    figures = ("fig3", "fig4", "fig5", "fig6")

    def figure_list(text: str) -> tuple[str, ...]:
        names = figures if text == "all" else tuple(text.split(","))
        if unknown := set(names) - set(figures):
            raise argparse.ArgumentTypeError(f"unknown figure {', '.join(unknown)}; choose among {', '.join(figures)}")
        return names

    study = commands.add_parser("study", help="many seeds of the paper's experiments: shares solved, with intervals")
    study.add_argument("--figures", type=figure_list, default=figures, help="comma-separated, or all (default)")
    study.add_argument("--preset", choices=("paper", "robust"), default="paper")
    study.add_argument("--seeds", type=_count, default=64)
    study.add_argument("--first-seed", type=int, default=0)
    study.add_argument("--episodes", type=_count, help="default: the paper's")
    study.add_argument(
        "--set", type=_setting, action="append", default=[], metavar="NAME=VALUE", help="change an option"
    )
    study.add_argument(
        "--max-steps", type=float, default=4.0, help="end a run after this many times the shortest total"
    )
    study.add_argument("--records", type=_count, default=20, help="how much one compiled call does (in 500 steps)")
    study.add_argument("--out", type=Path, help="JSON file to write; default: standard output")
    study.set_defaults(run=_study)

    tune = commands.add_parser("tune", help="the paper's grid for the recurrent baseline")
    tune.add_argument("decisions", type=int, choices=(1, 2))
    tune.add_argument("--widths", type=_counts, default=(5, 10, 15, 20), help="comma-separated")
    tune.add_argument("--rates", type=_rates, default=tuple(range(10)), help="x of 0.05 · 2^-x, comma-separated")
    tune.add_argument("--episodes", type=_count, help="default: the paper's 25,000 or 50,000")
    tune.add_argument("--out", type=Path, help="JSON file to write; default: standard output")
    tune.set_defaults(run=_tune)

    readings = commands.add_parser("readings", help="search the choices that the paper leaves open, at γ = 1")
    readings.add_argument("--figure", choices=figures, default="fig5")
    readings.add_argument("--readings", type=_count, default=16, help="random readings a program")
    readings.add_argument("--seeds", type=_count, default=8)
    readings.add_argument("--part", type=int, default=0, help="which part of the programs, to share the work")
    readings.add_argument("--parts", type=_count, default=1)
    readings.add_argument("--records", type=_count, default=20)
    readings.add_argument("--out", type=Path, help="JSON file to write; default: standard output")
    readings.set_defaults(run=_readings)

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
    except (RecollectError, OSError, ValueError) as error:
        print(f"recollect: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("recollect: interrupted", file=sys.stderr)
        return 130
    return 0
