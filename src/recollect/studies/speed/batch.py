"""``recollect bench train``: steps per second of the whole online loop, environment and all."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from recollect.agents.episodic import EpisodicActorCritic
from recollect.engines import compiled_gpu, loop
from recollect.engines.choice import for_training
from recollect.envs.secret_informant import SecretInformant
from recollect.studies.paper import FIGURES
from recollect.studies.study import episodic
from recollect.training import batch

RUNS = (1, 8, 64, 256, 1_024, 3_168, 16_384)
ENDLESS = (2**30, 2**30, 2**31 - 1, 2**31 - 1)


def _ready(runs: Any) -> None:
    jax.block_until_ready(runs.agent.params.temperature)


def measure(
    agent: EpisodicActorCritic, env: SecretInformant, runs: int, engine: str = "auto", seconds: float = 1.0
) -> dict[str, Any]:
    """Steps per second of ``runs`` runs at once: the best of three stretches of ``seconds`` or more.

    A call does as many steps as in training, unless that takes over ten times ``seconds``: what a call costs by itself
    is part of the figure.
    """
    engine = for_training(agent, env, engine).engine
    if engine == "compiled-gpu":
        return _measure_on_gpu(agent, env, runs, seconds)
    agents = loop.broadcast(agent, runs)
    state = loop.start(agents, env, jnp.arange(runs, dtype=jnp.uint32), 10)
    _ready(state)

    def stretch(state, records):
        begun = time.perf_counter()
        state, _ = loop.advance(engine, agents, env, state, ENDLESS, records)
        _ready(state)
        return state, time.perf_counter() - begun

    state, first = stretch(state, 1)
    state, once = stretch(state, 1)
    least = loop.RECORDS_PER_CALL[engine]
    if least * once > 10 * seconds:
        state, four = stretch(state, 4)
        least = max(1, min(least, int(30 * seconds / max(four - once, 1e-9))))
    records = min(max(least, min(int(seconds / once), 400)), max(1, 2**28 // (4 * 311 * runs)))
    if records > 1:
        state, _ = stretch(state, records)  # another number of records is another program
    taken = []
    for _ in range(3):
        state, passed = stretch(state, records)
        taken.append(passed / (records * loop.RECORD))
    best = min(taken)
    return {
        "engine": engine,
        "runs": runs,
        "microseconds_a_step": best * 1e6,
        "steps_per_second": runs / best,
        "compile_seconds": first - once,
    }


def _measure_on_gpu(agent: EpisodicActorCritic, env: SecretInformant, runs: int, seconds: float) -> dict[str, Any]:
    """As `measure`; records are as many as fit into ``seconds``, since a call costs next to nothing."""
    begun = time.perf_counter()
    moving = compiled_gpu.Runs(loop.rows(agent, runs), env, (2**30, 2**30 // 10, *ENDLESS[2:]))
    moving.begin(range(runs))
    moving.counters()
    started = time.perf_counter() - begun

    def stretch(records: int) -> float:
        begun = time.perf_counter()
        moving.advance(records)
        moving.counters()
        return time.perf_counter() - begun

    once = min(stretch(1) for _ in range(2))
    records = max(1, int(seconds / once))
    best = min(stretch(records) for _ in range(3)) / (records * loop.RECORD)
    return {
        "engine": "compiled-gpu",
        "runs": runs,
        "microseconds_a_step": best * 1e6,
        "steps_per_second": runs / best,
        "compile_seconds": started,
    }


def by_runs(
    agent: EpisodicActorCritic,
    env: SecretInformant,
    engines: Sequence[str],
    runs: Sequence[int] = RUNS,
    seconds: float = 1.0,
    report: Callable[[str], None] = lambda text: None,
) -> list[dict[str, Any]]:
    """One row an engine and number of runs."""
    rows = []
    for engine in engines:
        for count in runs:
            report(f"{engine}, {count:,} runs")
            rows.append(measure(agent, env, count, engine, seconds))
    return rows


def growth(
    engine: str, runs: int, seconds: float = 0.5, report: Callable[[str], None] = lambda text: None
) -> list[dict[str, Any]]:
    """How the cost of a step grows with the memory, the networks and the episode, one at a time.

    Episodes are four times as long as the memory is large: it fills up, and as many states are written at any size.
    """
    cases = [{"memory_size": n, "length": max(10, 4 * n)} for n in (1, 3, 16, 64, 256, 1024)]
    cases += [{"hidden": h, "length": 10} for h in (10, 64, 256)]
    cases += [{"length": length} for length in (10, 100, 1000)]
    rows = []
    for case in cases:
        report(", ".join(f"{name} {value:,}" for name, value in case.items()))
        env = SecretInformant(length=case["length"], decisions=2)
        changes = {k: v for k, v in case.items() if k != "length"}
        rows.append(case | measure(EpisodicActorCritic(**changes), env, runs, _able(changes, env, engine), seconds))
    return rows


def _able(changes: dict[str, int], env: SecretInformant, engine: str) -> str:
    try:
        return for_training(EpisodicActorCritic(**changes), env, engine).engine
    except ValueError:
        return "jax"


def figure5(seeds: int = 256) -> dict[str, Any]:
    """Seconds that figure 5 takes to the end, compiled beforehand, and how many of the runs it solves."""
    experiment = FIGURES["fig5"]
    agent = episodic("robust", experiment)

    def run(**limits):
        begun = time.perf_counter()
        result = batch.train(agent, experiment.env, experiment.episodes, range(seeds), bins=50, **limits)
        return time.perf_counter() - begun, result

    first, _ = run(max_steps=1)
    passed, result = run()
    return {
        "engine": for_training(agent, experiment.env).engine,
        "seeds": seeds,
        "seconds": passed,
        "seconds_of_the_first_call": first,
        "steps": int(result.steps.sum()),
        "longest_run_steps": int(result.steps.max()),
        "solved_at_the_end": int(np.sum(result.returns[:, -1] >= 0.95)),
    }


def everything(
    engines: Sequence[str],
    runs: Sequence[int] | None,
    seconds: float,
    skip: Sequence[str] = (),
    report: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """The whole bench; ``skip`` "growth" or "figure5"."""
    agent, env = EpisodicActorCritic(), SecretInformant(10, 2)
    names = list(dict.fromkeys(for_training(agent, env, name).engine for name in engines))
    on_gpu = jax.default_backend() == "gpu"
    rows = []
    for name in names:
        counts = runs or (RUNS if on_gpu else tuple(r for r in RUNS if r <= (1_024 if name != "jax" else 64)))
        rows += by_runs(agent, env, [name], counts, seconds, report)
    plain = agent.replace(trace_decay=0.0)
    best = max(rows, key=lambda row: row["steps_per_second"])
    report("without traces")
    without = measure(plain, env, best["runs"], best["engine"], seconds)
    found: dict[str, Any] = {"device": str(jax.devices()[0]), "by_runs": rows, "without_traces": [without]}
    if "growth" not in skip:
        found["growth"] = growth(names[0], 256 if on_gpu else 16, seconds / 2, report)
    if "figure5" not in skip:
        report("figure 5 to the end, 256 runs" if on_gpu else "figure 5 to the end, 4 runs")
        found["figure5"] = [figure5(256 if on_gpu else 4)]
    return found
