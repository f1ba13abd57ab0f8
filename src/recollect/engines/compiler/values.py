"""The words of LLVM's language that everything here is written with: types, values, arrays in memory, scopes."""

import dataclasses
import struct
from typing import Any, NamedTuple

import numpy as np

TYPES = {"f": "float", "i": "i32", "u": "i32", "b": "i1", "l": "i64"}
STORED = {"f": "float", "i": "i32", "u": "i32", "b": "i8"}
BYTES = {"f": 4, "i": 4, "u": 4, "b": 1}
SHORT = {"f": "f32", "i": "i32", "u": "i32", "b": "i8"}
"""Of what lies in memory, as in the names of LLVM's functions."""

VECTOR = 16
"""Elements of a vector along the units of a single run."""

SMALL = 4096
"""Bytes of an array of one step that lies on the stack; larger ones are in the scratch space."""


class Value(NamedTuple):
    """The name or number of something computed."""

    text: str
    kind: str
    wide: bool


class Buffer(NamedTuple):
    """An array in memory; ``lanes``: with the lanes of a vector innermost; ``own``: of one thread of a GPU alone."""

    pointer: str
    kind: str
    lanes: bool
    own: bool = False


@dataclasses.dataclass
class Scope:
    """The lines of one loop's body (or of the function), and what has been computed in it."""

    depth: int
    vector: str | None = None  # the loop variable that runs along the vector
    mask: str | None = None  # of a last vector that is not full
    lines: list[str] = dataclasses.field(default_factory=list)
    known: dict[Any, Any] = dataclasses.field(default_factory=dict)
    fence: bool = False  # what is computed here must stay: a branch


def literal(kind: str, value: Any) -> str:
    """A constant as LLVM writes it; floats by their bits."""
    if kind == "f":
        bits = struct.unpack("<Q", struct.pack("<d", float(np.float32(value))))[0]
        return f"0x{bits:016X}"
    if kind == "b":
        return "true" if value else "false"
    return str(int(np.int64(value)) if kind == "l" else int(np.asarray(value).astype(np.int64)) & 0xFFFFFFFF)
