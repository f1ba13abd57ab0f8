"""An agent's time step as one compiled call, for environments that live on the host.

Everything that changes is one array of int32 per copy, given to the call and taken back (donated): a call's cost is
mostly its number of arguments, not its arithmetic. One call learns from what came of the last actions and chooses the
next ones, also across the end of an episode; a row of its input is

    observation [s] · first observation of the next episode [s] · reward · terminated · truncated · idle

and an idle copy stays as it is. A single copy is never idle: where it waits, nothing is called.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from recollect import prng
from recollect.agents.base import Agent
from recollect.envs.base import TimeStep

RECENT = 64
"""Observations whose write weights are asked for at once."""

EXTRA = 4  # numbers in a row besides the two observations
REWARD, TERMINATED, TRUNCATED, IDLE = range(EXTRA)


class Live(NamedTuple):
    """One copy of an agent under way."""

    key: Array
    time: Array
    agent: Any


def keys_of(live: Live, time: Array) -> tuple[Array, Array]:
    """The keys that a copy takes in what came with, and decides with, at its time step ``time``."""
    key = jax.random.wrap_key_data(live.key, impl=prng.IMPL)
    return prng.at(key, time, 0), prng.at(key, time, 1)


class Host:
    """The compiled calls for one agent at one size.

    Args:
        agent: the definition.
        observation_size: length of an observation vector.
        outputs: of the policy network.
        copies: how many environments are played at once.
        shared: whether the copies are one agent with a memory each, whose parameters move by the mean of what each copy
            would have moved them by, or so many independent agents.
    """

    def __init__(self, agent: Agent, observation_size: int, outputs: int, copies: int = 1, shared: bool = True):
        self.agent, self.size, self.outputs = agent, observation_size, outputs
        self.copies, self.shared = copies, shared and copies > 1
        one = jax.eval_shape(
            self._start_one, jax.ShapeDtypeStruct((), jnp.uint32), jax.ShapeDtypeStruct((), jnp.uint32)
        )
        leaves, self._tree = jax.tree.flatten(one)
        self._leaves = [(leaf.shape, leaf.dtype, math.prod(leaf.shape)) for leaf in leaves]
        self.start: Callable = jax.jit(self._start)
        self.begin: Callable = jax.jit(self._begin, donate_argnums=0)
        self.step: Callable = jax.jit(self._step, donate_argnums=0)
        self.watch: Callable = jax.jit(self._watch, donate_argnums=0)
        self.forget: Callable = jax.jit(self._forget, donate_argnums=0)
        self.write_weights: Callable = jax.jit(self._write_weights)
        self.query_entropies: Callable = jax.jit(self._query_entropies)
        self._unpack_all: Callable = jax.jit(jax.vmap(self._unpack))
        self._pack_all: Callable = jax.jit(jax.vmap(self._pack))

    # -- the calls, as functions: a fresh agent, a first action, a time step

    def _start_one(self, seed: Array, copy: Array) -> Live:
        key_init, key = jax.random.split(prng.key(seed))
        agent = self.agent.init(key_init, self.size, self.outputs)
        words = jax.random.key_data(jax.random.fold_in(key, copy) if self.shared else key)
        return Live(words, jnp.zeros((), jnp.int32), agent)

    def _start(self, seed: Array) -> Array:
        """Fresh copies: of one agent with this seed, or of agents with this seed and those after it."""
        return jax.vmap(self._pack)(self._start_all(seed))

    def _start_all(self, seed: Array) -> Live:
        copies = jnp.arange(self.copies, dtype=jnp.uint32)
        seeds = jnp.full_like(copies, seed) if self.shared else seed + copies
        return jax.vmap(self._start_one)(seeds, copies)

    def _keys(self, live: Live) -> tuple[Array, Array]:
        return keys_of(live, live.time)

    def _one(self, name: str, live: Live, row: Array) -> tuple[Live, tuple[Array, ...]]:
        """A call on one copy: its state and what comes with the call; what the call answers."""
        if name == "start":
            return self._start_one(row, jnp.uint32(0)), ()
        if name == "query":
            return live, (self.agent.query_entropy(live.agent),)
        if name == "weights":
            return live, (self.agent.write_weights(live.agent, row),)
        if name == "begin":
            return self._act(live, row)
        if name == "forget":  # the episode ends without learning from it
            no, yes = jnp.zeros((), bool), jnp.ones((), bool)
            timestep = TimeStep(jnp.zeros(self.size), jnp.zeros(()), no, yes)
            return live._replace(agent=self.agent.watch(live.agent, timestep, self._keys(live)[0])), ()
        taken, finite = self._take_in(live, row, learn=name == "step")
        after, (action,) = self._act(taken, self._seen_next(row))
        return (after if self.copies == 1 else self._unless_idle(row, after, live)), (action, finite)

    def _all(self, name: str, live: Live, rows: Array) -> tuple[Live, tuple[Array, ...]]:
        """A call on all copies; in a step, those that share an agent move its parameters by the mean of their moves."""
        if name == "start":
            return self._start_all(rows), ()
        if name != "step" or not self.shared:
            return jax.vmap(functools.partial(self._one, name))(live, rows)
        taken, finite = jax.vmap(functools.partial(self._take_in, learn=True))(live, rows)
        idle = rows[:, 2 * self.size + IDLE] > 0
        taken = taken._replace(agent=self._average(taken.agent, live.agent, idle))

        def act(taken: Live, live: Live, row: Array) -> tuple[Live, Array]:
            after, (action,) = self._act(taken, self._seen_next(row))
            after = self._unless_idle(row, after, live)
            shared = {part: getattr(taken.agent, part) for part in self.agent.learned}
            return after._replace(agent=after.agent._replace(**shared)), action

        new, actions = jax.vmap(act)(taken, live, rows)
        return new, (actions, finite)

    def _take_in(self, live: Live, row: Array, learn: bool) -> tuple[Live, Array]:
        """What came of the last action; and whether the update, if there was one, was finite."""
        extra = row[2 * self.size :]
        timestep = TimeStep(row[: self.size], extra[REWARD], extra[TERMINATED] > 0, extra[TRUNCATED] > 0)
        key = self._keys(live)[0]
        if not learn:
            return live._replace(agent=self.agent.watch(live.agent, timestep, key)), jnp.array(True)
        agent, finite = self.agent.update(live.agent, timestep, key)
        return live._replace(agent=agent), finite | (extra[IDLE] > 0)

    def _act(self, live: Live, observation: Array) -> tuple[Live, tuple[Array]]:
        agent, action = self.agent.begin(live.agent, observation, self._keys(live)[1])
        return live._replace(agent=agent, time=live.time + 1), (action,)

    def _seen_next(self, row: Array) -> Array:
        """What is decided at: the observation, or the next episode's first."""
        s, extra = self.size, row[2 * self.size :]
        return jnp.where((extra[TERMINATED] > 0) | (extra[TRUNCATED] > 0), row[s : 2 * s], row[:s])

    def _unless_idle(self, row: Array, after: Live, live: Live) -> Live:
        idle = row[2 * self.size + IDLE] > 0
        return jax.tree.map(lambda new, old: jnp.where(idle, old, new), after, live)

    def _average(self, agents: Any, before: Any, idle: Array) -> Any:
        """Every copy with the mean parameters of those that were not idle; as it was ``before`` where all were."""
        weight = jnp.where(idle, 0.0, 1.0) / jnp.maximum(jnp.sum(~idle), 1).astype(jnp.float32)

        def mean(leaf, old):
            if jnp.issubdtype(leaf.dtype, jnp.floating):
                shape = (-1,) + (1,) * (leaf.ndim - 1)
                leaf = jnp.broadcast_to(jnp.sum(weight.reshape(shape) * leaf, axis=0), leaf.shape)
            return jnp.where(jnp.all(idle), old, leaf)

        changed = {
            name: jax.tree.map(mean, getattr(agents, name), getattr(before, name)) for name in self.agent.learned
        }
        return agents._replace(**changed)

    # -- through XLA

    def _through_xla(self, name: str, packed: Array, rows: Array) -> tuple[Array, ...]:
        live, answers = self._all(name, jax.vmap(self._unpack)(packed), rows)
        return jax.vmap(self._pack)(live), *answers

    def _begin(self, packed: Array, rows: Array) -> tuple[Array, ...]:
        """First actions at the first observations, which are the rows."""
        return self._through_xla("begin", packed, rows)

    def _step(self, packed: Array, rows: Array) -> tuple[Array, ...]:
        """Learn from the rows, and act; and the first copy whose update was not finite, and so was not made, or −1."""
        packed, actions, finite = self._through_xla("step", packed, rows)
        return packed, actions, jnp.where(jnp.all(finite), -1, jnp.argmin(finite))

    def _watch(self, packed: Array, rows: Array) -> tuple[Array, ...]:
        """Take the rows in without learning, and act."""
        return self._through_xla("watch", packed, rows)[:2]

    def _forget(self, packed: Array) -> Array:
        """End the episode everywhere without learning from it."""
        return self._through_xla("forget", packed, jnp.zeros((self.copies, 0)))[0]

    def _write_weights(self, packed: Array, observations: Array) -> Array:
        """[copy, observation]: w(S) of each copy's own recent observations; NaN for agents that have no such thing."""
        return self._through_xla("weights", packed, observations)[1]

    def _query_entropies(self, packed: Array) -> Array:
        """[copy]: of the query at each copy's decision under way; NaN for agents that have no such thing."""
        return self._through_xla("query", packed, jnp.zeros((self.copies, 0)))[1]

    # -- the state as one array of int32, whose bits are those of every leaf; truth values are 0 and 1

    def _pack(self, live: Live) -> Array:
        bits = [
            x.astype(jnp.int32) if x.dtype == bool else jax.lax.bitcast_convert_type(x, jnp.int32)
            for x in jax.tree.leaves(live)
        ]
        return jnp.concatenate([x.ravel() for x in bits])

    def _unpack(self, packed: Array) -> Live:
        at, leaves = 0, []
        for shape, dtype, count in self._leaves:
            part = packed[at : at + count].reshape(shape)
            leaves.append(part != 0 if jnp.issubdtype(dtype, jnp.bool_) else jax.lax.bitcast_convert_type(part, dtype))
            at += count
        return jax.tree.unflatten(self._tree, leaves)

    @property
    def together(self) -> bool:
        """Whether a call on several copies costs less than one call on each of as many hosts of one copy."""
        return True

    def like(self) -> Live:
        """The form of what ``unpack`` gives; nothing is computed."""
        leaves = [jax.ShapeDtypeStruct((self.copies, *shape), dtype) for shape, dtype, _ in self._leaves]
        return jax.tree.unflatten(self._tree, leaves)

    def unpack(self, packed: Array) -> Live:
        """The copies as a pytree with a leading axis, for looking at and saving."""
        return self._unpack_all(packed)

    def pack(self, live: Any) -> Array:
        """The other way."""
        return self._pack_all(jax.tree.map(jnp.asarray, live))


def blank_rows(copies: int, size: int) -> np.ndarray:
    """Input rows with nothing in them."""
    return np.zeros((copies, 2 * size + EXTRA), np.float32)
