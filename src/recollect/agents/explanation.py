"""What an agent tells of one time step, for looking at: the keys that ``Agent.explain`` may give, and who gives which.

Everything is optional but what is given has the shape that is said here, so that one recorder and one page serve every
agent: ``recollect.view`` writes what it finds. Arrays may be JAX's; n is the number of slots, k the length of a key.
"""

from typing import Any, TypedDict

import jax
import jax.numpy as jnp
from jax import Array

from recollect.agents import memory, scaling
from recollect.agents.base import TimeStep, Turn
from recollect.agents.episode_memory import Stored


class Held(TypedDict, total=False):
    """A memory of slots, as it was when the action was chosen."""

    filled: Array  # [n] bool
    order: Array  # [n] integers that grow with the time of arrival; 0 where a slot is empty
    keys: Array  # [n, k] what the query is compared with: the stored observation, or what is made of it
    marks: Array  # [n, ...] numbers that change whenever a slot is written to; keys and weights count where left out
    delay: Array  # [] steps from when an observation is seen until it can be recalled: 1, or 0
    log_weights: Array  # [n] the log of the write weight each was stored with
    log_weights_now: Array  # [n] of the weight it would be given now
    probabilities: Array  # [n] the query's
    policies: Array  # [n, outputs] the policy, had this slot been recalled
    recalled: Array  # [] the slot that was recalled; −1 for none
    query: Array  # [k] the score of slot i is Σ_j query_j keys_ij / temperature
    temperature: Array  # []
    credit: Array  # [n] what this step adds to the log of each stored state's write weight, per unit of step size
    log_write_weight: Array  # [] of the observation that was seen in this step
    write_chance: Array  # [] of this observation to be stored, as the memory is now
    stored_in: Array  # [] the slot that this observation is put in, by the law's own draw; −1 where it is not kept


class Explanation(TypedDict, total=False):
    """One time step.

    The elements of keys have the observation's names, unless the agent has a method ``key_names(observed)``.
    """

    policy: Array  # as ``Distribution.parameters`` has it: probabilities, or means and deviations
    value: Array  # [] V
    delta: Array  # [] the TD error
    hidden: dict[str, Array]  # vectors of hidden state by name
    memory: Held


def of_memory(agent: Any, state: Any, timestep: TimeStep, turn: Turn | None = None) -> dict[str, Any]:
    """For ``EpisodicActorCritic``.

    The credit of stored state i is δ times the quotient w(S_i; θ)/w_i whose gradient the write network follows, bounded
    by ``credit_cap``: with ``estimator="queried"`` the recalled state's alone.
    """
    params, stored, decision = state.params, state.memory, state.decision
    s = agent.see(params, decision.observation)
    delta = agent.td_error(state, timestep)
    log_now = jax.vmap(agent.log_write_weight, (None, 0))(params, stored.items)
    quotients = memory.credit(log_now, jnp.where(stored.filled, stored.log_weights, log_now), agent.credit_cap)
    credited = stored.filled
    if agent.estimator == "queried":
        credited = credited & (jnp.arange(stored.capacity) == decision.slot)
    held: dict[str, Array] = {
        "filled": stored.filled,
        "order": stored.ranks,
        "keys": stored.items,
        "delay": jnp.asarray(int(agent.write == "after")),
        "log_weights": stored.log_weights,
        "log_weights_now": jnp.where(stored.filled, log_now, -jnp.inf),
        "probabilities": agent.query_probabilities(params, s, stored),
        "policies": jax.vmap(lambda m: agent.actions.parameters(agent.policy_logits(params, s, m)))(stored.items),
        "recalled": jnp.where(stored.count > 0, decision.slot, -1),
        "query": agent.query(params, s),
        "temperature": agent.tau(params),
        "log_write_weight": agent.log_write_weight(params, s),
    }
    if agent.write == "after":
        held["write_chance"] = memory.LAWS[agent.memory].probabilities(*agent.shown(state, s))[0]
    if turn is not None:
        held["stored_in"] = _slot(_placed(agent, state, s, turn), stored.capacity)
    if agent.oracle_bit is None:
        held["credit"] = jnp.where(credited, delta * quotients, 0.0)
    explained = {
        "policy": agent.actions.parameters(agent.policy_logits(params, s, decision.recalled)),
        "value": agent.value(params, s),
        "delta": delta,
        "memory": held,
    }
    if state.encoder is not None and state.encoder.hidden is not None:
        explained["hidden"] = {"echo state": state.encoder.hidden}
    return explained


