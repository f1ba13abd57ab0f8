"""The write-gradient estimators against the gradient itself, enumerated; and the agent's own code against both."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from recollect.reservoir import law
from recollect.studies import estimator_report as r
from recollect.studies import estimators as e
from recollect.studies.estimators import PATH, SEPARATE

pytestmark = pytest.mark.slow

PROBLEMS = pytest.mark.parametrize("problem", [SEPARATE, PATH], ids=["separate", "path"])
SIZES = pytest.mark.parametrize("n", [1, 2, 3])
MANY = e.random_agents("any", 50)


def assert_close(a, b, agents=MANY):
    """Relative to the length of the second, by log w."""
    assert np.max(np.linalg.norm((a - b) * agents.weights, axis=0)) < 1e-12
    assert np.max(e.compare(a, b, agents.weights)[0]) < 1e-8


# -- the enumeration


@PROBLEMS
@SIZES
def test_gradient_is_the_slope_of_the_enumerated_return(problem, n):
    agent, h = e.make_tables(), 1e-5
    slopes = []
    for bump in h * np.eye(e.NOTHING):
        up, down = (agent._replace(weights=agent.weights + sign * bump) for sign in (1, -1))
        slopes.append((e.expected_return(problem, up, n) - e.expected_return(problem, down, n)) / (2 * h))
    np.testing.assert_allclose(e.gradient(problem, agent, n), slopes, atol=1e-9)


def test_expected_return_by_hand():
    """Signs always followed and asked for, n = 3: the first decision is sure, the second needs sign 2 still there."""
    agent = e.make_tables(follow=(1.0, 1.0), lean=0.5, odds=1e12)
    chances = []
    for a, b in itertools.product((0, 1), repeat=2):
        w = agent.weights[[a, 2 + b, e.DECOY, e.FIRST]]
        there = law.inclusion_probabilities(np.log(w), 3)[1]
        chances.append(0.5 + 0.5 * (there + (1 - there) * 0.5))
    assert e.expected_return(SEPARATE, agent, 3) == pytest.approx(np.mean(chances), abs=1e-9)
    both = [2 * c - 1 for c in chances]  # with the path, the reward needs the second to be right as well as the first
    assert e.expected_return(PATH, agent, 3) == pytest.approx(np.mean(both), abs=1e-9)


@SIZES
def test_memory_follows_the_product_law_where_states_do_not_depend_on_it(n):
    agent = e.make_tables()
    for layer in e._walk(SEPARATE, agent, n):
        for fact, history in {(fact, history) for fact, history, _ in layer}:
            found = {kept: p for (f, h, kept), p in layer.items() if (f, h) == (fact, history)}
            seen = len(history) - 1
            expected = law.enumerate_law([float(agent.weights[s]) for s in history[:-1]], min(n, seen))
            assert {kept: p * 24 for kept, p in found.items()} == pytest.approx(expected)
    assert e.law_error(SEPARATE, agent, n) < 1e-12


@PROBLEMS
@SIZES
def test_the_weights_scale_does_not_matter(problem, n):
    """E[R] depends on ratios of weights alone: the gradient by log w sums to 0."""
    by_log = e.gradient(problem, MANY, n) * MANY.weights
    assert np.max(np.abs(by_log.sum(axis=0))) < 1e-12 < np.max(np.abs(by_log))


# -- the paper's claims


@SIZES
def test_over_every_item_it_is_the_gradient(n):
    """Eq. (9), perfect critic, states independent of the memory: unbiased for any agent, to rounding."""
    assert_close(e.expected_estimates(SEPARATE, MANY, n)["every"], e.gradient(SEPARATE, MANY, n))


@SIZES
def test_both_have_the_expectation_the_paper_states(n):
    found, stated = e.expected_estimates(SEPARATE, MANY, n), e.stated_expectations(SEPARATE, MANY, n)
    for name in ("every", "queried"):
        assert_close(found[name], stated[name])


@PROBLEMS
def test_with_one_state_of_memory_they_are_the_same(problem):
    found = e.expected_estimates(problem, MANY, 1)
    assert np.array_equal(found["every"], found["queried"])


@pytest.mark.parametrize(
    "n, odds, bias, cosine", [(2, 1.0, 1.48, 0.963), (2, 1e6, 0.289, 0.988), (3, 3.0, 2.03, 0.495)]
)
def test_bias_of_crediting_the_recalled_item_alone(n, odds, bias, cosine):
    row = r._by_query(n, odds)
    assert row["every_bias"] < 1e-12
    assert (row["queried_bias"], row["queried_cosine"]) == pytest.approx((bias, cosine), rel=2e-3)


@pytest.mark.parametrize("n, follow, bias", [(1, 0.5, 0.0), (1, 0.9, 0.0116), (2, 0.5, 0.0), (2, 1.0, 0.0193)])
def test_bias_of_taking_states_and_memory_to_be_independent(n, follow, bias):
    """None where the first decision ignores what is recalled, and about one hundredth where it follows it."""
    row = r._by_dependence(n, follow)
    assert row["every_bias"] == pytest.approx(bias, rel=5e-3, abs=1e-12)
    assert (row["law_error"] > 0.1) == (follow > 0.5)


def test_where_the_assumption_fails_the_stated_expectations_fail_too():
    agent = e.make_tables()
    found, stated = (f(PATH, agent, 2)["every"] for f in (e.expected_estimates, e.stated_expectations))
    assert e.compare(stated, found, agent.weights)[0] > 0.1


@PROBLEMS
@SIZES
def test_a_critic_of_the_state_alone_adds_bias_unless_messages_are_treated_alike(problem, n):
    alike = e.make_tables(lean=0.5, weights=(0.6, 0.6, 0.4, 0.4, 0.7, 0.2, 0.5, 0.5))
    for agent, differ in ((alike, False), (e.make_tables(), True)):
        by_history, by_state = (e.expected_estimates(problem, agent, n, sees) for sees in ("history", "state"))
        for name in ("every", "queried"):
            distance = e.compare(by_state[name], by_history[name], agent.weights)[0]
            assert distance > 0.05 if differ else distance < 1e-3


# -- the agent's own code


@pytest.fixture(scope="module")
def drawn():
    return r.report(episodes=20_000, agents=20, sizes=(2,))


def test_the_agents_own_code_agrees_with_the_enumeration(drawn):
    """Every component within 4 standard errors; with more than one state stored Eq. (10) is the less noisy one."""
    rows = drawn["monte_carlo"]
    assert len(rows) == 4
    assert max(row["largest_z"] for row in rows) < 4
    noise = {(row["problem"], row["n"], row["estimator"]): row["noise"] for row in rows}
    for problem in ("separate", "path"):
        assert noise[problem, 2, "queried"] < 0.75 * noise[problem, 2, "every"]


def test_the_report_can_be_printed(drawn):
    for (title, columns, rows), table in zip(r.tables(drawn), drawn.values(), strict=True):
        assert title and len(rows) == len(table)
        assert all(len(row) == len(columns) and all(isinstance(cell, str) for cell in row) for row in rows)


def test_the_documentation_quotes_the_report(drawn):
    """The two tables of enumerated figures in docs/estimators.md, row by row."""
    text = (Path(__file__).parents[2] / "docs" / "estimators.md").read_text()
    for row in drawn["query"]:
        cells = (
            f"{row['odds']:,.7g}",
            f"{row['return']:.3f}",
            f"{row['queried_bias']:.2f}",
            f"{row['queried_cosine']:.2f}",
        )
        assert f"| {row['n']} | {' | '.join(cells)} |" in text
    for row in drawn["dependence"]:
        cells = (
            f"{row['follow']:.1f}",
            f"{row['law_error']:.2f}",
            f"{row['every_bias']:.4f}",
            f"{row['every_cosine']:.4f}",
        )
        assert f"| {row['n']} | {' | '.join(cells)} |" in text
