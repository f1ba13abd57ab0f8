"""The memory benchmark's tasks, as data: most of them nobody here wrote, two can be made as long as one likes."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Task:
    """One task of the benchmark.

    Attributes:
        env: its id, and ``options`` for ``gymnasium.make``.
        steps: time steps of a full-scale run.
        optimal, low: return of the best policy with memory, and of random actions; NaN where unknown.
        solved: the mean return from which it counts as solved.
        needs: what it asks for: "recall" of one past state, "order" or "counting", for which this memory is not made.
        oracle: options under which no memory is needed, where the task has such.
    """

    env: str
    steps: int
    optimal: float
    low: float
    solved: float
    needs: str = "recall"
    options: tuple[tuple[str, Any], ...] = ()
    oracle: tuple[tuple[str, Any], ...] | None = None


def _bsuite(experiment: str, number: int, length: int) -> Task:
    """10,000 episodes, bsuite's own number; solved where bsuite's own score says so (mean return over all of them)."""
    return Task(f"bsuite/{experiment}/{number}", 10_000 * (length + 1), 1.0, 0.0, 0.25)


def _popgym(name: str, low: float, needs: str = "recall") -> Task:
    return Task(f"popgym-{name}-v0", 1_000_000, 1.0, low, 0.95, needs)


_LENGTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 17, 20, 25, 30, 40, 50, 60, 70, 80, 90, 100)
_BITS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 17, 20, 25, 30, 40)
_MINIGRID = {"S7": 0.26, "S9": 0.20, "S11": 0.25, "S13": 0.17}

TASKS: dict[str, Task] = {
    **{f"memory_len-{n}": _bsuite("memory_len", k, n) for k, n in enumerate(_LENGTHS)},
    **{f"memory_size-{n}": _bsuite("memory_size", k, 2) for k, n in enumerate(_BITS)},
    "RepeatFirstEasy": _popgym("RepeatFirstEasy", -0.5),
    "RepeatFirstMedium": _popgym("RepeatFirstMedium", -0.5),
    "RepeatPreviousEasy": _popgym("RepeatPreviousEasy", -0.5, "order"),
    "AutoencodeEasy": _popgym("AutoencodeEasy", -0.5, "order"),
    "CountRecallEasy": _popgym("CountRecallEasy", -0.9, "counting"),
    **{
        f"MiniGrid-Memory{size}": Task(f"MiniGrid-Memory{size}-v0", 2_000_000, 1.0, low, 0.9)
        for size, low in _MINIGRID.items()
    },
    **{
        f"secret-informant-{n}": Task(
            "recollect/SecretInformant-v0", 25_000 * (n + 2), 1.0, 1 / 3, 0.95, options=(("length", n),)
        )
        for n in (10, 20, 40, 80)
    },
    **{
        f"t-maze-{n}": Task(
            "recollect/TMaze-v0",
            20_000 * (n + 2),
            1.0,
            0.0,
            0.95,
            options=(("length", n),),
            oracle=(("length", n), ("oracle", True)),
        )
        for n in (5, 10, 20, 40, 80, 160)
    },
}

DEFAULT = (
    "memory_len-10",
    "memory_len-30",
    "memory_size-2",
    "memory_size-10",
    "RepeatFirstEasy",
    "RepeatFirstMedium",
    "RepeatPreviousEasy",
    "CountRecallEasy",
    "MiniGrid-MemoryS7",
    "secret-informant-10",
    "t-maze-10",
    "t-maze-40",
)
"""What `recollect benchmark memory` runs unless told otherwise."""

AGENTS: dict[str, dict[str, Any]] = {
    "episodic": {"memory_size": 4, "hidden": 16},
    "fifo": {"memory_size": 4, "hidden": 16},
    "uniform": {"memory_size": 4, "hidden": 16},
    "none": {"memory_size": 4, "hidden": 16},
    "gru": {"width": 16, "discount": 0.99},
    "gru-truncated": {"width": 16, "discount": 0.99},
    "gru-rtrl": {"width": 16, "discount": 0.99},
    "oracle": {"memory_size": 4, "hidden": 16},
}
"""The agents' options in the benchmark: the same networks throughout. oracle: no memory, where the task needs none."""
