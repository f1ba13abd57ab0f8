"""From a jaxpr to the graph: a rule for each primitive, calls inlined, derivatives already expanded by JAX."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core, source_info_util

from recollect.engines.compiler import elementwise, octets, shapes
from recollect.engines.compiler.graph import DTYPES, Graph, Node, Unsupported, letter
from recollect.engines.compiler.rules import RULES, is_key, physical, rule, several

UNROLLED_SCAN = 4
"""Scans up to this length are unrolled."""

MODULES = (elementwise, shapes)
"""Where the other rules are: importing them puts them into the table."""


def convert(graph: Graph, closed: Any, args: Sequence[Node]) -> list[Node]:
    """The outputs of a closed jaxpr on nodes."""
    return _evaluate(graph, closed.jaxpr, closed.consts, args)


def _evaluate(graph: Graph, jaxpr: Any, consts: Sequence[Any], args: Sequence[Node]) -> list[Node]:
    known: dict[Any, Node] = {}

    def read(v: Any) -> Node:
        literal: Any = v if isinstance(v, core.Literal) else None
        return known[v] if literal is None else graph.const(np.asarray(literal.val, literal.aval.dtype))

    for var, value in zip(jaxpr.constvars, consts, strict=True):
        known[var] = value if isinstance(value, Node) else graph.const(_raw(value))
    known.update(zip(jaxpr.invars, args, strict=True))
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        function = RULES.get(name)
        try:
            if function is None:
                raise Unsupported(f"the primitive {name!r}")
            octets.check(equation)
            results = _applied(function, graph, equation, [read(v) for v in equation.invars])
        except Unsupported as error:
            if "\n" in str(error):
                raise
            line = source_info_util.summarize(equation.source_info)
            raise Unsupported(f"{error}\n  primitive {name!r} at {line}") from None
        results = results if isinstance(results, (list, tuple)) else [results]
        if name not in octets.KEEP:
            results = [octets.cut(graph, n, v.aval) for n, v in zip(results, equation.outvars, strict=True)]
        known.update(zip(equation.outvars, results, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _applied(function: Any, graph: Graph, equation: Any, x: list[Node]) -> Any:
    """What a rule makes of an equation; one that another release of JAX writes in another way is not known."""
    try:
        return function(graph, equation, x)
    except KeyError as error:
        if not isinstance(missing := error.args[0], str) or missing in equation.params:
            raise
        raise Unsupported(
            f"{equation.primitive.name!r} without {missing!r}, as JAX {jax.__version__} writes it"
        ) from None


def _raw(value: Any) -> np.ndarray:
    if is_key(jnp.asarray(value)):
        value = jax.random.key_data(value)
    return np.asarray(value)


# -- calls


@rule("jit", "closed_call", "remat2", "checkpoint", "custom_lin")
def _call(graph: Graph, e: Any, x: list[Node]) -> Any:
    inner = e.params["jaxpr"] if "jaxpr" in e.params else e.params["call_jaxpr"]
    return convert(graph, inner, x) if hasattr(inner, "consts") else _evaluate(graph, inner, [], x)


@rule("custom_jvp_call", "custom_vjp_call")
def _custom(graph: Graph, e: Any, x: list[Node]) -> Any:
    return convert(graph, e.params["call_jaxpr"], x)


@rule("custom_vmap_call")
def _custom_vmap(graph: Graph, e: Any, x: list[Node]) -> Any:
    """As for one run; but the largest of a number over all runs is that of the lanes, and one for all of them."""
    if len(x) == 1 and x[0].shape == () and x[0].dtype == "i" and _is_the_largest_of_runs(e.params["rule"]):
        return graph.make("largest", x, (), "i")
    return convert(graph, e.params["call"], x)


def _is_the_largest_of_runs(rule: Any) -> bool:
    """Whether a rule for mapped functions gives ``jnp.max`` over the mapped axis, and nothing else."""

    def mapped(x: Any) -> Any:
        found, batched = rule(2, ((), (True,)), (), (x,))
        return x if any(jax.tree.leaves(batched)) else found

    equations = jax.make_jaxpr(mapped)(jax.ShapeDtypeStruct((2,), np.int32)).jaxpr.eqns
    while len(equations) == 1 and equations[0].primitive.name == "jit":
        equations = equations[0].params["jaxpr"].jaxpr.eqns
    return [q.primitive.name for q in equations] == ["reduce_max"]


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


def _scan_sizes(p: Mapping[str, Any]) -> tuple[int, int]:
    """How many inputs of a scan stay the same and how many are carried along; JAX 0.11 and later tell it as a tree."""
    if "ft_in" in p:
        fixed, carried, _ = p["ft_in"].unpack()
        return len(fixed), len(carried)
    return p["num_consts"], p["num_carry"]


@rule("scan")
def _scan(graph: Graph, e: Any, x: list[Node]) -> Any:
    p = e.params
    consts, carries = _scan_sizes(p)
    length = p["length"]
    fixed, carry, xs = x[:consts], x[consts : consts + carries], x[consts + carries :]
    if length <= UNROLLED_SCAN:
        rows: list[list[Node]] = []
        for t in reversed(range(length)) if p["reverse"] else range(length):
            at = [graph.layer(n, 0, t) for n in xs]
            out = convert(graph, p["jaxpr"], [*fixed, *carry, *at])
            carry, rows = out[:carries], [*rows, out[carries:]]
        rows = rows[::-1] if p["reverse"] else rows
        if not length:
            return [
                *carry,
                *(graph.bcast(graph.const(0, letter(v.aval.dtype)), physical(v.aval), ()) for v in e.outvars[carries:]),
            ]
        return [*carry, *(graph.stack(column, 0) for column in zip(*rows, strict=True))]
    body = subgraph(p["jaxpr"], [(n.shape, n.dtype) for n in [*fixed, *carry]] + [(n.shape[1:], n.dtype) for n in xs])
    params = ("scan", body, consts, carries, length, bool(p["reverse"]))
    return several(graph, "loop", x, params, e)


@rule("while")
def _while(graph: Graph, e: Any, x: list[Node]) -> Any:
    p = e.params
    nc, nb = p["cond_nconsts"], p["body_nconsts"]
    carry = [(n.shape, n.dtype) for n in x[nc + nb :]]
    test = subgraph(p["cond_jaxpr"], [(n.shape, n.dtype) for n in x[:nc]] + carry)
    body = subgraph(p["body_jaxpr"], [(n.shape, n.dtype) for n in x[nc : nc + nb]] + carry)
    return several(graph, "loop", x, ("while", test, body, nc, nb), e)


class Subgraph:
    """The body of a loop: its own graph, since it is computed again and again."""

    def __init__(self, graph: Graph, leaves: list[Node], outs: list[Node]):
        self.graph, self.leaves, self.outs = graph, leaves, outs


def subgraph(closed: Any, inputs: Sequence[tuple[tuple[int, ...], str]]) -> Subgraph:
    """A closed jaxpr as a graph whose leaves are its inputs."""
    graph = Graph()
    leaves = [graph.make("leaf", (), shape, dtype, k) for k, (shape, dtype) in enumerate(inputs)]
    return Subgraph(graph, leaves, convert(graph, closed, leaves))


@rule("random_wrap", "random_unwrap", "stop_gradient", "copy", "optimization_barrier", "device_put", "pvary")
def _same(graph: Graph, e: Any, x: list[Node]) -> Any:
    return x


@rule("reduce_precision")
def _precision(graph: Graph, e: Any, x: list[Node]) -> Any:
    if (e.params["exponent_bits"], e.params["mantissa_bits"]) != (8, 23):
        raise Unsupported("a precision other than float32's")
    return x


# -- random numbers


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _of_words(impl: Any, name: str, rest: tuple, key: Any, *data: Any) -> Any:
    """A generator's function on the words of a key, or of each key of an array; JAX keeps what it has traced of it."""

    def function(key: Any, *data: Any) -> Any:
        return getattr(impl, name)(key, *data, *rest)

    for _ in key.shape[len(impl.key_shape) :]:
        function = jax.vmap(function)
    return function(key, *data)


