"""How fast the loop around Gymnasium environments is: environment and agent together, one step after another."""

import functools
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from recollect.agents.base import Agent
from recollect.agents.episodic import EpisodicActorCritic
from recollect.agents.general import GeneralActorCritic
from recollect.agents.realtime import RealTimeActorCritic
from recollect.agents.recurrent import RecurrentActorCritic
from recollect.training.online import Learner

REPEATS = 20
"""Short measurements, of which the best counts: on a machine that does other things too, most are spoilt."""
TRIAL, LONGEST = 50, 0.5
"""A measurement is no longer than so many seconds, as a trial of so many steps tells."""


def agents(hidden: int) -> dict[str, Agent]:
    """What is measured: the agent with a memory of 8, its control without memory, and the recurrent baselines.

    The general agent has the networks that it always has.
    """
    # At the default rate, networks of 64 units diverge on CartPole within a thousand steps.
    options: dict[str, Any] = {"memory_size": 8, "hidden": hidden, "critic_output": "linear", "learning_rate": 1e-3}
    gru = RecurrentActorCritic(width=hidden, window=8, critic_output="linear")
    return {
        "episodic": EpisodicActorCritic(**options),
        "none": EpisodicActorCritic(**options, memory="none"),
        "gru": gru,
        "gru-long": RecurrentActorCritic(width=hidden, window=128, critic_output="linear"),
        "real-time": RealTimeActorCritic(width=hidden, critic_output="linear"),
        "gru-jax": gru,
        "general": GeneralActorCritic(),
    }


def speeds(
    steps: int, hidden: int, env: str, names: Sequence[str], on_progress: Callable[[str], None]
) -> dict[str, dict[str, float]]:
    """Steps per second of each, by the clock and by this process's own time on the processor, the best of many repeats.

    On an idle machine the two agree.
    """
    found = {}
    for name in names:
        on_progress(f"{name} on {env}")
        with tempfile.TemporaryDirectory() as here:
            engine = "jax" if name == "gru-jax" else "auto"
            learner = Learner(agents(hidden)[name], env, engine=engine, check=False)
            learner.learn(200, folder=Path(here) / "run", log_every=steps)  # compiles, and fills the window
            start = time.perf_counter()
            learner.advance(TRIAL)
            own = min(steps, int(TRIAL * LONGEST / (time.perf_counter() - start)) + 1)
            found[name] = best(functools.partial(learner.advance, own), own)
            learner.close()
    return found


def best(work: Callable[[], Any], steps: int) -> dict[str, float]:
    """Steps per second of ``work``, which does ``steps``: the best of ``REPEATS``, by both clocks."""
    pace = {"clock": 0.0, "processor": 0.0}
    for _ in range(REPEATS):
        start, own = time.perf_counter(), time.process_time()
        work()
        pace["clock"] = max(pace["clock"], steps / (time.perf_counter() - start))
        pace["processor"] = max(pace["processor"], steps / (time.process_time() - own))
    return pace
