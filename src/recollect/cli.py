"""The command ``recollect``."""

import argparse
import dataclasses
import functools
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from recollect._version import __version__
from recollect.errors import RecollectError
from recollect.interrupts import EXIT_INTERRUPTED, Interrupted

TOUR = """\
recollect: reinforcement-learning agents that learn online what to remember.

A tour, from a minute to an afternoon:

  recollect train --env CartPole-v1 --steps 20000 --set critic_output=linear
                                 an agent with episodic memory in any Gymnasium environment
  recollect evaluate runs/CartPole-v1-episodic-seed0
                                 play the trained agent, without learning
  recollect benchmark memory --tasks t-maze-10,memory_len-10 --seeds 4
                                 agents on tasks that ask for memory, from bsuite, popgym and others
  recollect inspect runs/CartPole-v1-episodic-seed0
                                 one episode, step by step, with what the agent held in memory
  recollect envs                 every environment that can be named here

  recollect reproduce fig4 --preset robust
                                 train the paper's agent beside its recurrent baseline, draw the
                                 figure, and hold the result against the paper's claims for it
  recollect reproduce all        the same for figures 3 to 6, to the letter of the paper
  recollect plot runs/fig4-robust
                                 draw a run again from its folder, also while it is under way
  recollect runs                 what there is, how far it came; resume RUN goes on with one that
                                 was interrupted or killed, bit for bit; verify RUN checks its files
  recollect study --agents all   many seeds of each figure, beside the control memories and the baseline:
                                 shares solved, with intervals
  recollect atlas                what each choice of the agent does, alone and in pairs, on one page
  recollect extensions abstract  states that are more than an observation; continuing: tasks without ends
  recollect tune 1               the paper's grid for the recurrent baseline
  recollect readings             search the choices that the paper leaves open
  recollect looping              why that recipe loops: what is measured, and each link cut alone

  recollect bench estimators     how biased the write gradient is, by enumeration
  recollect bench host           steps a second of the loop around Gymnasium environments
  recollect bench inclusion      an exact weighted sample of a stream, and its picture
  recollect bench reservoir      how fast the sampler is, beside others, in one run
  recollect bench algorithm1     where the paper's Algorithm 1, as printed, silently stops sampling

In Python:

  from recollect import Reservoir
  r = Reservoir(64, seed=0)
  r.extend(items, weights)       # any stream, in any pieces
  r.items, r.inclusion_probabilities()
"""

FIGURES = ("fig3", "fig4", "fig5", "fig6")
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
PRESETS = ("paper", "robust")
LEARNERS = ("episodic", "fifo", "uniform", "none", "gru", "gru-truncated", "gru-rtrl")


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
    console = Console()
    (console if console.is_terminal else Console(width=140)).print(table)


def _bench_train(args: argparse.Namespace) -> None:
    from recollect.bench import train
    from recollect.runs import command_line, versions

    report = train.everything(args.engines.split(","), args.runs, args.seconds, args.skip, _progress)
    if args.picture is not None:
        from recollect import plots

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
        _print_table([c.replace("_", " ") for c in columns], [[_cell(row.get(c)) for c in columns] for row in rows])


def _cell(value: object) -> str:
    return "" if value is None else f"{value:,.2f}" if isinstance(value, float) else str(value)


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


def _check_out(args: argparse.Namespace) -> None:
    """Refuse a place for the report before the work begins rather than after it."""
    from recollect.experiments.sweep import journal_of

    if args.out is None:
        if args.resume:
            raise RecollectError("--resume: say with --out which report to go on with")
        return
    if not args.resume:
        for path in (args.out, journal_of(args.out)):
            if path.exists():
                raise RecollectError(
                    f"{path} exists already: choose another --out, or remove it; --resume does what is missing"
                )
    try:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        if not args.out.exists():
            args.out.touch()
            args.out.unlink()
    except OSError as error:
        raise RecollectError(f"cannot write {args.out}: {error.strerror}") from error


def _sweep(args: argparse.Namespace, units: Mapping[str, Callable[[], object]]) -> tuple[dict, dict]:
    """Do all units, or those that are missing; the config is what was asked, but for where and how to watch."""
    from recollect.experiments.sweep import run_all

    aside = ("run", "out", "resume", "records", "draw", "picture")
    config = {name: value for name, value in vars(args).items() if name not in aside}

    def say(text: str) -> None:
        print(f"  {text}", file=sys.stderr, flush=True)

    return run_all(units, config, args.out, resume=args.resume, say=say)


