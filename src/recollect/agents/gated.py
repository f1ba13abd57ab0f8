"""What the agents with a GRU share: options, networks, and the gradient down to the hidden state.

They differ in how that gradient continues into the GRU: back through the episode (``recollect.agents.recurrent``), or
by a sensitivity that is carried along (``recollect.agents.realtime``).
"""

import abc
import dataclasses
import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from recollect.agents import explanation, td
from recollect.agents.base import Agent, TimeStep, Turn, choice, count, number
from recollect.agents.distributions import CATEGORICAL, Distribution
from recollect.agents.networks import ACTIVATIONS, GRU, INITIALIZERS, Network, apply_network, init_gru, init_network


class Parameters(NamedTuple):
    """Value and policy networks as in the episodic agent, and the GRU in place of its memory."""

    value: Network
    policy: Network
    gru: GRU


class Decision(NamedTuple):
    """What the agent did at the newest observation."""

    observation: Array
    action: Array


@dataclasses.dataclass(frozen=True)
class GatedActorCritic(Agent):
    """Base of the agents with a GRU in the place of the memory, updated by RMSProp at every step."""

    learned: ClassVar[tuple[str, ...]] = ("params", "optimizer")

    width: int = count(10)
    learning_rate: float = number(0.003, 0.0, 10.0, low_open=True)
    discount: float = number(0.9, 0.0, 1.0)
    entropy: float = number(0.0005, 0.0, 10.0)
    decay: float = number(0.9, 0.0, 1.0)
    epsilon: float = number(1e-8, 0.0, math.inf, low_open=True)
    update_start: float = number(0.0, -math.inf, math.inf)
    activation: str = choice("tanh", ACTIVATIONS)
    initializer: str = choice("normal", INITIALIZERS)
    critic_start: str = choice("zero", ("zero", "random"))
    critic_output: str = choice("tanh", ("tanh", "linear"))
    actions: Distribution = CATEGORICAL

    def _rms(self) -> Any:
        import optax

        return optax.scale_by_rms(decay=self.decay, eps=self.epsilon)

    def value(self, params: Parameters, s: Array) -> Array:
        """V(S_t), as ``critic_output`` says; the critic sees the current state only, as in the episodic agent."""
        v = apply_network(params.value, s, self.activation)[0]
        return jnp.tanh(v) if self.critic_output == "tanh" else v

    def policy_logits(self, params: Parameters, s: Array, h: Array) -> Array:
        """The logits of π(a | S_t, h_t)."""
        return apply_network(params.policy, jnp.concatenate([s, h]), self.activation)

    def _fresh(self, key: Array, observation_size: int, num_actions: int) -> tuple[Parameters, Any, Decision]:
        """Parameters, the optimizer's state, and a decision that was not taken yet."""
        s, a, h = observation_size, num_actions, self.width
        key_value, key_policy, key_gru = jax.random.split(key, 3)
        value = init_network(key_value, (s, h, 1), self.initializer)
        if self.critic_start == "zero":
            value = (*value[:-1], jax.tree.map(jnp.zeros_like, value[-1]))
        policy = init_network(key_policy, (s + h, h, h, a), self.initializer)
        gru = init_gru(key_gru, s, h, self.initializer)
        gru = gru._replace(update=gru.update._replace(bias=gru.update.bias + self.update_start))
        params = Parameters(value, policy, gru)
        return params, self._rms().init(params), Decision(jnp.zeros(s), self.actions.nothing())

    def _decide(self, params: Parameters, s: Array, h: Array, key: Array) -> Decision:
        logits = self.policy_logits(params, s, h)
        return Decision(s, self.actions.draw(logits, jax.random.uniform(key, (self.actions.draws,))))

    def td_error(self, params: Parameters, s: Array, timestep: TimeStep) -> Array:
        """δ of the step from S_t that ``timestep`` came of."""
        v_next = jnp.where(timestep.terminated, 0.0, self.value(params, timestep.observation))
        return td.td_error(timestep.reward, self.discount, v_next, self.value(params, s))

    @abc.abstractmethod
    def hidden(self, state: Any) -> Array:
        """The hidden state h_t that the last action was chosen by."""

    def explain(self, state: Any, timestep: TimeStep, turn: Turn | None = None) -> dict[str, Any]:
        """The hidden state and the decision; see ``recollect.agents.explanation``."""
        del turn  # there are no slots
        return explanation.of_hidden_state(self, state, timestep)

    def _directions(
        self, params: Parameters, decision: Decision, h: Array, timestep: TimeStep
    ) -> tuple[Network, Network, Array]:
        """Where this step's losses pull the value network, the policy network and h_t."""
        s, action = decision
        delta = self.td_error(params, s, timestep)

        def scores(value, policy, h):
            here = Parameters(value, policy, params.gru)
            logits = self.policy_logits(here, s, h)
            return self.value(here, s) + self.actions.log_probability(logits, action), self.actions.entropy(logits)

        _, pull = jax.vjp(scores, params.value, params.policy, h)
        return pull((delta, jnp.asarray(self.entropy, delta.dtype)))

    def _move(
        self, params: Parameters, optimizer: Any, direction: Parameters, active: Array | bool
    ) -> tuple[Parameters, Any, Array]:
        """One RMSProp step, unless what it led to were not finite; and whether it was."""
        scaled, squares = self._rms().update(direction, optimizer)
        moved = jax.tree.map(lambda p, d: p + self.learning_rate * d, params, scaled), squares
        finite = td.all_finite(moved)
        params, optimizer = jax.tree.map(
            lambda new, old: jnp.where(jnp.logical_and(finite, active), new, old), moved, (params, optimizer)
        )
        return params, optimizer, finite

    def learn(self, state: Any, timestep: TimeStep, key: Array, active: Array | bool = True) -> Any:
        """One RMSProp step along the gradient of this step's losses through the whole episode."""
        return self.update(state, timestep, key, active)[0]
