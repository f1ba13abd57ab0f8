"""The paper's figures made again: the episodic learner beside the recurrent baseline, with picture and verdict."""

import contextlib
import dataclasses
import functools
import math
import os
import queue
import threading
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recollect import compiled, plots, runs
from recollect.agents.base import Agent
from recollect.agents.episodic import EpisodicActorCritic
from recollect.agents.recurrent import RecurrentActorCritic
from recollect.errors import RecollectError
from recollect.experiments import verdict
from recollect.experiments.paper import FIGURES, Experiment, baseline
from recollect.training import Progress, Result, train_iter

MAX_STEPS = 4.0
"""A run that has not finished its episodes after this many times the fewest steps they can take is ended: it loops."""

BASELINE_MAX_STEPS = 4.0
"""The same for the recurrent baseline, whatever is asked for the episodic learner: what it was tuned under."""

PATIENCE = 15.0  # seconds that threads get to end after a failure or an interrupt

MOST_STEPS = 2**31 - 2**20  # step numbers are 32-bit, and a run is ended only after a whole compiled call


class Job(NamedTuple):
    """One agent's runs: groups of seeds, each trained in one compiled loop."""

    name: str
    agent: Agent
    groups: tuple[tuple[int, ...], ...]
    max_steps: int

    @property
    def seeds(self) -> tuple[int, ...]:
        """All seeds, in order."""
        return tuple(seed for group in self.groups for seed in group)


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is asked for; a plan that cannot be carried out is refused when it is made.

    Args:
        figure: a name in ``FIGURES``.
        preset: of the episodic learner, "paper" or "robust".
        seeds: how many runs of the episodic learner.
        episodes: training episodes a run.
        max_steps: the step limit of the episodic learner, in units of the fewest steps that its episodes can take.
        with_baseline: whether the recurrent baseline is trained where the paper has one.
    """

    figure: str
    preset: str
    seeds: int
    episodes: int
    max_steps: float = MAX_STEPS
    with_baseline: bool = True

    def __post_init__(self) -> None:
        if self.figure not in FIGURES:
            raise ValueError(f"unknown figure {self.figure!r}: choose one of {', '.join(FIGURES)}")
        for name in ("seeds", "episodes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        if self.episodes % 25:
            raise ValueError(f"episodes={self.episodes} must be a multiple of 25: results are judged by 1/25 of them")
        if not (math.isfinite(self.max_steps) and self.max_steps > 0):
            raise ValueError(f"max_steps={self.max_steps} must be a positive number")
        if max(self.max_steps, BASELINE_MAX_STEPS) * self.shortest_total > MOST_STEPS:
            raise ValueError(f"{self.episodes:,} episodes are too many for one run: more than 2^31 steps")
        _ = self.jobs  # refuses an unknown preset

    @property
    def experiment(self) -> Experiment:
        """The paper's experiment."""
        return FIGURES[self.figure]

    @property
    def bins(self) -> int:
        """How many points the curves have: a multiple of the 25 parts that results are judged by."""
        return next(b for b in (100, 75, 50, 25) if self.episodes % b == 0)

    @property
    def shortest_total(self) -> int:
        """Fewest steps that all episodes of a run can take."""
        return self.episodes * self.experiment.env.shortest_episode

    @functools.cached_property
    def jobs(self) -> tuple[Job, ...]:
        """What is trained.

        All seeds of the episodic learner are mapped over in one compiled loop. Each of the baseline's trains by
        itself, in the scalar loop made for it.
        """
        agent = EpisodicActorCritic.preset(self.preset, memory_size=self.experiment.memory_size)
        limit = math.ceil(self.max_steps * self.shortest_total)
        jobs = [Job("episodic", agent, (tuple(range(self.seeds)),), limit)]
        if self.with_baseline and self.experiment.baseline_repeats:
            # From seed 1: seed 0 is the run that the hyperparameters were chosen by.
            groups = tuple((seed,) for seed in range(1, self.experiment.baseline_repeats + 1))
            limit = math.ceil(BASELINE_MAX_STEPS * self.shortest_total)
            jobs.append(Job("recurrent", baseline(self.experiment.decisions), groups, limit))
        return tuple(jobs)

    def config(self) -> dict[str, Any]:
        """What ``config.json`` says: all that is needed to repeat the run and to read what came of it."""
        env = self.experiment.env
        identifiers = range(env.observation_size)[env.identifier_bits]
        return {
            "figure": self.figure,
            "preset": self.preset,
            "experiment": self.experiment._asdict(),
            "environment": {
                "class": type(env).__name__,
                **dataclasses.asdict(env),
                "observation_size": env.observation_size,
                "shortest_episode": env.shortest_episode,
                "informative_bit": env.informative_bit,
                "uninformative_bit": env.informative_bit + 1,
                "identifier_bits": list(identifiers),
            },
            "agents": {
                job.name: {
                    "class": type(job.agent).__name__,
                    "seeds": list(job.seeds),
                    "episodes": self.episodes,
                    "bins": self.bins,
                    "max_steps": job.max_steps,
                    "max_steps_over_shortest": job.max_steps / self.shortest_total,
                    "hyperparameters": dataclasses.asdict(job.agent),  # type: ignore[call-overload]
                }
                for job in self.jobs
            },
        }


