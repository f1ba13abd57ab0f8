"""Small environments for tests of the training room."""

import gymnasium as gym
import numpy as np

from recollect import EpisodicActorCritic, GeneralActorCritic

GENERAL = GeneralActorCritic(memory_size=2)
AGENT = EpisodicActorCritic(memory_size=2, hidden=4)


class Three(gym.Env):
    """Three steps an episode; pays 1 for action 1; the first observation is drawn."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.array([0.0, self.np_random.uniform()], np.float32), {}

    def step(self, action):
        self.t += 1
        return np.array([self.t / 3, 0.0], np.float32), float(action), self.t == 3, False, {}


class Const(gym.Env):
    """Twenty steps an episode, in which nothing changes: each pays 1."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.full(2, 0.5, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.full(2, 0.5, np.float32), 1.0, self.t == 20, False, {}
