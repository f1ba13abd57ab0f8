"""The training loop through the step compiler on an NVIDIA GPU: any agent in any JAX environment.

`loop.start_run`, `loop.step_run` and `loop.read_record` are the definition, as for `compiled`, and from a given state
on a run has the bits that it has there. States and metrics stay on the GPU: what a bin of episodes needs is put aside
there as soon as the bin is complete, and the host asks for it when somebody wants to see it.
"""

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from recollect.agents.base import Agent
from recollect.engines import loop
from recollect.engines.compiled import LEAST_BINS, in_bins, rows_for, shared, with_rows
from recollect.envs.base import Environment

if TYPE_CHECKING:
    from recollect.engines.compiler.grid import GridProgram
    from recollect.engines.compiler.program import Step

TEAMS: dict[str, Any] = {"teams": True}
"""A team of threads per run, its state on the chip."""

TEAMS_IN_TURN: dict[str, Any] = {"teams": True, "registers": 168, "written_out": (300, 8)}
"""Where most teams wait for their turn: with fewer registers each, so that more are under way at once."""

TEAMS_OF_LARGE: dict[str, Any] = {"teams": True, "room": 22 << 10}
"""A team per run for a state that fits the chip only if few runs are there at once."""

THREADS: dict[str, Any] = {"teams": False, "registers": 64, "written_out": (100, 8)}
"""One run per thread, with a quarter of the registers that it wants, so that four times the threads hide one another's
waiting."""

IN_TURN = 128
"""Runs per processor of a GPU from which on teams have `TEAMS_IN_TURN`."""

MANY = 550
"""Runs per processor of a GPU from which on those with a large state have a thread each."""

FEWEST = 1024
"""Runs from which on a GPU is taken without being asked for: the fewest that were measured."""


class Collected(NamedTuple):
    """What one run's complete bins were at their ends; rows of bins to come are NaN."""

    complete: Any
    write_weights: Any  # [bins, 2]
    query_vectors: Any  # [bins, decisions, observation_size]


