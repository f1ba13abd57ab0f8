"""Steps and time to solve memory tasks: recollect's Learner, Stable-Baselines3, sb3-contrib, and `Recall` between them.

    python benchmarks/torch_rivals.py                       # hours on two cores
    python benchmarks/torch_rivals.py --cpu-seconds 120     # no run longer than that
    python benchmarks/torch_rivals.py --resume --minutes 9  # continue: what the journal holds is not run again
    python benchmarks/torch_rivals.py --table               # only the tables of what the journal holds, as Markdown
    python benchmarks/torch_rivals.py --agents learner torch-ppo-lstm --tasks t-maze-10 --seeds 2 --scale 0.5

Without --agents the table of docs/torch.md; A2C and the agents of examples/, as they are, can be named as well. Needs
PyTorch, stable-baselines3 and sb3-contrib (2.9), and for the tasks of bsuite and popgym those packages; nothing is
downloaded. Each run is a process of its own with one thread. It ends when the mean return of the last 100 episodes
reaches the task's mark, when its steps are used up, or, with --cpu-seconds, when it has kept its core busy for so long;
--resume with more of those runs again what they cut short. All runs are watched by the same wrapper, around the
environment itself: its count of steps is of all environments that an agent plays together, and exploration is part of
the returns. Seconds are counted from when the agent is made, its compilation included (nothing is taken from the cache
of compiled steps), imports not.
"""

import argparse
import contextlib
import dataclasses
import importlib
import importlib.util
import json
import multiprocessing
import multiprocessing.connection
import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

JOURNAL = Path(__file__).parent / "data" / "torch-rivals.jsonl"
EPISODES = 100


@dataclasses.dataclass(frozen=True)
class Task:
    """A task's name in `recollect.studies.tasks`, its steps at most, and the states that `Recall` keeps."""

    steps: int
    recall: int = 8
    mark: float = 0.95


TASKS = {
    "t-maze-10": Task(100_000),
    "t-maze-40": Task(100_000),
    "memory_len-30": Task(100_000, recall=32),
    "RepeatFirstEasy": Task(100_000, recall=16),
}

