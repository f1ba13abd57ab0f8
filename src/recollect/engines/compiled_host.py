"""`recollect.engines.host.Host` through the step compiler: the same calls, a hundred times less between them.

One copy is one run with vectors along its units; independent copies are lanes of a vector, or, where the agent is
large, one run after another; copies that share an agent are one program over all of them. The state stays where the
compiled steps find it; random numbers are the Host's own.
"""

import functools
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from recollect.agents.base import Agent
from recollect.engines.host import EXTRA, RECENT, Host, Live

if TYPE_CHECKING:
    from recollect.engines.compiler.fleet import Fleet
    from recollect.engines.compiler.program import Attached, Program, Step


class Held:
    """The state of all copies in memory, and the calls that have been made on it."""

    def __init__(self, fleet: "Fleet"):
        self.fleet = fleet
        self.calls: dict[str, list[Attached]] = {}


class CompiledHost(Host):
    """As `Host`, compiled to machine code; calls change what they are given and return it."""

    def __init__(self, agent: Agent, observation_size: int, outputs: int, copies: int = 1, shared: bool = False):
        super().__init__(agent, observation_size, outputs, copies, shared)
        self.start = self._start_held
        self.begin = functools.partial(self._call, "begin")
        self.step = self._step_held
        self.watch = functools.partial(self._call, "watch")
        self.forget = self._forget_held
        self.write_weights = self._weights_held
        self.query_entropies = self._entropies_held
        self._steps: dict[str, Step] = {}

    @staticmethod
    def why_not(agent: Agent, observation_size: int, outputs: int, copies: int = 1, shared: bool = False) -> str | None:
        """Why the agent cannot be compiled, or None."""
        return host(agent, observation_size, outputs, copies, shared)._step_of("step").against

    # -- compiled

    def _step_of(self, name: str) -> "Step":
        from recollect.engines.compiler import identity
        from recollect.engines.compiler.program import Step

        if name not in self._steps:
            given = {"start": (), "begin": (self.size,), "forget": (0,), "query": (0,), "weights": (RECENT, self.size)}
            shape, dtype = given.get(name, (2 * self.size + EXTRA,)), jnp.uint32 if name == "start" else jnp.float32
            live, function = self.like(), self._all if self.shared else self._one
            if not self.shared:
                live = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), live)
            elif name != "start":
                shape = (self.copies, *shape)
            sizes = self.size, self.outputs, self.copies, self.shared
            words = identity.words("host", name, self.agent, *sizes)
            inputs = (jax.ShapeDtypeStruct(shape, dtype),)
            self._steps[name] = Step(functools.partial(function, name), live, inputs, words)
        return self._steps[name]

    @functools.lru_cache(maxsize=8)  # noqa: B019  (hosts are few, and are kept anyway)
    def _program(self, name: str) -> "Program":
        from recollect.engines.compiler.program import Program

        return Program(self._step_of(name), self.lanes, often=name in ("step", "watch", "query"))

    @functools.cached_property
    def lanes(self) -> int:
        """Copies in one block of the compiled steps."""
        from recollect.engines.compiler.fleet import lanes_for

        return 1 if self.shared else lanes_for(self.copies, self._step_of("step").state)

    @property
    def together(self) -> bool:
        """Not where copies are taken one after another: they drive one another out of the processor's cache."""
        return self.copies == 1 or self.shared or self.lanes > 1

    def _held(self) -> Held:
        from recollect.engines.compiler.fleet import Fleet

        layout = self._step_of("step").state
        return Held(Fleet(layout, 1 if self.shared else self.copies, self.lanes))

    def _run(self, name: str, held: Held, rows: np.ndarray | None) -> "list[Attached]":
        calls = held.calls.get(name)
        if calls is None:
            calls = held.calls[name] = held.fleet.attach(self._program(name))
        if rows is not None:
            for k, call in enumerate(calls):
                if self.lanes == 1:
                    call.inputs[0][...] = rows if self.shared else rows[k]
                else:
                    block = rows[k * self.lanes : (k + 1) * self.lanes]
                    call.inputs[0][..., : len(block)] = np.moveaxis(block, 0, -1)
        for call in calls:
            call.advance()
        return calls

    def _output(self, calls: "list[Attached]", place: int) -> np.ndarray:
        """One output of all copies, with a leading axis over them."""
        if self.shared:
            return calls[0].outputs[place].copy()
        if len(calls) == self.lanes == 1:
            return calls[0].outputs[place][None].copy()  # a third of the time that `np.stack` takes
        if self.lanes == 1:
            return np.stack([call.outputs[place] for call in calls])
        return np.concatenate([np.moveaxis(c.outputs[place], -1, 0) for c in calls])[: self.copies]

    def _call(self, name: str, held: Held, rows: Any) -> tuple[Held, np.ndarray]:
        return held, self._output(self._run(name, held, np.asarray(rows)), 0)

    def _step_held(self, held: Held, rows: np.ndarray) -> tuple[Held, np.ndarray, int]:
        """Learn and act; and the first copy whose update was not finite, and so was not made, or -1."""
        calls = self._run("step", held, rows)
        actions = self._output(calls, 0)
        if self.copies == 1:
            return held, actions, -1 if calls[0].outputs[1] else 0
        finite = self._output(calls, 1)
        return held, actions, -1 if finite.all() else int(np.argmin(finite))

    def _forget_held(self, held: Held) -> Held:
        self._run("forget", held, None)
        return held

    def _start_held(self, seed: Any) -> Held:
        if self._step_of("start").against:  # what is done now and then XLA can do as well
            return self.pack(jax.jit(self._start_all)(seed))
        held = self._held()
        seeds = np.asarray(seed, np.uint32) + np.arange(1 if self.shared else self.copies, dtype=np.uint32)
        self._run("start", held, seeds[0] if self.shared else seeds)
        return held

    def _weights_held(self, held: Held, observations: np.ndarray) -> np.ndarray:
        if self._step_of("weights").against:
            return jax.jit(jax.vmap(self.agent.write_weights))(self.unpack(held).agent, observations)
        return self._output(self._run("weights", held, observations), 0)

    def _entropies_held(self, held: Held) -> np.ndarray:
        return self._output(self._run("query", held, None), 0)

    def unpack(self, held: Held) -> Live:
        """The copies as a pytree with a leading axis, copied."""
        live = held.fleet.unload()
        return jax.tree.map(lambda x: x[0], live) if self.shared else live

    def pack(self, live: Any) -> Held:
        """Copies from a pytree with a leading axis, into memory of their own."""
        held = self._held()
        live = Live(*jax.tree.map(np.asarray, tuple(live)))
        held.fleet.load(jax.tree.map(lambda x: x[None], live) if self.shared else live)
        return held


@functools.lru_cache(maxsize=64)
def host(agent: Agent, observation_size: int, outputs: int, copies: int, shared: bool) -> CompiledHost:
    """The compiled host of an agent at one size, made once."""
    return CompiledHost(agent, observation_size, outputs, copies, shared)
