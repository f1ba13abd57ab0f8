"""What searches draw from."""

import numpy as np

from recollect.studies import ranges


def test_scales_of_a_range():
    half = np.array([0.5])
    assert ranges.Range(0.01, 1.0).at(half) == 0.1
    assert ranges.Range(0.0, 1.0, "linear").at(half) == 0.5
    assert ranges.Range(0.9, 0.999, "gap").at(half) == 0.99
    assert ranges.Range(0.0, 0.9999, "gap").at(half) == 0.99


def test_the_first_of_many_are_those_of_few():
    few, many = (ranges.draw(ranges.GRU, count, ["epsilon"]) for count in (3, 8))
    assert many[:3] == few and set(few[0]) == set(ranges.GRU) - {"epsilon"} and few[0] != few[1]


def test_shares_lead_back():
    for within in (ranges.Range(0.01, 1.0), ranges.Range(-6.0, 1.0, "linear"), ranges.Range(0.5, 0.9999, "gap")):
        for share in (0.0, 0.25, 1.0):
            np.testing.assert_allclose(within.share(within.at(np.array([share]))[0]), share, rtol=1e-4, atol=1e-5)


def test_near_a_centre():
    center = {
        "learning_rate": 0.001,
        "discount": 0.0,
        "entropy": 1e-6,
        "decay": 0.9,
        "epsilon": 1e-9,
        "update_start": 0,
    }
    found = ranges.draw_near(ranges.GRU, center, 40, ["epsilon"])
    assert found[0] == {option: center[option] for option in center if option != "epsilon"}
    assert found[:7] == ranges.draw_near(ranges.GRU, center, 7, ["epsilon"])
    for option, within in ranges.GRU.items():
        if option != "epsilon":
            own = center[option]
            values = [setting[option] for setting in found]
            assert own in values[1:] and len(set(values)) > 5
            assert min(values) >= min(within.low, own) and max(values) <= max(within.high, own)
            moved = np.std([within.share(value) for value in values])
            assert 0.01 < moved < 0.3, (option, moved)
