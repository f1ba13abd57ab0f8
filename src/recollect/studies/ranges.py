"""Settings drawn at random, for searches: what each option of an agent is drawn from."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from recollect.errors import FileError
from recollect.store import files


class Range(NamedTuple):
    """Where a number is drawn from: evenly, or evenly in its logarithm, or in the logarithm of what it lacks to 1."""

    low: float
    high: float
    scale: str = "log"

    def at(self, share: np.ndarray) -> np.ndarray:
        """The number at each share of the way from low to high, to six digits."""
        if self.scale == "linear":
            found = self.low + share * (self.high - self.low)
        elif self.scale == "log":
            found = self.low * (self.high / self.low) ** share
        else:
            found = np.round(1 - (1 - self.low) * ((1 - self.high) / (1 - self.low)) ** share, 12)
        return np.array([float(f"{x:.6g}") for x in found])


MEMORY = {
    "learning_rate": Range(0.0001, 0.03),
    "square_decay": Range(0.9, 0.9999, "gap"),
    "discount": Range(0.9, 0.9999, "gap"),
    "entropy": Range(1e-5, 0.03),
    "surprise": Range(0.001, 0.3),
    "trace_decay": Range(0.0, 0.95, "linear"),
    "value_rate": Range(0.25, 4.0),
    "policy_rate": Range(0.25, 4.0),
    "query_rate": Range(0.1, 4.0),
    "write_rate": Range(0.1, 10.0),
    "query_gain": Range(0.03, 3.0),
    "write_gain": Range(0.03, 3.0),
    "temperature_start": Range(0.1, 3.0),
    "credit_cap": Range(1.0, 30.0),
}
"""Of the episodic agent, and those that differ from it in the memory alone, with RMSProp."""

GRU = {
    "learning_rate": Range(0.0001, 0.03),
    "discount": Range(0.9, 0.9999, "gap"),
    "entropy": Range(1e-5, 0.03),
    "decay": Range(0.8, 0.9999, "gap"),
    "epsilon": Range(1e-10, 0.01),
    "update_start": Range(-6.0, 1.0, "linear"),
}
"""Of the agents with a GRU."""


def draw(ranges: Mapping[str, Range], count: int, fixed: Collection[str] = ()) -> list[dict[str, float]]:
    """So many settings, but for what is fixed; the first of many are those of few."""
    ranges = {option: within for option, within in ranges.items() if option not in fixed}
    shares = np.random.default_rng(0).random((count, len(ranges)))
    columns = [within.at(share) for within, share in zip(ranges.values(), shares.T, strict=True)]
    return [dict(zip(ranges, map(float, row), strict=True)) for row in zip(*columns, strict=True)]


def best(
    report: Path, ranges: Mapping[str, Range], count: int, fixed: Collection[str] = (), **whose: str
) -> list[dict[str, float]]:
    """The best settings in the report of a search, but for what is fixed; ``whose``: of that agent, and task."""
    try:
        rows = json.loads(files.read(report, files.LARGEST_JSON))["rows"]
        own = [row["settings"] for row in rows if all(row[name] == value for name, value in whose.items())][:count]
        found = [{k: float(v) for k, v in one.items() if k in ranges and k not in fixed} for one in own]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise FileError(f"{report} is not the report of a search") from error
    if not found or not all(found):
        raise FileError(f"{report} has no settings of {' '.join(whose.values())}")
    return found
