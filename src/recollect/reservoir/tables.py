"""Tables as streams: files read in batches through pyarrow, and frames of other libraries taken as they are.

pyarrow comes with ``recollect[tables]`` and is imported where it is used.
"""

import contextlib
import functools
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recollect.errors import RecollectError

BATCH = 131_072  # rows read together
TEXT_BLOCK = 1 << 22  # bytes of text read together
READ = 1 << 18  # bytes of Parquet read together: pages of a map, which threads share, take longer to come by
PIECE = 4_194_304  # rows of a piece, where the format can be cut: a Parquet file is shared out among workers by these

FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
_WAY_OUT = "; a column (they count from #0) has the type of its first rows, and --columns leaves out one that changes"
PROBABILITY, WEIGHT = "inclusion_probability", "horvitz_thompson_weight"  # columns that a sample has besides
COMPRESSED = (".gz", ".bz2", ".zst")  # endings of text formats that are unpacked as they are read


def pyarrow() -> Any:
    """The library, or an error that says how to get it."""
    try:
        import pyarrow as found
    except ImportError as error:
        raise RecollectError("tables need pyarrow: pip install 'recollect[tables]'") from error
    return found


# -- files


class Piece(NamedTuple):
    """Consecutive rows of a file: of a Parquet or Arrow file some of its groups of rows, of other files all."""

    path: str
    format: str
    groups: tuple[int, int] | None = None  # from, to
    first_row: int = 0  # of the piece, counted in its file
    rows: int | None = None  # of the piece, where the format tells

    def __str__(self) -> str:
        return self.path


class Select(NamedTuple):
    """What of each row matters to the sample: the column of its weight, and the conditions it must meet."""

    weight: str | None  # None: all rows weigh the same
    where: tuple[tuple[str, str, str], ...] = ()

    @property
    def columns(self) -> list[str]:
        """The columns that are read for it."""
        return list(
            dict.fromkeys([*([] if self.weight is None else [self.weight]), *(name for name, _, _ in self.where)])
        )


def format_of(path: str, given: str | None = None) -> str:
    """The format of a file, by its name unless given."""
    known = sorted(set(FORMATS.values()))
    if given is not None:
        if given not in known:
            raise RecollectError(f"no format {given!r}; there are {', '.join(known)}")
        return given
    name = Path(path.lower())
    packed = name.suffix in COMPRESSED
    found = FORMATS.get(Path(name.stem).suffix if packed else name.suffix)
    if packed and found in ("parquet", "arrow"):
        raise RecollectError(f"{path}: {found} files have compression of their own; unpack it first")
    if found is None:
        raise RecollectError(f"{path}: the ending tells no format; --format is one of {', '.join(known)}")
    return found


def pieces_of(path: str, given: str | None = None, rows: int = PIECE) -> list[Piece]:
    """A file as pieces of about so many rows, where its format can be cut; the same ones every time."""
    if not os.path.isfile(path):
        why = (
            "no ordinary file, and rows are read twice; - is standard input" if os.path.exists(path) else "no such file"
        )
        raise RecollectError(f"{path}: {'a folder, name its files' if os.path.isdir(path) else why}")
    kind = format_of(path, given)
    if kind != "parquet":
        return [Piece(path, kind)]
    sizes = group_sizes(Piece(path, kind))
    found, start, first, row = [], 0, 0, 0
    for g, size in enumerate(sizes, 1):
        row += size
        if row - first >= rows or g == len(sizes):
            found.append(Piece(path, kind, (start, g), first, row - first))
            start, first = g, row
    return found or [Piece(path, kind, (0, 0), 0, 0)]


def group_sizes(piece: Piece) -> list[int]:
    """How many rows each group of a Parquet file has."""
    footer = _footer(piece.path)
    return [footer.row_group(g).num_rows for g in range(footer.num_row_groups)]


def holds_only(piece: Piece, weight: str | None, columns: tuple[str, ...] | None) -> bool:
    """Whether the rows that are asked for consist of their weight alone, a float64, so that none need be read."""
    if piece.format != "parquet" or weight is None:
        return False
    schema = _footer(piece.path).schema.to_arrow_schema()
    return list(columns or schema.names) == [weight] and schema.field(weight).type == pyarrow().float64()


def _footer(path: str) -> Any:
    """What the end of a Parquet file tells of it, kept for the stages of all of its pieces."""
    try:
        state = os.stat(path)
    except OSError as error:
        raise RecollectError(f"{path}: {_first_line(error)}") from error
    return _footer_of(path, state.st_size, state.st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _footer_of(path: str, size: int, changed: int) -> Any:
    with _opened(path, None) as file:
        return file.metadata


def _opened(path: str, footer: Any) -> Any:
    pa = pyarrow()
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path, metadata=footer, pre_buffer=False, buffer_size=READ)
    except (pa.ArrowException, OSError) as error:
        raise RecollectError(f"{path}: {_first_line(error)}") from error


