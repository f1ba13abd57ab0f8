"""Pictures of the paper's figures, of a benchmark and of an episode; those of the laboratory are in `lab_plots`."""

import itertools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recollect.errors import FileError
from recollect.store import run_reading
from recollect.studies.drawing import AQUA, COPPER, CORN, GOLD, GREY, LIME, MAGENTA, VIOLET, pyplot, save
from recollect.studies.statistics import mean_and_standard_error

IDENTIFIERS = (("first", VIOLET, "o"), ("second", CORN, "v"))


class Line(NamedTuple):
    """A curve for each seed."""

    label: str
    colour: str
    marker: str
    episodes: np.ndarray  # [bin]
    values: np.ndarray  # [seed, bin]


class Panel(NamedTuple):
    """One panel of a figure; ``low``: where its axis begins."""

    title: str
    lines: list[Line]
    low: float
    notes: list[str]


def figure_panels(folder: Path) -> tuple[str, list[Panel]]:
    """The title and the panels of a run of one of the paper's figures, from its folder alone, finished or not."""
    config, curves, status = run_reading.read(folder)
    try:
        return _title(config, status), _panels(config, curves, status)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        message = f"{folder} is not a run of one of the paper's figures: {type(error).__name__}: {error}"
        raise FileError(message) from error


def draw_figure(folder: Path) -> list[Path]:
    """Draw a run of one of the paper's figures from its folder alone, finished or not; returns the pictures' paths."""
    title, panels = figure_panels(folder)
    plt = pyplot()
    # Fixed ids, so that the same run gives the same file.
    with plt.rc_context({"svg.hashsalt": "recollect", "font.size": 10}):
        columns = len(panels) if len(panels) < 4 else 2
        rows = -(-len(panels) // columns)
        figure, axes = plt.subplots(rows, columns, figsize=(4.6 * columns, 4.3 * rows + 0.5))
        figure.set_layout_engine("constrained", h_pad=0.04 if rows == 1 else 0.1)
        for ax, panel in zip(np.ravel(axes), panels, strict=True):
            _draw_panel(ax, panel)
        figure.suptitle(title)
        picture = save(figure, folder / "figure.png", dpi=130)
        return [picture, save(figure, folder / "figure.svg", metadata={"Date": None})]


def _title(config: dict[str, Any], status: dict[str, Any]) -> str:
    agent, experiment = config["agents"]["episodic"], config["experiment"]
    seeds = len(agent["seeds"])
    parts = [f"preset {config['preset']}", f"{seeds} seed{'s' * (seeds != 1)}, mean ± standard error"]
    if agent["episodes"] != experiment["episodes"]:
        parts.append(f"{agent['episodes']:,} episodes instead of {experiment['episodes']:,}")
    if status["status"] != "finished":
        parts.append("still running" if status["status"] == "running" else status["status"])
    return f"Figure {config['figure'].removeprefix('fig')}: {experiment['title']}\n{' · '.join(parts)}"


def _panels(config: dict[str, Any], curves: dict[str, run_reading.Curves], status: dict[str, Any]) -> list[Panel]:
    """The panels of the paper's caption, as data."""
    ours, theirs = curves["episodic"], curves.get("recurrent")
    under_way = status["status"] != "finished"
    missing = [] if under_way else _missing(ours)
    kinds = (("informative states", LIME, "o"), ("uninformative states", COPPER, "s"))
    weights = [Line(*kind, ours.episodes, ours.write_weights[..., k]) for k, kind in enumerate(kinds)]
    returns = [Line("episodic memory", MAGENTA, "o", ours.episodes, ours.returns)]
    about_both = [f"episodic: {note}" for note in missing] if theirs else missing
    if theirs:
        label = f"recurrent baseline ({len(theirs.seeds)} seeds)"
        returns.append(Line(label, GREY, "s", theirs.episodes, theirs.returns))
        about_both = about_both + ([] if under_way else [f"recurrent: {note}" for note in _missing(theirs)])
    panels = [
        Panel("(a) mean write weight", weights, 0.0, missing),
        Panel("(b) average return", returns, 0.0, about_both),
    ]
    if config["experiment"]["memory_size"] == 1:
        return panels  # one stored state leaves nothing to query
    bits = config["environment"]
    identifiers = bits["identifier_bits"]
    elements = [
        ("uninformative indicator", AQUA, "^", bits["uninformative_bit"]),
        ("informative indicator", GOLD, "s", bits["informative_bit"]),
    ]
    for (which, colour, marker), bit in zip(IDENTIFIERS, identifiers, strict=False):
        elements.append((f"{which} decision identifier", colour, marker, bit))
    shape = len(ours.seeds), len(ours.episodes), len(identifiers), bits["observation_size"]
    # Before any bin is complete a folder does not say how large a query is.
    queries = ours.query_vectors if np.isfinite(ours.returns).any() else np.full(shape, np.nan)
    for d, letter in zip(range(len(identifiers)), "cd", strict=False):
        state = f"the {('first', 'second')[d]} decision state" if len(identifiers) > 1 else "the decision state"
        lines = [Line(label, c, m, ours.episodes, queries[:, :, d, bit]) for label, c, m, bit in elements]
        panels.append(Panel(f"({letter}) query vector in {state}", lines, -1.0, missing))
    return panels


def _missing(curves: run_reading.Curves) -> list[str]:
    count, seeds = int(np.isnan(curves.returns[:, -1]).sum()), len(curves.seeds)
    return [f"{count} of {seeds} seeds did not finish (looping)"] if count else []


def _draw_panel(ax: Any, panel: Panel) -> None:
    for line in panel.lines:
        mean, error = mean_and_standard_error(line.values)
        every = max(1, len(line.episodes) // 20)
        style = {"color": line.colour, "marker": line.marker, "markevery": every, "markersize": 5, "linewidth": 1.3}
        ax.plot(line.episodes, mean, label=line.label, **style)
        ax.fill_between(line.episodes, mean - error, mean + error, color=line.colour, alpha=0.22, linewidth=0)
    span = 1 - panel.low
    # Notes stand in a strip of their own above the largest value, so that no curve runs through them.
    top = 1 + span * (0.05 + 0.08 * len(panel.notes))
    ax.set(xlim=(0, panel.lines[0].episodes[-1] * 1.02), ylim=(panel.low - 0.05 * span, top), title=panel.title)
    ax.set_yticks(np.linspace(panel.low, 1, 5 if panel.low else 6))
    for k, note in enumerate(panel.notes):
        at = 1 + span * (0.045 + 0.08 * (len(panel.notes) - 1 - k))
        ax.text(
            0.5, at, note, transform=ax.get_yaxis_transform(), ha="center", va="bottom", fontsize=8.5, color="#b2182b"
        )
    ax.set_xlabel("training episodes")
    ax.locator_params(axis="x", nbins=5)
    ax.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
    ax.grid(alpha=0.25, linewidth=0.6)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, frameon=False, fontsize=8.5, handletextpad=0.5)


def draw_inclusion(folder: Path, capacity: int = 8, length: int = 60, runs: int = 20_000) -> Path:
    """Sample one stream many times and draw how often each item stayed against the exact probability."""
    from recollect import Reservoir
    from recollect.reservoir import law

    plt = pyplot()
    rng = np.random.default_rng(0)
    weights = rng.lognormal(0, 1.5, length)
    hits = np.zeros(length)
    for seed in range(runs):
        r = Reservoir(capacity, seed=seed)
        r.extend(range(length), weights)
        hits[r.indices] += 1
    exact = law.inclusion_probabilities(np.log(weights), capacity)
    share = hits / runs
    worst = float(np.max(np.abs(share - exact) / np.sqrt(exact * (1 - exact) / runs)))
    folder.mkdir(parents=True, exist_ok=True)
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    axes[0].plot([0, 1], [0, 1], color="#666666", linewidth=1)
    axes[0].plot(exact, share, "o", color="#7570b3", markersize=5)
    axes[0].set(xlabel="exact inclusion probability", ylabel=f"share of {runs:,} runs that kept the item")
    axes[0].set_title(f"largest deviation: {worst:.1f} standard errors")
    axes[1].loglog(weights, exact, "o", color="#d95f02", markersize=5, label="exact inclusion")
    axes[1].loglog(weights, np.minimum(1, capacity * weights / weights.sum()), "k_", label="n · w / Σw")
    axes[1].set(xlabel="weight", ylabel="inclusion probability")
    axes[1].set_title("inclusion is not proportional to weight")
    axes[1].legend(frameon=False)
    figure.suptitle(
        f"{capacity} of {length} items, each {capacity}-subset with probability ∝ the product of its weights"
    )
    return save(figure, folder / "reservoir.png", dpi=120)


def draw_benchmark(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Learning curves of a benchmark, one panel per task: the median seed, and the middle half of them."""
    plt = pyplot()
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    agents = list(dict.fromkeys(row["agent"] for row in rows))
    colours = dict(zip(agents, itertools.cycle((MAGENTA, GREY, AQUA, COPPER, VIOLET, LIME, GOLD, CORN)), strict=False))
    columns = min(3, len(tasks))
    figure, axes = plt.subplots(
        -(-len(tasks) // columns),
        columns,
        figsize=(4.4 * columns, 3.4 * -(-len(tasks) // columns)),
        squeeze=False,
        layout="constrained",
    )
    for ax, task in zip(np.ravel(axes), tasks, strict=False):
        for agent in agents:
            own = [row for row in rows if (row["task"], row["agent"]) == (task, agent)]
            if not own:
                continue
            curves = np.array([[np.nan if x is None else x for x in row["curve"]] for row in own], float)
            steps = own[0]["steps"] * np.arange(1, curves.shape[1] + 1) / curves.shape[1]
            known = ~np.all(np.isnan(curves), axis=0)
            low, middle, high = np.nanquantile(curves[:, known], [0.25, 0.5, 0.75], axis=0)
            ax.plot(steps[known], middle, color=colours[agent], label=agent, linewidth=1.4)
            ax.fill_between(steps[known], low, high, color=colours[agent], alpha=0.2, linewidth=0)
        ax.set(title=task, xlabel="steps", ylabel="return")
        ax.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
        ax.locator_params(axis="x", nbins=4)
        ax.grid(alpha=0.25, linewidth=0.6)
        ax.legend(frameon=False, fontsize=8)
    for ax in np.ravel(axes)[len(tasks) :]:
        ax.set_visible(False)
    return save(figure, path, dpi=120)


def draw_episode(path: Path, moments: list[Any]) -> Path:
    """An episode as ``training.inspection.play`` gives it: states, weights in memory, the query, what was recalled."""
    plt = pyplot()
    steps = len(moments)
    states = np.array([m.observation for m in moments]).T
    weights, queries = (np.array([getattr(m, name) for m in moments]).T for name in ("weights", "probabilities"))
    figure, axes = plt.subplots(3, 1, figsize=(min(7 + 0.2 * steps, 16), 8), sharex=True, layout="constrained")
    panels = (("state", states, None), ("write weight in memory", weights, 1.0), ("query probability", queries, 1.0))
    for ax, (title, values, top) in zip(axes, panels, strict=True):
        image = ax.imshow(
            values, aspect="auto", interpolation="nearest", cmap="viridis", vmin=None if top is None else 0.0, vmax=top
        )
        figure.colorbar(image, ax=ax, shrink=0.8)
        ax.set(title=title, ylabel="element" if top is None else "slot")
        if top is not None:
            ax.set_yticks(range(len(values)))
    recalled = [(t, m.slot) for t, m in enumerate(moments) if m.slot >= 0]
    for ax in axes[1:]:
        ax.plot(*zip(*recalled, strict=True), "o", color=MAGENTA, markersize=5, label="recalled") if recalled else None
        for t, m in enumerate(moments):
            for k, since in enumerate(m.since):
                if not np.isnan(since) and steps <= 40:
                    ax.text(t, k + 0.3, f"{int(since)}", ha="center", va="center", fontsize=6, color="#e7298a")
    actions = [str(m.action) if np.ndim(m.action) == 0 else "" for m in moments]
    axes[2].set_xticks(
        range(steps)[:: max(1, steps // 40)], [f"{t}\n{actions[t]}" for t in range(steps)][:: max(1, steps // 40)]
    )
    axes[2].set_xlabel(
        "time step, and the action below it; in the squares, the latest step that looked like what is stored"
    )
    figure.suptitle(f"return {sum(m.reward for m in moments):g} in {steps} steps")
    path.parent.mkdir(parents=True, exist_ok=True)
    return save(figure, path, dpi=120)
