"""What ``recollect sample`` refuses before the rows are read."""

import argparse
from typing import Any

from recollect.errors import RecollectError


def check(args: argparse.Namespace) -> None:
    """Refuse words that do not go together before anything is read."""
    for name in ("weight", "inclusion", "pps", "where", "total", "by"):
        if getattr(args, name) == "":
            raise RecollectError(f"--{name} is empty, as a variable is that was not set: say what is meant, or omit it")
    chosen = [name for name in ("weight", "inclusion", "pps") if getattr(args, name) is not None]
    if len(chosen) + args.uniform != 1:
        raise RecollectError("one of --weight COLUMN, --uniform, --inclusion COLUMN and --pps COLUMN is needed")
    if args.on != "local" and (args.inclusion is not None or args.pps is not None):
        raise RecollectError("--inclusion and --pps solve for the weights of all rows together: on this machine alone")
    if args.bad not in (None, "stop") and (args.inclusion is not None or args.pps is not None):
        raise RecollectError("--bad: with --inclusion and --pps every row needs a probability")
    if args.bad is not None and args.uniform:
        raise RecollectError("--bad: with --uniform there are no weights that could be bad")
    if (args.n is None) != (args.inclusion is not None):
        raise RecollectError("-n says how many rows; with --inclusion their probabilities do")
    if args.by is not None and args.total is None:
        raise RecollectError("--by: groups of a --total COLUMN")
    if args.level is not None and args.total is None:
        raise RecollectError("--level: of the intervals of a --total COLUMN")
    if args.resume and args.out is None:
        raise RecollectError("--resume: say with --out which sample to continue")
    if args.out is not None:
        from recollect.reservoir.tables import COMPRESSED, FORMATS

        ending = args.out.suffix.lower()
        if ending in COMPRESSED:
            raise RecollectError(f"{args.out}: the sample is written without {args.out.suffix}; Parquet is compressed")
        if ending not in FORMATS:
            raise RecollectError(
                f"{args.out}: the ending tells no format: name it .csv, .tsv, .jsonl, .parquet or .arrow"
            )
        if not args.out.parent.is_dir():
            raise RecollectError(f"{args.out.parent} is no folder to write {args.out.name} to")
    if args.columns is not None:
        if not args.columns or len(set(args.columns)) < len(args.columns):
            raise RecollectError(f"--columns {','.join(args.columns)!r}: each column once, and at least one")
        for name in (args.total, args.by):
            if name is not None and name not in args.columns:
                raise RecollectError(f"--columns leaves out {name}, which --total or --by asks for")


def check_columns(args: argparse.Namespace, parts: list[Any], select: Any) -> None:
    """Refuse columns that cannot be read, added up or written before the rows are read, not after."""
    from recollect.reservoir import columns, tables, written

    chosen = None if args.columns is None else tuple(dict.fromkeys([*select.columns, *args.columns]))
    _check_same(parts, chosen)
    numeric = select.numeric | (set() if args.total is None else {args.total})
    # What is left out may be there twice or, of JSON lines, of several types, so that there is no schema of all of it.
    schemas = ((p, tables.schema_of(p, chosen if p.format in written.FORMATS else None, numeric)) for p in parts)
    piece, schema = next((found for found in schemas if found[1].names), (parts[0], columns.pyarrow().schema([])))
    check_schema(args, schema, piece, select)


def _check_same(parts: list[Any], chosen: tuple[str, ...] | None) -> None:
    """Refuse files that lack columns: rows of theirs would come out as if values were missing."""
    from recollect.reservoir import columns, tables

    first, names = "", None
    for piece in {piece.path: piece for piece in parts}.values():
        own = tables.names_of(piece)
        if own is None:
            continue
        if chosen is not None:
            columns.require(own, chosen, piece.path)
        elif names is None:
            first, names = piece.path, own
        elif set(own) != set(names):
            (short, less), (long, more) = sorted([(first, names), (piece.path, own)], key=lambda one: len(set(one[1])))
            lacking = ", ".join(name for name in more if name not in less)
            raise RecollectError(
                f"{short} lacks columns that {long} has: {lacking}; with --columns those that all files have are taken"
            )


def check_schema(args: argparse.Namespace, schema: Any, piece: Any, select: Any) -> None:
    """The same of the columns of one file, or of standard input."""
    from recollect.reservoir import columns, conditions, tables, text

    shown = schema.names if args.columns is None else args.columns
    for name in (*select.columns, *shown, args.total, args.by):
        if name is not None:
            columns.require(schema.names, [name], piece.path)
    columns.refuse_taken(shown, piece.path)
    for condition in select.where:
        conditions.scalar(schema.field(condition[0]).type, condition)
    if args.total is not None:
        columns.refuse_unless_numbers(schema.field(args.total).type, args.total)
    if args.out is not None or args.total is None:
        kind = "csv" if args.out is None else tables.format_of(str(args.out))
        if kind not in text.DELIMITERS or piece.format not in text.DELIMITERS:  # else it is written as it is
            columns.refuse_unwritable([schema.field(name) for name in shown], kind)
