"""``recollect benchmark``: agents on tasks that ask for memory."""

import argparse
import sys
from pathlib import Path

from recollect.commands.arguments import Commands, count, multiple, names, seed
from recollect.commands.reports import print_table, write_report
from recollect.errors import RecollectError


def _benchmark(args: argparse.Namespace) -> None:
    from recollect import benchmark
    from recollect.provenance import plain
    from recollect.tasks import DEFAULT, TASKS

    if args.out is not None and args.out.exists():
        raise RecollectError(f"{args.out} exists already: choose another --out, or remove it")
    tasks, agents = args.tasks or DEFAULT, args.agents or ("episodic", "none", "gru")
    benchmark.check(tasks, agents, args.seeds, args.first_seed)

    def show(row: dict) -> None:
        text = f"{row['task']} {row['agent']} seed {row['seed']}: return {row['final']:.3f}, {row['seconds']:.0f} s"
        print(f"  {text}", file=sys.stderr, flush=True)

    rows = benchmark.run(tasks, agents, args.seeds, args.scale, show, args.first_seed, progress=True)
    lines, together = benchmark.table(rows), benchmark.over_tasks(rows)
    print_table(
        ["task", "agent", "return", "95% interval", "solved", "median steps", "random", "optimal"],
        [
            [
                line["task"],
                line["agent"],
                f"{line['return']:.3f}",
                f"{line['interval'][0]:.3f} to {line['interval'][1]:.3f}",
                f"{line['solved']} of {line['seeds']}",
                "-" if line["median_steps"] == float("inf") else f"{line['median_steps']:,}",
                f"{line['random']:.2f}",
                f"{line['optimal']:.2f}",
            ]
            for line in lines
        ],
    )
    for agent, found in together.items():
        print(
            f"{agent}: {found['mean']:.3f} ({found['low']:.3f} to {found['high']:.3f}) of random to optimal, all tasks"
        )
    if args.out is not None:
        from recollect.plots import draw_benchmark

        options = {
            task: {
                "env": TASKS[task].env,
                "env_options": dict(TASKS[task].options),
                "normalize_rewards": TASKS[task].normalize_rewards,
                "agents": {agent: TASKS[task].agent_options(agent) for agent in agents},
            }
            for task in tasks
        }
        report = {"scale": args.scale, "options": options, "table": lines, "rows": rows}
        write_report(args, plain(report), {})
        print(f"picture: {draw_benchmark(args.out.with_suffix('.png'), rows)}")


def register(commands: Commands) -> None:
    """Add ``benchmark``."""
    compare = commands.add_parser("benchmark", help="agents on tasks that ask for memory")
    suites = compare.add_subparsers(metavar="SUITE", required=True)
    suite = suites.add_parser("memory", help="bsuite, popgym, MiniGrid, secret informant, T-maze")
    suite.add_argument("--tasks", type=names, help="comma-separated (default: a dozen of them)")
    suite.add_argument("--agents", type=names, help="comma-separated (default: episodic,none,gru)")
    suite.add_argument("--seeds", type=count, default=10, help="of each pair (default: 10)")
    suite.add_argument("--first-seed", type=seed, default=0, help="seeds count from here (default: 0)")
    suite.add_argument("--scale", type=multiple, default=1.0, help="factor on every task's steps (default: 1)")
    suite.add_argument("--out", type=Path, help="JSON file for the results; a picture is put beside it")
    suite.set_defaults(run=_benchmark)
