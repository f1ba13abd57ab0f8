"""The file a reservoir is saved in: an uncompressed zip of JSON and NumPy arrays, readable without recollect.

``header.json`` names the format, its version, the law, and the SHA-256 of every other member. ``state.*.npy`` are the
fields of ``passes.State`` with the origin of the randomness and the weights as given; ``items.json`` holds the items,
arrays among them as ``{"array": k}`` for the member ``array.k.npy``. Nothing in it is ever executed, nothing is
unpacked to disk, and no member is larger than the file itself.
"""

import base64
import hashlib
import io
import json
import math
import os
import secrets
import warnings
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from recollect.errors import FileError
from recollect.reservoir import passes, ratios
from recollect.reservoir.passes import HELD, IS_LOG, SEEN, SHIFT, State

FORMAT, VERSION, LAW = "recollect reservoir", 2, "product"
READABLE = (1, VERSION)  # version 1 kept the ratios of each item beyond its rank as well
DEEPEST = 100  # lists in lists that an item may be: Python reads back only so many, fewer where it is deep in calls
LONGEST_HEADER = 1 << 17  # bytes of an array's header: its length has two bytes
LONGEST = 14_000  # bits of a whole number: those of the 4,300 digits that Python reads back, and some fewer


# -- items as JSON


def _encode(item: Any, arrays: list[np.ndarray], depth: int = 0) -> Any:
    """An item in JSON, its arrays put aside. Types are matched exactly: what could come back as another is refused."""
    kind = type(item)
    if depth > DEEPEST:
        raise TypeError(f"items nested more than {DEEPEST} deep cannot be saved: keep a key instead of the object")
    if item is None or kind in (bool, str):
        return item
    if kind is int:
        if item.bit_length() > LONGEST:
            raise TypeError(f"a whole number of {item.bit_length():,} bits cannot be saved; up to {LONGEST:,} can")
        return item
    if kind is float:
        return item if math.isfinite(item) else {"float": repr(item)}
    if kind is bytes:
        return {"bytes": base64.b64encode(item).decode()}
    if kind is np.ndarray or isinstance(item, np.generic):
        arrays.append(np.asarray(item))
        return {"array" if kind is np.ndarray else "scalar": len(arrays) - 1}
    if kind is tuple:
        return {"tuple": [_encode(x, arrays, depth + 1) for x in item]}
    if kind is list:
        return [_encode(x, arrays, depth + 1) for x in item]
    if kind is dict and all(type(k) is str for k in item):
        return {"dict": {k: _encode(x, arrays, depth + 1) for k, x in item.items()}}
    raise TypeError(
        f"items of type {kind.__name__} cannot be saved; None, booleans, numbers, strings, bytes, NumPy arrays, "
        "and tuples, lists and string-keyed dictionaries of these can: keep a key instead of the object"
    )


def _decode(item: Any, arrays: dict[int, np.ndarray]) -> Any:
    if item is None or isinstance(item, (bool, str, int, float)):
        return item
    if isinstance(item, list):
        return [_decode(x, arrays) for x in item]
    (kind, content), *rest = item.items()
    if rest:
        raise ValueError("an item has two kinds")
    if kind == "array":
        return arrays[content]
    if kind == "scalar":
        return arrays[content][()]
    if kind == "float":
        return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[content]
    if kind == "bytes":
        return base64.b64decode(content, validate=True)
    if kind == "tuple":
        return tuple(_decode(x, arrays) for x in content)
    if kind == "dict":
        return {k: _decode(x, arrays) for k, x in content.items()}
    raise ValueError(f"an item is of unknown kind {kind!r}")


# -- memory


def refuse_without_memory(what: str, capacity: int) -> None:
    """Raise ``MemoryError`` where the ratios of another reservoir of this capacity do not fit."""
    need, have = 8 * capacity * (capacity + 1), available()
    if need > have:
        raise MemoryError(f"{what} needs {need:,} bytes (8 capacity²), {have:,} are available")


