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


Shapes = dict[str, str | tuple[str, ...]]

EPISODE: Shapes = {
    "observation": "T s",
    "reward": "T",
    "value": "T",
    "delta": "T",
    "action": ("T", "T choices"),
    "policy": "T outputs",
}
STAYS: Shapes = dict.fromkeys(("slot", "seen", "from", "until", "log_weight"), "m")
MEMORY: Shapes = {
    "recalled": "T",
    "probability": "T n",
    "query": "T k",
    "temperature": "T",
    "keys": "m k",
    "log_weight_now": "T n",
    "log_write_weight": "T",
    "write_chance": "T",
    "credit": ("T", "T n"),
    "policies": "T n outputs",
}
"""Shapes by name; a letter is one number throughout an episode, found where it is met first. docs/recording.md."""

KINDS = ("categorical", "multicategorical", "gaussian")


def check(document: Any, where: Path | str) -> dict[str, Any]:
    """The document itself, if it is a recording that the page can show; a ``FileError`` says what is wrong with it."""
    try:
        if document["format"] != FORMAT:
            raise ValueError(f"its format is {document['format']!r}")
        if document["version"] != VERSION:
            raise ValueError(f"it is of version {document['version']!r}; this release reads version {VERSION}")
        size, outputs = _check_head(document)
        if not document["episodes"]:
            raise ValueError("it has no episode")
        for k, episode in enumerate(document["episodes"]):
            _check_episode(episode, {"s": size, "outputs": outputs}, f"episodes[{k}]")
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise FileError(f"{where} is not a recording: {_said(error)}") from error
    return document


