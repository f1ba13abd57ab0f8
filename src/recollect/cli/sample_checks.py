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
    if args.bad != "stop" and (args.inclusion is not None or args.pps is not None):
        raise RecollectError("--bad: with --inclusion and --pps every row needs a probability")
    if (args.n is None) != (args.inclusion is not None):
        raise RecollectError("-n says how many rows; with --inclusion their probabilities do")
    if args.by is not None and args.total is None:
        raise RecollectError("--by: groups of a --total COLUMN")
    if args.resume and args.out is None:
        raise RecollectError("--resume: say with --out which sample to continue")
    if args.out is not None:
        from recollect.reservoir.tables import COMPRESSED, format_of

        if format_of(str(args.out)) and args.out.suffix.lower() in COMPRESSED:
            raise RecollectError(f"{args.out}: the sample is written without {args.out.suffix}; Parquet is compressed")
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
    from recollect.reservoir import tables

    chosen = None if args.columns is None else tuple(dict.fromkeys([*select.columns, *args.columns]))
    # What is left out of JSON lines may be of several types, and the lines then have no schema as a whole.
    schemas = ((p.path, tables.schema_of(p, chosen if p.format == "jsonl" else None)) for p in parts)
    path, schema = next((found for found in schemas if found[1].names), (parts[0].path, tables.pyarrow().schema([])))
    check_schema(args, schema, path, select)


def check_schema(args: argparse.Namespace, schema: Any, where: str, select: Any) -> None:
    """The same of the columns of one file, or of standard input."""
    from recollect.reservoir import tables

    shown = schema.names if args.columns is None else args.columns
    for name in (*select.columns, *shown, args.total, args.by):
        if name is not None:
            tables.require(schema.names, [name], where)
    tables.refuse_taken(shown, where)
    if args.total is not None:
        tables.refuse_unless_numbers(schema.field(args.total).type, args.total)
    if args.out is not None or args.total is None:
        kind = "csv" if args.out is None else tables.format_of(str(args.out))
        tables.refuse_unwritable([schema.field(name) for name in shown], kind)
