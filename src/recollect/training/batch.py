"""One online loop for every agent: a scan over time steps, mapped over runs, compiled once.

Metrics are gathered inside the loop (returns and lengths by episode, in bins) and after every ``RECORD`` steps (write
weights and queries), so that nothing grows with the length of an episode or of training, and nothing depends on how
many records one compiled call makes. A run's randomness comes from its own key and step number alone.
"""

import dataclasses
import functools
import math
import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from recollect import prng
from recollect.agents import td
from recollect.agents.base import Agent
from recollect.engines import cpu, cuda, packing
from recollect.envs.base import Environment
from recollect.errors import RecollectError
from recollect.store import trees

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


@dataclasses.dataclass(frozen=True)
class Result:
    """What came of training; arrays are [seed, bin, …], NaN where a seed did not get so far.

    ``episodes``: [bin], the episode at which each bin ends. ``returns``, ``lengths``: means over the bin's episodes.
    ``write_weights`` [..., 2]: informative, uninformative. ``query_vectors`` [..., decisions, observation_size].
    ``steps`` [seed]: steps taken. ``finished`` [seed]: whether all episodes were done within ``max_steps``.
    ``agent_states``: the trained states, with a leading axis over seeds.
    """

    seeds: tuple[int, ...]
    episodes: np.ndarray
    returns: np.ndarray
    lengths: np.ndarray
    write_weights: np.ndarray
    query_vectors: np.ndarray
    steps: np.ndarray
    finished: np.ndarray
    agent_states: Any


