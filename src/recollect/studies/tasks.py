"""The memory benchmark's tasks, as data: most of them nobody here wrote, two can be made as long as one likes."""

import dataclasses
from typing import Any

from recollect.studies import ranges


@dataclasses.dataclass(frozen=True)
class Task:
    """One task of the benchmark.

    Attributes:
        env: its id, and ``options`` for ``gymnasium.make``.
        steps: time steps of a full-scale run.
        optimal, low: return of the best policy with memory, and of random actions; NaN where unknown.
        solved: the mean return from which it counts as solved.
        mark: the mean return of a stretch, a fiftieth of the run, that tells how soon; None for ``solved``.
        needs: what it asks for: "recall" of one past state, "order" or "counting", for which this memory is not made.
        oracle: options under which no memory is needed, where the task has such.
        normalize_observations: show the agents observations minus their running mean over their deviation.
        normalize_rewards: show them rewards over the running deviation of the discounted return.
        every: options of every agent on this task, over ``AGENTS``.
        episodic: options of the episodic agent and those that differ from it in the memory alone, over ``every``.
        recurrent: options of the agents with a GRU, over ``every``.
    """

    env: str
    steps: int
    optimal: float
    low: float
    solved: float
    mark: float | None = None
    needs: str = "recall"
    options: tuple[tuple[str, Any], ...] = ()
    oracle: tuple[tuple[str, Any], ...] | None = None
    normalize_observations: bool = False
    normalize_rewards: bool = False
    every: tuple[tuple[str, Any], ...] = ()
    episodic: tuple[tuple[str, Any], ...] = ()
    recurrent: tuple[tuple[str, Any], ...] = ()

    def agent_options(self, agent: str) -> dict[str, Any]:
        """The options of the agent of that name here."""
        own = self.recurrent if agent.startswith("gru") else self.episodic
        return {**AGENTS[agent], **dict(self.every), **dict(own)}


# One state, far back: from the best of 128 settings in T-mazes of 20 (`recollect lengths --search`), 87 small changes
# on a compiled copy of memory_len, at 30 and 100.
_ONE_STATE: dict[str, Any] = {
    "optimizer": "rmsprop",
    "learning_rate": 0.0038,
    "square_decay": 0.987,
    "discount": 0.995,
    "entropy": 3.4e-5,
    "surprise": 0.036,
    "trace_decay": 0.47,
    "policy_rate": 0.48,
    "value_rate": 1.1,
    "query_rate": 2.4,
    "write_rate": 3.7,
    "query_gain": 0.043,
    "write_gain": 0.028,
    "temperature_start": 0.093,
    "credit_cap": 3.1,
}

# The best of 96 near it at 40, its query kept open, then of 48 near that with each state kept once.
_T_MAZE: dict[str, Any] = _ONE_STATE | {
    "memory_size": 8,
    "distinct": True,
    "query_openness": 1.0,
    "learning_rate": 0.0024,
    "square_decay": 0.9945,
    "discount": 0.975,
    "entropy": 0.00016,
    "surprise": 0.03,
    "trace_decay": 0.42,
    "policy_rate": 0.65,
    "value_rate": 0.89,
    "query_rate": 1.8,
    "write_rate": 10.0,
    "query_gain": 0.03,
    "credit_cap": 13.0,
}

# The best of 96 near `_ONE_STATE` with a smaller step, at 10.
_INFORMED: dict[str, Any] = _ONE_STATE | {
    "memory_size": 8,
    "distinct": True,
    "query_openness": 1.0,
    "learning_rate": 0.00186,
    "square_decay": 0.9863,
    "epsilon": 1e-6,
    "surprise": 0.087,
    "value_rate": 1.05,
    "write_rate": 4.0,
}


# Nothing but the last action is rewarded: no traces, and steps that grow small once it is learned. The states differ in
# the time alone, by little, and only at a low temperature does a query tell them apart. The best of 48 near that at 30.
_MEMORY_LEN: dict[str, Any] = _ONE_STATE | {
    "query_openness": 1.0,
    "learning_rate": 0.0089,
    "epsilon": 1e-6,
    "trace_decay": 0.0,
    "policy_rate": 0.68,
    "value_rate": 2.0,
    "query_rate": 3.1,
    "query_gain": 0.117,
    "temperature_start": 0.006,
}


def _memory_len(length: int) -> dict[str, Any]:
    """Few states are told apart at once, and a cold query settles on one: in one seed of ten, at 4 and 5."""
    few = {"surprise": 0.1, "temperature_start": 0.1, "query_rate": 1.0, "learning_rate": 0.004}
    return _MEMORY_LEN | (few if length < 10 else {})


