"""Environments by name: those of others, through their own packages, and the T-maze."""

import gymnasium as gym
import numpy as np
import pytest

from recollect.envs import making
from recollect.envs.bsuite import BsuiteEnv
from recollect.envs.spaces import observations
from recollect.envs.t_maze import TMazeEnv
from recollect.errors import RecollectError

bsuite = pytest.importorskip("bsuite", reason="the extra `tasks` brings bsuite")
pytest.importorskip("popgym", reason="the extra `tasks` brings popgym")
pytest.importorskip("minigrid", reason="the extra `tasks` brings minigrid")


@pytest.mark.parametrize(
    ("env_id", "size"),
    [
        ("bsuite/memory_len/9", 3),
        ("bsuite/memory_size/3", 6),
        ("popgym-RepeatFirstEasy-v0", 4 + 2),
        ("MiniGrid-MemoryS7-v0", 7 * 7 * 20),
        ("recollect/TMaze-v0", 4),
        ("CartPole-v1", 4),
    ],
)
def test_environments_of_others(env_id, size):
    env = making.make(env_id)
    making.check(env, env_id)
    vector = observations(env.observation_space)
    out = np.zeros(vector.size, np.float32)
    observation, _ = env.reset(seed=0)
    over = False
    while not over:
        vector.write(observation, out)
        observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
        over = terminated or truncated
    assert vector.size == size
    env.close()


def test_bsuite_is_bsuites_own():
    """The same actions in the original, seeded the same, give the same observations and rewards."""
    env, original = BsuiteEnv("memory_len/4"), bsuite.load_from_id("memory_len/4")
    original._rng = np.random.RandomState(5)
    first, _ = env.reset(seed=5)
    timestep = original.reset()
    assert np.array_equal(first, timestep.observation)
    perfect = 0
    for t in range(60):
        timestep = original.step(t % 2)
        observation, reward, terminated, truncated, _ = env.step(t % 2)
        assert np.array_equal(observation, timestep.observation) and reward == timestep.reward and not truncated
        assert terminated == timestep.last()
        perfect += terminated and reward == 1
        if terminated:
            assert np.array_equal(env.reset()[0], original.reset().observation)
    assert env.info()["total_perfect"] == original.bsuite_info()["total_perfect"] == perfect > 0


def test_unknown_names():
    with pytest.raises(RecollectError, match="bsuite has no experiment 'nothing/0'"):
        making.make("bsuite/nothing/0")
    with pytest.raises(RecollectError, match=r"cannot make 'CartPole-v99'.*recollect envs"):
        making.make("CartPole-v99")


def test_a_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(making.BRINGS, "Nowhere-", "no_such_package")
    with pytest.raises(RecollectError, match=r"needs no_such_package: pip install 'recollect\[tasks\]'"):
        making.make("Nowhere-v0")


def test_the_listing_has_everyone():
    found = dict(making.listing())
    assert found["CartPole-v1"] == "gymnasium" and found["recollect/TMaze-v0"] == "recollect"
    assert found["bsuite/memory_len/0"] == "bsuite" and found["MiniGrid-MemoryS7-v0"] == "minigrid"


@pytest.mark.parametrize("oracle", [False, True])
def test_the_passive_maze(oracle):
    env = TMazeEnv(length=3, oracle=oracle, render_mode="ansi")
    cues = set()
    for seed in range(8):
        observation, _ = env.reset(seed=seed)
        cue = int(observation[1])
        cues.add(cue)
        assert observation.sum() == 1 and observation[:2].sum() == 1
        for _ in range(3):
            observation, reward, terminated, _, _ = env.step(1 - cue)
            assert observation.tolist() == [0, 0, 1, 0] and reward == 0 and not terminated
        observation, *_ = env.step(0)
        assert observation[3] == 1 and observation[cue] == oracle and env.render().endswith("[T]")
        _, reward, terminated, truncated, _ = env.step(cue if seed % 2 else 1 - cue)
        assert (reward, terminated, truncated) == (1.0 if seed % 2 else -1.0, True, False)
    assert cues == {0, 1}
    with pytest.raises(gym.error.ResetNeeded):
        env.step(0)


def test_the_active_maze_costs_what_does_not_lead_on():
    env = TMazeEnv(length=0, passive=False)
    first, _ = env.reset(seed=0)
    same, reward, *_ = env.step(0)
    assert reward == -0.1 and np.array_equal(same, first)
    assert env.step(2)[:2][1] == 0.0
    observation, reward, terminated, *_ = env.step(2)
    assert observation[3] == 1 and reward == -0.1 and not terminated
    assert env.step(int(first[1]))[1:3] == (1.0, True)
    for wrong in ({"length": -1}, {"length": 1.5}, {"render_mode": "human"}):
        with pytest.raises(ValueError, match="must be"):
            TMazeEnv(**wrong)


@pytest.mark.parametrize("env_id", ["a:b:c", ":CartPole-v1", ".a:b", "CartPole-v1:"])
def test_what_is_no_module_and_id_is_refused(env_id):
    with pytest.raises(RecollectError, match=f"^cannot make '{env_id}': MODULE:ID is an id with the module"):
        making.make(env_id)


class Picky(gym.Env):
    observation_space, action_space = gym.spaces.Discrete(2), gym.spaces.Discrete(2)

    def __init__(self, size=3, **more):
        if size > 3:
            len(size)
        super().__init__(**more)


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("CartPole-v1", r"^CartPole-v1 has no option 'nosuch'; it has .*sutton_barto_reward"),
        (
            "recollect/TMaze-v0",
            r"^recollect/TMaze-v0 has no option 'nosuch'; it has length, passive, oracle, render_mode$",
        ),
        ("MiniGrid-MemoryS7-v0", r"no option 'nosuch'; it has .*size"),
        ("popgym-RepeatFirstEasy-v0", "has no option 'nosuch'"),
        ("bsuite/memory_len/9", "no option 'nosuch'"),
        ("Picky-v0", "^Picky-v0 has no option 'nosuch'; it has size$"),
        ("Vague-v0", "^Vague-v0 has no option 'nosuch'$"),
    ],
)
def test_an_option_that_there_is_not_is_named(env_id, message, monkeypatch):
    monkeypatch.setattr(gym.envs.registration, "registry", dict(gym.envs.registration.registry))
    gym.register("Picky-v0", entry_point=Picky)
    gym.register("Vague-v0", entry_point=lambda **options: gym.make("CartPole-v1", **options))
    with pytest.raises(RecollectError, match=message):
        making.make(env_id, nosuch=1)


def test_a_type_error_of_the_environments_own_is_not_hidden(monkeypatch):
    monkeypatch.setattr(gym.envs.registration, "registry", dict(gym.envs.registration.registry))
    gym.register("Picky-v0", entry_point=Picky)
    with pytest.raises(TypeError, match="object of type 'int' has no len"):
        making.make("Picky-v0", size=4)
