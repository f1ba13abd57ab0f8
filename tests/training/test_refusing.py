"""What training refuses, with the numbers that say why."""

import numpy as np
import pytest

from recollect import RecollectError
from recollect.training import refusing


def test_what_does_not_fit():
    refusing.too_large(10, "states", "fewer", there=10)
    with pytest.raises(ValueError, match=r"states need 1,000 bytes, this machine has 10: take fewer"):
        refusing.too_large(1000, "states", "fewer", there=10)
    with pytest.raises(ValueError, match="this machine has"):
        refusing.too_large(2**63, "states", "fewer")


def test_what_is_not_finite():
    refusing.not_finite("env", [4, 5], np.zeros(2, int))
    with pytest.raises(RecollectError, match=r"seed 5: the environment gave .* not finite at step 1,000 of 'env'"):
        refusing.not_finite("env", [4, 5], np.array([0, 1000]))
    with pytest.raises(RecollectError, match="seed 4: the update was not finite at step 7"):
        refusing.not_finite("env", [4, 5], np.array([-7, 0]))
