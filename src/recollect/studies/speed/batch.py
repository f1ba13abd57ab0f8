"""``recollect bench train``: steps per second of the whole online loop, environment and all."""

import importlib.util
import itertools
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from recollect.agents.episodic import EpisodicActorCritic
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
    engine = batch.choose_engine(agent, env, engine)
    agents = batch._broadcast(agent, runs)
    state = batch._start(agents, env, jnp.arange(runs, dtype=jnp.uint32), 10)
    _ready(state)

    def stretch(state, records):
        begun = time.perf_counter()
        state, _ = batch.advance(engine, agents, env, state, ENDLESS, records)
        _ready(state)
        return state, time.perf_counter() - begun

    state, first = stretch(state, 1)
    state, once = stretch(state, 1)
    least = batch.RECORDS_PER_CALL[engine]
    if least * once > 10 * seconds:
        state, four = stretch(state, 4)
        least = max(1, min(least, int(30 * seconds / max(four - once, 1e-9))))
    records = min(max(least, min(int(seconds / once), 400)), max(1, 2**28 // (4 * 311 * runs)))
    if records > 1:
        state, _ = stretch(state, records)  # another number of records is another program
    taken = []
    for _ in range(3):
        state, passed = stretch(state, records)
        taken.append(passed / (records * batch.RECORD))
    best = min(taken)
    return {
        "engine": engine,
        "runs": runs,
        "microseconds_a_step": best * 1e6,
        "steps_per_second": runs / best,
        "compile_seconds": first - once,
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
        return batch.choose_engine(EpisodicActorCritic(**changes), env, engine)
    except ValueError:
        return "jax"


def c_loop(steps: int = 300_000, repeats: int = 3) -> dict[str, Any] | None:
    """The same agent as one plain scalar C loop on one core, the best of some runs; None without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    source = resources.files("recollect.studies.speed") / "online_loop.c"
    with tempfile.TemporaryDirectory() as folder, resources.as_file(source) as path:
        program = f"{folder}/online_loop"
        command = [compiler, "-O3", "-march=native", "-ffast-math", "-o", program, str(path), "-lm"]
        subprocess.run(command, check=True, capture_output=True)
        seconds = []
        for seed in range(repeats):
            arguments = [program, str(steps), "10", "2", "3", "10", str(seed)]
            done = subprocess.run(arguments, check=True, capture_output=True, text=True)
            seconds.append(float(done.stdout.split()[1]))
    best = min(seconds) / steps
    return {"engine": "C, one core", "runs": 1, "microseconds_a_step": best * 1e6, "steps_per_second": 1 / best}


def pytorch(steps: int = 200) -> dict[str, Any] | None:
    """The same update written plainly in PyTorch, one run; None where PyTorch is not installed."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch  # pyright: ignore[reportMissingImports]

    torch.manual_seed(0)
    env, n, h = SecretInformant(10, 2), 3, 10
    s, a = env.observation_size, env.num_actions

    def net(*sizes):
        layers = [[torch.nn.Linear(i, o), torch.nn.Tanh()] for i, o in itertools.pairwise(sizes)]
        return torch.nn.Sequential(*itertools.chain(*layers))[:-1]

    value, policy, query, write = net(s, h, 1), net(2 * s, h, h, a), net(s, h, s), net(s, h, 1)
    networks = torch.nn.ModuleList([value, policy, query, write])
    rows = torch.tensor(env.states)
    stored, log_weights = rows[1 : 1 + n].clone(), torch.full((n,), -0.7)
    begun = time.perf_counter()
    for t in range(steps):
        x, x_next = rows[t % len(rows)], rows[(t + 1) % len(rows)]
        reading = torch.distributions.Categorical(logits=stored @ torch.tanh(query(x)))
        slot = reading.sample()
        acting = torch.distributions.Categorical(logits=policy(torch.cat([x, stored[slot]])))
        action = acting.sample()
        v, v_next = torch.tanh(value(x))[0], torch.tanh(value(x_next))[0].detach()
        delta = float(t % 13 == 0) + 0.99 * v_next - v.detach()
        quotient = torch.exp(torch.nn.functional.logsigmoid(write(stored[slot]))[0] - log_weights[slot])
        score = v + reading.log_prob(slot) + acting.log_prob(action) + quotient
        networks.zero_grad()
        (delta * score).backward()
        with torch.no_grad():
            for p in networks.parameters():
                p += 0.005 * p.grad
            if t % 3 == 0:
                stored[t % n], log_weights[t % n] = x, torch.nn.functional.logsigmoid(write(x))[0]
    passed = (time.perf_counter() - begun) / steps
    return {"engine": "eager PyTorch", "runs": 1, "microseconds_a_step": passed * 1e6, "steps_per_second": 1 / passed}


def eager(steps: int = 10) -> dict[str, Any]:
    """The same step in JAX, one run, each operation dispatched by itself: not compiled as a whole."""
    agent, env = EpisodicActorCritic(), SecretInformant(10, 2)
    run = batch.start_run(agent, env, jnp.uint32(0), 10)
    limits = tuple(jnp.int32(x) for x in ENDLESS)
    run = batch.step_run(agent, env, run, *limits)  # the operations themselves are compiled here
    begun = time.perf_counter()
    for _ in range(steps):
        run = batch.step_run(agent, env, run, *limits)
    _ready(run)
    passed = (time.perf_counter() - begun) / steps
    return {"engine": "eager JAX", "runs": 1, "microseconds_a_step": passed * 1e6, "steps_per_second": 1 / passed}


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
        "engine": batch.choose_engine(agent, experiment.env),
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
    """The whole bench; ``skip`` any of "others", "growth", "figure5"."""
    agent, env = EpisodicActorCritic(), SecretInformant(10, 2)
    names = list(dict.fromkeys(batch.choose_engine(agent, env, name) for name in engines))
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
    if "others" not in skip:
        report("others: C, eager JAX, PyTorch")
        found["others"] = [row for row in (c_loop(), eager(), pytorch()) if row is not None]
        c = next((row["steps_per_second"] for row in found["others"] if row["engine"].startswith("C")), None)
        if c is not None:
            for row in rows:
                row["times_the_C_loop"] = row["steps_per_second"] / c
    if "growth" not in skip:
        found["growth"] = growth(names[0], 256 if on_gpu else 16, seconds / 2, report)
    if "figure5" not in skip:
        report("figure 5 to the end, 256 runs" if on_gpu else "figure 5 to the end, 4 runs")
        found["figure5"] = [figure5(256 if on_gpu else 4)]
    return found
