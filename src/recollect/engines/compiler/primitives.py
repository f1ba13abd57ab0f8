"""From a jaxpr to the graph: a rule for each primitive, calls inlined, derivatives already expanded by JAX."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core, source_info_util

from recollect.engines.compiler.graph import DTYPES, Graph, Node, Unsupported, letter

UNROLLED_SCAN = 4
"""Scans up to this length are unrolled."""

Rule = Callable[[Graph, Any, list[Node]], Any]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a function as the rule of primitives."""

    def add(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return add


def convert(graph: Graph, closed: Any, args: Sequence[Node]) -> list[Node]:
    """The outputs of a closed jaxpr on nodes."""
    return _evaluate(graph, closed.jaxpr, closed.consts, args)


def _evaluate(graph: Graph, jaxpr: Any, consts: Sequence[Any], args: Sequence[Node]) -> list[Node]:
    known: dict[Any, Node] = {}

    def read(v: Any) -> Node:
        return graph.const(np.asarray(v.val, v.aval.dtype)) if isinstance(v, core.Literal) else known[v]

    for var, value in zip(jaxpr.constvars, consts, strict=True):
        known[var] = value if isinstance(value, Node) else graph.const(_raw(value))
    known.update(zip(jaxpr.invars, args, strict=True))
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        function = RULES.get(name)
        try:
            if function is None:
                raise Unsupported(f"the primitive {name!r}")
            results = function(graph, equation, [read(v) for v in equation.invars])
        except Unsupported as error:
            if "\n" in str(error):
                raise
            line = source_info_util.summarize(equation.source_info)
            raise Unsupported(f"{error}\n  primitive {name!r} at {line}") from None
        results = results if isinstance(results, (list, tuple)) else [results]
        known.update(zip(equation.outvars, results, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _raw(value: Any) -> np.ndarray:
    if is_key(jnp.asarray(value)):
        value = jax.random.key_data(value)
    return np.asarray(value)


def is_key(x: Any) -> bool:
    """Whether an array or abstract value holds random keys."""
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _physical(aval: Any) -> tuple[int, ...]:
    """The shape as numbers: a key is its words."""
    return (*aval.shape, *aval.dtype._impl.key_shape) if is_key(aval) else tuple(aval.shape)


def _shape(equation: Any) -> tuple[int, ...]:
    return _physical(equation.outvars[0].aval)


# -- calls


@rule("jit", "pjit", "closed_call", "core_call", "remat", "checkpoint", "custom_lin")
def _call(graph: Graph, e: Any, x: list[Node]) -> Any:
    inner = e.params["jaxpr"] if "jaxpr" in e.params else e.params["call_jaxpr"]
    return convert(graph, inner, x) if hasattr(inner, "consts") else _evaluate(graph, inner, [], x)


@rule("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr")
def _custom(graph: Graph, e: Any, x: list[Node]) -> Any:
    return convert(graph, e.params.get("call_jaxpr") or e.params["fun_jaxpr"], x)


@rule("custom_vmap_call")
def _custom_vmap(graph: Graph, e: Any, x: list[Node]) -> Any:
    return convert(graph, e.params["call"], x)


@rule("cond")
def _cond(graph: Graph, e: Any, x: list[Node]) -> Any:
    index, args = x[0], x[1:]
    outs = [convert(graph, branch, args) for branch in e.params["branches"]]
    results = list(outs[0])
    for k in range(1, len(outs)):
        last = k == len(outs) - 1
        chosen = (
            index if index.dtype == "b" else graph.elementwise("ge" if last else "eq", index, graph.const(np.int32(k)))
        )
        results = [graph.elementwise("select", chosen, a, b) for a, b in zip(results, outs[k], strict=True)]
    return results


@rule("scan")
def _scan(graph: Graph, e: Any, x: list[Node]) -> Any:
    p = e.params
    consts, carries, length = p["num_consts"], p["num_carry"], p["length"]
    fixed, carry, xs = x[:consts], x[consts : consts + carries], x[consts + carries :]
    if length <= UNROLLED_SCAN:
        rows: list[list[Node]] = []
        for t in reversed(range(length)) if p["reverse"] else range(length):
            at = [_row(graph, n, t) for n in xs]
            out = convert(graph, p["jaxpr"], [*fixed, *carry, *at])
            carry, rows = out[:carries], [*rows, out[carries:]]
        rows = rows[::-1] if p["reverse"] else rows
        if not length:
            return [
                *carry,
                *(
                    graph.bcast(graph.const(0, letter(v.aval.dtype)), _physical(v.aval), ())
                    for v in e.outvars[carries:]
                ),
            ]
        stacked = [
            graph.concat([graph.reshape(n, (1, *n.shape)) for n in column], 0) for column in zip(*rows, strict=True)
        ]
        return [*carry, *stacked]
    body = subgraph(p["jaxpr"], [(n.shape, n.dtype) for n in [*fixed, *carry]] + [(n.shape[1:], n.dtype) for n in xs])
    params = ("scan", body, consts, carries, length, bool(p["reverse"]))
    return _many(graph, "loop", x, params, e)


@rule("while")
def _while(graph: Graph, e: Any, x: list[Node]) -> Any:
    p = e.params
    nc, nb = p["cond_nconsts"], p["body_nconsts"]
    carry = [(n.shape, n.dtype) for n in x[nc + nb :]]
    test = subgraph(p["cond_jaxpr"], [(n.shape, n.dtype) for n in x[:nc]] + carry)
    body = subgraph(p["body_jaxpr"], [(n.shape, n.dtype) for n in x[nc : nc + nb]] + carry)
    return _many(graph, "loop", x, ("while", test, body, nc, nb), e)


class Subgraph:
    """The body of a loop: its own graph, since it is computed again and again."""

    def __init__(self, graph: Graph, leaves: list[Node], outs: list[Node]):
        self.graph, self.leaves, self.outs = graph, leaves, outs


def subgraph(closed: Any, inputs: Sequence[tuple[tuple[int, ...], str]]) -> Subgraph:
    """A closed jaxpr as a graph whose leaves are its inputs."""
    graph = Graph()
    leaves = [graph.make("leaf", (), shape, dtype, k) for k, (shape, dtype) in enumerate(inputs)]
    return Subgraph(graph, leaves, convert(graph, closed, leaves))


def _many(graph: Graph, op: str, x: list[Node], params: Any, e: Any) -> list[Node]:
    """One node with several results, and a node for each of them."""
    whole = graph.make(op, x, (), "b", params)
    avals = [v.aval for v in e.outvars]
    kinds = ["u" if is_key(a) else letter(a.dtype) for a in avals]
    return [graph.make("part", (whole,), _physical(a), d, k) for k, (a, d) in enumerate(zip(avals, kinds, strict=True))]


def _row(graph: Graph, n: Node, t: int) -> Node:
    rest = (0,) * (len(n.shape) - 1)
    return graph.reshape(graph.slice(n, (t, *rest), (t + 1, *n.shape[1:])), n.shape[1:])


@rule("random_wrap", "random_unwrap", "stop_gradient", "copy", "copy_p", "optimization_barrier", "device_put", "pvary")
def _same(graph: Graph, e: Any, x: list[Node]) -> Any:
    return x


@rule("reduce_precision")
def _precision(graph: Graph, e: Any, x: list[Node]) -> Any:
    if (e.params["exponent_bits"], e.params["mantissa_bits"]) != (8, 23):
        raise Unsupported("a precision other than float32's")
    return x


# -- random numbers


def _implementation(e: Any) -> Any:
    return e.invars[0].aval.dtype._impl


def _traced(e: Any, function: Callable, *like: Any) -> Any:
    """The jaxpr of a generator's function on the words of a key, or of each key of an array."""
    for _ in e.invars[0].aval.shape:
        function = jax.vmap(function)
    return jax.make_jaxpr(function)(*(jax.ShapeDtypeStruct(shape, np.uint32) for shape in like))


@rule("random_bits")
def _bits(graph: Graph, e: Any, x: list[Node]) -> Any:
    impl, width, shape = _implementation(e), e.params["bit_width"], e.params["shape"]
    return convert(graph, _traced(e, lambda k: impl.random_bits(k, width, shape), x[0].shape), x)


@rule("random_split")
def _split_key(graph: Graph, e: Any, x: list[Node]) -> Any:
    impl, shape = _implementation(e), e.params["shape"]
    return convert(graph, _traced(e, lambda k: impl.split(k, shape), x[0].shape), x)


@rule("random_fold_in")
def _fold_in(graph: Graph, e: Any, x: list[Node]) -> Any:
    impl = _implementation(e)
    data = graph.elementwise("bitcast", x[1], dtype="u") if x[1].dtype == "i" else x[1]
    data = graph.bcast(data, e.invars[0].aval.shape, ()) if data.shape == () else data
    return convert(graph, _traced(e, impl.fold_in, x[0].shape, data.shape), [x[0], data])


@rule("random_seed")
def _seed(graph: Graph, e: Any, x: list[Node]) -> Any:
    impl = e.params["impl"]
    closed = jax.make_jaxpr(impl.seed)(jax.ShapeDtypeStruct(x[0].shape, DTYPES[x[0].dtype]))
    return convert(graph, closed, x)


@rule("threefry2x32")
def _threefry(graph: Graph, e: Any, x: list[Node]) -> Any:
    """JAX's own generator: Threefry-2x32 with 20 rounds (Salmon and others, 2011)."""

    def add(a: Node, b: Any) -> Node:
        return graph.elementwise("add", a, b if isinstance(b, Node) else graph.const(np.uint32(b)))

    def turn(a: Node, by: int) -> Node:
        left = graph.elementwise("shl", a, graph.const(np.uint32(by)))
        return graph.elementwise("or", left, graph.elementwise("shr", a, graph.const(np.uint32(32 - by))))

    key_0, key_1, a, b = x
    key_2 = graph.elementwise("xor", graph.elementwise("xor", key_0, key_1), graph.const(np.uint32(0x1BD11BDA)))
    keys = (key_0, key_1, key_2)
    a, b = add(a, key_0), add(b, key_1)
    for group in range(5):
        for by in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
            a = add(a, b)
            b = graph.elementwise("xor", turn(b, by), a)
        a = add(a, keys[(group + 1) % 3])
        b = add(add(b, keys[(group + 2) % 3]), group + 1)
    return [a, b]


# -- elementwise

PLAIN = {
    "add": "add",
    "add_any": "add",
    "sub": "sub",
    "mul": "mul",
    "max": "max",
    "min": "min",
    "neg": "neg",
    "abs": "abs",
    "sign": "sign",
    "and": "and",
    "or": "or",
    "xor": "xor",
    "not": "not",
    "lt": "lt",
    "le": "le",
    "gt": "gt",
    "ge": "ge",
    "eq": "eq",
    "ne": "ne",
    "div": "div",
    "rem": "rem",
    "mulhi": "mulhi",
    "shift_left": "shl",
    "shift_right_logical": "shr",
    "shift_right_arithmetic": "sar",
    "floor": "floor",
    "ceil": "ceil",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "exp": "exp",
    "log": "log",
    "tanh": "tanh",
    "expm1": "expm1",
    "log1p": "log1p",
    "logistic": "logistic",
    "sin": "sin",
    "cos": "cos",
    "erf_inv": "erf_inv",
    "pow": "pow",
    "is_finite": "is_finite",
    "population_count": "popcount",
    "clz": "clz",
    "exp2": "exp2",
    "cbrt": "cbrt",
    "tan": "tan",
    "atan2": "atan2",
    "erf": "erf",
    "asin": "asin",
    "acos": "acos",
    "atan": "atan",
    "sinh": "sinh",
    "cosh": "cosh",
}


def _plain(graph: Graph, e: Any, x: list[Node]) -> Any:
    if e.primitive.name == "add_any":
        merged = _disjoint(graph, *x)
        if merged is not None:
            return merged
    return graph.elementwise(PLAIN[e.primitive.name], *x)


RULES.update(dict.fromkeys(PLAIN, _plain))


def _disjoint(graph: Graph, a: Node, b: Node) -> Node | None:
    """The sum of two arrays padded with zeros that do not overlap: gradients of parts of one vector."""
    if a.op != "concat" or b.op != "concat" or a.params != b.params:
        return None
    axis, bounds = a.params, {0}
    for n in (a, b):
        bounds |= set(np.cumsum([p.shape[axis] for p in n.ins]).tolist())
    places, parts = sorted(bounds), []
    for low, high in itertools.pairwise(places):
        starts = [low if d == axis else 0 for d in range(len(a.shape))]
        stops = [high if d == axis else s for d, s in enumerate(a.shape)]
        left, right = graph.slice(a, starts, stops), graph.slice(b, starts, stops)
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


@rule("clamp")
def _clamp(graph: Graph, e: Any, x: list[Node]) -> Any:
    return graph.elementwise("min", graph.elementwise("max", x[1], x[0]), x[2])


@rule("square")
def _square(graph: Graph, e: Any, x: list[Node]) -> Any:
    return graph.elementwise("mul", x[0], x[0])


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


# -- shapes


@rule("broadcast_in_dim")
def _broadcast(graph: Graph, e: Any, x: list[Node]) -> Any:
    dims = tuple(e.params["broadcast_dimensions"])
    shape = _shape(e)
    return graph.bcast(x[0], shape, (*dims, *range(len(e.outvars[0].aval.shape), len(shape))))


@rule("reshape", "squeeze", "expand_dims")
def _reshape(graph: Graph, e: Any, x: list[Node]) -> Any:
    return graph.reshape(x[0], _shape(e))


@rule("transpose")
def _transpose(graph: Graph, e: Any, x: list[Node]) -> Any:
    order = tuple(e.params["permutation"])
    return graph.transpose(x[0], (*order, *range(len(order), len(x[0].shape))))


@rule("rev")
def _rev(graph: Graph, e: Any, x: list[Node]) -> Any:
    if x[0].op == "const":
        return graph.const(np.flip(x[0].value, e.params["dimensions"]))
    return graph.make("rev", x, x[0].shape, x[0].dtype, tuple(e.params["dimensions"]))


@rule("slice")
def _slice(graph: Graph, e: Any, x: list[Node]) -> Any:
    p = e.params
    more = x[0].shape[len(p["start_indices"]) :]
    strides = p["strides"] or (1,) * len(p["start_indices"])
    return graph.slice(
        x[0], (*p["start_indices"], *(0 for _ in more)), (*p["limit_indices"], *more), (*strides, *(1 for _ in more))
    )


@rule("split")
def _split(graph: Graph, e: Any, x: list[Node]) -> Any:
    axis, at, parts = e.params["axis"], 0, []
    for size in e.params["sizes"]:
        starts = [at if d == axis else 0 for d in range(len(x[0].shape))]
        stops = [at + size if d == axis else s for d, s in enumerate(x[0].shape)]
        parts.append(graph.slice(x[0], starts, stops))
        at += size
    return parts


@rule("iota")
def _iota(graph: Graph, e: Any, x: list[Node]) -> Any:
    shape, dim, kind = _shape(e), e.params["dimension"], letter(e.params["dtype"])
    if math.prod(shape) == shape[dim]:
        return graph.reshape(graph.const(np.arange(shape[dim]).astype(DTYPES[kind])), shape)
    return graph.bcast(graph.const(np.arange(shape[dim]).astype(DTYPES[kind])), shape, (dim,))


@rule("iota_2x32_shape")
def _iota_pair(graph: Graph, e: Any, x: list[Node]) -> Any:
    shape = e.params["shape"]
    low = graph.const(np.arange(math.prod(shape), dtype=np.uint32).reshape(shape))
    return [graph.bcast(graph.const(np.uint32(0)), shape, ()), low]


@rule("concatenate")
def _concatenate(graph: Graph, e: Any, x: list[Node]) -> Any:
    return graph.concat(x, e.params["dimension"])


@rule("stack")
def _stack(graph: Graph, e: Any, x: list[Node]) -> Any:
    axis = e.params["axis"]
    return graph.concat([graph.reshape(n, (*n.shape[:axis], 1, *n.shape[axis:])) for n in x], axis)


@rule("tile")
def _tile(graph: Graph, e: Any, x: list[Node]) -> Any:
    reps, n = e.params["reps"], x[0]
    between = [size for pair in zip(reps, n.shape, strict=True) for size in pair]
    return graph.reshape(graph.bcast(n, between, range(1, 2 * len(reps), 2)), _shape(e))


@rule("unstack")
def _unstack(graph: Graph, e: Any, x: list[Node]) -> Any:
    axis, n = e.params["axis"], x[0]
    results = []
    for k in range(n.shape[axis]):
        starts = [k if d == axis else 0 for d in range(len(n.shape))]
        stops = [k + 1 if d == axis else s for d, s in enumerate(n.shape)]
        results.append(graph.reshape(graph.slice(n, starts, stops), (*n.shape[:axis], *n.shape[axis + 1 :])))
    return results


@rule("pad")
def _pad(graph: Graph, e: Any, x: list[Node]) -> Any:
    result, value = x
    for axis, (low, high, interior) in enumerate(e.params["padding_config"]):
        if interior:
            raise Unsupported("padding between elements")
        starts = [max(0, -low) if d == axis else 0 for d in range(len(result.shape))]
        stops = [s - max(0, -high) if d == axis else s for d, s in enumerate(result.shape)]
        result = graph.slice(result, starts, stops)
        low, high = max(low, 0), max(high, 0)
        if low or high:
            sized = [
                graph.bcast(value, tuple(n if d == axis else s for d, s in enumerate(result.shape)), ())
                for n in (low, high)
            ]
            result = graph.concat([sized[0], result, sized[1]], axis)
    return result


# -- reductions and products


def _reduction(graph: Graph, e: Any, x: list[Node]) -> Any:
    return graph.reduce(e.primitive.name[7:], x[0], e.params["axes"])


RULES.update(
    dict.fromkeys(("reduce_sum", "reduce_max", "reduce_min", "reduce_and", "reduce_or", "reduce_prod"), _reduction)
)


@rule("argmax", "argmin")
def _arg(graph: Graph, e: Any, x: list[Node]) -> Any:
    (axis,) = e.params["axes"]
    if letter(e.params["index_dtype"]) not in "iu":
        raise Unsupported("this index dtype")
    kind = letter(e.params["index_dtype"])
    return graph.make("arg", x, _shape(e), kind, (e.primitive.name[3:], axis))


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


# -- indexing


@rule("dynamic_slice")
def _dynamic_slice(graph: Graph, e: Any, x: list[Node]) -> Any:
    operand, starts = x[0], x[1:]
    sizes = (*e.params["slice_sizes"], *operand.shape[len(starts) :])
    starts = [*starts, *(graph.const(np.int32(0)) for _ in range(len(sizes) - len(starts)))]
    known = [
        0 if size == operand.shape[d] else graph.splat(s) for d, (s, size) in enumerate(zip(starts, sizes, strict=True))
    ]
    if all(k is not None for k in known):
        at = [min(max(int(k), 0), operand.shape[d] - sizes[d]) for d, k in enumerate(known)]  # type: ignore[arg-type]
        return graph.slice(operand, at, [a + s for a, s in zip(at, sizes, strict=True)])
    return graph.make("dynamic_slice", [operand, *starts], sizes, operand.dtype)


@rule("dynamic_update_slice")
def _dynamic_update_slice(graph: Graph, e: Any, x: list[Node]) -> Any:
    return graph.make("dynamic_update_slice", x, x[0].shape, x[0].dtype)


@rule("gather")
def _gather(graph: Graph, e: Any, x: list[Node]) -> Any:
    d, mode = e.params["dimension_numbers"], e.params["mode"]
    fill = "FILL" in str(mode)
    fill_value = e.params.get("fill_value")
    params = (
        tuple(d.offset_dims),
        tuple(d.collapsed_slice_dims),
        tuple(d.start_index_map),
        tuple(d.operand_batching_dims),
        tuple(d.start_indices_batching_dims),
        tuple(e.params["slice_sizes"]),
        fill,
        fill_value,
    )
    if is_key(e.outvars[0].aval):
        raise Unsupported("indexing an array of keys by a computed place")
    return graph.make("gather", x, _shape(e), x[0].dtype, params)


@rule(
    "scatter",
    "scatter-add",
    "scatter_add",
    "scatter_mul",
    "scatter-mul",
    "scatter_min",
    "scatter_max",
    "scatter-min",
    "scatter-max",
)
def _scatter(graph: Graph, e: Any, x: list[Node]) -> Any:
    d = e.params["dimension_numbers"]
    kind = e.primitive.name[8:].lstrip("-_") or "set"
    clip = "CLIP" in str(e.params["mode"])
    params = (
        kind,
        tuple(d.update_window_dims),
        tuple(d.inserted_window_dims),
        tuple(d.scatter_dims_to_operand_dims),
        clip,
        tuple(d.operand_batching_dims),
        tuple(d.scatter_indices_batching_dims),
    )
    return graph.make("scatter", x, _shape(e), x[0].dtype, params)


@rule("sort")
def _sort(graph: Graph, e: Any, x: list[Node]) -> Any:
    dim, keys = e.params["dimension"], e.params["num_keys"]
    return _many(graph, "sort", x, (dim, keys), e)


@rule("top_k")
def _top_k(graph: Graph, e: Any, x: list[Node]) -> Any:
    """The first k of a stable sort downwards."""
    operand, k = x[0], e.params["k"]
    axis = e.params.get("axis", len(operand.shape) - 1) % len(operand.shape)
    flipped = graph.elementwise("neg", operand) if operand.dtype == "f" else graph.elementwise("not", operand)
    place = graph.bcast(graph.const(np.arange(operand.shape[axis], dtype=np.int32)), operand.shape, (axis,))
    whole = graph.make("sort", [flipped, operand, place], (), "b", (axis, 1))
    parts = [graph.make("part", (whole,), operand.shape, n.dtype, at) for at, n in ((1, operand), (2, place))]
    stops = [k if d == axis else s for d, s in enumerate(operand.shape)]
    return [graph.slice(n, [0] * len(stops), stops) for n in parts]
