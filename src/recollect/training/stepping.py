"""An agent and its environments, step by step: the loop itself, and everything that changes in it.

No number depends on how often the loop is left and entered again.
"""

import dataclasses
import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from recollect.agents.base import Agent
from recollect.engines import forking
from recollect.engines.host import RECENT, blank_rows
from recollect.training import arguments
from recollect.training.assembly import Parts
from recollect.training.env_pool import NotRepeatableError
from recollect.training.returned import EnvironmentFault


def _never() -> bool:
    return False


SAMPLED = 64
"""One step in so many is looked at for the query's entropy: it costs what a step does where JAX runs the agent."""


def next_sample(after: int) -> int:
    """The first step after ``after`` that is looked at: one in each block of ``SAMPLED``, at shifting places.

    At a fixed distance, episodes whose length divides it would always be met at the same place. The golden section
    spreads the places evenly, and no matter where a loop ended they are the same.

    >>> [next_sample(k) for k in (0, 103, 143)]
    [103, 143, 246]
    """
    block = after // SAMPLED
    here = [k * SAMPLED + int(SAMPLED * (k * 0.6180339887498949 % 1.0)) for k in (block, block + 1)]
    return here[0] if here[0] > after else here[1]


LARGE = 1e18
"""Observations beyond this have squares, or sums of them, that are beyond what float32 holds."""


def _smaller(agent: Any, largest: float = 0.0) -> str:
    """What to make smaller after an update that was not finite, as far as this agent has it.

    ``largest``: among the elements of its late observations.
    """
    if largest > LARGE:
        scaled = "normalize_observations=True or --normalize observations scales them"
        return f"observations as large as {largest:.0e} have squares that overflow float32 ({scaled})"
    fields = [field.name for field in dataclasses.fields(agent)]
    rates = [f"the rate of {name}" for name in fields if hasattr(getattr(agent, name), "rate")]
    rates = ["learning_rate"] if "learning_rate" in fields else rates
    fix = "rewards may be too large (normalize_rewards=True or --normalize rewards scales them)"
    return f"{fix}, or {', '.join(rates)}" if rates else fix


