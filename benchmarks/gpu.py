"""The step compiler on an NVIDIA GPU: bits, compile time, kernels alone, and training by the clock on the wall.

    python benchmarks/gpu.py bits            # a GPU and the processor, bit for bit
    python benchmarks/gpu.py kernels         # steps per second of kernels alone, by runs and by ways to compile them
    python benchmarks/gpu.py train           # through `train`, warm, and where the time goes
    python benchmarks/gpu.py paper           # the paper's pair with its own kernel; 256 runs of figure 5 to the end
    python benchmarks/gpu.py one tmaze 32768 100   # three launches, for a profiler

Prints as it goes; ``--json FILE`` keeps all figures.
"""

import argparse
import contextlib
import functools
import json
import os
import sys
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import jax
import numpy as np

from recollect import EpisodicActorCritic, SecretInformant, train
from recollect.engines import compiled_gpu, loop
from recollect.engines.compiler import cuda_driver
from recollect.engines.compiler.fleet import Fleet, over_blocks
from recollect.engines.compiler.grid import Grid
from recollect.engines.compiler.program import Program
from recollect.envs.t_maze import TMaze
from recollect.store.run_folders import command_line, versions

RECOMMENDED = {"optimizer": "rmsprop", "distinct": True, "query_openness": 1.0, "critic_output": "linear"}
PAIRS = {
    "informant": (EpisodicActorCritic(memory_size=3), SecretInformant(length=10, decisions=2)),
    "tmaze": (EpisodicActorCritic(memory_size=8, hidden=16), TMaze(length=10)),
    "recommended": (
        EpisodicActorCritic(memory_size=8, hidden=16, learning_rate=0.002, products=16, **RECOMMENDED),
        SecretInformant(length=10, decisions=1),
    ),
}
ENDLESS = (2**30, 2**23, 2**31 - 1, 2**31 - 1)
REPORT = {}


def say(*words):
    """Print at once."""
    print(*words, flush=True)


def keep(part, **figures):
    """Print a row and keep it."""
    REPORT.setdefault(part, []).append(figures)
    say(part, json.dumps(figures))


def leaves_of(agent):
    """The inputs of a step: hyperparameters and limits."""
    return [*(np.float32(x) for x in jax.tree.leaves(agent)), *map(np.int32, ENDLESS)]


@functools.cache
def _step_of(name):
    agent, env = PAIRS[name]
    return compiled_gpu._traced(jax.tree.structure(agent), env, 128)[1]


def _runs(name, count, way):
    """Runs of a pair before their first step, with the program of that way."""
    agent, env = PAIRS[name]
    runs = compiled_gpu.Runs(loop.rows(agent, count), env, ENDLESS, way=WAYS[way])
    runs.begin(range(count))
    return runs


def bits(args):
    """A thousand steps on both, from states that the GPU began."""
    for name, way in _prepared(args.pairs.split(","), args.ways.split(";")):
        _compare(name, way)


def _compare(name, way, count=97):
    begun = time.perf_counter()
    runs, leaves = _runs(name, count, way), leaves_of(PAIRS[name][0])
    processor = Program(_step_of(name), 16, (True,) * len(leaves))
    fleet = Fleet(processor.state, count, 16)
    fleet.load(runs._grid.unload())
    calls = fleet.attach(processor, leaves)
    over_blocks(lambda k: calls[k].advance(1001), len(calls))
    for steps in (1, 500, 500):
        runs._grid.advance(runs._step, steps)
    wanted, found = (processor.state.numbers(tree) for tree in (fleet.unload(), runs._grid.unload()))
    wrong = [k for k, (a, b) in enumerate(zip(wanted, found, strict=True)) if a.tobytes() != b.tobytes()]
    floats = [k for k in wrong if wanted[k].dtype.kind == "f"]
    apart = max((float(np.nanmax(np.abs(wanted[k].astype(float) - found[k]))) for k in floats), default=0.0)
    figures = {"leaves_that_differ": len(wrong), "of": len(wanted), "largest_difference": apart}
    keep("bits", pair=name, way=way, equal=not wrong, **figures, seconds=time.perf_counter() - begun)


