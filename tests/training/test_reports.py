"""What training says, while it trains and in the end."""

import dataclasses

import numpy as np
import pytest

from recollect.training.reports import Progress, Result


def test_a_report_of_few_words():
    """Those that no loop made, as tests and executors make them, have nothing to continue from."""
    report = Progress(50, 150, np.zeros(3), [], 0.5)
    assert report.snapshot() == {} and report.choice.engine == "jax" and report.choice.passed_over == {}


def test_a_result_stays_as_it_is():
    some = np.zeros(1)
    result = Result((0,), *[some] * 7, agent_states=None)
    assert result.engine == "" and result.passed_over == {}
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.engine = "cpu"  # type: ignore[misc]
