"""The board's tasks and agents, as data: every agent has one setting, the same on every task.

What each task is for, where it comes from, and what has been published on it is docs/board.md's to say.
"""

import dataclasses
import math
from typing import Any


@dataclasses.dataclass(frozen=True)
class Task:
    """One task of the board.

    Attributes:
        env: its id, and ``options`` for ``gymnasium.make``.
        steps: time steps of a full-scale run.
        low: mean return of random actions.
        best: the highest return that can be had, or the best known.
        mark: the mean return from which it counts as solved; NaN where no such return is agreed on.
        needs: what it asks for: "nothing", "recall" of a past state, "order", "counting", or "state" that is hidden.
        published: return of PPO with a GRU as published for popgym (Morad et al. 2023), the maximum over 15 million
            steps; NaN where it is not known.
    """

    env: str
    steps: int
    low: float
    best: float = 1.0
    mark: float = 0.95
    needs: str = "recall"
    options: tuple[tuple[str, Any], ...] = ()
    published: float = math.nan


_LENGTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 17, 20, 25, 30, 40, 50, 60, 70, 80, 90, 100)
_BITS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 17, 20, 25, 30, 40)
"""Lengths of bsuite's memory_len/0, 1, …, and numbers of bits of its memory_size/0, 1, …"""

# Family: what it needs, and for easy, medium and hard the return of random actions and that published for PPO-GRU.
_NONE = (math.nan, math.nan, math.nan)
_POPGYM: dict[str, tuple[str, tuple[float, float, float], tuple[float, float, float]]] = {
    "RepeatFirst": ("recall", (-0.51, -0.50, -0.49), (1.00, 1.00, 0.99)),
    "RepeatPrevious": ("order", (-0.50, -0.48, -0.48), (1.00, -0.39, -0.48)),
    "Autoencode": ("order", (-0.51, -0.49, -0.51), (-0.26, -0.43, -0.48)),
    "CountRecall": ("counting", (-0.94, -0.92, -0.88), (0.22, -0.55, -0.48)),
    "Concentration": ("recall", (-0.18, -0.21, -0.84), (-0.12, -0.44, -0.87)),
    "HigherLower": ("counting", (0.03, -0.02, -0.01), _NONE),
    "MultiarmedBandit": ("counting", (-0.02, -0.01, -0.02), _NONE),
    "MineSweeper": ("recall", (-0.25, -0.39, -0.43), _NONE),
    "Battleship": ("recall", (-0.45, -0.41, -0.40), _NONE),
    "PositionOnlyCartPole": ("state", (0.11, 0.05, 0.04), _NONE),
    "VelocityOnlyCartpole": ("state", (0.11, 0.05, 0.04), _NONE),
    "NoisyPositionOnlyCartPole": ("state", (0.11, 0.11, 0.11), _NONE),
    "PositionOnlyPendulum": ("state", (0.27, 0.27, 0.27), _NONE),
    "NoisyPositionOnlyPendulum": ("state", (0.24, 0.24, 0.24), _NONE),
}
_POPGYM_MARKS = {"RepeatPrevious": 0.9, "CountRecall": 0.2, "PositionOnlyCartPole": 0.9}
_WITHOUT_MARK = (
    "Autoencode",
    "Concentration",
    "HigherLower",
    "MultiarmedBandit",
    "MineSweeper",
    "Battleship",
    "PositionOnlyPendulum",
    "NoisyPositionOnlyCartPole",
    "NoisyPositionOnlyPendulum",
)
_MINIGRID = {"S7": 0.26, "S9": 0.15, "S11": 0.30, "S13": 0.22}


def _popgym() -> dict[str, Task]:
    found = {}
    for family, (needs, low, published) in _POPGYM.items():
        mark = math.nan if family in _WITHOUT_MARK else _POPGYM_MARKS.get(family, 0.95)
        for k, level in enumerate(("Easy", "Medium", "Hard")):
            name = f"{family}{level}"
            found[name] = Task(f"popgym-{name}-v0", 1_000_000, low[k], mark=mark, needs=needs, published=published[k])
    return found


