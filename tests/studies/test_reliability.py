"""The long measurements, short: an episode that never ends, what a checkpoint costs, what a soak says."""

import numpy as np
import pytest

from recollect.errors import RecollectError
from recollect.studies import reliability
from recollect.studies.reliability import Sample, judge

pytestmark = pytest.mark.slow


def test_an_endless_episode_stays_flat():
    """40,000 steps of one episode; ``recollect lab endless`` is the same for ten million."""
    rows = reliability.endless(40_000, parts=5, memory_size=3)
    assert len(rows) >= 4 and rows[-1]["steps"] == 40_000
    memory = [row["resident_mib"] for row in rows]
    assert memory[-1] - memory[0] < 2.0
    speeds = [row["steps_a_second"] for row in rows]
    # Machines are noisy, growth is not: were a step's cost to grow with the episode, the halves would differ by far.
    assert np.median(speeds[len(speeds) // 2 :]) > 0.4 * np.median(speeds[: len(speeds) // 2])


def test_a_checkpoint_costs_less_than_2_percent():
    """At the default of 60 s, snapshot and save in full; ``recollect lab checkpoints`` prints the figures."""
    found = reliability.checkpoint_cost(seconds=1.0, saves=5)
    assert found["share_every_60_s"] < 0.02 and found["bytes"] < 200_000


def test_a_soak_of_seconds(tmp_path):
    """Until it has looked four times after the first checkpoint; ``recollect lab soak`` is the same for an hour."""
    found = reliability.soak(0.1, 0.2, tmp_path / "soak", lambda text: None, look=0.2)
    assert found["checkpoints"] > 1 and found["steps"] > 0 and found["failures"] == found["damaged"] == []


def test_what_a_soak_says():
    flat = [Sample(10.0 * k, 500 * 2**20, 7, 1000 * k, k % 50, k // 50) for k in range(100)]
    found = judge(flat)
    assert found["resident_mib_an_hour"] == 0 and found["handles_max"] == found["handles_min"] == 7
    assert found["checkpoints"] == 98
    leaking = [s._replace(resident=s.resident + 2**20 * k, handles=7 + k // 20) for k, s in enumerate(flat)]
    found = judge(leaking)
    assert found["resident_mib_an_hour"] == pytest.approx(360) and found["handles_max"] > found["handles_min"]
    with pytest.raises(RecollectError, match="too short"):
        judge(flat[:3])
