"""``recollect bench``: how fast the library is on this machine."""

import argparse
import json
from pathlib import Path
from typing import Any

from recollect.cli.arguments import Commands, add_set, count, counts, names_among
from recollect.cli.learners import LEARNERS
from recollect.cli.reports import print_rows, print_table, progress

PAPERS = "recollect/SecretInformant-v0"


def _reservoir(args: argparse.Namespace) -> None:
    from recollect.studies.speed import reservoir

    rows = reservoir.times(args.capacities, args.items, progress, seconds=args.seconds)
    add = reservoir.add_times()
    if args.json:
        print(json.dumps({"nanoseconds_an_item": rows, "add_nanoseconds": add}, indent=1))
        return
    print("\nnanoseconds per item, uniform weights; sum: reading every weight once\n")
    print_rows({"items": "{items:,}", "n": "{n}", "reservoir": "{reservoir:.2f}", "sum": "{sum:.2f}"}, rows)
    print(f"\nadd(item, weight) from Python, n = 64: median {add['median']:.0f} ns, mean {add['mean']:.0f} ns")


def _host(args: argparse.Namespace) -> None:
    from recollect.studies.speed import online

    rows = online.speeds(args.steps, args.hidden, args.env, args.agents, progress)
    if args.json:
        print(json.dumps(rows, indent=1))
        return
    print(f"\nsteps per second on {args.env}, networks of {args.hidden} units; best of {online.REPEATS}\n")
    columns = {"learner": "{name}", "steps/s by the clock": "{clock:,.0f}"}
    columns |= {"by the process's own time": "{processor:,.0f}", "of the first": "{share:.2f}"}
    first = next(iter(rows.values()))["processor"]
    print_rows(columns, [{"name": name, "share": r["processor"] / first, **r} for name, r in rows.items()])


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """What ``bench train`` reports: of the paper's pair, or of the one that was named."""
    from recollect.studies.speed import batch, pair

    engines = args.engines.split(",")
    if args.env is None and args.agent is None and not args.set and not args.env_set:
        return batch.everything(engines, args.runs, args.seconds, args.skip, progress)
    named = pair.Pair(args.agent or "general", args.env or PAPERS, tuple(args.set), tuple(args.env_set))
    return pair.everything(named, engines, args.runs or (1, 64), args.seconds, args.skip, progress)


def _train(args: argparse.Namespace) -> None:
    from recollect.store.run_folders import command_line, versions
    from recollect.studies import drawing, lab_plots

    if args.picture is not None:
        drawing.require(args.picture)
    report = measured(args)
    if args.picture is not None:
        lab_plots.draw_speed(report["by_runs"], args.picture)
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


def add_pair(command: argparse.ArgumentParser, env: str) -> None:
    """The options that name an agent and an environment in JAX."""
    one = "PACKAGE:ID as `recollect envs` lists it, MODULE:CLASS for one's own, "
    command.add_argument("--env", metavar="NAME", help=f"{one}recollect/TMaze-v0 (default: {env})")
    add_set(command, "its options", "--env-set")
    command.add_argument(
        "--agent", choices=LEARNERS, help="default: general; without any of these four the paper's pair is measured"
    )
    add_set(command, "its options")


def register(commands: Commands) -> None:
    """Add ``bench`` and its subjects."""
    bench = commands.add_parser("bench", help="how fast the library is on this machine")
    subjects = bench.add_subparsers(metavar="SUBJECT", required=True)
    speed = subjects.add_parser("reservoir", help="nanoseconds per item of the sampler")
    speed.add_argument("--json", action="store_true", help="print JSON instead of a table")
    speed.add_argument("--capacities", type=counts, default=(3, 16, 64, 256, 1024), help="n, comma-separated")
    speed.add_argument("--items", type=counts, default=(10**6, 10**7), help="stream lengths, comma-separated")
    speed.add_argument("--seconds", type=float, default=7.5, help="of each measurement (default: 7.5)")
    speed.set_defaults(run=_reservoir)
    loop = subjects.add_parser("host", help="speed of the loop around Gymnasium environments")
    loop.add_argument("--json", action="store_true", help="print JSON instead of a table")
    loop.add_argument("--steps", type=count, default=2000, help="a measurement (default: 2,000)")
    loop.add_argument("--hidden", type=count, default=64, help="units of the networks (default: 64)")
    loop.add_argument("--env", default="CartPole-v1", help="default: CartPole-v1")
    known = ("episodic", "none", "gru", "gru-long", "real-time", "gru-jax", "general")
    loop.add_argument("--agents", type=names_among("agent", known), default=known, help=f"default: {','.join(known)}")
    loop.set_defaults(run=_host)
    loop = subjects.add_parser("train", help="steps per second of the whole online loop, in environments in JAX")
    add_pair(loop, PAPERS)
    known = "auto, cuda, compiled-gpu, cpu, jax"
    loop.add_argument("--engines", default="auto,jax", help=f"comma-separated: {known} (default: auto,jax)")
    loop.add_argument("--runs", type=counts, help="how many at once, comma-separated (default: as the machine allows)")
    loop.add_argument("--seconds", type=float, default=1.0, help="of each measurement (default: 1)")
    parts = ("growth", "figure5")
    loop.add_argument("--skip", type=names_among("part", parts), default=(), help=f"any of {','.join(parts)}")
    loop.add_argument("--json", action="store_true", help="print JSON instead of tables")
    loop.add_argument("--picture", type=Path, help="where to draw steps per second over runs")
    loop.set_defaults(run=_train)
