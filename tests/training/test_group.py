"""What every engine's runs have in common: the form of their snapshots, and when they are over."""

import jax
import numpy as np
import pytest

from recollect import EpisodicActorCritic, FileError, SecretInformant
from recollect.engines import loop
from recollect.store import trees
from recollect.training.group import Group, Limits, state_like

AGENT, ENV = EpisodicActorCritic(memory_size=2, hidden=3), SecretInformant(3)
LIMITS = Limits(episodes=20, bin_size=5, max_episode_length=100, max_steps=10**6)


class Counted(Group):
    """Runs that only count: an episode of each per record."""

    steps = episodes = faults = np.zeros(2, np.int64)
    agent_states = None

    def _begin(self, agent, saved):
        self.saved = saved

    def advance(self):
        self.taken += loop.RECORD
        self.episodes = self.episodes + 1
        self.steps = self.steps + loop.RECORD
        return []

    def _all_runs(self):
        like = state_like(AGENT, ENV, 2, 4)["runs"]
        return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), like._replace(key=np.uint32(0)))


def counted(records=None, state=None):
    return Counted("cpu", AGENT, ENV, (0, 1), LIMITS, records, state)


def test_snapshots_have_one_form_whatever_the_engine():
    shapes = trees.shapes(state_like(AGENT, ENV, 3, 4))
    assert shapes["runs.sums"] == ((3, 4, 3), "float32") and shapes["taken"] == ((), "int64")
    assert shapes["collected.returns"] == ((3, 4), "float64")
    assert all(shape[0] == 3 for name, (shape, _) in shapes.items() if name.startswith("runs."))


@pytest.mark.parametrize("records", [None, 1, 7])
def test_runs_end_after_a_whole_number_of_records(records):
    """What comes after a run's end is in its state, so it must not depend on how calls divide the records."""
    group, calls = counted(records), 0
    while not group.over:
        group.advance()
        calls += 1
    assert calls == loop.WHOLE and group.taken == calls * loop.RECORD
    assert group.result().finished.all() and group.result().episodes.tolist() == [5, 10, 15, 20]


def test_another_state_is_refused():
    with pytest.raises(FileError, match="the state is of something else"):
        counted(state={"taken": np.int64(3)})