WRITTEN_OUT = (1, 8), (30, 8), (300, 8), (100, 4), (100, 16)
AT_168 = {"teams": True, "registers": 168}
WAYS = {
    "threads": {"teams": False},
    "threads, 64 registers": compiled_gpu.THREADS,
    "teams": compiled_gpu.TEAMS,
    **{f"teams, {r} registers": {"teams": True, "registers": r} for r in (168, 128, 96, 80, 64)},
    **{f"teams, 168 registers, {n}": {**AT_168, "written_out": (n, 8)} for n in (1, 30, 300)},
    **{f"teams, 168 registers, {k} KB": {**AT_168, "room": k << 10} for k in (6, 8, 14, 22)},
    **{f"teams, {k} KB": {"teams": True, "room": k << 10} for k in (14, 22)},
    **{f"threads, {r} registers": {**compiled_gpu.THREADS, "registers": r} for r in (32, 40, 48, 56, 72, 80, 96)},
    **{f"threads, 64 registers, {n}, {m}": {**compiled_gpu.THREADS, "written_out": (n, m)} for n, m in WRITTEN_OUT},
}
"""Ways to compile a step, as `GridProgram` takes them; bits are the same for all."""


def _prepared(pairs, ways):
    """Pairs and ways, their programs compiled on all cores."""

    def work(job):
        name, way = job
        begun = time.perf_counter()
        try:
            runs = _runs(name, 32, way)
        except Exception as error:
            say("  not compiled", name, way, error)
            return None
        log = runs._step.loaded.log.splitlines()
        spills = [line.split(".")[-1].strip() for line in log if "spill" in line]
        used = runs._step.loaded.uses("run")
        say(
            "  compiled",
            name,
            way,
            f"in {time.perf_counter() - begun:.1f} s",
            used,
            runs._step.kernel.chip,
            *spills[:1],
        )
        return job

    for name in pairs:
        _step_of(name)
    jobs = [(name, way) for name in pairs for way in ways]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return [job for job in pool.map(work, jobs) if job]


def _wait(grid):
    """Until all that was launched is done."""
    grid.device.here()
    cuda_driver._call("cuCtxSynchronize")


def _timed(grid, program, steps):
    _wait(grid)
    begun = time.perf_counter()
    grid.advance(program, steps)
    _wait(grid)
    return time.perf_counter() - begun


def _measured(name, way, count):
    """Steps per second of one kernel."""
    runs = _runs(name, count, way)
    grid, program = runs._grid, runs._step
    once = _timed(grid, program, 4) / 4
    steps = int(min(2000, max(10, 0.15 / once))) // 2 * 2
    seconds = min(_timed(grid, program, steps) for _ in range(3))
    keep(
        "kernels",
        pair=name,
        way=way,
        runs=count,
        steps_per_second=count * steps / seconds,
        microseconds_a_step=seconds / steps * 1e6,
        **program.loaded.uses("run"),
        own=program.kernel.own,
        chip=program.kernel.chip,
        steps=steps,
    )


def kernels(args):
    """Steps per second of the kernels alone, in several ways."""
    for name, way in _prepared(args.pairs.split(","), args.ways.split(";")):
        for count in map(int, args.runs.split(",")):
            try:
                _measured(name, way, count)
            except Exception:  # what one way cannot do, another may
                traceback.print_exc()


def table():
    """The figures once more, short."""
    for row in REPORT.get("bits", ()):
        say(f"{row['pair']:12} {row['way']:32} {'same bits' if row['equal'] else 'OTHER BITS'}")
    for row in REPORT.get("kernels", ()):
        speed = f"{row['steps_per_second'] / 1e6:8.1f} million/s"
        say(f"{row['pair']:12} {row['way']:32} {row['runs']:7} {speed} {row['registers']:4} {row['chip']:6}")
    for row in REPORT.get("train", ()):
        say(f"{row['pair']:12} train {row['runs']:7} {row['steps_per_second'] / 1e6:8.1f} million/s", row["parts"])


