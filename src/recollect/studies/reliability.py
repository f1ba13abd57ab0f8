"""What the promises of docs/reliability.md cost and whether they last: a soak, an endless episode, saving."""

import dataclasses
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from recollect.agents.episodic import EpisodicActorCritic
from recollect.envs.base import TimeStep
from recollect.errors import RecollectError
from recollect.store import checkpoints, run_folders, run_reading
from recollect.store.interrupts import Interrupted
from recollect.studies import reproduce
from recollect.training.batch import Result, train_iter

Say = Callable[[str], None]


def resident_bytes() -> int:
    """Memory of this process that is in RAM."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_handles() -> int:
    """Files, pipes and sockets that this process has open."""
    return len(os.listdir("/proc/self/fd"))


class Sample(NamedTuple):
    """One look at the process."""

    seconds: float
    resident: int
    handles: int
    steps: int
    checkpoints: int
    run: int


def soak(minutes: float, every: float, out: Path, say: Say, look: float = 5.0) -> dict[str, Any]:
    """Train for so long with checkpoints every so many seconds, looking at memory and open files all the while.

    A run that fails or finishes is followed by another. Memory is judged from a fifth of the time on, when everything
    has been compiled and every buffer been used.
    """
    failures: list[str] = []
    plan = reproduce.make_plan("fig6", "robust", seeds=3, episodes=5_000_000, with_baseline=False)
    samples: list[Sample] = []
    start, number, over = time.monotonic(), 0, False

    def watch(standings: dict[str, reproduce.Standing]) -> None:
        nonlocal over
        now = time.monotonic() - start
        if not samples or now - samples[-1].seconds >= look:
            steps = sum(sum(standing.steps) for standing in standings.values())
            saved = max(map(checkpoints.number_of, run_reading.saved(out / f"run-{number}")), default=0)
            samples.append(Sample(now, resident_bytes(), open_handles(), steps, saved, number))
            if len(samples) % 12 == 1:
                last = samples[-1]
                say(
                    f"{last.seconds:6.0f} s: {last.resident / 2**20:,.1f} MiB resident, {last.handles} open files, "
                    f"{last.steps:,} steps, {last.checkpoints} checkpoints"
                )
        if now >= 60 * minutes and not over:
            over = True
            signal.raise_signal(signal.SIGINT)

    while not over:
        try:
            reproduce.train(plan, out / f"run-{number}", watch, every)
        except Interrupted:
            break
        except RecollectError as error:
            failures.append(str(error))
            say(str(error))
        number += 1
    damaged = [
        fault
        for k in range(number + 1)
        if (out / f"run-{k}").exists()
        for _, fault in run_reading.verify(out / f"run-{k}")
        if fault
    ]
    return {
        **judge(samples),
        "failures": failures,
        "damaged": damaged,
        "samples": [sample._asdict() for sample in samples],
    }


def judge(samples: list[Sample]) -> dict[str, Any]:
    """Growth of memory and handles over a soak, after its first fifth."""
    settled = samples[len(samples) // 5 :]
    if len(settled) < 4:
        raise RecollectError("the soak was too short to say anything: --minutes more")
    hours = np.array([sample.seconds for sample in settled]) / 3600
    resident = np.array([sample.resident for sample in settled]) / 2**20
    third = len(settled) // 3
    return {
        "minutes": round(samples[-1].seconds / 60, 1),
        "checkpoints": sum(_last_of_each_run(samples, "checkpoints")),
        "steps": sum(_last_of_each_run(samples, "steps")),
        "resident_mib_first_third": round(float(np.median(resident[:third])), 1),
        "resident_mib_last_third": round(float(np.median(resident[-third:])), 1),
        "resident_mib_an_hour": round(float(np.polyfit(hours, resident, 1)[0]), 2),
        "handles_min": min(sample.handles for sample in settled),
        "handles_max": max(sample.handles for sample in settled),
    }


def _last_of_each_run(samples: list[Sample], name: str) -> list[int]:
    return list({sample.run: getattr(sample, name) for sample in samples}.values())


@dataclasses.dataclass(frozen=True)
class Endless:
    """An environment whose episode never ends: a random walk of bits that pays when the action names the first."""

    bits: int = 8

    @property
    def observation_size(self) -> int:
        """Length of the observation vector."""
        return self.bits

    @property
    def num_actions(self) -> int:
        """Two: the first bit is off, or on."""
        return 2

    def reset(self, key: Array) -> tuple[Array, Array]:
        """The one beginning."""
        bits = jax.random.bernoulli(key, 0.5, (self.bits,)).astype(jnp.float32)
        return bits, bits

    def step(self, state: Array, action: Array, key: Array) -> tuple[Array, TimeStep]:
        """Every bit flips with probability 1/8; there is no end."""
        bits = jnp.abs(state - jax.random.bernoulli(key, 0.125, (self.bits,)).astype(jnp.float32))
        reward = (action == state[0].astype(jnp.int32)).astype(jnp.float32)
        return bits, TimeStep(bits, reward, jnp.array(False), jnp.array(False))


def endless(steps: int, parts: int = 10, memory_size: int = 8) -> list[dict[str, Any]]:
    """One episode of so many steps that does not end: resident memory and speed in each part of it."""
    agent = EpisodicActorCritic.preset("robust", memory_size=memory_size)
    rows, mark = [], None
    for report in train_iter(
        agent, Endless(), 1, [0], max_steps=steps, records_per_call=max(1, steps // parts // 2000)
    ):
        if isinstance(report, Result):
            break
        now = time.monotonic(), report.total_steps
        if mark is None:  # the first call compiles
            mark = now
        elif report.total_steps - mark[1] >= steps // parts - 1 or report.total_steps >= steps:
            speed = (now[1] - mark[1]) / (now[0] - mark[0])
            rows.append({"steps": now[1], "steps_a_second": round(speed), "resident_mib": resident_bytes() / 2**20})
            mark = now
    return rows


def checkpoint_cost(seconds: float = 20.0, saves: int = 20) -> dict[str, Any]:
    """What a checkpoint takes while training continues, of figure 4's three seeds.

    The snapshot is taken in the thread that trains; the save (sums, three files, flushing to disk) is done beside it.
    ``share`` counts both in full, as if nothing ran side by side.
    """
    plan = reproduce.make_plan("fig4", "robust", episodes=2_000_000, with_baseline=False)
    (job,) = plan.jobs
    snapshots, savings, calls, size = [], [], [], 0
    with tempfile.TemporaryDirectory() as here, run_folders.RunFolder(Path(here) / "run", plan.config()) as folder:
        reports = reproduce.begin(plan, job, 0)
        next(reports)  # compiles
        start = time.monotonic()
        while time.monotonic() - start < seconds or len(savings) < saves:
            before = time.monotonic()
            report = next(reports)
            calls.append(time.monotonic() - before)
            assert not isinstance(report, Result)
            if len(savings) < saves:
                before = time.monotonic()
                arrays = report.snapshot()
                between = time.monotonic()
                path = folder.save("episodic-0", job.name, job.groups[0], arrays)
                snapshots.append(between - before)
                savings.append(time.monotonic() - between)
                size = sum(file.stat().st_size for file in path.iterdir())
    snapshot, save = statistics.median(snapshots), statistics.median(savings)
    return {
        "bytes": size,
        "snapshot_ms": round(1e3 * snapshot, 2),
        "save_ms": round(1e3 * save, 2),
        "compiled_call_ms": round(1e3 * statistics.median(calls), 1),
        "share_every_60_s": (snapshot + save) / 60,
        "share_every_5_s": (snapshot + save) / 5,
        "seconds_between_for_2_percent": (snapshot + save) / 0.02,
    }
