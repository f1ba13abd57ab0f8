"""The T-maze in JAX: steps by hand, and the same maze as Gymnasium's."""

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recollect import prng
from recollect.envs import TMaze
from recollect.envs.t_maze import DOWN, FORWARD, UP, TMazeEnv


def play(env, cue, actions):
    """What is seen, paid and over at each step, from a given cue."""
    state, first = env.start(cue)
    _, timesteps = jax.lax.scan(env.step, state, jnp.asarray(actions, jnp.int32))
    seen = np.concatenate([first[None], timesteps.observation]).astype(int)
    return ["".join(map(str, bits)) for bits in seen], np.asarray(timesteps.reward), np.asarray(timesteps.terminated)


def test_an_active_episode_by_hand():
    env = TMaze(length=2, passive=False)
    actions = [UP, FORWARD, DOWN, FORWARD, FORWARD, FORWARD, DOWN, UP]
    seen, rewards, over = play(env, DOWN, actions)
    # Stays at the cue; on; stays in the corridor; on; on to the junction; stays there; turns right; past the end.
    assert seen == ["0100", "0100", "0010", "0010", "0010", "0001", "0001", "0000", "0000"]
    np.testing.assert_allclose(rewards, [-0.1, 0, -0.1, 0, 0, -0.1, 1, 0], rtol=1e-6)
    assert over.tolist() == [False] * 6 + [True] * 2
    assert play(env, UP, actions)[1][6] == -1.0
    assert (env.num_actions, TMaze().num_actions, env.shortest_episode, env.observation_size) == (3, 2, 4, 4)


def test_the_oracle_shows_the_cue_again():
    assert play(TMaze(length=1, oracle=True), DOWN, [0, 0, 1])[0] == ["0100", "0010", "0101", "0000"]


def test_cues_are_fair():
    states, first = jax.vmap(TMaze().reset)(jax.random.split(prng.key(0), 4000))
    assert np.mean(states.cue) == pytest.approx(0.5, abs=0.04)
    np.testing.assert_array_equal(np.argmax(first, axis=1), states.cue)


@pytest.mark.parametrize(("passive", "oracle"), [(p, o) for p in (True, False) for o in (True, False)])
def test_both_mazes_are_one(passive, oracle):
    """Random lengths, cues and actions: the same observations, rewards and ends."""
    rng = np.random.default_rng(7)
    outcomes = set()
    for length in (0, *rng.integers(1, 9, 2).tolist()):
        env, game = TMaze(length, passive, oracle), TMazeEnv(length, passive, oracle)
        step = jax.jit(env.step)
        assert game.action_space == gym.spaces.Discrete(env.num_actions)
        assert game.observation_space.shape == (env.observation_size,)
        for seed in range(6):
            seen, _ = game.reset(seed=seed)
            state, observation = env.start(game.cue)
            over = False
            while not over:
                np.testing.assert_array_equal(observation, seen)
                action = rng.integers(env.num_actions)
                seen, reward, over, cut, _ = game.step(action)
                state, timestep = step(state, action)
                observation = timestep.observation
                assert (timestep.reward, timestep.terminated, timestep.truncated) == (np.float32(reward), over, cut)
            np.testing.assert_array_equal(observation, seen)
            outcomes.add(reward)
    assert outcomes == {1.0, -1.0}
