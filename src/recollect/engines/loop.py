"""The online loop in JAX, for every agent and environment: a scan over time steps, mapped over runs, compiled once.

Metrics are gathered inside the loop (returns and lengths by episode, in bins) and after every ``RECORD`` steps (write
weights and queries), so that nothing grows with the length of an episode or of training, and nothing depends on how
many records one compiled call makes. A run's randomness comes from its own key and step number alone.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from recollect import prng
from recollect.agents import td
from recollect.agents.base import Agent
from recollect.engines import cuda, packing
from recollect.envs.base import Environment

RECORD = 500  # steps between two looks at the write weights and queries; part of the results, unlike the chunk size
ONE_BY_ONE = 64  # more runs are started at once, by a program that takes seconds to compile for each number of them


class Run(NamedTuple):
    """One run under way."""

    key: Array
    agent: Any
    env: Any
    steps: Array  # taken while episodes were still wanted
    faults: Array  # 0, or the first step with a reward or observation that is not finite; minus it for an update
    episode: Array  # finished so far
    score: Array  # return of the episode under way
    length: Array  # steps of the episode under way
    sums: Array  # [bins, 3]: sum of returns, sum of lengths, number of episodes


class Record(NamedTuple):
    """What is read off a run after every ``RECORD`` steps."""

    episode: Array
    steps: Array
    write_weights: Array  # [2]: mean over the informative, over the uninformative states; NaN without such
    query_vectors: Array  # [decisions, observation_size]; NaN without such


def start_run(agent: Agent, env: Environment, seed: Array, bins: int) -> Run:
    """A run before its first step."""
    key = prng.key(seed)
    key_agent, key_reset, key_begin, key_loop = jax.random.split(key, 4)
    agent_state = agent.init(key_agent, env.observation_size, env.num_actions)
    env_state, observation = env.reset(key_reset)
    agent_state, _ = agent.begin(agent_state, observation, key_begin)
    zero, nil = jnp.zeros((), jnp.int32), jnp.zeros(())
    faults = jnp.where(td.all_finite(observation), 0, 1).astype(jnp.int32)
    return Run(key_loop, agent_state, env_state, zero, faults, zero, nil, zero, jnp.zeros((bins, 3)))


def step_run(
    agent: Agent, env: Environment, run: Run, episodes: Array, bin_size: Array, cap: Array, max_steps: Array
) -> Run:
    """One time step of one run; one that has its episodes or steps continues without learning or being measured."""
    key_env, key_reset, key_learn, key_begin = (prng.at(run.key, run.steps, purpose) for purpose in range(4))
    env_state, timestep = env.step(run.env, run.agent.decision.action, key_env)
    score, length = run.score + timestep.reward, run.length + 1
    timestep = timestep._replace(truncated=timestep.truncated | ((length >= cap) & ~timestep.terminated))
    done = timestep.terminated | timestep.truncated
    active = (run.episode < episodes) & (run.steps < max_steps)
    agent_state, finite = agent.update(run.agent, timestep, key_learn, active)
    fresh_state, fresh_observation = env.reset(key_reset)
    env_state = jax.tree.map(lambda fresh, old: jnp.where(done, fresh, old), fresh_state, env_state)
    observation = jnp.where(done, fresh_observation, timestep.observation)
    agent_state, _ = agent.begin(agent_state, observation, key_begin)
    counted = done & active
    bin_ = jnp.minimum(run.episode // bin_size, run.sums.shape[0] - 1)
    given = td.all_finite((timestep.reward, timestep.observation, observation))
    fault = jnp.where(given, jnp.where(finite, 0, -1), 1) * (run.steps + 1)
    entry = jnp.where(counted, jnp.stack([score, length.astype(score.dtype), jnp.ones_like(score)]), 0.0)
    return Run(
        key=run.key,
        agent=agent_state,
        env=env_state,
        steps=run.steps + active.astype(jnp.int32),
        faults=jnp.where(active & (run.faults == 0), fault, run.faults),
        episode=run.episode + counted.astype(jnp.int32),
        score=jnp.where(done, 0.0, score),
        length=jnp.where(done, 0, length),
        sums=run.sums.at[bin_].add(entry),
    )


def read_record(agent: Any, env: Any, episode: Array, steps: Array, params: Any) -> Record:
    """The write weights and queries as they are now, for environments that name their telling states."""
    write_weights, query_vectors = jnp.full(2, jnp.nan), jnp.full((1, env.observation_size), jnp.nan)
    named = hasattr(env, "decision_states") and hasattr(agent, "query")
    if named and agent.encoder == "raw":  # else an observation alone does not make a state
        weight = jax.vmap(lambda s: jnp.exp(agent.log_write_weight(params, s)))
        kinds = (env.informative_states(), env.uninformative_states())
        write_weights = jnp.stack([jnp.mean(weight(jnp.asarray(k).reshape(-1, env.observation_size))) for k in kinds])
        query_vectors = jax.vmap(lambda s: agent.query(params, s))(jnp.asarray(env.decision_states()))
    return Record(episode, steps, write_weights, query_vectors)


@functools.lru_cache(maxsize=32)
def forms(tree: Any, env: Environment) -> tuple[Run, Record]:
    """The shapes of one run with one bin, and of its record; ``tree``: the agent's structure. Nothing is computed."""

    def made(agent: Agent, seed: Array) -> tuple[Run, Record]:
        run = start_run(agent, env, seed, 1)
        return run, read_record(agent, env, run.episode, run.steps, run.agent.params)

    return jax.eval_shape(made, agent_form(tree), SEED)


