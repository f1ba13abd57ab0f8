"""What the rules of all primitives share: the table of them, keys as numbers, several results."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from recollect.engines.compiler.graph import Graph, Node, letter

Rule = Callable[[Graph, Any, list[Node]], Any]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a function as the rule of primitives."""

    def add(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return add


def is_key(x: Any) -> bool:
    """Whether an array or abstract value holds random keys."""
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def physical(aval: Any) -> tuple[int, ...]:
    """The shape as numbers: a key is its words."""
    return (*aval.shape, *aval.dtype._impl.key_shape) if is_key(aval) else tuple(aval.shape)


def out_shape(equation: Any) -> tuple[int, ...]:
    """The shape of an equation's first result, as numbers."""
    return physical(equation.outvars[0].aval)


def several(graph: Graph, op: str, x: list[Node], params: Any, e: Any) -> list[Node]:
    """One node with several results, and a node for each of them."""
    whole = graph.make(op, x, (), "b", params)
    avals = [v.aval for v in e.outvars]
    kinds = ["u" if is_key(a) else letter(a.dtype) for a in avals]
    return [graph.make("part", (whole,), physical(a), d, k) for k, (a, d) in enumerate(zip(avals, kinds, strict=True))]