class Progress(NamedTuple):
    """Where training stands, after each compiled call."""

    steps: int  # of the longest run
    total_steps: int  # over all runs
    episodes: np.ndarray  # [seed]
    new_bins: list[dict]  # bins that were completed by this call, one entry a seed and bin
    recent_return: float  # mean over seeds of the last complete bin
    snapshot: Callable[[], dict[str, np.ndarray]] = dict  # all that is needed to go on; call it before the next report


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
    """One time step of one run; one that has its episodes or steps goes on without learning or being measured."""
    key_env, key_reset, key_learn, key_begin = (prng.at(run.key, run.steps, purpose) for purpose in range(4))
    env_state, timestep = env.step(run.env, run.agent.decision.action, key_env)
    score, length = run.score + timestep.reward, run.length + 1
    timestep = timestep._replace(truncated=timestep.truncated | ((length >= cap) & ~timestep.terminated))
    done = timestep.terminated | timestep.truncated
    active = (run.episode < episodes) & (run.steps < max_steps)
    agent_state, sound = agent.update(run.agent, timestep, key_learn, active)
    fresh_state, fresh_observation = env.reset(key_reset)
    env_state = jax.tree.map(lambda fresh, old: jnp.where(done, fresh, old), fresh_state, env_state)
    observation = jnp.where(done, fresh_observation, timestep.observation)
    agent_state, _ = agent.begin(agent_state, observation, key_begin)
    counted = done & active
    bin_ = jnp.minimum(run.episode // bin_size, run.sums.shape[0] - 1)
    given = td.all_finite((timestep.reward, timestep.observation, observation))
    fault = jnp.where(given, jnp.where(sound, 0, -1), 1) * (run.steps + 1)
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


def _start(agents: Agent, env: Environment, seeds: Array, bins: int) -> Run:
    """Runs before their first step; a few of them by one program, which does not depend on how many there are."""
    if len(seeds) > ONE_BY_ONE:
        return _start_together(agents, env, seeds, bins)
    hyperparameters, tree = jax.tree.flatten(jax.tree.map(np.asarray, agents))
    runs = [_start_one(row, tree, env, seed) for *row, seed in zip(*hyperparameters, np.asarray(seeds), strict=True)]
    runs = jax.tree.map(lambda *leaves: jax.device_put(np.stack(leaves)), *runs)
    key = jax.random.wrap_key_data(runs.key, impl=prng.IMPL)
    return runs._replace(key=key, sums=jnp.zeros((len(seeds), bins, 3)))


@functools.partial(jax.jit, static_argnames=("tree", "env"))
def _start_one(hyperparameters: list, tree: Any, env: Environment, seed: Any) -> Run:
    run = start_run(jax.tree.unflatten(tree, hyperparameters), env, seed, 1)
    return run._replace(key=jax.random.key_data(run.key))


@functools.partial(jax.jit, static_argnames=("env", "bins"))
def _start_together(agents: Agent, env: Environment, seeds: Array, bins: int) -> Run:
    return jax.vmap(lambda agent, seed: start_run(agent, env, seed, bins))(agents, seeds)


@functools.partial(jax.jit, static_argnames=("env", "records"), donate_argnames=("runs",))
def _advance(agents: Agent, env: Environment, runs: Run, limits: tuple[Array, Array, Array, Array], records: int):
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


def choose_engine(agent: Agent, env: Any, engine: str = "auto") -> str:
    """The fastest engine that knows this agent and environment on this machine, or the one asked for, if it does."""
    known = packing.supported(agent, env)
    can = {"cuda": known and cuda.able(agent, env), "cpu": known and jax.default_backend() == "cpu", "jax": True}
    if engine == "auto":
        return next(name for name, able in can.items() if able)
    if engine not in can:
        raise ValueError(f"engine={engine!r}: choose one of 'auto', {', '.join(map(repr, can))}")
    if not can[engine]:
        raise ValueError(f"engine={engine!r} cannot run this agent and environment here; engine='auto' finds one")
    return engine


def advance(
    engine: str, agents: Agent, env: Environment, runs: Run, limits: tuple[int, int, int, int], records: int
) -> tuple[Run, Record]:
    """Take every run ``records`` times ``RECORD`` steps further."""
    if engine == "jax":
        return _advance(agents, env, runs, tuple(jnp.int32(x) for x in limits), records=records)
    packed = packing.pack(env, runs, apart=engine == "cpu")
    if engine == "cpu":
        packed = jax.tree.map(np.array, packed)
    snapshots, marks = ENGINES[engine](agents, env, packed, limits, records, RECORD)
    runs = packing.unpack(env, packed, runs)
    return runs, _read_snapshots(agents, env, snapshots, marks, runs.agent.params)


ENGINES = {"cuda": cuda.advance, "cpu": cpu.advance}
RECORDS_PER_CALL = {"jax": 20, "cpu": 40, "cuda": 200}


def _broadcast(agent: Agent, runs: int) -> Agent:
    """The agent with a leading axis over runs on every traced hyperparameter."""

    def leaf(x):
        x = jnp.asarray(x, jnp.float32)
        if x.ndim > 1 or (x.ndim == 1 and x.shape[0] != runs):
            raise ValueError(f"a hyperparameter must be one number or one a run ({runs}), got shape {x.shape}")
        return jnp.broadcast_to(x, (runs,))

    return jax.tree.map(leaf, agent)


def _copied(leaf: Any) -> Array:
    """A copy that compiled calls may write over; ``jnp.array`` would compile a program for each shape."""
    return jax.device_put(leaf.copy()) if isinstance(leaf, np.ndarray) else jnp.array(leaf)


def _check(seeds: Sequence[int], episodes: int, bins: int | None, **at_least_1: int | None) -> None:
    for name, value in {"episodes": episodes, "bins": bins, **at_least_1}.items():
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if not seeds:
        raise ValueError("seeds must name at least one seed")
    if len(set(seeds)) != len(seeds):
        raise ValueError("seeds must differ from one another")
    if any(not 0 <= seed < 2**31 for seed in seeds):
        raise ValueError("seeds must lie between 0 and 2^31 - 1")
    if bins is not None and episodes % bins:
        raise ValueError(f"episodes={episodes} must be a multiple of bins={bins}")


def _refuse_faults(env: Environment, seeds: Sequence[int], faults: np.ndarray) -> None:
    if faults.any():
        at = int(np.argmax(faults != 0))
        what = "the environment gave a reward or an observation that is" if faults[at] > 0 else "the update was"
        raise RecollectError(
            f"seed {seeds[at]}: {what} not finite at step {abs(int(faults[at])):,} of {env!r}; "
            "nothing was learned from that step"
        )


def _refuse_too_large(needed: int, runs: int) -> None:
    """Refuse what cannot fit, by its bytes, before any of them is asked for."""
    stats = jax.devices()[0].memory_stats() or {}
    there = stats.get("bytes_limit")
    if there is None and hasattr(os, "sysconf"):
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if there is not None and needed > there:
        raise ValueError(
            f"{runs} runs need {needed:,} bytes of state, this machine has {there:,}: "
            "take a smaller memory_size, or fewer seeds at once"
        )


def state_like(agent: Agent, env: Environment, seeds: int, bins: int) -> dict[str, Any]:
    """The form of what ``Progress.snapshot`` returns, found without computing or compiling anything."""
    agents = jax.eval_shape(lambda: _broadcast(agent, seeds))
    numbers = jax.ShapeDtypeStruct((seeds,), jnp.uint32)
    runs = jax.eval_shape(lambda a, s: _start_together(a, env, s, bins), agents, numbers)
    read = jax.vmap(lambda a, r: read_record(a, env, r.episode, r.steps, r.agent.params))
    record = jax.eval_shape(read, agents, runs)
    collected = _Collected(seeds, bins, 1, record.query_vectors.shape[1:]).arrays()
    return {"runs": runs, "collected": collected, "taken": np.int64(0)}


def train_iter(
    agent: Agent,
    env: Environment,
    episodes: int,
    seeds: Sequence[int],
    *,
    max_steps: int | None = None,
    max_episode_length: int | None = None,
    bins: int | None = None,
    records_per_call: int | None = None,
    engine: str = "auto",
    state: Mapping[str, np.ndarray] | None = None,
) -> Iterator[Progress | Result]:
    """Train, reporting after every compiled call; the last thing yielded is the ``Result``. Arguments as ``train``.

    ``state``: what ``Progress.snapshot`` returned, to go on from there bit for bit. One that is of another agent,
    environment or number of seeds or bins is a ``FileError``, before anything is compiled.
    """
    seeds = tuple(operator.index(s) for s in seeds)
    lengths = {"max_steps": max_steps, "max_episode_length": max_episode_length, "records_per_call": records_per_call}
    _check(seeds, episodes, bins, **lengths)
    bins = bins or default_bins(episodes)
    agents = _broadcast(agent, len(seeds))
    bin_size = episodes // bins
    endless = 2**31 - 1
    limits = (episodes, bin_size, max_episode_length or endless, max_steps or endless)
    engine = choose_engine(agent, env, engine)
    records_per_call = records_per_call or RECORDS_PER_CALL[engine]
    like = state_like(agent, env, len(seeds), bins)
    _refuse_too_large(sum(math.prod(s) * np.dtype(d).itemsize for s, d in trees.shapes(like).values()), len(seeds))
    collected = _Collected(len(seeds), bins, bin_size, like["collected"]["query_vectors"].shape[2:])
    if state is None:
        runs, taken = _start(agents, env, jnp.array(seeds, jnp.uint32), bins), 0
        _refuse_faults(env, seeds, np.asarray(runs.faults))
    else:
        saved = trees.restore(state, like)
        collected.restore(saved["collected"])
        runs, taken = jax.tree.map(_copied, saved["runs"]), int(saved["taken"])

    def over(done: np.ndarray) -> bool:
        return bool((done >= episodes).all()) or (max_steps is not None and taken >= max_steps)

    def snapshot() -> dict[str, np.ndarray]:
        return trees.flatten({"runs": runs, "collected": collected.arrays(), "taken": np.int64(taken)})

    while not over(np.asarray(runs.episode)):
        runs, records = advance(engine, agents, env, runs, limits, records_per_call)
        taken += records_per_call * RECORD
        _refuse_faults(env, seeds, np.asarray(runs.faults))
        new_bins = collected.add(seeds, jax.device_get(records), np.asarray(runs.sums))
        done = np.asarray(runs.episode)
        total = int(np.sum(np.asarray(runs.steps)))
        yield Progress(taken, total, done, new_bins, collected.recent_return(), snapshot)
    yield collected.result(seeds, runs, episodes)


def train(
    agent: Agent,
    env: Environment,
    episodes: int,
    seeds: Sequence[int] = (0,),
    *,
    max_steps: int | None = None,
    max_episode_length: int | None = None,
    bins: int | None = None,
    records_per_call: int | None = None,
    engine: str = "auto",
    on_progress: Callable[[Progress], None] | None = None,
) -> Result:
    """Train one run a seed, all at once.

    Args:
        agent: what learns; a traced hyperparameter may be an array with one entry a seed.
        env: a pure-JAX environment.
        episodes: how many episodes each run trains for.
        seeds: one run each, different whole numbers.
        max_steps: end runs that have not finished their episodes after so many steps;
            None lets a run that loops go on for ever.
        max_episode_length: truncate longer episodes, and bootstrap there; None for no cap.
        bins: how many equal parts the metrics are averaged over (default: the largest number up to 100 that divides).
        records_per_call: how much one compiled call does; results do not depend on it. None: what suits the engine.
        engine: what runs the loop: "jax" runs everything; "cpu" and "cuda" run the episodic agent on the secret
            informant, the same to rounding and many times faster; "auto" takes the fastest there is.
        on_progress: called after each compiled call.
    """
    result = None
    for report in train_iter(
        agent,
        env,
        episodes,
        seeds,
        max_steps=max_steps,
        max_episode_length=max_episode_length,
        bins=bins,
        records_per_call=records_per_call,
        engine=engine,
    ):
        if isinstance(report, Result):
            result = report
        elif on_progress is not None:
            on_progress(report)
    assert result is not None
    return result


@functools.partial(jax.jit, static_argnames=("env", "blocks", "block"))
def _live(agents: Agent, env: Environment, seeds: Array, blocks: int, block: int) -> tuple[Array, Any]:
    def one_life(agent, seed):
        start = start_run(agent, env, seed, 1)

        def one_step(carry, _):
            t, agent_state, env_state, total = carry
            key_env, _, key_learn, key_begin = (prng.at(start.key, t, purpose) for purpose in range(4))
            env_state, timestep = env.step(env_state, agent_state.decision.action, key_env)
            agent_state = agent.learn(agent_state, timestep, key_learn)
            agent_state, _ = agent.begin(agent_state, timestep.observation, key_begin)
            return (t + 1, agent_state, env_state, total + timestep.reward), None

        def one_block(carry, _):
            (t, agent_state, env_state, total), _ = jax.lax.scan(one_step, (*carry, jnp.zeros(())), length=block)
            return (t, agent_state, env_state), total / block

        first = (jnp.zeros((), jnp.int32), start.agent, start.env)
        (_, agent_state, _), rates = jax.lax.scan(one_block, first, length=blocks)
        return rates, agent_state

    return jax.vmap(one_life)(agents, seeds)


def live(
    agent: Agent, env: Environment, steps: int, seeds: Sequence[int], *, blocks: int = 20
) -> tuple[np.ndarray, Any]:
    """Lives without ends, one a seed: reward per step [seed, block], over equal blocks, and the agents' last states.

    For environments that never end an episode (``recollect.envs.continuing``): nothing is ever reset.
    """
    _check(seeds, steps, blocks)
    rates, states = _live(_broadcast(agent, len(seeds)), env, jnp.array(seeds, jnp.uint32), blocks, steps // blocks)
    return np.asarray(rates), states


def default_bins(episodes: int) -> int:
    """The largest number of equal parts up to 100."""
    return next(b for b in range(min(100, episodes), 0, -1) if episodes % b == 0)


class _Collected:
    """Metrics by bin, put together from the records as they come."""

    def __init__(self, runs: int, bins: int, bin_size: int, queries: tuple[int, ...]):
        self.bins, self.bin_size = bins, bin_size
        self.complete = np.zeros(runs, np.int64)
        self.returns = np.full((runs, bins), np.nan)
        self.lengths = np.full((runs, bins), np.nan)
        self.write_weights = np.full((runs, bins, 2), np.nan)
        self.query_vectors = np.full((runs, bins, *queries), np.nan)

    def arrays(self) -> dict[str, np.ndarray]:
        """What a checkpoint holds of this."""
        names = ("complete", "returns", "lengths", "write_weights", "query_vectors")
        return {name: getattr(self, name) for name in names}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Take over what a checkpoint held."""
        for name, array in arrays.items():
            setattr(self, name, array.copy())

    def add(self, seeds: Sequence[int], records: Record, sums: np.ndarray) -> list[dict]:
        """Take in what one call measured; returns the bins it completed."""
        new = []
        for run, seed in enumerate(seeds):
            for b in range(self.complete[run], min(int(records.episode[run, -1]) // self.bin_size, self.bins)):
                k = int(np.searchsorted(records.episode[run], (b + 1) * self.bin_size))
                self.returns[run, b] = sums[run, b, 0] / self.bin_size
                self.lengths[run, b] = sums[run, b, 1] / self.bin_size
                self.write_weights[run, b] = records.write_weights[run, k]
                self.query_vectors[run, b] = records.query_vectors[run, k]
                self.complete[run] = b + 1
                new.append(
                    {
                        "seed": seed,
                        "episodes": (b + 1) * self.bin_size,
                        "return": float(self.returns[run, b]),
                        "length": float(self.lengths[run, b]),
                        "write_weights": self.write_weights[run, b].tolist(),
                        "query_vectors": self.query_vectors[run, b].tolist(),
                    }
                )
        return new

    def recent_return(self) -> float:
        """Mean over runs of their last complete bin; NaN before the first."""
        last = [self.returns[run, b - 1] for run, b in enumerate(self.complete) if b]
        return float(np.mean(last)) if last else float("nan")

    def result(self, seeds: Sequence[int], runs: Run, episodes: int) -> Result:
        """Everything, as arrays."""
        return Result(
            seeds=tuple(seeds),
            episodes=self.bin_size * np.arange(1, self.bins + 1),
            returns=self.returns,
            lengths=self.lengths,
            write_weights=self.write_weights,
            query_vectors=self.query_vectors,
            steps=np.asarray(runs.steps),
            finished=np.asarray(runs.episode) >= episodes,
            agent_states=runs.agent,
        )
