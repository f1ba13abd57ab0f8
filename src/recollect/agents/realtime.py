"""The recurrent baseline with real-time recurrent learning: gradients carried forward, not back."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from recollect.agents.base import TimeStep, register
from recollect.agents.gated import Decision, GatedActorCritic, Parameters
from recollect.agents.networks import apply_gru

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
class RealTimeActorCritic(GatedActorCritic):
    """Online actor-critic with a GRU and real-time recurrent learning (Williams and Zipser 1989).

    The sensitivity ∂h_t/∂θ ← (∂h_t/∂h_{t−1}) ∂h_{t−1}/∂θ + ∂h_t/∂θ| is carried along, each term under the parameters of
    its own time step, so that no past is kept and none is cut off. Everything else is ``RecurrentActorCritic``.

    Args:
        width: units of the GRU and of each hidden layer; a step costs O(width⁴).
        learning_rate, decay, epsilon: of RMSProp.
        update_start: as in ``RecurrentActorCritic``.
        discount, entropy, activation, initializer, critic_start, critic_output, actions: as in
            ``EpisodicActorCritic``.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width > LARGEST_WIDTH:
            raise ValueError(
                f"width={self.width}: real-time recurrent learning costs width⁴ a step, {LARGEST_WIDTH} is the most; "
                "RecurrentActorCritic has no such bound"
            )

    def init(self, key: Array, observation_size: int, num_actions: int) -> State:
        """Fresh parameters, those of ``RecurrentActorCritic``, and an empty episode."""
        params, optimizer, decision = self._fresh(key, observation_size, num_actions)
        sensitivity = jax.tree.map(lambda leaf: jnp.zeros((self.width, *leaf.shape)), params.gru)
        return State(params, optimizer, jnp.zeros(self.width), sensitivity, decision)

    def hidden(self, state: State) -> Array:
        """The GRU's state after the newest observation."""
        return state.h

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
        decision = self._decide(state.params, observation, h, key)
        return state._replace(h=h, sensitivity=sensitivity, decision=decision), decision.action

    def update(self, state: State, timestep: TimeStep, key: Array, active: Array | bool = True) -> tuple[State, Array]:
        """As ``learn``, and whether the update was finite; one that is not is not made."""
        d_value, d_policy, d_h = self._directions(state.params, state.decision, state.h, timestep)
        d_gru = jax.tree.map(lambda leaf: jnp.tensordot(d_h, leaf, axes=1), state.sensitivity)
        direction = Parameters(d_value, d_policy, d_gru)
        params, optimizer, finite = self._move(state.params, state.optimizer, direction, active)
        return self.watch(state._replace(params=params, optimizer=optimizer), timestep, key), finite

    def watch(self, state: State, timestep: TimeStep, key: Array) -> State:
        """The hidden state ends with the episode."""
        del key
        over = timestep.terminated | timestep.truncated
        forgotten = jax.tree.map(lambda leaf: jnp.where(over, 0.0, leaf), (state.h, state.sensitivity))
        return state._replace(h=forgotten[0], sensitivity=forgotten[1])
