"""The recording: a JSON document of one or several episodes, and the arrays in it. ``docs/recording.md`` is its manual.

An array is a nested list of numbers or, shorter, an object with its bytes in base64:

>>> encode(np.array([0.0, 0.5], np.float32))
{'dtype': 'float32', 'shape': [2], 'data': 'AAAAAAAAAD8='}
>>> decode({'dtype': 'uint8', 'shape': [2], 'data': 'AP8=', 'scale': 1 / 255}).tolist()
[0.0, 1.0]
"""

import base64
import binascii
import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from recollect.errors import FileError
from recollect.store import files

FORMAT, VERSION = "recollect recording", 1
LARGEST = 2**28
"""Most bytes of a recording that are read."""

MANY = 100_000
"""From so many entries on, probabilities are written with 16 bits each."""

_DTYPES = {name: np.dtype(name).newbyteorder("<") for name in ("uint8", "int8", "uint16", "int16", "int32", "float32")}


def encode(array: Any) -> dict[str, Any]:
    """An array as the document has it: whole numbers in as few bytes as hold them, others as float32."""
    array = np.asarray(array)
    if array.dtype.kind in "bui":
        low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
        kind = next(
            k for k in ("uint8", "int8", "int16", "int32") if np.iinfo(k).min <= low and high <= np.iinfo(k).max
        )
    else:
        kind = "float32"
    content = np.ascontiguousarray(array, _DTYPES[kind])
    return {"dtype": kind, "shape": list(array.shape), "data": base64.b64encode(content.tobytes()).decode()}


def encode_shares(array: Any) -> dict[str, Any]:
    """Numbers between 0 and 1: many of them in steps of 1/65535."""
    array = np.asarray(array, np.float32)
    if array.size < MANY:
        return encode(array)
    return {**_whole(array, 65535, "uint16"), "scale": 1 / 65535}


def encode_values(array: Any) -> dict[str, Any]:
    """Observations: those that are whole numbers, or pictures in steps of 1/255, in bytes."""
    array = np.asarray(array, np.float32)
    for steps in (1, 255):
        scaled = array * np.float32(steps)
        if array.size and np.all((scaled >= 0) & (scaled <= 255) & (np.abs(scaled - np.round(scaled)) < 1e-4)):
            return {**_whole(array, steps, "uint8"), "scale": 1 / steps}
    return encode(array)


def _whole(array: np.ndarray, steps: int, kind: str) -> dict[str, Any]:
    content = np.round(array * np.float32(steps)).astype(_DTYPES[kind])
    return {"dtype": kind, "shape": list(array.shape), "data": base64.b64encode(content.tobytes()).decode()}


def decode(found: Any) -> np.ndarray:
    """The array that ``encode`` or another library wrote; ``ValueError`` for what is not one."""
    if isinstance(found, list):
        return np.asarray(found, float)
    try:
        dtype, shape = _DTYPES[found["dtype"]], found["shape"]
        if not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError(f"the shape is {shape!r}")
        content = base64.b64decode(found["data"], validate=True)
        if len(content) != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"{len(content)} bytes do not make {dtype.name}{shape}")
        array = np.frombuffer(content, dtype).reshape(shape)
        return array * np.float32(found["scale"]) if "scale" in found else array
    except (LookupError, TypeError, binascii.Error) as error:
        raise ValueError(f"not an array: {type(error).__name__}: {error}") from error


def check(document: Any, where: Path | str) -> dict[str, Any]:
    """The document itself, if it is a recording that the page can show; a ``FileError`` says what is wrong with it."""
    try:
        if document["format"] != FORMAT:
            raise ValueError(f"its format is {document['format']!r}")
        if document["version"] != VERSION:
            raise ValueError(f"it is of version {document['version']!r}; this release reads version {VERSION}")
        if not document["episodes"]:
            raise ValueError("it has no episode")
        size = len(document["observation"]["names"])
        for k, episode in enumerate(document["episodes"]):
            _check_episode(episode, size, f"episodes[{k}]")
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise FileError(f"{where} is not a recording: {type(error).__name__}: {error}") from error
    return document


def _check_episode(episode: dict[str, Any], size: int, place: str) -> None:
    steps = episode["steps"]
    if type(steps) is not int or steps < 1:
        raise ValueError(f"{place}.steps is {steps!r}")
    shapes: dict[str, tuple[int | None, ...]] = {"observation": (steps, size), "reward": (steps,)}
    shapes |= {name: (steps,) for name in ("value", "delta") if name in episode}
    for name, shape in shapes.items():
        _check_shape(episode[name], shape, f"{place}.{name}")
    for part in episode.get("hidden", []):
        _check_shape(part["values"], (steps, None), f"{place}.hidden {part['name']!r}")
    if (memory := episode.get("memory")) is None:
        return
    slots, stays = memory["slots"], memory["stays"]
    count = decode(stays["slot"]).shape[0]
    for name in ("slot", "seen", "from", "until", "log_weight"):
        _check_shape(stays[name], (count,), f"{place}.memory.stays.{name}")
    for name in ("slot", "from", "until", "seen"):
        limit = slots - 1 if name == "slot" else steps
        numbers = decode(stays[name])
        if numbers.size and not (numbers.min() >= -1 and numbers.max() <= limit):
            raise ValueError(f"{place}.memory.stays.{name} goes beyond {limit}")
    _check_shape(memory["recalled"], (steps,), f"{place}.memory.recalled")
    _check_shape(memory["probability"], (steps, slots), f"{place}.memory.probability")


def _check_shape(found: Any, expected: tuple[int | None, ...], place: str) -> None:
    shape = decode(found).shape
    if len(shape) != len(expected) or any(e not in (None, n) for e, n in zip(expected, shape, strict=True)):
        raise ValueError(f"{place} has the shape {shape}, expected {expected}")


def write(path: Path | str, document: dict[str, Any]) -> Path:
    """Write a recording; a name that ends in .gz is compressed."""
    path = Path(path)
    content = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
    files.replace(path, gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    return path


def read(path: Path | str) -> dict[str, Any]:
    """Read and check a recording, compressed or not."""
    path = Path(path)
    content = files.read(path, LARGEST)
    if content[:2] == b"\x1f\x8b":
        try:
            with gzip.open(path) as file:
                content = file.read(LARGEST + 1)
        except (OSError, EOFError) as error:
            raise FileError(f"{path} is damaged: {error}") from error
        if len(content) > LARGEST:
            raise FileError(f"{path} unpacks to more than {LARGEST:,} bytes")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path} is not a recording: it is not JSON: {error}") from error
    return check(document, path)
