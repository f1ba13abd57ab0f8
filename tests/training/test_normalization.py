"""Running statistics: at any scale, and only where something varies."""

import numpy as np
import pytest

from recollect import FileError
from recollect.training.normalization import Normalizer


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e-7, 1.0, 1e7, 1e30])
@pytest.mark.parametrize("mean", [0.0, 3.0])
def test_any_scale_comes_to_one(scale, mean):
    rng = np.random.default_rng(0)
    scaled = Normalizer(1, 1, True, True, 0.0)
    seen = []
    for _ in range(2000):
        vector = (scale * (mean + rng.normal(size=1))).astype(np.float32)
        scaled.observe(vector, 0)
        seen.append(vector[0])
    assert np.std(seen[500:]) == pytest.approx(1.0, rel=0.1)
    rewards = [scaled.reward(scale * rng.normal(), 0, False) for _ in range(2000)]
    assert np.std(rewards[500:]) == pytest.approx(1.0, rel=0.1)


@pytest.mark.parametrize("value", [0.0, 1e-20, 0.1, 1e20])
def test_what_does_not_vary_is_left_alone(value):
    scaled = Normalizer(1, 1, True, True, 0.0)
    for _ in range(100):
        vector = np.full(1, value, np.float32)
        scaled.observe(vector, 0)
        assert vector[0] == 0.0
    # returns that are the same but for the last bits
    found = [scaled.reward(x, 0, True) for x in (0.3, 0.1 + 0.2) * 50]
    assert found == pytest.approx([0.3] * 100)


def test_state_comes_back_and_what_cannot_be_is_refused():
    scaled = Normalizer(2, 2, True, True, 0.9, alone=True)
    rng = np.random.default_rng(0)
    for _ in range(10):
        for copy in range(2):
            scaled.observe(rng.normal(size=2), copy)
            scaled.reward(rng.normal(), copy, False)
    kept = scaled.state()
    again = Normalizer(2, 2, True, True, 0.9, alone=True)
    again.restore(kept)
    assert {k: v.tobytes() for k, v in again.state().items()} == {k: v.tobytes() for k, v in kept.items()}
    for name, value in (
        ("observations.count", -1),
        ("rewards1.squares", -1.0),
        ("observations1.mean", np.nan),
        ("returns", np.inf),
    ):
        forged = {**kept, name: np.full_like(kept[name], value)}
        with pytest.raises(FileError, match="the normaliser is not valid"):
            again.restore(forged)
