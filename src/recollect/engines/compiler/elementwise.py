"""Rules of primitives on corresponding elements, of reductions and of products."""

import itertools
from typing import Any

import jax
import numpy as np

from recollect.engines.compiler.functions import LIBM
from recollect.engines.compiler.graph import DTYPES, Graph, Node, Unsupported, letter
from recollect.engines.compiler.rules import is_key, out_shape, rule

SAME = (
    *("add", "sub", "mul", "max", "min", "neg", "abs", "sign", "and", "or", "xor", "not", "lt", "le", "gt", "ge"),
    *("eq", "ne", "div", "rem", "mulhi", "floor", "ceil", "sqrt", "rsqrt", "exp", "log", "tanh", "expm1", "log1p"),
    *("logistic", "sin", "cos", "erf_inv", "pow", "is_finite", "clz", *LIBM),
)
OTHERS = {"add_any": "add", "shift_left": "shl", "shift_right_logical": "shr", "shift_right_arithmetic": "sar"}
PLAIN = {name: name for name in SAME} | OTHERS | {"population_count": "popcount"}


@rule(*PLAIN)
def _plain(graph: Graph, e: Any, x: list[Node]) -> Any:
    if e.primitive.name == "add_any":
        merged = _disjoint(graph, *x)
        if merged is not None:
            return merged
    return graph.elementwise(PLAIN[e.primitive.name], *x)


def _disjoint(graph: Graph, a: Node, b: Node) -> Node | None:
    """The sum of two arrays padded with zeros that do not overlap: gradients of parts of one vector."""
    if a.op != "concat" or b.op != "concat" or a.params != b.params:
        return None
    axis, bounds = a.params, {0}
    for n in (a, b):
        bounds |= set(np.cumsum([p.shape[axis] for p in n.ins]).tolist())
    places, parts = sorted(bounds), []
    for low, high in itertools.pairwise(places):
        left, right = (graph.between(n, axis, low, high) for n in (a, b))
        if graph.splat(right) == 0:
            parts.append(left)
        elif graph.splat(left) == 0:
            parts.append(right)
        else:
            return None
    merged: list[Node] = []
    for part in parts:
        if merged and graph.splat(merged[-1]) == 0 and graph.splat(part) == 0:
            shape = tuple(s + merged[-1].shape[axis] if d == axis else s for d, s in enumerate(part.shape))
            merged[-1] = graph.bcast(graph.const(0, a.dtype), shape, ())
        else:
            merged.append(part)
    return graph.concat(merged, axis)


@rule("select_n")
def _select(graph: Graph, e: Any, x: list[Node]) -> Any:
    which, *cases = x
    if is_key(e.outvars[0].aval) and which.shape:
        which = graph.bcast(which, cases[0].shape, tuple(range(len(which.shape))))
    if len(cases) == 1:
        return cases[0]
    if which.dtype != "b":
        result = cases[0]
        for k, case in enumerate(cases[1:], 1):
            result = graph.elementwise("select", graph.elementwise("eq", which, graph.const(np.int32(k))), result, case)
        return result
    return graph.elementwise("select", which, *cases)


@rule("le_to", "lt_to")
def _total_order(graph: Graph, e: Any, x: list[Node]) -> Any:
    """Comparisons by which every float has its place, as searching needs: by bits, those of negative ones reversed."""

    def place(n: Node) -> Node:
        if n.dtype != "f":
            return n
        bits = graph.elementwise("bitcast", n, dtype="i")
        reversed_bits = graph.elementwise("xor", bits, graph.const(np.int32(0x7FFFFFFF)))
        return graph.elementwise("select", graph.elementwise("lt", bits, graph.const(np.int32(0))), bits, reversed_bits)

    return graph.elementwise(e.primitive.name[:2], *map(place, x))


@rule("clamp")
def _clamp(graph: Graph, e: Any, x: list[Node]) -> Any:
    return graph.elementwise("min", graph.elementwise("max", x[1], x[0]), x[2])


@rule("square")
def _square(graph: Graph, e: Any, x: list[Node]) -> Any:
    return graph.elementwise("mul", x[0], x[0])


@rule("one_minus_square")  # of JAX 0.11, in the derivative of tanh
def _one_minus_square(graph: Graph, e: Any, x: list[Node]) -> Any:
    one = graph.bcast(graph.const(1, x[0].dtype), x[0].shape, ())
    return graph.elementwise("sub", one, graph.elementwise("mul", x[0], x[0]))


