"""A learner as arrays and JSON, and back."""

import dataclasses
import re

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from recollect import FileError, GeneralActorCritic, Learner, RecollectError
from recollect.agents import settling as library
from recollect.agents.base import register
from recollect.agents.optimizers import Optax
from recollect.store import checkpoints
from recollect.training import saving
from recollect.training.resuming import resume
from training.probes import AGENT, Three


@pytest.mark.slow
def test_all_of_it_comes_back(tmp_path):
    learner = Learner(AGENT, Three, seed=3, copies=2, normalize_rewards=True, check=False)
    learner.advance(11)
    again = Learner.load(learner.save(tmp_path).parent, Three, check=False)
    for name, array in saving.arrays_of(learner).items():
        assert array.tobytes() == saving.arrays_of(again)[name].tobytes(), name
    assert saving.meta_of(again, False) == saving.meta_of(learner, False)


def test_where_a_learner_is(tmp_path):
    (tmp_path / "config.json").write_text("of another tool's")
    assert saving.place_of(tmp_path) == tmp_path and not saving.is_run_folder(tmp_path)
    (tmp_path / "checkpoints" / "learner").mkdir(parents=True)
    assert saving.place_of(tmp_path) == tmp_path / "checkpoints" / "learner"
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoints").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileError, match=r"it is a link"):
        saving.load(tmp_path / "run", fallback=False)


def test_a_run_that_is_under_way_says_when_its_first_checkpoint_comes(tmp_path):
    found = []

    def look(learner, row):
        for call in (lambda: saving.load(tmp_path / "run", fallback=False), lambda: learner.save("")):
            with pytest.raises((FileError, ValueError)) as refused:
                call()
            found.append(str(refused.value))

    Learner(AGENT, Three, check=False).learn(5, folder=tmp_path / "run", callbacks=[look], checkpoint_every=1000)
    assert re.search(r"run holds no checkpoint yet, and is being written by process \d+ .*comes 1000 s after", found[0])
    assert found[1] == "path='' must name a folder to save to; '.' is the current one"


def test_other_spaces_are_refused_and_old_words_for_the_same_are_not(tmp_path):
    learner = Learner(AGENT, Three, check=False)
    printed = {"observation": repr(Three.observation_space), "action": repr(Three.action_space)}
    saving.refuse_other_spaces(learner, {"spaces": printed}, tmp_path)
    for wrong in ({**printed, "action": "Discrete(3)"}, {"observation": "Box()"}):
        with pytest.raises(RecollectError, match=r"space"):
            saving.refuse_other_spaces(learner, {"spaces": wrong}, tmp_path)


def test_what_is_not_a_learner(tmp_path):
    checkpoints.save(tmp_path, {"x": np.zeros(1)}, {"kind": "other"})
    with pytest.raises(FileError, match=r"is a checkpoint of something else: other"):
        Learner.load(tmp_path, Three)


class Line:
    """A network of one's own."""

    def init(self, key, inputs, outputs, gain):
        return jnp.zeros((outputs, inputs))

    def apply(self, params, x):
        return params @ x


def test_an_agent_with_parts_of_ones_own_is_given_again(tmp_path):
    """No file describes such a part; given again, learning goes on to the same bits."""
    own = {"network": Line(), "critic_optimizer": Optax(optax.adamw(1e-3))}
    agent = GeneralActorCritic(memory_size=2, **own)
    learner = Learner(agent, Three, seed=1, check=False).learn(10, folder=tmp_path / "run")
    learner.save(tmp_path / "saved")
    learner.advance(10)
    with pytest.raises(FileError, match=r"saved.*'Line' is none of this release's.*agent=AGENT"):
        Learner.load(tmp_path / "saved", Three, check=False)
    with pytest.raises(RecollectError, match=r"not the one that was saved: memory_size: was 2, is 3"):
        Learner.load(tmp_path / "saved", Three, agent=GeneralActorCritic(memory_size=3, **own), check=False)
    again = Learner.load(tmp_path / "saved", Three, agent=agent, check=False)
    again.advance(10)
    for name, array in saving.arrays_of(learner).items():
        assert array.tobytes() == saving.arrays_of(again)[name].tobytes(), name
    assert resume(tmp_path / "run", Three, agent=agent).steps == 10


@pytest.mark.parametrize("wrong", ["general", GeneralActorCritic], ids=["name", "class"])
def test_what_is_no_agent_is_not_the_files_fault(tmp_path, wrong):
    Learner(AGENT, Three, check=False).save(tmp_path)
    with pytest.raises(TypeError, match=r"^agent=.* is no agent: give the one"):
        Learner.load(tmp_path, Three, agent=wrong, check=False)


def test_a_part_that_only_has_the_name_of_one_of_ours_is_ones_own(tmp_path):
    class Settling(library.Settling):
        def pace(self, reached, tried):
            return jnp.ones(())

    register(dataclasses.dataclass(frozen=True)(Settling))
    agent = GeneralActorCritic(memory_size=2, settling=Settling(slowest=0.5))
    Learner(agent, Three, check=False).save(tmp_path)
    with pytest.raises(FileError, match=r"Settling' is none of this release's.*agent=AGENT"):
        Learner.load(tmp_path, Three, check=False)
    assert Learner.load(tmp_path, Three, agent=agent, check=False).agent.settling.slowest == 0.5
