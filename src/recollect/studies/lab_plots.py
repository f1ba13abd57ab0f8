"""Pictures of what the laboratory found: the atlas, lengths, speed, looping."""

from pathlib import Path
from typing import Any

import numpy as np

from recollect.studies.drawing import AQUA, COPPER, GOLD, GREY, LIME, MAGENTA, VIOLET, pyplot, save
from recollect.studies.statistics import share_interval


def draw_atlas(rows: list[dict], path: Path) -> None:
    """One page: for each choice the share solved with its interval, episodes to solve, and episode length."""
    plt = pyplot()
    experiments = list(dict.fromkeys(row["experiment"] for row in rows))
    chosen = [row for row in rows if row["kind"] in ("robust", "ladder", "alone", "program")]
    labels = list(dict.fromkeys(_choice(row) for row in chosen))
    at = {label: len(labels) - 1 - k for k, label in enumerate(labels)}
    size = (11, 1.5 + 0.155 * len(labels))
    figure, axes = plt.subplots(1, 3, figsize=size, sharey=True, layout="constrained")
    for k, experiment in enumerate(experiments):
        own = [row for row in chosen if row["experiment"] == experiment]
        y = np.array([at[_choice(row)] for row in own]) + 0.3 * (k / max(len(experiments) - 1, 1) - 0.5)
        share = np.array([row["solved_at_budget"] / row["seeds"] for row in own])
        low, high = np.array([share_interval(row["solved_at_budget"], row["seeds"]) for row in own]).T
        style = {"fmt": "o", "markersize": 3, "elinewidth": 0.8, "color": f"C{k}", "label": experiment}
        axes[0].errorbar(share, y, xerr=[share - low, high - share], **style)
        median = np.array([row["median_episodes_to_solve"] or np.nan for row in own]) / own[0]["budget"]
        axes[1].plot(median, y, "o", markersize=3, color=f"C{k}")
        length = np.minimum([row["length_at_budget"] or np.nan for row in own], 1.49)
        axes[2].plot(length, y, "o", markersize=3, color=f"C{k}")
    axes[0].set_yticks(list(at.values()), list(at), fontsize=6)
    axes[0].set_ylim(-1, len(labels))
    axes[0].set_xlabel("share solved at the budget, 95% interval")
    axes[1].set_xlabel("median episodes to solve / budget")
    axes[1].set_xlim(0, 1.02)
    axes[2].set_xlabel("episode length / shortest")
    axes[2].set_xlim(0.98, 1.5)  # what lies beyond loops: it is drawn at the edge
    for axis in axes:
        axis.grid(axis="x", linewidth=0.3)
        for y in range(0, len(labels), 2):
            axis.axhspan(y - 0.5, y + 0.5, color="0.95", zorder=0)
    axes[0].legend(loc="lower left", fontsize=7)
    save(figure, path, dpi=130)


def _choice(row: dict) -> str:
    if row["kind"] == "robust":
        return "the robust preset"
    return ", ".join(str(v) if k == "step" else f"{k} = {v}" for k, v in row["changes"].items())


AGENTS = {
    "episodic": (MAGENTA, "o"),
    "gru": (GREY, "s"),
    "gru-full": (VIOLET, "D"),
    "fifo": (COPPER, "v"),
    "uniform": (AQUA, "^"),
    "none": (GOLD, "x"),
}


