"""A report of ``recollect benchmark``, or any JSON report with rows, as a document: a table, and its curves."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from recollect.errors import FileError

FORMAT = "recollect board"
LABELS = {
    "return": "return",
    "low": "95 % from",
    "high": "to",
    "solved": "seeds solved",
    "median_steps": "median steps to solve",
}
_LEFT_OUT = ("options", "settings", "curve", "interval")


def document(report: Any, path: Path) -> dict[str, Any]:
    """What the page shows of a report."""
    try:
        return _document(report, path)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise FileError(f"{path} is not a report: {type(error).__name__}: {error}") from error


def _document(report: Any, path: Path) -> dict[str, Any]:
    lines = report.get("table") or report.get("rows") if isinstance(report, dict) else report
    if not isinstance(lines, list) or not lines or not all(isinstance(line, dict) for line in lines):
        raise FileError(f"{path} is not a report: it has no table of rows")
    rows = [_flat(line) for line in lines]
    names = list(dict.fromkeys(name for row in rows for name in row))
    head = report if isinstance(report, dict) else {}
    found = head.get("versions")
    versions: dict[str, Any] = found if isinstance(found, dict) else {}
    parts = [f"{name} {versions[name]}" for name in ("recollect", "jax", "processor") if name in versions]
    command = head.get("command") or head.get("commands") or ""
    return {
        "format": FORMAT,
        "title": path.stem,
        "subtitle": " · ".join(parts),
        "columns": [
            {
                "name": name,
                "label": LABELS.get(name, name.replace("_", " ")),
                "numeric": any(isinstance(row.get(name), float) for row in rows),
            }
            for name in names
        ],
        "rows": rows,
        "curves": _curves(head.get("rows") or []),
        "notes": [f"Made by: {each}" for each in (command if isinstance(command, list) else [command]) if each],
    }


def _flat(line: dict[str, Any]) -> dict[str, Any]:
    """One row: numbers and texts; an interval as two numbers, what has more parts left out."""
    found: dict[str, Any] = {}
    for name, value in line.items():
        if name == "interval" and isinstance(value, list) and len(value) == 2:
            found |= {"low": cell(value[0]), "high": cell(value[1])}
        elif name not in _LEFT_OUT and not isinstance(value, (list, dict)):
            found[name] = cell(value)
    return found


def cell(value: Any) -> Any:
    """A value as the page has it: a number, a text, or None for what is neither."""
    if value is None or isinstance(value, bool):
        return None if value is None else "yes" if value else "no"
    if value in ("inf", "-inf", "nan"):
        return None
    if isinstance(value, (int, float)):
        return float(value) if math.isfinite(value) else None
    return str(value)


def _curves(rows: list[Any]) -> list[dict[str, Any]]:
    """For each task, the mean over seeds of each agent's return during training."""
    known = [row for row in rows if isinstance(row, dict) and isinstance(row.get("curve"), list) and "task" in row]
    found = []
    for task in dict.fromkeys(str(row["task"]) for row in known):
        own = [row for row in known if str(row["task"]) == task and len(row["curve"]) > 1]
        if not own:
            continue
        blocks, steps = len(own[0]["curve"]), own[0].get("steps", len(own[0]["curve"]))
        series = []
        for agent in dict.fromkeys(str(row.get("agent", "")) for row in own):
            curves = [row["curve"] for row in own if str(row.get("agent", "")) == agent and len(row["curve"]) == blocks]
            table = np.array([[math.nan if v is None else float(v) for v in curve] for curve in curves])
            counts = np.isfinite(table).sum(axis=0)
            sums = np.nansum(table, axis=0)
            means = [float(s / c) if c else None for s, c in zip(sums, counts, strict=True)]
            series.append({"name": f"{agent}, mean of {len(curves)} seeds", "group": agent, "values": means})
        x = [round(steps * (k + 1) / blocks) for k in range(blocks)]
        found.append({"title": task, "x": x, "xlabel": "steps", "ylabel": "return", "series": series})
    return found
