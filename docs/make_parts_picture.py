"""The picture of what each part of the general agent gives, from the board's reports.

    python docs/make_parts_picture.py

Needs the extra ``plots``. A return of 0 is that of random actions, 1 the best.
"""

import json
from pathlib import Path

import numpy as np

from recollect.studies.drawing import AQUA, COPPER, GREY, MAGENTA, pyplot, save
from recollect.studies.tasks import KINDS, TASKS

HERE = Path(__file__).parent
DATA = HERE.parent / "benchmarks" / "data"
REPORTS = ("parts-popgym", "parts-own", "parts-500", "parts-count")
AGENTS = {
    "general": ("both", MAGENTA, "o"),
    "trace-units": ("trace units alone", COPPER, "s"),
    "reservoir": ("reservoir alone", AQUA, "D"),
    "memoryless": ("neither", GREY, "x"),
}


def main() -> None:
    """Draw it."""
    rows = [row for name in REPORTS for row in json.loads((DATA / f"board-{name}.json").read_text())["rows"]]
    plt = pyplot()
    figure, ax = plt.subplots(figsize=(8.6, 5.2), layout="constrained")
    for place, name in enumerate(reversed(KINDS)):
        for k, (agent, (label, colour, marker)) in enumerate(AGENTS.items()):
            own = [row["final"] for row in rows if (row["task"], row["agent"]) == (name, agent)]
            scaled = (np.array(own, float) - TASKS[name].low) / (TASKS[name].best - TASKS[name].low)
            heights = np.full(len(scaled), place + 0.27 - 0.18 * k)
            ax.plot(scaled, heights, marker, color=colour, markersize=4, alpha=0.55, markeredgewidth=1)
            ax.plot(np.median(scaled), heights[0], marker, color=colour, markersize=8, label=None if place else label)
        ax.axhline(place + 0.5, color=GREY, alpha=0.25, linewidth=0.6)
    ax.set_yticks(range(len(KINDS)), labels=reversed(KINDS))
    ax.set_xlabel("return, from random actions (0) to the best (1); small: a seed, large: the median")
    ax.set_ylim(-0.5, len(KINDS) - 0.5)
    ax.grid(axis="x", alpha=0.25, linewidth=0.6)
    ax.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=len(AGENTS), frameon=False, fontsize=9)
    save(figure, HERE / "parts.png", dpi=110)


if __name__ == "__main__":
    main()