def schema_of(piece: Piece, columns: tuple[str, ...] | None = None) -> Any:
    """The columns of a file with their types, as far as its first rows tell."""
    pa = pyarrow()
    if piece.format == "parquet":
        found = _footer(piece.path).schema.to_arrow_schema()
        require(found.names, list(columns or ()), piece.path)
        return found if columns is None else pa.schema([found.field(name) for name in columns])
    wanted = None if columns is None else list(columns)
    for batch in batches(piece, wanted):
        return batch.schema
    if piece.format == "arrow":
        with pa.memory_map(piece.path) as stream:
            found = _arrow_reader(stream).schema
        return found if wanted is None else pa.schema([found.field(name) for name in wanted])
    return pa.schema([])


def _has_no_lines(piece: Piece) -> bool:
    """Whether a file of JSON lines is empty: that is no row, and to pyarrow an error."""
    return piece.format == "jsonl" and os.path.exists(piece.path) and not os.path.getsize(piece.path)


def batches(
    piece: Piece, columns: list[str] | None, number: str | None = None, source: Any = None, rows: int | None = None
) -> Iterator[Any]:
    """The rows of a piece as record batches.

    Args:
        piece: which rows.
        columns: these columns, or all.
        number: a column that is read as numbers also where a text format would let it pass for something else.
        source: a stream to read instead of the file.
        rows: of a batch of Parquet, instead of ``BATCH``.
    """
    pa = pyarrow()
    try:
        yield from _batches(piece, columns, number, source, rows or BATCH)
    except (pa.ArrowException, OSError) as error:
        way = _WAY_OUT if columns is None and re.search("CSV conversion error|Column.* changed", str(error)) else ""
        raise RecollectError(f"{piece.path}: {_first_line(error)}{way}") from error
    except KeyError as error:
        raise RecollectError(f"{piece.path}: no column {error.args[0]!r}") from error


def _batches(piece: Piece, columns: list[str] | None, number: str | None, source: Any, rows: int) -> Iterator[Any]:
    if piece.format == "parquet":
        with _opened(piece.path, _footer(piece.path)) as file:
            require(file.schema_arrow.names, columns, piece.path)
            start, end = piece.groups or (0, file.metadata.num_row_groups)
            yield from file.iter_batches(rows, row_groups=range(start, end), columns=columns, use_threads=False)
    elif piece.format == "arrow":
        yield from _arrow_batches(piece.path, columns, source)
    elif source is not None or not _has_no_lines(piece):
        with _text_reader(piece, columns, number, source) as reader:
            require(reader.schema.names, columns, piece.path)
            batch = None
            for batch in reader:
                yield batch if columns is None else _chosen(batch, columns)
            if batch is None:  # a header alone: its columns are known
                batch = pyarrow().RecordBatch.from_pylist([], reader.schema)
                yield batch if columns is None else _chosen(batch, columns)


def _text_reader(piece: Piece, columns: list[str] | None, number: str | None, source: Any) -> Any:
    import pyarrow as pa

    if piece.format == "jsonl":
        return _json_reader(piece, columns, number, source)
    from pyarrow import csv

    types = {number: pa.float64()} if number else {}
    if columns is not None and not columns:  # rows are counted: their first column will do, whatever it holds
        with _text_reader(piece, None, None, source) as reader:
            columns = list(reader.schema.names[:1])
        types = {name: pa.binary() for name in columns}
    return csv.open_csv(
        source or piece.path,
        read_options=csv.ReadOptions(use_threads=False, block_size=TEXT_BLOCK),
        parse_options=csv.ParseOptions(delimiter="\t" if piece.format == "tsv" else ",", newlines_in_values=True),
        convert_options=csv.ConvertOptions(column_types=types, include_columns=columns),
    )


def _json_reader(piece: Piece, columns: list[str] | None, number: str | None, source: Any) -> Any:
    """Of given columns the first rows tell the types; others are passed over, and may hold whatever they like."""
    import pyarrow as pa
    from pyarrow import json as lines

    def opened(stream: Any, schema: Any, others: str = "infer") -> Any:
        options = lines.ReadOptions(use_threads=False, block_size=TEXT_BLOCK)
        parsing = lines.ParseOptions(explicit_schema=schema, unexpected_field_behavior=others)
        return lines.open_json(stream, read_options=options, parse_options=parsing)

    schema = pa.schema([(number, pa.float64())] if number else [])
    if columns is None:
        return opened(source or piece.path, schema)
    with contextlib.nullcontext(source) if source else pa.input_stream(piece.path) as stream:
        head = stream.read(TEXT_BLOCK)
    is_all = len(head) < TEXT_BLOCK
    first = head if is_all else head[: head.rfind(b"\n") + 1] or head
    try:
        reader = opened(pa.BufferReader(first), schema)
    except pa.ArrowInvalid as error:  # a column of several types may be one that nobody asked for
        reader = opened(pa.BufferReader(_with_columns(first, columns, piece.path, error)), schema)
    if is_all:
        return reader
    require(reader.schema.names, columns, piece.path)
    schema = pa.schema([reader.schema.field(name) for name in columns])
    return opened(_Continued(head, source) if source else piece.path, schema, "ignore")


