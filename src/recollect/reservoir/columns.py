"""Columns by name and type: which are there, which are numbers, what a sample has besides."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from recollect.errors import RecollectError

PROBABILITY, WEIGHT = "inclusion_probability", "horvitz_thompson_weight"  # columns that a sample has besides


def pyarrow() -> Any:
    """The library, or an error that says how to get it."""
    try:
        import pyarrow as found
    except ImportError as error:
        raise RecollectError("tables need pyarrow: pip install 'recollect[tables]'") from error
    return found


def compute() -> Any:
    """What pyarrow computes on columns."""
    import pyarrow.compute as found

    return found


def require(names: Sequence[str], columns: Sequence[str] | None, path: str) -> None:
    """Refuse columns that are not there, or twice."""
    for column in columns or ():
        if column not in names:
            raise RecollectError(f"{path}: no column {column!r}; there are {', '.join(names) or 'none'}")
        if list(names).count(column) > 1:
            raise RecollectError(f"{path} has two columns {column!r}: give them names of their own")


def first_line(error: BaseException) -> str:
    """What an error says, without what follows."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def refuse_unless_numbers(kind: Any, name: str) -> None:
    """Refuse a column of another type, given by pyarrow, than numbers; one of nothing but missing values may pass."""
    types = pyarrow().types
    if not any(test(kind) for test in (types.is_integer, types.is_floating, types.is_decimal, types.is_null)):
        raise RecollectError(f"column {name!r} holds {kind}, not numbers")


def floats(column: Any, name: str) -> np.ndarray:
    """A column of numbers as float64, NaN where one is missing."""
    pa = pyarrow()
    pc = compute()

    kind = column.type
    if kind == pa.float64() and isinstance(column, pa.Array) and len(column) and not column.null_count:
        return np.frombuffer(column.buffers()[1], np.float64, len(column), 8 * column.offset)
    refuse_unless_numbers(kind, name)
    if pa.types.is_null(kind):
        return np.full(len(column), np.nan)
    if kind != pa.float64():
        column = pc.cast(column, pa.float64(), safe=False)
    return np.ascontiguousarray(column.to_numpy(zero_copy_only=False))


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
