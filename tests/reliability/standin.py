"""A trainer that takes milliseconds where a compiled one takes seconds, under the library's own driver.

It stands in for ``reproduce.begin`` alone: the threads, the run folder, the lock, the checkpoints, the signals,
resuming and the command line are the real ones. Its state is a chaotic map, so that a bit lost anywhere shows in all
that follows.

As a script: ``standin.py ARGUMENTS`` is the command ``recollect ARGUMENTS`` with this trainer; ``standin.py --kill
FOLDER KILLS SEED`` kills such commands, see ``kill``.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np

from recollect import cli
from recollect.errors import FileError
from recollect.store import checkpoints, files, provenance, run_folders, run_reading
from recollect.studies import plan, plots, reproduce
from recollect.training.batch import Progress, Result

ARGUMENTS = ["fig4", "--episodes", "2500", "--seeds", "2"]
SIZE = int(os.environ.get("STANDIN_SIZE", "50"))
TICK = float(os.environ.get("STANDIN_TICK", "0.002"))  # seconds of one compiled call
VERSIONS = dict.fromkeys(provenance.BITS_DEPEND_ON, "stand-in")


def state_like(plan, job, group):
    return {"x": np.zeros(SIZE), "t": np.zeros((), np.int64)}


def begin(plan, job, group, state):
    seeds = job.groups[group]
    x, t = np.linspace(0.1, 0.9, SIZE) + seeds[0], 0
    if state is not None:
        x, t = state["x"], int(state["t"])

    def snapshot():
        return {"x": x.copy(), "t": np.int64(t)}

    while t < plan.bins:
        time.sleep(TICK)
        x = np.cos(3.0 * x * np.roll(x, 1) + 2.0 * x + t)
        t += 1
        line = {"episodes": t * plan.episodes // plan.bins, "length": 12.0, "write_weights": [float(x[0]), float(x[1])]}
        line |= {"return": float(x.mean()), "query_vectors": [x[:8].tolist()]}
        done = np.full(len(seeds), line["episodes"])
        yield Progress(t, t, done, [{"seed": seed, **line} for seed in seeds], line["return"], snapshot)
    n, nothing = len(seeds), np.full((len(seeds), plan.bins), np.nan)
    yield Result(tuple(seeds), np.arange(plan.bins), *[nothing] * 4, np.full(n, t), np.full(n, True), None)


def install(setattr=setattr):
    """Put the stand-in in the place of the compiled loops, of the versions, which would start JAX, and of pictures."""
    setattr(reproduce, "begin", begin)
    setattr(reproduce, "state_like", state_like)
    setattr(plan, "BASELINE_GROUP", 1)  # several groups, so that there is something to lose
    setattr(run_folders, "versions", lambda: VERSIONS)
    setattr(plots, "draw_figure", lambda path: [])


def outcome(folder):
    """What has to be the same however a run was interrupted: the metrics of each group, and its last state."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    states = {}
    for group in sorted((folder / "checkpoints").iterdir()):
        found = checkpoints.load(group)
        mine = [line for line in lines if [line["agent"], line["seed"]] in _owned(found)]
        mine.sort(key=lambda line: (line["seed"], line["episodes"]))  # seeds side by side report as they get there
        states[group.name] = {name: array.tobytes() for name, array in found.arrays.items()}, mine
    assert sum(len(mine) for _, mine in states.values()) == len(lines)
    return states


def _owned(found):
    return [[found.meta["metrics"]["agent"], seed] for seed in found.meta["metrics"]["seeds"]]


# -- killing


def _die():
    os.kill(os.getpid(), signal.SIGKILL)


def _die_at_call(number):
    """Die at so many calls from now that touch the disk: before one, after one, or halfway through a write."""
    left = [number]

    def deadly(function):
        def call(*arguments, **options):
            left[0] -= 1
            if left[0] == 0:
                _die()
            return function(*arguments, **options)

        return call

    def put(handle, *parts):
        left[0] -= 1
        if left[0] == 0:
            content = b"".join(bytes(part) for part in parts)
            os.write(handle, content[: len(content) // 2])
            _die()
        return whole(handle, *parts)

    whole, files._put = files._put, put
    for name in ("fsync", "rename", "replace", "mkdir", "rmdir", "unlink"):
        setattr(os, name, deadly(getattr(os, name)))


def _child(folder, seed):
    """In a process of its own: go on with the run, or begin it, until killed. Exits 0 when the run is finished."""
    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        rng = random.Random(seed)
        if rng.random() < 0.5:
            _die_at_call(rng.randint(1, 120))
        every = ["--checkpoint-every", "0.004"]
        words = (
            ["resume", str(folder)]
            if (folder / "log.jsonl").exists()
            else ["reproduce", *ARGUMENTS, "--out", str(folder)]
        )
        code = cli.main([*words, *every])
    finally:
        os._exit(code)


def kill(folder, kills, seed):
    """Kill runs until ``kills`` have died by SIGKILL; after each, what is in the folder is sound or not there.

    Half die at a random moment, half at a random call that touches the disk. Each run, when it gets to its end, is
    compared with one that was left alone.
    """
    install()
    whole = folder / "whole"
    assert cli.main(["reproduce", *ARGUMENTS, "--out", str(whole)]) == 0
    expected, rng = outcome(whole), random.Random(seed)
    died = finished = in_saves = 0
    run = folder / "run 0"
    while died < kills or finished < 3:  # under load fewer get to their end; each kind of outcome is wanted
        pid = os.fork()
        if pid == 0:
            _child(run, rng.random())
        rng.random()
        deadline = time.monotonic() + rng.uniform(0.0, 0.6)
        while (done := os.waitpid(pid, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
            time.sleep(0.002)
        if done[0] == 0:
            os.kill(pid, signal.SIGKILL)
            done = os.waitpid(pid, 0)
        if os.WIFSIGNALED(done[1]):
            assert os.WTERMSIG(done[1]) == signal.SIGKILL
            died += 1
            in_saves += bool(list(run.glob("checkpoints/*/.*")))
            _check(run)
        else:
            assert os.WEXITSTATUS(done[1]) == 0, (run, done)
            assert outcome(run) == expected, run
            finished += 1
            run = folder / f"run {finished}"
    print(json.dumps({"killed": died, "in_saves": in_saves, "finished_runs_compared": finished}))


def _check(run):
    """After a kill: every listed checkpoint is sound, the metrics reach as far; a folder hardly begun is begun anew."""
    if not (run / "log.jsonl").exists():
        with contextlib.suppress(FileError):
            run_reading.read(run)
        shutil.rmtree(run, ignore_errors=True)
        return
    assert [fault for _, fault in run_reading.verify(run) if fault] == []


if __name__ == "__main__":
    if sys.argv[1] == "--kill":
        kill(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    else:
        install()
        sys.argv[0] = "recollect"
        sys.exit(cli.main(sys.argv[1:]))