# Many bits, of which one is asked for: found on a compiled copy of memory_size-10, the best of 161.
_BITS_APART: dict[str, Any] = {
    "products": 32,
    "optimizer": "rmsprop",
    "learning_rate": 0.001,
    "square_decay": 0.997,
    "discount": 0.5,
    "entropy": 6e-5,
    "surprise": 0.144,
    "trace_decay": 0.59,
    "value_rate": 0.285,
    "policy_rate": 1.6,
    "query_rate": 0.23,
    "write_rate": 2.7,
    "query_gain": 0.22,
    "write_gain": 0.035,
    "temperature_start": 1.1,
    "credit_cap": 15.0,
}


def _gru(*settings: float) -> tuple[tuple[str, float], ...]:
    """Settings of the GRU, in the order of ``ranges.GRU``: rate, discount, entropy, decay, epsilon, update_start."""
    return tuple(zip(ranges.GRU, settings, strict=True))


# Each the best of a search on the task that is named, `recollect benchmark memory --agents gru --search K`, then of one
# near it (--near), whose best few were run again with other seeds (--best): see docs/environments.md. In T-mazes the
# first was `recollect lengths --search`, at 20, the others were at 40.
_GRU_T_MAZE = _gru(0.0038, 0.946, 0.03, 0.9979, 1e-10, -1.16)
_GRU_LEN_30 = _gru(0.00095, 0.9995, 0.0019, 0.9986, 4.2e-10, -2.2)
_GRU_LEN_60 = _gru(0.00096, 0.9997, 0.0061, 0.9994, 1e-10, -4.7)
_GRU_MINIGRID = _gru(0.00071, 0.9863, 0.023, 0.99726, 3.2e-8, -4.3)
_GRU_REPEAT_EASY = _gru(0.0072, 0.9982, 0.0011, 0.908, 1e-10, -0.05)
_GRU_REPEAT_MEDIUM = _gru(0.0031, 0.71, 0.00019, 0.908, 4.2e-9, -1.04)
_GRU_INFORMED = _gru(0.00096, 0.9996, 0.00125, 0.9975, 3.6e-9, -2.95)  # secret-informant-10
_GRU_ORDER = _gru(0.0016, 0.9999, 0.005, 0.981, 1.4e-8, 0.04)  # RepeatPreviousEasy
_GRU_BITS = _gru(0.0016, 0.9999, 0.005, 0.959, 1.4e-8, 0.04)  # memory_size-10


def _holding(length: int, settings: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """A memory that holds a whole episode, so that the query alone has to be learned; 32 are the least."""
    return (("memory_size", max(32, length + 2)), *settings.items())


def _bsuite(experiment: str, number: int, length: int, **options: Any) -> Task:
    """10,000 episodes, bsuite's own number; solved where bsuite's own score says so.

    That is where fewer than 37.5% of all episodes end in a mistake (three quarters of what chance makes): a mean return
    of more than .25 over the whole of training. A few episodes have that by chance: how soon is told by .95.
    """
    return Task(f"bsuite/{experiment}/{number}", 10_000 * (length + 1), 1.0, 0.0, 0.25, mark=0.95, **options)


def _popgym(
    name: str,
    low: float,
    steps: int,
    episodic: dict[str, Any],
    recurrent: tuple[tuple[str, float], ...] = _GRU_ORDER,
    needs: str = "recall",
) -> Task:
    """Rewards at every step that add up to ±1 over an episode: each is as small as the episode is long.

    They are scaled, and the values then need a critic without bounds and, being sums of many rewards, a short horizon.
    The bound on write weights keeps a run of chance from shutting out a kind of state for good.
    """
    return Task(
        f"popgym-{name}-v0",
        steps,
        1.0,
        low,
        0.95,
        needs=needs,
        normalize_rewards=True,
        every=(("discount", 0.9), ("critic_output", "linear")),
        episodic=(("log_weight_floor", -10.0), *episodic.items()),
        recurrent=recurrent,
    )


# A memory that holds an episode of 52 steps. Found on a compiled copy of RepeatFirst, by some 200 small changes from
# `_ONE_STATE` on, then the best of 96 near that.
_REPEAT: dict[str, Any] = {
    "memory_size": 64,
    "optimizer": "rmsprop",
    "learning_rate": 0.004,
    "square_decay": 0.981,
    "discount": 0.53,
    "entropy": 2e-5,
    "surprise": 0.032,
    "trace_decay": 0.11,
    "policy_rate": 0.65,
    "value_rate": 0.84,
    "query_rate": 1.24,
    "write_rate": 2.6,
    "query_gain": 0.01,
    "write_gain": 0.013,
    "temperature_start": 0.13,
    "credit_cap": 4.7,
}

# The first card is the only one of its kind, whatever the length: a memory that holds each kind once has room for it.
_REPEAT_FIRST: dict[str, Any] = _REPEAT | {"memory_size": 16, "distinct": True, "query_openness": 1.0}


def _minigrid(size: str, low: float) -> Task:
    """Walls, keys and balls are all that such a world has; most of what is seen of them hardly ever changes.

    Hence the normalisation. The setting is the quickest of some seventy in a copy of S7.
    """
    every = (("discount", 0.97), ("entropy", 0.02))
    own = {"memory_size": 16, "learning_rate": 0.01, "surprise": 0.1, "trace_decay": 0.9}
    own |= {"value_rate": 1.0, "write_rate": 0.3}
    options = (("things", ("wall", "key", "ball")),)
    return Task(
        f"MiniGrid-Memory{size}-v0",
        300_000,
        1.0,
        low,
        0.9,
        options=options,
        normalize_observations=True,
        every=every,
        episodic=tuple(own.items()),
        recurrent=_GRU_MINIGRID,
    )


_LENGTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 17, 20, 25, 30, 40, 50, 60, 70, 80, 90, 100)
_BITS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 17, 20, 25, 30, 40)
_MINIGRID = {"S7": 0.26, "S9": 0.20, "S11": 0.25, "S13": 0.17}

