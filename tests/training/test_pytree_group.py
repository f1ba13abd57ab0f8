"""Runs under way on the compiled loop: those of agents whose lanes share their loops, and how often they report."""

import jax
import numpy as np
import pytest

from recollect import RecurrentActorCritic, SecretInformant
from recollect.training import batch, pytree_group
from recollect.training.reports import Progress, Result

pytestmark = pytest.mark.slow
ENV = SecretInformant(3, 1)


def reports_of(seeds=(0,), episodes=400, bins=4, **options):
    named = {name: options.pop(name) for name in ("max_steps", "records_per_call", "state") if name in options}
    agent = RecurrentActorCritic(**{"width": 5, **options})
    return list(batch.train_iter(agent, ENV, episodes, seeds, bins=bins, engine="cpu", **named))


def bits(result, place):
    """All of one run: every array of the agent, and its curves."""
    leaves = [np.asarray(x)[place].tobytes() for x in jax.tree.leaves(result.agent_states)]
    return [*leaves, result.returns[place].tobytes(), result.lengths[place].tobytes(), int(result.steps[place])]


@pytest.fixture(scope="module")
def many():
    return reports_of(range(6))


def test_reports_and_result(many):
    *reports, result = many
    assert reports and all(isinstance(r, Progress) for r in reports) and isinstance(result, Result)
    assert result.engine == "cpu" and result.finished.all() and result.returns.shape == (6, 4)
    assert result.steps.tolist() == (result.lengths.sum(axis=1) * 100).round().astype(int).tolist()
    for seed, returns in enumerate(result.returns):
        new = [line for r in reports for line in r.new_bins if line["seed"] == seed]
        assert [line["episodes"] for line in new] == [100, 200, 300, 400]
        assert [line["return"] for line in new] == returns.tolist()
    assert reports[-1].total_steps == result.steps.sum()
    assert np.isnan(result.write_weights).all()


def test_company_changes_nothing(many, monkeypatch):
    """Not a bit, though the loops of a block of runs are as long as the longest of their episodes."""
    for seeds in ((4,), (5, 4)):
        few = reports_of(seeds)[-1]
        for place, seed in enumerate(seeds):
            assert bits(few, place) == bits(many[-1], seed)
    assert len({bits(many[-1], place)[0] for place in range(6)}) == 6
    monkeypatch.setattr(pytree_group, "SECONDS", 0.0)  # every call as short as the first
    slow = reports_of(range(6))
    assert len(slow) > len(many) and bits(slow[-1], 2) == bits(many[-1], 2)


def test_a_call_grows_to_what_half_a_second_allows(many):
    taken = np.diff([0, *(report.steps for report in many[:-1])])
    growing = taken[:-1]  # the last call has what is left
    assert growing[0] == 500 and (growing[1:] >= growing[:-1]).all() and growing[-1] > 500


def test_it_goes_on_from_a_snapshot(many):
    saved = many[0].snapshot()
    rest = reports_of(range(6), state=saved, records_per_call=1)[-1]
    assert all(bits(rest, place) == bits(many[-1], place) for place in range(6))


def test_a_learning_rate_a_seed():
    both = reports_of((3, 3), learning_rate=np.array([0.001, 0.01]))[-1]
    for place, rate in enumerate((0.001, 0.01)):
        assert bits(reports_of((3,), learning_rate=rate)[-1], 0) == bits(both, place)


def test_a_run_that_takes_too_long_is_ended():
    *_, result = reports_of(max_steps=700)
    assert result.steps[0] == 700 and not result.finished[0] and np.isnan(result.returns[0, -1])


def test_the_baseline_learns_to_remember():
    """A chain of three, one informative state: guessing gives 1/3."""
    result = reports_of(range(4), episodes=6000, bins=6, learning_rate=0.003)[-1]
    assert np.median(result.returns[:, -1]) > 0.9
