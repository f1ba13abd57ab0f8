"""A Gymnasium task of your own, solved: shown a door at the start, choose it at the end of a corridor."""

import sys
import tempfile

import gymnasium as gym

import recollect


class Errand(gym.Env):
    """The door is shown once; then come ``length`` empty steps, and the doors."""

    observation_space = gym.spaces.Dict(place=gym.spaces.Discrete(3), told=gym.spaces.Discrete(4))
    action_space = gym.spaces.Discrete(3)

    def __init__(self, length=5):
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.door, self.t = int(self.np_random.integers(3)), 0
        return {"place": 0, "told": 1 + self.door}, {}

    def step(self, action):
        self.t += 1
        place = 1 if self.t <= self.length else 2
        over = self.t == self.length + 2
        return {"place": place, "told": 0}, float(over and action == self.door), over, False, {}


def main(steps):
    agent = recollect.EpisodicActorCritic(memory_size=3, hidden=16)
    learner = recollect.Learner(agent, Errand, seed=0)
    with tempfile.TemporaryDirectory() as here:
        learner.learn(steps, folder=f"{here}/run")
    print("guessing gives .333, the best is 1:", learner.evaluate(episodes=200))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60_000)
