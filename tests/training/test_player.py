"""Playing without learning, in an environment of its own."""

import gymnasium as gym
import numpy as np
import pytest

from recollect import EnvironmentFault, Learner, RecollectError
from recollect.agents import scaling
from recollect.agents.general import FARTHEST
from recollect.store.interrupts import Interrupted
from recollect.training import callbacks, player
from training.probes import AGENT, GENERAL, Const, Three


def test_what_is_made_is_closed_and_what_is_given_is_not():
    closed = []

    class Closing(Three):
        def close(self):
            closed.append(self)

    learner, mine = Learner(AGENT, Closing, check=False), Closing()
    with player.environment(learner) as made:
        assert made is not learner.env
    assert closed == [made]
    with player.environment(learner, mine) as given:
        assert given is mine
    with player.environment(learner, Closing) as other:
        pass
    assert closed == [made, other]


def test_the_environment_that_is_learned_in_is_refused():
    env = Three()
    learner = Learner(AGENT, env, check=False)
    for given in (None, env, gym.wrappers.TimeLimit(env, 2)):
        with pytest.raises(RecollectError, match=r"learning in it|learned in"), player.environment(learner, given):
            pass


def test_a_function_that_gives_the_one_that_is_learned_in_is_refused(monkeypatch):
    env = Three()
    monkeypatch.setattr(env, "close", lambda: pytest.fail("training is not over"))
    learner = Learner(AGENT, lambda: env, check=False)
    for play in (learner.evaluate, learner.view):
        with pytest.raises(RecollectError, match="the environment that is learned in; give another"):
            play()


def many():
    return gym.vector.SyncVectorEnv([Three] * 2)


@pytest.mark.parametrize("env", [many(), many], ids=["given", "made"])
def test_vector_environments_are_refused_before_anything_is_learned(env, tmp_path):
    learner = Learner(AGENT, env, learners="each", check=False)
    for ask in (
        lambda: learner.learn(100, folder=tmp_path / "run", callbacks=[callbacks.Evaluate(every=10)]),
        lambda: learner.evaluate(1),
        lambda: learner.evaluate(1, env=many()),
        learner.view,
    ):
        with pytest.raises(RecollectError, match=r"^a vector environment cannot be evaluated in or viewed"):
            ask()
    assert learner.steps == 0
    assert len(learner.evaluate(2, env=Three).returns) == 2


def test_the_agent_sees_rewards_as_in_training():
    """Rewards of 1 and nothing else are what is usual, 0 in standard units; the first step has none before it."""
    learner = Learner(GENERAL, Const, check=False)
    learner.advance(211)
    found = learner.player(0)
    for _ in range(2):
        seen = [found.state() for _ in player.play_episode(found, Const(), 0, lambda step, what: pytest.fail(what))]
        assert [float(state.decision.reward[0]) for state in seen] == [0.0] * 20
    assert float(learner.state().decision.reward[0]) == 0.0


def test_predict_takes_the_reward():
    learner = Learner(GENERAL, Const, check=False, normalize_rewards=True)
    learner.advance(100)
    observation, _ = Const().reset()
    scales = learner.state().scales.reward

    def standard(**given):
        learner.predict(observation, **given)
        return float(learner._player.state().decision.reward[0])

    def expected(reward):
        return float(scaling.standardize(scales, learner.normalizer.scaled(reward, 0), FARTHEST)[0])

    for _ in range(2):
        learner.reset()
        assert standard(reward=3.0) == 0.0  # nothing came before the first observation
        assert standard(reward=np.float32(0.9)) == pytest.approx(expected(0.9))
        assert standard() == pytest.approx(expected(0.0))
    with pytest.raises(ValueError, match="reward=nan must be a finite number"):
        learner.predict(observation, reward=float("nan"))


def test_episodes_are_the_same_for_the_same_seed():
    learner = Learner(AGENT, Three, check=False)
    first, second, other = (learner.evaluate(20, seed=seed) for seed in (3, 3, 4))
    assert np.array_equal(first.returns, second.returns) and not np.array_equal(first.returns, other.returns)
    assert (first.lengths == 3).all() and first.standard_error > 0


def test_it_ends_when_asked():
    learner = Learner(AGENT, Three, check=False)
    with pytest.raises(Interrupted):
        player.play(learner.player(0), Three(), 5, "Three", 0, asked=lambda: True)


def test_faults_name_episode_and_step():
    class Broken(Three):
        def step(self, action):
            observation, *rest = super().step(action)
            return (observation if self.t < 2 else "gone"), *rest

    with pytest.raises(EnvironmentFault, match=r"Broken, seed 9, step 2: evaluation episode 0: .*not in the declared"):
        Learner(AGENT, Broken, check=False).evaluate(3, seed=9)
