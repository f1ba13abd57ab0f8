"""What a caller gives, as Python's own numbers: the one place where NumPy's and JAX's are turned into them."""

import math
from typing import Any

from recollect.agents.base import check_count, check_flag
from recollect.store.provenance import native
from recollect.training.returned import LARGEST

LARGEST_SEED = 2**63 - 1
MOST_STEPS = 2**63
"""Steps of a run are fewer than this: more than anybody takes, and the most that a file may ask for."""


def count(name: str, value: Any) -> int:
    """A whole number of at least 1.

    >>> import numpy as np
    >>> count("steps", np.int64(20))
    20
    """
    value = native(value)
    check_count(name, value)
    return int(value)


def reward(name: str, value: Any) -> float:
    """A number that a float32 can hold."""
    value = native(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= LARGEST:
        raise ValueError(f"{name}={value!r} must be a finite number")
    return float(value)


def copy(value: Any, copies: int) -> int:
    """Which of so many copies: a whole number from 0 on."""
    value = native(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < copies:
        raise ValueError(f"copy={value!r} must be a whole number from 0 to {copies - 1}, one of {copies} copies")
    return value


def flag(name: str, value: Any) -> bool:
    """A truth value."""
    value = native(value)
    check_flag(name, value)
    return value


def seconds(name: str, value: Any) -> float:
    """A number of seconds greater than 0, or infinity."""
    value = native(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise ValueError(f"{name}={value!r} must be a number of seconds greater than 0")
    return float(value) if value < 1e300 else math.inf


def seed(name: str, value: Any, most: int = LARGEST_SEED) -> int:
    """A whole number from 0 to ``most``, which is one less than a power of two."""
    value = native(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise ValueError(f"{name}={value!r} must be a whole number between 0 and 2^{most.bit_length()} - 1")
    return value