def make_plan(
    figure: str, preset: str = "paper", seeds: int | None = None, episodes: int | None = None, **options: Any
) -> Plan:
    """The plan for a figure, with as many seeds and episodes as the paper has unless told otherwise.

    >>> plan = make_plan("fig4")
    >>> plan.seeds, plan.episodes, [(job.name, job.groups) for job in plan.jobs]
    (3, 25000, [('episodic', ((0, 1, 2),)), ('recurrent', ((1,), (2,), (3,)))])
    """
    if figure in FIGURES:
        seeds = FIGURES[figure].repeats if seeds is None else seeds
        episodes = FIGURES[figure].episodes if episodes is None else episodes
    return Plan(figure, preset, seeds or 0, episodes or 0, **options)


class Standing:
    """How far one agent has come."""

    def __init__(self, job: Job, episodes: int):
        self.job, self.wanted = job, episodes
        self.episodes = [np.zeros(len(group)) for group in job.groups]
        self.steps = [0] * len(job.groups)  # over the group's seeds
        self.shares = [0.0] * len(job.groups)  # of the way to the end or to the step limit, whichever is nearer
        self.recent_return = math.nan
        self.results: dict[int, Result] = {}
        # (time, steps, share) at the first report, which is after compilation, and at the newest
        self._first = self._newest = (math.nan, 0, 0.0)

    def update(self, group: int, progress: Progress) -> None:
        """Take in what a compiled call reported."""
        self.episodes[group], self.steps[group] = progress.episodes, progress.total_steps
        share = max(float(progress.episodes.min()) / self.wanted, progress.steps / self.job.max_steps)
        self.shares[group] = min(share, 1.0)
        self.recent_return = progress.recent_return
        self._newest = time.monotonic(), sum(self.steps), self.share
        if math.isnan(self._first[0]):
            self._first = self._newest

    @property
    def share(self) -> float:
        """Share of the work done."""
        return sum(self.shares) / len(self.shares)

    @property
    def mean_episodes(self) -> float:
        """Episodes done, mean over all seeds."""
        return float(np.concatenate(self.episodes).mean())

    def pace(self) -> tuple[float, float]:
        """Steps a second over all seeds, and seconds left; NaN while nothing can be said yet."""
        elapsed, steps, share = (new - old for new, old in zip(self._newest, self._first, strict=True))
        if not share > 0:
            return math.nan, math.nan
        return steps / elapsed, elapsed / share * (1 - self.share)

    def details(self) -> dict[str, Any]:
        """Steps and whether all episodes were done, a seed; null for seeds that were still under way or not begun."""
        steps: dict[int, int | None] = dict.fromkeys(self.job.seeds)
        finished: dict[int, bool | None] = dict.fromkeys(self.job.seeds)
        for result in self.results.values():
            steps.update(zip(result.seeds, map(int, result.steps), strict=True))
            finished.update(zip(result.seeds, map(bool, result.finished), strict=True))
        return {"seeds": list(self.job.seeds), "steps": list(steps.values()), "finished": list(finished.values())}


Watcher = Callable[[dict[str, Standing]], None]


