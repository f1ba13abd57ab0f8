"""What a learner is made of, and what is refused before anything is made."""

import gymnasium as gym
import numpy as np
import pytest

from recollect.envs.spaces import SpaceError
from recollect.errors import RecollectError
from recollect.training.assembly import assemble
from recollect.training.env_pool import Copies
from training.probes import AGENT, Three

USUAL = {"seed": 0, "copies": 1, "learners": "one", "env_options": None, "normalize": (False, False)}
USUAL |= {"pictures": "auto", "engine": "auto", "check": False}


@pytest.mark.slow
def test_the_parts_fit():
    parts = assemble(AGENT, Three, **{**USUAL, "copies": np.int64(3), "seed": np.int8(5)})
    assert isinstance(parts.fleet, Copies) and len(parts.fleet.envs) == 3 and parts.shared
    assert (parts.vector.size, parts.actions.outputs, parts.seed, type(parts.copies)) == (2, 2, 5, int)
    assert parts.fleet.seeds == [(5, 0), (5, 1), (5, 2)] and parts.made is None
    each = assemble(AGENT, Three, **{**USUAL, "copies": 2, "learners": "each", "seed": 5})
    assert each.fleet.seeds == [(5, 0), (6, 0)] and not each.shared


def test_an_id_is_remembered_with_its_options():
    parts = assemble(AGENT, "recollect/TMaze-v0", **{**USUAL, "env_options": {"length": np.int64(2)}})
    assert parts.made == {"id": "recollect/TMaze-v0", "options": {"length": 2}}
    assert parts.source.make().observation_space == parts.observation_space


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"seed": 2**31 - 1, "copies": 2}, ValueError, "must be a whole number between 0"),
        ({"seed": -1}, ValueError, "seed=-1 must be"),
        ({"copies": 0}, ValueError, "copies=0"),
        ({"pictures": "some"}, ValueError, "pictures='some'"),
        ({"env_options": {"a": 1}}, ValueError, "env_options go with an id"),
    ],
)
def test_what_is_refused(change, error, message):
    with pytest.raises(error, match=message):
        assemble(AGENT, Three, **{**USUAL, **change})


def test_a_function_that_gives_the_same_environment_again_is_refused():
    """Also within another wrapper, and for the last of several copies: two agents would step one episode."""
    env = Three()
    given = iter([Three(), Three(), env, env])
    for make, copies in ((lambda: env, 2), (lambda: gym.wrappers.TimeLimit(env, 2), 2), (lambda: next(given), 4)):
        with pytest.raises(RecollectError, match=r"^Three: the function returned the same environment twice"):
            assemble(AGENT, make, **{**USUAL, "copies": copies})
    assert assemble(AGENT, lambda: env, **USUAL).fleet.envs == [env]


def test_spaces_that_hold_nothing_are_refused():
    class Empty(Three):
        observation_space = gym.spaces.Box(-1, 1, (0,), np.float32)

    class Idle(Three):
        action_space = gym.spaces.Box(-1, 1, (0,), np.float32)

    for env in (Empty, Idle):
        with pytest.raises(SpaceError, match="holds no numbers"):
            assemble(AGENT, env, **USUAL)
