"""What a caller gives, as Python's own numbers."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from recollect.training import arguments


@pytest.mark.parametrize("value", [20, np.int64(20), np.uint8(20), np.array(20), jnp.int32(20)])
def test_counts(value):
    found = arguments.count("steps", value)
    assert found == 20 and type(found) is int


@pytest.mark.parametrize("value", [0, -1, 2.0, True, "20", None, np.float64(20), np.array([20, 20])])
def test_what_is_no_count(value):
    with pytest.raises(ValueError, match=r"steps=.* must be an integer of at least 1"):
        arguments.count("steps", value)


def test_copies_and_flags():
    assert arguments.copy(np.int64(1), 2) == 1 and arguments.flag("check", np.bool_(True)) is True
    for wrong in (-1, 2, 1.0, True, None, "0"):
        with pytest.raises(ValueError, match=r"^copy=.* must be a whole number from 0 to 1, one of 2 copies"):
            arguments.copy(wrong, 2)
    for wrong in ("no", "False", 0, None):
        with pytest.raises(ValueError, match=r"^check=.* must be True or False"):
            arguments.flag("check", wrong)


def test_seconds():
    assert [arguments.seconds("every", x) for x in (np.float32(0.5), 3, math.inf, 10**400)] == [
        0.5,
        3.0,
        math.inf,
        math.inf,
    ]
    for wrong in (0, -1.0, math.nan, "60", True):
        with pytest.raises(ValueError, match=r"every=.* must be a number of seconds greater than 0"):
            arguments.seconds("every", wrong)


def test_rewards():
    assert [arguments.reward("reward", x) for x in (np.float32(0.5), 3, np.array(-2))] == [0.5, 3.0, -2.0]
    for wrong in (math.nan, -math.inf, 1e39, "1", None, True, np.ones(2)):
        with pytest.raises(ValueError, match=r"reward=.* must be a finite number"):
            arguments.reward("reward", wrong)


def test_seeds():
    assert arguments.seed("seed", np.int64(0)) == 0
    for wrong in (-1, 1.0, True, "0", 2**63):
        with pytest.raises(ValueError, match=r"seed=.* must be a whole number between 0 and 2\^63 - 1"):
            arguments.seed("seed", wrong)
