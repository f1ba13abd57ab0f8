"""A folder of ``recollect reproduce`` as a document: the paper's panels with every seed, and the claims."""

from pathlib import Path
from typing import Any

import numpy as np

from recollect.errors import FileError
from recollect.store import run_reading
from recollect.studies import plots, verdict
from recollect.view import boards

FORMAT = "recollect figure"


def document(folder: Path) -> dict[str, Any]:
    """What the page shows of a run of one of the paper's figures, finished or not."""
    title, panels = plots.figure_panels(folder)
    config, curves, status = run_reading.read(folder)
    first, _, rest = title.partition("\n")
    claims, notes = _claims(config, curves)
    notes += [note for panel in panels for note in panel.notes]
    return {
        "format": FORMAT,
        "title": first,
        "subtitle": f"{rest} · {status['status']} · {folder.name}",
        "panels": [_panel(panel) for panel in panels],
        "claims": claims,
        "notes": list(dict.fromkeys(notes)),
    }


def _panel(panel: plots.Panel) -> dict[str, Any]:
    """Lines may have points at different episodes: one abscissa holds all of them."""
    x = np.unique(np.concatenate([line.episodes for line in panel.lines])).astype(int)
    series = []
    for line in panel.lines:
        at = np.searchsorted(x, line.episodes)
        for seed, values in enumerate(line.values):
            own: list[float | None] = [None] * len(x)
            for place, value in zip(at, values, strict=True):
                own[place] = float(value) if np.isfinite(value) else None
            series.append({"name": f"run {seed + 1}", "group": line.label, "values": own})
    return {"title": panel.title, "x": x.tolist(), "xlabel": "episodes", "series": series}


def _claims(config: dict[str, Any], curves: dict[str, run_reading.Curves]) -> tuple[list[dict[str, Any]], list[str]]:
    """The verdict's rows as JSON can hold them; none before there is anything to judge."""
    try:
        found = verdict.judge(config, curves)
    except (KeyError, IndexError, ValueError, FileError):
        return [], ["The claims are judged once the run has got far enough."]
    rows = [
        {name: row[name] for name in ("claim", "criterion", "measured", "verdict", "holding", "seeds")}
        | {"values": {name: _cells(values) for name, values in row["values"].items()}}
        for row in found["rows"]
    ]
    return rows, [f"Mind: {found['note']}."] if found["note"] else []


def _cells(values: Any) -> Any:
    return [_cells(part) for part in values] if isinstance(values, list) else boards.cell(values)
