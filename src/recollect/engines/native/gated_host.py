"""The compiled agents with a GRU behind ``Host``'s interface, and the agents' own states from them and back."""

import math
from typing import Any

import jax
import numpy as np

from recollect.agents import realtime as realtime_definition
from recollect.agents import recurrent as recurrent_definition
from recollect.agents.base import Agent, why_unknown
from recollect.agents.gated import Decision
from recollect.agents.realtime import RealTimeActorCritic
from recollect.agents.recurrent import Past, RecurrentActorCritic, Unrolled
from recollect.engines.host import Live
from recollect.engines.native import realtime, recurrent
from recollect.engines.native.base import NativeHost, refuse_outside
from recollect.engines.native.gated import Sizes
from recollect.engines.native.gru import padded

SETTINGS = ("discount", "entropy", "decay", "epsilon")
KNOWN = {*SETTINGS, "width", "window", "learning_rate", "update_start", "initializer", "critic_start"}
CHOICES = {"critic_output": ("tanh", "linear")}
"""What is known of the agents: these options, and in these only some choices."""


class GatedHost(NativeHost):
    """What the hosts of the agents with a GRU share."""

    def __init__(self, agent: Any, observation_size: int, outputs: int, copies: int = 1):
        super().__init__(agent, observation_size, outputs, copies)
        linear = agent.critic_output == "linear"
        self.sizes = Sizes(observation_size, agent.width, outputs, getattr(agent, "window", 0), linear)
        self.settings = tuple(float(getattr(agent, name)) for name in SETTINGS)
        count = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(self._state.params))
        self.rates = np.full(count, agent.learning_rate, np.float32)

    def write_weights(self, flat: Any, observations: np.ndarray) -> np.ndarray:
        """NaN: these agents weigh nothing."""
        return np.full(observations.shape[:2], np.nan, np.float32)

    def _leaves(self, table: np.ndarray, like: Any) -> Any:
        """The pytree of the form of ``like`` whose leaves lie one after the other in the table's last axis."""
        leaves, tree = jax.tree.flatten(like)
        ends = np.cumsum([math.prod(leaf.shape) for leaf in leaves])
        parts = np.split(table, ends[:-1], axis=-1)
        return jax.tree.unflatten(
            tree,
            [part.reshape(*table.shape[:-1], *leaf.shape) for part, leaf in zip(parts, leaves, strict=True)],
        )

    def _table(self, tree: Any, axes: int = 1) -> np.ndarray:
        """The other way; the leaves have so many leading axes in common."""
        leaves = jax.tree.leaves(tree)
        return np.concatenate([leaf.reshape(*leaf.shape[:axes], -1) for leaf in leaves], axis=-1).astype(np.float32)


