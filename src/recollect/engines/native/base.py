"""The interface of ``recollect.engines.host.Host`` for agents whose time step is compiled here.

A step of a small agent is a few thousand multiplications; handed to an array compiler it costs a hundred times that in
dispatch. The agents' own classes are the definitions. The random numbers are others (Philox counted by time and
purpose), so that the two are the same in law and not bit for bit.
"""

import abc
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from recollect import prng
from recollect.agents.base import Agent
from recollect.engines.host import Live
from recollect.errors import FileError


class NativeHost(abc.ABC):
    """As ``recollect.engines.host.Host``, for independent copies of the agents that ``why_not`` has nothing against.

    What changes are tables, a row a copy, which calls write over.
    """

    def __init__(self, agent: Any, observation_size: int, outputs: int, copies: int = 1):
        self.agent, self.size, self.outputs, self.copies = agent, observation_size, outputs, copies
        self._state = jax.eval_shape(lambda: agent.init(prng.key(0), observation_size, outputs))

    @staticmethod
    @abc.abstractmethod
    def why_not(agent: Agent) -> str | None:
        """Why the compiled step cannot serve the agent, or None if it knows it with all its options."""

    @abc.abstractmethod
    def _begin(self, flat: Any, rows: np.ndarray, actions: np.ndarray) -> None: ...

    @abc.abstractmethod
    def _step(self, flat: Any, rows: np.ndarray, learning: bool, actions: np.ndarray) -> int: ...

    @abc.abstractmethod
    def forget(self, flat: Any) -> Any:
        """End the episode everywhere without learning from it."""

    @abc.abstractmethod
    def write_weights(self, flat: Any, observations: np.ndarray) -> np.ndarray:
        """[copy, observation]: w(S) of each copy's own observations; NaN for agents that have no such thing."""

    @abc.abstractmethod
    def unpack(self, flat: Any) -> Live:
        """The copies as the agent's own states, with a leading axis."""

    @abc.abstractmethod
    def pack(self, live: Any) -> Any:
        """The other way."""

    def start(self, seed: Any) -> Any:
        """Fresh copies with this seed and those after it; parameters as ``agent.init`` draws them."""
        seeds = np.arange(self.copies, dtype=np.uint32) + np.uint32(seed)
        return self.pack(_start(self.agent, self.size, self.outputs, jnp.asarray(seeds)))

    def begin(self, flat: Any, rows: np.ndarray) -> tuple[Any, np.ndarray]:
        """First actions."""
        actions = np.zeros(self.copies, np.int64)
        self._begin(flat, np.ascontiguousarray(rows), actions)
        return flat, actions

    def step(self, flat: Any, rows: np.ndarray) -> tuple[Any, np.ndarray, int]:
        """Learn and act; and the first copy whose update was not finite, and so was not made, or −1."""
        actions = np.zeros(self.copies, np.int64)
        bad = self._step(flat, rows, True, actions)
        return flat, actions, bad

    def watch(self, flat: Any, rows: np.ndarray) -> tuple[Any, np.ndarray]:
        """Act without learning."""
        actions = np.zeros(self.copies, np.int64)
        self._step(flat, rows, False, actions)
        return flat, actions

    def like(self) -> Live:
        """The form of what ``unpack`` gives; nothing is computed."""
        seeds = jax.ShapeDtypeStruct((self.copies,), jnp.uint32)
        return jax.eval_shape(functools.partial(_start, self.agent, self.size, self.outputs), seeds)


@functools.partial(jax.jit, static_argnums=(1, 2))
def _start(agent: Agent, size: int, outputs: int, seeds: Any) -> Live:
    def one(seed):
        key_init, key = jax.random.split(prng.key(seed))
        state = agent.init(key_init, size, outputs)
        return Live(jax.random.key_data(key), jnp.zeros((), jnp.int32), state)

    return jax.vmap(one)(seeds)


def refuse_outside(name: str, found: np.ndarray, most: int) -> None:
    """Refuse indices outside 0 to ``most``: compiled code does not look where they point."""
    if ((found < 0) | (found > most)).any():
        raise FileError(f"the state is not sound: {name} are outside 0 to {most}")
