"""`compile`: a step as a native function, and the memory that its state lives in."""

import dataclasses
import functools
import itertools
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from recollect.engines.compiler import cache, machine
from recollect.engines.compiler.emission import Body, emit_body, entered
from recollect.engines.compiler.graph import DTYPES, OCTET, Graph, Node, Unsupported, letter
from recollect.engines.compiler.primitives import convert
from recollect.engines.compiler.rules import is_key
from recollect.engines.compiler.writer import Writer

ALIGN = 64
SPARE = 64
"""Bytes after each array, so that its last vector lies in memory of its own."""


def aligned(shapes: Sequence[Sequence[int]], kinds: Sequence[str]) -> list[np.ndarray]:
    """Zeros that start at multiples of 64 bytes, in one piece of memory."""
    sizes = [math.prod(shape) * DTYPES[kind].itemsize for shape, kind in zip(shapes, kinds, strict=True)]
    places = list(itertools.accumulate((-(-(size + SPARE) // ALIGN) * ALIGN for size in sizes), initial=0))
    raw = np.zeros(places.pop() + ALIGN, np.uint8)
    start = -raw.ctypes.data % ALIGN
    each = zip(shapes, kinds, places, strict=True)
    return [np.ndarray(tuple(shape), DTYPES[kind], raw, start + place) for shape, kind, place in each]


def addresses(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Where arrays lie, as a table of pointers."""
    return np.array([array.ctypes.data for array in arrays], np.uintp)


class Layout:
    """A pytree of arrays as leaves of one run: shapes, kinds, and which leaves are random keys."""

    def __init__(self, tree: Any):
        leaves, self.tree = jax.tree.flatten(tree)
        self.keys = [leaf.dtype if hasattr(leaf, "dtype") and is_key(leaf) else None for leaf in leaves]
        raw = [self._abstract(leaf) for leaf in leaves]
        self.are_octets = [a.dtype == OCTET for a in raw]
        self.shapes = [tuple(a.shape) for a in raw]
        self.kinds = [letter(a.dtype) for a in raw]
        self.bytes = sum(math.prod(a.shape) * a.dtype.itemsize for a in raw)

    @staticmethod
    def _abstract(leaf: Any) -> Any:
        if hasattr(leaf, "dtype") and is_key(leaf):
            return jax.eval_shape(jax.random.key_data, leaf)
        known = isinstance(leaf, (jax.Array, jax.ShapeDtypeStruct))
        return leaf if known else jax.eval_shape(jax.numpy.asarray, leaf)

    def numbers(self, tree: Any) -> list[np.ndarray]:
        """The leaves of a pytree of this form as arrays of numbers."""
        leaves, found = jax.tree.flatten(tree)
        if found != self.tree:
            raise ValueError(f"expected a pytree like {self.tree}, got {found}")
        numbers = (
            np.asarray(jax.random.key_data(x) if k is not None else x) for x, k in zip(leaves, self.keys, strict=True)
        )
        return [x.astype(np.uint32) if octet else x for x, octet in zip(numbers, self.are_octets, strict=True)]

    def wrap(self, leaves: Sequence[Any]) -> Any:
        """The pytree of traced or concrete leaves, keys as keys."""
        made = [
            jax.random.wrap_key_data(x, impl=k._impl) if k is not None else x.astype(np.uint8) if octet else x  # type: ignore[attr-defined]
            for x, k, octet in zip(leaves, self.keys, self.are_octets, strict=True)
        ]
        return jax.tree.unflatten(self.tree, made)

    def specs(self) -> list[jax.ShapeDtypeStruct]:
        """What JAX traces with."""
        return [jax.ShapeDtypeStruct(s, DTYPES[k]) for s, k in zip(self.shapes, self.kinds, strict=True)]

    def described(self) -> list[tuple[str, tuple[int, ...]]]:
        """Dtype and shape of each leaf."""
        kinds = (OCTET if octet else DTYPES[k] for k, octet in zip(self.kinds, self.are_octets, strict=True))
        return [(kind.name, shape) for kind, shape in zip(kinds, self.shapes, strict=True)]


def _unkeyed(tree: Any) -> list[Any]:
    """The leaves as what is compiled: keys and bytes as words."""
    leaves = map(jax.numpy.asarray, jax.tree.leaves(tree))
    return [jax.random.key_data(x) if is_key(x) else x.astype(np.uint32) if x.dtype == OCTET else x for x in leaves]


@dataclasses.dataclass(frozen=True)
class Traced:
    """A step as a graph: its leaves are those of the state and of the inputs, ``outs`` of the state and outputs."""

    graph: Graph
    leaves: list[Node]
    outs: list[Node]
    outputs: Layout
    seconds: dict[str, float]


class Step:
    """``function(state, *inputs) -> (state, outputs)``, for any number of lanes; traced when that is first needed.

    Args:
        function: the step.
        state: its form, an example or shapes.
        inputs: likewise.
        words: what `identity.words` says the step is made from. What is kept on disk is then found by it without
            tracing, and outputs are a list, whatever the function returns them as.
    """

    def __init__(self, function: Callable[..., Any], state: Any, inputs: Sequence[Any] = (), words: str | None = None):
        self._function, self.words = function, words
        self.state, self.inputs = Layout(state), Layout(tuple(inputs))
        self._lock = threading.Lock()  # writing a step adds to its graph

    @functools.cached_property
    def traced(self) -> Traced:
        """The step as a graph.

        Raises:
            Unsupported: for a primitive or a dtype that cannot be compiled, with its line.
        """
        start = time.perf_counter()
        count = len(self.state.shapes)
        out_tree: list[Any] = []

        def flat(*leaves: Any) -> list[Any]:
            new, outputs = self._function(self.state.wrap(leaves[:count]), *self.inputs.wrap(leaves[count:]))
            if (found := jax.tree.structure(new)) != self.state.tree:
                raise ValueError(f"the step must return a state like the one it gets: {self.state.tree}, got {found}")
            if [bool(x.dtype == OCTET) for x in map(jax.numpy.asarray, jax.tree.leaves(new))] != self.state.are_octets:
                raise ValueError("the step must return a state like the one it gets: uint8 where that is uint8")
            out_tree.append(jax.eval_shape(lambda: outputs))
            return [*_unkeyed(new), *_unkeyed(outputs)]

        closed = jax.make_jaxpr(flat)(*self.state.specs(), *self.inputs.specs())
        before = zip(self.state.shapes, self.state.kinds, strict=True)
        for k, (aval, (shape, kind)) in enumerate(zip(closed.out_avals[:count], before, strict=True)):
            if tuple(aval.shape) != shape or letter(aval.dtype) != kind:
                was = f"{DTYPES[kind]}{list(shape)}"
                raise ValueError(f"leaf {k} of the state is {was} before the step and {aval.str_short()} after")
        middle = time.perf_counter()
        graph = Graph()
        shapes, kinds = [*self.state.shapes, *self.inputs.shapes], [*self.state.kinds, *self.inputs.kinds]
        leaves = [
            graph.make("leaf", (), shape, kind, k) for k, (shape, kind) in enumerate(zip(shapes, kinds, strict=True))
        ]
        outs = convert(graph, closed, leaves)
        seconds = {"trace": middle - start, "graph": time.perf_counter() - middle}
        return Traced(graph, leaves, outs, Layout(out_tree[0]), seconds)

    @functools.cached_property
    def outputs(self) -> Layout:
        """The form of what the step returns besides its state; raises `Unsupported` as ``traced`` does."""
        if self.words is None:
            return self.traced.outputs
        known = cache.read(f"{self.words}\noutputs")
        if known is None:
            known = self.traced.outputs.described()
            cache.write(f"{self.words}\noutputs", known)
        return Layout([jax.ShapeDtypeStruct(tuple(shape), dtype) for dtype, shape in known])

    @functools.cached_property
    def against(self) -> str | None:
        """Why the step cannot be compiled, or None."""
        try:
            self.outputs  # noqa: B018  (known only of what can be)
        except Unsupported as error:
            return f"the step compiler does not know {error}"
        return None

    def write(self, w: Writer, shared: Sequence[bool]) -> Body:
        """The code of the step."""
        count, made = len(self.state.shapes), self.traced
        state, inputs = made.leaves[:count], made.leaves[count:]
        with self._lock:
            return emit_body(w, made.graph, state, inputs, made.outs[:count], made.outs[count:], shared)


class Program:
    """Machine code of one step, for one run or for ``lanes`` runs at once; knows no memory.

    Args:
        step: what to compile.
        lanes: runs in vector lanes.
        shared: for each leaf of the inputs, whether all lanes have one value of it.
        often: whether it is run so often that speed is worth a longer time to compile.
    """

    def __init__(self, step: Step, lanes: int = 1, shared: Sequence[bool] = (), often: bool = True):
        self.lanes, self.often = lanes, often
        self.state, self.inputs, self.outputs = step.state, step.inputs, step.outputs
        self.shared = list(shared) or [False] * len(self.inputs.shapes)
        self.seconds = {"trace": 0.0, "graph": 0.0, "emit": 0.0, "machine code": 0.0}
        code = self._kept(step) or self._made(step)
        start = time.perf_counter()
        self._loaded = machine.Loaded(code)
        self.run = self._loaded.run
        self.seconds["machine code"] += time.perf_counter() - start

    def _words(self, step: Step) -> str | None:
        return step.words and f"{step.words}\n{self.lanes} {self.shared} {self.often}\n{machine.described()}"

    def _kept(self, step: Step) -> bytes | None:
        """The code as it was made before from the same words, if it is there."""
        words = self._words(step)
        known = None if words is None else cache.read(words)
        if known is None:
            return None
        self.scratch: list[int] = known["scratch"]
        return cache.get(known["code"])

    def _made(self, step: Step) -> bytes:
        self.seconds |= step.traced.seconds
        start = time.perf_counter()
        body = step.write(Writer(self.lanes), self.shared)
        self.scratch, text = [size for _, size in body.scratch], entered(body)
        middle = time.perf_counter()
        code = machine.compiled(text, self.often)
        self.seconds |= {"emit": middle - start, "machine code": time.perf_counter() - middle}
        if (words := self._words(step)) is not None:
            cache.write(words, {"scratch": self.scratch, "code": machine.key(text, self.often)})
        return code


class Memory:
    """The state of one run (or of one vector of runs) where compiled steps find it: two buffers per array."""

    def __init__(self, layout: Layout, lanes: int = 1):
        self.layout, self.lanes = layout, lanes
        extra = (lanes,) if lanes > 1 else ()
        shapes = [(*s, *extra) for s in layout.shapes]
        arrays = aligned(shapes * 2, layout.kinds * 2)
        both = addresses(arrays)
        self._arrays = dict(zip(both.tolist(), arrays, strict=True))
        self.current, self.other = both[: len(shapes)].copy(), both[len(shapes) :].copy()
        self.pointers = self.current.ctypes.data, self.other.ctypes.data

    def views(self) -> list[np.ndarray]:
        """The leaves as they are now, not copied; valid until the next step. Lanes are the last axis."""
        return [self._arrays[p] for p in self.current.tolist()]

    def load(self, tree: Any) -> None:
        """Take over a state (of lanes: with a leading axis over them)."""
        leaves = self.layout.numbers(tree)
        extra = (self.lanes,) if self.lanes > 1 else ()
        for k, (x, shape) in enumerate(zip(leaves, self.layout.shapes, strict=True)):
            if x.shape != (*extra, *shape):
                raise ValueError(f"leaf {k} of the state must have shape {(*extra, *shape)}, got {x.shape}")
        for view, x in zip(self.views(), leaves, strict=True):
            view[...] = np.moveaxis(x, 0, -1) if extra else x

    def unload(self) -> Any:
        """A copy of the state."""
        leaves = [np.moveaxis(v, -1, 0) if self.lanes > 1 else v for v in self.views()]
        return self.layout.wrap([np.array(v) for v in leaves])


class Attached:
    """A program with the buffers of its inputs, outputs and scratch space, for one run or one block of them."""

    def __init__(self, program: Program, memory: Memory):
        self.program, self.memory = program, memory
        lanes = () if program.lanes == 1 else (program.lanes,)
        inputs = [s if one else (*s, *lanes) for s, one in zip(program.inputs.shapes, program.shared, strict=True)]
        shapes = [*inputs, *((*s, *lanes) for s in program.outputs.shapes), *((size,) for size in program.scratch)]
        kinds = [*program.inputs.kinds, *program.outputs.kinds, *"b" * len(program.scratch)]
        self._arrays = aligned(shapes, kinds)
        self.inputs, rest = self._arrays[: len(inputs)], self._arrays[len(inputs) :]
        self.outputs = rest[: len(program.outputs.shapes)]
        self._table = addresses(self._arrays)
        self.pointers = (*memory.pointers, self._table.ctypes.data)

    def advance(self, steps: int = 1) -> None:
        """Take so many steps with the inputs as they are."""
        self.program.run(*self.pointers, steps)


class Compiled:
    """A compiled step with memory of its own (or shared with other steps on the same state).

    Calling it takes inputs, changes the state in memory, and returns the outputs as arrays that the next call writes
    over. ``inputs`` and ``outputs`` are these arrays; who fills ``inputs`` by hand calls ``advance``.
    """

    def __init__(self, program: Program, memory: Memory):
        self.program, self.memory = program, memory
        attached = Attached(program, memory)
        self._given, self.advance = attached.inputs, attached.advance
        self.inputs = jax.tree.unflatten(program.inputs.tree, attached.inputs)
        self.outputs = jax.tree.unflatten(program.outputs.tree, attached.outputs)

    def __call__(self, *inputs: Any) -> Any:
        """One step."""
        for array, value in zip(self._given, jax.tree.leaves(inputs), strict=True):
            array[...] = value
        self.advance()
        return self.outputs

    @property
    def state(self) -> Any:
        """A copy of the state."""
        return self.memory.unload()

    @state.setter
    def state(self, tree: Any) -> None:
        self.memory.load(tree)


def compile(step: Callable[..., Any], state: Any, *inputs: Any, memory: Memory | None = None) -> Compiled:
    """Compile ``step(state, *inputs) -> (state, outputs)`` for one run.

    Args:
        step: a pure JAX function, any derivatives inside it; its arrays float32, int32, uint32, uint8 (which
            calls take and return as uint32), bool or random keys.
        state: an example of the state, whose numbers are the first ones.
        inputs: examples of the inputs.
        memory: of another compiled step on the same state, to share it.

    Returns:
        The compiled step, with the state in its memory.

    Raises:
        Unsupported: for a primitive or a dtype that cannot be compiled, with its line.
    """
    program = Program(Step(step, state, inputs))
    if memory is None:
        memory = Memory(program.state)
        memory.load(state)
    elif memory.layout.tree != program.state.tree or memory.layout.shapes != program.state.shapes:
        raise ValueError("memory is of another state than the step's")
    return Compiled(program, memory)