class RecurrentHost(GatedHost):
    """Independent copies of ``RecurrentActorCritic``."""

    @staticmethod
    def why_not(agent: Agent) -> str | None:
        """None where the agent differs from the default in what is known alone."""
        return why_unknown(agent, RecurrentActorCritic, KNOWN, CHOICES)

    def _begin(self, flat: recurrent.Flat, rows: np.ndarray, actions: np.ndarray) -> None:
        recurrent.begin_all(tuple(self.sizes), tuple(flat), rows, actions)

    def _step(self, flat: recurrent.Flat, rows: np.ndarray, learning: bool, actions: np.ndarray) -> int:
        return recurrent.step(tuple(self.sizes), self.rates, self.settings, tuple(flat), rows, learning, actions)

    def forget(self, flat: recurrent.Flat) -> recurrent.Flat:
        """End the episode everywhere without learning from it."""
        for k in range(self.copies):
            recurrent.forget(tuple(self.sizes), flat.hidden[k], flat.whole[k])
        return flat

    def unpack(self, flat: recurrent.Flat) -> Live:
        """The copies as the agent's own states, with a leading axis."""
        h, window, k = self.sizes.h, self.sizes.window, self.copies
        tables: Any = recurrent.Flat(*(table.copy() for table in flat))
        length, action, time = tables.whole.astype(np.int32).T.copy()
        hidden = tables.hidden.reshape(k, window + 1, -1)[:, :, :h]
        gates = tables.gates.reshape(k, window, 3, -1)[:, :, :, :h].reshape(k, window, 3 * h)
        past = Past(tables.observations.reshape(k, window, -1), length, hidden[:, 0])
        earlier: Any = np.where(np.arange(window)[:, None] < length[:, None, None], hidden[:, :window], np.float32(0))
        state = recurrent_definition.State(
            self._leaves(tables.theta, self._state.params),
            self._leaves(tables.squares, self._state.optimizer),
            past,
            Unrolled(hidden[np.arange(k), length], gates, earlier),
            Decision(tables.seen, action),
        )
        return Live(tables.key, time, state)

    def pack(self, live: Any) -> recurrent.Flat:
        """The other way."""
        live = jax.tree.map(lambda leaf: np.array(leaf), live)
        state, copies = live.agent, self.copies
        h, window, wide = self.sizes.h, self.sizes.window, padded(self.sizes.h)
        whole = np.stack([state.past.length, state.decision.action, live.time], axis=1).astype(np.int64)
        refuse_outside("lengths of the past", whole[:, recurrent.LENGTH], window)
        refuse_outside("actions", whole[:, recurrent.ACTION], self.outputs - 1)
        gates = np.zeros((copies, window, 3, wide), np.float32)
        gates[..., :h] = state.unrolled.gates.reshape(copies, window, 3, h)
        hidden = np.zeros((copies, window + 1, wide), np.float32)
        hidden[:, :window, :h] = state.unrolled.earlier
        hidden[np.arange(copies), whole[:, recurrent.LENGTH], :h] = state.unrolled.h
        hidden[:, 0, :h] = state.past.before
        return recurrent.Flat(
            self._table(state.params),
            self._table(state.optimizer),
            state.past.observations.reshape(copies, -1),
            gates.reshape(copies, -1),
            hidden.reshape(copies, -1),
            state.decision.observation,
            whole,
            live.key,
        )


class RealTimeHost(GatedHost):
    """Independent copies of ``RealTimeActorCritic``."""

    @staticmethod
    def why_not(agent: Agent) -> str | None:
        """None where the agent differs from the default in what is known alone."""
        return why_unknown(agent, RealTimeActorCritic, KNOWN, CHOICES)

    def _begin(self, flat: realtime.Flat, rows: np.ndarray, actions: np.ndarray) -> None:
        realtime.begin_all(tuple(self.sizes), tuple(flat), rows, actions)

    def _step(self, flat: realtime.Flat, rows: np.ndarray, learning: bool, actions: np.ndarray) -> int:
        return realtime.step(tuple(self.sizes), self.rates, self.settings, tuple(flat), rows, learning, actions)

    def forget(self, flat: realtime.Flat) -> realtime.Flat:
        """End the episode everywhere without learning from it."""
        flat.hidden[:] = 0.0
        flat.sensitivity[:] = 0.0
        return flat

    def unpack(self, flat: realtime.Flat) -> Live:
        """The copies as the agent's own states, with a leading axis."""
        s, h, k = self.sizes.s, self.sizes.h, self.copies
        tables: Any = realtime.Flat(*(table.copy() for table in flat))
        action, time = tables.whole.astype(np.int32).T.copy()
        sensitivity = tables.sensitivity.reshape(k, h, -1)[:, :, : 3 * h * (s + h + 1)]
        state = realtime_definition.State(
            self._leaves(tables.theta, self._state.params),
            self._leaves(tables.squares, self._state.optimizer),
            tables.hidden[:, :h],
            self._leaves(sensitivity, self._state.params.gru),
            Decision(tables.seen, action),
        )
        return Live(tables.key, time, state)

    def pack(self, live: Any) -> realtime.Flat:
        """The other way."""
        live = jax.tree.map(lambda leaf: np.array(leaf), live)
        state, s, h, copies = live.agent, self.sizes.s, self.sizes.h, self.copies
        whole = np.stack([state.decision.action, live.time], axis=1).astype(np.int64)
        refuse_outside("actions", whole[:, realtime.ACTION], self.outputs - 1)
        hidden = np.zeros((copies, padded(h)), np.float32)
        hidden[:, :h] = state.h
        sensitivity = np.zeros((copies, h, realtime.stride(s, h)), np.float32)
        sensitivity[:, :, : 3 * h * (s + h + 1)] = self._table(state.sensitivity, axes=2)
        return realtime.Flat(
            self._table(state.params),
            self._table(state.optimizer),
            hidden,
            sensitivity.reshape(copies, -1),
            state.decision.observation,
            whole,
            live.key,
        )