def _said(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _check_head(document: dict[str, Any]) -> tuple[int, int]:
    """What is said besides episodes; the sizes of an observation and of the policy's outputs."""
    _check_text(document["title"], "title")
    _check_text(document["environment"]["name"], "environment.name")
    size, count = (_count_texts(document[name]["names"], f"{name}.names") for name in ("observation", "actions"))
    shape, actions = document["observation"].get("shape"), document["actions"]
    if shape is not None and (len(shape) != 3 or math.prod(shape) != size):
        raise ValueError(f"observation.shape is {shape!r}, expected [height, width, channels] of {size} elements")
    if actions["kind"] not in KINDS:
        raise ValueError(f"actions.kind is {actions['kind']!r}; choose one of {', '.join(KINDS)}")
    gaussian = actions["kind"] == "gaussian"
    if not gaussian and "sizes" in actions and sum(actions["sizes"]) != count:
        raise ValueError(f"actions.sizes are {actions['sizes']!r}, but there are {count} names")
    columns = document.get("training", {}).get("columns", {})
    if len({len(column) for column in columns.values()}) > 1 or (columns and "steps" not in columns):
        raise ValueError("training.columns must be as long as each other, with steps among them")
    return size, 2 * count if gaussian else count


def _check_text(found: Any, place: str) -> None:
    if not isinstance(found, str):
        raise TypeError(f"{place} must be a text, got a {type(found).__name__}")


def _count_texts(found: Any, place: str) -> int:
    if not isinstance(found, list):
        raise TypeError(f"{place} must be a list, got a {type(found).__name__}")
    for text in found:
        _check_text(text, place)
    return len(found)


def _check_episode(episode: dict[str, Any], sizes: dict[str, int], place: str) -> None:
    steps = episode["steps"]
    if type(steps) is not int or steps < 1:
        raise ValueError(f"{place}.steps is {steps!r}")
    sizes = {**sizes, "T": steps}
    _check_shapes(episode, EPISODE, sizes, place, needed=("observation", "reward"))
    for part in episode.get("hidden", []):
        _check_text(part["name"], f"{place}.hidden")
        _check_shapes(part, {"values": "T units"}, dict(sizes), f"{place}.hidden {part['name']!r}")
    if "texts" in episode and _count_texts(episode["texts"], f"{place}.texts") != steps:
        raise ValueError(f"{place}.texts are {len(episode['texts'])}, expected {steps}")
    if (frames := episode.get("frames")) is not None:
        pictures = _count_texts(frames["png"], f"{place}.frames.png")
        _check_shapes(frames, {"of": "T"}, sizes, f"{place}.frames")
        _check_range(frames["of"], -1, pictures - 1, f"{place}.frames.of")
    if (memory := episode.get("memory")) is not None:
        _check_memory(memory, sizes, f"{place}.memory")


def _check_memory(memory: dict[str, Any], sizes: dict[str, int], place: str) -> None:
    slots, steps = memory["slots"], sizes["T"]
    if type(slots) is not int or slots < 1:
        raise ValueError(f"{place}.slots is {slots!r}")
    sizes["n"] = slots
    _check_shapes(memory["stays"], STAYS, sizes, f"{place}.stays")
    for name, low, high in (("slot", 0, slots - 1), ("seen", -1, steps - 1), ("from", 0, steps), ("until", 0, steps)):
        _check_range(memory["stays"][name], low, high, f"{place}.stays.{name}")
    _check_shapes(memory, MEMORY, sizes, place, needed=("recalled", "probability"))
    _check_range(memory["recalled"], -1, slots - 1, f"{place}.recalled")
    if "query" in memory and "keys" not in memory and sizes["k"] != sizes["s"]:
        raise ValueError(f"{place}.query has {sizes['k']} elements and an observation {sizes['s']}: keys are missing")
    if "keys" not in memory and np.any(decode(memory["stays"]["seen"]) < 0):
        raise ValueError(f"{place}.keys are missing: without them it is not known what was seen before the episode")
    if "key_names" in memory and _count_texts(memory["key_names"], f"{place}.key_names") != sizes.get("k", sizes["s"]):
        raise ValueError(f"{place}.key_names are {len(memory['key_names'])}, a key has {sizes.get('k', sizes['s'])}")
    if (changing := memory.get("keys_changing")) is not None:
        _check_shapes(changing, {"elements": "c", "now": "T n c"}, sizes, f"{place}.keys_changing")
        _check_range(changing["elements"], 0, sizes.get("k", sizes["s"]) - 1, f"{place}.keys_changing.elements")


def _check_shapes(
    part: dict[str, Any], shapes: Shapes, sizes: dict[str, int], place: str, needed: tuple[str, ...] | None = None
) -> None:
    """The arrays of a part: those ``needed`` (default: all) must be there. Sizes met first are added to ``sizes``."""
    for name, allowed in shapes.items():
        if name not in part and needed is not None and name not in needed:
            continue
        choices = [allowed] if isinstance(allowed, str) else allowed
        try:
            shape = decode(part[name]).shape
        except ValueError as error:
            raise ValueError(f"{place}.{name}: {error}") from error
        fits = [letters for letters in map(str.split, choices) if len(letters) == len(shape)]
        fits = [each for each in fits if all(sizes.get(a, n) == n for a, n in zip(each, shape, strict=True))]
        if not fits:
            expected = " or ".join(f"[{_sized(letters, sizes)}]" for letters in choices)
            raise ValueError(f"{place}.{name} has the shape {list(shape)}, expected {expected}")
        sizes |= zip(fits[0], shape, strict=True)


def _sized(letters: str, sizes: dict[str, int]) -> str:
    return ", ".join(str(sizes.get(letter, letter)) for letter in letters.split())


def _check_range(found: Any, low: int, high: int, place: str) -> None:
    numbers = decode(found)
    if numbers.size and not (numbers.min() >= low and numbers.max() <= high and np.all(numbers == np.floor(numbers))):
        raise ValueError(f"{place} must be whole numbers from {low} to {high}")


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


def is_own(path: Path) -> bool:
    """Whether a file is a recording, so that another may take its place."""
    try:
        return bool(read(path))
    except FileError:
        return False
