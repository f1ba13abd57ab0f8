"""What ``recollect sample`` shows and writes."""

import argparse
import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from recollect.cli.reports import print_table
from recollect.errors import RecollectError


def show(args: argparse.Namespace, sampled: Any) -> None:
    """Say what was sampled, and write it or print it."""
    table = sampled.table
    left_out = f", {sampled.bad:,} bad rows passed over" if sampled.bad else ""
    print(
        f"  {table.num_rows:,} of {sampled.population:,} rows of positive weight, {sampled.rows:,} in all{left_out}",
        file=sys.stderr,
    )
    if args.total is not None:
        _print_totals(args, sampled)
    if args.out is not None:
        _write(table, args.out)
        print(f"written: {args.out}", file=sys.stderr)
    elif args.total is None:
        _write_csv(table, sys.stdout.buffer)


def _print_totals(args: argparse.Namespace, sampled: Any) -> None:
    from recollect.reservoir import columns, estimates

    for name in (args.total, args.by):
        if name is not None and name not in sampled.table.schema.names:
            raise RecollectError(f"no column {name!r}; there are {', '.join(sampled.table.schema.names)}")
    y = columns.floats(_numbers(sampled.table[args.total], args.total), args.total)
    if not np.isfinite(y).all():
        at = int(np.argmin(np.isfinite(y)))
        raise RecollectError(f"--total {args.total}: row {at} of the sample has {y[at]}, no number to add up")
    p, pairs = sampled.probabilities, sampled.pairs()
    groups = []
    if args.by is not None:
        labels = [_label(x) for x in sampled.table[args.by].to_pylist()]
        groups = [(one[0], np.array([own == one for own in labels])) for one in sorted(set(labels))]
    every = "all" if all(label != "all" for label, _ in groups) else "(all)"
    groups.append((every, np.ones(len(y), bool)))
    rows, level = [], 0.95 if args.level is None else args.level
    for label, own in groups:
        estimate = estimates.total(np.where(own, y, 0.0), p, pairs)
        interval = "{:,.6g} to {:,.6g}".format(*estimate.interval(level))
        rows.append([label, str(int(own.sum())), f"{estimate.total:,.6g}", f"{estimate.standard_error:,.3g}", interval])
    print_table(
        [args.by or "rows", "in the sample", f"total {args.total}", "standard error", f"{level:.0%} interval"], rows
    )


def _label(value: Any) -> tuple[str, bool]:
    """How a group is called, and whether by a word of ours."""
    if value is None or value in ("", b""):
        return ("(missing)" if value is None else "(empty)"), True
    return (value.decode(errors="replace") if isinstance(value, bytes) else str(value)), False


def _numbers(column: Any, name: str) -> Any:
    """A column to add up; one that is still as it was written becomes numbers."""
    from recollect.reservoir import text
    from recollect.reservoir.columns import pyarrow

    pa = pyarrow()
    if column.type not in (pa.binary(), pa.string()):
        return column
    try:
        return text.converted(column, pa.float64())
    except pa.ArrowInvalid as error:
        raise RecollectError(f"--total {name}: a row of the sample has no number there: {error}") from error


def _write(table: Any, out: Path) -> None:
    """Write the sample whole or not at all."""
    from recollect.reservoir.tables import format_of
    from recollect.store import files
    from recollect.store.provenance import plain

    file, kind = io.BytesIO(), format_of(str(out))
    if kind == "parquet":
        import pyarrow.parquet

        pyarrow.parquet.write_table(table, file)
    elif kind == "arrow":
        import pyarrow

        with pyarrow.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    elif kind == "jsonl":
        for row in table.to_pylist():
            file.write(json.dumps(plain(row), default=str, allow_nan=False).encode() + b"\n")
    else:
        _write_csv(table, file, "\t" if kind == "tsv" else ",")
    files.replace(out, file.getvalue())


def _write_csv(table: Any, file: Any, delimiter: str = ",") -> None:
    """Values in quotation marks where they need them; a text of no letters has them, a missing value is nothing."""
    from recollect.reservoir.columns import compute, pyarrow

    pa, pc = pyarrow(), compute()

    if table.num_rows:
        values = [_quoted(column, delimiter) for column in table.columns]
        lines = pc.binary_join_element_wise(*values, delimiter.encode())
    else:
        lines = pa.chunked_array([pa.array([], pa.binary())])
    names = _quoted(pa.chunked_array([pa.array(table.schema.names, pa.string())]), delimiter).to_pylist()
    file.write(b"".join(line + b"\n" for line in (delimiter.encode().join(names), *lines.to_pylist())))
    file.flush()


def _quoted(column: Any, delimiter: str) -> Any:
    """A column as the bytes that stand for it."""
    from recollect.reservoir.columns import compute, pyarrow

    pa, pc = pyarrow(), compute()

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    written = pa.types.is_binary(column.type)  # of CSV or TSV: what is empty there stays empty
    column = column if written else pc.cast(column, pa.string())
    marks = [pc.match_substring(column, mark) for mark in (delimiter, '"', "\n", "\r")]
    needs = marks[0]
    for mark in marks[1:] if written else [*marks[1:], pc.equal(column, "")]:
        needs = pc.or_(needs, mark)
    texts, quote = pc.cast(column, pa.binary()), pa.scalar(b'"')
    inside = pc.replace_substring(texts, pattern='"', replacement='""')
    return pc.fill_null(pc.if_else(needs, pc.binary_join_element_wise(quote, inside, quote, b""), texts), b"")
