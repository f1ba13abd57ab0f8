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
    from recollect.reservoir import estimates, tables

    for name in (args.total, args.by):
        if name is not None and name not in sampled.table.schema.names:
            raise RecollectError(f"no column {name!r}; there are {', '.join(sampled.table.schema.names)}")
    y = tables.weights_of(sampled.table, tables.Select(args.total))
    if not np.isfinite(y).all():
        at = int(np.argmin(np.isfinite(y)))
        raise RecollectError(f"--total {args.total}: row {at} of the sample has {y[at]}, no number to add up")
    p, pairs = sampled.probabilities, sampled.pairs()
    groups = [("all", np.ones(len(y), bool))]
    if args.by is not None:
        labels = [("(missing)" if x is None else str(x), x is None) for x in sampled.table[args.by].to_pylist()]
        groups = [(one[0], np.array([own == one for own in labels])) for one in sorted(set(labels))] + groups
    rows, level = [], args.level
    for label, own in groups:
        estimate = estimates.total(np.where(own, y, 0.0), p, pairs)
        interval = "{:,.6g} to {:,.6g}".format(*estimate.interval(level))
        rows.append([label, str(int(own.sum())), f"{estimate.total:,.6g}", f"{estimate.standard_error:,.3g}", interval])
    print_table(
        [args.by or "rows", "in the sample", f"total {args.total}", "standard error", f"{level:.0%} interval"], rows
    )


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
    from pyarrow import csv

    buffer = io.BytesIO()
    csv.write_csv(table, buffer, csv.WriteOptions(delimiter=delimiter))
    file.write(buffer.getvalue())
    file.flush()
