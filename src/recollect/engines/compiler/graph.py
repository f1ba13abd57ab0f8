"""Values as a graph without repetition: equal expressions are one node, constants are folded, identities are applied.

A node is an operation on arrays of one run. Nothing here says how or when it is computed; `plan` decides that. Only
identities that hold for every bit pattern are applied: x·0 is not 0 where x may be infinite or NaN.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

DTYPES = {"f": np.dtype(np.float32), "i": np.dtype(np.int32), "u": np.dtype(np.uint32), "b": np.dtype(np.bool_)}
OCTET = np.dtype(np.uint8)
"""Computed as uint32, and cut to its eight bits after every operation that could leave them."""
LETTERS = {dtype: letter for letter, dtype in DTYPES.items()} | {OCTET: "u"}

COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})
VIEWS = frozenset({"bcast", "reshape", "transpose", "slice", "rev"})

STORED_OPS = frozenset(
    {"concat", "cumulative", "arg", "loop", "sort", "part", "scatter_many", "update_many"}
    | {"scatter_in_place", "update_in_place"}
)
"""Operations whose results always lie in memory."""

OPAQUE = frozenset({"gather", "dynamic_slice", "scatter", "dynamic_update_slice"})
"""Operations at computed places, computed element by element."""


_SERIAL = itertools.count()


class Unsupported(Exception):  # noqa: N818  (callers read `except Unsupported`, and fall back)
    """What cannot be compiled, with the primitive and the line of the program it came from."""


def letter(dtype: Any) -> str:
    """The one-letter name of a dtype; one of another kind or width is refused rather than narrowed."""
    try:
        return LETTERS[np.dtype(dtype)]
    except (KeyError, TypeError):
        raise Unsupported(f"arrays of {dtype} (float32, int32, uint32, uint8 and bool are compiled)") from None


class Node:
    """One array of one run: an operation, its inputs, and what else the operation needs to know."""

    __slots__ = ("dtype", "id", "ins", "op", "params", "shape", "size", "value")

    def __init__(
        self, op: str, ins: tuple["Node", ...], shape: tuple[int, ...], dtype: str, params: Any = (), value: Any = None
    ):
        self.op, self.ins, self.shape, self.dtype, self.params, self.value = op, ins, shape, dtype, params, value
        self.size = math.prod(shape)  # the number of elements
        self.id = next(_SERIAL)

    def __repr__(self) -> str:
        return f"%{self.id}:{self.op}{list(self.shape)}{self.dtype}"


FOLD: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": lambda a, b: a / b if a.dtype.kind == "f" else None,
    "neg": np.negative,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "max": np.maximum,
    "min": np.minimum,
    "abs": np.abs,
    "floor": np.floor,
    "sqrt": np.sqrt,
    "is_finite": np.isfinite,
    "select": lambda p, a, b: np.where(p, b, a),
}
"""Operations that NumPy computes exactly as the compiled code does."""


class Graph:
    """Makes nodes, each once."""

    def __init__(self) -> None:
        self._known: dict[Any, Node] = {}

    def make(
        self, op: str, ins: Sequence[Node], shape: Sequence[int], dtype: str, params: Any = (), value: Any = None
    ) -> Node:
        """The node of this operation, the one there is or a new one."""
        data = None if value is None else (value.tobytes(), value.shape)
        key = (op, tuple(n.id for n in ins), tuple(shape), dtype, params, data)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = Node(op, tuple(ins), tuple(int(s) for s in shape), dtype, params, value)
        return known

    def const(self, value: Any, dtype: str | None = None) -> Node:
        """A constant; one that is the same everywhere is a scalar broadcast."""
        value = np.asarray(value)
        value = value.astype(DTYPES[dtype or letter(value.dtype)])
        kind = letter(value.dtype)
        value = np.ascontiguousarray(value).reshape(value.shape)
        if value.size > 1 and len(np.unique(value.reshape(-1).view(np.uint8 if kind == "b" else np.uint32))) == 1:
            return self.bcast(self.const(value.reshape(-1)[0]), value.shape, ())
        return self.make("const", (), value.shape, kind, (), value)

    def splat(self, n: Node) -> Any:
        """The one number that a constant is everywhere, or None."""
        while n.op in ("bcast", "reshape"):
            n = n.ins[0]
        return n.value.reshape(-1)[0] if n.op == "const" and n.size == 1 else None

    def elementwise(self, op: str, *ins: Node, dtype: str | None = None) -> Node:
        """An operation on corresponding elements; axes of length 1 and scalars are broadcast."""
        shape = np.broadcast_shapes(*(n.shape for n in ins))
        ins = tuple(self.bcast(n, shape, range(len(shape) - len(n.shape), len(shape))) for n in ins)
        kind = dtype or ("b" if op in COMPARISONS or op == "is_finite" else ins[0 if op == "pow" else -1].dtype)
        splats = [self.splat(n) for n in ins]
        fold = FOLD.get(op)
        if fold and all(s is not None for s in splats):
            with np.errstate(all="ignore"):
                folded = fold(*splats)
            if folded is not None:
                return self.bcast(self.const(np.asarray(folded, DTYPES[kind])), shape, ())
        found = self._identity(op, ins, splats, kind)
        return found if found is not None else self.make(op, ins, shape, kind)

    def _identity(self, op: str, ins: tuple[Node, ...], splats: list, kind: str) -> Node | None:
        if op in ("mul", "add", "and", "or") and splats[0] is not None and splats[1] is None:
            ins, splats = ins[::-1], splats[::-1]
        last = splats[-1]
        if op == "select":
            if splats[0] is not None:
                return ins[2] if splats[0] else ins[1]
            if ins[1] is ins[2]:
                return ins[1]
            if kind == "b" and splats[1] is not None and splats[2] is not None:
                return ins[0] if splats[2] else self.elementwise("not", ins[0])
        elif last is None:
            if op == "neg" and ins[0].op == "neg":
                return ins[0].ins[0]
            if op == "not" and ins[0].op == "not":
                return ins[0].ins[0]
        elif kind == "b" and op in ("and", "or"):
            return ins[0] if bool(last) == (op == "and") else ins[1]
        elif kind in "iu" and op in ("add", "sub", "or", "xor", "shl", "shr", "sar") and last == 0:
            return ins[0]
        elif kind in "iu" and op == "mul" and last == 0:
            return ins[1]
        elif op in ("mul", "div") and last == 1:
            return ins[0]
        elif kind == "f" and ((op == "sub" and last == 0) or (op == "add" and last == 0 and np.signbit(last))):
            return ins[0]  # x - 0 and x + (-0) are x, also for x = -0; x + 0 is not
        return None

    def bcast(self, n: Node, shape: Sequence[int], dims: Sequence[int]) -> Node:
        """`jax.lax.broadcast_in_dim`; ``dims`` need not increase."""
        shape, dims = tuple(shape), tuple(dims)
        if shape == n.shape and dims == tuple(range(len(shape))):
            return n
        if n.op == "bcast":
            return self.bcast(n.ins[0], shape, tuple(dims[d] for d in n.params))
        if n.size == 1 and n.shape != ():
            return self.bcast(self.reshape(n, ()), shape, ())
        return self.make("bcast", (n,), shape, n.dtype, dims)

    def reshape(self, n: Node, shape: Sequence[int]) -> Node:
        """The same elements in row-major order."""
        shape = tuple(shape)
        if shape == n.shape:
            return n
        if n.op == "const":
            return self.make("const", (), shape, n.dtype, (), n.value.reshape(shape))
        if n.op == "reshape":
            return self.reshape(n.ins[0], shape)
        if n.op == "bcast" and n.ins[0].shape == ():
            return self.bcast(n.ins[0], shape, ())
        if n.op == "bcast" and [s for s in shape if s > 1] == [s for s in n.shape if s > 1]:
            places = [d for d, s in enumerate(shape) if s > 1]
            real = [d for d, s in enumerate(n.shape) if s > 1]
            inner = n.ins[0]
            long = [k for k, s in enumerate(inner.shape) if s > 1]
            flat = self.reshape(inner, [inner.shape[k] for k in long])
            return self.bcast(flat, shape, tuple(places[real.index(n.params[k])] for k in long))
        return self.make("reshape", (n,), shape, n.dtype)

    def transpose(self, n: Node, order: Sequence[int]) -> Node:
        """Axes in another order."""
        order = tuple(order)
        if order == tuple(range(len(order))):
            return n
        if n.op == "const":
            return self.const(n.value.transpose(order))
        shape = tuple(n.shape[d] for d in order)
        if n.op == "bcast":
            return self.bcast(n.ins[0], shape, tuple(order.index(d) for d in n.params))
        if n.op == "transpose":
            return self.transpose(n.ins[0], tuple(n.params[d] for d in order))
        return self.make("transpose", (n,), shape, n.dtype, order)

    def slice(
        self, n: Node, starts: Sequence[int], limits: Sequence[int], strides: Sequence[int] | None = None
    ) -> Node:
        """A part with constant bounds."""
        steps = tuple(strides or (1,) * len(starts))
        starts = tuple(int(s) for s in starts)
        shape = tuple(-(-(stop - start) // step) for start, stop, step in zip(starts, limits, steps, strict=True))
        if shape == n.shape:
            return n
        if n.op == "const":
            return self.const(n.value[tuple(slice(*a) for a in zip(starts, limits, steps, strict=True))])
        if n.op == "bcast" and n.ins[0].shape == ():
            return self.bcast(n.ins[0], shape, ())
        if n.op == "bcast":
            inner, bounds = n.ins[0], list(zip(starts, limits, steps, strict=True))
            each = [bounds[d] if s > 1 else (0, 1, 1) for s, d in zip(inner.shape, n.params, strict=True)]
            return self.bcast(self.slice(inner, *zip(*each, strict=True)), shape, n.params)
        if n.op == "slice":
            first, step = n.params
            begin = tuple(a + b * s for a, b, s in zip(first, starts, step, strict=True))
            both = tuple(a * b for a, b in zip(step, steps, strict=True))
            return self.make("slice", n.ins, shape, n.dtype, (begin, both))
        if n.op == "reduce":
            return self._slice_of_sum(n, starts, limits, steps)
        if n.op == "concat" and all(s == 1 for s in steps):
            at, axis = 0, n.params
            for part in n.ins:
                end = at + part.shape[axis]
                if at <= starts[axis] and starts[axis] + shape[axis] <= end:
                    begin = tuple(s - at if d == axis else s for d, s in enumerate(starts))
                    return self.slice(part, begin, tuple(b + s for b, s in zip(begin, shape, strict=True)))
                at = end
        return self.make("slice", (n,), shape, n.dtype, (starts, steps))

    def _slice_of_sum(self, n: Node, *bounds: Sequence[int]) -> Node:
        """Part of a reduction: what is not asked for is not reduced."""
        kept = iter(zip(*bounds, strict=True))
        each = [(0, s, 1) if d in n.params[1] else next(kept) for d, s in enumerate(n.ins[0].shape)]
        product = len(n.ins) == 1 and n.ins[0].op == "mul"  # two inputs: their product is summed as it is
        whole = n.ins[0].ins if product else n.ins
        parts = [self.slice(i, *zip(*each, strict=True)) for i in whole]
        if product:
            parts = [self.elementwise("mul", *parts)]
        axes = n.params[1]
        shape = [s for d, s in enumerate(parts[0].shape) if d not in axes]
        return self.make("reduce", parts, shape, n.dtype, n.params)

    def between(self, n: Node, axis: int, low: int, high: int) -> Node:
        """The part from ``low`` up to ``high`` of one axis."""
        starts = [low if d == axis else 0 for d in range(len(n.shape))]
        return self.slice(n, starts, [high if d == axis else s for d, s in enumerate(n.shape)])

    def layer(self, n: Node, axis: int, k: int) -> Node:
        """One place of an axis, without the axis."""
        return self.reshape(self.between(n, axis, k, k + 1), (*n.shape[:axis], *n.shape[axis + 1 :]))

    def stack(self, parts: Sequence[Node], axis: int) -> Node:
        """Arrays side by side along a new axis."""
        return self.concat([self.reshape(n, (*n.shape[:axis], 1, *n.shape[axis:])) for n in parts], axis)

    def concat(self, parts: Sequence[Node], axis: int) -> Node:
        """Arrays one after the other along an axis."""
        parts = [p for p in parts if p.shape[axis]] or list(parts[:1])
        if len(parts) == 1:
            return parts[0]
        if all(p.op == "const" for p in parts):
            return self.const(np.concatenate([p.value for p in parts], axis))
        total = sum(p.shape[axis] for p in parts)
        shape = tuple(total if d == axis else s for d, s in enumerate(parts[0].shape))
        return self.make("concat", parts, shape, parts[0].dtype, axis)

    def reduce(self, kind: str, n: Node, axes: Sequence[int], partial: bool | None = None) -> Node:
        """Elements combined along axes.

        ``partial``: whether a sum of floats is taken as `PARTS` sums side by side, which are then added as a tree.
        That is part of the meaning, not of how it is computed, so that results have the same bits everywhere.
        """
        axes = tuple(sorted(axes))
        shape = tuple(s for d, s in enumerate(n.shape) if d not in axes)
        if all(n.shape[a] == 1 for a in axes):
            return self.reshape(n, shape)
        if n.shape and 0 in n.shape:
            empty = {"sum": 0, "prod": 1, "and": True, "or": False}
            if kind not in empty:
                raise Unsupported(f"the {kind} of no elements")
            return self.bcast(self.const(np.asarray(empty[kind], DTYPES[n.dtype])), shape, ())
        trailing = axes == tuple(range(len(n.shape) - len(axes), len(n.shape)))
        if partial is None:
            partial = trailing
        many = math.prod(n.shape[a] for a in axes) >= 2 * PARTS
        ordered = n.dtype == "f" and kind in ("sum", "prod")
        return self.make("reduce", (n,), shape, n.dtype, (kind, axes, bool(partial and trailing and many and ordered)))


PARTS = 16
"""Partial sums of a long sum of floats over trailing axes: one vector of them.

Element k of a row goes to sum k mod `PARTS`; of rows shorter than that, element k of all in row-major order.
"""


def starts_anew(sizes: Sequence[int]) -> bool:
    """Whether each row of a sum over axes of these sizes begins with the first partial sum, wherever the last ended."""
    return sizes[-1] >= PARTS and sizes[-1] % PARTS != 0
