"""The episodic agent's compiled time step behind ``Host``'s interface, and the agent's own states from it and back."""

import math
from typing import Any

import jax
import numpy as np

from recollect.agents.base import Agent, why_unknown
from recollect.agents.episodic import (
    NETWORKS,
    ONLY_AT_START,
    PARTS_OF_OTHERS,
    Decision,
    EpisodicActorCritic,
    Parameters,
    State,
)
from recollect.agents.networks import Layer
from recollect.engines.host import Live
from recollect.engines.native.base import NativeHost, refuse_outside
from recollect.engines.native.episodic import Flat, Sizes, begin_all, step
from recollect.engines.native.memory import LAWS, clear
from recollect.reservoir import kernel

SETTINGS = ("discount", "trace_decay", "entropy", "surprise", "credit_cap", "terminal_value", "log_weight_floor")
SETTINGS += ("square_decay", "epsilon", "query_openness")
RATES = ("learning_rate", "bias_rate", *(f"{name}_rate" for name in NETWORKS))
KNOWN = {*SETTINGS, *RATES, "memory_size", "hidden", "products", "distinct", *ONLY_AT_START, *PARTS_OF_OTHERS}
CHOICES = {"memory": tuple(LAWS), "estimator": ("queried", "every"), "critic_output": ("tanh", "linear")}
CHOICES |= {"optimizer": ("sgd", "rmsprop")}
"""What is known of the agent: these options, and in these only some choices."""


class EpisodicHost(NativeHost):
    """Independent copies of ``EpisodicActorCritic``."""

    def __init__(self, agent: Any, observation_size: int, outputs: int, copies: int = 1):
        super().__init__(agent, observation_size, outputs, copies)
        self.sizes = Sizes(
            observation_size,
            agent.hidden,
            outputs,
            agent.memory_size,
            LAWS[agent.memory],
            agent.estimator == "every",
            agent.critic_output == "linear",
            float(agent.trace_decay) > 0,
            agent.products,
            agent.optimizer == "rmsprop",
            agent.distinct,
        )
        self.settings = tuple(float(getattr(agent, name)) for name in SETTINGS)
        self.rates = self._rates()

    @staticmethod
    def why_not(agent: Agent) -> str | None:
        """None where the agent differs from the default in what is known alone."""
        return why_unknown(agent, EpisodicActorCritic, KNOWN, CHOICES)

    def _rates(self) -> np.ndarray:
        """The step size of every parameter."""
        agent = self.agent

        def of(name: str) -> float:
            return float(getattr(agent, f"{name}_rate"))

        def parts(name: str, rate: float) -> list[np.ndarray]:
            found = []
            for layer in getattr(self._state.params, name):
                found.append(np.full(math.prod(layer.weight.shape), rate))
                found.append(np.full(layer.bias.shape, rate * float(agent.bias_rate)))
            return found

        networks = [part for name in NETWORKS for part in parts(name, of(name))]
        rates = np.concatenate([*networks, [of("query")], *parts("products", of("policy"))])
        return (rates * float(agent.learning_rate)).astype(np.float32)

    def _begin(self, flat: Flat, rows: np.ndarray, actions: np.ndarray) -> None:
        begin_all(tuple(self.sizes), tuple(flat), rows, actions)

    def _step(self, flat: Flat, rows: np.ndarray, learning: bool, actions: np.ndarray) -> int:
        return step(tuple(self.sizes), self.rates, self.settings, tuple(flat), rows, learning, actions)

    def forget(self, flat: Flat) -> Flat:
        """End the episode everywhere without learning from it."""
        for k in range(self.copies):
            clear(tuple(self.sizes), flat.memory[k], flat.whole[k])
            flat.traces[k] = 0.0
        return flat

    def write_weights(self, flat: Flat, observations: np.ndarray) -> np.ndarray:
        """[copy, observation]: w(S) of each copy's own observations."""
        params = self.unpack(flat).agent.params
        first, last = params.write
        hidden = np.tanh(np.einsum("khs,kos->koh", first.weight, observations) + first.bias[:, None])
        outputs = np.einsum("kh,koh->ko", last.weight[:, 0], hidden) + last.bias
        return 0.5 + 0.5 * np.tanh(outputs / 2)

    def unpack(self, flat: Flat) -> Live:
        """The copies as the agent's own states, with a leading axis."""
        n = self.sizes.n
        params, at = {}, 0
        for source in ("theta", "traces", *(["squares"] if self.sizes.rms else [])):
            table, at, networks = getattr(flat, source), 0, {}
            for name in (*NETWORKS, "products"):
                if name == "products":
                    networks["temperature"] = table[:, at].copy()
                    at += 1
                layers = []
                for layer in getattr(self._state.params, name):
                    out, into = layer.weight.shape
                    weight = table[:, at : at + out * into].reshape(-1, out, into).copy()
                    at += out * into
                    layers.append(Layer(weight, table[:, at : at + out].copy()))
                    at += out
                networks[name] = tuple(layers)
            params[source] = Parameters(**networks)
        m: Any = flat.memory
        ints: Any = flat.whole.astype(np.int32)
        seen: Any = flat.seen.copy()
        key: Any = flat.key.copy()
        law: Any = ()
        if self.agent.memory == "reservoir":
            law = kernel.Ratios(
                m[:, n : 2 * n + 1].copy(),
                m[:, 2 * n + 1 : 3 * n + 2].copy(),
                m[:, 3 * n + 2 :].reshape(-1, n, n).copy(),
            )
        stored = kernel.State(flat.items.copy(), m[:, :n].copy(), ints[:, :n], ints[:, n], law)
        decision = Decision(seen[:, 0], seen[:, 1], ints[:, n + 1], ints[:, n + 2])
        idle: Any = np.zeros(len(ints), np.float32)  # the reward rate, which the discounted objective has no use for
        state = State(params["theta"], params["traces"], stored, decision, idle, None, params.get("squares", ()))
        return Live(key, ints[:, n + 3], state)

    def pack(self, live: Any) -> Flat:
        """The other way."""
        live = jax.tree.map(lambda leaf: np.array(leaf), live)
        state, n, copies = live.agent, self.sizes.n, self.copies

        def vector(params: Any) -> np.ndarray:
            layers = [layer for name in NETWORKS for layer in getattr(params, name)]
            before, after = ([leaf for layer in part for leaf in layer] for part in (layers, params.products))
            parts = [*before, params.temperature, *after]
            return np.concatenate([np.reshape(x, (copies, -1)) for x in parts], axis=1)

        theta = vector(state.params).astype(np.float32)
        traces = vector(state.traces).astype(np.float32)
        squares = vector(state.squares).astype(np.float32) if self.sizes.rms else np.zeros((copies, 0), np.float32)
        reservoir = self.agent.memory == "reservoir"
        memory = np.zeros((copies, n + 2 * (n + 1) + (n * n if reservoir else 0)), np.float32)
        memory[:, :n] = state.memory.log_weights
        if reservoir:
            law = state.memory.law
            memory[:, n:] = np.concatenate([law.high, law.low, law.drop.reshape(copies, -1)], axis=1)
        d = state.decision
        ints = [state.memory.ranks, *(x[:, None] for x in (state.memory.seen, d.slot, d.action, live.time))]
        whole = np.concatenate(ints, axis=1).astype(np.int64)
        refuse_outside("ranks", whole[:, :n], n)
        refuse_outside("actions", whole[:, n + 2], self.outputs - 1)
        seen = np.stack([d.observation, d.recalled], axis=1)
        items = np.ascontiguousarray(state.memory.items)
        return Flat(theta, traces, items, memory, seen, whole, live.key, squares)
