"""What a step was made from, in words, before it is traced: the key of what is kept of it on disk.

The library's own definitions are known by their class, their fields and the sources of the library. Anything else (a
class of the user's, a function, an object of another package) may change without its fields changing, and has no such
words: it is traced, and known by what comes of it.
"""

import dataclasses
import functools
import hashlib
import sys
from collections.abc import Iterator
from importlib import metadata, resources
from typing import Any

import jax
import numpy as np

PACKAGE = __name__.partition(".")[0]


class _NoWordsError(Exception):
    """Something among the values is not the library's own."""


def words(*values: Any) -> str | None:
    """Text that is the same only for what gives the same step; None where that cannot be told from fields."""
    try:
        return "\n".join((sources(), _settings(), *map(_words, values)))
    except _NoWordsError:
        return None


@functools.cache
def sources() -> str:
    """The sum of the library's sources, and the versions of what traces them and makes machine code."""
    found = hashlib.sha256()
    for name, text in sorted(_modules(resources.files(PACKAGE), "")):
        found.update(f"{name} {len(text)}\n".encode() + text)
    versions = (f"{package} {metadata.version(package)}" for package in ("jax", "jaxlib", "numpy", "llvmlite"))
    return f"{found.hexdigest()} python {sys.version} {' '.join(versions)}"


def _modules(folder: Any, path: str) -> Iterator[tuple[str, bytes]]:
    for file in folder.iterdir():
        if file.name.endswith(".py"):
            yield path + file.name, file.read_bytes()
        elif file.is_dir() and file.name not in ("assets", "__pycache__"):
            yield from _modules(file, f"{path}{file.name}/")


def _settings() -> str:
    """JAX's settings as they are here, whichever of them tracing depends on."""
    return " ".join(f"{name}={getattr(jax.config, name, value)}" for name, value in sorted(jax.config.values.items()))


def _words(value: Any) -> str:
    kind: Any = type(value)
    if value is None or kind in (bool, int, float, str, bytes):
        return repr(value)
    if kind is jax.ShapeDtypeStruct:
        return f"any {value.dtype}{list(value.shape)}"
    if kind is np.ndarray or issubclass(kind, np.generic):
        return _of_numbers(np.asarray(value))
    if kind in (tuple, list):
        return f"{kind.__name__}({', '.join(map(_words, value))})"
    return f"{_name(kind)}({', '.join(f'{name}={_words(field)}' for name, field in _fields(value))})"


def _of_numbers(data: np.ndarray) -> str:
    if data.dtype.kind not in "biuf":
        raise _NoWordsError
    return f"{data.dtype}{list(data.shape)} {hashlib.sha256(data.tobytes()).hexdigest()}"


def _name(kind: type) -> str:
    """The name of a class that is the library's own, and is where its name says."""
    module = kind.__module__
    if module.partition(".")[0] != PACKAGE or getattr(sys.modules.get(module), kind.__qualname__, None) is not kind:
        raise _NoWordsError
    return f"{module}.{kind.__qualname__}"


def _fields(value: Any) -> list[tuple[str, Any]]:
    if dataclasses.is_dataclass(value):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return list(zip(value._fields, value, strict=True))  # type: ignore[attr-defined]
    raise _NoWordsError
