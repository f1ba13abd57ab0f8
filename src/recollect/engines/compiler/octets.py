"""Arrays of uint8 among words of 32 bits: which operations keep to eight bits, and which are not compiled on them.

Every value of such an array is a uint32 below 256. Sums, products, shifts to the left and so on are right in their last
eight bits, and are cut to these; comparisons, quotients and shifts to the right are right as they are.
"""

from typing import Any

import numpy as np

from recollect.engines.compiler.graph import OCTET, Graph, Node, Unsupported
from recollect.engines.compiler.rules import is_key

KEEP = frozenset(
    (
        *("broadcast_in_dim", "reshape", "squeeze", "transpose", "rev", "slice", "split", "concatenate", "stack"),
        *("tile", "unstack", "select_n", "dynamic_slice", "dynamic_update_slice", "copy", "stop_gradient"),
        *("jit", "closed_call", "cond", "scan", "while"),
    )
)
"""Operations whose results are among their operands, or whose own equations are seen one by one."""

REFUSED = frozenset(["clz", "mulhi", "shift_right_arithmetic", "bitcast_convert_type"])
"""Operations that would find other bits in a word than in a byte."""


def is_octet(aval: Any) -> bool:
    """Whether an abstract value is of uint8."""
    return not is_key(aval) and np.dtype(aval.dtype) == OCTET


def check(equation: Any) -> None:
    """Refuse what is not the same on words."""
    name, ins, outs = equation.primitive.name, equation.invars, equation.outvars
    if not any(is_octet(v.aval) for v in (*ins, *outs)):
        return
    if name in REFUSED:
        raise Unsupported(f"{name} of uint8")
    if name == "convert_element_type" and np.dtype(ins[0].aval.dtype).kind == "f":
        raise Unsupported("floats as uint8")


def cut(graph: Graph, node: Node, aval: Any) -> Node:
    """The last eight bits of what is an array of uint8; anything else as it is."""
    return graph.elementwise("and", node, graph.const(np.uint32(0xFF))) if is_octet(aval) else node
