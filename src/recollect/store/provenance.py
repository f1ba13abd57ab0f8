"""Where results come from: the command, the versions, and what differs between two accounts of them."""

import json
import math
import os
import platform
import shlex
import sys
from collections.abc import Collection, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from recollect._version import __version__
from recollect.errors import RecollectError

BITS_DEPEND_ON = ("recollect", "jax", "jaxlib", "numpy", "numba", "prng", "backend", "processor", "xla_flags")
"""The versions that have to be the same for a resumed run to give the same bits; the rest is for the record."""


def versions() -> dict[str, str]:
    """The versions that results depend on."""
    import jax

    from recollect import prng

    found = {"recollect": __version__, "python": platform.python_version(), "platform": platform.platform()}
    for package in ("jax", "jaxlib", "numpy", "numba"):
        found[package] = metadata.version(package)
    found |= {"prng": prng.NAME, "backend": jax.default_backend(), "processor": _processor()}
    return {**found, "xla_flags": os.environ.get("XLA_FLAGS", "")}


def _processor() -> str:
    """The processor's name, which decides what instructions are compiled to."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    except OSError:
        model = platform.processor()
    return f"{platform.machine()} {model}".strip()


def command_line() -> str:
    """The command this process was started with, ready to paste."""
    program = Path(sys.argv[0]).name
    return shlex.join(["recollect" if program == "__main__.py" else program, *sys.argv[1:]])


def native(value: Any) -> Any:
    """A number or array of NumPy's or JAX's as Python's own numbers and lists of them; anything else as it is.

    >>> import numpy as np
    >>> native(np.int64(20)), native(np.float32(0.5)), native("text")
    (20, 0.5, 'text')
    """
    return value.tolist() if hasattr(value, "dtype") and hasattr(value, "tolist") else value


def plain(value: Any) -> Any:
    """What strict JSON can hold: NaN as null and infinities as words, tuples as lists, NumPy's numbers as Python's.

    >>> import numpy as np
    >>> plain({"steps": np.int64(20), "sizes": np.arange(2), "rate": np.float32(0.5), "limit": np.inf})
    {'steps': 20, 'sizes': [0, 1], 'rate': 0.5, 'limit': 'inf'}
    """
    value = native(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {native(k): plain(v) for k, v in value.items()}
    if isinstance(value, Path):
        return str(value)
    return value


def encode(value: Any, what: str, indent: int | None = None) -> bytes:
    """Strict JSON of ``plain(value)``; what it cannot hold is a ``TypeError`` that names ``what`` and the part."""
    found = plain(value)
    try:
        return json.dumps(found, indent=indent, allow_nan=False).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"{what} cannot be written as JSON: {_culprit(found, '') or error}") from error


def _culprit(value: Any, path: str) -> str | None:
    """The first part that JSON cannot hold."""
    if isinstance(value, dict):
        for name, part in value.items():
            if not isinstance(name, (str, int, float)) and name is not None:
                return f"{path or 'it'} has the key {name!r}"
            if found := _culprit(part, f"{path}.{name}" if path else str(name)):
                return found
        return None
    if isinstance(value, list):
        return next((found for k, part in enumerate(value) if (found := _culprit(part, f"{path}[{k}]"))), None)
    known = value is None or isinstance(value, (str, int, float))
    return None if known else f"{path or 'it'} is a {type(value).__name__}, {value!r:.100}"


def differences(was: Any, now: Any, may_change: Collection[str] = ()) -> list[str]:
    """Field by field, what differs between two configs; fields named in ``may_change`` may, with all below them.

    >>> differences({"a": {"rate": 0.1}, "b": 1}, {"a": {"rate": 0.2}}, may_change=["b"])
    ['a.rate: was 0.1, is 0.2']
    """
    return list(_differences(plain(was), plain(now), may_change, ""))


MAY_CHANGE = ("checkpoints",)
"""The fields of a config that need not be the same when a run is resumed; no result depends on them."""


def refuse_changes(was: Any, now: Any, where: str, may_change: Collection[str] = MAY_CHANGE) -> None:
    """Refuse another config than the one of the start, naming every field that differs."""
    if wrong := differences(was, now, may_change):
        allowed = f"only {', '.join(may_change)} may change" if may_change else "nothing may change"
        raise RecollectError(f"{where}: the config is not the one it began with: {'; '.join(wrong)} ({allowed})")


def without_versions(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a checkpoint keeps of its run's config, beside the versions that it was itself made with."""
    return {name: value for name, value in config.items() if name != "versions"}


def _differences(was: Any, now: Any, may_change: Collection[str], path: str) -> Iterator[str]:
    if path in may_change:
        return
    if isinstance(was, dict) and isinstance(now, dict):
        for name in dict.fromkeys([*was, *now]):
            deeper = f"{path}.{name}" if path else str(name)
            yield from _differences(was.get(name, _NOTHING), now.get(name, _NOTHING), may_change, deeper)
    elif type(was) is not type(now) or was != now:
        yield f"{path or 'all of it'}: was {_text(was)}, is {_text(now)}"


_NOTHING = object()


def _text(value: Any) -> str:
    return "absent" if value is _NOTHING else json.dumps(value, ensure_ascii=False)