def _placed(agent: Any, state: Any, s: Array, turn: Turn) -> Array:
    """Where ``EpisodicActorCritic`` puts the state it decides in: before reading, or after it has learned."""
    if agent.write == "before":
        shown_to, key = turn.before, memory.early_key(turn.key_begin)
    else:
        shown_to, key = state, turn.key_watch
    stored, log_weight = agent.shown(shown_to, s)
    return memory.LAWS[agent.memory].place(stored, s, log_weight, key)[1]


def _slot(placed: Array, slots: int) -> Array:
    """The laws say "not kept" by the number of slots, the explanation by −1."""
    return jnp.where(placed < slots, placed, -1)


def of_general(agent: Any, state: Any, timestep: TimeStep, turn: Turn | None = None) -> dict[str, Any]:
    """For ``GeneralActorCritic``.

    Values, and the δ beside them, are in the rewards' own units, and of the longest horizon where there is one number.
    The credit is what the agent learns from: δ in units of returns, the mean over its horizons.
    """
    params, stored, decision = state.params, state.memory, state.decision
    actor, inputs = params.actor, decision.inputs
    features = agent.units.outputs(actor.units, state.units.actor)
    states, keys = agent.stored(state)
    logits = agent.query_logits(actor, inputs, features, keys, stored.filled)
    values = agent.values(params.critic, inputs, decision.reward, state.units.critic)
    errors, units = agent.td_errors(state, timestep, values, state.scales), scaling.deviation(state.scales.returns)
    longest = jnp.argmax(jnp.stack([jnp.asarray(d, jnp.float32) for d in agent.discounts]))
    log_now = jax.vmap(agent.log_write_weight, (None, 0))(params.write, states)
    quotients = memory.credit(log_now, jnp.where(stored.filled, stored.log_weights, log_now), agent.credit_cap)
    seen = agent.standard(state.scales, decision.observation)
    log_weight = agent.log_write_weight(params.write, seen)
    recalled = stored.filled & (jnp.arange(stored.capacity) == decision.slot)
    held = {
        "filled": stored.filled,
        "order": jnp.where(stored.filled, 1 + stored.items.time, 0),
        "keys": keys,
        "marks": stored.items.time,
        "delay": jnp.asarray(1),
        "log_weights": stored.log_weights,
        "log_weights_now": jnp.where(stored.filled, log_now, -jnp.inf),
        "probabilities": memory.query_probabilities(logits),
        "policies": jax.vmap(lambda m: agent.actions.parameters(agent.policy_outputs(actor, inputs, features, m)))(
            states
        ),
        "recalled": jnp.where(stored.count > 0, decision.slot, -1),
        "query": agent.query_network.apply(actor.query, jnp.concatenate([inputs, features])),
        "temperature": jnp.ones(()),
        "log_write_weight": log_weight,
        "credit": jnp.where(recalled, jnp.mean(errors) * quotients, 0.0),
    }
    if hasattr(agent.memory, "chance"):  # a memory of the user's own may have neither this nor ``placed``
        held["write_chance"] = agent.memory.chance(stored, states, seen, decision.observation, log_weight)
    if turn is not None and hasattr(agent.memory, "placed"):
        item = Stored(decision.observation, state.time)
        placed = agent.memory.placed(stored, states, seen, item, log_weight, turn.key_watch)
        held["stored_in"] = _slot(placed, stored.capacity)
    return {
        "policy": agent.actions.parameters(agent.policy_outputs(actor, inputs, features, decision.recalled)),
        "value": (units * values)[longest],
        "delta": (units * errors)[longest],
        "hidden": {"trace units": features, "V by horizon": units * values},
        "memory": held,
    }


def of_hidden_state(agent: Any, state: Any, timestep: TimeStep) -> dict[str, Any]:
    """For the agents with a GRU in the place of the memory."""
    params, s, h = state.params, state.decision.observation, agent.hidden(state)
    return {
        "policy": agent.actions.parameters(agent.policy_logits(params, s, h)),
        "value": agent.value(params, s),
        "delta": agent.td_error(params, s, timestep),
        "hidden": {"GRU": h},
    }