def _of_length(env: str, length: int, steps: int, low: float, **options: Any) -> Task:
    return Task(env, steps, low, options=(("length", length), *options.items()))


TASKS: dict[str, Task] = {
    "CartPole": Task("CartPole-v1", 500_000, 22.0, 500.0, 475.0, "nothing"),
    "Acrobot": Task("Acrobot-v1", 500_000, -500.0, -63.0, -100.0, "nothing"),
    "MountainCar": Task("MountainCar-v0", 500_000, -200.0, -97.0, -110.0, "nothing"),
    "Pendulum": Task("Pendulum-v1", 500_000, -1194.0, -150.0, -200.0, "nothing"),
    **{f"memory_len-{n}": Task(f"bsuite/memory_len/{k}", 500_000, 0.0) for k, n in enumerate(_LENGTHS)},
    **{f"memory_size-{n}": Task(f"bsuite/memory_size/{k}", 500_000, 0.0) for k, n in enumerate(_BITS)},
    "umbrella_length-10": Task("bsuite/umbrella_length/9", 500_000, -0.3, mark=0.9),
    "discounting_chain": Task("bsuite/discounting_chain/0", 500_000, 1.0, 1.1, 1.09, "nothing"),
    **_popgym(),
    **{
        f"MiniGrid-Memory{size}": Task(f"MiniGrid-Memory{size}-v0", 500_000, low, mark=0.9)
        for size, low in _MINIGRID.items()
    },
    **{
        f"t-maze-{n}": _of_length("recollect/TMaze-v0", n, max(500_000, 2_000 * n), 0.0)
        for n in (5, 10, 20, 40, 80, 160, 320, 1000)
    },
    **{
        f"secret-informant-{n}": _of_length("recollect/SecretInformant-v0", n, 25_000 * (n + 2), 1 / 3)
        for n in (10, 20, 40, 80)
    },
    **{
        f"secret-informant-{n}-2": _of_length("recollect/SecretInformant-v0", n, 50_000 * (n + 3), 1 / 9, decisions=2)
        for n in (10, 20)
    },
    **{f"noisy-recall-{n}": _of_length("recollect/NoisyRecall-v0", n, 500_000, 0.0) for n in (20, 60, 200)},
    **{
        f"noisy-recall-anywhere-{n}": _of_length("recollect/NoisyRecall-v0", n, 500_000, 0.0, anywhere=True)
        for n in (20, 60)
    },
}

KINDS = (
    "noisy-recall-20",
    "noisy-recall-60",
    "t-maze-40",
    "RepeatFirstEasy",
    "RepeatFirstHard",
    "RepeatPreviousEasy",
    "CountRecallEasy",
    "CartPole",
    "PositionOnlyCartPoleEasy",
    "VelocityOnlyCartpoleEasy",
    "memory_len-30",
)
"""One task of each kind; what `recollect benchmark memory` runs unless told otherwise."""

HELD_OUT = ("Acrobot", "RepeatPreviousMedium", "ConcentrationEasy", "MiniGrid-MemoryS9", "umbrella_length-10")
"""Named before the first search; no default was picked on them. That Acrobot failed is why there is steady chance."""

AGENTS: dict[str, dict[str, Any]] = {
    "general": {},
    "trace-units": {},
    "reservoir": {},
    "memoryless": {},
    "even-weights": {},
    "one-horizon": {},
    "fresh-chance": {},
    "gru": {"width": 32, "learning_rate": 0.001, "discount": 0.95, "entropy": 0.003, "critic_output": "linear"},
    "gru-rtrl": {"width": 16, "learning_rate": 0.001, "discount": 0.95, "entropy": 0.003, "critic_output": "linear"},
    "paper": {"memory_size": 16},
    "episodic": {"memory_size": 16},
}
"""The agents by their names (``recollect.agents.named``), with what is set beside their defaults, on every task."""

NORMALIZED = ("gru", "gru-rtrl", "paper", "episodic")
"""Agents that see observations and rewards in standard units by the learner's hand; the others do it themselves."""