def _write_report(args: argparse.Namespace, report: dict, errors: dict[str, str]) -> None:
    from recollect.runs import command_line, versions, write_json

    whole = {"command": command_line(), "versions": versions(), **report, **({"errors": errors} if errors else {})}
    if args.out is None:
        print(json.dumps(whole, indent=1))
    else:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        write_json(args.out, whole)
        print(f"written: {args.out}")
    if errors:
        again = "; --resume tries again" if args.out else ""
        raise RecollectError(f"failed: {'; '.join(f'{name}: {error}' for name, error in errors.items())}{again}")


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


def _reproduce(args: argparse.Namespace) -> None:
    from recollect.experiments import reproduce
    from recollect.progress import watching

    names = FIGURES if args.figure == "all" else (args.figure,)
    plans = {}
    for name in names:
        plan = reproduce.make_plan(
            name,
            args.preset,
            args.seeds,
            args.episodes,
            max_steps=args.max_steps,
            with_baseline=not args.no_baseline,
        )
        default = (args.out or Path("runs")) / f"{name}-{args.preset}"
        plans[default if args.figure == "all" else args.out or default] = plan
    there = {path for path in plans if args.resume and path.exists()}
    reproduce.check({path: plan for path, plan in plans.items() if path not in there})
    failures = {}
    for path, plan in plans.items():
        seeds = " and ".join(f"{len(job.seeds)} seeds of the {job.name} agent" for job in plan.jobs)
        print(f"{plan.figure}: {seeds}, {plan.episodes:,} episodes each", file=sys.stderr, flush=True)
        try:
            with watching(plan.figure, [job.name for job in plan.jobs]) as watch:
                if path in there:
                    reproduce.resume(path, watch, plan=plan, **_resume_options(args))
                else:
                    reproduce.train(plan, path, watch, args.checkpoint_every or reproduce.EVERY)
            _conclude(path)
        except RecollectError as error:
            # The other figures go on; the folder of this one says what happened.
            failures[path] = str(error)
            if len(plans) > 1:
                print(f"recollect: {path}: {error}", file=sys.stderr, flush=True)
    if failures:
        ((_, only), *more) = failures.items()
        raise RecollectError(
            f"{len(failures)} of {len(plans)} failed: {', '.join(map(str, failures))}" if more else only
        )


def _conclude(path: Path) -> None:
    from recollect.experiments import reproduce

    verdict, pictures = reproduce.conclude(path)
    _print_verdict(verdict)
    print(f"picture: {' '.join(str(picture) for picture in pictures)}")
    print(f"folder:  {path}")


def _resume_options(args: argparse.Namespace) -> dict:
    return {
        "fallback": args.fallback,
        "allow_inexact": args.allow_inexact,
        "break_lock": args.break_lock,
        "every": args.checkpoint_every,
    }


def _resume(args: argparse.Namespace) -> None:
    from recollect import files
    from recollect.experiments import reproduce
    from recollect.plots import require
    from recollect.progress import watching

    require()
    config = files.read_json(args.folder / "config.json")
    plan = reproduce.plan_of(args.folder, config)
    with watching(plan.figure, [job.name for job in plan.jobs]) as watch:
        reproduce.resume(args.folder, watch, **_resume_options(args))
    _conclude(args.folder)


def _runs(args: argparse.Namespace) -> None:
    from recollect import runs
    from recollect.errors import FileError

    if not args.folder.is_dir():
        raise RecollectError(f"{args.folder} is not a folder")
    found = [args.folder] if (args.folder / "config.json").exists() else sorted(args.folder.iterdir())
    rows = []
    for path in found:
        if not (path / "config.json").exists():
            continue
        try:
            row = runs.summary(path)
        except FileError as error:
            row = {"run": path.name, "status": "damaged", "error": str(error)}
        rows.append(row)
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
            row.get("error") or row["holder"] or "",
        ]

    _print_table(["run", "status", "progress", "last return", ""], [cells(row) for row in rows])


def _verify(args: argparse.Namespace) -> None:
    from recollect import runs

    found = runs.verify(args.folder)
    for path, fault in found:
        print(f"sound    {path}" if fault is None else f"DAMAGED  {fault}")
    if faults := sum(fault is not None for _, fault in found):
        raise RecollectError(f"{args.folder} is damaged in {faults} place{'s' if faults > 1 else ''}")


