"""Rows of text formats as they are written, for a sample of them; and standard input, seen once."""

from collections.abc import Iterator, Sequence
from typing import Any

from recollect.reservoir import lines, tables, text
from recollect.reservoir.columns import pyarrow
from recollect.reservoir.tables import Piece, Select

FORMATS = {**dict.fromkeys(text.DELIMITERS, text.typed), "jsonl": lines.typed}  # what gives rows of each their types


def rows(piece: Piece, columns: Sequence[str] | None) -> Iterator[Any]:
    """The rows of a file in batches: of CSV and TSV the columns as they are written, of JSON lines whole lines."""
    with tables.reading(piece.path, columns):
        if piece.format == "jsonl":
            with pyarrow().input_stream(piece.path) as stream:
                yield from (batch for _, batch in lines.blocks(stream, piece.path))
        else:
            yield from text.written(piece.path, text.DELIMITERS[piece.format], columns)


def joined(
    parts: Sequence[tuple[Piece, Any]], pieces: Sequence[Piece], columns: Sequence[str] | None, as_written: bool
) -> Any:
    """One table of drawn rows, of pieces of any formats in order.

    Args:
        parts: pieces with the tables of rows that were drawn from them.
        pieces: all that there are; of text formats, the first rows of the first have a say in the types of columns.
        columns: of the table, or all.
        as_written: leave columns as they are written if all pieces are CSV or TSV.
    """
    heads = []
    if not (as_written and all(piece.format in text.DELIMITERS for piece in pieces)):
        for kind in {piece.format for piece, _ in parts} & set(FORMATS):
            first = next(piece for piece in pieces if piece.format == kind)
            heads += [(first, pyarrow().Table.from_batches([batch])) for batch in _first(rows(first, columns))]
    return joined_with(parts, heads, columns, as_written)


def _first(batches: Iterator[Any]) -> list[Any]:
    return [batch for batch in [next(batches, None)] if batch is not None]


def joined_with(
    parts: Sequence[tuple[Piece, Any]],
    heads: Sequence[tuple[Piece, Any]],
    columns: Sequence[str] | None,
    as_written: bool,
) -> Any:
    """The same with the first rows given, of each format once."""
    found = [table for _, table in parts]
    kept = as_written and all(piece.format in text.DELIMITERS for piece, _ in (*parts, *heads))
    for typed in () if kept else (text.typed, lines.typed):
        at = [k for k, (piece, _) in enumerate(parts) if FORMATS.get(piece.format) is typed]
        own = [head for head in heads if FORMATS.get(head[0].format) is typed]
        for k, table in zip(at, typed([parts[k] for k in at], own, columns) if at else [], strict=True):
            found[k] = table
    return pyarrow().concat_tables(found, promote_options="permissive")


class Incoming:
    """Standard input: batches of its rows as they are written, beside what the sample looks at of them."""

    def __init__(self, piece: Piece, source: Any, select: Select, columns: Sequence[str] | None, numeric: set[str]):
        """``columns``: of the sample; ``numeric``: those that are added up."""
        self._piece, self._select, self._columns = piece, select, columns
        self._wanted = None if columns is None else list(dict.fromkeys([*columns, *select.columns]))
        self._numeric = numeric | select.numeric
        self._batches = self._opened(source)
        self.schema = pyarrow().schema([])  # of its first rows
        self.head: list[tuple[Piece, Any]] = []

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        with tables.reading(self._piece.path, self._wanted):
            for looked_at, rows in self._batches:
                if not self.head:
                    self.head = [(self._piece, pyarrow().Table.from_batches([rows]))]
                yield looked_at, rows

    def _opened(self, source: Any) -> Iterator[tuple[Any, Any]]:
        if self._piece.format == "jsonl":
            return self._of_lines(source)
        return self._of_text(source) if self._piece.format in text.DELIMITERS else self._of_arrow(source)

    def _of_text(self, source: Any) -> Iterator[tuple[Any, Any]]:
        pa, kinds = pyarrow(), None
        delimiter, number = text.DELIMITERS[self._piece.format], self._select.weight
        for batch in text.written(self._piece.path, delimiter, self._wanted, source):
            if kinds is None:
                kinds = text.kinds(batch, self._numeric)
                self.schema = pa.schema(list(kinds.items()))
                tables.require(self.schema.names, self._select.columns, self._piece.path)
                kinds |= {} if number is None else {number: pa.float64()}
            own = self._select.columns
            columns = [text.converted(batch.column(name), kinds[name]) for name in own]
            looked_at = pa.RecordBatch.from_arrays(columns, names=own) if own else batch
            yield looked_at, batch if self._columns is None else batch.select(list(self._columns))

    def _of_lines(self, source: Any) -> Iterator[tuple[Any, Any]]:
        schema = None
        for block, rows in lines.blocks(source, self._piece.path):
            if schema is None:
                self.schema = lines.schema_of(block, self._wanted, None, self._piece.path)
                schema = lines.schema_of(block, self._select.columns, self._select.weight, self._piece.path)
            yield lines.looked_at(block, schema), rows

    def _of_arrow(self, source: Any) -> Iterator[tuple[Any, Any]]:
        for batch in tables.arrow_batches(self._piece.path, self._wanted, source):
            self.schema = batch.schema
            yield batch, batch if self._columns is None else batch.select(list(self._columns))
