"""Checkpoints: named arrays and a little JSON, in a folder that is complete or not there, and checked when read.

``FOLDER/checkpoint-00000012/`` is one checkpoint, readable and checkable without recollect:

* ``arrays.safetensors``: the arrays, in the format that many libraries read;
* ``manifest.json``: format, version, name, dtype and shape of each array, and the caller's ``meta``;
* ``SHA256SUMS``: the sums of these two, as ``sha256sum --check`` takes them.

A checkpoint is written under a temporary name, flushed to disk and renamed, so that a crash at any moment leaves the
ones before it. Nothing in one is executed, the three file names are fixed, links are not followed, and no size that a
file claims is believed before it is compared with the bytes there are. Only what carries such a manifest is ever
removed: a folder may hold anything else besides. Several processes may save to one folder.

Releases before 0.2 wrote ``FOLDER/00000012/`` with ``arrays.bin``, the arrays one after another: they are still read.
The manifest, the sums and the renaming are recollect's own, as safetensors has no checksum: of 60 flipped bits it
loaded 60 without a word.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as here:
...     _ = save(here, {"weights": np.arange(3.0)}, {"step": 7})
...     found = load(here)
>>> found.arrays["weights"], found.meta
(array([0., 1., 2.]), {'step': 7})
"""

import contextlib
import hashlib
import json
import math
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recollect.errors import FileError, RecollectError
from recollect.store import files
from recollect.store.files import Folder

FORMAT, VERSION = "recollect checkpoint", 2
KEEP = 3
"""How many checkpoints a folder holds; older ones are removed."""

LARGEST = 2**36
"""Most bytes of arrays that are read at all."""

_ARRAYS = {1: "arrays.bin", 2: "arrays.safetensors"}  # by version
_KNOWN = (*_ARRAYS.values(), "SHA256SUMS", "manifest.json")  # in the order of removal: what is left is still ours
_KINDS = ("bool", *(f"{u}int{b}" for u in ("", "u") for b in (8, 16, 32, 64)), "float16", "float32", "float64")
_DTYPES = {kind: np.dtype(kind).newbyteorder("<") for kind in _KINDS}
_TENSORS = {"bool": "BOOL"} | {k: f"{k[0].upper()}{re.sub('[^0-9]', '', k)}" for k in _KINDS[1:]}
_NUMBER = re.compile(r"(checkpoint-)?([0-9]{8,15})")
_TEMPORARY = re.compile(r"\.(recollect-)?(new|old)-[0-9a-f]{8}")

Shapes = Mapping[str, tuple[tuple[int, ...], str]]
"""Shape and dtype of every array by name, as in ``((3, 8), "float32")``."""


class Checkpoint(NamedTuple):
    """What a checkpoint holds. ``passed_over``: the newer ones that were damaged, and why."""

    path: Path
    arrays: dict[str, np.ndarray]
    meta: dict[str, Any]
    passed_over: tuple[str, ...] = ()

    @property
    def number(self) -> int:
        """Checkpoints of a folder are numbered from 1."""
        return number_of(self.path)


def save(folder: Path | str, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any], keep: int = KEEP) -> Path:
    """Add a checkpoint to ``folder`` and remove all but the newest ``keep`` of them; returns its path.

    ``meta`` is whatever strict JSON can hold. What cannot be written is a ``RecollectError`` that names path and cause,
    and the earlier checkpoints are as they were. Nothing that is no checkpoint is touched.
    """
    if isinstance(keep, bool) or not isinstance(keep, int) or keep < 1:
        raise ValueError(f"keep={keep!r} must be an integer of at least 1")
    packed = _pack(arrays, meta)
    with Folder(folder, create=True) as place:
        return _save(place, packed, keep)


def save_below(
    above: Folder, names: tuple[str, ...], arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]
) -> Path:
    """As ``save``, in a folder below one that is held open, through no link."""
    packed = _pack(arrays, meta)
    with contextlib.ExitStack() as stack:
        for name in names:
            above = stack.enter_context(above.below(name, create=True))
        return _save(above, packed, KEEP)


