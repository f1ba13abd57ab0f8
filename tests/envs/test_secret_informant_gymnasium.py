"""The Gymnasium face of the secret informant problem: the same dynamics, Gymnasium's own checks, the pictures."""

import subprocess
import sys

import gymnasium as gym
import jax
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from scipy import stats

from recollect.envs import FORWARD, Instance, SecretInformant
from recollect.envs import gymnasium as module
from recollect.envs.gymnasium import SecretInformantEnv, register

ID = "recollect/SecretInformant-v0"
SETTINGS = [
    {"length": 10, "decisions": 1, "actions": 3},
    {"length": 10, "decisions": 2, "actions": 3},
    {"length": 4, "decisions": 4, "actions": 2, "correct_path_bit": False},
    {"length": 1, "decisions": 1, "actions": 5},
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_parity_with_jax(settings):
    env, game = SecretInformant(**settings), SecretInformantEnv(**settings)
    runs, steps = 24, 60
    rng = np.random.default_rng(3)
    actions = rng.integers(env.num_actions, size=(runs, steps))
    actions[rng.random(actions.shape) < 0.5] = FORWARD
    states, firsts = jax.device_get(jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(4), runs)))
    # Half of the runs know the answers, so that rewards are compared as well as their absence.
    play = jax.jit(jax.vmap(lambda s, a: jax.lax.scan(lambda s, a: env.step(s, a), s, a)))
    for row in range(0, runs, 2):
        moved = np.flatnonzero(np.cumsum(actions[row] == FORWARD) == 1 + env.length)
        if len(moved) and moved[0] + env.decisions < steps:
            actions[row, moved[0] + 1 : moved[0] + 1 + env.decisions] = states.instance.right_actions[row]
    _, timesteps = jax.device_get(play(states, actions.astype(np.int32)))

    rewards, ended = 0.0, 0
    for run in range(runs):
        instance = jax.tree.map(lambda x: x[run], states.instance)  # noqa: B023 (used at once)
        observation, info = game.reset(options={"instance": instance})
        assert info == {} and observation.dtype == np.float32
        np.testing.assert_array_equal(observation, firsts[run])
        for t in range(steps):
            observation, reward, terminated, truncated, _ = game.step(actions[run, t])
            np.testing.assert_array_equal(observation, timesteps.observation[run, t])
            assert reward == timesteps.reward[run, t]
            assert terminated == timesteps.terminated[run, t]
            assert truncated == timesteps.truncated[run, t] == False  # noqa: E712
            if terminated:
                rewards, ended = rewards + reward, ended + 1
                break
    assert ended > runs // 2 and 0 < rewards < ended


def test_gymnasium_accepts_it():
    register()
    register()
    env = gym.make(ID)
    check_env(env.unwrapped)
    assert env.spec is not None and env.spec.max_episode_steps is None
    for settings in SETTINGS:
        for mode in ("ansi", "rgb_array"):
            check_env(gym.make(ID, render_mode=mode, **settings).unwrapped)


def test_make_with_module_prefix_and_time_limit():
    env = gym.make(f"recollect.envs.gymnasium:{ID}", length=5, max_episode_steps=3)
    env.reset(seed=0)
    assert [env.step(0)[2:4] for _ in range(3)] == [(False, False), (False, False), (False, True)]


