"""MiniGrid's view, compiled: what the package's own code gives, cell by cell."""

import gymnasium as gym
import numpy as np
import pytest

from recollect.envs import making
from recollect.envs.spaces import observations
from recollect.errors import RecollectError

pytest.importorskip("minigrid", reason="the extra `tasks` brings minigrid")


@pytest.mark.parametrize(
    ("env_id", "options"),
    [
        ("MiniGrid-MemoryS7-v0", {}),
        ("MiniGrid-MemoryS11-v0", {"agent_view_size": 3}),
        ("MiniGrid-DoorKey-5x5-v0", {"agent_view_size": 5}),  # doors that open, a key that is carried
        ("MiniGrid-Empty-5x5-v0", {}),  # walls hide nothing
        ("MiniGrid-Dynamic-Obstacles-6x6-v0", {}),  # things that move
        ("BabyAI-PickupLoc-v0", {}),
    ],
)
def test_the_view_is_minigrids_own(env_id, options):
    from minigrid.envs.doorkey import DoorKeyEnv
    from minigrid.wrappers import ImgObsWrapper, OneHotPartialObsWrapper

    env = making.make(env_id, **options)
    original = ImgObsWrapper(OneHotPartialObsWrapper(gym.make(env_id, **options)))
    actions, changes = np.random.default_rng(1), 0
    for seed in range(4):
        (seen, _), (expected, _) = env.reset(seed=seed), original.reset(seed=seed)
        assert np.array_equal(seen, expected)
        for _ in range(150):
            action = actions.integers(env.action_space.n)  # type: ignore[attr-defined]
            seen, *rest = env.step(action)
            expected, *others = original.step(action)
            assert np.array_equal(seen, expected) and rest == others
            changes += getattr(env.unwrapped, "carrying", None) is not None
            if rest[1] or rest[2]:
                break
    assert changes or not isinstance(env.unwrapped, DoorKeyEnv)


def test_a_view_of_an_environments_own_is_left_alone():
    from minigrid.envs.empty import EmptyEnv

    class Blind(EmptyEnv):
        def gen_obs(self):
            return {**super().gen_obs(), "image": np.zeros((7, 7, 3), np.uint8)}

    from recollect.envs.minigrid import View, quicken

    env = Blind()
    quicken(env)
    seen, _ = View(env).reset(seed=0)
    assert (seen[..., 0] == 1).all()  # unseen, everywhere


def test_named_things_alone():
    everything, some = (making.make("MiniGrid-MemoryS7-v0", **o) for o in ({}, {"things": ["wall", "key", "ball"]}))
    assert observations(some.observation_space).shape is None  # a vector, not a picture
    for seed in range(5):
        (whole, _), (part, _) = everything.reset(seed=seed), some.reset(seed=seed)
        assert np.array_equal(part.reshape(7, 7, 3), whole[..., [2, 5, 6]]) and part in some.observation_space
    with pytest.raises(RecollectError, match="MiniGrid has no 'walls'"):
        making.make("MiniGrid-MemoryS7-v0", things=["walls"])
