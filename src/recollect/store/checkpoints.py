"""Checkpoints: named arrays and a little JSON, in a folder that is complete or not there, and checked when read.

``FOLDER/00000012/`` is one checkpoint, readable and checkable without recollect:

* ``arrays.bin``: the arrays one after another, little-endian, in C order;
* ``manifest.json``: format, version, number, name, dtype, shape and offset of each array, and the caller's ``meta``;
* ``SHA256SUMS``: the sums of these two, as ``sha256sum --check`` takes them.

A checkpoint is written under a temporary name, flushed to disk and renamed, so that a crash at any moment leaves the
ones before it. Nothing in one is executed, the three file names are fixed, links are not followed, and no size that a
file claims is believed before it is compared with the bytes there are. One process at a time may write to a folder:
whoever calls holds the run's lock.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as here:
...     _ = save(here, {"weights": np.arange(3.0)}, {"step": 7})
...     found = load(here)
>>> found.arrays["weights"], found.meta
(array([0., 1., 2.]), {'step': 7})
"""

import hashlib
import json
import math
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recollect.errors import FileError, RecollectError
from recollect.store import files

FORMAT, VERSION = "recollect checkpoint", 1
KEEP = 3
"""How many checkpoints a folder holds; older ones are removed."""

LARGEST = 2**36
"""Most bytes of arrays that are read at all."""

_FILES = ("manifest.json", "arrays.bin")
_KINDS = ("bool", *(f"{u}int{b}" for u in ("", "u") for b in (8, 16, 32, 64)), "float16", "float32", "float64")
_DTYPES = {kind: np.dtype(kind).newbyteorder("<") for kind in _KINDS}
_NUMBER = re.compile(r"[0-9]{8,15}")

Shapes = Mapping[str, tuple[tuple[int, ...], str]]
"""Shape and dtype of every array by name, as in ``((3, 8), "float32")``."""


class Checkpoint(NamedTuple):
    """What a checkpoint holds. ``passed_over``: the newer ones that were not sound, and why."""

    path: Path
    arrays: dict[str, np.ndarray]
    meta: dict[str, Any]
    passed_over: tuple[str, ...] = ()

    @property
    def number(self) -> int:
        """Checkpoints of a folder are numbered from 1."""
        return int(self.path.name)


def save(folder: Path | str, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any], keep: int = KEEP) -> Path:
    """Add a checkpoint to ``folder`` and remove all but the newest ``keep``; returns its path.

    ``meta`` is whatever strict JSON can hold. What cannot be written is a ``RecollectError`` that names path and cause,
    and the earlier checkpoints are as they were.
    """
    folder = Path(folder)
    parts, manifest = _pack(arrays)
    taken = listing(folder)
    number = 1 + (int(taken[-1].name) if taken else 0)
    head = {"format": FORMAT, "version": VERSION, "number": number, **manifest, "meta": dict(meta)}
    described = json.dumps(head, indent=1, allow_nan=False).encode()
    sums = hashlib.sha256(described), hashlib.sha256()
    for part in parts:
        sums[1].update(part)
    listed = "".join(f"{found.hexdigest()}  {name}\n" for name, found in zip(_FILES, sums, strict=True)).encode()
    path = folder / f"{number:08d}"
    temporary = folder / f".new-{secrets.token_hex(4)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _tidy(folder)
        try:
            temporary.mkdir()
            files.write(temporary / "arrays.bin", *parts)
            files.write(temporary / "manifest.json", described)
            files.write(temporary / "SHA256SUMS", listed)
            files.sync_folder(temporary)
            os.rename(temporary, path)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        files.sync_folder(folder)
        for old in listing(folder)[:-keep]:
            remove(old)
    except OSError as error:
        raise RecollectError(
            f"cannot write the checkpoint {path}: {error.strerror}; the checkpoints before it are intact"
        ) from error
    return path


