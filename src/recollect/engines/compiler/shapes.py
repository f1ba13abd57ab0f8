"""Rules of primitives that move elements: shapes, parts, computed places, sorting."""

import itertools
import math
from typing import Any

import numpy as np

from recollect.engines.compiler.graph import DTYPES, Graph, Node, Unsupported, letter
from recollect.engines.compiler.rules import is_key, out_shape, rule, several


@rule("broadcast_in_dim")
def _broadcast(graph: Graph, e: Any, x: list[Node]) -> Any:
    dims = tuple(e.params["broadcast_dimensions"])
    shape = out_shape(e)
    return graph.bcast(x[0], shape, (*dims, *range(len(e.outvars[0].aval.shape), len(shape))))


@rule("reshape", "squeeze")
def _reshape(graph: Graph, e: Any, x: list[Node]) -> Any:
    return graph.reshape(x[0], out_shape(e))


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
    places = itertools.pairwise(itertools.accumulate(e.params["sizes"], initial=0))
    return [graph.between(x[0], e.params["axis"], *place) for place in places]


@rule("iota")
def _iota(graph: Graph, e: Any, x: list[Node]) -> Any:
    shape, dim, kind = out_shape(e), e.params["dimension"], letter(e.params["dtype"])
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
    return graph.stack(x, e.params["axis"])


@rule("tile")
def _tile(graph: Graph, e: Any, x: list[Node]) -> Any:
    reps, n = e.params["reps"], x[0]
    between = [size for pair in zip(reps, n.shape, strict=True) for size in pair]
    return graph.reshape(graph.bcast(n, between, range(1, 2 * len(reps), 2)), out_shape(e))


@rule("unstack")
def _unstack(graph: Graph, e: Any, x: list[Node]) -> Any:
    axis = e.params["axis"]
    return [graph.layer(x[0], axis, k) for k in range(x[0].shape[axis])]


@rule("pad")
def _pad(graph: Graph, e: Any, x: list[Node]) -> Any:
    result, value = x
    for axis, (low, high, interior) in enumerate(e.params["padding_config"]):
        if interior:
            raise Unsupported("padding between elements")
        result = graph.between(result, axis, max(0, -low), result.shape[axis] - max(0, -high))
        low, high = max(low, 0), max(high, 0)
        if low or high:
            sized = [
                graph.bcast(value, tuple(n if d == axis else s for d, s in enumerate(result.shape)), ())
                for n in (low, high)
            ]
            result = graph.concat([sized[0], result, sized[1]], axis)
    return result


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
    return graph.make("gather", x, out_shape(e), x[0].dtype, params)


@rule("scatter", "scatter-add", "scatter-mul", "scatter-min", "scatter-max")
def _scatter(graph: Graph, e: Any, x: list[Node]) -> Any:
    d = e.params["dimension_numbers"]
    kind = e.primitive.name[8:] or "set"
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
    return graph.make("scatter", x, out_shape(e), x[0].dtype, params)


@rule("sort")
def _sort(graph: Graph, e: Any, x: list[Node]) -> Any:
    dim, keys = e.params["dimension"], e.params["num_keys"]
    return several(graph, "sort", x, (dim, keys), e)


@rule("top_k")
def _top_k(graph: Graph, e: Any, x: list[Node]) -> Any:
    """The first k of a stable sort downwards."""
    operand, k = x[0], e.params["k"]
    axis = e.params.get("axis", len(operand.shape) - 1) % len(operand.shape)
    flipped = graph.elementwise("neg", operand) if operand.dtype == "f" else graph.elementwise("not", operand)
    place = graph.bcast(graph.const(np.arange(operand.shape[axis], dtype=np.int32)), operand.shape, (axis,))
    whole = graph.make("sort", [flipped, operand, place], (), "b", (axis, 1))
    parts = [graph.make("part", (whole,), operand.shape, n.dtype, at) for at, n in ((1, operand), (2, place))]
    return [graph.between(n, axis, 0, k) for n in parts]