def train(plan: Plan, path: Path, watch: Watcher = lambda standings: None) -> None:
    """Train all agents of the plan at once and write the run folder, metrics as they come."""
    folder = runs.RunFolder(path, plan.config())
    standings = {job.name: Standing(job, plan.episodes) for job in plan.jobs}
    start = time.monotonic()

    def set_status(status: str, **details: Any) -> None:
        agents = {name: standing.details() for name, standing in standings.items()}
        folder.set_status(status, **details, wall_seconds=round(time.monotonic() - start, 1), agents=agents)

    try:
        with contextlib.closing(_reports(plan)) as reports:
            for name, group, report in reports:
                if isinstance(report, Result):
                    standings[name].results[group] = report
                else:
                    folder.append(name, report.new_bins)
                    standings[name].update(group, report)
                    watch(standings)
    except KeyboardInterrupt:
        set_status("interrupted")
        raise
    except Exception as error:
        set_status("failed", error=_one_line(error))
        raise
    set_status("finished")


def begin(plan: Plan, job: Job, group: int) -> Iterator[Progress | Result]:
    """Train one group of a job, reporting as it goes."""
    env, limits = plan.experiment.env, {"max_steps": job.max_steps, "bins": plan.bins}
    if isinstance(job.agent, RecurrentActorCritic):
        (seed,) = job.groups[group]
        return compiled.train_iter(job.agent, env, plan.episodes, seed, **limits)
    return train_iter(job.agent, env, plan.episodes, job.groups[group], **limits)


def _reports(plan: Plan) -> Generator[tuple[str, int, Progress | Result]]:
    """What the threads report, as (agent, group, report), until all are done or one of them fails.

    The threads, one a core (compiled calls hold no lock of Python's), take the groups of all jobs in order. Only the
    thread that iterates writes files, so that nothing needs a lock. However the iteration ends, the threads are told
    to stop and waited for, as a compiled call takes about a second and a compilation several; a baseline that loops
    within one bin of episodes may take longer and is left behind.
    """
    inbox: queue.SimpleQueue[tuple[str, int, Progress | Result | BaseException | None]] = queue.SimpleQueue()
    todo: queue.SimpleQueue[tuple[Job, int]] = queue.SimpleQueue()
    for job in plan.jobs:
        for group in range(len(job.groups)):
            todo.put((job, group))
    tasks, stop = todo.qsize(), threading.Event()
    # A loop is compiled at its first call. Threads that came to the same one at once would each compile it.
    compiling = {job.name: threading.Lock() for job in plan.jobs}

    def train_group(job: Job, group: int) -> None:
        reports = begin(plan, job, group)
        with compiling[job.name]:
            report = None if stop.is_set() else next(reports, None)
        while report is not None and not stop.is_set():
            inbox.put((job.name, group, report))
            report = next(reports, None)
        inbox.put((job.name, group, None))

    def work() -> None:
        while not stop.is_set():
            try:
                job, group = todo.get_nowait()
            except queue.Empty:
                return
            try:
                train_group(job, group)
            except BaseException as error:
                inbox.put((job.name, group, error))
                return

    # Daemons, so that the process can end without them, also by a second Ctrl-C while they are waited for.
    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(max(2, _cores()), tasks))]
    try:
        for thread in threads:
            thread.start()
        while tasks:
            name, group, report = inbox.get()
            if isinstance(report, BaseException):
                raise RecollectError(f"training of the {name} agent failed: {_one_line(report)}") from report
            if report is None:
                tasks -= 1
            else:
                yield name, group, report
    finally:
        stop.set()
        deadline = time.monotonic() + PATIENCE
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))


def _cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2


def _one_line(error: BaseException) -> str:
    text = str(error).strip()
    name = "" if isinstance(error, RecollectError) else type(error).__name__
    return ": ".join(part for part in (name, text.splitlines()[0] if text else "") if part)


def conclude(path: Path) -> tuple[dict[str, Any], list[Path]]:
    """Write verdict and picture of a finished run, from its folder alone."""
    config, curves, _ = runs.read(path)
    found = verdict.judge(config, curves)
    runs.write_json(path / "verdict.json", found)
    (path / "verdict.md").write_text(verdict.as_markdown(found, config["command"]), encoding="utf-8")
    return found, plots.draw_figure(path)


def check(plans: dict[Path, Plan]) -> None:
    """Refuse what could not be carried out, before any of the plans begins."""
    plots.require()
    for path in plans:
        runs.check_free(path)


def reproduce(plan: Plan, path: Path, watch: Watcher = lambda standings: None) -> tuple[dict[str, Any], list[Path]]:
    """Train, judge and draw; returns the verdict and the pictures' paths."""
    check({path: plan})
    train(plan, path, watch)
    return conclude(path)