def load(folder: Path | str, *, fallback: bool = False, like: Shapes | None = None, most: int = LARGEST) -> Checkpoint:
    """The newest checkpoint of ``folder``; with ``fallback`` the newest one that is sound.

    Args:
        folder: where ``save`` put it.
        fallback: pass over checkpoints that are damaged; ``passed_over`` names them.
        like: the arrays that are expected; others are refused, with expected and got, before any is read.
        most: refuse arrays of more bytes than this altogether.
    """
    folder = Path(folder)
    passed_over: list[str] = []
    there = listing(folder)
    for k in reversed(range(len(there))):
        try:
            return read(there[k], like=like, most=most)._replace(passed_over=tuple(passed_over))
        except FileError as error:
            if not fallback:
                hint = f"; checkpoint {there[k - 1].name} is before it: --fallback goes back to it" if k else ""
                raise FileError(f"{error}{hint}") from error
            passed_over.append(str(error))
    reason = f": {'; '.join(passed_over)}" if passed_over else ""
    raise FileError(f"{folder} holds no {'sound ' if passed_over else ''}checkpoint{reason}")


def listing(folder: Path | str) -> list[Path]:
    """The checkpoints of a folder by name, oldest first; whether they are sound is for ``read`` to say."""
    try:
        names = [entry.name for entry in os.scandir(folder) if _NUMBER.fullmatch(entry.name)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise FileError(f"{folder} cannot be read: {error.strerror}") from error
    return [Path(folder, name) for name in sorted(names, key=lambda name: (int(name), name))]


def read(path: Path | str, *, like: Shapes | None = None, most: int = LARGEST) -> Checkpoint:
    """Read one checkpoint; any fault in it is a ``FileError`` that names the file."""
    path = Path(path)
    head, handle = _open(path, most)
    with os.fdopen(handle, "rb") as file:
        if like is not None:
            refuse_differences(path, like, {e["name"]: (tuple(e["shape"]), e["dtype"]) for e in head["arrays"]})
        try:
            content = file.read(head["bytes"])
        except (OSError, MemoryError) as error:
            raise FileError(f"{path / 'arrays.bin'} cannot be read: {error}") from error
    if hashlib.sha256(content).hexdigest() != head["sum"]:
        raise FileError(f"{path / 'arrays.bin'} is damaged: its SHA-256 is not the one in SHA256SUMS")
    arrays = {}
    for entry in head["arrays"]:
        dtype, count = _DTYPES[entry["dtype"]], math.prod(entry["shape"])
        flat = np.frombuffer(content, dtype, count, entry["offset"])
        arrays[entry["name"]] = flat.reshape(entry["shape"]).astype(dtype.newbyteorder("="))
    return Checkpoint(path, arrays, head["meta"])


def verify(path: Path | str) -> Checkpoint:
    """Check a checkpoint's sums and form without holding its arrays in memory; a fault is a ``FileError``.

    Returns it without its arrays.
    """
    path = Path(path)
    head, handle = _open(path, LARGEST)
    with os.fdopen(handle, "rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != head["sum"]:
            raise FileError(f"{path / 'arrays.bin'} is damaged: its SHA-256 is not the one in SHA256SUMS")
    return Checkpoint(path, {}, head["meta"])


def _pack(arrays: Mapping[str, np.ndarray]) -> tuple[list[memoryview], dict[str, Any]]:
    parts, entries, offset = [], [], 0
    for name, array in arrays.items():
        array = np.asarray(array)
        if array.dtype.name not in _DTYPES:
            raise TypeError(f"{name}: arrays of dtype {array.dtype} are not saved; {', '.join(_DTYPES)} are")
        content = np.ascontiguousarray(array, _DTYPES[array.dtype.name])
        entries.append({"name": name, "dtype": array.dtype.name, "shape": list(array.shape), "offset": offset})
        parts.append(content.reshape(-1).view(np.uint8).data)
        offset += content.nbytes
    return parts, {"arrays": entries, "bytes": offset}


def _tidy(folder: Path) -> None:
    """Remove what a crash left under temporary names."""
    for entry in os.scandir(folder):
        if entry.name.startswith((".new-", ".old-")):
            shutil.rmtree(entry.path, ignore_errors=True)


def remove(path: Path) -> None:
    """Remove a checkpoint so that no half of it is ever listed."""
    if path.is_symlink() or not path.is_dir():
        path.unlink()
        return
    aside = path.with_name(f".old-{secrets.token_hex(4)}")
    os.rename(path, aside)
    shutil.rmtree(aside, ignore_errors=True)


def _open(path: Path, most: int) -> tuple[dict[str, Any], int]:
    """The checked manifest, with the expected sum of the arrays, and a handle on these, of the size it says."""
    if path.is_symlink() or not path.is_dir():
        raise FileError(f"{path} is not a checkpoint: {'a link' if path.is_symlink() else 'no such folder'}")
    sums = _parse_sums(path / "SHA256SUMS")
    described = files.read(path / "manifest.json", files.LARGEST_JSON)
    if hashlib.sha256(described).hexdigest() != sums["manifest.json"]:
        raise FileError(f"{path / 'manifest.json'} is damaged: its SHA-256 is not the one in SHA256SUMS")
    head = files.read_json(path / "manifest.json")
    try:
        _check_manifest(head, most)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise FileError(f"{path / 'manifest.json'} is not sound: {type(error).__name__}: {error}") from error
    head["sum"] = sums["arrays.bin"]
    handle, size = files.open_plain(path / "arrays.bin")
    if size != head["bytes"]:
        os.close(handle)
        raise FileError(f"{path / 'arrays.bin'} is damaged: it has {size:,} bytes and should have {head['bytes']:,}")
    return head, handle


def _parse_sums(path: Path) -> dict[str, str]:
    text = files.read(path, 4096)
    pattern = b"".join(b"([0-9a-f]{64})  " + re.escape(name.encode()) + b"\n" for name in _FILES)
    if (found := re.fullmatch(pattern, text)) is None:
        raise FileError(f"{path} is damaged: it does not hold the SHA-256 of {' and '.join(_FILES)}")
    return {name: sum_.decode() for name, sum_ in zip(_FILES, found.groups(), strict=True)}


def _check_manifest(head: dict[str, Any], most: int) -> None:
    if head["format"] != FORMAT:
        raise ValueError(f"its format is {head['format']!r}")
    if head["version"] != VERSION:
        raise ValueError(f"it is of version {head['version']!r}; this release reads version {VERSION}")
    if not isinstance(head["meta"], dict):
        raise ValueError("meta is not an object")
    end, names = 0, set()
    for entry in head["arrays"]:
        name, shape = entry["name"], entry["shape"]
        if type(name) is not str or name in names:
            raise ValueError(f"the name {name!r} is no text or occurs twice")
        names.add(name)
        if not (isinstance(shape, list) and len(shape) <= 32 and all(type(n) is int and n >= 0 for n in shape)):
            raise ValueError(f"the shape of {name!r} is {shape!r}")
        if entry["dtype"] not in _DTYPES or type(entry["offset"]) is not int or entry["offset"] != end:
            raise ValueError(f"{name!r} has an unknown dtype or a wrong place")
        end += math.prod(shape) * _DTYPES[entry["dtype"]].itemsize
    if type(head["bytes"]) is not int or head["bytes"] != end or end > most:
        raise ValueError(f"its arrays have {end:,} bytes; {head['bytes']!r} are promised and {most:,} allowed")


def refuse_differences(where: Path | str, expected: Shapes, got: Shapes) -> None:
    """Refuse other arrays than are expected, naming each with what was expected and what there is."""

    def text(known: Shapes, name: str) -> str:
        return f"{known[name][1]}{list(known[name][0])}" if name in known else "nothing"

    names = dict.fromkeys([*expected, *got])
    wrong = [
        f"{name}: expected {e}, got {g}" for name in names if (e := text(expected, name)) != (g := text(got, name))
    ]
    if wrong:
        more = f"; and {len(wrong) - 50} more" if len(wrong) > 50 else ""
        raise FileError(f"{where} is of something else: {'; '.join(wrong[:50])}{more}")
