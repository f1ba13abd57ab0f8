"""The paper's baseline: the memory module replaced by a GRU, trained by full backpropagation through the episode."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from recollect.agents.base import TimeStep, count, register
from recollect.agents.gated import Decision, GatedActorCritic, Parameters
from recollect.agents.networks import GRU, Layer, apply_gru

MOST_ROWS = 8
"""Steps that one product of the gradients takes in, at most."""


class Past(NamedTuple):
    """The observations of the episode that gradients reach back through."""

    observations: Array  # [window, s], the newest at place ``length − 1``
    length: Array
    before: Array  # hidden state before the first of them


class Unrolled(NamedTuple):
    """The GRU run over ``Past``: its state now, and what backpropagation needs of each step."""

    h: Array  # [units]
    gates: Array  # [window, 3 units]: update, reset, candidate
    earlier: Array  # [window, units]: the hidden state before each step


class State(NamedTuple):
    """Everything that changes."""

    params: Parameters
    optimizer: Any
    past: Past
    unrolled: Unrolled  # of ``past`` under ``params``
    decision: Decision


@register
@dataclasses.dataclass(frozen=True)
class RecurrentActorCritic(GatedActorCritic):
    """Online actor-critic with a GRU, updated at every step by backpropagation through the whole episode so far.

    The hidden state is recomputed from the start of the episode under the current parameters at every step, and the
    gradient of that step's loss goes back through all of it. In episodes longer than ``window`` it goes back through
    the last ``window`` steps, so that memory does not grow with the episode.

    Args:
        width: units of the GRU and of each hidden layer.
        learning_rate: of RMSProp.
        discount: γ, for learning only.
        entropy: weight of the policy's entropy.
        decay, epsilon: of RMSProp; the paper does not say.
        update_start: added to the first biases of the update gate; below 0 the hidden state is kept for longer from the
            start (half of it a step at 0, .98 at −4). The paper does not say.
        window: longest stretch that gradients go back through.
        activation, initializer, critic_start, critic_output, actions: as in ``EpisodicActorCritic``.

    Paper: section 4, the recurrent baseline
    """

    window: int = count(32)

    def init(self, key: Array, observation_size: int, num_actions: int) -> State:
        """Fresh parameters and an empty episode."""
        params, optimizer, decision = self._fresh(key, observation_size, num_actions)
        past = Past(jnp.zeros((self.window, observation_size)), jnp.zeros((), jnp.int32), jnp.zeros(self.width))
        return State(params, optimizer, past, unroll(params.gru, past), decision)

    def _remember(self, params: Parameters, past: Past, s: Array) -> Past:
        """Append S_t; once the window is full its oldest step moves into the hidden state before it."""
        full = past.length >= self.window
        before = jnp.where(full, apply_gru(params.gru, past.before, past.observations[0]), past.before)
        kept = jnp.where(full, jnp.roll(past.observations, -1, axis=0), past.observations)
        length = jnp.minimum(past.length + 1, self.window)
        # What is not finite is kept as 0: left in the window after its episode, it would spoil later gradients.
        return Past(kept.at[length - 1].set(jnp.where(jnp.isfinite(s), s, 0.0)), length, before)

    def hidden(self, state: State) -> Array:
        """The GRU's state after the newest observation."""
        return state.unrolled.h

    def begin(self, state: State, observation: Array, key: Array) -> tuple[State, Array]:
        """Take in the observation, choose an action."""
        past = self._remember(state.params, state.past, observation)
        unrolled = unroll(state.params.gru, past)
        decision = self._decide(state.params, observation, unrolled.h, key)
        return state._replace(past=past, unrolled=unrolled, decision=decision), decision.action

    def update(self, state: State, timestep: TimeStep, key: Array, active: Array | bool = True) -> tuple[State, Array]:
        """As ``learn``, and whether the update was finite; one that is not is not made."""
        del key
        params, optimizer, past, unrolled, decision = state
        d_value, d_policy, d_h = self._directions(params, decision, unrolled.h, timestep)
        direction = Parameters(d_value, d_policy, backpropagate(params.gru, past, unrolled, d_h))
        params, optimizer, finite = self._move(params, optimizer, direction, active)
        # A run that only waits for others forgets at once: its episodes would cost the others their time.
        over = timestep.terminated | timestep.truncated | jnp.logical_not(active)
        return State(params, optimizer, _forget(past, over), unrolled, decision), finite

    def watch(self, state: State, timestep: TimeStep, key: Array) -> State:
        """The past ends with the episode; what was seen is in it already."""
        del key
        return state._replace(past=_forget(state.past, timestep.terminated | timestep.truncated))


def _forget(past: Past, over: Array) -> Past:
    return past._replace(length=jnp.where(over, 0, past.length), before=jnp.where(over, 0.0, past.before))


