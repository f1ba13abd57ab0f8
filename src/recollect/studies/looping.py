"""Why the paper's recipe loops: what is measured while it trains, and what happens when one link is cut.

The links that were supposed: the critic's error at the decision states; the policy's commitment there to one action;
the spread of that commitment into start and chain, where only FORWARD leads on. Each is cut alone, on the same seeds,
and so are two more: the critic's own spread from the decision states into the chain, and the policy's learning there.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from recollect.agents.episodic import EpisodicActorCritic
from recollect.studies.altered import Record, Switches, train
from recollect.studies.paper import FIGURES
from recollect.studies.statistics import share_interval

ENV = FIGURES["fig5"].env
WINDOWS = 40
LAST = 4  # windows at the end that a run is judged by
LOOPS = 4.0  # times the fewest steps per episode, the measure of docs/results.md; random actions take 2.7

INTERVENTIONS = {
    "paper": Switches(),
    "exact critic at decisions": Switches(exact=1),
    "exact critic everywhere": Switches(exact=2),
    "commitment capped at .5": Switches(most=0.5),
    "policy divided": Switches(divided=True),
    "policy learns at decisions only": Switches(frozen=True),
    "critic divided": Switches(divided_critic=True),
    "discount .99": Switches(discount=0.99),
    "entropy .002": Switches(entropy=0.002),
}
SOURCES = ("start and chain", "first decision", "last decision, on the path", "last decision, off it")


def summarise(record: Record, steps: int) -> dict[str, Any]:
    """One row of the table, and the curves over training.

    Critic's errors are V less the value of the present policy, which is counted: the share of visits that ended in a
    reward, over all seeds. ``chain_errors``: mean δ on leaving a chain state, by the decision that this state names.
    """
    # In units of the fewest steps; a window without an end counts as half an episode.
    length = steps // WINDOWS / np.maximum(record.episodes, 0.5) / ENV.shortest_episode
    final = steps // WINDOWS * LAST / np.maximum(record.episodes[:, -LAST:].sum(1), 0.5) / ENV.shortest_episode
    loops, seeds = int((final > LOOPS).sum()), len(final)
    first, on, off = (ENV.decision_row(d, c) for d, c in ((0, 1), (ENV.decisions - 1, 1), (ENV.decisions - 1, 0)))
    visits, values, deltas = (record.rows[..., k] for k in range(3))
    rewards, episodes = record.rewards.sum(0), record.episodes.sum(0)

    def mean(of: np.ndarray, row: int) -> np.ndarray:
        return of[..., row].sum(0) / np.maximum(visits[..., row].sum(0), 1)

    curves = {
        "steps": steps // WINDOWS * np.arange(1, WINDOWS + 1),
        "length_median": np.median(length, 0),
        "looping": (length > LOOPS).mean(0),
        "forward": record.policy[..., 0].mean(0),
        "forward_least": record.policy[..., 1].mean(0),
        "commitment": record.policy[..., 2].mean(0),
        "certainty": record.policy[..., 3].mean(0),
        "value_on": mean(values, on),
        "value_off": mean(values, off),
        "value_first": mean(values, first),
        "true_on": rewards / np.maximum(visits[..., on].sum(0), 1),
        "true_first": rewards / np.maximum(episodes, 1),
    }
    named = ENV.actions * np.arange(ENV.decisions)[:, None] + np.arange(ENV.actions) + 1
    for d in range(ENV.decisions):
        rows = np.concatenate([named[d], named[d] + ENV.decisions * ENV.actions])
        curves[f"forward_naming_{d + 1}"] = record.forward[..., rows].mean((0, 2))
        # Of the L chain states L/D name each decision, on average, and an episode leaves each of them once.
        passes = np.maximum(episodes * ENV.length / ENV.decisions, 1)
        curves[f"delta_naming_{d + 1}"] = deltas[..., rows].sum((0, 2)) / passes
    pushes = record.pushes.sum(1)
    return {
        "seeds": seeds,
        "loops": loops,
        "loops_interval": share_interval(loops, seeds),
        "median_length": float(np.median(final)),
        "final_lengths": [round(float(x), 2) for x in np.sort(final)],
        "final": {name: float(np.mean(curve[-LAST:])) for name, curve in curves.items() if name != "steps"},
        "pushes": {
            name: {
                "mean": float(x.mean()),
                "standard_error": float(x.std(ddof=1) / np.sqrt(seeds)) if seeds > 1 else None,
            }
            for name, x in zip(SOURCES, pushes.T, strict=True)
        },
        "curves": {name: [float(f"{x:.4g}") for x in curve] for name, curve in curves.items()},
    }


def run(seeds: Sequence[int], steps: int, on_row: Callable[[str], None], workers: int | None) -> dict[str, Any]:
    """Every intervention on the same seeds, each trained by ``workers`` threads (default: one per core)."""
    if steps % WINDOWS:
        raise ValueError(f"steps={steps} must be a multiple of {WINDOWS}, the windows it is measured in")
    agent, rows = EpisodicActorCritic.preset("paper", memory_size=FIGURES["fig5"].memory_size), {}
    for name, switches in INTERVENTIONS.items():
        on_row(name)
        changes = {k: v for k, v in switches._asdict().items() if v != Switches._field_defaults[k]}
        record = train(agent, ENV, switches, seeds, steps, WINDOWS, workers)
        rows[name] = {"changes": changes, **summarise(record, steps)}
    return {
        "seeds": list(seeds),
        "steps": steps,
        "decisions": ENV.decisions,
        "loops_over": LOOPS,
        "interventions": rows,
    }


COLUMNS = [
    "",
    "loops",
    "95%",
    "length",
    "commitment",
    "forward: naming 1",
    "2",
    "1000 δ: naming 1",
    "2",
    "V−v on",
    "pushed by chain",
    "by decisions",
]


def table(report: dict[str, Any]) -> list[list[str]]:
    """The report's rows under `COLUMNS`, the last of training: see docs/looping.md."""
    rows = []
    for name, row in report["interventions"].items():
        low, high = row["loops_interval"]
        end, pushes = row["final"], [row["pushes"][source]["mean"] for source in SOURCES]
        first, last = 1, report["decisions"]
        numbers = [end["commitment"], *(end[f"forward_naming_{d}"] for d in (first, last))]
        numbers += [1000 * end[f"delta_naming_{d}"] for d in (first, last)]
        numbers += [end["value_on"] - end["true_on"], pushes[0], sum(pushes[1:])]
        share = f"{row['loops']} of {row['seeds']}"
        rows.append(
            [name, share, f"{low:.2f}–{high:.2f}", f"{row['median_length']:.1f}", *(f"{x:.2f}" for x in numbers)]
        )
    return rows