@rule("integer_pow")
def _integer_pow(graph: Graph, e: Any, x: list[Node]) -> Any:
    y, base = e.params["y"], x[0]
    one = graph.const(1, base.dtype)
    if y == 0:
        return graph.bcast(one, base.shape, ())
    result, left = None, abs(y)
    while left:
        if left & 1:
            result = base if result is None else graph.elementwise("mul", result, base)
        left >>= 1
        if left:
            base = graph.elementwise("mul", base, base)
    assert result is not None
    return graph.elementwise("div", one, result) if y < 0 else result


@rule("round")
def _round(graph: Graph, e: Any, x: list[Node]) -> Any:
    return graph.elementwise("round_even" if int(e.params["rounding_method"]) == 1 else "round_away", x[0])


@rule("convert_element_type")
def _convert(graph: Graph, e: Any, x: list[Node]) -> Any:
    kind = letter(e.params["new_dtype"])
    if kind == x[0].dtype:
        return x[0]
    if x[0].op == "const":
        return graph.const(np.asarray(jax.lax.convert_element_type(x[0].value, DTYPES[kind])))
    splat = graph.splat(x[0])
    if splat is not None:
        value = np.asarray(jax.lax.convert_element_type(splat, DTYPES[kind]))
        return graph.bcast(graph.const(value), x[0].shape, ())
    return graph.elementwise("convert", x[0], dtype=kind)


@rule("bitcast_convert_type")
def _bitcast(graph: Graph, e: Any, x: list[Node]) -> Any:
    kind = letter(e.params["new_dtype"])
    if "b" in (kind, x[0].dtype) and kind != x[0].dtype:
        raise Unsupported("the bits of a truth value")
    return x[0] if kind == x[0].dtype else graph.elementwise("bitcast", x[0], dtype=kind)


# -- reductions and products


@rule("reduce_sum", "reduce_max", "reduce_min", "reduce_and", "reduce_or", "reduce_prod")
def _reduction(graph: Graph, e: Any, x: list[Node]) -> Any:
    return graph.reduce(e.primitive.name[7:], x[0], e.params["axes"])


@rule("argmax", "argmin")
def _arg(graph: Graph, e: Any, x: list[Node]) -> Any:
    (axis,) = e.params["axes"]
    kind = letter(e.params["index_dtype"])
    if kind not in "iu":
        raise Unsupported("this index dtype")
    return graph.make("arg", x, out_shape(e), kind, (e.primitive.name[3:], axis))


@rule("cumsum", "cumprod", "cummax", "cummin")
def _cumulative(graph: Graph, e: Any, x: list[Node]) -> Any:
    params = (e.primitive.name[3:], e.params["axis"], bool(e.params["reverse"]))
    return graph.make("cumulative", x, x[0].shape, x[0].dtype, params)


@rule("dot_general")
def _dot(graph: Graph, e: Any, x: list[Node]) -> Any:
    (left_sum, right_sum), (left_batch, right_batch) = e.params["dimension_numbers"]
    left, right = x
    left_free = [d for d in range(len(left.shape)) if d not in (*left_sum, *left_batch)]
    right_free = [d for d in range(len(right.shape)) if d not in (*right_sum, *right_batch)]
    space = [left.shape[d] for d in (*left_batch, *left_free)] + [right.shape[d] for d in right_free]
    kept = len(space)
    space += [left.shape[d] for d in left_sum]
    place = {d: k for k, d in enumerate((*left_batch, *left_free))}
    place.update({d: kept + k for k, d in enumerate(left_sum)})
    other = {d: k for k, d in enumerate(right_batch)}
    other.update({d: len(left_batch) + len(left_free) + k for k, d in enumerate(right_free)})
    other.update({d: kept + k for k, d in enumerate(right_sum)})
    a = graph.bcast(left, space, [place[d] for d in range(len(left.shape))])
    b = graph.bcast(right, space, [other[d] for d in range(len(right.shape))])
    product = graph.elementwise("mul", a, b)
    if kept == len(space):
        return product
    # A sum along the last axis of what is larger is taken in parts, so that it runs over neighbours in memory.
    larger, summed = (left, left_sum) if left.size >= right.size else (right, right_sum)
    last = len(larger.shape) - 1 in summed and len(summed) == 1
    return graph.reduce("sum", product, range(kept, len(space)), partial=last)
