"""CSV and TSV: values as they are written, and the type that a column's values allow without losing any of it."""

import csv as standard
import functools
import os
import re
from collections.abc import Collection, Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from recollect.errors import RecollectError
from recollect.reservoir.columns import compute, pyarrow, require

TEXT_BLOCK = 1 << 22  # bytes of text read together
HEADER = 1 << 16  # bytes in which the names of columns are looked for; more where they are longer
BOM = b"\xef\xbb\xbf"
DELIMITERS = {"csv": ",", "tsv": "\t"}


class Continued:
    """A stream whose beginning was read already."""

    closed = False

    def __init__(self, head: bytes, rest: Any):
        self.head, self.rest = head, rest

    def read(self, size: int) -> bytes:
        """The beginning first, then the rest."""
        found, self.head = self.head[:size], self.head[size:]
        return found or self.rest.read(size)


# -- reading


def header(stream: Any, delimiter: str, path: str) -> tuple[list[str], bytes]:
    """The names of columns, and what was read of the stream to find them."""
    head, ended = b"", False
    while True:
        block = stream.read(HEADER)
        head, ended = head + block, not block
        lines = iter(head.removeprefix(BOM).splitlines(keepends=True))
        texts = (line.decode() for line in lines)
        try:
            names = next((row for row in standard.reader(texts, delimiter=delimiter) if row), [])
        except UnicodeDecodeError as error:
            if ended or next(lines, None) is not None:  # else a letter may be cut off at the end of what was read
                raise RecollectError(
                    f"{path}: the names of its columns are not UTF-8, which is expected ({error.reason}); "
                    "iconv -f LATIN1 -t UTF-8 writes such a file anew"
                ) from error
        except standard.Error as error:
            raise RecollectError(f"{path}: no names of columns in its first line: {error}") from error
        else:
            if ended or next(lines, None) is not None:
                return names, head


def names_of(path: str, delimiter: str) -> list[str]:
    """The names of a file's columns."""
    with pyarrow().input_stream(path) as stream:
        return header(stream, delimiter, path)[0]


def reader(path: Any, delimiter: str, types: dict[str, Any], columns: Sequence[str] | None) -> Any:
    """Batches of these columns, or all, with these types; ``path`` may be a stream."""
    from pyarrow import csv

    return csv.open_csv(
        path,
        read_options=csv.ReadOptions(use_threads=False, block_size=TEXT_BLOCK),
        parse_options=csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        convert_options=csv.ConvertOptions(column_types=types, include_columns=columns),
    )


def written(path: str, delimiter: str, columns: Sequence[str] | None, source: Any = None) -> Iterator[Any]:
    """The rows, every value as it is written; where there is none, one batch that has the columns."""
    pa = pyarrow()
    if source is None:
        names = names_of(path, delimiter)
    else:
        names, head = header(source, delimiter, path)
        source = Continued(head, source)
    require(names, names if columns is None else columns, path)
    types = {name: pa.binary() for name in names}
    with reader(source or path, delimiter, types, None if columns is None else list(columns)) as found:
        batch = None
        for batch in found:
            yield batch
        if batch is None:
            yield pa.RecordBatch.from_pylist([], found.schema)