TASKS: dict[str, Task] = {
    **{
        f"memory_len-{n}": _bsuite(
            "memory_len",
            k,
            n,
            episodic=_holding(n, _memory_len(n)),
            recurrent=_GRU_LEN_30 if n <= 30 else _GRU_LEN_60,
        )
        for k, n in enumerate(_LENGTHS)
    },
    **{
        f"memory_size-{n}": _bsuite("memory_size", k, 2, episodic=tuple(_BITS_APART.items()), recurrent=_GRU_BITS)
        for k, n in enumerate(_BITS)
    },
    "RepeatFirstEasy": _popgym("RepeatFirstEasy", -0.5, 50_000, _REPEAT_FIRST, _GRU_REPEAT_EASY),
    "RepeatFirstMedium": _popgym("RepeatFirstMedium", -0.5, 300_000, _REPEAT_FIRST, _GRU_REPEAT_MEDIUM),
    "RepeatPreviousEasy": _popgym("RepeatPreviousEasy", -0.5, 200_000, _REPEAT, needs="order"),
    "AutoencodeEasy": _popgym("AutoencodeEasy", -0.5, 200_000, _REPEAT, needs="order"),
    "CountRecallEasy": _popgym("CountRecallEasy", -0.9, 200_000, _REPEAT, needs="counting"),
    **{f"MiniGrid-Memory{size}": _minigrid(size, low) for size, low in _MINIGRID.items()},
    **{
        f"secret-informant-{n}": Task(
            "recollect/SecretInformant-v0",
            25_000 * (n + 2),
            1.0,
            1 / 3,
            0.95,
            options=(("length", n),),
            episodic=tuple(_INFORMED.items()),
            recurrent=_GRU_INFORMED,
        )
        for n in (10, 20, 40, 80)
    },
    **{
        f"t-maze-{n}": Task(
            "recollect/TMaze-v0",
            4_000 * (n + 2),
            1.0,
            0.0,
            0.95,
            options=(("length", n),),
            oracle=(("length", n), ("oracle", True)),
            episodic=tuple(_T_MAZE.items()),
            recurrent=_GRU_T_MAZE,
        )
        for n in (5, 10, 20, 40, 80, 160, 320)
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
    "episodic": {"memory_size": 4, "hidden": 16, "products": 16},
    "fifo": {"memory_size": 4, "hidden": 16, "products": 16},
    "uniform": {"memory_size": 4, "hidden": 16, "products": 16},
    "none": {"memory_size": 4, "hidden": 16, "products": 16},
    "gru": {"width": 16, "discount": 0.99},
    "gru-truncated": {"width": 16, "discount": 0.99},
    "gru-rtrl": {"width": 16, "discount": 0.99},
    "oracle": {"memory_size": 4, "hidden": 16, "products": 16},
}
"""The agents' options in the benchmark, under those of a task; oracle: no memory, where the task needs none."""