def _traced(e: Any, name: str, x: list[Node], *rest: Any) -> Any:
    words = (jax.ShapeDtypeStruct(n.shape, np.uint32) for n in x)
    return _of_words.trace(e.invars[0].aval.dtype._impl, name, rest, *words).jaxpr


@rule("random_bits")
def _bits(graph: Graph, e: Any, x: list[Node]) -> Any:
    return convert(graph, _traced(e, "random_bits", x, e.params["bit_width"], e.params["shape"]), x)


@rule("random_split")
def _split_key(graph: Graph, e: Any, x: list[Node]) -> Any:
    return convert(graph, _traced(e, "split", x, e.params["shape"]), x)


@rule("random_fold_in")
def _fold_in(graph: Graph, e: Any, x: list[Node]) -> Any:
    data = graph.elementwise("bitcast", x[1], dtype="u") if x[1].dtype == "i" else x[1]
    data = graph.bcast(data, e.invars[0].aval.shape, ()) if data.shape == () else data
    words = [x[0], data]
    return convert(graph, _traced(e, "fold_in", words), words)


@rule("random_seed")
def _seed(graph: Graph, e: Any, x: list[Node]) -> Any:
    seed = e.params["impl"].seed
    for _ in x[0].shape:
        seed = jax.vmap(seed)
    closed = jax.make_jaxpr(seed)(jax.ShapeDtypeStruct(x[0].shape, DTYPES[x[0].dtype]))
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