@jax.custom_batching.custom_vmap
def _longest(length: Array) -> Array:
    """The length itself; mapped over runs, the longest of theirs, one number for all.

    A mapped loop whose runs end at different times copies everything it carries at every turn to keep the finished
    ones as they are; with one end for all, the loops below only have to leave the few numbers of their own alone.
    """
    return length


@_longest.def_vmap
def _(axis_size, in_batched, lengths):
    del axis_size, in_batched
    return jnp.max(lengths), False


def unroll(gru: GRU, past: Past) -> Unrolled:
    """Run the GRU over the episode so far; places past its newest observation are 0."""
    window, inputs = past.observations.shape
    kernel = jnp.concatenate([layer.weight for layer in gru])
    bias = jnp.concatenate([layer.bias for layer in gru])
    from_input, recurrent = kernel[:, :inputs], kernel[:, inputs:]
    units = recurrent.shape[1]

    def step(k, carry):
        h, gates, earlier = carry
        a = from_input @ past.observations[k] + bias
        zr = jax.nn.sigmoid(a[: 2 * units] + recurrent[: 2 * units] @ h)
        z, r = zr[:units], zr[units:]
        h_tilde = jnp.tanh(a[2 * units :] + recurrent[2 * units :] @ (r * h))
        own = k < past.length
        gates = gates.at[k].set(jnp.where(own, jnp.concatenate([zr, h_tilde]), 0.0))
        earlier = earlier.at[k].set(jnp.where(own, h, 0.0))
        return jnp.where(own, (1 - z) * h + z * h_tilde, h), gates, earlier

    empty = jnp.zeros((window, 3 * units)), jnp.zeros((window, units))
    return Unrolled(*jax.lax.fori_loop(0, _longest(past.length), step, (past.before, *empty)))


def backpropagate(gru: GRU, past: Past, unrolled: Unrolled, d_h: Array) -> GRU:
    """Backpropagation through time: the gradient by the GRU's parameters, given that by h_t.

    The first loop carries only the gradient by the hidden state and notes that by each gate's input; the parameters'
    gradients are then products over the whole stretch, a few steps of it at a time. All loops run over the steps there
    are, not over the window, which differentiating a loop in reverse could not do; a test holds the two equal.
    """
    inputs = past.observations.shape[1]
    recurrent = jnp.concatenate([layer.weight[:, inputs:] for layer in gru])
    units = recurrent.shape[1]
    longest = _longest(past.length)

    def step(k, carry):
        d_h, d_gates = carry
        at = longest - 1 - k
        d_h_later, d_h = d_h, jnp.where(at < past.length, d_h, 0.0)
        h, gates = unrolled.earlier[at], unrolled.gates[at]
        z, r, h_tilde = gates[:units], gates[units : 2 * units], gates[2 * units :]
        d_candidate = d_h * z * (1 - h_tilde**2)
        d_seen = d_candidate @ recurrent[2 * units :]
        d_zr = jnp.concatenate([d_h * (h_tilde - h) * z * (1 - z), d_seen * h * r * (1 - r)])
        d_h = d_h * (1 - z) + d_seen * r + d_zr @ recurrent[: 2 * units]
        d_h = jnp.where(at < past.length, d_h, d_h_later)
        return d_h, d_gates.at[at].set(jnp.concatenate([d_zr, d_candidate]))

    _, d_gates = jax.lax.fori_loop(0, longest, step, (d_h, jnp.zeros_like(unrolled.gates)))
    by_input, by_hidden, by_bias = _products(past, unrolled, d_gates, longest)
    weights = jnp.split(jnp.concatenate([by_input, by_hidden], axis=1), 3)
    return GRU(*(Layer(w, b) for w, b in zip(weights, jnp.split(by_bias, 3), strict=True)))


def _products(past: Past, unrolled: Unrolled, d_gates: Array, longest: Array) -> tuple[Array, Array, Array]:
    """Gradients by the gates' weights (of the input, of the hidden state) and biases, given those by their inputs."""
    window, inputs = past.observations.shape
    units = unrolled.earlier.shape[1]
    rows = next(n for n in range(MOST_ROWS, 0, -1) if window % n == 0)

    def add(k, total):
        part = lambda x: jax.lax.dynamic_slice_in_dim(x, k * rows, rows)  # noqa: E731
        d, h, r = part(d_gates), part(unrolled.earlier), part(unrolled.gates)[:, units : 2 * units]
        d_zr, d_candidate = d[:, : 2 * units], d[:, 2 * units :]
        by_hidden = jnp.concatenate([d_zr.T @ h, d_candidate.T @ (r * h)])
        found = d.T @ part(past.observations), by_hidden, jnp.sum(d, axis=0)
        return jax.tree.map(jnp.add, total, found)

    nothing = jnp.zeros((3 * units, inputs)), jnp.zeros((3 * units, units)), jnp.zeros(3 * units)
    return jax.lax.fori_loop(0, (longest + rows - 1) // rows, add, nothing)