def draw_lengths(rows: list[dict[str, Any]], path: Path) -> Path:
    """What ``recollect lab lengths`` found: share solved and median steps until then, by length, one row per family."""
    plt = pyplot()
    families = list(dict.fromkeys(row["family"] for row in rows))
    figure, axes = plt.subplots(len(families), 2, figsize=(10, 4 * len(families)), squeeze=False, layout="constrained")
    for (shares, times), family in zip(axes, families, strict=True):
        own = [row for row in rows if row["family"] == family]
        for agent in dict.fromkeys(row["agent"] for row in own):
            of_agent = [row for row in own if row["agent"] == agent]
            _draw_lengths(shares, times, agent, sorted(of_agent, key=lambda row: row["length"]))
        lengths = sorted({row["length"] for row in own})
        for ax in (shares, times):
            ax.set_xscale("log")
            ax.set_xticks(lengths, labels=[f"{length:,}" for length in lengths])
            ax.minorticks_off()
            ax.set_xlim(lengths[0] / 1.2, lengths[-1] * 1.2)
            ax.set_xlabel("length")
            ax.grid(alpha=0.25, linewidth=0.6)
            ax.spines[["top", "right"]].set_visible(False)
        shares.set_ylim(-0.03, 1.03)
        shares.set_title(f"{family}: share of seeds solved, 95% interval", fontsize=10)
        times.set_yscale("log")
        times.set_title(f"{family}: steps until solved, median and middle half", fontsize=10)
    lines = {label: line for ax in axes[:, 0] for line, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return save(figure, path, dpi=120)


def _draw_lengths(shares: Any, times: Any, agent: str, rows: list[dict[str, Any]]) -> None:
    """One agent's lines in both panels; no point, or no bar upwards, where it was never reached."""
    colour, marker = AGENTS[agent]
    style = {"color": colour, "marker": marker, "markersize": 5, "linewidth": 1.4, "capsize": 2, "elinewidth": 0.8}
    x = np.array([row["length"] for row in rows])
    share = np.array([row["share"] for row in rows])
    low, high = np.array([row["share_interval"] for row in rows]).T
    # An end of Wilson's interval may lie past a share of 0 or 1 by rounding.
    errors = np.maximum([share - low, high - share], 0)
    shares.errorbar(x, share, yerr=errors, label=f"{agent} ({rows[0]['seeds']} seeds)", **style)
    median = np.array([row["median_steps_to_solve"] for row in rows], float)
    first, third = np.array([row["quartiles_steps_to_solve"] for row in rows], float).T
    errors = np.nan_to_num([median - first, third - median])
    known = np.isfinite(median)
    times.errorbar(x[known], median[known], yerr=errors[:, known], **style)


def draw_speed(rows: list[dict], path: Path) -> None:
    """Steps per second over the number of runs, both on logarithmic axes, one line per engine."""
    plt = pyplot()
    figure, axis = plt.subplots(figsize=(5, 3.6), layout="constrained")
    for engine in dict.fromkeys(row["engine"] for row in rows):
        own = [row for row in rows if row["engine"] == engine]
        axis.loglog([r["runs"] for r in own], [r["steps_per_second"] for r in own], "o-", markersize=4, label=engine)
    axis.set_xlabel("runs at once")
    axis.set_ylabel("steps per second, all runs")
    axis.grid(which="major", linewidth=0.3)
    axis.legend()
    save(figure, path, dpi=130)


LOOPING = {
    "paper": (MAGENTA, "-"),
    "exact critic at decisions": (GOLD, "--"),
    "commitment capped at .5": (GREY, ":"),
    "policy divided": (VIOLET, "--"),
    "critic divided": (AQUA, "-"),
    "exact critic everywhere": (COPPER, "-."),
    "discount .99": (LIME, "-."),
}


def draw_looping(report: dict[str, Any], path: Path) -> Path:
    """Draw what ``recollect lab looping`` measured over training; returns the picture's path."""
    plt = pyplot()
    last = report["decisions"]
    panels = (
        ("length_median", "steps per episode, in units of the fewest (median)"),
        (f"forward_naming_{last}", "P(forward) in chain states that name the last decision"),
        (f"delta_naming_{last}", "mean δ on leaving them"),
        ("commitment", "commitment at the decision states"),
    )
    figure, axes = plt.subplots(2, 2, figsize=(10, 7), layout="constrained")
    for ax, (measure, title) in zip(np.ravel(axes), panels, strict=True):
        for name, (colour, style) in LOOPING.items():
            if name not in report["interventions"]:
                continue
            curves = report["interventions"][name]["curves"]
            x, y = np.array(curves["steps"]) / 1000, curves[measure]
            ax.plot(x, y, style, color=colour, label=name, linewidth=2.2 if style == ":" else 1.5)
        ax.set_title(title, fontsize=10)
        ax.set_xlabel("thousand training steps")
        ax.grid(alpha=0.25, linewidth=0.6)
        ax.spines[["top", "right"]].set_visible(False)
        if measure == "length_median":
            ax.axhline(report["loops_over"], color="#999999", linewidth=0.8)
            ax.set_yscale("log")
            ax.set_yticks([1, 2, 4, 8, 16], labels=["1", "2", "4", "8", "16"])
            ax.minorticks_off()
        elif not measure.startswith("delta"):
            ax.set_ylim(0, 1)
    handles, labels = np.ravel(axes)[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=8.5)
    figure.suptitle(f"Looping on figure 5: {len(report['seeds'])} seeds, means unless said")
    return save(figure, path, dpi=90)