# rl-baselines3-zoo, hyperparams/ppo_lstm.yml, CartPoleNoVel-v1: its nearest task, hidden state and discrete actions.
ZOO: dict[str, Any] = {"n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98, "n_epochs": 20}
ZOO_ENVS, ZOO_RATE, ZOO_CLIP = 8, 0.001, 0.2

SB3 = ("recurrent-ppo", "recurrent-ppo-zoo", "ppo", "ppo-recall", "a2c", "a2c-recall")
"""recurrent-ppo: sb3-contrib's defaults; -zoo: the setting above; -recall: with `recollect.wrappers.Recall` around."""

EXAMPLES: dict[str, tuple[str, dict[str, Any]]] = {
    "torch-actor-critic": ("torch_actor_critic", {}),
    "torch-ppo-reservoir": ("torch_ppo_memory", {"memory": "reservoir"}),
    "torch-ppo-lstm": ("torch_ppo_memory", {"memory": "lstm"}),
}
"""Those of examples/, as they are."""

AGENTS = ("learner", *SB3, *EXAMPLES)
"""learner: recollect.Learner as it is, without an agent or a setting given."""

COMPARED = AGENTS[:5]
"""Those of the table in docs/torch.md."""

SLOWEST = ("recurrent-ppo", "recurrent-ppo-zoo", "torch-ppo-lstm", "ppo")
"""Begun first among the runs of one seed, so that the last process is not left alone with one of them."""


class Over(Exception):  # noqa: N818
    """Ends a run whose own loop cannot be told to."""


class Watch:
    """Counts steps and episodes over all environments of a run, and says when it is solved."""

    def __init__(self, mark: float, cpu_seconds: float = float("inf")):
        self.mark, self.cpu_seconds, self.steps, self.episodes = mark, cpu_seconds, 0, 0
        self.raises = False
        self.last: deque[float] = deque(maxlen=EPISODES)
        self.begun, self.cpu = time.perf_counter(), time.process_time()
        self.best, self.solved_steps, self.solved_seconds, self.solved_cpu = float("-inf"), None, None, None

    def step(self) -> None:
        """One step was taken."""
        if self.raises and self.over:
            raise Over
        self.steps += 1

    def end(self, score: float) -> None:
        """An episode ended with this return."""
        self.episodes += 1
        self.last.append(score)
        if len(self.last) < EPISODES:
            return
        mean = sum(self.last) / EPISODES
        self.best = max(self.best, mean)
        if self.solved_steps is None and mean >= self.mark:
            self.solved_steps = self.steps
            self.solved_seconds = time.perf_counter() - self.begun
            self.solved_cpu = time.process_time() - self.cpu

    @property
    def solved(self) -> bool:
        """Whether the mark was reached."""
        return self.solved_steps is not None

    @property
    def over(self) -> bool:
        """Whether the run may end: solved, or out of time."""
        return self.solved or time.process_time() - self.cpu > self.cpu_seconds


def watched(task: str, watch: Watch) -> Any:
    """The task's environment, watched, its observations flat: all agents play the same."""
    import gymnasium as gym

    from recollect.envs.making import make
    from recollect.studies.tasks import TASKS as KNOWN

    class Watched(gym.Wrapper):
        def __init__(self, env: gym.Env):
            super().__init__(env)
            self.score = 0.0

        def reset(self, **arguments: Any) -> Any:
            self.score = 0.0
            return self.env.reset(**arguments)

        def step(self, action: Any) -> Any:
            watch.step()
            found = self.env.step(action)
            self.score += float(found[1])
            if found[2] or found[3]:
                watch.end(self.score)
            return found

    known = KNOWN[task]
    return gym.wrappers.FlattenObservation(Watched(make(known.env, **dict(known.options))))


def run_learner(task: str, seed: int, steps: int, watch: Watch) -> dict[str, Any]:
    """recollect.Learner; returns what its agent is."""
    import tempfile

    import recollect
    from recollect.agents import named

    learner = recollect.Learner(env=lambda: watched(task, watch), seed=seed, check=False)
    with tempfile.TemporaryDirectory() as folder:
        learner.learn(
            steps=steps,
            folder=f"{folder}/run",
            progress=False,
            log_every=500,
            callbacks=[lambda *_: watch.over],
            checkpoint_every=3600.0,
        )
    return {"settings": named.describe(learner.agent)}


def run_sb3(task: str, seed: int, steps: int, watch: Watch, agent: str) -> dict[str, Any]:
    """An algorithm of Stable-Baselines3 or sb3-contrib; returns its settings, where they are not its defaults."""
    import torch
    from sb3_contrib import RecurrentPPO
    from stable_baselines3 import A2C, PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import DummyVecEnv

    from recollect.wrappers import Recall, RecallLearner

    torch.set_num_threads(1)

    class Stop(BaseCallback):
        def _on_step(self) -> bool:
            return not watch.over

    settings: dict[str, Any] = {"envs": 1}
    if agent.startswith("recurrent-ppo"):
        kind, policy = RecurrentPPO, "MlpLstmPolicy"
        if agent.endswith("-zoo"):
            settings = {"envs": ZOO_ENVS, **ZOO, "learning_rate": f"lin_{ZOO_RATE}", "clip_range": f"lin_{ZOO_CLIP}"}
    else:
        kind, policy = (PPO if agent.startswith("ppo") else A2C), "MlpPolicy"
    learner = None
    if agent.endswith("-recall"):
        settings["recall"] = TASKS[task].recall
        space = watched(task, Watch(0.0)).observation_space
        learner = RecallLearner(space, TASKS[task].recall, seed=seed)

    def make() -> Any:
        env = watched(task, watch)
        return env if learner is None else Recall(env, learner=learner)

    options: dict[str, Any] = {name: value for name, value in settings.items() if name not in ("envs", "recall")}
    if agent.endswith("-zoo"):  # "lin_": to 0, in proportion to what is left
        options |= {"learning_rate": lambda left: left * ZOO_RATE, "clip_range": lambda left: left * ZOO_CLIP}
    envs = DummyVecEnv([make] * settings["envs"])
    kind(policy, envs, seed=seed, device="cpu", **options).learn(steps, callback=Stop())
    return {"settings": settings}


def run_example(task: str, seed: int, steps: int, watch: Watch, agent: str) -> dict[str, Any]:
    """One of the examples; returns its settings, where they are not its defaults."""
    import torch

    torch.set_num_threads(1)
    name, settings = EXAMPLES[agent]
    path = Path(__file__).parents[1] / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    module.make = lambda *_, **__: watched(task, watch)
    watch.raises = True
    with contextlib.suppress(Over):
        module.train(module.Args(seed=seed, steps=steps, **settings), report=lambda line: None)
    return {"settings": settings}


def run(job: dict[str, Any]) -> dict[str, Any]:
    """One run, in its own process."""
    import warnings

    warnings.simplefilter("ignore")
    # Importing packages is not learning, and takes longest where many start at once.
    own = {"learner": ("recollect.training.online",), **dict.fromkeys(SB3, ("sb3_contrib", "recollect.wrappers"))}
    for package in ("recollect.studies.tasks", *own.get(job["agent"], ("recollect.torch",))):
        importlib.import_module(package)
    watched(job["task"], Watch(0.0)).close()
    watch = Watch(TASKS[job["task"]].mark, job["limit"] or float("inf"))
    arguments = (job["task"], job["seed"], job["steps"], watch)
    if job["agent"].startswith("learner"):
        found = run_learner(*arguments)
    else:
        found = (run_example if job["agent"] in EXAMPLES else run_sb3)(*arguments, job["agent"])
    seconds = time.perf_counter() - watch.begun
    return {
        **job,
        **found,
        "cut": not watch.solved and watch.steps < job["steps"],
        "taken": watch.steps,
        "episodes": watch.episodes,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(time.process_time() - watch.cpu, 2),
        "steps_per_second": round(watch.steps / seconds, 1),
        "last": round(sum(watch.last) / max(len(watch.last), 1), 4),
        "best": round(watch.best, 4) if watch.episodes >= EPISODES else None,
        "solved_steps": watch.solved_steps,
        "solved_seconds": watch.solved_seconds and round(watch.solved_seconds, 2),
        "solved_cpu_seconds": watch.solved_cpu and round(watch.solved_cpu, 2),
    }


def key(job: dict[str, Any]) -> tuple:
    """What tells one run from another."""
    return job["task"], job["agent"], job["seed"], job["steps"]


def settled(row: dict[str, Any], limit: float | None) -> bool:
    """Whether this run need not be made again where a run may take so many seconds of CPU."""
    return not row["cut"] or (limit is not None and limit <= row["limit"])


def jobs_of(args: argparse.Namespace) -> list[dict[str, Any]]:
    """One seed of everything before the next seed of anything; the slowest first."""
    agents = sorted(args.agents, key=lambda agent: SLOWEST.index(agent) if agent in SLOWEST else len(SLOWEST))
    return [
        {"task": task, "agent": agent, "seed": seed, "steps": int(TASKS[task].steps * args.scale)}
        | {"limit": args.cpu_seconds}
        for seed in range(args.seeds)
        for agent in agents
        for task in args.tasks
    ]


def read(journal: Path) -> list[dict[str, Any]]:
    """The rows of a journal, the last of each run; a line cut short, by a kill while it was written, is left out."""
    if not journal.exists():
        return []
    rows = {}
    for line in journal.read_text().splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            print(f"{journal}: a line is cut short and left out", file=sys.stderr)
        else:
            rows[key(row)] = row
    return list(rows.values())


def tables(rows: list[dict[str, Any]]) -> str:
    """Markdown: per task and agent, seeds solved, and of those that were the median steps and seconds."""
    lines = []
    for task in TASKS:
        own = [row for row in rows if row["task"] == task]
        if not own:
            continue
        lines += [
            f"\n### {task} (mark {TASKS[task].mark})\n",
            "| agent | seeds solved | steps to solve | seconds of CPU | wall | steps/s | best mean return | budget |",
            "|---|--:|--:|--:|--:|--:|--:|--:|",
        ]
        for agent in AGENTS:
            for steps in sorted({row["steps"] for row in own if row["agent"] == agent}):
                some = [row for row in own if row["agent"] == agent and row["steps"] == steps]
                lines.append(_row(agent, steps, some))
    return "\n".join(lines)


def _row(agent: str, steps: int, some: list[dict[str, Any]]) -> str:
    solved = [row for row in some if row["solved_steps"] is not None]
    cut = [row for row in some if row["cut"]]

    def spread(values: list[float], form: str) -> str:
        values, k = sorted(values), len(values)
        if not k:
            return "-"
        middle = format((values[(k - 1) // 2] + values[k // 2]) / 2, form)
        return middle if k == 1 else f"{middle} ({format(values[0], form)} to {format(values[-1], form)})"

    took = spread([row["solved_steps"] for row in solved], ",.0f")
    busy = spread([row["solved_cpu_seconds"] for row in solved], ".0f")
    wall = spread([row["solved_seconds"] for row in solved], ".0f")
    pace = spread([row["taken"] / row["cpu_seconds"] for row in some], ",.0f").split(" ")[0]
    best = spread([row["best"] for row in some if row["best"] is not None], ".2f")
    budget = f"{steps:,} steps"
    if cut:
        limit, least = max(row["limit"] for row in cut), min(row["taken"] for row in cut)
        budget = f"{limit:.0f} s: {least:,} steps or more"
    return f"| {agent} | {len(solved)} of {len(some)} | {took} | {busy} | {wall} | {pace} | {best} | {budget} |"


def _child(job: dict[str, Any], pipe: Any) -> None:
    pipe.send(run(job))


class Crew:
    """Runs jobs, each in a process of its own, so many at once."""

    def __init__(self, jobs: list[dict[str, Any]], processes: int):
        self.waiting, self.processes = deque(jobs), processes
        self.busy: dict[Any, tuple[Any, dict[str, Any]]] = {}

    @property
    def left(self) -> int:
        """Jobs that have not ended."""
        return len(self.waiting) + len(self.busy)

    def ended(self, seconds: float) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None]]:
        """Jobs that end within so long, each with its row; None where it failed."""
        spawn = multiprocessing.get_context("spawn")
        while self.waiting and len(self.busy) < self.processes:
            job = self.waiting.popleft()
            receiver, sender = spawn.Pipe(duplex=False)
            process = spawn.Process(target=_child, args=(job, sender), daemon=True)
            process.start()
            sender.close()
            self.busy[receiver] = (process, job)
        for receiver in multiprocessing.connection.wait(list(self.busy), seconds):
            process, job = self.busy.pop(receiver)
            try:
                row = receiver.recv()  # type: ignore[union-attr]
            except EOFError:
                row = None
            process.join()
            yield job, row

    def stop(self) -> None:
        """End what runs."""
        for process, _ in self.busy.values():
            process.terminate()
            process.join()


def play(args: argparse.Namespace) -> int:
    """Run what the journal does not hold; returns how many runs failed."""
    done = {key(row) for row in read(args.out) if settled(row, args.cpu_seconds)}
    jobs = jobs_of(args)
    left = [job for job in jobs if key(job) not in done]
    print(f"{len(left)} runs of {len(jobs)} to do, {args.processes} at once, into {args.out}", flush=True)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ |= {"JAX_PLATFORMS": "cpu", "RECOLLECT_CACHE": "", "CUDA_VISIBLE_DEVICES": ""}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    crew, failed, begun = Crew(left, args.processes), 0, time.monotonic()
    with args.out.open("a") as journal:
        while crew.left:
            for job, row in crew.ended(10.0):
                name = f"[{len(left) - crew.left}/{len(left)}] {job['task']} {job['agent']} seed {job['seed']}"
                if row is None:
                    failed += 1
                    print(f"{name}: failed", flush=True)
                    continue
                journal.write(json.dumps(row) + "\n")
                journal.flush()
                told = f"solved after {row['solved_steps']:,} steps" if row["solved_steps"] else f"best {row['best']}"
                print(f"{name}: {told}, {row['seconds']:.0f} s, {row['steps_per_second']:,.0f} steps/s", flush=True)
            if args.minutes is not None and time.monotonic() - begun > 60 * args.minutes:
                crew.stop()
                print(f"out of time: {crew.left} runs left; --resume continues", flush=True)
                break
    return failed


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--agents", nargs="+", choices=AGENTS, default=list(COMPARED))
    parser.add_argument("--seeds", type=int, default=5, help="seeds 0 to this, less one (default 5)")
    parser.add_argument("--scale", type=float, default=1.0, help="factor on every task's steps (default 1)")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="runs at once (default: one per core)")
    parser.add_argument("--cpu-seconds", type=float, help="of a run at most; without, its steps alone end it")
    parser.add_argument("--minutes", type=float, help="end after so long; --resume continues with what is left")
    parser.add_argument("--out", type=Path, default=JOURNAL, help=f"the journal (default {JOURNAL.name})")
    parser.add_argument("--resume", action="store_true", help="continue a journal")
    parser.add_argument("--table", action="store_true", help="print the tables and end")
    args = parser.parse_args()
    if args.out.exists() and not (args.resume or args.table):
        parser.error(f"{args.out} exists: --resume continues it, --out names another")
    failed = 0 if args.table else play(args)
    print(tables(read(args.out)))
    if failed:
        sys.exit(f"{failed} runs failed")


if __name__ == "__main__":
    main()
