"""How fast the loop around Gymnasium environments is: environment and agent together, one step after another."""

import functools
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from recollect.agents.base import Agent
from recollect.agents.episodic import EpisodicActorCritic
from recollect.agents.recurrent import RecurrentActorCritic
from recollect.learner import Learner
from recollect.native.host import NativeHost

REPEATS = 20
"""Short measurements, of which the best counts: on a machine that does other things too, most are spoilt."""


def agents(hidden: int) -> dict[str, Agent]:
    """What is measured: the agent with a memory of 8, its control without memory, and the recurrent baseline."""
    # At the default rate, networks of 64 units lose themselves on CartPole within a thousand steps.
    options: dict[str, Any] = {"memory_size": 8, "hidden": hidden, "critic_output": "linear", "learning_rate": 1e-3}
    return {
        "episodic": EpisodicActorCritic(**options),
        "none": EpisodicActorCritic(**options, memory="none"),
        "gru": RecurrentActorCritic(width=hidden, window=8, critic_output="linear"),
    }


def speeds(
    steps: int, hidden: int, env: str, names: Sequence[str], on_progress: Callable[[str], None]
) -> dict[str, dict[str, float]]:
    """Steps a second of each, by the clock and by this process's own time on the processor, the best of many repeats.

    On an idle machine the two agree. Stable-Baselines3's A2C stands beside them where it is installed.
    """
    found = {}
    for name, agent in agents(hidden).items():
        if name not in names:
            continue
        on_progress(f"{name} on {env}")
        with tempfile.TemporaryDirectory() as here:
            learner = Learner(agent, env, check=False)
            learner.learn(100, folder=Path(here) / "run", log_every=steps)  # compiles
            # Agents that go through JAX take ten times as long a step.
            own = steps if isinstance(learner.host, NativeHost) else max(steps // 10, 1)
            found[name] = _best(functools.partial(learner.advance, own), own)
            learner.close()
    if (a2c := _a2c(env, hidden)) is not None:
        on_progress("Stable-Baselines3's A2C")
        found["sb3 a2c"] = _best(functools.partial(a2c.learn, steps), steps)
    return found


def _best(work: Callable[[], Any], steps: int) -> dict[str, float]:
    pace = {"clock": 0.0, "processor": 0.0}
    for _ in range(REPEATS):
        start, own = time.perf_counter(), time.process_time()
        work()
        pace["clock"] = max(pace["clock"], steps / (time.perf_counter() - start))
        pace["processor"] = max(pace["processor"], steps / (time.process_time() - own))
    return pace


def _a2c(env: str, hidden: int) -> Any:
    try:
        from stable_baselines3 import A2C  # type: ignore[import-not-found]
    except ImportError:
        return None
    return A2C("MlpPolicy", env, policy_kwargs={"net_arch": [hidden, hidden]}, device="cpu")