def available() -> int:
    """Bytes of memory that can be had without swapping, as far as the system says."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


# -- writing


Member = tuple[bytes, Any]  # a header, and the buffer of what follows it, which may be large and is not copied


def _npy(array: np.ndarray) -> Member:
    header = io.BytesIO()
    try:
        np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(array))
        restored = _parse_header(io.BytesIO(header.getvalue()))[2] == array.dtype
    except ValueError:
        restored = False
    if not restored or array.dtype.hasobject or not array.dtype.itemsize:
        raise TypeError(f"arrays of dtype {array.dtype} cannot be saved: the file would not bring them back")
    fortran = array.flags.f_contiguous and not array.flags.c_contiguous
    flat = np.asarray(array.T if fortran else array, order="C").reshape(-1)
    return header.getvalue(), flat.view(np.uint8).data if flat.size else b""


def _digest(member: Member) -> str:
    sums = hashlib.sha256(member[0])
    sums.update(member[1])
    return sums.hexdigest()


Origins = frozenset[tuple[int, ...]]


def write(path: Any, state: State, origins: Origins, given: np.ndarray, items: list[Any]) -> None:
    """Write to a temporary name beside ``path``, flush it to disk, then rename."""
    arrays: list[np.ndarray] = []
    encoded = json.dumps([_encode(item, arrays) for item in items], allow_nan=False).encode()
    held = len(items)
    fields = {**state._asdict(), "rows": _packed(state), "origins": np.array(sorted(origins), np.uint64)}
    fields["given"] = given[:, :held]
    members = {f"state.{name}.npy": _npy(array) for name, array in fields.items()}
    members["items.json"] = encoded, b""
    members.update({f"array.{k}.npy": _npy(array) for k, array in enumerate(arrays)})
    header = {
        "format": FORMAT,
        "version": VERSION,
        "law": LAW,
        "sha256": {name: _digest(member) for name, member in members.items()},
    }
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; a reservoir is saved in a file")
    if path.exists() and not path.is_file():  # a device or a pipe, which the new file would take the place of
        raise FileExistsError(f"{path} is not an ordinary file")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(handle, "wb") as out:
            with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
                archive.writestr("header.json", json.dumps(header, indent=1))
                for name, (head, body) in members.items():
                    with archive.open(zipfile.ZipInfo(name), "w", force_zip64=len(body) > 2**30) as member:
                        member.write(head)
                        member.write(body)
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _packed(state: State) -> np.ndarray:
    """The ratios of each item up to its rank, the oldest first: an item's rank only falls, so no others are used."""
    held, n = int(state.counts[HELD]), len(state.order)
    packed = np.empty(held * (held + 3) // 2)
    at = 0
    for rank, slot in enumerate(state.order[n - held :], 1):
        packed[at : at + rank + 1] = state.rows[slot, : rank + 1]
        at += rank + 1
    return packed


def _unpack(packed: np.ndarray, order: np.ndarray, held: int, is_log: int, rows: np.ndarray) -> None:
    if packed.ndim == 2:  # version 1
        rows[:held] = packed
        return
    if len(packed) != held * (held + 3) // 2 or sorted(order.tolist()) != list(range(len(order))):
        raise ValueError("its ratios are not those of its items")
    rows[:held] = -np.inf if is_log else 0.0
    at = 0
    for rank, slot in enumerate(order[len(order) - held :], 1):
        rows[slot, : rank + 1] = packed[at : at + rank + 1]
        at += rank + 1


# -- reading


def _parse_header(stream: io.BytesIO) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(stream)
    if version != (1, 0):
        raise ValueError(f"array format {version} is not used here")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # NumPy's word on odd headers, which no file of ours has: a fault as any other
        return np.lib.format.read_array_header_1_0(stream)


def _parse_npy(content: bytes) -> np.ndarray:
    stream = io.BytesIO(content[:LONGEST_HEADER])
    shape, fortran, dtype = _parse_header(stream)
    if dtype.hasobject:
        raise ValueError("an array of objects")
    body = memoryview(content)[stream.tell() :]
    if math.prod(shape) * dtype.itemsize != len(body):
        raise ValueError("an array's size does not match its shape")
    return np.frombuffer(body, dtype).reshape(shape, order="F" if fortran else "C").copy()


def _members(file: BinaryIO) -> dict[str, bytes]:
    """The contents of the archive, checked against the header before anything is made of them."""
    size = os.fstat(file.fileno()).st_size
    with zipfile.ZipFile(file) as archive:
        infos = archive.infolist()
        names = [info.filename for info in infos]
        if len(set(names)) != len(names):
            raise ValueError("a member occurs twice")
        for info in infos:
            if info.compress_type != zipfile.ZIP_STORED or info.file_size > size:
                raise ValueError(f"member {info.filename!r} is compressed or larger than the file")
            if not 0 <= info.header_offset < size:
                raise ValueError(f"member {info.filename!r} lies outside of the file")
        if sum(info.file_size for info in infos) > size:
            raise ValueError("its members are together larger than the file: some of them overlap")
        content = {name: archive.read(name) for name in names}
    header = json.loads(content.pop("header.json"))
    if header["format"] != FORMAT:
        raise ValueError(f"its format is {header['format']!r}")
    if header["version"] not in READABLE:
        raise ValueError(f"it is of version {header['version']!r}; this release reads versions 1 and {VERSION}")
    if header["law"] != LAW:
        raise ValueError(f"its law is {header['law']!r}; this class samples {LAW!r}")
    if set(header["sha256"]) != set(content):
        raise ValueError("its members are not those the header lists")
    for name, data in content.items():
        if hashlib.sha256(data).hexdigest() != header["sha256"][name]:
            raise ValueError(f"the checksum of {name!r} does not match")
    return content


def _falling(ratios_: np.ndarray) -> bool:
    """Whether ratios fall along the last axis, as Newton's inequalities have it, to within rounding."""
    return all(
        bool(np.all((row[2:] <= row[1:-1]) | np.isclose(row[2:], row[1:-1], rtol=1e-9)))
        for row in np.atleast_2d(ratios_)  # one at a time: all together may take gigabytes
    )


def _fits(state: State, origins: np.ndarray, given: np.ndarray, items: list[Any]) -> bool:
    """Whether the parts fit together; indices in particular, since compiled code does not check them."""
    n, held = len(state.order), int(state.counts[HELD])
    pattern = passes.empty(n, np.zeros(4, np.uint64))
    in_logs = int(state.counts[IS_LOG])
    return (
        all(a.shape == b.shape and a.dtype == b.dtype for a, b in zip(state, pattern, strict=True))
        and origins.ndim == 2
        and origins.shape[1] == 4
        and origins.dtype == np.uint64
        and given.shape == (2, n)
        and given.dtype == np.float64
        and 0 <= held == len(items) <= n
        and held <= int(state.counts[SEEN])
        and in_logs in (0, 1)
        and abs(int(state.counts[SHIFT])) < 2**31
        and sorted(state.order.tolist()) == list(range(n))
        and bool(np.all((state.index[:held] >= 0) & (state.index[:held] < state.counts[SEEN])))
        and bool(state.rng.any())
        and not any(np.isnan(a).any() for a in (state.g, *state.rows, state.weights, state.block, given))
        and bool(np.all((state.least >= 0) & (state.least <= 1)))
        and (in_logs == 1 or bool(np.all(state.g >= 0) and np.all(state.weights[:held] > 0)))
        and (held == 0 or bool(state.g[held] > (-np.inf if in_logs else 0)))
        and _falling(state.g)
        and _falling(state.rows[:held])
        and len(state.g) == n + ratios.margin(n) + 1
    )


def read(path: Any) -> tuple[State, Origins, np.ndarray, list[Any]]:
    """Read and check a file; any fault in it is a ``FileError`` that says which."""
    path = Path(path)
    try:
        with open(path, "rb") as file:
            content = _members(file)
        fields = {k[6:-4]: _parse_npy(content.pop(k)) for k in list(content) if k.startswith("state.")}
        arrays = {int(k[6:-4]): _parse_npy(v) for k, v in content.items() if k.startswith("array.")}
        items = [_decode(item, arrays) for item in json.loads(content["items.json"])]
        n, held = len(fields["order"]), len(items)
        refuse_without_memory("loading it", n)
        rows, given = np.zeros((n, n + 1)), np.zeros((2, n))
        given[:, :held] = fields.pop("given")
        _unpack(fields.pop("rows"), fields["order"], held, int(fields["counts"][IS_LOG]), rows)
        origins = fields.pop("origins")
        state = State(rows=rows, **fields)
        if not _fits(state, origins, given, items):
            raise ValueError("its parts do not fit together")
    except (OSError, MemoryError):
        raise
    except Exception as fault:  # whatever a damaged file provokes is the file's fault
        reason = str(fault) or type(fault).__name__
        raise FileError(f"{path} is not an intact reservoir file: {reason}") from fault
    return state, frozenset(tuple(int(w) for w in row) for row in origins), given, items