def train_parts(args):
    """Through `train`."""
    for name in args.pairs.split(","):
        _train(name, args)


def _train(name, args):
    """Once, with its parts; that the kernels are compiled and loaded is seen to before.

    Runs live a whole number of ``loop.WHOLE`` records, whatever steps they are given: they are given as many as that,
    so that all steps that are lived are counted.
    """
    agent, env = PAIRS[name]
    whole = loop.WHOLE * loop.RECORD
    for count in map(int, args.runs.split(",")):
        options = {"max_steps": max(1, round(args.steps / count / whole)) * whole, "bins": 100}
        call = functools.partial(train, agent, env, 10**8, range(count), engine="compiled-gpu", **options)
        begun = time.perf_counter()
        compiled_gpu.Runs(loop.rows(agent, count), env, (10**8, 10**6, 2**31 - 1, 2**31 - 1)).begin(range(count))
        compiling = time.perf_counter() - begun
        result, parts = _in_parts(call)
        total, lived = int(result.steps.sum()), count * parts["steps_per_run"]
        keep(
            "train",
            pair=name,
            runs=count,
            steps=total,
            lived=lived,
            compile_seconds=compiling,
            seconds=parts["seconds"]["all"],
            steps_per_second=total / parts["seconds"]["all"],
            kernels_per_second=lived / parts["seconds"]["steps"],
            engine=result.engine,
            parts=parts,
        )


def _in_parts(call):
    """What a call gives, and its parts, each waited for: seconds, launches, steps, bytes between host and GPU."""
    seconds, launches, moved, taken = Counter(), Counter(), Counter(), Counter()

    def timed(function, part, wait):
        def inner(*args, **options):
            begun = time.perf_counter()
            value = function(*args, **options)
            wait(args[0])
            seconds[part] += time.perf_counter() - begun
            return value

        return inner

    def launched(function):
        def inner(grid, program, steps=1):
            part = "steps" if steps > 1 else "start and collect"
            launches[part] += 1
            taken[part] += steps
            timed(function, part, _wait)(grid, program, steps)

        return inner

    def counted(function, way):
        def inner(device, address, array):
            moved[way] += array.nbytes
            return function(device, address, array)

        return inner

    runs, gpu = compiled_gpu.Runs, cuda_driver.Gpu
    parts = {"__init__": "set up", "counters": "counters", "sums": "sums", "collected": "collected"}
    new = {(runs, name): timed(getattr(runs, name), part, lambda r: _wait(r._grid)) for name, part in parts.items()}
    new[runs, "agent_states"] = timed(runs.agent_states, "agent states", lambda r: None)
    new[Grid, "advance"] = launched(Grid.advance)
    new[gpu, "read"], new[gpu, "write"] = counted(gpu.read, "to host"), counted(gpu.write, "to GPU")
    with contextlib.ExitStack() as stack:
        for (owner, name), function in new.items():
            stack.enter_context(mock.patch.object(owner, name, function))
        begun = time.perf_counter()
        result = call()
        seconds["all"] = time.perf_counter() - begun
    rounded = {name: round(s, 4) for name, s in seconds.items()}
    return result, {
        "seconds": rounded,
        "launches": dict(launches),
        "steps_per_run": taken["steps"],
        "steps_per_launch": taken["steps"] / max(1, launches["steps"]),
        "bytes": dict(moved),
    }


