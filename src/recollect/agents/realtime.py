"""The recurrent baseline with real-time recurrent learning: gradients carried forward, not back."""

import dataclasses
import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from recollect import learning
from recollect.actions import CATEGORICAL, Distribution
from recollect.agents.base import Agent, TimeStep, check_choice, check_count, check_number, register, traced
from recollect.agents.recurrent import Decision, Parameters
from recollect.networks import ACTIVATIONS, INITIALIZERS, apply_gru, apply_network, init_gru, init_network

LARGEST_WIDTH = 64
"""A step costs O(units⁴): beyond this, backpropagation through the episode is cheaper."""


class State(NamedTuple):
    """Everything that changes."""

    params: Parameters
    optimizer: Any
    h: Array  # [units]
    sensitivity: Any  # of h by every parameter of the GRU: the GRU's pytree, each leaf [units, …]
    decision: Decision


@register
@dataclasses.dataclass(frozen=True)
class RealTimeActorCritic(Agent):
    """Online actor-critic with a GRU and real-time recurrent learning (Williams and Zipser 1989).

    The sensitivity ∂h_t/∂θ ← (∂h_t/∂h_{t−1}) ∂h_{t−1}/∂θ + ∂h_t/∂θ| is carried along, each term under the parameters of
    its own time step, so that no past is kept and none is cut off. Everything else is ``RecurrentActorCritic``.

    Args:
        width: units of the GRU and of each hidden layer; a step costs O(width⁴).
        learning_rate, decay, epsilon: of RMSProp.
        discount, entropy, activation, initializer, critic_start, critic_output, actions: as in
            ``EpisodicActorCritic``.
    """

    learned: ClassVar[tuple[str, ...]] = ("params", "optimizer")

    width: int = 10
    learning_rate: float = dataclasses.field(default=0.003, metadata=traced())
    discount: float = dataclasses.field(default=0.9, metadata=traced())
    entropy: float = dataclasses.field(default=0.0005, metadata=traced())
    decay: float = dataclasses.field(default=0.9, metadata=traced())
    epsilon: float = dataclasses.field(default=1e-8, metadata=traced())
    activation: str = "tanh"
    initializer: str = "normal"
    critic_start: str = "zero"
    critic_output: str = "tanh"
    actions: Distribution = CATEGORICAL

    def __post_init__(self) -> None:
        check_count("width", self.width)
        if self.width > LARGEST_WIDTH:
            raise ValueError(
                f"width={self.width}: real-time recurrent learning costs width⁴ a step, {LARGEST_WIDTH} is the most; "
                "RecurrentActorCritic has no such bound"
            )
        check_number("learning_rate", self.learning_rate, 0.0, 10.0, low_open=True)
        check_number("discount", self.discount, 0.0, 1.0)
        check_number("entropy", self.entropy, 0.0, 10.0)
        check_number("decay", self.decay, 0.0, 1.0)
        check_number("epsilon", self.epsilon, 0.0, math.inf, low_open=True)
        check_choice("activation", self.activation, ACTIVATIONS)
        check_choice("initializer", self.initializer, INITIALIZERS)
        check_choice("critic_start", self.critic_start, ("zero", "random"))
        check_choice("critic_output", self.critic_output, ("tanh", "linear"))

    def _rms(self) -> optax.GradientTransformation:
        return optax.scale_by_rms(decay=self.decay, eps=self.epsilon)

    def value(self, params: Parameters, s: Array) -> Array:
        """V(S_t); the critic sees the current state only."""
        v = apply_network(params.value, s, self.activation)[0]
        return jnp.tanh(v) if self.critic_output == "tanh" else v

    def policy_logits(self, params: Parameters, s: Array, h: Array) -> Array:
        """The outputs for π(a | S_t, h_t)."""
        return apply_network(params.policy, jnp.concatenate([s, h]), self.activation)

    def init(self, key: Array, observation_size: int, num_actions: int) -> State:
        """Fresh parameters, those of ``RecurrentActorCritic``, and an empty episode."""
        s, a, h = observation_size, num_actions, self.width
        key_value, key_policy, key_gru = jax.random.split(key, 3)
        value = init_network(key_value, (s, h, 1), self.initializer)
        if self.critic_start == "zero":
            value = (*value[:-1], jax.tree.map(jnp.zeros_like, value[-1]))
        policy = init_network(key_policy, (s + h, h, h, a), self.initializer)
        params = Parameters(value, policy, init_gru(key_gru, s, h, self.initializer))
        sensitivity = jax.tree.map(lambda leaf: jnp.zeros((h, *leaf.shape)), params.gru)
        decision = Decision(jnp.zeros(s), self.actions.nothing())
        return State(params, self._rms().init(params), jnp.zeros(h), sensitivity, decision)

    def begin(self, state: State, observation: Array, key: Array) -> tuple[State, Array]:
        """Take in the observation, carry the sensitivity along, choose an action."""
        gru, h = state.params.gru, state.h
        # What is not finite is taken in as 0: left in the hidden state, it would spoil the rest of the episode.
        s = jnp.where(jnp.isfinite(observation), observation, 0.0)
        by_gru, by_h = jax.jacrev(lambda gru, h: apply_gru(gru, h, s), argnums=(0, 1))(gru, h)
        sensitivity = jax.tree.map(
            lambda old, direct: jnp.tensordot(by_h, old, axes=1) + direct, state.sensitivity, by_gru
        )
        h = apply_gru(gru, h, s)
        outputs = self.policy_logits(state.params, observation, h)
        action = self.actions.draw(outputs, jax.random.uniform(key, (self.actions.draws,)))
        return state._replace(h=h, sensitivity=sensitivity, decision=Decision(observation, action)), action

    def learn(self, state: State, timestep: TimeStep, key: Array, active: Array | bool = True) -> State:
        """One RMSProp step along the gradient of this step's losses through the whole episode."""
        params, optimizer = state.params, state.optimizer
        s, action = state.decision
        v_next = jnp.where(timestep.terminated, 0.0, self.value(params, timestep.observation))
        delta = learning.td_error(timestep.reward, self.discount, v_next, self.value(params, s))

        def scores(value, policy, h):
            here = Parameters(value, policy, params.gru)
            outputs = self.policy_logits(here, s, h)
            return self.value(here, s) + self.actions.log_probability(outputs, action), self.actions.entropy(outputs)

        _, pull = jax.vjp(scores, params.value, params.policy, state.h)
        d_value, d_policy, d_h = pull((delta, jnp.asarray(self.entropy, delta.dtype)))
        d_gru = jax.tree.map(lambda leaf: jnp.tensordot(d_h, leaf, axes=1), state.sensitivity)
        direction = Parameters(d_value, d_policy, d_gru)
        sound = jnp.logical_and(learning.all_finite(direction), active)
        direction = jax.tree.map(lambda d: jnp.where(sound, d, 0.0), direction)
        scaled, moved = self._rms().update(direction, optimizer)
        rate = jnp.where(sound, self.learning_rate, 0.0)
        params = jax.tree.map(lambda p, d: p + rate * d, params, scaled)
        optimizer = jax.tree.map(lambda new, old: jnp.where(sound, new, old), moved, optimizer)
        return self.watch(state._replace(params=params, optimizer=optimizer), timestep, key)

    def watch(self, state: State, timestep: TimeStep, key: Array) -> State:
        """The hidden state ends with the episode."""
        del key
        over = timestep.terminated | timestep.truncated
        forgotten = jax.tree.map(lambda leaf: jnp.where(over, 0.0, leaf), (state.h, state.sensitivity))
        return state._replace(h=forgotten[0], sensitivity=forgotten[1])
