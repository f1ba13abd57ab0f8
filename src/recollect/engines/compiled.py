"""The training loop through the step compiler: any agent in any JAX environment, a run in a vector lane.

`loop.start_run` and `loop.step_run` are the definition. They are traced for one run and compiled; hyperparameters and
limits are inputs, so that nothing is compiled again for others. What the compiler cannot do has a reason, and XLA runs
it instead.
"""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from recollect.agents.base import Agent
from recollect.engines import loop
from recollect.envs.base import Environment

if TYPE_CHECKING:
    from recollect.engines.compiler.program import Attached, Program, Step

LEAST_BINS = 128
"""Rows of the sums of every compiled loop, so that one serves most numbers of bins."""


def rows_for(bins: int) -> int:
    """Rows of the sums in compiled loops for a number of bins."""
    return max(LEAST_BINS, 1 << (bins - 1).bit_length())


def shared(agents: Agent) -> tuple[tuple[bool, ...], list[Any]]:
    """Of each hyperparameter, whether it is the same in all runs, and that number, or those of all runs."""
    numbers = [np.asarray(x) for x in jax.tree.leaves(agents)]
    same = tuple(bool((x.view(np.uint32) == x.view(np.uint32)[0]).all()) for x in numbers)
    return same, [x[0] if one else x for x, one in zip(numbers, same, strict=True)]


def with_rows(runs: loop.Run, rows: int) -> loop.Run:
    """Runs whose sums have so many rows, as in compiled loops."""
    found = np.asarray(runs.sums)
    sums = np.zeros((len(found), rows, 3), np.float32)
    sums[:, : found.shape[1]] = found
    return runs._replace(sums=sums)


def in_bins(sums: np.ndarray, bins: int) -> np.ndarray:
    """The sums of a compiled loop; episodes beyond the last bin count in it."""
    found = np.array(sums[:, :bins])
    found[:, -1] += sums[:, bins:].sum(axis=1)
    return found


class Steps(NamedTuple):
    """What is done with one run, as steps on one state."""

    start: "Step"
    step: "Step"
    read: "Step"


@functools.lru_cache(maxsize=32)
def steps_of(tree: Any, env: Environment, rows: int) -> Steps:
    """The start of a run, its time step and the reading of a record; ``rows``: of the sums."""
    from recollect.engines.compiler import identity
    from recollect.engines.compiler.program import Step

    run = loop.forms(tree, env)[0]._replace(sums=jax.ShapeDtypeStruct((rows, 3), jnp.float32))
    agent = loop.agent_form(tree)

    def start(run: Any, agent: Any, seed: Any) -> Any:
        del run
        return loop.start_run(agent, env, seed, rows), ()

    def step(run: Any, agent: Any, limits: Any) -> Any:
        return loop.step_run(agent, env, run, *limits), ()

    def read(run: Any, agent: Any, limits: Any) -> Any:
        del limits
        return run, loop.read_record(agent, env, run.episode, run.steps, run.agent.params)

    def words(name: str) -> str | None:
        return identity.words("train", name, agent, env, rows)

    return Steps(
        Step(start, run, (agent, loop.SEED), words("start")),
        Step(step, run, (agent, loop.LIMITS), words("step")),
        Step(read, run, (agent, loop.LIMITS), words("read")),
    )


@functools.lru_cache(maxsize=96)
def _program(step: "Step", lanes: int, shared: tuple[bool, ...], often: bool) -> "Program":
    from recollect.engines.compiler.program import Program

    return Program(step, lanes, shared, often)


def processor() -> Any:
    """The processor as a device of JAX, for what XLA does around compiled loops; None if JAX may not use it."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return None


def why_not(agent: Agent, env: Environment) -> str | None:
    """Why the pair cannot be compiled, or None."""
    if processor() is None:
        return "JAX may not use the processor: JAX_PLATFORMS in the environment leaves 'cpu' out"
    _, step, read = steps_of(jax.tree.structure(agent), env, LEAST_BINS)
    return step.against or read.against


def prepare(agent: Agent, env: Environment, runs: int) -> dict[str, float]:
    """Compile what so many runs that share their hyperparameters need; seconds of each stage."""
    from recollect.engines.compiler.fleet import lanes_for

    tree = jax.tree.structure(agent)
    steps, same = steps_of(tree, env, LEAST_BINS), (True,) * tree.num_leaves
    lanes = lanes_for(runs, steps.step.state)
    programs = [_program(steps.start, lanes, (*same, False), often=False)]
    programs += [_program(step, lanes, (*same, *(True,) * 4), often=True) for step in steps[1:]]
    return {stage: sum(program.seconds[stage] for program in programs) for stage in programs[0].seconds}


def forget() -> None:
    """Drop the loops that this process has compiled; the code on disk stays."""
    for kept in (loop.forms, steps_of, _program):
        kept.cache_clear()


class _Runs:
    """The programs of many runs of an agent, and memory for their states."""

    def __init__(self, agents: Agent, env: Environment, bins: int):
        from recollect.engines.compiler.fleet import Fleet

        self._same, self._given = shared(agents)
        self._bins, self.rows = bins, rows_for(bins)
        self.steps = steps_of(jax.tree.structure(agents), env, self.rows)
        self.fleet = Fleet(self.steps.step.state, len(jax.tree.leaves(agents)[0]))

    def attach(self, step: "Step", inputs: Sequence[Any], often: bool) -> "list[Attached]":
        """A step on every block of runs, with its inputs besides the hyperparameters: what is done often has limits."""
        program = _program(step, self.fleet.lanes, (*self._same, *(often,) * len(inputs)), often)
        return self.fleet.attach(program, [*self._given, *inputs])

    def unload(self) -> loop.Run:
        """The runs as they are now."""
        new = self.fleet.unload()
        return new._replace(sums=in_bins(new.sums, self._bins))


def start(agents: Agent, env: Environment, seeds: Sequence[int], bins: int) -> loop.Run:
    """As `loop.start`, to rounding; by XLA where an agent or environment begins with what cannot be compiled."""
    from recollect.engines.compiler import Unsupported
    from recollect.engines.compiler.fleet import over_blocks

    runs = _Runs(agents, env, bins)
    try:
        starters = runs.attach(runs.steps.start, [np.asarray(seeds, np.uint32)], often=False)
    except Unsupported:
        return loop.start(agents, env, jnp.asarray(seeds, jnp.uint32), bins)
    over_blocks(lambda k: starters[k].advance(), len(starters))
    return runs.unload()


def advance(
    agents: Agent, env: Environment, runs: loop.Run, limits: tuple[int, int, int, int], records: int
) -> tuple[loop.Run, loop.Record]:
    """As `loop.advance_in_jax`, to rounding; the same bits whatever other runs there are, and however many threads."""
    from recollect.engines.compiler.fleet import over_blocks

    moving = _Runs(agents, env, runs.sums.shape[1])
    moving.fleet.load(with_rows(runs, moving.rows))
    given = [np.int32(x) for x in limits]
    steppers, readers = (moving.attach(step, given, often=True) for step in moving.steps[1:])
    found: list[list[list[np.ndarray]]] = [[] for _ in steppers]

    def work(k: int) -> None:
        for _ in range(records):
            steppers[k].advance(loop.RECORD)
            readers[k].advance()
            found[k].append([x.copy() for x in readers[k].outputs])

    over_blocks(work, len(steppers))
    record: Any = moving.fleet.stacked(found)
    return moving.unload(), loop.Record(*record)
