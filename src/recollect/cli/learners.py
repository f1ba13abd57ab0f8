"""``recollect train``, ``evaluate``, ``inspect`` and ``envs``: agents in Gymnasium environments."""

import argparse
from pathlib import Path
from typing import Any

from recollect.cli.arguments import Commands, add_set, count, finite, multiple, seed, snapshots
from recollect.cli.reports import check_place, print_table
from recollect.errors import RecollectError

LEARNERS = (
    "general",
    "trace-units",
    "reservoir",
    "memoryless",
    "paper",
    "episodic",
    "fifo",
    "uniform",
    "none",
    "gru",
    "gru-truncated",
    "gru-rtrl",
)


def _train(args: argparse.Namespace) -> None:
    from recollect import Learner
    from recollect.agents import named
    from recollect.training import callbacks

    for name, value in [*args.set, *args.env_set]:
        if isinstance(value, (list, dict)):
            raise RecollectError(f"{name}={value}: one number or name is needed")
    if nothing := [name for name, value in args.env_set if value is None]:
        raise RecollectError(f"{nothing[0]}=None: one number or name is needed")
    if args.out is not None:
        from recollect.store.run_folders import check_free

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
        engine=args.engine,
    )
    watch: list = [callbacks.Record(args.record)] if args.record else []
    if args.evaluate_every:
        watch.append(callbacks.Evaluate(args.evaluate_every))
    if args.stop_at is not None:
        watch.append(callbacks.EarlyStop(args.stop_at, patience=3))
    learner.learn(
        args.steps,
        progress=True,
        callbacks=watch,
        log=args.log,
        log_every=args.log_every,
        folder=args.out,
        checkpoint_every=args.checkpoint_every,
    )
    assert learner.folder is not None
    say_where(learner, learner.folder)


def say_where(learner: Any, folder: Path) -> None:
    """How far a learner has come, and where it is."""
    print(f"steps:   {learner.steps:,}, episodes: {sum(learner.episodes):,}")
    here = Path.cwd()
    print(f"folder:  {folder.relative_to(here) if folder.is_relative_to(here) else folder}")


def _evaluate(args: argparse.Namespace) -> None:
    from recollect import Learner

    learner = Learner.load(args.run_folder, args.env, fallback=args.fallback)
    print(learner.evaluate(args.episodes, seed=args.seed, progress=True))


def _inspect(args: argparse.Namespace) -> None:
    from recollect import Learner
    from recollect.studies import drawing
    from recollect.studies.plots import draw_episode
    from recollect.training import inspection

    if args.out is not None:
        check_place(args.out, "--out", named=True)
    drawing.require(args.out)
    learner = Learner.load(args.run_folder, args.env, fallback=args.fallback)
    moments = inspection.play(learner, args.seed, args.limit, progress=True)
    columns, rows = inspection.lines(moments)
    print_table(columns, rows)
    print(f"return {sum(m.reward for m in moments):g} in {len(moments)} steps; ▸ marks what was recalled")
    out = args.out or args.run_folder / f"episode-{args.seed}.png"
    print(f"picture: {draw_episode(out, moments)}")


def _envs(args: argparse.Namespace) -> None:
    from recollect.envs.making import listing

    found = [(env_id, package) for env_id, package in listing() if args.text.lower() in env_id.lower()]
    if not found:
        raise RecollectError(f"no id contains {args.text!r}; `recollect envs` lists all that there are")
    for env_id, package in found:
        print(f"{env_id:50s} {package}")


def add_env_option(command: argparse.ArgumentParser) -> None:
    """For commands that make a saved learner's environment again."""
    command.add_argument("--env", metavar="ID", help="the environment (default: the run's own, unless it is MODULE:ID)")


def register(commands: Commands) -> None:
    """Add what trains agents and plays them."""
    learn = commands.add_parser("train", help="train an agent in a Gymnasium environment")
    learn.add_argument("--env", required=True, metavar="ID", help="as `recollect envs` lists them")
    learn.add_argument("--agent", choices=LEARNERS, default="general", help="default: general")
    learn.add_argument("--steps", type=count, default=100_000, help="time steps (default: 100,000)")
    learn.add_argument("--seed", type=seed, default=0, help="default: 0")
    add_set(learn, "change an option of the agent")
    add_set(learn, "and of the environment", "--env-set")
    learn.add_argument("--copies", type=count, default=1, help="environments played at once (default: 1)")
    learn.add_argument(
        "--learners", choices=("one", "each"), default="one", help="one agent for all copies, or each one"
    )
    learn.add_argument("--normalize", choices=("observations", "rewards", "both"), help="by running statistics")
    learn.add_argument("--engine", choices=("auto", "cpu", "jax"), default="auto", help="default: the fastest there is")
    learn.add_argument("--log", choices=("tensorboard",), help="besides metrics.jsonl and metrics.csv")
    learn.add_argument("--log-every", type=count, default=1000, help="steps between rows of metrics (default: 1000)")
    learn.add_argument(
        "--evaluate-every", type=count, help="evaluate every so many steps, at the next row of metrics (--log-every)"
    )
    learn.add_argument(
        "--checkpoint-every", type=multiple, default=60.0, metavar="SECONDS", help="between checkpoints (default: 60)"
    )
    learn.add_argument(
        "--record",
        type=snapshots,
        default=12,
        metavar="K",
        help="keep K snapshots of the agent, 2 or more, for recollect view to look back at; 0: none (default: 12)",
    )
    learn.add_argument("--stop-at", type=finite, help="stop when the mean return of 3 rows in succession is so high")
    learn.add_argument("--out", type=Path, help="run folder (default: runs/ENV-AGENT-seedS)")
    learn.set_defaults(run=_train)

    test = commands.add_parser("evaluate", help="play a trained agent without learning")
    test.add_argument("run_folder", type=Path, metavar="RUN")
    test.add_argument("--episodes", type=count, default=100, help="default: 100")
    test.add_argument("--seed", type=seed, help="of the episodes (default: one beside the run's own)")
    test.set_defaults(run=_evaluate)

    look = commands.add_parser("inspect", help="an episode of a trained agent, with what it held in memory")
    look.add_argument("run_folder", type=Path, metavar="RUN")
    look.add_argument("--seed", type=seed, default=0, help="of the episode (default: 0)")
    look.add_argument("--limit", type=count, default=100, help="most steps to play (default: 100)")
    look.add_argument("--out", type=Path, help="the picture (default: RUN/episode-SEED.png)")
    look.set_defaults(run=_inspect)

    for command in (test, look):
        add_env_option(command)
        command.add_argument("--fallback", action="store_true", help="go back where the newest checkpoint is damaged")

    envs = commands.add_parser("envs", help="list the environments that can be named")
    envs.add_argument("text", nargs="?", default="", help="only ids with this in them")
    envs.set_defaults(run=_envs)
