"""``recollect bench train``: steps per second of the whole online loop, of the paper's agent in its task."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from recollect.agents.episodic import EpisodicActorCritic
from recollect.engines.choice import for_training
from recollect.envs.secret_informant import SecretInformant
from recollect.studies.paper import FIGURES
from recollect.studies.speed.pair import speed
from recollect.studies.study import episodic
from recollect.training import batch

RUNS = (1, 8, 64, 256, 1_024, 3_168, 16_384)


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
        agent = EpisodicActorCritic(**changes)
        rows.append(case | speed(agent, env, runs, _able(agent, env, engine), seconds))
    return rows


def _able(agent: EpisodicActorCritic, env: SecretInformant, engine: str) -> str:
    try:
        return for_training(agent, env, engine).engine
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
        for count in counts:
            report(f"{name}, {count:,} runs")
            rows.append(speed(agent, env, count, name, seconds))
    best = max(rows, key=lambda row: row["steps_per_second"])
    report("without traces")
    without = speed(agent.replace(trace_decay=0.0), env, best["runs"], best["engine"], seconds)
    found: dict[str, Any] = {"device": str(jax.devices()[0]), "by_runs": rows, "without_traces": [without]}
    if "growth" not in skip:
        found["growth"] = growth(names[0], 256 if on_gpu else 16, seconds / 2, report)
    if "figure5" not in skip:
        report("figure 5 to the end, 256 runs" if on_gpu else "figure 5 to the end, 4 runs")
        found["figure5"] = [figure5(256 if on_gpu else 4)]
    return found
