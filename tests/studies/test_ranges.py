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
