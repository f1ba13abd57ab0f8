"""The paper's figures made again: the episodic learner beside the recurrent baseline, with picture and verdict."""

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from recollect.errors import RecollectError
from recollect.store import checkpoints, files, provenance, run_folders, run_reading, trees
from recollect.store.interrupts import Interrupted, Interrupts
from recollect.studies import crew, drawing, plots, slices, verdict
from recollect.studies.executors import Executor
from recollect.studies.plan import Job, Plan, plan_of
from recollect.studies.plan import make_plan as make_plan
from recollect.studies.standing import Standing
from recollect.studies.sweep import Say
from recollect.training.batch import Progress, Result, train_iter
from recollect.training.group import state_like as group_state_like

Watcher = Callable[[dict[str, Standing]], None]
States = Mapping[str, Mapping[str, np.ndarray]]

EVERY = 60.0
"""Seconds between two checkpoints of a group."""


def groups(plan: Plan) -> dict[str, tuple[Job, int]]:
    """Each group, by the name of its checkpoints: its job, and its number there."""
    return {f"{job.name}-{group}": (job, group) for job in plan.jobs for group in range(len(job.groups))}


def train(
    plan: Plan,
    path: Path,
    watch: Watcher = lambda standings: None,
    every: float = EVERY,
    executor: Executor | None = None,
    say: Say = lambda text: None,
) -> None:
    """Train all agents of the plan at once and write the run folder, metrics and checkpoints as they come.

    ``executor`` trains the groups, and the caller closes it; without one, threads of this process do. ``say`` is told
    who does what.
    """
    config = {**plan.config(), "checkpoints": {"every": every, "keep": checkpoints.KEEP}}
    with run_folders.RunFolder(path, config) as folder:
        _train(plan, folder, {}, watch, every, executor, say)


def resume(
    path: Path,
    watch: Watcher = lambda standings: None,
    *,
    plan: Plan | None = None,
    fallback: bool = False,
    allow_inexact: bool = False,
    break_lock: bool = False,
    every: float | None = None,
    executor: Executor | None = None,
    say: Say = lambda text: None,
) -> Plan:
    """Resume a run from its newest checkpoints, bit for bit; what cannot be is refused before anything changes.

    Args:
        path: the run folder.
        watch: called with the standings.
        plan: what is asked for, if it should be compared; default: whatever the folder says.
        fallback: where the newest checkpoint is damaged, go back to the one before it, and log that.
        allow_inexact: continue under other versions than before, and mark the run.
        break_lock: take over a lock whose holder may live elsewhere.
        every: seconds between checkpoints; default: as before.
        executor: who trains the groups, instead of threads of this process; the caller closes it.
        say: told who does what.
    """
    with run_folders.RunFolder.reopen(path, break_lock=break_lock) as folder:
        known = plan_of(path, folder.config)
        asked = known if plan is None else plan
        unlike = ("command", "versions", *provenance.MAY_CHANGE)
        provenance.refuse_changes(folder.config, asked.config(), str(path), unlike)
        every = every or run_reading.seconds_between_checkpoints(path, folder.config)
        found = {}
        for name, of in groups(asked).items():
            like = trees.shapes(state_like(asked, *of))
            if (checkpoint := folder.load(name, like, fallback=fallback)) is not None:
                found[name] = checkpoint
        for checkpoint in found.values():
            now = provenance.without_versions(folder.config)
            provenance.refuse_changes(checkpoint.meta.get("config"), now, str(path))
        inexact = folder.refuse_other_versions(list(found.values()), allow_inexact)
        folder.cut_metrics(found)
        folder.log_resumed(found, inexact)
        states = {name: checkpoint.arrays for name, checkpoint in found.items()}
        _train(asked, folder, states, watch, every, executor, say)
    return asked


def _train(
    plan: Plan,
    folder: run_folders.RunFolder,
    states: States,
    watch: Watcher,
    every: float,
    executor: Executor | None,
    say: Say,
) -> None:
    standings = {job.name: Standing(job, plan.episodes) for job in plan.jobs}
    start, before, errors = time.monotonic(), folder.wall_seconds(), {}
    known, begun = groups(plan), set()

    def set_status(status: str, **details: Any) -> None:
        agents = {name: standing.details() for name, standing in standings.items()}
        seconds = round(before + time.monotonic() - start, 1)
        folder.set_status(status, **details, wall_seconds=seconds, agents=agents)

    set_status("running")
    with Interrupts() as interrupts:
        try:
            reports = _reports(plan, folder, states, interrupts.asked, every, executor, say)
            with contextlib.closing(reports):
                for (name, _, _), content, snapshot in reports:
                    job, group = known[name]
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
        if interrupts.asked.is_set() and len(errors) + sum(len(s.results) for s in standings.values()) < len(known):
            folder.log("interrupted")
            set_status("interrupted", **({"errors": errors} if errors else {}))
            raise Interrupted
    if errors:
        set_status("failed", error="; ".join(errors.values()), errors=errors)
        raise RecollectError("; ".join(dict.fromkeys(errors.values())))
    set_status("finished")
    folder.log("finished")


def _reports(
    plan: Plan,
    folder: run_folders.RunFolder,
    states: States,
    stop: threading.Event,
    every: float,
    executor: Executor | None,
    say: Say,
) -> Generator[crew.Report]:
    tasks = []
    for name, (job, group) in groups(plan).items():
        tasks.append(crew.Task(name, job.name, functools.partial(begin, plan, job, group, state=states.get(name))))
    if executor is None:
        return crew.reports(tasks, stop, every)

    def tell(text: str) -> None:
        folder.log("executor", said=text)
        say(text)

    return slices.reports(tasks, executor, stop, every, tell)


def begin(
    plan: Plan, job: Job, group: int, state: Mapping[str, np.ndarray] | None = None
) -> Iterator[Progress | Result]:
    """Train one group of a job from its beginning or from a snapshot, reporting as it goes."""
    env, seeds = plan.experiment.env, job.groups[group]
    return train_iter(job.agent, env, plan.episodes, seeds, max_steps=job.max_steps, bins=plan.bins, state=state)


def state_like(plan: Plan, job: Job, group: int) -> dict[str, Any]:
    """The form of a group's snapshots."""
    return group_state_like(job.agent, plan.experiment.env, len(job.groups[group]), plan.bins)


def _one_line(error: BaseException) -> str:
    text = str(error).strip()
    name = "" if isinstance(error, RecollectError) else type(error).__name__
    return ": ".join(part for part in (name, text.splitlines()[0] if text else "") if part)


def conclude(path: Path) -> tuple[dict[str, Any], list[Path]]:
    """Write verdict and picture of a finished run, from its folder alone."""
    config, curves, _ = run_reading.read(path)
    found = verdict.judge(config, curves)
    run_folders.write_json(path / "verdict.json", found)
    files.replace(path / "verdict.md", verdict.as_markdown(found, config["command"]).encode())
    return found, plots.draw_figure(path)


def check(plans: dict[Path, Plan]) -> None:
    """Refuse what could not be carried out, before any of the plans begins."""
    drawing.require()
    for path in plans:
        run_folders.check_free(path)
