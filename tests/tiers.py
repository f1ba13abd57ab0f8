"""Which cases of a test belong to which tier."""

from collections.abc import Iterable
from typing import Any

import pytest


def first_quick(cases: Iterable[Any]) -> list[Any]:
    """The first case in the quick tier, the others in the slow one; a tuple is the values of several arguments."""
    first, *rest = cases
    return [first, *slow(rest)]


def slow(cases: Iterable[Any]) -> list[Any]:
    """All of them in the slow tier."""
    return [pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow) for case in cases]