def test_registering_needs_neither_jax_nor_the_environment():
    code = (
        "import sys, gymnasium, recollect.envs; recollect.envs.register()\n"
        f"assert {ID!r} in gymnasium.registry\n"
        "assert 'jax' not in sys.modules and 'recollect.envs.gymnasium' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_seeding():
    one, two = SecretInformantEnv(decisions=2), SecretInformantEnv(decisions=2)
    one.reset(seed=9)
    two.reset(seed=9)
    np.testing.assert_array_equal(one.instance.chain, two.instance.chain)
    first = one.instance.chain
    one.reset()
    assert not np.array_equal(one.instance.chain, first)


def test_every_instance_is_equally_likely():
    game = SecretInformantEnv(length=3, decisions=2, actions=2)
    game.reset(seed=10)
    chains = []
    for _ in range(12_000):
        game.reset()
        chains.append(game.instance.chain)
    _, counts = np.unique(chains, axis=0, return_counts=True)
    assert len(counts) == 6 * 4 * 4
    assert stats.chisquare(counts).pvalue > 0.01


@pytest.fixture
def game():
    game = SecretInformantEnv(length=4, decisions=2, render_mode="rgb_array")
    chain = [(True, 0, 1), (False, 1, 0), (False, 2, 1), (True, 2, 0)]
    game.reset(options={"instance": game.rules.make_instance(chain)})
    return game


def test_text(game):
    game.render_mode = "ansi"
    assert game.render() == "S I2:0 u1:1 u2:2 I1:2 D1 D2 end\n^"
    for action in [FORWARD] * 4:
        game.step(action)
    assert game.render() == "S I2:0 u1:1 u2:2 I1:2 D1 D2 end\n                 ^"
    for action in [FORWARD, 2, 0]:
        game.step(action)
    line, marker = game.render().split("\n")
    assert line[marker.index("^") :] == "end"


def test_picture(game):
    kinds = [module.START, module.INFORMATIVE, module.UNINFORMATIVE, module.UNINFORMATIVE]
    kinds += [module.INFORMATIVE, module.DECISION, module.DECISION, module.END]
    pitch = module.CELL + module.GAP
    middles = module.GAP + module.CELL // 2 + pitch * np.arange(8)
    top = 2 * module.GAP + module.CELL // 2
    for position, action in enumerate([FORWARD] * 5 + [2, 0]):
        picture = game.render()
        assert picture.dtype == np.uint8 and picture.shape[1:] == (module.GAP + 8 * pitch, 3)
        assert [tuple(picture[top + 1, x]) for x in middles] == kinds
        assert [tuple(picture[module.GAP + 1, x]) == module.AGENT for x in middles] == [p == position for p in range(8)]
        game.step(action)
    # Below each square stand the state's bits: the informant of the second decision says up, 100 10 01 0 0.
    column = picture[top + module.CELL + 1 :, middles[1]]
    runs = [tuple(c) for c, previous in zip(column[1:], column, strict=False) if tuple(c) != tuple(previous)]
    shades = [c for c in runs if c != module.PAPER]
    assert shades == [module.ONE if bit == "1" else module.ZERO for bit in "100100100"]
    assert tuple(game.render()[module.GAP + 1, middles[7]]) == module.AGENT


def test_render_without_a_mode_says_so():
    game = SecretInformantEnv()
    game.reset(seed=0)
    with pytest.warns(UserWarning, match="render_mode"):
        assert game.render() is None


def test_wrong_arguments(game):
    with pytest.raises(ValueError, match="render_mode='human' must be None or one of"):
        SecretInformantEnv(render_mode="human")
    with pytest.raises(ValueError, match="decisions=3 exceeds length=2"):
        SecretInformantEnv(length=2, decisions=3)
    with pytest.raises(ValueError, match="action=3 must be at least 0 and below actions=3"):
        game.step(3)
    with pytest.raises(gym.error.ResetNeeded):
        SecretInformantEnv().step(1)
    with pytest.raises(gym.error.ResetNeeded):
        SecretInformantEnv(render_mode="ansi").render()
    for action in [FORWARD] * 7:
        game.step(action)
    with pytest.raises(gym.error.ResetNeeded):
        game.step(1)


@pytest.mark.parametrize(
    "right_actions, chain, message",
    [
        ([1, 1], [1, 5, 7, 8], "is none of"),  # the first informant says 0
        ([0, 1], [1, 5, 7, 13], "is none of"),  # rows from 13 on are decision states
        ([0, 1], [1, 5, 7], "length=4 states"),
        ([0, 1], [1, 5, 6, 8], "one informative for each of 2 decisions"),
        ([0], [1, 5, 7, 8], "is none of"),
    ],
)
def test_wrong_instances(game, right_actions, chain, message):
    with pytest.raises(ValueError, match=message):
        game.reset(options={"instance": Instance(np.array(right_actions), np.array(chain))})
