"""Recall: what it shows, what it learns, and that its memory is the agent's."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from recollect.envs.making import make
from recollect.envs.t_maze import CORRIDOR, JUNCTION, TMazeEnv
from recollect.errors import FileError
from recollect.wrappers import Recall, RecallLearner
from tiers import first_quick


def maze(length=3, **options):
    return Recall(TMazeEnv(length=length), 4, **options)


@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version")  # it is the wrapper that is checked
def test_it_keeps_to_gymnasiums_rules():
    check_env(maze(), skip_render_check=True)


@pytest.mark.parametrize("env_id", first_quick(["CartPole-v1", "popgym-RepeatFirstEasy-v0", "bsuite/memory_len/0"]))
def test_spaces_of_other_suites_become_vectors_with_zeros_in_them(env_id):
    env = Recall(make(env_id), 2)
    observation, _ = env.reset(seed=0)
    size = env.vector.size
    assert env.observation_space.contains(observation)
    np.testing.assert_array_equal(observation[size:], 0.0)
    seen = [observation[:size]]
    env.action_space.seed(0)
    over = False
    while not over:
        observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
        assert env.observation_space.contains(observation)
        assert any(np.array_equal(observation[size:], x) for x in seen), "what is recalled was seen in this episode"
        seen.append(observation[:size])
        over = terminated or truncated


def test_the_memory_is_emptied_by_reset_and_not_before():
    env = maze(length=1)
    env.reset(seed=0)
    cue = env.step(0)[0][4:]
    assert cue[:2].sum() == 1, "one state is in memory: it is recalled"
    env.step(0)
    last, _, terminated, _, _ = env.step(0)
    assert terminated and last[4:].sum() == 1, "the last observation still has the memory of its episode"
    np.testing.assert_array_equal(env.reset()[0][4:], 0.0)
    with pytest.raises(gym.error.ResetNeeded, match="call reset"):
        Recall(TMazeEnv()).step(0)


def test_the_same_seed_recalls_the_same():
    def run(seed):
        env = maze(length=8)
        found = [env.reset(seed=seed)[0]]
        for _ in range(300):
            observation, _, over, _, _ = env.step(0)
            found.append(observation)
            if over:
                found.append(env.reset()[0])
        return np.array(found)

    np.testing.assert_array_equal(run(1), run(1))
    assert not np.array_equal(run(1), run(2))


@pytest.mark.slow
def test_it_learns_to_recall_the_cue_for_a_policy_that_uses_it():
    """A fixed policy that does what the recalled cue says, at the junction: rewards tell the query what to recall."""
    env = maze(length=4, seed=0)

    def share_of_cues(episodes):
        found = []
        for _ in range(episodes):
            observation, _ = env.reset()
            over = False
            while not over:
                at_junction = observation[JUNCTION] > 0
                cue = observation[4:6]
                action = int(cue[1]) if cue.any() else int(np.random.default_rng(len(found)).integers(2))
                if at_junction:
                    found.append(float(cue.any()))
                observation, _, over, _, _ = env.step(action)
        return np.mean(found)

    env.reset(seed=0)
    env.learner.learning = False
    assert share_of_cues(100) < 0.7
    env.learner.learning = True
    share_of_cues(800)
    env.learner.learning = False
    parameters = env.learner.parameters.copy()
    assert share_of_cues(100) > 0.95
    np.testing.assert_array_equal(env.learner.parameters, parameters, err_msg="it was told not to learn")


def test_shared_learners_move_the_same_parameters_and_keep_memories_apart():
    shared = RecallLearner(TMazeEnv().observation_space, 4, seed=3)
    envs = [Recall(TMazeEnv(length=6), learner=shared) for _ in range(2)]
    firsts = [env.reset(seed=k)[0] for k, env in enumerate(envs)]
    before = shared.parameters.copy()
    for k, env in enumerate(envs):
        np.testing.assert_array_equal(env.step(0)[0][4:], firsts[k][:4])
    for _ in range(6):
        envs[0].step(0)
    assert not np.array_equal(shared.parameters, before)
    assert envs[0].learner is envs[1].learner
    assert envs[1].step(0)[0][:4][CORRIDOR] == 1.0
    with pytest.raises(ValueError, match="memory_size: a learner is given"):
        Recall(TMazeEnv(), 8, learner=shared)
    with pytest.raises(ValueError, match="made for observations of 4 numbers, these have 5"):
        Recall(FiveNumbers(), learner=shared)


class FiveNumbers(gym.Env):
    observation_space = gym.spaces.Box(-1.0, 1.0, (5,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, reward=0.0):
        self.given = reward

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(5, np.float32), {}

    def step(self, action):
        return np.zeros(5, np.float32), self.given, False, False, {}


def test_a_reward_that_is_not_finite_teaches_nothing():
    env = Recall(FiveNumbers(reward=float("nan")))
    env.reset(seed=0)
    before = env.learner.parameters.copy()
    with pytest.raises(ValueError, match="reward is nan, not finite"):
        env.step(0)
    np.testing.assert_array_equal(env.learner.parameters, before)


def test_options_are_those_of_the_agent():
    assert maze(discount=0.5).learner.agent.discount == 0.5
    with pytest.raises(TypeError, match="no_such_option"):
        maze(no_such_option=1)
    with pytest.raises(ValueError, match="recalls observations as they came"):
        maze(encoder="projection")
    with pytest.raises(ValueError, match="normalize_rewards"):
        maze(normalize_rewards="yes")


@pytest.mark.slow
def test_what_was_learned_can_be_saved(tmp_path):
    env = maze()
    env.reset(seed=0)
    for _ in range(50):
        if env.step(0)[2]:
            env.reset()
    env.learner.save(tmp_path / "memory")
    other = RecallLearner(TMazeEnv().observation_space, 4)
    assert not np.array_equal(other.parameters, env.learner.parameters)
    other.load(tmp_path / "memory")
    np.testing.assert_array_equal(other.parameters, env.learner.parameters)
    for name, array in env.learner.normalizer.state().items():
        np.testing.assert_array_equal(other.normalizer.state()[name], array)
    with pytest.raises(FileError, match="other options"):
        RecallLearner(TMazeEnv().observation_space, 4, discount=0.1).load(tmp_path / "memory")
    with pytest.raises(FileError, match="expected"):
        RecallLearner(TMazeEnv().observation_space, 5, hidden=3).load(tmp_path / "memory")


def test_stable_baselines3_takes_it():
    pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")
    from stable_baselines3 import A2C
    from stable_baselines3.common.env_util import make_vec_env

    shared = RecallLearner(TMazeEnv().observation_space, 4)
    envs = make_vec_env(lambda: Recall(TMazeEnv(length=2), learner=shared), n_envs=2, seed=0)
    before = shared.parameters.copy()
    A2C("MlpPolicy", envs, device="cpu", seed=0).learn(100)
    assert not np.array_equal(shared.parameters, before)