def _plot(args: argparse.Namespace) -> None:
    from recollect.plots import draw_figure

    print(f"picture: {' '.join(str(picture) for picture in draw_figure(args.folder))}")


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
    from recollect.experiments.paper import FIGURES, HARDER
    from recollect.experiments.study import block_of

    experiments = {name: (FIGURES | HARDER)[name] for name in args.figures}
    if args.episodes is not None:
        experiments = {name: e._replace(episodes=args.episodes) for name, e in experiments.items()}
    for experiment in experiments.values():
        block_of(experiment)
    return experiments


def _study(args: argparse.Namespace) -> None:
    from recollect.experiments import study
    from recollect.progress import Lines

    _check_out(args)
    changes, experiments = _changes(args.set), _experiments(args)
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    limits = {"times_budget": 1 if args.once else 2, "max_steps": args.max_steps}
    units = study.units(args.agents, experiments, seeds, changes, watch=Lines, **limits)
    rows, errors = _sweep(args, units)
    _write_report(args, {"changes": changes, "rows": list(rows.values())}, errors)


def _atlas(args: argparse.Namespace) -> None:
    from recollect.experiments import atlas
    from recollect.progress import Lines

    if args.draw is not None:
        from recollect import plots

        report = json.loads(args.draw.read_text(encoding="utf-8"))
        path = args.picture or args.draw.with_suffix(".png")
        plots.draw_atlas(report["rows"], path)
        print(f"written: {path}")
        return
    _check_out(args)
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    units = atlas.units(_experiments(args), seeds, args.parts, max_steps=args.max_steps, watch=Lines)
    found, errors = _sweep(args, units)
    _write_report(args, {"rows": [row for rows in found.values() for row in rows]}, errors)


def _looping(args: argparse.Namespace) -> None:
    from recollect.experiments import looping
    from recollect.plots import draw_looping, require

    args.resume = False
    _check_out(args)
    if args.picture is not None:
        require()
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    report = looping.run(seeds, args.steps, _progress, args.workers)
    if args.picture is not None:
        draw_looping(report, args.picture)
    if args.json or args.out is not None:
        _write_report(args, report, {})
    if not args.json:
        _print_table(looping.COLUMNS, looping.table(report))


def _tune(args: argparse.Namespace) -> None:
    from recollect.experiments.paper import BASELINE_RATES
    from recollect.experiments.tune import ranked, try_width

    _check_out(args)
    if args.episodes is not None and args.episodes % 100:
        raise RecollectError(f"--episodes {args.episodes}: a multiple of 100 is needed, the last 100 decide")
    rates = tuple(BASELINE_RATES[x] for x in args.rates)
    units = {
        f"width {width}": functools.partial(try_width, args.decisions, width, rates, args.episodes)
        for width in args.widths
    }
    found, errors = _sweep(args, units)
    rows = [row for rows in found.values() for row in rows]
    _write_report(args, {"decisions": args.decisions, "rows": ranked(rows)}, errors)


def _extensions(args: argparse.Namespace) -> None:
    from recollect.experiments.extensions import study_abstract, study_continuing

    args.resume = False
    _check_out(args)
    if args.amount is not None and args.amount % 10:
        raise RecollectError(f"--amount {args.amount}: a multiple of 10 is needed, the last tenth is measured")
    if args.study == "continuing":
        rows = study_continuing(args.seeds, args.amount or 80_000, args.first_seed)
    else:
        rows = study_abstract(args.seeds, args.amount or 12_000, args.first_seed)
    _write_report(args, {"study": args.study, "first_seed": args.first_seed, "rows": rows}, {})


def _readings(args: argparse.Namespace) -> None:
    from recollect.experiments.paper import FIGURES
    from recollect.experiments.readings import programs, search
    from recollect.progress import Lines

    _check_out(args)
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
    found, errors = _sweep(args, {f"program {k}": functools.partial(work, k, p) for k, p in which.items()})
    rows = [row for rows in found.values() for row in rows]
    ranked = sorted(rows, key=lambda r: (r["solved_at_end"], r["solved"], r["finished"]), reverse=True)
    _write_report(args, {"figure": args.figure, "readings": ranked}, errors)


