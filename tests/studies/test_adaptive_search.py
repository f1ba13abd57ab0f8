"""Searches by Optuna: trials are kept and gone on with; a good setting is found."""

import pytest

pytest.importorskip("optuna", reason="Optuna is not installed: pip install 'recollect[search]'")

from recollect.studies import adaptive_search, benchmark, ranges

WITHIN = {"rate": ranges.Range(0.001, 1.0), "discount": ranges.Range(0.9, 0.9999, "gap")}


@pytest.mark.filterwarnings("default")
def test_a_stored_study_is_gone_on_with(tmp_path):
    tried = []

    def attempt(settings):
        tried.append(settings)
        return {"solved": 0, "whole": -abs(settings["rate"] - 0.1), "settings": settings}

    rows = adaptive_search.optimise(attempt, WITHIN, 5, tmp_path / "study", "a")
    assert [row["settings"] for row in rows] == tried and len(tried) == 5
    assert all(0.001 <= s["rate"] <= 1 and 0.9 <= s["discount"] <= 0.9999 for s in tried)
    more = adaptive_search.optimise(attempt, WITHIN, 40, tmp_path / "study", "a")
    assert len(tried) == 40 and more[:5] == rows
    assert abs(max(more, key=lambda row: row["whole"])["settings"]["rate"] - 0.1) < 0.05
    assert len(adaptive_search.optimise(attempt, WITHIN, 3, tmp_path / "study", "b")) == 3 and len(tried) == 43


@pytest.mark.filterwarnings("default")
def test_trials_under_other_fixed_options_are_of_another_study(tmp_path, monkeypatch):
    tried = []

    def attempt(task, agent, seeds, scale, fixed, drawn):
        tried.append(fixed)
        return {"solved": 0, "whole": 0.0, "fixed": fixed}

    monkeypatch.setattr(benchmark, "try_settings", attempt)
    for fixed in ({}, {"trace_decay": 0.5}, {"trace_decay": 0.9}, {"trace_decay": 0.5}):
        (row,) = adaptive_search.search("t-maze-5", "general", range(2), 1.0, 1, fixed, tmp_path / "study")
        assert row["fixed"] == fixed
    assert tried == [{}, {"trace_decay": 0.5}, {"trace_decay": 0.9}]