def cold(args):
    """Compile times in an empty cache, and again from it."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RECOLLECT_CACHE"] = folder
        for name, (agent, env) in PAIRS.items():
            for cache in ("empty", "filled"):
                compiled_gpu._programs.cache_clear()
                if cache == "empty":
                    compiled_gpu._traced.cache_clear()
                begun = time.perf_counter()
                steps = compiled_gpu._traced(jax.tree.structure(agent), env, 128)
                equations = [len(s.traced.graph._known) for s in steps]
                traced = time.perf_counter() - begun
                same = (True,) * len(jax.tree.leaves(agent))
                way = tuple(sorted(compiled_gpu.TEAMS.items()))
                programs = compiled_gpu._programs(jax.tree.structure(agent), env, 128, same, cuda_driver.device(), way)
                seconds = time.perf_counter() - begun
                keep(
                    "compile",
                    pair=name,
                    cache=cache,
                    seconds=seconds,
                    trace_seconds=traced,
                    uses=[p.loaded.uses("run") for p in programs],
                    equations=equations,
                )
        del os.environ["RECOLLECT_CACHE"]


def paper(args):
    """The paper's pair with the kernel that was written for it, through `train`; figure 5 to the end."""
    import cProfile
    import pstats

    from recollect.studies.speed import batch

    agent, env = PAIRS["informant"]
    for count in map(int, args.runs.split(",")):
        steps = max(1, int(args.steps / count / 100_000)) * 100_000
        seconds = []
        for _ in range(2):
            begun = time.perf_counter()
            result = train(agent, env, 10**8, range(count), max_steps=steps, engine="cuda", bins=100)
            seconds.append(time.perf_counter() - begun)
        total = int(result.steps.sum())
        keep(
            "paper", runs=count, steps=total, first=seconds[0], seconds=seconds[1], steps_per_second=total / seconds[1]
        )
    profile = cProfile.Profile()
    profile.enable()
    train(agent, env, 10**8, range(count), max_steps=steps, engine="cuda", bins=100)
    profile.disable()
    pstats.Stats(profile, stream=sys.stdout).sort_stats("cumulative").print_stats(25)
    keep("figure5", **batch.figure5())


def figure5(args):
    """256 runs of figure 5 to the end."""
    from recollect.studies.speed import batch

    keep("figure5", **batch.figure5())


def one(args):
    """One launch."""
    runs = _runs(args.pair, args.count, args.way)
    for _ in range(3):
        seconds = _timed(runs._grid, runs._step, args.turns)
        say(args.pair, args.count, args.turns, f"{args.count * args.turns / seconds:.3e} steps/s")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json")
    parts = parser.add_subparsers(dest="part", required=True)
    parts.add_parser("cold").set_defaults(run=cold)
    parts.add_parser("figure5").set_defaults(run=figure5)
    for name, function, runs in (
        ("bits", bits, ""),
        ("kernels", kernels, "4096,32768,131072"),
        ("train", train_parts, "4096,32768"),
    ):
        part = parts.add_parser(name)
        part.add_argument("--runs", default=runs)
        part.add_argument("--pairs", default="informant,tmaze,recommended")
        part.add_argument(
            "--ways", default="threads, 64 registers;teams;teams, 168 registers, 300;teams, 168 registers, 22 KB"
        )
        part.add_argument("--steps", type=float, default=3e8)
        part.set_defaults(run=function)
    part = parts.add_parser("paper")
    part.add_argument("--runs", default="3168,32768")
    part.add_argument("--steps", type=float, default=3e9)
    part.set_defaults(run=paper)
    part = parts.add_parser("one")
    part.add_argument("pair")
    part.add_argument("count", type=int)
    part.add_argument("turns", type=int)
    part.add_argument("--way", default="teams")
    part.set_defaults(run=one)
    args = parser.parse_args()
    say("JAX on", jax.default_backend(), "| GPU:", cuda_driver.why_none() or cuda_driver.device().name)
    failed = 0
    try:
        args.run(args)
    except Exception:  # a table of what was measured is worth more than none
        traceback.print_exc()
        failed = 1
    table()
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"command": command_line(), "versions": versions(), **REPORT}, file, indent=1)
    return failed


if __name__ == "__main__":
    sys.exit(main())
