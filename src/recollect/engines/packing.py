"""Training runs as two flat tables, of floats and of integers, with one column per run: what compiled loops work on.

Observations of the secret informant are rows of a small table, so states are kept as row numbers.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from recollect.agents.base import why_unknown
from recollect.agents.episodic import ONLY_AT_START, PARTS_OF_OTHERS, EpisodicActorCritic
from recollect.envs.secret_informant import SecretInformant

HYPERPARAMETERS = (
    "learning_rate",
    "discount",
    "trace_decay",
    "entropy",
    "value_rate",
    "policy_rate",
    "query_rate",
    "write_rate",
    "bias_rate",
    "terminal_value",
    "log_weight_floor",
    "surprise",
    "credit_cap",
)
KNOWN = {*HYPERPARAMETERS, "memory_size", "hidden", "oracle_bit", *ONLY_AT_START, *PARTS_OF_OTHERS}
CHOICES = {"memory": ("reservoir", "uniform", "fifo", "none"), "estimator": ("queried", "every")}
"""What the compiled loops know of the agent: these options, and in these only some choices."""


class Packed(NamedTuple):
    """Runs as tables; ``sums`` stays [run, bin, 3]."""

    floats: Array  # [F, run]: parameters, traces, log-weights, ratios (high, low, drop), score
    ints: Array  # [I, run]: items, ranks, seen, decision, environment, key, counters
    sums: Array


def why_not(agent: Any, env: Any) -> str | None:
    """Why the compiled loops cannot run this pair, or None if they can."""
    if type(env) is not SecretInformant:
        return f"it is written for SecretInformant, not for {type(env).__name__}"
    return why_unknown(agent, EpisodicActorCritic, KNOWN, CHOICES)


def hyperparameters(agents: EpisodicActorCritic) -> Array:
    """[hyperparameter, run]."""
    return jnp.stack([jnp.asarray(getattr(agents, name), jnp.float32) for name in HYPERPARAMETERS])


def query_and_write_parameters(agent: EpisodicActorCritic, env: SecretInformant) -> int:
    """How many parameters come from the query network on: query, write, temperature."""
    s, h = env.observation_size, agent.hidden
    return (h * s + h + s * h + s) + (h * s + h + h + 1) + 1


def _rows(env: SecretInformant, observations: Array) -> Array:
    matches = jnp.all(jnp.asarray(env.states) == observations[..., None, :], axis=-1)
    return jnp.argmax(matches, axis=-1).astype(jnp.int32)


def _flat(parts: list[Array], runs: int) -> Array:
    return jnp.concatenate([part.reshape(runs, -1) for part in parts], axis=1).T


def parameters(snapshot: Array, like: Any) -> Any:
    """One snapshot, [P], as the parameters of one run; those that it does not hold are ``like``'s."""
    leaves, structure = jax.tree.flatten((like.query, like.write, like.temperature))
    ends = np.cumsum([leaf.size for leaf in leaves])
    parts = [part.reshape(leaf.shape) for part, leaf in zip(jnp.split(snapshot, ends[:-1]), leaves, strict=True)]
    query, write, temperature = jax.tree.unflatten(structure, parts)
    return like._replace(query=query, write=write, temperature=temperature)


@functools.partial(jax.jit, static_argnames="env")
def pack(env: SecretInformant, run: Any) -> Packed:
    """Runs (with a leading axis) as tables."""
    agent, world = run.agent, run.env
    stored, decision = agent.memory, agent.decision
    law = [stored.law.high, stored.law.low, stored.law.drop] if stored.law else []
    count = run.steps.shape[0]
    key = jax.lax.bitcast_convert_type(jax.random.key_data(run.key), jnp.int32)
    floats = [*jax.tree.leaves((agent.params, agent.traces)), stored.log_weights, *law, run.score]
    ints = [_rows(env, stored.items), stored.ranks, stored.seen, _rows(env, decision.observation)]
    ints += [_rows(env, decision.recalled), decision.slot, decision.action, *jax.tree.leaves(world.instance)]
    ints += [world.position, world.correct.astype(jnp.int32), key, run.steps, run.episode, run.length, run.faults]
    return Packed(_flat(floats, count), _flat(ints, count), run.sums)


@functools.partial(jax.jit, static_argnames="env")
def unpack(env: SecretInformant, packed: Packed, like: Any) -> Any:
    """The tables as runs again; ``like`` gives the structure (and what never changes)."""
    table = jnp.asarray(env.states)

    def taker(rows: Array):
        at = 0

        def take(shape: tuple[int, ...]) -> Array:
            nonlocal at
            size = math.prod(shape[1:])
            part = rows[at : at + size].T.reshape(shape)
            at += size
            return part

        return take

    agent, world = like.agent, like.env
    take = taker(packed.floats)
    params, traces = jax.tree.map(lambda x: take(x.shape), (agent.params, agent.traces))
    log_weights = take(agent.memory.log_weights.shape)
    law = jax.tree.map(lambda x: take(x.shape), agent.memory.law)
    score = take(like.score.shape)
    take = taker(packed.ints)
    runs, n = agent.memory.ranks.shape
    items, ranks, seen = table[take((runs, n))], take((runs, n)), take((runs,))
    observation, recalled = table[take((runs,))], table[take((runs,))]
    decision = type(agent.decision)(observation, recalled, take((runs,)), take((runs,)))
    instance = jax.tree.map(lambda x: take(x.shape), world.instance)
    env_state = type(world)(instance, take((runs,)), take((runs,)).astype(bool))
    take((runs, 4))
    stored = type(agent.memory)(items, log_weights, ranks, seen, law)
    steps, episode, length, faults = (take((runs,)) for _ in range(4))
    return like._replace(
        agent=agent._replace(params=params, traces=traces, memory=stored, decision=decision),
        env=env_state,
        steps=steps,
        faults=faults,
        episode=episode,
        score=score,
        length=length,
        sums=packed.sums,
    )
