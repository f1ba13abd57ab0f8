"""``recollect bench train --env … --set …``: the speed of any agent in any JAX environment, through ``train``."""

import dataclasses
import operator
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from recollect.agents import named
from recollect.agents.base import Agent
from recollect.engines import compiled, loop
from recollect.engines.choice import for_training
from recollect.envs import adapters
from recollect.envs.base import Environment
from recollect.training import batch

EPISODES = 2**30  # more than any measurement plays
LEAST = 3
"""Calls of a measurement, of which the fastest counts."""

OF_AGENTS = {"memory_size": (4, 16, 64), "hidden": (16, 64), "width": (8, 32), "units.units": (8, 32)}
OF_ENVIRONMENTS = {"length": (10, 100, 1000), "memory_length": (10, 100, 1000)}
"""What a step may grow with, one at a time, where the agent or the environment has such an option."""

Report = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Pair:
    """An agent and an environment as the command line names them."""

    agent: str
    env: str
    agent_options: tuple[tuple[str, Any], ...] = ()
    env_options: tuple[tuple[str, Any], ...] = ()

    def made(self) -> tuple[Agent, Environment[Any]]:
        """Both of them."""
        agent = named.make(self.agent, **dict(self.agent_options))
        return agent, adapters.named(self.env, **dict(self.env_options))


def _calls(agent: Agent, env: Environment[Any], runs: int, engine: str, records: int) -> Iterator[tuple[int, ...]]:
    """Steps of each call, and nanoseconds by the clock and of this process's own time; the first call compiles."""
    reports = batch.train_iter(agent, env, EPISODES, range(runs), engine=engine, records_per_call=records)
    clocks, before = (time.perf_counter_ns, time.process_time_ns), 0
    start = [clock() for clock in clocks]
    for report in reports:
        yield report.total_steps - before, *(clock() - then for clock, then in zip(clocks, start, strict=True))  # type: ignore[union-attr]
        before, start = report.total_steps, [clock() for clock in clocks]  # type: ignore[union-attr]


def speed(agent: Agent, env: Environment[Any], runs: int, engine: str, seconds: float) -> dict[str, Any]:
    """Steps per second of ``runs`` runs at once: the best of the calls of ``train`` that fit in ``seconds``.

    A call takes as long as ``seconds`` or does as much as in training, whichever is less; XLA's does 500 steps of each
    run, as it would have to be compiled again for more.
    """
    engine = for_training(agent, env, engine).engine
    calls = _calls(agent, env, runs, engine, 1)
    first, once = next(calls), next(calls)
    if engine != "jax":
        calls.close()  # type: ignore[attr-defined]
        records = max(1, min(int(seconds * 1e9 / once[1]), loop.RECORDS_PER_CALL[engine]))
        calls = _calls(agent, env, runs, engine, records)
        next(calls)
    taken, begun = [], time.perf_counter()
    while len(taken) < LEAST or time.perf_counter() - begun < seconds:
        taken.append(next(calls))
    best = max(steps / passed for steps, passed, _ in taken) * 1e9
    return {
        "engine": engine,
        "runs": runs,
        "microseconds_a_step": 1e6 * runs / best,
        "steps_per_second": best,
        "of_processor_time": max(steps / used for steps, _, used in taken) * 1e9,
        "seconds_of_the_first_call": first[1] / 1e9,
    }


def compiling(agent: Agent, env: Environment[Any], runs: int) -> list[dict[str, Any]]:
    """Seconds until the step is machine code: the first time on a machine, and from the cache on disk.

    In a process that has loaded JAX; ``processor``: seconds of this process's own, which other programs do not disturb.
    """
    rows, kept = [], os.environ.get("RECOLLECT_CACHE")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RECOLLECT_CACHE"] = folder
        try:
            for what in ("cold", "from the cache"):
                compiled.forget()
                jax.clear_caches()
                start, own = time.perf_counter(), time.process_time()
                stages = compiled.prepare(agent, env, runs)
                passed, used = time.perf_counter() - start, time.process_time() - own
                rows.append({"compiling": what, "runs": runs, "seconds": passed, "processor": used, **stages})
        finally:
            if kept is None:
                del os.environ["RECOLLECT_CACHE"]
            else:
                os.environ["RECOLLECT_CACHE"] = kept
    return rows


def variants(pair: Pair) -> Iterator[tuple[dict[str, Any], Pair]]:
    """The pair with each option that it has at each of its sizes."""
    agent, env = pair.made()
    owners = {"agent_options": (OF_AGENTS, agent), "env_options": (OF_ENVIRONMENTS, env)}
    for field, (options, owner) in owners.items():
        for name, values in options.items():
            if not isinstance(_value(owner, name), int):  # CartPole's length is a float, that of its pole
                continue
            for value in values:
                options_now = (*getattr(pair, field), (name, value))
                yield {"option": name, "value": value}, dataclasses.replace(pair, **{field: options_now})


def _value(owner: Any, name: str) -> Any:
    """An option of an agent, of a part of it, of an environment or of its parameters; None if there is no such."""
    try:
        return operator.attrgetter(name)(owner)
    except AttributeError:
        return getattr(getattr(owner, "params", None), name, None)


def everything(
    pair: Pair, engines: Sequence[str], runs: Sequence[int], seconds: float, skip: Sequence[str], report: Report
) -> dict[str, Any]:
    """Speed by engine and number of runs, compile time, and how the time of a step grows; ``skip`` "growth"."""
    agent, env = pair.made()
    chosen = for_training(agent, env, engines[0])
    found: dict[str, Any] = {"pair": f"{pair.agent} on {pair.env}", "served_by": str(chosen)}
    if chosen.engine == "cpu":
        report("compiling, cold and from the cache")
        found["compiling"] = compiling(agent, env, max(runs))
    rows = []
    for name in dict.fromkeys(for_training(agent, env, name).engine for name in engines):
        for count in runs:
            report(f"{name}, {count:,} runs")
            rows.append(speed(agent, env, count, name, seconds))
    xla = {row["runs"]: row for row in rows if row["engine"] == "jax"}
    for row in rows:
        for column, of in (("times_xla", "steps_per_second"), ("by_processor_time", "of_processor_time")):
            if row["runs"] in xla:
                row[column] = row[of] / xla[row["runs"]][of]
    found["by_runs"] = rows
    if "growth" not in skip:
        found["growth"] = []
        for case, changed in variants(pair):
            report(f"{case['option']} {case['value']:,}")
            row = speed(*changed.made(), min(16, max(runs)), chosen.engine, seconds / 2)
            found["growth"].append(
                case | {k: row[k] for k in ("engine", "runs", "steps_per_second", "of_processor_time")}
            )
    return found