def _collect(agent: Any, env: Any, run: loop.Run, kept: Collected, episodes: Array, bin_size: Array) -> Collected:
    """Put the record of now into the bins that were completed since the last time, as `bins.Bins.add` does."""
    record = loop.read_record(agent, env, run.episode, run.steps, run.agent.params)
    complete = jnp.minimum(run.episode // bin_size, episodes // bin_size)
    bins = jnp.arange(kept.write_weights.shape[0], dtype=jnp.int32)
    new = (bins >= kept.complete) & (bins < complete)
    return Collected(
        complete=jnp.maximum(kept.complete, complete),
        write_weights=jnp.where(new[:, None], record.write_weights, kept.write_weights),
        query_vectors=jnp.where(new[:, None, None], record.query_vectors, kept.query_vectors),
    )


def _nothing(agent: Any, env: Any, run: loop.Run, rows: int) -> Collected:
    record = jax.eval_shape(lambda a, r: loop.read_record(a, env, r.episode, r.steps, r.agent.params), agent, run)
    weights, queries = (jnp.full((rows, *x.shape), jnp.nan) for x in (record.write_weights, record.query_vectors))
    return Collected(jnp.zeros((), jnp.int32), weights, queries)


@functools.lru_cache(maxsize=32)
def _traced(tree: Any, env: Environment, rows: int) -> "tuple[Step, Step, Step]":
    """The start of a run, a step of it and the keeping of its metrics, as graphs on one state."""
    from recollect.engines.compiler.program import Step

    one, limits = loop.agent_form(tree), loop.LIMITS

    def fresh(agent: Any, seed: Any) -> Any:
        run = loop.start_run(agent, env, seed, rows)
        return run, _nothing(agent, env, run, rows)

    def start(state: Any, agent: Any, seed: Any) -> Any:
        del state
        return fresh(agent, seed), ()

    def step(state: Any, agent: Any, limits: Any) -> Any:
        run, kept = state
        return (loop.step_run(agent, env, run, *limits), kept), ()

    def collect(state: Any, agent: Any, limits: Any) -> Any:
        run, kept = state
        return (run, _collect(agent, env, run, kept, *limits[:2])), ()

    state = jax.eval_shape(fresh, one, loop.SEED)
    return Step(start, state, (one, loop.SEED)), Step(step, state, (one, limits)), Step(collect, state, (one, limits))


def _agent_bytes(tree: Any, env: Environment, rows: int) -> int:
    """Bytes of one agent's state: nearly all that a step touches."""
    from recollect.engines.compiler.values import BYTES

    layout = _traced(tree, env, rows)[1].state
    sizes = [math.prod(shape) * BYTES[kind] for shape, kind in zip(layout.shapes, layout.kinds, strict=True)]
    run, _ = jax.tree.unflatten(layout.tree, sizes)
    return sum(jax.tree.leaves(run.agent))


@functools.lru_cache(maxsize=32)
def _programs(
    tree: Any, env: Environment, rows: int, shared: tuple[bool, ...], device: Any, options: tuple[tuple[str, Any], ...]
) -> "list[GridProgram]":
    from recollect.engines.compiler.grid import GridProgram

    start, step, collect = _traced(tree, env, rows)
    limits, way = (True,) * 4, dict(options)
    return [
        GridProgram(device, start, (*shared, False), often=False, teams=way["teams"]),
        GridProgram(device, step, (*shared, *limits), **way),
        GridProgram(device, collect, (*shared, *limits), often=False, teams=way["teams"]),
    ]


def way_for(runs: int, processors: int, size: int) -> dict[str, Any]:
    """How runs are spread over the threads of a GPU, as `GridProgram` takes it; docs/compiler.md has the figures.

    ``size``: bytes of one agent's state.
    """
    from recollect.engines.compiler.team_kernel import ROOM

    each = runs / processors
    if size <= ROOM:
        return TEAMS if each < IN_TURN else TEAMS_IN_TURN
    return TEAMS_OF_LARGE if each < MANY else THREADS


def why_not(agent: Agent, env: Environment, runs: int | None = None, asked: bool = True) -> str | None:
    """Why the pair cannot be served by a GPU here, or None.

    ``asked``: whether it is wanted even for few runs, which it serves slowly.
    """
    from recollect.engines.compiler import Unsupported, cuda_driver, threads

    if (why := cuda_driver.why_none()) is not None:
        return why
    if not asked and runs is not None and runs < FEWEST:
        return f"{runs} runs are too few to fill a GPU ({FEWEST} or more are served)"
    try:
        foreign = [threads.why_not(step) for step in _traced(jax.tree.structure(agent), env, LEAST_BINS)]
    except Unsupported as error:
        return f"the step compiler does not know {error}"
    return next((f"the step compiler has no code for GPUs of {why}" for why in foreign if why is not None), None)


class Runs:
    """Runs under way on a GPU.

    Args:
        agents: the definition, each traced hyperparameter with a leading axis over runs.
        env: the environment.
        limits: episodes, episodes per bin, steps per episode, steps.
        device: where (None: the first GPU).
        way: as `way_for` says (None: what it says).
    """

    def __init__(
        self,
        agents: Agent,
        env: Environment,
        limits: Sequence[int],
        device: Any = None,
        way: dict[str, Any] | None = None,
    ):
        from recollect.engines.compiler import cuda_driver
        from recollect.engines.compiler.grid import Grid

        same, self._given = shared(agents)
        count = len(jax.tree.leaves(agents)[0])
        self._limits = [np.int32(x) for x in limits]
        self._bins = limits[0] // limits[1]
        tree, rows = jax.tree.structure(agents), rows_for(self._bins)
        device = device or cuda_driver.device()
        if way is None:
            way = way_for(count, device.processors, _agent_bytes(tree, env, rows))
        options = tuple(sorted(way.items()))
        self._start, self._step, self._collect = _programs(tree, env, rows, same, device, options)
        self.layout = self._step.state
        self._grid = Grid(device, self.layout, count, way["teams"])
        for program in (self._step, self._collect):
            self._grid.give(program, [*self._given, *self._limits])
        like = jax.tree.unflatten(self.layout.tree, list(range(len(self.layout.shapes))))
        self._run, self._kept = like  # numbers of leaves

    def begin(self, seeds: Sequence[int]) -> None:
        """Every run before its first step."""
        self._grid.give(self._start, [*self._given, np.asarray(seeds, np.uint32)])
        self._grid.advance(self._start)

    def load(self, runs: loop.Run, complete: np.ndarray) -> None:
        """Continue from given states, of which so many bins are complete and known to the caller."""
        rows = self.layout.shapes[self._run.sums][0]
        shapes = [(len(complete), *self.layout.shapes[k]) for k in (self._kept.write_weights, self._kept.query_vectors)]
        kept = Collected(complete.astype(np.int32), *(np.full(s, np.nan, np.float32) for s in shapes))
        self._grid.load((with_rows(runs, rows), kept))

    def advance(self, records: int) -> None:
        """Take every run ``records`` times ``loop.RECORD`` steps further; does not wait."""
        for _ in range(records):
            self._grid.advance(self._step, loop.RECORD)
            self._grid.advance(self._collect)

    def counters(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Steps taken, episodes finished and faults of every run."""
        steps, episodes, faults = (self._grid.leaf(k) for k in (self._run.steps, self._run.episode, self._run.faults))
        return steps, episodes, faults

    def sums(self) -> np.ndarray:
        """[run, bin, 3]: sum of returns, sum of lengths, number of episodes."""
        return in_bins(self._grid.leaf(self._run.sums), self._bins)

    def collected(self) -> Collected:
        """What was kept of the bins that were completed here."""
        complete, weights, queries = (self._grid.leaf(k) for k in self._kept)
        return Collected(complete, weights[:, : self._bins], queries[:, : self._bins])

    def agent_states(self) -> Any:
        """The agents' states, with a leading axis over runs."""
        return self._part(self._run.agent)

    def runs(self) -> loop.Run:
        """All of the runs, as other engines take them."""
        return self._part(self._run)._replace(sums=self.sums())

    def _part(self, numbers: Any) -> Any:
        def leaf(k: int) -> Any:
            key: Any = self.layout.keys[k]
            found: Any = self._grid.leaf(k)
            return found if key is None else jax.random.wrap_key_data(found, impl=key._impl)

        return jax.tree.map(leaf, numbers)