def _train(args: argparse.Namespace) -> None:
    from recollect import Learner, callbacks
    from recollect.agents import named

    for name, value in [*args.set, *args.env_set]:
        if value is None or isinstance(value, (list, dict)):
            raise RecollectError(f"{name}={value}: one number or name is needed")
    if args.out is not None:
        from recollect.runs import check_free

        check_free(args.out)
    agent = named.make(args.agent, **dict(args.set))
    learner = Learner(
        agent,
        args.env,
        seed=args.seed,
        copies=args.copies,
        learners=args.learners,
        env_options=dict(args.env_set),
        normalize_observations=args.normalize in ("observations", "both"),
        normalize_rewards=args.normalize in ("rewards", "both"),
    )
    watch: list = []
    if args.evaluate_every:
        watch.append(callbacks.Evaluate(args.evaluate_every))
    if args.checkpoint_every:
        watch.append(callbacks.Checkpoint(args.checkpoint_every))
    if args.stop_at is not None:
        watch.append(callbacks.EarlyStop(args.stop_at, patience=3))
    learner.learn(args.steps, progress=True, callbacks=watch, log=args.log, log_every=args.log_every, folder=args.out)
    print(f"steps:   {learner.steps:,}, episodes: {sum(learner.episodes):,}")
    print(f"folder:  {learner.folder}")


def _evaluate(args: argparse.Namespace) -> None:
    from recollect import Learner

    learner = Learner.load(args.run_folder)
    print(learner.evaluate(args.episodes, seed=args.seed))


def _inspect(args: argparse.Namespace) -> None:
    from recollect import Learner, inspection
    from recollect.plots import draw_episode

    learner = Learner.load(args.run_folder)
    moments = inspection.play(learner, args.seed, args.limit)
    columns, rows = inspection.lines(moments)
    _print_table(columns, rows)
    print(f"return {sum(m.reward for m in moments):g} in {len(moments)} steps; ▸ marks what was recalled")
    out = args.out or args.run_folder / f"episode-{args.seed}.png"
    print(f"picture: {draw_episode(out, moments)}")


def _envs(args: argparse.Namespace) -> None:
    from recollect.envs.making import listing

    for env_id, package in listing():
        if args.text.lower() in env_id.lower():
            print(f"{env_id:50s} {package}")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)


