"""The paper's figures made again: the episodic learner beside the recurrent baseline, with picture and verdict."""

import contextlib
import dataclasses
import functools
import math
import queue
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recollect.agents.base import Agent
from recollect.agents.episodic import EpisodicActorCritic
from recollect.errors import FileError, RecollectError
from recollect.store import checkpoints, run_folders, trees
from recollect.store.interrupts import Interrupted, Interrupts
from recollect.studies import crew, plots, verdict
from recollect.studies.paper import FIGURES, Experiment, baseline
from recollect.training import batch
from recollect.training.batch import Progress, Result, train_iter

MAX_STEPS = 4.0
"""A run that has not finished its episodes after this many times the fewest steps they can take is ended: it loops."""

BASELINE_GROUP = 32  # seeds that train side by side, and are saved together

BASELINE_MAX_STEPS = 4.0
"""The same for the recurrent baseline, whatever is asked for the episodic learner: what it was tuned under."""

MOST_STEPS = 2**31 - 2**20  # step numbers are 32-bit, and a run is ended only after a whole compiled call


MOST_SEEDS = 100_000


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
        for name, most in (("seeds", MOST_SEEDS), ("episodes", MOST_STEPS)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}={value!r} must be a whole number of at least 1")
            if value > most:
                raise ValueError(f"{value:,} {name} are too many for one run: at most {most:,}")
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

        All seeds of the episodic agent are one group, and so are up to ``BASELINE_GROUP`` of the baseline's.
        """
        agent = EpisodicActorCritic.preset(self.preset, memory_size=self.experiment.memory_size)
        limit = math.ceil(self.max_steps * self.shortest_total)
        jobs = [Job("episodic", agent, (tuple(range(self.seeds)),), limit)]
        if self.with_baseline and self.experiment.baseline_repeats:
            # From seed 1: seed 0 is the run that the hyperparameters were chosen by.
            seeds = range(1, self.experiment.baseline_repeats + 1)
            groups = tuple(tuple(seeds[k : k + BASELINE_GROUP]) for k in range(0, len(seeds), BASELINE_GROUP))
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
            "plan": dataclasses.asdict(self),
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
    (3, 25000, [('episodic', ((0, 1, 2),)), ('recurrent', ((1, 2, 3),))])
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

    def finish(self, group: int, result: Result) -> None:
        """Take in what came of a group."""
        self.results[group], self.shares[group] = result, 1.0
        self.episodes[group] = np.where(result.finished, self.wanted, self.episodes[group])

    @property
    def share(self) -> float:
        """Share of the work done."""
        return sum(self.shares) / len(self.shares)

    @property
    def mean_episodes(self) -> float:
        """Episodes done, mean over all seeds."""
        return float(np.concatenate(self.episodes).mean())

    def pace(self) -> tuple[float, float]:
        """Steps per second over all seeds, and seconds left; NaN while nothing can be said yet."""
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
States = Mapping[str, Mapping[str, np.ndarray]]

EVERY = 60.0
"""Seconds between two checkpoints of a group."""


def group_name(job: Job, group: int) -> str:
    """The name of a group's checkpoints."""
    return f"{job.name}-{group}"


def train(plan: Plan, path: Path, watch: Watcher = lambda standings: None, every: float = EVERY) -> None:
    """Train all agents of the plan at once and write the run folder, metrics and checkpoints as they come."""
    config = {**plan.config(), "checkpoints": {"every": every, "keep": checkpoints.KEEP}}
    with run_folders.RunFolder(path, config) as folder:
        _train(plan, folder, {}, watch, every)


def resume(
    path: Path,
    watch: Watcher = lambda standings: None,
    *,
    plan: Plan | None = None,
    fallback: bool = False,
    allow_inexact: bool = False,
    break_lock: bool = False,
    every: float | None = None,
) -> Plan:
    """Go on with a run from its newest checkpoints, bit for bit; what cannot be is refused before anything changes.

    Args:
        path: the run folder.
        watch: called with the standings.
        plan: what is asked for, if it should be compared; default: whatever the folder says.
        fallback: where the newest checkpoint is damaged, go back to the one before it, and log that.
        allow_inexact: continue under other versions than before, and mark the run.
        break_lock: take over a lock whose holder may live elsewhere.
        every: seconds between checkpoints; default: as before.
    """
    with run_folders.RunFolder.reopen(path, break_lock=break_lock) as folder:
        known = plan_of(path, folder.config)
        asked = known if plan is None else plan
        unlike = ("command", "versions", *run_folders.MAY_CHANGE)
        run_folders.refuse_changes(folder.config, asked.config(), str(path), unlike)
        every = every or _every_of(path, folder.config)
        found = {}
        for job in asked.jobs:
            for group in range(len(job.groups)):
                name = group_name(job, group)
                like = trees.shapes(state_like(asked, job, group))
                if (checkpoint := folder.load(name, like, fallback=fallback)) is not None:
                    found[name] = checkpoint
        for checkpoint in found.values():
            now = {name: value for name, value in folder.config.items() if name != "versions"}
            run_folders.refuse_changes(checkpoint.meta.get("config"), now, str(path))
        inexact = folder.refuse_other_versions(list(found.values()), allow_inexact)
        folder.cut_metrics(found)
        folder.log_resumed(found, inexact)
        _train(asked, folder, {name: checkpoint.arrays for name, checkpoint in found.items()}, watch, every)
    return asked


