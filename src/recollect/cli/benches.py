"""``recollect soak`` and ``bench``: the library measured on this machine."""

import argparse
import json
from pathlib import Path

from recollect.cli.arguments import Commands, count, counts, multiple, names_among
from recollect.cli.reports import print_table, progress
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


def _bench_reservoir(args: argparse.Namespace) -> None:
    from recollect.studies.speed import reservoir

    rows = reservoir.times(args.capacities, args.items, progress)
    add = reservoir.add_times()
    if args.json:
        print(json.dumps({"nanoseconds_an_item": rows, "add_nanoseconds": add}, indent=1))
        return
    print("\nnanoseconds an item, uniform weights; the last columns are ratios within this run\n")
    print_table(
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


def _bench_host(args: argparse.Namespace) -> None:
    from recollect.studies.speed import online

    rows = online.speeds(args.steps, args.hidden, args.env, args.agents, progress)
    if args.json:
        print(json.dumps(rows, indent=1))
        return
    print(f"\nsteps a second on {args.env}, networks of {args.hidden} units; best of {online.REPEATS}\n")
    columns = ["learner", "steps/s by the clock", "by the process's own time", "of the first"]
    first = next(iter(rows.values()))["processor"]
    print_table(
        columns,
        [
            [name, f"{r['clock']:,.0f}", f"{r['processor']:,.0f}", f"{r['processor'] / first:.2f}"]
            for name, r in rows.items()
        ],
    )


def _bench_train(args: argparse.Namespace) -> None:
    from recollect.store.run_folders import command_line, versions
    from recollect.studies.speed import batch

    report = batch.everything(args.engines.split(","), args.runs, args.seconds, args.skip, progress)
    if args.picture is not None:
        from recollect.studies import plots

        plots.draw_speed(report["by_runs"], args.picture)
    if args.json:
        print(json.dumps({"command": command_line(), "versions": versions(), **report}, indent=1))
        return
    for title, rows in report.items():
        if not isinstance(rows, list):
            print(f"\n{title}: {rows}")
            continue
        columns = list(dict.fromkeys(name for row in rows for name in row))
        print(f"\n{title.replace('_', ' ')}\n")
        print_table([c.replace("_", " ") for c in columns], [[_cell(row.get(c)) for c in columns] for row in rows])


def _cell(value: object) -> str:
    return "" if value is None else f"{value:,.2f}" if isinstance(value, float) else str(value)


def _bench_estimators(args: argparse.Namespace) -> None:
    from recollect.studies import estimators

    progress("enumerating, then playing episodes: about a minute")
    report = estimators.report(episodes=args.episodes)
    if args.json:
        print(json.dumps(report, indent=1))
        return
    for title, columns, rows in estimators.tables(report):
        print(f"\n{title}\n")
        print_table(columns, rows)


def _bench_inclusion(args: argparse.Namespace) -> None:
    from recollect.studies.plots import draw_inclusion

    print(f"picture: {draw_inclusion(args.out)}")


def _bench_endless(args: argparse.Namespace) -> None:
    from recollect.studies import reliability

    progress(f"one episode of {args.steps:,} steps")
    rows = reliability.endless(args.steps)
    if args.json:
        print(json.dumps(rows, indent=1))
        return
    print_table(
        ["steps", "steps/s", "resident MiB"],
        [[f"{r['steps']:,}", f"{r['steps_a_second']:,}", f"{r['resident_mib']:.1f}"] for r in rows],
    )


def _bench_checkpoints(args: argparse.Namespace) -> None:
    from recollect.studies import reliability

    progress("training figure 4 with checkpoints for half a minute")
    print(json.dumps(reliability.checkpoint_cost(), indent=1))


def _bench_algorithm1(args: argparse.Namespace) -> None:
    from recollect.studies.speed import reservoir

    rows = reservoir.shares()
    if args.json:
        print(json.dumps(rows, indent=1))
        return
    print("share of the sample from the last half of a U(0,1] stream; .50 is right\n")
    print_table(
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


def register(commands: Commands) -> None:
    """Add ``soak`` and the subjects of ``bench``."""
    soak = commands.add_parser("soak", help="train with checkpoints for long and watch memory and open files")
    soak.add_argument("--minutes", type=multiple, default=60.0, help="default: 60")
    soak.add_argument("--checkpoint-every", type=multiple, metavar="SECONDS", help="default: 5")
    soak.add_argument("--out", type=Path, default=Path("runs/soak"), help="folder (default: runs/soak)")
    soak.set_defaults(run=_soak)

    bench = commands.add_parser("bench", help="measure the library on this machine")
    subjects = bench.add_subparsers(metavar="SUBJECT", required=True)
    speed = subjects.add_parser("reservoir", help="speed of the sampler beside others")
    speed.add_argument("--json", action="store_true", help="print JSON instead of a table")
    speed.add_argument("--capacities", type=counts, default=(3, 16, 64, 256, 1024), help="n, comma-separated")
    speed.add_argument("--items", type=counts, default=(10**6, 10**7), help="stream lengths, comma-separated")
    speed.set_defaults(run=_bench_reservoir)
    loop = subjects.add_parser("host", help="speed of the loop around Gymnasium environments")
    loop.add_argument("--json", action="store_true", help="print JSON instead of a table")
    loop.add_argument("--steps", type=count, default=2000, help="a measurement (default: 2,000)")
    loop.add_argument("--hidden", type=count, default=64, help="units of the networks (default: 64)")
    loop.add_argument("--env", default="CartPole-v1", help="default: CartPole-v1")
    known = ("episodic", "none", "gru", "gru-long", "real-time", "gru-jax")
    loop.add_argument(
        "--agents", type=names_among("agent", known, known), default=known, help=f"default: {','.join(known)}"
    )
    loop.set_defaults(run=_bench_host)
    loop = subjects.add_parser("train", help="steps per second of the whole online loop")
    loop.add_argument("--engines", default="auto,jax", help="comma-separated: auto, cuda, cpu, jax (default: auto,jax)")
    loop.add_argument("--runs", type=counts, help="how many at once, comma-separated (default: as the machine allows)")
    loop.add_argument("--seconds", type=float, default=1.0, help="of each measurement (default: 1)")
    parts = ("others", "growth", "figure5")
    loop.add_argument("--skip", type=names_among("part", parts, parts), default=(), help=f"any of {','.join(parts)}")
    loop.add_argument("--json", action="store_true", help="print JSON instead of tables")
    loop.add_argument("--picture", type=Path, help="where to draw steps per second over runs")
    loop.set_defaults(run=_bench_train)
    bias = subjects.add_parser("estimators", help="how biased the write-gradient estimators are, by enumeration")
    bias.add_argument("--json", action="store_true", help="print JSON instead of tables")
    bias.add_argument("--episodes", type=count, default=100_000, help="of each Monte Carlo estimate")
    bias.set_defaults(run=_bench_estimators)
    inclusion = subjects.add_parser("inclusion", help="sample one stream many times and draw what stayed")
    inclusion.add_argument("--out", type=Path, default=Path("runs/inclusion"), help="folder (default: runs/inclusion)")
    inclusion.set_defaults(run=_bench_inclusion)
    long = subjects.add_parser("endless", help="one episode that never ends: is memory flat, is speed")
    long.add_argument("--json", action="store_true", help="print JSON instead of a table")
    long.add_argument("--steps", type=count, default=10**7, help="default: 10 million")
    long.set_defaults(run=_bench_endless)
    saving = subjects.add_parser("checkpoints", help="what a checkpoint costs")
    saving.set_defaults(run=_bench_checkpoints)
    printed = subjects.add_parser("algorithm1", help="where Algorithm 1 as printed stops sampling")
    printed.add_argument("--json", action="store_true", help="print JSON instead of a table")
    printed.set_defaults(run=_bench_algorithm1)
