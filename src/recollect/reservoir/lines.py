"""JSON lines: columns read by pyarrow, and whole lines, whose values are those that are written."""

import bisect
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from recollect.errors import RecollectError
from recollect.reservoir import text
from recollect.reservoir.columns import pyarrow, require

_HEAD = 10_000  # of the first lines, those that have a say in the types of a sample


# -- some columns of all lines


def _opened(stream: Any, schema: Any, others: str = "infer") -> Any:
    from pyarrow import json as lines

    options = lines.ReadOptions(use_threads=False, block_size=text.TEXT_BLOCK)
    parsing = lines.ParseOptions(explicit_schema=schema, unexpected_field_behavior=others)
    return lines.open_json(stream, read_options=options, parse_options=parsing)


def reader(path: str, columns: Sequence[str] | None, number: str | None) -> Any:
    """Of given columns the first rows tell the types; others are passed over, and may hold whatever they like."""
    pa = pyarrow()
    if columns is None:
        return _opened(path, pa.schema([]))
    with pa.input_stream(path) as stream:
        head = stream.read(text.TEXT_BLOCK)
    first = head if len(head) < text.TEXT_BLOCK else head[: head.rfind(b"\n") + 1] or head
    return _opened(path, schema_of(first, columns, number, path), "ignore")


def schema_of(first: bytes, columns: Sequence[str] | None, number: str | None, path: str) -> Any:
    """The types of columns, or of all, by the first lines."""
    pa = pyarrow()
    known = pa.schema([] if number is None else [(number, pa.float64())])
    try:
        found = _opened(pa.BufferReader(first), known).schema
    except pa.ArrowInvalid as error:  # a column of several types may be one that nobody asked for
        if columns is None:
            raise
        found = _opened(pa.BufferReader(_with_columns(first, columns, path, error)), known).schema
    require(found.names, columns, path)
    return found if columns is None else pa.schema([found.field(name) for name in columns])


def _with_columns(first: bytes, columns: Sequence[str], path: str, error: Exception) -> bytes:
    """JSON lines with nothing but some columns; ``error`` if they are no JSON."""
    try:
        rows = [dict(json.loads(line)) for line in first.splitlines() if line.strip()]
    except (ValueError, TypeError):
        raise error from None
    require(list(dict.fromkeys(name for row in rows for name in row)), columns, path)
    return "\n".join(json.dumps({name: row[name] for name in columns if name in row}) for row in rows).encode()


def looked_at(block: bytes, schema: Any) -> Any:
    """The columns of a schema of some lines, as a batch."""
    pa = pyarrow()
    from pyarrow import json as lines

    options = lines.ReadOptions(use_threads=False, block_size=max(len(block), 1) + 1)
    parsing = lines.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    table = lines.read_json(pa.BufferReader(block), options, parsing).combine_chunks()
    return table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], table.schema)


# -- whole lines


def blocks(stream: Any, path: str) -> Iterator[tuple[bytes, Any]]:
    """Blocks of lines, and each as a batch: every line that is not empty, and its place among these."""
    pa = pyarrow()
    rest, row, block = b"", 0, b"-"
    while block:
        block = stream.read(text.TEXT_BLOCK)
        content, newline, rest = (rest + block).rpartition(b"\n") if block else (rest, b"", b"")
        content = content.removeprefix(text.BOM) if not row else content
        if content.strip():
            found = _split(content + newline, path, row)
            yield content + newline, pa.record_batch([found, np.arange(row, row + len(found))], names=["line", "row"])
            row += len(found)


def _split(content: bytes, path: str, row: int) -> Any:
    """The lines that are not empty, none of which may hold more or less than one object: pyarrow counts objects."""
    pa = pyarrow()
    data = np.frombuffer(content, np.uint8)
    ends = np.flatnonzero(data == ord("\n")) + 1
    ends = ends if content.endswith(b"\n") else np.append(ends, len(content))
    starts = np.concatenate([[0], ends[:-1]])
    last = np.maximum(ends - 2, 0)
    last = np.maximum(last - (data[last] == ord("\r")), 0)  # the place before the end of each line
    odd = (data[starts] != ord("{")) | (data[last] != ord("}"))
    kept = np.ones(len(ends), bool)
    wrong = []
    for k in np.flatnonzero(odd).tolist():
        line = content[starts[k] : ends[k]].strip()
        kept[k] = bool(line)
        wrong += [k] if line and not (line.startswith(b"{") and line.endswith(b"}")) else []
    places = [found.start() for found in re.finditer(rb"\}[ \t\r]*\{", content)]  # two objects, or within a text
    for k in sorted(set(np.searchsorted(ends, places, "right").tolist())):
        wrong += [] if _is_one(content[starts[k] : ends[k]]) else [k]
    if wrong:
        at = row + int(kept[: min(wrong)].sum())
        raise RecollectError(
            f"{path}, row {at} (counted from 0): a line of JSON lines is one object, and this one is not"
        )
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    found = pa.Array.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(content)])
    return found if kept.all() else found.filter(pa.array(kept))


def _is_one(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def typed(parts: Sequence[tuple[Any, Any]], heads: Sequence[tuple[Any, Any]], columns: Any) -> list[Any]:
    """The columns of lines, the values as they are written; ``heads``: other lines that have a say in their types."""
    pa = pyarrow()
    everything = [(piece.path, table) for piece, table in (*((p, t.slice(0, _HEAD)) for p, t in heads), *parts)]
    rows = [_parsed(table, path) for path, table in everything]
    names = columns or list(dict.fromkeys(name for own in rows for row in own for name in row))
    places = [(path, at) for path, table in everything for at in table["row"].to_pylist()]
    found: list[dict[str, Any]] = [{} for _ in parts]
    for name in names:
        values = [row.get(name) for own in rows for row in own]
        array, end = _array(values, name, places), sum(map(len, rows[: len(heads)]))
        for table, own in zip(found, rows[len(heads) :], strict=True):
            table[name] = array.slice(end, len(own))
            end += len(own)
    return [pa.table(table) for table in found]


def _parsed(table: Any, path: str) -> list[dict[str, Any]]:
    found = []
    for line, at in zip(table["line"].to_pylist(), table["row"].to_pylist(), strict=True):
        try:
            found.append(json.loads(line))
        except ValueError as error:
            raise RecollectError(
                f"{path}, row {at} (counted from 0): no JSON in UTF-8, which is expected: {error}"
            ) from error
    return found


def _array(values: list[Any], name: str, places: list[tuple[str, int]]) -> Any:
    """Values of Python as a column that holds them exactly, or an error that names one that makes it impossible."""
    found = _held(values)
    if found is not None:
        return found
    at = bisect.bisect_left(range(len(values)), True, key=lambda k: _held(values[: k + 1]) is None)
    path, row = places[at]
    raise RecollectError(
        f"{path}, row {row} (counted from 0): column {name!r} cannot hold {json.dumps(values[at])[:80]} beside "
        "its other values without changing one; whole numbers are from -2^63 to 2^63 - 1 or from 0 to 2^64 - 1, and up "
        "to 2^53 beside decimals: --columns leaves it out"
    )


def _held(values: list[Any]) -> Any:
    """A column that holds these values exactly, or None."""
    pa = pyarrow()
    whole = all(value is None or type(value) is int for value in values)  # of others pyarrow drops the decimals
    for kind in (None, pa.uint64()) if whole else (None,):
        try:
            return pa.array(values, kind)
        except (pa.ArrowException, OverflowError, TypeError):
            continue
    return None