def plan_of(path: Path, config: dict[str, Any]) -> Plan:
    """The plan of a run folder, from its config."""
    try:
        return Plan(**config["plan"])
    except (LookupError, TypeError, ValueError) as error:
        raise FileError(f"{path / 'config.json'} holds no plan that can be resumed: {_one_line(error)}") from error


def _every_of(path: Path, config: dict[str, Any]) -> float:
    found = config.get("checkpoints")
    every = found.get("every") if isinstance(found, dict) else None
    if not isinstance(every, (int, float)) or not every > 0:
        raise FileError(f"{path / 'config.json'}: checkpoints.every is {every!r} and should be a number of seconds")
    return every


def _train(plan: Plan, folder: run_folders.RunFolder, states: States, watch: Watcher, every: float) -> None:
    standings = {job.name: Standing(job, plan.episodes) for job in plan.jobs}
    start, before, errors = time.monotonic(), folder.wall_seconds(), {}
    groups, tasks, begun = {}, [], set()
    for job in plan.jobs:
        for group in range(len(job.groups)):
            name = group_name(job, group)
            groups[name] = job, group
            tasks.append(crew.Task(name, job.name, functools.partial(begin, plan, job, group, states.get(name))))

    def set_status(status: str, **details: Any) -> None:
        agents = {name: standing.details() for name, standing in standings.items()}
        seconds = round(before + time.monotonic() - start, 1)
        folder.set_status(status, **details, wall_seconds=seconds, agents=agents)

    inbox: crew.Inbox = queue.SimpleQueue()
    set_status("running")
    with Interrupts(lambda: inbox.put(None)) as interrupts:
        try:
            with contextlib.closing(crew.reports(tasks, inbox, interrupts.asked, every)) as reports:
                for (name, _, _), content, snapshot in reports:
                    job, group = groups[name]
                    if isinstance(content, BaseException):
                        errors[name] = f"training of the {job.name} agent failed: {_one_line(content)}"
                        folder.log("failed", group=name, error=errors[name])
                    elif isinstance(content, Result):
                        standings[job.name].finish(group, content)
                    else:
                        if name not in begun:
                            begun.add(name)
                            folder.log("engine", group=name, engine=content.choice.engine, **content.choice.reasons())
                        folder.append(job.name, content.new_bins, name)
                        standings[job.name].update(group, content)
                        watch(standings)
                    if snapshot is not None:
                        folder.save(name, job.name, job.groups[group], snapshot, isinstance(content, Result))
        except BaseException as error:
            # A status that cannot be written, on a full disk, must not hide why.
            with contextlib.suppress(RecollectError):
                set_status("failed", error=_one_line(error))
            raise
        if interrupts.asked.is_set() and len(errors) + sum(len(s.results) for s in standings.values()) < len(tasks):
            folder.log("interrupted")
            set_status("interrupted", **({"errors": errors} if errors else {}))
            raise Interrupted
    if errors:
        set_status("failed", error="; ".join(errors.values()), errors=errors)
        raise RecollectError("; ".join(dict.fromkeys(errors.values())))
    set_status("finished")
    folder.log("finished")


def begin(
    plan: Plan, job: Job, group: int, state: Mapping[str, np.ndarray] | None = None
) -> Iterator[Progress | Result]:
    """Train one group of a job from its beginning or from a snapshot, reporting as it goes."""
    env, seeds = plan.experiment.env, job.groups[group]
    return train_iter(job.agent, env, plan.episodes, seeds, max_steps=job.max_steps, bins=plan.bins, state=state)


def state_like(plan: Plan, job: Job, group: int) -> dict[str, Any]:
    """The form of a group's snapshots."""
    return batch.state_like(job.agent, plan.experiment.env, len(job.groups[group]), plan.bins)


def _one_line(error: BaseException) -> str:
    text = str(error).strip()
    name = "" if isinstance(error, RecollectError) else type(error).__name__
    return ": ".join(part for part in (name, text.splitlines()[0] if text else "") if part)


def conclude(path: Path) -> tuple[dict[str, Any], list[Path]]:
    """Write verdict and picture of a finished run, from its folder alone."""
    config, curves, _ = run_folders.read(path)
    found = verdict.judge(config, curves)
    run_folders.write_json(path / "verdict.json", found)
    (path / "verdict.md").write_text(verdict.as_markdown(found, config["command"]), encoding="utf-8")
    return found, plots.draw_figure(path)


def check(plans: dict[Path, Plan]) -> None:
    """Refuse what could not be carried out, before any of the plans begins."""
    plots.require()
    for path in plans:
        run_folders.check_free(path)


def reproduce(plan: Plan, path: Path, watch: Watcher = lambda standings: None) -> tuple[dict[str, Any], list[Path]]:
    """Train, judge and draw; returns the verdict and the pictures' paths."""
    check({path: plan})
    train(plan, path, watch)
    return conclude(path)
