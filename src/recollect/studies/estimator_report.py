"""What ``recollect lab estimators`` reports: each estimator's bias by query, by dependence, by agent and by chance."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from recollect.studies.estimators import (
    PATH,
    SEPARATE,
    Tables,
    compare,
    expected_estimates,
    expected_return,
    gradient,
    law_error,
    make_tables,
    monte_carlo,
    random_agents,
)

PROBLEMS = {"separate": SEPARATE, "path": PATH}


def _by_query(n: int, odds: float) -> dict:
    agent = make_tables(odds=odds)
    truth, found = gradient(SEPARATE, agent, n), expected_estimates(SEPARATE, agent, n)
    row: dict = {"n": n, "odds": odds, "return": float(expected_return(SEPARATE, agent, n))}
    for name, estimate in found.items():
        bias, cosine = compare(estimate, truth, agent.weights)
        row |= {f"{name}_bias": float(bias), f"{name}_cosine": float(cosine)}
    return row


def _by_dependence(n: int, follow: float) -> dict:
    agent = make_tables(follow=(follow, 0.9), lean=0.5)
    bias, cosine = compare(expected_estimates(PATH, agent, n)["every"], gradient(PATH, agent, n), agent.weights)
    return {
        "n": n,
        "follow": follow,
        "law_error": law_error(PATH, agent, n),
        "every_bias": float(bias),
        "every_cosine": float(cosine),
    }


def _by_agent(kind: str, name: str, n: int, agents: Tables) -> Iterator[dict]:
    truth = gradient(PROBLEMS[name], agents, n)
    for sees in ("history", "state"):
        for estimator, estimate in expected_estimates(PROBLEMS[name], agents, n, sees).items():
            bias, cosine = compare(estimate, truth, agents.weights)
            yield {
                "agents": kind,
                "problem": name,
                "n": n,
                "critic": sees,
                "estimator": estimator,
                "median_bias": float(np.median(bias)),
                "worst": float(np.max(bias)),
                "min_cosine": float(np.min(cosine)),
                "uphill": float(np.mean(cosine > 0)),
            }


def _by_chance(name: str, n: int, estimator: str, episodes: int) -> dict:
    agent = make_tables()
    expected = expected_estimates(PROBLEMS[name], agent, n)[estimator]
    drawn = monte_carlo(PROBLEMS[name], agent, n, estimator, episodes)
    deviation = drawn.std(axis=0)
    seen = deviation > 0
    z = (drawn.mean(axis=0) - expected)[seen] / (deviation[seen] / math.sqrt(episodes))
    return {
        "problem": name,
        "n": n,
        "estimator": estimator,
        "episodes": episodes,
        "gradient_length": float(np.linalg.norm(gradient(PROBLEMS[name], agent, n) * agent.weights)),
        "noise": float(np.linalg.norm(deviation * agent.weights)),
        "largest_z": float(np.max(np.abs(z))),
    }


def report(episodes: int = 100_000, agents: int = 2_000, sizes: tuple[int, ...] = (1, 2, 3)) -> dict[str, list[dict]]:
    """Every figure that the documentation quotes, as rows.

    query: bias of the queried-only estimator against the odds of the right recall, where states do not depend on the
    memory. dependence: bias of the estimator over every item against how much the first decision tells of the memory,
    where they do. agents: both, over random agents, for a critic that sees the history and one that sees the state.
    monte_carlo: the agent's own code against the enumerated expectation, and its noise.

    Args:
        episodes: of each Monte Carlo estimate.
        agents: how many random agents of each kind.
        sizes: memory sizes of the last two tables.
    """
    able, extreme = random_agents("able", agents), random_agents("any", agents)
    return {
        "query": [_by_query(n, odds) for n in (2, 3) for odds in (0.3, 1.0, 3.0, 10.0, 100.0, 1e6)],
        "dependence": [_by_dependence(n, follow) for n in (1, 2) for follow in (0.5, 0.7, 0.9, 1.0)],
        "agents": [
            *(row for name in PROBLEMS for n in sizes for row in _by_agent("able", name, n, able)),
            *(row for n in (1, 2) for row in _by_agent("any", "path", n, extreme)),
        ],
        "monte_carlo": [
            _by_chance(name, n, estimator, episodes)
            for n in sizes
            for estimator in (("queried",) if n == 1 else ("every", "queried"))  # the same for n = 1
            for name in PROBLEMS
        ],
    }


TITLES = {
    "query": "states independent of the memory: bias by odds of recalling the decision's sign",
    "dependence": "states that depend on the memory: bias by chance of following sign 1, which the next state shows",
    "agents": "random agents: bias, least cosine, and share of them for which the expected update goes uphill",
    "monte_carlo": "the agent's own code against the enumerated expectation",
}


def tables(rows: dict[str, list[dict]]) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """The report as (title, columns, rows of text), ready to print."""
    for name, table in rows.items():
        columns = list(table[0])
        yield (
            TITLES[name],
            [column.replace("_", " ") for column in columns],
            [[_text(v) for v in row.values()] for row in table],
        )


def _text(value: Any) -> str:
    """A cell; what is 0 but for rounding reads 0."""
    if not isinstance(value, float):
        return str(value)
    return "0" if abs(value) < 1e-9 else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