def _with_columns(lines: bytes, columns: list[str], path: str, error: Exception) -> bytes:
    """JSON lines with nothing but some columns; ``error`` if they are no JSON."""
    try:
        rows = [dict(json.loads(line)) for line in lines.splitlines() if line.strip()]
    except (ValueError, TypeError):
        raise error from None
    require(list(dict.fromkeys(name for row in rows for name in row)), columns, path)
    return "\n".join(json.dumps({name: row[name] for name in columns if name in row}) for row in rows).encode()


class _Continued:
    """A stream whose beginning was read already."""

    closed = False

    def __init__(self, head: bytes, rest: Any):
        self.head, self.rest = head, rest

    def read(self, size: int) -> bytes:
        found, self.head = self.head[:size], self.head[size:]
        return found or self.rest.read(size)


def _chosen(batch: Any, columns: list[str]) -> Any:
    import pyarrow as pa

    if batch.schema.names == columns:
        return batch
    if not columns:
        return pa.record_batch([pa.nulls(batch.num_rows)], names=[""])
    return pa.RecordBatch.from_arrays([batch[c] for c in columns], names=columns)


def _arrow_reader(stream: Any) -> Any:
    """For either form of the format, by its beginning."""
    import pyarrow as pa

    try:
        return pa.ipc.open_file(stream)
    except pa.ArrowInvalid:  # the streaming form
        stream.seek(0)
        return pa.ipc.open_stream(stream)


def _arrow_batches(path: str, columns: list[str] | None, source: Any) -> Iterator[Any]:
    import pyarrow as pa

    with pa.memory_map(path) if source is None else pa.PythonFile(source, mode="r") as stream:
        reader = _arrow_reader(stream) if source is None else pa.ipc.open_stream(stream)
        require(reader.schema.names, columns, path)
        whole = hasattr(reader, "num_record_batches")
        for batch in (reader.get_batch(k) for k in range(reader.num_record_batches)) if whole else reader:
            yield batch if columns is None else _chosen(batch, columns)


def require(names: Sequence[str], columns: Sequence[str] | None, path: str) -> None:
    """Refuse columns that are not there, or twice."""
    for column in columns or ():
        if column not in names:
            raise RecollectError(f"{path}: no column {column!r}; there are {', '.join(names) or 'none'}")
        if list(names).count(column) > 1:
            raise RecollectError(f"{path} has two columns {column!r}: give them names of their own")


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


# -- weights


def weights_of(batch: Any, select: Select) -> np.ndarray:
    """The weight of each row as float64: NaN where it is missing, 0 where a row does not meet the conditions."""
    name = select.weight
    weights = np.ones(batch.num_rows) if name is None else _floats(batch.column(name), name)
    if select.where:
        weights = np.where(_mask(batch, select.where), weights, 0.0)
    return weights


def refuse_unless_numbers(kind: Any, name: str) -> None:
    """Refuse a column of another type, given by pyarrow, than numbers; one of nothing but missing values may pass."""
    types = pyarrow().types
    if not any(test(kind) for test in (types.is_integer, types.is_floating, types.is_decimal, types.is_null)):
        raise RecollectError(f"column {name!r} holds {kind}, not numbers")


def _floats(column: Any, name: str) -> np.ndarray:
    pa = pyarrow()
    import pyarrow.compute as pc

    kind = column.type
    if kind == pa.float64() and isinstance(column, pa.Array) and len(column) and not column.null_count:
        return np.frombuffer(column.buffers()[1], np.float64, len(column), 8 * column.offset)
    refuse_unless_numbers(kind, name)
    if pa.types.is_null(kind):
        return np.full(len(column), np.nan)
    if kind != pa.float64():
        column = pc.cast(column, pa.float64(), safe=False)
    return np.ascontiguousarray(column.to_numpy(zero_copy_only=False))


_CONDITION = re.compile(
    r"""\s*(?:'([^']*)'|"([^"]*)"|(\S+?))\s*(==|!=|<=|>=|=|<|>)\s*(?:'([^']*)'|"([^"]*)"|(\S+))(?:\s+and\s+|\s*$)"""
)