def _pack(arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> dict[str, bytes]:
    """The files of a checkpoint, manifest first, so that what a crash leaves under a temporary name is known by it."""
    from safetensors.numpy import save as as_tensors

    entries, tensors = [], {}
    for name, array in arrays.items():
        array = np.asarray(array)
        if array.dtype.name not in _DTYPES:
            raise TypeError(f"{name}: arrays of dtype {array.dtype} are not saved; {', '.join(_DTYPES)} are")
        if name == "__metadata__":
            raise ValueError("an array cannot be called '__metadata__': safetensors keeps that name")
        tensors[name] = np.array(array, _DTYPES[array.dtype.name], order="C")
        entries.append({"name": name, "dtype": array.dtype.name, "shape": list(array.shape)})
    content = as_tensors(tensors)
    head = {"format": FORMAT, "version": VERSION, "arrays": entries, "bytes": len(content), "meta": dict(meta)}
    found = {"manifest.json": json.dumps(head, indent=1, allow_nan=False).encode(), _ARRAYS[VERSION]: content}
    sums = "".join(f"{hashlib.sha256(part).hexdigest()}  {name}\n" for name, part in found.items())
    return {**found, "SHA256SUMS": sums.encode()}


def _save(place: Folder, packed: Mapping[str, bytes], keep: int) -> Path:
    temporary = f".recollect-new-{secrets.token_hex(4)}"
    try:
        _tidy(place)
        try:
            place.make(temporary)
            with place.below(temporary) as inner:
                inner.claim()
                for file, content in packed.items():
                    inner.create(file, content)
                inner.sync()
                name = _settle(place, temporary)
        except BaseException:
            with contextlib.suppress(OSError, RecollectError):
                place.remove_files(temporary, *_KNOWN)
            raise
        place.sync()
        _prune(place, keep)
    except OSError as error:
        raise RecollectError(
            f"cannot write the checkpoint in {place.path}: {error.strerror}; the checkpoints before it are intact"
        ) from error
    return place.path / name


def _settle(place: Folder, temporary: str) -> str:
    """Give a complete checkpoint the next number; one that another process takes first is passed by."""
    while True:
        taken = listing(place.path)
        name = f"checkpoint-{number_of(taken[-1].name) + 1 if taken else 1:08d}"
        try:
            place.rename(temporary, name)
            return name
        except OSError:
            if name not in place.names():
                raise


def _prune(place: Folder, keep: int) -> None:
    """Remove the oldest of what is certainly a checkpoint, so that no half of one is ever listed."""
    named = sorted((number_of(name), name) for name in place.names() if _NUMBER.fullmatch(name))
    ours = [name for _, name in named if _is_ours(place, name)]
    for name in ours[:-keep]:
        _drop(place, name)


def remove(path: Path) -> None:
    """Remove a checkpoint, if it certainly is one, so that no half of it is ever listed."""
    with Folder(path.parent) as place:
        if _is_ours(place, path.name):
            _drop(place, path.name)


def _drop(place: Folder, name: str) -> None:
    aside = f".recollect-old-{secrets.token_hex(4)}"
    with contextlib.suppress(FileNotFoundError):  # another process that saves here was first
        place.rename(name, aside)
        with contextlib.suppress(OSError, RecollectError):
            place.remove_files(aside, *_KNOWN)


def _is_ours(place: Folder, name: str) -> bool:
    """Whether a folder carries a checkpoint's manifest and nothing that a checkpoint has not."""
    try:
        with place.below(name) as inner:
            if not set(inner.names()) <= set(_KNOWN):
                return False
        return files.read_json(place.path / name / "manifest.json").get("format") == FORMAT
    except (RecollectError, OSError):
        return False


def _tidy(place: Folder) -> None:
    """Remove what a crash left under temporary names: what only holds files of ours, and nobody is at work in.

    Names of releases before 0.2 do not say whose they are: there a whole manifest has to.
    """
    for name in place.names():
        found = _TEMPORARY.fullmatch(name)
        if found is not None and place.is_folder(name) and (found[1] or _is_ours(place, name)):
            with contextlib.suppress(RecollectError, OSError), place.below(name) as inner:
                there = set(inner.names())
                # One that is still empty may have been made this moment, and its maker is about to claim it.
                ours = "manifest.json" in there if there else inner.age() > 60.0
                if there <= set(_KNOWN) and ours and inner.claim():
                    place.remove_files(name, *_KNOWN)


def load(folder: Path | str, *, fallback: bool = False, like: Shapes | None = None) -> Checkpoint:
    """The newest checkpoint of ``folder``; with ``fallback`` the newest one that is intact.

    Args:
        folder: where ``save`` put it.
        fallback: pass over checkpoints that are damaged; ``passed_over`` names them.
        like: the arrays that are expected; others are refused, with expected and got, before any is read.
    """
    folder = Path(folder)
    passed_over: dict[Path, str] = {}
    there = _newest_first(folder)
    for path, before in there:
        try:
            return read(path, like=like)._replace(passed_over=tuple(passed_over.values()))
        except FileError as error:
            if not os.path.lexists(path):  # removed meanwhile, by a run that continues and has newer ones
                continue
            if not fallback:
                hint = (
                    f"; {before.name} is before it: --fallback goes back to it, in Python fallback=True"
                    if before
                    else ""
                )
                raise FileError(f"{error}{hint}") from error
            passed_over[path] = str(error)
    reason = f": {'; '.join(passed_over.values())}" if passed_over else ""
    raise FileError(f"{folder} holds no {'intact ' if passed_over else ''}checkpoint{reason}")


def _newest_first(folder: Path) -> Iterator[tuple[Path, Path | None]]:
    """Every checkpoint once, with the one before it, also of those that come while others go."""
    seen: set[Path] = set()
    while fresh := [path for path in listing(folder) if path not in seen]:
        before = fresh[-2] if len(fresh) > 1 else None
        seen.add(fresh[-1])
        yield fresh[-1], before


def listing(folder: Path | str) -> list[Path]:
    """The checkpoints of a folder by name, oldest first; whether they are intact is for ``read`` to say.

    What has the name of an earlier release's, digits alone, which may as well be a date, is one if it holds any file of
    a checkpoint's.
    """
    try:
        found = [_NUMBER.fullmatch(name) for name in os.listdir(folder)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise FileError(f"{folder} cannot be read: {error.strerror}") from error
    names = [m[0] for m in found if m is not None and (m[1] or _looks_old(Path(folder, m[0])))]
    return [Path(folder, name) for name in sorted(names, key=lambda name: (number_of(name), name))]


def _looks_old(path: Path) -> bool:
    return not path.is_symlink() and any(os.path.lexists(path / name) for name in _KNOWN)


def number_of(path: Path | str) -> int:
    """The number in a checkpoint's name; those of a folder count from 1."""
    return int(Path(path).name.rpartition("-")[2])


def read(path: Path | str, *, like: Shapes | None = None) -> Checkpoint:
    """Read one checkpoint; any fault in it is a ``FileError`` that names the file."""
    path = Path(path)
    head, handle = _open(path)
    if like is not None:
        try:
            refuse_differences(path, like, {e["name"]: (tuple(e["shape"]), e["dtype"]) for e in head["arrays"]})
        except FileError:
            os.close(handle)
            raise
    with os.fdopen(handle, "rb") as file:
        try:
            content = file.read(head["bytes"])
        except (OSError, MemoryError) as error:
            raise FileError(f"{head['file']} cannot be read: {error}") from error
    if hashlib.sha256(content).hexdigest() != head["sum"]:
        raise FileError(f"{head['file']} is damaged: its SHA-256 is not the one in SHA256SUMS")
    return Checkpoint(path, _unpack(head, content), head["meta"])


def _unpack(head: dict[str, Any], content: bytes) -> dict[str, np.ndarray]:
    if head["version"] == 1:
        arrays = {}
        for entry in head["arrays"]:
            dtype, count = _DTYPES[entry["dtype"]], math.prod(entry["shape"])
            flat = np.frombuffer(content, dtype, count, entry["offset"])
            arrays[entry["name"]] = flat.reshape(entry["shape"]).astype(dtype.newbyteorder("="))
        return arrays
    from safetensors import SafetensorError
    from safetensors.numpy import load as from_tensors

    _check_tensors(head, content)
    try:
        found = from_tensors(content)
    except (SafetensorError, ValueError, LookupError, TypeError) as error:
        raise FileError(f"{head['file']} is damaged: {type(error).__name__}: {error}") from error
    return {entry["name"]: np.array(found[entry["name"]]) for entry in head["arrays"]}


def _check_tensors(head: dict[str, Any], content: bytes) -> None:
    """Refuse a file of arrays whose own header says something else than the manifest; ``content``: enough of it."""
    length = int.from_bytes(content[:8], "little")
    expected = {e["name"]: [_TENSORS[e["dtype"]], e["shape"]] for e in head["arrays"]}
    try:
        said = files.parse_json(content[8 : 8 + length])
        said.pop("__metadata__", None)
        got = {name: [entry["dtype"], entry["shape"]] for name, entry in said.items()}
        sizes = {name: entry["data_offsets"][1] - entry["data_offsets"][0] for name, entry in said.items()}
        fits = sizes == {e["name"]: _bytes(e) for e in head["arrays"]}
        fits = fits and 8 + length + sum(sizes.values()) == head["bytes"]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise FileError(f"{head['file']} is damaged: {type(error).__name__}: {error}") from error
    if got != expected or not fits:
        raise FileError(f"{head['file']} is damaged: its arrays are not those of the manifest")


def verify(path: Path | str) -> Checkpoint:
    """Check a checkpoint's sums and form without holding its arrays in memory; a fault is a ``FileError``.

    Returns it without its arrays.
    """
    path = Path(path)
    head, handle = _open(path)
    with os.fdopen(handle, "rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != head["sum"]:
            raise FileError(f"{head['file']} is damaged: its SHA-256 is not the one in SHA256SUMS")
        if head["version"] > 1:
            file.seek(0)
            length = int.from_bytes(start := file.read(8), "little")
            _check_tensors(head, start + file.read(min(length, files.LARGEST_JSON)))
    return Checkpoint(path, {}, head["meta"])


def _open(path: Path) -> tuple[dict[str, Any], int]:
    """The checked manifest, with the arrays' file and its sum, and a handle on that file, which has the right size."""
    if path.is_symlink() or not path.is_dir():
        raise FileError(f"{path} is not a checkpoint: {'a link' if path.is_symlink() else 'no such folder'}")
    version, sums = _parse_sums(path / "SHA256SUMS")
    described = files.read(path / "manifest.json", files.LARGEST_JSON)
    if hashlib.sha256(described).hexdigest() != sums[0]:
        raise FileError(f"{path / 'manifest.json'} is damaged: its SHA-256 is not the one in SHA256SUMS")
    try:
        head = files.parse_json(described)
        _check_manifest(head, version)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise FileError(f"{path / 'manifest.json'} is damaged: {type(error).__name__}: {error}") from error
    head["sum"], head["file"] = sums[1], path / _ARRAYS[version]
    handle, size = files.open_plain(head["file"])
    if size != head["bytes"]:
        os.close(handle)
        raise FileError(f"{head['file']} is damaged: it has {size:,} bytes and should have {head['bytes']:,}")
    return head, handle


def _parse_sums(path: Path) -> tuple[int, tuple[str, str]]:
    """The version that the listed files are of, and the sums of manifest and arrays."""
    text = files.read(path, 4096)
    for version, arrays in _ARRAYS.items():
        pattern = "".join(f"([0-9a-f]{{64}})  {re.escape(name)}\n" for name in ("manifest.json", arrays))
        if (found := re.fullmatch(pattern.encode(), text)) is not None:
            return version, (found[1].decode(), found[2].decode())
    raise FileError(f"{path} is damaged: it does not hold the SHA-256 of manifest.json and {_ARRAYS[VERSION]}")


def _bytes(entry: dict[str, Any]) -> int:
    return math.prod(entry["shape"]) * _DTYPES[entry["dtype"]].itemsize


def _check_manifest(head: dict[str, Any], version: int) -> None:
    if head["format"] != FORMAT:
        raise ValueError(f"its format is {head['format']!r}")
    if head["version"] != version:
        raise ValueError(f"it is of version {head['version']!r}; this release reads versions 1 to {VERSION}")
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
        if math.prod(max(n, 1) for n in shape) * 8 > LARGEST:  # also where another dimension is 0
            raise ValueError(f"the shape of {name!r} is {shape!r}, more than the {LARGEST:,} bytes allowed")
        if entry["dtype"] not in _DTYPES:
            raise ValueError(f"{name!r} has the unknown dtype {entry['dtype']!r}")
        if version == 1 and (type(entry["offset"]) is not int or entry["offset"] != end):
            raise ValueError(f"{name!r} has a wrong place")
        end += _bytes(entry)
    if type(head["bytes"]) is not int or head["bytes"] < end or (version == 1 and head["bytes"] != end):
        raise ValueError(f"its arrays have {end:,} bytes; {head['bytes']!r} are promised")
    if head["bytes"] > LARGEST:
        raise ValueError(f"its arrays have {head['bytes']:,} bytes; {LARGEST:,} are allowed")


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