class Stepping:
    """The state of one agent (or several) in the middle of their episodes, and how it moves."""

    def __init__(self, parts: Parts):
        self.source, self.agent, self.vector, self.actions = parts.source, parts.agent, parts.vector, parts.actions
        self.observation_space, self.action_space = parts.observation_space, parts.action_space
        self.seed, self.copies, self.shared = parts.seed, parts.copies, parts.shared
        self.normalizer, self.fleet, self.host = parts.normalizer, parts.fleet, parts.host
        self.choice = parts.choice
        self._state: Any = None  # of all copies, as the host has it; made when it is first asked for
        self._drawn: Any = None  # actions chosen and not yet taken; None between episodes
        self._away = False  # whether the environments are still to be brought to where the agent is, after ``load``
        self._allow_inexact, self._strict = False, True
        self._rows = blank_rows(self.copies, self.vector.size)
        self._recent = np.zeros((self.copies, RECENT, self.vector.size), np.float32)
        self._entropies = np.zeros((self.copies, 2))  # of the query since the last row of metrics: their sum, how many
        self.steps, self.exact = 0, True

    @property
    def _packed(self) -> Any:
        if self._state is None:
            self._state = self.host.start(np.uint32(self.seed))
        return self._state

    @_packed.setter
    def _packed(self, state: Any) -> None:
        self._state = state

    @property
    def seeds(self) -> list[int]:
        """Of the agents: one, or where copies learn independently one for each."""
        return [self.seed + k for k in range(1 if self.shared else self.copies)]

    @property
    def episodes(self) -> list[int]:
        """How many episodes each copy has ended."""
        return list(self.fleet.episodes)

    @property
    def env(self) -> Any:
        """The environment that is learned in (the first, if there are several): to look at.

        Whoever resets or steps it takes the agent out of its episode: training notices, and brings the environment back
        to where it was, or begins a new episode where it cannot be repeated.
        """
        return self.source.first

    def state(self, copy: int = 0) -> Any:
        """The agent's state, as its own ``init`` and ``step`` return it."""
        forking.refuse()
        copy = arguments.copy(copy, self.copies)
        live = jax.tree.map(lambda leaf: leaf[copy], self.host.unpack(self._packed))
        return live.agent

    def advance(self, steps: int) -> None:
        """Learn without writing anything down: the loop alone, for measuring it and for loops of your own."""
        steps = arguments.count("steps", steps)
        self.take_up()
        self._advance(self.steps + steps)

    def take_up(self) -> list[str]:
        """Bring the environments to where the agent is; ``learn`` and ``advance`` do so by themselves.

        That is needed after ``load``, and where someone else has reset or stepped an environment. Each is reset with
        the seed of the episode that was under way and given the actions that were taken in it. Returns why a new
        episode begins instead, if that was allowed.
        """
        forking.refuse()
        touched, self.fleet.touched = self.fleet.touched and self._drawn is not None, False
        if not self._away and not touched:
            return []
        try:
            if (why := self.fleet.not_repeatable()) is not None:
                raise NotRepeatableError(f"{self.source.name}: {why}")
            self.fleet.replay(np.asarray(self._drawn))
        except NotRepeatableError as error:
            if self._away and not self._allow_inexact:
                raise NotRepeatableError(
                    f"{error}; training would not continue bit for bit: --allow-inexact (in Python allow_inexact=True) "
                    "continues in a new episode and marks the run as not exact"
                ) from error
            if touched:
                warnings.warn(
                    f"{self.source.name} was reset or stepped outside of training, and the episode that was under way "
                    f"cannot be repeated: a new one begins ({error})",
                    RuntimeWarning,
                    stacklevel=3,
                )
            self._drawn, self._away, self.exact = None, False, False
            return [str(error)]
        self._away = False
        return []

    def _begin_episodes(self) -> None:
        size = self.vector.size
        self.fleet.reset(self._rows)
        self._packed, self._drawn = self.host.begin(self.host.forget(self._packed), self._rows[:, size : 2 * size])

    def _advance(self, until: int, deadline: float = math.inf, asked: Callable[[], bool] = _never) -> None:
        """Up to that step, or that time, or until asked to end: nothing but the environments' step and the agent's."""
        if self._drawn is None:
            self._begin_episodes()
        fleet, rows, step, packed, drawn = self.fleet, self._rows, self.host.step, self._packed, self._drawn
        each, clock = self.copies if self.shared else 1, time.monotonic
        size, recent, at, bad, strict = self.vector.size, self._recent, self.steps, -1, self._strict
        has_query = type(self.agent).query_entropy is not Agent.query_entropy
        sample = next_sample(at) if has_query else math.inf
        try:
            while at < until and bad < 0:
                fleet.step(np.asarray(drawn), rows)
                if not fleet.waits:
                    packed, drawn, bad = step(packed, rows)
                recent[:, at // each % RECENT] = rows[:, :size]
                at += each
                bad = int(bad) if strict else -1
                if at >= sample:
                    self._sample_queries(packed)
                    sample = next_sample(at)
                if asked() or clock() >= deadline:
                    break
        except BaseException as error:
            # A step that failed was taken in none of the agents, but their environments are somewhere in the middle.
            drawn = None
            self.exact = self.exact and isinstance(error, EnvironmentFault)
            raise
        finally:
            self._packed, self._drawn, self.steps = packed, drawn, at
        if bad >= 0:
            what = "the update was not finite, and nothing was learned from that step"
            largest = max(np.abs(recent[bad]).max(), np.abs(rows[bad, : 2 * size]).max())
            what = f"{what}: {_smaller(self.agent, float(largest))}"
            raise EnvironmentFault(self.source.name, fleet.seeds[bad][0], fleet.steps, what)

    def _sample_queries(self, packed: Any) -> None:
        """Take down how undecided the query of each copy is at this step; at the same steps wherever a loop ended."""
        found = np.asarray(self.host.query_entropies(packed), float)
        known = np.isfinite(found)
        self._entropies += np.stack([np.where(known, found, 0.0), known], axis=1)

    def close(self) -> None:
        """Close the environments."""
        self.fleet.close()