def conditions(text: str) -> tuple[tuple[str, str, str], ...]:
    """``COLUMN OP VALUE``, several joined by ``and``; what holds blanks stands in quotation marks.

    >>> conditions("price >= 10 and 'sold in' == 'north and east'")
    (('price', '>=', '10'), ('sold in', '==', 'north and east'))
    """
    found, at, text = [], 0, text.strip()
    while at < len(text) or not found:
        match = _CONDITION.match(text, at)
        if match is None:
            raise RecollectError(f"--where {text[at:]!r}: COLUMN OP VALUE is needed, OP one of == != < <= > >=")
        *name, operator, value, double, bare = match.groups()
        column, wanted = (next(x for x in spelt if x is not None) for spelt in (name, (value, double, bare)))
        found.append((column, "==" if operator == "=" else operator, wanted))
        at = match.end()
    return tuple(found)


def _mask(batch: Any, where: tuple[tuple[str, str, str], ...]) -> np.ndarray:
    pa = pyarrow()
    import pyarrow.compute as pc

    names = {"==": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}
    mask = np.ones(batch.num_rows, bool)
    for name, operator, value in where:
        column = batch.column(name)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        try:
            wanted = pa.scalar(value).cast(column.type)
        except pa.ArrowException as error:
            raise RecollectError(f"--where {name} {operator} {value}: the column holds {column.type}") from error
        met = pc.fill_null(pc.call_function(names[operator], [column, wanted]), False)  # a missing value meets nothing
        mask &= met.to_numpy(zero_copy_only=False)
    return mask


# -- the columns of a sample


def with_probabilities(table: Any, p: np.ndarray) -> Any:
    """A table with the two further columns of a sample."""
    refuse_taken(table.schema.names, "a file")
    for name, values in ((PROBABILITY, p), (WEIGHT, 1.0 / p)):
        table = table.append_column(name, pyarrow().array(values))
    return table


def refuse_taken(names: Sequence[str], where: str) -> None:
    """Refuse names of columns that a sample's own would come beside, or that occur twice."""
    for name in names:
        if name in (PROBABILITY, WEIGHT):
            raise RecollectError(f"{where} has a column {name!r} already, as a sample has: --columns leaves it out")
    require(names, names, where)


def refuse_unwritable(schema: Any, kind: str) -> None:
    """Refuse columns that a text format cannot hold."""
    types = pyarrow().types
    for field in schema if kind in ("csv", "tsv", "jsonl") else ():
        binary = (
            types.is_binary(field.type) or types.is_large_binary(field.type) or types.is_fixed_size_binary(field.type)
        )
        if binary or (kind != "jsonl" and types.is_nested(field.type)):
            raise RecollectError(
                f"column {field.name!r} holds {field.type}, which {kind} does not: --columns leaves it out, "
                "and --out FILE.parquet holds it"
            )


# -- frames in memory, for ``Reservoir.extend``


class Rows:
    """The rows of a table, each a dictionary made when it is asked for."""

    def __init__(self, table: Any):
        self.table = table

    def __len__(self) -> int:
        return self.table.num_rows

    def __getitem__(self, at: int) -> dict[str, Any]:
        return self.table.slice(int(at), 1).to_pylist()[0]


class Slices(Rows):
    """The rows of a table, each a table of one row that keeps the types of its columns and nothing else alive."""

    def __getitem__(self, at: int) -> Any:
        return self.table.take([int(at)])


def is_frame(x: Any) -> bool:
    """Whether ``x`` is a table: of pyarrow, pandas, Polars, or another library that speaks Arrow's C interface."""
    return hasattr(x, "__arrow_c_stream__") or _is_pandas(x) or _is_lazy(x) or hasattr(x, "to_batches")


def _is_pandas(x: Any) -> bool:
    pandas = sys.modules.get("pandas")  # who has not imported it has no frame of it
    return pandas is not None and isinstance(x, pandas.DataFrame)


def _is_lazy(x: Any) -> bool:
    polars = sys.modules.get("polars")
    return polars is not None and isinstance(x, polars.LazyFrame)


def frame_batches(frame: Any) -> Iterator[Any]:
    """The record batches of a frame; of a lazy one as they are computed."""
    pa = pyarrow()
    if _is_lazy(frame):
        for part in frame.collect_batches(maintain_order=True):
            yield from frame_batches(part)
    elif isinstance(frame, pa.RecordBatch):
        yield frame
    elif isinstance(frame, pa.Table):
        yield from frame.to_batches()
    elif _is_pandas(frame):
        yield from pa.Table.from_pandas(frame, preserve_index=False).to_batches()
    elif hasattr(frame, "__arrow_c_stream__"):
        yield from pa.RecordBatchReader.from_stream(frame)
    else:
        yield from frame.to_batches()
