"""What ``--where`` says: conditions on columns, and which rows meet them."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from recollect.errors import RecollectError
from recollect.reservoir.columns import compute, pyarrow

Condition = tuple[str, str, str]  # column, operator, value

_CONDITION = re.compile(
    r"""\s*(?:'([^']*)'|"([^"]*)"|(\S+?))\s*(==|!=|<=|>=|=|<|>)\s*(?:'([^']*)'|"([^"]*)"|(\S+))(?:\s+and\s+|\s*$)"""
)
_NAMES = {"==": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}
_EXACT = 2**53  # from there on whole numbers share their float64 with others


def conditions(text: str) -> tuple[Condition, ...]:
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


def _number(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None


def numeric(where: Sequence[Condition]) -> set[str]:
    """The columns that are put in order with a number."""
    return {name for name, operator, value in where if operator[0] in "<>" and _number(value) is not None}


def scalar(kind: Any, condition: Condition) -> Any:
    """What the values of a column of that type are compared with; an error where this would not mean what it says."""
    pa = pyarrow()
    name, operator, value = condition
    said, number = f"--where {name} {operator} {value}", _number(value)
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if name in numeric([condition]) and (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise RecollectError(f"{said}: the column holds text, which has no order with numbers; == and != are for text")
    if pa.types.is_floating(kind) and number is not None:
        if np.isnan(number):
            raise RecollectError(f"{said}: no number is nan, or in order with it; missing values meet no condition")
        if operator in ("==", "!=") and number.is_integer() and abs(number) >= _EXACT:
            raise RecollectError(f"{said}: the column holds {kind}, which cannot tell such whole numbers apart")
    try:
        return pa.scalar(value).cast(kind)
    except pa.ArrowException as error:
        raise RecollectError(f"{said}: the column holds {kind}") from error


def mask(batch: Any, where: Sequence[Condition]) -> np.ndarray:
    """Which rows meet all conditions."""
    pa = pyarrow()
    pc = compute()

    found = np.ones(batch.num_rows, bool)
    for condition in where:
        name, operator, _ = condition
        column = batch.column(name)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        met = pc.call_function(_NAMES[operator], [column, scalar(column.type, condition)])
        found &= pc.fill_null(met, False).to_numpy(zero_copy_only=False)  # a missing value meets nothing
    return found
