"""Layouts, which say where things lie in scratch arrays, in the form that compiled functions take them in."""

from typing import Any

import numpy as np


def record_of(layout: Any) -> Any:
    """A named tuple of whole numbers and such tuples as a record.

    Compiled functions take a record as one pointer, and a tuple as so many arguments, which take longer to compile.
    """
    return np.array([tuple(layout)], _dtype(layout))[0]


def _dtype(layout: Any) -> np.dtype:
    entries = zip(layout._fields, layout, strict=True)
    return np.dtype([(name, _dtype(entry) if isinstance(entry, tuple) else np.int64) for name, entry in entries])