def types_of(path: str, delimiter: str, columns: Sequence[str] | None, numeric: Collection[str] = ()) -> dict[str, Any]:
    """The types of a file's columns by its first rows; of ``numeric`` ones numbers wherever they are any."""
    state = os.stat(path)
    chosen = None if columns is None else tuple(columns)
    return _types_of(path, delimiter, chosen, tuple(sorted(numeric)), TEXT_BLOCK, state.st_size, state.st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _types_of(path: str, delimiter: str, columns: Any, numeric: tuple[str, ...], *_: int) -> dict[str, Any]:
    return kinds(next(written(path, delimiter, columns)), numeric)


def kinds(batch: Any, numeric: Collection[str] = ()) -> dict[str, Any]:
    """The types of the columns of a batch as it is written."""
    return {name: kind_of(batch.column(name), name in numeric) for name in batch.schema.names}


# -- types

_WHOLE = r"(0|[1-9][0-9]*)"
_POWER = r"([eE][-+]?[0-9]+)"
_KINDS = (  # what all values of a column look like, and what they may be then, the first that loses nothing
    (r"0|-?[1-9][0-9]*", ("int64", "uint64")),
    (
        rf"-?{_WHOLE}|[-+]?{_WHOLE}\.[0-9]*{_POWER}?|[-+]?\.[0-9]+{_POWER}?|[-+]?{_WHOLE}{_POWER}|[-+]?(?i:inf(inity)?)",
        ("float64",),
    ),
    (r"true|True|TRUE|false|False|FALSE", ("bool_",)),
    (r"[0-9]{4}-[0-9]{2}-[0-9]{2}", ("date32",)),
    (r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2})?", ("s",)),
    (r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{1,9}", ("ns",)),
)
_FEW = 64  # values that most patterns can be ruled out by


def kind_of(column: Any, numeric: bool = False) -> Any:
    """The type of a column of written values: one that keeps all that is written of each of them, else text.

    Whole numbers are whole numbers or text, and never float64; what begins with 0 or + is text, such as a code is. With
    ``numeric`` such columns are float64 nevertheless, where nothing but numbers is in them.
    """
    pa, pc = pyarrow(), compute()

    try:
        texts = pc.cast(column, pa.string())
    except pa.ArrowInvalid:
        return pa.binary()
    if not len(texts) or not pc.any(pc.not_equal(texts, "")).as_py():
        return pa.null()
    values = texts.filter(pc.invert(_is_missing(texts)))
    values = pc.utf8_trim_whitespace(values)
    for pattern, names in _KINDS if len(values) else ():
        if not (_all_are(values.slice(0, _FEW), pattern) and _all_are(values, pattern)):
            continue
        fitting = next((kind for kind in map(_named, names) if _keeps(values, kind)), None)
        if fitting is not None:
            return fitting
        break
    if numeric and len(values) and _cast(values, pa.float64()) is not None:
        return pa.float64()
    return pa.string()


def _named(name: str) -> Any:
    pa = pyarrow()
    return pa.timestamp(name) if name in ("s", "ns") else getattr(pa, name)()


def _all_are(values: Any, pattern: str) -> bool:
    pc = compute()

    return pc.all(pc.match_substring_regex(values, f"^({pattern})$")).as_py()


def _is_missing(texts: Any) -> Any:
    from pyarrow import csv

    return compute().is_in(texts, pyarrow().array(csv.ConvertOptions().null_values))


def _cast(values: Any, kind: Any) -> Any:
    pc = compute()

    try:
        return pc.cast(values, kind)
    except pyarrow().ArrowInvalid:
        return None


def _keeps(values: Any, kind: Any) -> bool:
    """Whether nothing that is written is lost by a type."""
    pa, pc = pyarrow(), compute()

    found = _cast(values, kind)
    if found is None or kind != pa.float64():
        return found is not None
    surely = pc.or_(
        pc.match_substring_regex(values, r"^[-+]?[0-9.]{1,15}$"), pc.equal(pc.cast(found, pa.string()), values)
    )
    return all(_is_kept(text) for text in values.filter(pc.invert(surely)).to_pylist())


def _is_kept(text: str) -> bool:
    """Whether a float64, printed with as many digits, is the number that is written."""
    number, digits = float(text), re.sub("[eE].*|[^0-9]", "", text).lstrip("0")
    if not np.isfinite(number):
        return "inf" in text.lower()
    return Decimal(text) == Decimal(f"{number:.{max(len(digits), 1) - 1}e}")


def converted(column: Any, kind: Any) -> Any:
    """A column of written values as one of that type; an ``ArrowInvalid`` tells a value that is not of it."""
    pa, pc = pyarrow(), compute()

    if kind == pa.null():
        return pa.nulls(len(column))
    if kind in (pa.binary(), pa.string()):
        return pc.cast(column, kind)
    texts = pc.cast(column, pa.string())
    values = pc.if_else(_is_missing(texts), pa.scalar(None, pa.string()), pc.utf8_trim_whitespace(texts))
    return pc.cast(values, kind)


def typed(parts: Sequence[tuple[Any, Any]], heads: Sequence[tuple[Any, Any]], columns: Any) -> list[Any]:
    """Tables of written values with types that hold all of these; ``heads``: other rows that have a say in it."""
    pa = pyarrow()
    found, own = {}, [table for _, table in parts]
    for name in columns or own[0].schema.names:
        chunks = [chunk for table in (*(head for _, head in heads), *own) for chunk in table[name].chunks]
        found[name] = kind_of(pa.chunked_array(chunks, pa.binary()))
    return [pa.table({name: converted(table[name], kind) for name, kind in found.items()}) for table in own]
