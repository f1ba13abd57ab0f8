"""Tables as streams: files read in batches through pyarrow, and frames of other libraries taken as they are.

pyarrow comes with ``recollect[tables]`` and is imported where it is used.
"""

import contextlib
import functools
import os
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recollect.errors import RecollectError
from recollect.reservoir import conditions, lines, text
from recollect.reservoir.columns import first_line, floats, pyarrow, require

BATCH = 131_072  # rows read together
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
_TYPED = "; a weight is a number, and a column of --where has the type of its first rows; Parquet says what it is"
COMPRESSED = (".gz", ".bz2", ".zst")  # endings of text formats that are unpacked as they are read


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
    where: tuple[conditions.Condition, ...] = ()

    @property
    def columns(self) -> list[str]:
        """The columns that are read for it."""
        own = [] if self.weight is None else [self.weight]
        return list(dict.fromkeys([*own, *(name for name, _, _ in self.where)]))

    @property
    def numeric(self) -> set[str]:
        """Those that are numbers wherever a text can be read as one."""
        return conditions.numeric(self.where)


EVERYTHING = Select(None)


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
        raise RecollectError(f"{path}: {first_line(error)}") from error
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
        raise RecollectError(f"{path}: {first_line(error)}") from error


def schema_of(piece: Piece, columns: tuple[str, ...] | None = None, numeric: Collection[str] = ()) -> Any:
    """The columns of a file with their types, as far as its first rows tell; ``numeric``: numbers if they can be."""
    pa = pyarrow()
    wanted = None if columns is None else list(columns)
    if piece.format == "parquet":
        found = _footer(piece.path).schema.to_arrow_schema()
    elif piece.format == "arrow":
        with reading(piece.path, wanted), pa.memory_map(piece.path) as stream:
            found = _arrow_reader(stream).schema
    elif piece.format in text.DELIMITERS:
        with reading(piece.path, wanted):
            return pa.schema(list(text.types_of(piece.path, text.DELIMITERS[piece.format], wanted, numeric).items()))
    else:
        return next((batch.schema for batch in batches(piece, wanted)), pa.schema([]))
    require(found.names, wanted, piece.path)
    return found if wanted is None else pa.schema([found.field(name) for name in wanted])


def names_of(piece: Piece) -> list[str] | None:
    """The names of a file's columns; of JSON lines, which may leave out what is missing, none are known."""
    if piece.format == "jsonl":
        return None
    if piece.format in text.DELIMITERS:
        with reading(piece.path, ()):
            return text.names_of(piece.path, text.DELIMITERS[piece.format])
    return schema_of(piece).names


def _has_no_lines(piece: Piece) -> bool:
    """Whether a file of JSON lines is empty: that is no row, and to pyarrow an error."""
    return piece.format == "jsonl" and os.path.exists(piece.path) and not os.path.getsize(piece.path)


@contextlib.contextmanager
def reading(path: str, columns: Sequence[str] | None) -> Iterator[None]:
    """Name the file whatever goes wrong with reading it, and the way around what ``columns`` can leave out."""
    try:
        yield
    except (pyarrow().ArrowException, OSError) as error:
        changed = re.search("CSV conversion error|Column.* changed", str(error))
        way = "" if not changed else _WAY_OUT if columns is None else _TYPED
        raise RecollectError(f"{path}: {first_line(error)}{way}") from error
    except UnicodeDecodeError as error:
        raise RecollectError(f"{path}: not UTF-8, which is expected: {error}") from error
    except KeyError as error:
        raise RecollectError(f"{path}: no column {error.args[0]!r}") from error


def batches(
    piece: Piece, columns: list[str] | None, select: Select = EVERYTHING, rows: int | None = None
) -> Iterator[Any]:
    """The rows of a piece as record batches.

    Args:
        piece: which rows.
        columns: these columns, or all.
        select: its weight is read as numbers also where a text format would let it pass for something else.
        rows: of a batch of Parquet, instead of ``BATCH``.
    """
    with reading(piece.path, columns):
        yield from _batches(piece, columns, select, rows or BATCH)


def _batches(piece: Piece, columns: list[str] | None, select: Select, rows: int) -> Iterator[Any]:
    if piece.format == "parquet":
        with _opened(piece.path, _footer(piece.path)) as file:
            require(file.schema_arrow.names, columns, piece.path)
            start, end = piece.groups or (0, file.metadata.num_row_groups)
            yield from file.iter_batches(rows, row_groups=range(start, end), columns=columns, use_threads=False)
    elif piece.format == "arrow":
        yield from arrow_batches(piece.path, columns)
    elif not _has_no_lines(piece):
        with _text_reader(piece, columns, select) as reader:
            require(reader.schema.names, columns, piece.path)
            batch = None
            for batch in reader:
                yield batch if columns is None else _chosen(batch, columns)
            if batch is None:  # a header alone: its columns are known
                batch = pyarrow().RecordBatch.from_pylist([], reader.schema)
                yield batch if columns is None else _chosen(batch, columns)


def _text_reader(piece: Piece, columns: list[str] | None, select: Select) -> Any:
    pa = pyarrow()
    if piece.format == "jsonl":
        return lines.reader(piece.path, columns, select.weight)
    delimiter = text.DELIMITERS[piece.format]
    if columns is not None and not columns:  # rows are counted: their first column will do, whatever it holds
        columns = text.names_of(piece.path, delimiter)[:1]
        return text.reader(piece.path, delimiter, dict.fromkeys(columns, pa.binary()), columns)
    types = {} if select.weight is None else {select.weight: pa.float64()}
    others = None if columns is None else [name for name in columns if name not in types]
    if others is None or others:
        types = {**text.types_of(piece.path, delimiter, others, select.numeric), **types}
    return text.reader(piece.path, delimiter, types, columns)


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


def arrow_batches(path: str, columns: list[str] | None, source: Any = None) -> Iterator[Any]:
    """The rows of an Arrow file, or of a stream in that format."""
    import pyarrow as pa

    with pa.memory_map(path) if source is None else pa.PythonFile(source, mode="r") as stream:
        reader = _arrow_reader(stream) if source is None else pa.ipc.open_stream(stream)
        require(reader.schema.names, columns, path)
        whole = hasattr(reader, "num_record_batches")
        for batch in (reader.get_batch(k) for k in range(reader.num_record_batches)) if whole else reader:
            yield batch if columns is None else _chosen(batch, columns)


# -- weights


def weights_of(batch: Any, select: Select) -> np.ndarray:
    """The weight of each row as float64: NaN where it is missing, 0 where a row does not meet the conditions."""
    name = select.weight
    weights = np.ones(batch.num_rows) if name is None else floats(batch.column(name), name)
    if select.where:
        weights = np.where(conditions.mask(batch, select.where), weights, 0.0)
    return weights


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
