"""What the paper says of a figure, held against a run folder: one row per claim, with the numbers behind it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from recollect.store.run_reading import Curves
from recollect.studies.statistics import episodes_to_solve, last_block, mean_and_standard_error

RETURN = 0.95  # close to perfect
NEAR_ZERO, MUCH_LARGER = 0.05, 10.0  # of write weights
LOOPING = 1.2  # times the shortest episode


class Row(NamedTuple):
    """One claim: how it was tested, what was measured, and for which seeds it holds."""

    claim: str
    criterion: str
    measured: str
    holds: list[bool]  # one entry per seed
    values: dict[str, list]  # what ``measured`` sums up, one entry per seed

    @property
    def verdict(self) -> str:
        """``holds``, ``holds for k of N seeds`` or ``does not hold``."""
        k, n = sum(self.holds), len(self.holds)
        return "holds" if k == n else f"holds for {k} of {n} seeds" if k else "does not hold"


def judge(config: dict[str, Any], curves: dict[str, Curves]) -> dict[str, Any]:
    """The verdict on a run folder as ``recollect.store.run_reading.read`` gives it, ready for JSON."""
    ours, experiment = curves["episodic"], config["experiment"]
    rules: list[Callable[[dict[str, Any], Curves], Row]] = [_return, _write_weights]
    if experiment["memory_size"] > 1:
        rules.append(_query)
    rows = [rule(config, ours) for rule in (*rules, _convergence, _looping)]
    if "recurrent" in curves:
        rows.append(_beside_baseline(ours, curves["recurrent"]))
    asked, full = config["agents"]["episodic"]["episodes"], experiment["episodes"]
    note = None
    if asked != full:
        change = "shortened" if asked < full else "lengthened"
        note = f"the budget was {change}: {asked:,} episodes a seed, where the paper has about {full:,}"
    return {
        "figure": config["figure"],
        "title": experiment["title"],
        "preset": config["preset"],
        "episodes": asked,
        "paper_episodes": full,
        "note": note,
        "rows": [
            {
                "claim": row.claim,
                "criterion": row.criterion,
                "measured": row.measured,
                "seeds": len(row.holds),
                "holding": sum(row.holds),
                "verdict": row.verdict,
                "values": row.values,
            }
            for row in rows
        ],
    }


def as_markdown(verdict: dict[str, Any], command: str) -> str:
    """The verdict as a page with a table."""
    lines = [
        f"# {verdict['figure']}: {verdict['title']} (preset {verdict['preset']})",
        "",
        f"Command: `{command}`",
        "",
        *([f"**Mind: {verdict['note']}.**", ""] if verdict["note"] else []),
        "| claim | tested as | measured | seeds | verdict |",
        "|---|---|---|---|---|",
    ]
    for row in verdict["rows"]:
        cells = (row["claim"], row["criterion"], row["measured"], str(row["seeds"]), row["verdict"])
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "Measured: means over the seeds that finished, ± standard error. A seed that did not finish its episodes"
        " within the step limit loops, and fails every row.",
        "",
    ]
    return "\n".join(lines)


def _mean(values: np.ndarray, digits: int = 3) -> str:
    """The mean over seeds with its standard error, as text."""
    mean, error = mean_and_standard_error(values)
    if np.isnan(mean):
        return "none"
    return f"{mean:.{digits}f}" + ("" if np.isnan(error) else f" ± {error:.{digits}f}")


def _small(values: np.ndarray) -> str:
    """The mean of numbers that may be tiny."""
    mean, _ = mean_and_standard_error(values)
    return "none" if np.isnan(mean) else f"{mean:.3g}" if mean >= 0.001 else f"{mean:.0e}"


def _unfinished(values: np.ndarray) -> str:
    missing = int(np.isnan(values).sum())
    return f"; {missing} of {len(values)} seeds did not finish" if missing else ""


def _last(values: np.ndarray) -> np.ndarray:
    """The last 1/25 of [seed, bin, …], as [seed, …]."""
    return last_block(np.moveaxis(values, 1, -1))


def _return(config: dict[str, Any], ours: Curves) -> Row:
    final = last_block(ours.returns)
    return Row(
        "close to perfect average return",
        f"mean return over the last 1/25 of the budget ≥ {RETURN}",
        _mean(final) + _unfinished(final),
        (final >= RETURN).tolist(),
        {"return": final.tolist()},
    )


def _write_weights(config: dict[str, Any], ours: Curves) -> Row:
    informative, uninformative = _last(ours.write_weights).T
    near_zero = uninformative < NEAR_ZERO
    return Row(
        "write weight of uninformative states near 0, of informative ones much larger",
        f"over the last 1/25: uninformative < {NEAR_ZERO}, informative > {MUCH_LARGER:g} × uninformative",
        f"informative {_small(informative)}, uninformative {_small(uninformative)}" + _unfinished(informative),
        (near_zero & (informative > MUCH_LARGER * uninformative)).tolist(),
        {"informative": informative.tolist(), "uninformative": uninformative.tolist()},
    )


def _query(config: dict[str, Any], ours: Curves) -> Row:
    bits = config["environment"]
    identifiers = bits["identifier_bits"]
    query = _last(ours.query_vectors)
    if query.shape[1] != len(identifiers):  # no bin of any seed is complete: no query tells the size
        query = np.full((len(ours.seeds), len(identifiers), bits["observation_size"]), np.nan)
    holds, parts = np.ones(len(ours.seeds), bool), []
    for d, own in enumerate(identifiers):
        informative, uninformative = query[:, d, bits["informative_bit"]], query[:, d, bits["uninformative_bit"]]
        holds &= informative > uninformative
        text = f"informative {_mean(informative, 2)} over uninformative {_mean(uninformative, 2)}"
        for other in identifiers:
            if other != own:
                holds &= query[:, d, own] > query[:, d, other]
                text += f", own identifier {_mean(query[:, d, own], 2)} over other {_mean(query[:, d, other], 2)}"
        parts.append(f"decision {d + 1}: {text}" if len(identifiers) > 1 else text)
    return Row(
        "a good query in every decision state",
        "over the last 1/25: the query's informative element exceeds its uninformative one"
        + (", its own decision's identifier the other's" if len(identifiers) > 1 else ""),
        "; ".join(parts) + _unfinished(query[:, 0, 0]),
        holds.tolist(),
        {"query_vectors": query.tolist()},
    )


def _convergence(config: dict[str, Any], ours: Curves) -> Row:
    paper = config["experiment"]["episodes"]
    solved = episodes_to_solve(ours.returns, config["agents"]["episodic"]["episodes"])
    # A seed that got there and then began to loop has not converged.
    solved = np.where(np.isnan(ours.returns[:, -1]), np.inf, solved)
    median = float(np.median(solved))
    reached = solved[np.isfinite(solved)]
    measured = f"median {median:,.0f} episodes" if np.isfinite(median) else "median: never"
    if 0 < len(reached) < len(solved):
        measured += f" ({len(reached)} of {len(solved)} seeds, at {', '.join(f'{e:,.0f}' for e in np.sort(reached))})"
    return Row(
        f"converges within about {paper:,} episodes",
        f"some 1/25 of the budget before that has a mean return > {RETURN}, and the seed finishes",
        measured,
        (solved <= paper).tolist(),
        {"episodes_to_solve": [float(e) if np.isfinite(e) else None for e in solved]},
    )


def _looping(config: dict[str, Any], ours: Curves) -> Row:
    lengths = last_block(ours.lengths) / config["environment"]["shortest_episode"]
    return Row(
        "no significant looping",
        f"the seed finishes, and episodes of the last 1/25 take ≤ {LOOPING} × the shortest",
        f"{_mean(lengths, 2)} × the shortest" + _unfinished(lengths),
        (lengths <= LOOPING).tolist(),
        {"relative_length": lengths.tolist()},
    )


def _beside_baseline(ours: Curves, baseline: Curves) -> Row:
    final, theirs = last_block(ours.returns), last_block(baseline.returns)
    # Where every run of the baseline loops there is no return to compare with, and finishing is enough.
    bar = -np.inf if np.isnan(theirs).all() else float(np.nanmean(theirs))
    return Row(
        "return no lower than the recurrent baseline's (in the paper for context)",
        "mean return over the last 1/25, each seed against the baseline's mean",
        f"{_mean(final)} beside {_mean(theirs)} ({len(theirs)} seeds{_unfinished(theirs)})" + _unfinished(final),
        (final >= bar).tolist(),
        {"return": final.tolist(), "baseline_return": theirs.tolist()},
    )
