"""recollect: reinforcement-learning agents that learn online what to remember.

The public names below are imported when first used, so that ``import recollect`` stays quick.
"""

import importlib
from typing import TYPE_CHECKING

from recollect._version import __version__

if TYPE_CHECKING:
    from recollect.errors import FileError, RecollectError
    from recollect.reservoir.stream import Reservoir

_HOME = {
    "FileError": "recollect.errors",
    "RecollectError": "recollect.errors",
    "Reservoir": "recollect.reservoir.stream",
}

__all__ = ["FileError", "RecollectError", "Reservoir", "__version__"]


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module 'recollect' has no attribute {name!r}; public names: {', '.join(__all__)}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
