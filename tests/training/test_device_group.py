"""Runs on a GPU as training sees them; ``tests/engines/compiler`` has the kernels, here a stand-in counts."""

import numpy as np
import pytest

from recollect import EpisodicActorCritic, SecretInformant
from recollect.engines import compiled_gpu, loop
from recollect.training.device_group import DeviceGroup
from recollect.training.group import Limits

ENV = SecretInformant(3)


class Runs:
    """Five episodes of each run per record, which return 1 and take 4 steps; how often it was asked is counted."""

    def __init__(self, agents, env, limits, device):
        self.episodes, self.asked, self.bins = np.zeros(2, np.int32), 0, limits.episodes // limits.bin_size
        self.queries = env.decision_states().shape

    def begin(self, seeds):
        assert seeds == (7, 8)

    def advance(self, records):
        self.episodes = self.episodes + np.int32(5 * records)

    def counters(self):
        return 4 * self.episodes, self.episodes, np.zeros(2, np.int32)

    def sums(self):
        done = np.clip(self.episodes[:, None] - 5 * np.arange(self.bins), 0, 5).astype(np.float32)
        return np.stack([done, 4 * done, done], axis=-1)

    def collected(self):
        self.asked += 1
        weights = np.arange(2 * self.bins * 2, dtype=np.float32).reshape(2, self.bins, 2)
        return compiled_gpu.Collected(None, weights, np.ones((2, self.bins, *self.queries), np.float32))


@pytest.fixture
def group(monkeypatch):
    monkeypatch.setattr(compiled_gpu, "Runs", Runs)
    limits = Limits(episodes=20, bin_size=5, max_episode_length=100, max_steps=10**6)
    return DeviceGroup("compiled-gpu", EpisodicActorCritic(memory_size=2, hidden=3), ENV, (7, 8), limits, 1, None)


def test_bins_come_as_they_are_completed_and_weights_when_they_are_looked_at(group):
    new = group.advance()
    assert len(new) == 2 and group._runs.asked == 0
    assert [(line["seed"], line["episodes"], line["return"], line["length"]) for line in new] == [
        (7, 5, 1.0, 4.0),
        (8, 5, 1.0, 4.0),
    ]
    assert new[0]["write_weights"] == [0.0, 1.0] and group._runs.asked == 1
    assert group.taken == loop.RECORD and group.recent_return() == 1.0


def test_a_result_has_all_of_it(group):
    for _ in range(4):
        group.advance()
    group._runs.agent_states = lambda: "states"
    result = group.result()
    assert result.finished.all() and result.agent_states == "states" and result.steps.tolist() == [80, 80]
    assert result.write_weights[1].tolist() == [[8.0, 9.0], [10.0, 11.0], [12.0, 13.0], [14.0, 15.0]]