def agent_form(tree: Any) -> Any:
    """An agent of this structure, each hyperparameter by its shape."""
    return jax.tree.unflatten(tree, [jax.ShapeDtypeStruct((), jnp.float32)] * tree.num_leaves)


SEED, LIMITS = jax.ShapeDtypeStruct((), jnp.uint32), (jax.ShapeDtypeStruct((), jnp.int32),) * 4
"""The shapes of what `start_run` and `step_run` are told besides."""


def start(agents: Agent, env: Environment, seeds: Array, bins: int) -> Run:
    """Runs before their first step; a few of them by one program, which does not depend on how many there are."""
    if len(seeds) > ONE_BY_ONE:
        return start_together(agents, env, seeds, bins)
    hyperparameters, tree = jax.tree.flatten(jax.tree.map(np.asarray, agents))
    runs = [start_one(row, tree, env, seed) for *row, seed in zip(*hyperparameters, np.asarray(seeds), strict=True)]
    runs = jax.tree.map(lambda *leaves: _stack(leaves), *runs)
    return runs._replace(sums=jnp.zeros((len(seeds), bins, 3)))


def _stack(leaves: tuple[Array, ...]) -> Array:
    """The leaves of several runs as one, by no program of its own; random keys by their words."""
    if not jnp.issubdtype(leaves[0].dtype, jax.dtypes.prng_key):
        return jax.device_put(np.stack(leaves))
    words = np.stack([np.asarray(jax.random.key_data(key)) for key in leaves])
    return jax.random.wrap_key_data(jax.device_put(words), impl=jax.random.key_impl(leaves[0]))


@functools.partial(jax.jit, static_argnames=("tree", "env"))
def start_one(hyperparameters: list, tree: Any, env: Environment, seed: Any) -> Run:
    """One run before its first step."""
    return start_run(jax.tree.unflatten(tree, hyperparameters), env, seed, 1)


@functools.partial(jax.jit, static_argnames=("env", "bins"))
def start_together(agents: Agent, env: Environment, seeds: Array, bins: int) -> Run:
    """Runs before their first step, by one program for this number of them."""
    return jax.vmap(lambda agent, seed: start_run(agent, env, seed, bins))(agents, seeds)


@functools.partial(jax.jit, static_argnames=("env", "records"), donate_argnames=("runs",))
def advance_in_jax(agents: Agent, env: Environment, runs: Run, limits: tuple[Array, Array, Array, Array], records: int):
    """Take every run ``records`` times ``RECORD`` steps further, on whatever JAX runs on."""

    def one_run(agent, run):
        def one_step(run, _):
            return step_run(agent, env, run, *limits), None

        def one_record(run, _):
            run, _ = jax.lax.scan(one_step, run, length=RECORD)
            return run, read_record(agent, env, run.episode, run.steps, run.agent.params)

        return jax.lax.scan(one_record, run, length=records)

    return jax.vmap(one_run)(agents, runs)


@functools.partial(jax.jit, static_argnames="env")
def _read_snapshots(agents: Agent, env: Environment, snapshots: Array, marks: Array, params: Any) -> Record:
    """The records of an engine's snapshots, [run, record, …]."""

    def one_run(agent, params, snapshots, marks):
        def one_record(snapshot, mark):
            return read_record(agent, env, mark[0], mark[1], packing.parameters(snapshot, params))

        return jax.vmap(one_record)(snapshots, marks)

    return jax.vmap(one_run, (0, 0, 2, 2))(agents, params, snapshots, marks)


def advance(
    engine: str, agents: Agent, env: Environment, runs: Run, limits: tuple[int, int, int, int], records: int
) -> tuple[Run, Record]:
    """Take every run ``records`` times ``RECORD`` steps further."""
    if engine == "jax":
        return advance_in_jax(agents, env, runs, tuple(jnp.int32(x) for x in limits), records=records)
    if engine == "cpu":
        from recollect.engines import compiled

        return compiled.advance(agents, env, runs, limits, records)
    packed = packing.pack(env, runs)
    snapshots, marks = cuda.advance(agents, env, packed, limits, records, RECORD)  # type: ignore[arg-type]
    runs = packing.unpack(env, packed, runs)
    return runs, _read_snapshots(agents, env, snapshots, marks, runs.agent.params)


RECORDS_PER_CALL = {"jax": 20, "cpu": 40, "cuda": 200, "compiled-gpu": 20}
WHOLE = 40  # runs end after a whole number of so many records, however calls divide them, if none is longer


def rows(agent: Agent, runs: int) -> Agent:
    """The agent with a leading axis over runs on every traced hyperparameter, on the host."""

    def leaf(x):
        x = np.asarray(x, np.float32)
        if x.ndim > 1 or (x.ndim == 1 and x.shape[0] != runs):
            raise ValueError(f"a hyperparameter must be one number or one per run ({runs}), got shape {x.shape}")
        return np.broadcast_to(x, (runs,))

    return jax.tree.map(leaf, agent)


def broadcast(agent: Agent, runs: int) -> Agent:
    """As `rows`, where JAX computes."""
    return jax.tree.map(jnp.asarray, rows(agent, runs))