def _benchmark(args: argparse.Namespace) -> None:
    from recollect import benchmark
    from recollect.provenance import plain
    from recollect.tasks import AGENTS as OPTIONS
    from recollect.tasks import DEFAULT

    if args.out is not None and args.out.exists():
        raise RecollectError(f"{args.out} exists already: choose another --out, or remove it")
    tasks, agents = args.tasks or DEFAULT, args.agents or ("episodic", "none", "gru")
    benchmark.check(tasks, agents)

    def show(row: dict) -> None:
        text = f"{row['task']} {row['agent']} seed {row['seed']}: return {row['final']:.3f}, {row['seconds']:.0f} s"
        print(f"  {text}", file=sys.stderr, flush=True)

    rows = benchmark.run(tasks, agents, args.seeds, args.scale, show)
    lines, together = benchmark.table(rows), benchmark.over_tasks(rows)
    _print_table(
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

        report = {"scale": args.scale, "options": {a: OPTIONS[a] for a in agents}, "table": lines, "rows": rows}
        _write_report(args, plain(report), {})
        print(f"picture: {draw_benchmark(args.out.with_suffix('.png'), rows)}")


def _bench_host(args: argparse.Namespace) -> None:
    from recollect.bench import host

    rows = host.speeds(args.steps, args.hidden, args.env, args.agents, _progress)
    if args.json:
        print(json.dumps(rows, indent=1))
        return
    print(f"\nsteps a second on {args.env}, networks of {args.hidden} units; best of {host.REPEATS}\n")
    columns = ["learner", "steps/s by the clock", "by the process's own time"]
    _print_table(columns, [[name, f"{r['clock']:,.0f}", f"{r['processor']:,.0f}"] for name, r in rows.items()])


def _soak(args: argparse.Namespace) -> None:
    from recollect.bench import reliability

    if args.out.exists():
        raise RecollectError(f"{args.out} exists already: choose another --out, or remove it")
    found = reliability.soak(args.minutes, args.checkpoint_every or 5.0, args.out, lambda text: print(text, flush=True))
    _write_json(args.out / "soak.json", found)
    del found["samples"]
    print(json.dumps(found, indent=1))
    if found["damaged"]:
        raise RecollectError(f"{len(found['damaged'])} damaged files: {found['damaged'][0]}")


def _write_json(path: Path, content: dict) -> None:
    from recollect.runs import write_json

    write_json(path, content)


def _bench_endless(args: argparse.Namespace) -> None:
    from recollect.bench import reliability

    _progress(f"one episode of {args.steps:,} steps")
    rows = reliability.endless(args.steps)
    if args.json:
        print(json.dumps(rows, indent=1))
        return
    _print_table(
        ["steps", "steps/s", "resident MiB"],
        [[f"{r['steps']:,}", f"{r['steps_a_second']:,}", f"{r['resident_mib']:.1f}"] for r in rows],
    )


def _bench_checkpoints(args: argparse.Namespace) -> None:
    from recollect.bench import reliability

    _progress("training figure 4 with checkpoints for half a minute")
    print(json.dumps(reliability.checkpoint_cost(), indent=1))


def _bench_estimators(args: argparse.Namespace) -> None:
    from recollect.experiments import estimators

    _progress("enumerating, then playing episodes: about a minute")
    report = estimators.report(episodes=args.episodes)
    if args.json:
        print(json.dumps(report, indent=1))
        return
    for title, columns, rows in estimators.tables(report):
        print(f"\n{title}\n")
        _print_table(columns, rows)


def _bench_inclusion(args: argparse.Namespace) -> None:
    from recollect.plots import draw_inclusion

    print(f"picture: {draw_inclusion(args.out)}")


def _count(text: str) -> int:
    number, *more = _counts(text)
    if more:
        raise argparse.ArgumentTypeError(f"{text!r}: one number is wanted")
    return number


def _multiple(text: str) -> float:
    try:
        number = float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from error
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}: must be greater than 0 and finite")
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
        numbers = tuple(float(x) for x in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a comma-separated list of whole numbers") from error
    if not all(x.is_integer() for x in numbers):
        raise argparse.ArgumentTypeError(f"{text!r}: every number must be whole")
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: every number must be at least 1")
    return tuple(int(x) for x in numbers)


def parser() -> argparse.ArgumentParser:
    """The command's options; kept apart so that tests and documentation can read them."""
    top = argparse.ArgumentParser(prog="recollect", description=TOUR, formatter_class=argparse.RawTextHelpFormatter)
    top.add_argument("--version", action="version", version=f"recollect {__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True)

    again = commands.add_parser("reproduce", help="a figure of the paper: train, draw, hold it against the claims")
    again.add_argument("figure", choices=(*FIGURES, "all"))
    again.add_argument("--seeds", type=_count, help="runs of the episodic agent (default: the paper's 3)")
    again.add_argument("--preset", choices=PRESETS, default="paper", help="default: paper")
    again.add_argument("--episodes", type=_count, help="a multiple of 25 (default: the paper's)")
    again.add_argument("--out", type=Path, help="run folder, for all its parent (default: runs/FIGURE-PRESET)")
    again.add_argument(
        "--max-steps",
        type=_multiple,
        default=4.0,
        help="end a seed after this many times the fewest steps its episodes can take (default: 4)",
    )
    again.add_argument("--no-baseline", action="store_true", help="leave out the recurrent baseline")
    again.add_argument(
        "--resume", action="store_true", help="go on with folders that are there; train only what is missing"
    )
    again.set_defaults(run=_reproduce)

    learn = commands.add_parser("train", help="train an agent in a Gymnasium environment")
    learn.add_argument("--env", required=True, metavar="ID", help="as `recollect envs` lists them")
    learn.add_argument("--agent", choices=LEARNERS, default="episodic", help="default: episodic")
    learn.add_argument("--steps", type=_count, default=100_000, help="time steps (default: 100,000)")
    learn.add_argument("--seed", type=int, default=0, help="default: 0")
    learn.add_argument(
        "--set", type=_setting, action="append", default=[], metavar="NAME=VALUE", help="change an option of the agent"
    )
    learn.add_argument(
        "--env-set", type=_setting, action="append", default=[], metavar="NAME=VALUE", help="and of the environment"
    )
    learn.add_argument("--copies", type=_count, default=1, help="environments played at once (default: 1)")
    learn.add_argument(
        "--learners", choices=("one", "each"), default="one", help="one agent for all copies, or each one"
    )
    learn.add_argument("--normalize", choices=("observations", "rewards", "both"), help="by running statistics")
    learn.add_argument("--log", choices=("tensorboard",), help="besides metrics.jsonl and metrics.csv")
    learn.add_argument("--log-every", type=_count, default=1000, help="steps between rows of metrics (default: 1000)")
    learn.add_argument("--evaluate-every", type=_count, help="evaluate every so many steps")
    learn.add_argument("--checkpoint-every", type=_count, help="save every so many steps, besides at the end")
    learn.add_argument("--stop-at", type=float, help="stop when the mean return of 3 rows in succession is so high")
    learn.add_argument("--out", type=Path, help="run folder (default: runs/ENV-AGENT-seedS)")
    learn.set_defaults(run=_train)

    test = commands.add_parser("evaluate", help="play a trained agent without learning")
    test.add_argument("run_folder", type=Path, metavar="RUN")
    test.add_argument("--episodes", type=_count, default=100, help="default: 100")
    test.add_argument("--seed", type=_count, help="of the episodes (default: one beside the run's own)")
    test.set_defaults(run=_evaluate)

    look = commands.add_parser("inspect", help="an episode of a trained agent, with what it held in memory")
    look.add_argument("run_folder", type=Path, metavar="RUN")
    look.add_argument("--seed", type=int, default=0, help="of the episode (default: 0)")
    look.add_argument("--limit", type=_count, default=100, help="most steps to play (default: 100)")
    look.add_argument("--out", type=Path, help="the picture (default: RUN/episode-SEED.png)")
    look.set_defaults(run=_inspect)

    envs = commands.add_parser("envs", help="list the environments that can be named")
    envs.add_argument("text", nargs="?", default="", help="only ids with this in them")
    envs.set_defaults(run=_envs)

    going_on = commands.add_parser(
        "resume", help="go on with a run that was interrupted, killed or failed, bit for bit"
    )
    going_on.add_argument("folder", type=Path, metavar="RUN")
    going_on.set_defaults(run=_resume)
    for command in (again, going_on):
        command.add_argument(
            "--checkpoint-every",
            type=_multiple,
            metavar="SECONDS",
            help="between checkpoints (default: 60, or as before)",
        )
        command.add_argument(
            "--fallback", action="store_true", help="resuming, go back where the newest checkpoint is damaged"
        )
        command.add_argument(
            "--allow-inexact",
            action="store_true",
            help="resume under other versions; the run is marked as not bit-exact",
        )
        command.add_argument(
            "--break-lock", action="store_true", help="resume a run whose lock is left from another host or a restart"
        )

    listing = commands.add_parser("runs", help="list runs: status, progress, last return")
    listing.add_argument("folder", type=Path, metavar="DIR", nargs="?", default=Path("runs"), help="default: runs")
    listing.add_argument("--json", action="store_true", help="print JSON instead of a table")
    listing.set_defaults(run=_runs)

    check = commands.add_parser("verify", help="check every file and checkpoint of a run against its sums")
    check.add_argument("folder", type=Path, metavar="RUN")
    check.set_defaults(run=_verify)

    compare = commands.add_parser("benchmark", help="agents on tasks that ask for memory")
    suites = compare.add_subparsers(metavar="SUITE", required=True)
    suite = suites.add_parser("memory", help="bsuite, popgym, MiniGrid, secret informant, T-maze")
    suite.add_argument("--tasks", type=_names, help="comma-separated (default: a dozen of them)")
    suite.add_argument("--agents", type=_names, help="comma-separated (default: episodic,none,gru)")
    suite.add_argument("--seeds", type=_count, default=10, help="of each pair (default: 10)")
    suite.add_argument("--scale", type=_multiple, default=1.0, help="factor on every task's steps (default: 1)")
    suite.add_argument("--out", type=Path, help="JSON file for the results; a picture is put beside it")
    suite.set_defaults(run=_benchmark)

    plot = commands.add_parser("plot", help="draw a run again from its folder")
    plot.add_argument("folder", type=Path, metavar="DIR")
    plot.set_defaults(run=_plot)

    def names_among(what: str, known: tuple[str, ...], all_of: tuple[str, ...]):
        def parse(text: str) -> tuple[str, ...]:
            names = all_of if text == "all" else tuple(text.split(","))
            if unknown := set(names) - set(known):
                raise argparse.ArgumentTypeError(
                    f"unknown {what} {', '.join(unknown)}; choose among {', '.join(known)}"
                )
            return names

        return parse

    figure_list = names_among("figure", (*FIGURES, *HARDER), FIGURES)
    study = commands.add_parser("study", help="many seeds of the experiments: shares solved, with intervals")
    study.add_argument(
        "--figures", type=figure_list, default=FIGURES, help=f"comma-separated; all, or also {', '.join(HARDER)}"
    )
    study.add_argument(
        "--agents",
        type=names_among("agent", AGENTS, AGENTS),
        default=("robust",),
        help=f"comma-separated, or all: {', '.join(AGENTS)} (default: robust)",
    )
    study.add_argument("--seeds", type=_count, default=64, help="runs a figure and agent (default: 64)")
    study.add_argument("--first-seed", type=int, default=0, help="seeds count from here (default: 0)")
    study.add_argument("--episodes", type=_count, help="the budget; default: the experiment's own")
    study.add_argument("--once", action="store_true", help="end at the budget, not at twice the budget")
    study.add_argument(
        "--set", type=_setting, action="append", default=[], metavar="NAME=VALUE", help="change an option of the agent"
    )
    study.add_argument(
        "--max-steps", type=_multiple, default=4.0, help="end a run after this many times the fewest steps (default: 4)"
    )
    study.add_argument("--out", type=Path, help="JSON file to write; default: standard output")
    study.set_defaults(run=_study)

    atlas = commands.add_parser("atlas", help="every choice of the robust agent, alone and in pairs: one page")
    atlas.add_argument("--figures", type=figure_list, default=("fig4", "fig5"), help="comma-separated")
    atlas.add_argument("--seeds", type=_count, default=64, help="runs a choice (default: 64)")
    atlas.add_argument("--first-seed", type=int, default=0, help="seeds count from here (default: 0)")
    atlas.add_argument("--episodes", type=_count, help="the budget; default: the experiment's own")
    atlas.add_argument(
        "--parts",
        type=names_among("part", ATLAS_PARTS, ATLAS_PARTS),
        default=("numbers", "programs"),
        help="comma-separated: numbers, programs, general (choices that only the general, slower loop knows), or all",
    )
    atlas.add_argument(
        "--max-steps", type=_multiple, default=2.0, help="end a run after this many times the fewest steps (default: 2)"
    )
    atlas.add_argument("--out", type=Path, help="JSON file to write; default: standard output")
    atlas.add_argument("--draw", type=Path, metavar="JSON", help="no training: draw the page from such a file")
    atlas.add_argument("--picture", type=Path, help="where --draw puts it; default: beside the file")
    atlas.set_defaults(run=_atlas)

    extensions = commands.add_parser("extensions", help="tasks without ends, states that are more than an observation")
    extensions.add_argument("study", choices=("continuing", "abstract"))
    extensions.add_argument("--seeds", type=_count, default=16, help="runs a row (default: 16)")
    extensions.add_argument("--first-seed", type=int, default=0, help="seeds count from here (default: 0)")
    extensions.add_argument("--amount", type=_count, help="steps of a life (80,000), or episodes (12,000)")
    extensions.add_argument("--out", type=Path, help="JSON file to write; default: standard output")
    extensions.set_defaults(run=_extensions)

    looping = commands.add_parser("looping", help="why the paper's recipe loops: each link measured, and cut alone")
    looping.add_argument("--seeds", type=_count, default=32, help="runs an intervention (default: 32)")
    looping.add_argument("--first-seed", type=int, default=0, help="seeds count from here (default: 0)")
    looping.add_argument(
        "--steps", type=_count, default=300_000, help="of each run, a multiple of 40 (default: 300,000)"
    )
    looping.add_argument("--workers", type=_count, help="threads (default: one a core); results do not depend on it")
    looping.add_argument("--json", action="store_true", help="print JSON instead of a table")
    looping.add_argument("--out", type=Path, help="JSON file to write as well")
    looping.add_argument("--picture", type=Path, help="PNG file to draw the measures to")
    looping.set_defaults(run=_looping)

    tune = commands.add_parser("tune", help="the paper's grid for the recurrent baseline")
    tune.add_argument("decisions", type=int, choices=(1, 2))
    tune.add_argument("--widths", type=_counts, default=(5, 10, 15, 20), help="comma-separated")
    tune.add_argument("--rates", type=_rates, default=tuple(range(10)), help="x of 0.05 · 2^-x, comma-separated")
    tune.add_argument("--episodes", type=_count, help="default: the paper's 25,000 or 50,000")
    tune.add_argument("--out", type=Path, help="JSON file to write; default: standard output")
    tune.set_defaults(run=_tune)

    readings = commands.add_parser("readings", help="search the choices that the paper leaves open, at γ = 1")
    readings.add_argument("--figure", choices=FIGURES, default="fig5")
    readings.add_argument(
        "--readings", type=_count, default=16, help="random readings of each of 4 programs (default: 16)"
    )
    readings.add_argument("--seeds", type=_count, default=8, help="runs a reading (default: 8)")
    readings.add_argument("--part", type=int, default=0, help="which part of the programs, to share the work")
    readings.add_argument("--parts", type=_count, default=1, help="into how many parts the programs go (default: 1)")
    readings.add_argument("--max-steps", type=_multiple, default=4.0, help="in multiples of the shortest total")
    readings.add_argument("--records", type=_count, default=20, help="steps of one compiled call, in 500 (default: 20)")
    readings.add_argument("--out", type=Path, help="JSON file to write; default: standard output")
    readings.set_defaults(run=_readings)
    for command in (study, atlas, tune, readings):
        command.add_argument(
            "--resume", action="store_true", help="go on with the report of --out: do only what is missing or failed"
        )

    soak = commands.add_parser("soak", help="train with checkpoints for long and watch memory and open files")
    soak.add_argument("--minutes", type=_multiple, default=60.0, help="default: 60")
    soak.add_argument("--checkpoint-every", type=_multiple, metavar="SECONDS", help="default: 5")
    soak.add_argument("--out", type=Path, default=Path("runs/soak"), help="folder (default: runs/soak)")
    soak.set_defaults(run=_soak)

    bench = commands.add_parser("bench", help="measure the library on this machine")
    subjects = bench.add_subparsers(metavar="SUBJECT", required=True)
    speed = subjects.add_parser("reservoir", help="speed of the sampler beside others")
    speed.add_argument("--json", action="store_true", help="print JSON instead of a table")
    speed.add_argument("--capacities", type=_counts, default=(3, 16, 64, 256, 1024), help="n, comma-separated")
    speed.add_argument("--items", type=_counts, default=(10**6, 10**7), help="stream lengths, comma-separated")
    speed.set_defaults(run=_bench_reservoir)
    loop = subjects.add_parser("host", help="speed of the loop around Gymnasium environments")
    loop.add_argument("--json", action="store_true", help="print JSON instead of a table")
    loop.add_argument("--steps", type=_count, default=2000, help="a measurement (default: 2,000)")
    loop.add_argument("--hidden", type=_count, default=64, help="units of the networks (default: 64)")
    loop.add_argument("--env", default="CartPole-v1", help="default: CartPole-v1")
    loop.add_argument("--agents", type=_names, default=("episodic", "none", "gru"), help="default: episodic,none,gru")
    loop.set_defaults(run=_bench_host)
    loop = subjects.add_parser("train", help="steps per second of the whole online loop")
    loop.add_argument("--engines", default="auto,jax", help="comma-separated: auto, cuda, cpu, jax (default: auto,jax)")
    loop.add_argument("--runs", type=_counts, help="how many at once, comma-separated (default: as the machine allows)")
    loop.add_argument("--seconds", type=float, default=1.0, help="of each measurement (default: 1)")
    loop.add_argument("--skip", type=lambda text: text.split(","), default=[], help="any of others,growth,figure5")
    loop.add_argument("--json", action="store_true", help="print JSON instead of tables")
    loop.add_argument("--picture", type=Path, help="where to draw steps per second over runs")
    loop.set_defaults(run=_bench_train)
    bias = subjects.add_parser("estimators", help="how biased the write-gradient estimators are, by enumeration")
    bias.add_argument("--json", action="store_true", help="print JSON instead of tables")
    bias.add_argument("--episodes", type=_count, default=100_000, help="of each Monte Carlo estimate")
    bias.set_defaults(run=_bench_estimators)
    inclusion = subjects.add_parser("inclusion", help="sample one stream many times and draw what stayed")
    inclusion.add_argument("--out", type=Path, default=Path("runs/inclusion"), help="folder (default: runs/inclusion)")
    inclusion.set_defaults(run=_bench_inclusion)
    long = subjects.add_parser("endless", help="one episode that never ends: is memory flat, is speed")
    long.add_argument("--json", action="store_true", help="print JSON instead of a table")
    long.add_argument("--steps", type=_count, default=10**7, help="default: 10 million")
    long.set_defaults(run=_bench_endless)
    saving = subjects.add_parser("checkpoints", help="what a checkpoint costs")
    saving.set_defaults(run=_bench_checkpoints)
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
    except Interrupted:
        print("recollect: interrupted; recollect resume goes on with it", file=sys.stderr)
        return EXIT_INTERRUPTED
    except KeyboardInterrupt:
        print("recollect: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    return 0
