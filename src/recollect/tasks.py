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
        mark: the mean return of a block, a fiftieth of the run, that tells how soon; None for ``solved``.
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


# One state, far back. For each kind of agent, 128 settings drawn at random (`recollect lengths --search`) in T-mazes of
# 20; of the best, that which did best again: the memory's on memory_len-30, the GRU's in T-mazes of 80.
_ONE_STATE: dict[str, Any] = {
    "optimizer": "rmsprop",
    "learning_rate": 0.0038,
    "square_decay": 0.987,
    "discount": 0.995,
    "entropy": 3e-5,
    "surprise": 0.01,
    "trace_decay": 0.54,
    "policy_rate": 0.33,
    "value_rate": 1.1,
    "query_rate": 2.4,
    "write_rate": 2.7,
    "query_gain": 0.06,
    "write_gain": 0.05,
    "temperature_start": 0.18,
    "credit_cap": 4.0,
}
_ONE_STATE_GRU: dict[str, Any] = {
    "learning_rate": 0.002,
    "discount": 0.946,
    "entropy": 0.026,
    "decay": 0.9974,
    "epsilon": 1e-10,
    "update_start": -0.6,
}


def _far_back(length: int) -> dict[str, Any]:
    """A memory that holds a whole episode, so that the query alone has to be learned; 32 are the least."""
    own = {"memory_size": max(32, length + 2), **_ONE_STATE}
    return {"episodic": tuple(own.items()), "recurrent": tuple(_ONE_STATE_GRU.items())}


def _bsuite(experiment: str, number: int, length: int, **options: Any) -> Task:
    """10,000 episodes, bsuite's own number; solved where bsuite's own score says so.

    That is where fewer than 37.5% of all episodes end in a mistake (three quarters of what chance makes): a mean return
    of more than .25 over the whole of training. A few episodes have that by chance: how soon is told by .95.
    """
    return Task(f"bsuite/{experiment}/{number}", 10_000 * (length + 1), 1.0, 0.0, 0.25, mark=0.95, **options)


def _popgym(name: str, low: float, needs: str = "recall", discount: float = 0.9, **rates: float) -> Task:
    """Rewards at every step that add up to ±1 over an episode: each is as small as the episode is long.

    They are scaled, and the values then need a critic without bounds and, being sums of many rewards, a short horizon.
    The bound on write weights keeps a run of chance from shutting out a kind of state for good.
    """
    every = (("discount", discount), ("critic_output", "linear"))
    own = (("log_weight_floor", -10.0), *rates.items())
    return Task(
        f"popgym-{name}-v0", 1_000_000, 1.0, low, 0.95, needs=needs, normalize_rewards=True, every=every, episodic=own
    )


# Explored on a copy of the environment, where this setting solved 192 of 192 seeds. In an episode of 415 steps a quick
# policy finds the answer by trying, without memory, and must unlearn it in the next, biases first; a quick
# query was found turned away from first states for good. So all of them are slow, and a larger memory holds the
# first state until the write has learnt to. A reward is for the last action alone: nothing is gained by a horizon.
_SLOWLY: dict[str, Any] = {
    "memory_size": 32,
    "discount": 0.0,
    "entropy": 0.014,
    "value_rate": 0.032,
    "policy_rate": 0.065,
    "query_rate": 0.11,
    "write_rate": 0.012,
    "bias_rate": 0.1,
    "policy_gain": 1.5,
    "write_gain": 0.1,
    "credit_cap": 1.0,
}


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
        1_000_000,
        1.0,
        low,
        0.9,
        options=options,
        normalize_observations=True,
        every=every,
        episodic=tuple(own.items()),
    )


_LENGTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 17, 20, 25, 30, 40, 50, 60, 70, 80, 90, 100)
_BITS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 17, 20, 25, 30, 40)
_MINIGRID = {"S7": 0.26, "S9": 0.20, "S11": 0.25, "S13": 0.17}

TASKS: dict[str, Task] = {
    **{f"memory_len-{n}": _bsuite("memory_len", k, n, **_far_back(n)) for k, n in enumerate(_LENGTHS)},
    # The question is a number, up to the number of bits: an input so large takes a smaller step.
    **{
        f"memory_size-{n}": _bsuite("memory_size", k, 2, episodic=(("learning_rate", 0.01),))
        for k, n in enumerate(_BITS)
    },
    "RepeatFirstEasy": _popgym("RepeatFirstEasy", -0.5, learning_rate=0.01),
    "RepeatFirstMedium": _popgym("RepeatFirstMedium", -0.5, **_SLOWLY),
    "RepeatPreviousEasy": _popgym("RepeatPreviousEasy", -0.5, "order"),
    "AutoencodeEasy": _popgym("AutoencodeEasy", -0.5, "order"),
    "CountRecallEasy": _popgym("CountRecallEasy", -0.9, "counting"),
    **{f"MiniGrid-Memory{size}": _minigrid(size, low) for size, low in _MINIGRID.items()},
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
            **_far_back(n),
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
