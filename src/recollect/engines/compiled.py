"""The training loop through the step compiler: any agent in any JAX environment, a run in a vector lane.

`loop.step_run` is the definition. It is traced for one run and compiled; hyperparameters and limits are inputs, so that
nothing is compiled again for others. What the compiler cannot do has a reason, and XLA runs it instead.
"""

import functools
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from recollect.agents.base import Agent
from recollect.engines import loop
from recollect.envs.base import Environment

if TYPE_CHECKING:
    from recollect.engines.compiler.program import Program, Step

LEAST_BINS = 128
"""Rows of the sums of every compiled loop, so that one serves most numbers of bins."""


def rows_for(bins: int) -> int:
    """Rows of the sums in compiled loops for a number of bins."""
    return max(LEAST_BINS, 1 << (bins - 1).bit_length())


def _like(agent: Agent, env: Environment, rows: int) -> tuple[Any, tuple[Any, Any]]:
    """The form of one run and of the inputs of a step."""
    number = jax.ShapeDtypeStruct((), jnp.float32)
    one = jax.tree.map(lambda x: number, agent)
    run = jax.eval_shape(lambda a, s: loop.start_run(a, env, s, rows), one, jax.ShapeDtypeStruct((), jnp.uint32))
    return run, (one, (jax.ShapeDtypeStruct((), jnp.int32),) * 4)


@functools.lru_cache(maxsize=32)
def _traced(tree: Any, env: Environment, rows: int) -> "tuple[Step, Step]":
    """The step of one run and the reading of a record, as graphs."""
    from recollect.engines.compiler.program import Step

    agent = jax.tree.unflatten(tree, [jax.ShapeDtypeStruct((), jnp.float32)] * tree.num_leaves)
    run, inputs = _like(agent, env, rows)

    def step(run: Any, agent: Any, limits: Any) -> Any:
        return loop.step_run(agent, env, run, *limits), ()

    def read(run: Any, agent: Any, limits: Any) -> Any:
        del limits
        return run, loop.read_record(agent, env, run.episode, run.steps, run.agent.params)

    return Step(step, run, inputs), Step(read, run, inputs)


@functools.lru_cache(maxsize=32)
def _programs(tree: Any, env: Environment, rows: int, lanes: int, shared: tuple[bool, ...]) -> "tuple[Program, ...]":
    from recollect.engines.compiler.program import Program

    return tuple(Program(step, lanes, shared) for step in _traced(tree, env, rows))


def processor() -> Any:
    """The processor as a device of JAX, for what XLA does around compiled loops; None if JAX may not use it."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return None


def why_not(agent: Agent, env: Environment) -> str | None:
    """Why the pair cannot be compiled, or None."""
    from recollect.engines.compiler import Unsupported

    if processor() is None:
        return "JAX may not use the processor: JAX_PLATFORMS in the environment leaves 'cpu' out"
    try:
        _traced(jax.tree.structure(agent), env, LEAST_BINS)
    except Unsupported as error:
        return f"the step compiler does not know {error}"
    return None


def prepare(agent: Agent, env: Environment, runs: int) -> dict[str, float]:
    """Compile what `advance` needs for so many runs that share their hyperparameters; seconds of each stage."""
    from recollect.engines.compiler.fleet import lanes_for

    tree = jax.tree.structure(agent)
    lanes = lanes_for(runs, _traced(tree, env, LEAST_BINS)[0].state)
    programs = _programs(tree, env, LEAST_BINS, lanes, (True,) * (tree.num_leaves + 4))
    return {stage: sum(program.seconds[stage] for program in programs) for stage in programs[0].seconds}


def forget() -> None:
    """Drop the loops that this process has compiled; the code on disk stays."""
    _traced.cache_clear()
    _programs.cache_clear()


def advance(
    agents: Agent, env: Environment, runs: loop.Run, limits: tuple[int, int, int, int], records: int
) -> tuple[loop.Run, loop.Record]:
    """As `loop.advance_in_jax`, to rounding; the same bits whatever other runs there are, and however many threads."""
    from recollect.engines.compiler.fleet import Fleet, lanes_for, over_blocks

    numbers = [np.asarray(x) for x in jax.tree.leaves(agents)]
    count, (bins, _) = len(runs.steps), runs.sums.shape[1:]
    same = [bool((x.view(np.uint32) == x.view(np.uint32)[0]).all()) for x in numbers]
    rows = rows_for(bins)
    tree = jax.tree.structure(agents)
    lanes = lanes_for(count, _traced(tree, env, rows)[0].state)
    step, read = _programs(tree, env, rows, lanes, (*same, *(True,) * 4))
    fleet = Fleet(step.state, count, lanes)
    sums = np.zeros((count, rows, 3), np.float32)
    sums[:, :bins] = np.asarray(runs.sums)
    fleet.load(runs._replace(sums=sums))
    given = [x[0] if one else x for x, one in zip(numbers, same, strict=True)]
    leaves = [*given, *(np.int32(x) for x in limits)]
    steppers, readers = fleet.attach(step, leaves), fleet.attach(read, leaves)
    found: list[list[list[np.ndarray]]] = [[] for _ in fleet.blocks]

    def work(k: int) -> None:
        for _ in range(records):
            steppers[k].advance(loop.RECORD)
            readers[k].advance()
            found[k].append([x.copy() for x in readers[k].outputs])

    over_blocks(work, len(fleet.blocks))
    record = jax.tree.unflatten(read.outputs.tree, fleet.stacked(found))
    new = fleet.unload()
    sums = np.array(new.sums[:, :bins])
    sums[:, -1] += new.sums[:, bins:].sum(axis=1)  # episodes beyond the last bin count in it
    return new._replace(sums=sums), record
