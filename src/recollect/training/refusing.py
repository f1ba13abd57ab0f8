"""What training refuses, said in one place: what does not fit in memory, and what is not finite."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from recollect.errors import RecollectError


def too_large(needed: int, whose: str, fix: str, there: int | None = None) -> None:
    """Refuse what cannot fit, by its bytes, before any of them is asked for.

    Args:
        needed: how many bytes it would take.
        whose: what would take them.
        fix: what to take less of.
        there: how many there are (default: this machine's memory).
    """
    if there is None and hasattr(os, "sysconf"):
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if there is not None and needed > there:
        raise ValueError(f"{whose} need {needed:,} bytes, this machine has {there:,}: take {fix}")


def not_finite(env: Any, seeds: Sequence[int], faults: np.ndarray) -> None:
    """Refuse to continue after a step that was not finite: its number, negative if it was the update that was not."""
    if faults.any():
        at = int(np.argmax(faults != 0))
        what = "the environment gave a reward or an observation that is" if faults[at] > 0 else "the update was"
        raise RecollectError(
            f"seed {seeds[at]}: {what} not finite at step {abs(int(faults[at])):,} of {env!r}; "
            "nothing was learned from that step"
        )
