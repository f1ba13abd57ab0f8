"""The secret informant problem in JAX: bits, dynamics and instances, against what the paper's figure 2 says."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from recollect.envs import FORWARD, SecretInformant

UP, DOWN = 0, 2


def play(env, instance, actions):
    """Observations (the first included), rewards and ends of the steps."""
    state, observation = env.start(instance)
    observations, rewards, ends = [np.asarray(observation)], [], []
    for action in actions:
        state, timestep = env.step(state, jnp.int32(action), jax.random.key(0))
        observations.append(np.asarray(timestep.observation))
        rewards.append(float(timestep.reward))
        ends.append(bool(timestep.terminated))
        assert not timestep.truncated
    return np.array(observations), rewards, ends


def bits(text):
    return [int(c) for c in text if c != " "]


@pytest.fixture
def env():
    return SecretInformant(length=4, decisions=2)


@pytest.fixture
def instance(env):
    """First the informant of the second decision, who says up; last that of the first, who says down."""
    return env.make_instance([(True, UP, 1), (False, FORWARD, 0), (False, DOWN, 1), (True, DOWN, 0)])


def test_observations_by_hand(env, instance):
    observations, rewards, ends = play(env, instance, [FORWARD] * 5 + [DOWN, UP])
    expected = [
        "000 00 00 0 0",
        "100 10 01 0 0",  # the state drawn in figure 2 (b)
        "010 01 10 0 0",
        "001 01 01 0 0",
        "001 10 10 0 0",
        "000 00 10 1 1",
        "000 00 01 1 1",
        "000 00 00 0 0",
    ]
    np.testing.assert_array_equal(observations, [bits(line) for line in expected])
    assert observations.dtype == np.float32
    assert rewards == [0] * 6 + [1]
    assert ends == [False] * 6 + [True]


def test_no_correct_path_bit(instance):
    env = SecretInformant(length=4, decisions=2, correct_path_bit=False)
    observations, rewards, _ = play(env, instance, [FORWARD] * 5 + [UP, UP])
    assert env.observation_size == 8
    np.testing.assert_array_equal(observations[-3], bits("000 00 10 1"))
    np.testing.assert_array_equal(observations[-2], bits("000 00 01 1"))
    assert sum(rewards) == 0


@pytest.mark.parametrize("first, second", list(itertools.product(range(3), range(3))))
def test_reward_and_correct_path_for_every_choice(env, instance, first, second):
    observations, rewards, ends = play(env, instance, [FORWARD] * 5 + [first, second])
    assert observations[-3][-1] == 1
    assert observations[-2][-1] == (first == DOWN)
    assert rewards == [0] * 6 + [float(first == DOWN and second == UP)]
    assert ends[-1] and not any(ends[:-1])


def test_only_forward_leads_on_before_the_decisions(env, instance):
    actions = [UP, DOWN] + [FORWARD, DOWN, UP] * 4 + [FORWARD, UP, UP]
    observations, _, ends = play(env, instance, actions)
    straight, _, _ = play(env, instance, [FORWARD] * 5 + [UP, UP])
    stays = np.array([0, 0, 0] + [s for s in range(1, 5) for _ in range(3)] + [5, 6, 7])
    np.testing.assert_array_equal(observations, straight[stays])
    assert ends == [False] * (len(actions) - 1) + [True]


def test_a_step_past_the_end_stays_there_and_pays_nothing(env, instance):
    observations, rewards, ends = play(env, instance, [FORWARD] * 5 + [DOWN, UP] + [UP, FORWARD, DOWN])
    assert not observations[-4:].any()
    assert rewards[-4:] == [1, 0, 0, 0]
    assert ends[-4:] == [True] * 4


@pytest.mark.parametrize("length, decisions, actions", [(10, 1, 3), (10, 2, 3), (20, 2, 3), (1, 1, 2), (5, 5, 4)])
def test_shortest_episode(length, decisions, actions):
    env = SecretInformant(length, decisions, actions)
    state, observation = jax.jit(env.reset)(jax.random.key(length))
    assert observation.shape == (env.observation_size,) and not observation.any()
    assert env.observation_size == actions + 2 + decisions + 2
    step = jax.jit(env.step)
    for t in range(1, env.shortest_episode + 1):
        in_chain = t <= 1 + length
        action = FORWARD if in_chain else int(state.instance.right_actions[t - length - 2])
        state, timestep = step(state, jnp.int32(action), jax.random.key(t))
        assert bool(timestep.terminated) == (t == env.shortest_episode) == (t == 1 + length + decisions)
    assert timestep.reward == env.optimal_return() == 1


def test_tables_for_plotting():
    env = SecretInformant(length=3, decisions=2)
    informative, uninformative = env.informative_states(), env.uninformative_states()
    assert informative.shape == uninformative.shape == (2, 3, 9)
    for d, a in itertools.product(range(2), range(3)):
        told = np.eye(3)[a].tolist(), np.eye(2)[d].tolist()
        assert informative[d, a].tolist() == [*told[0], 1, 0, *told[1], 0, 0]
        assert uninformative[d, a].tolist() == [*told[0], 0, 1, *told[1], 0, 0]
    np.testing.assert_array_equal(env.decision_states(), [bits("000 00 10 1 1"), bits("000 00 01 1 1")])
    assert (informative[..., env.informative_bit] == 1).all() and (uninformative[..., env.informative_bit] == 0).all()
    np.testing.assert_array_equal(env.decision_states()[:, env.identifier_bits], np.eye(2))
    assert len(np.unique(env.states, axis=0)) == len(env.states)
    with pytest.raises(ValueError, match="read-only"):
        env.states[0, 0] = 1


@pytest.mark.parametrize("length, decisions, actions", [(3, 1, 3), (3, 2, 2), (4, 3, 2)])
def test_every_instance_is_equally_likely(length, decisions, actions):
    env = SecretInformant(length, decisions, actions)
    draws = 60_000
    sample = jax.jit(jax.vmap(env.sample))(jax.random.split(jax.random.key(5), draws))
    assert sample.chain.dtype == sample.right_actions.dtype == jnp.int32
    # The chain determines the right actions, and a chain is valid if each decision has one informative state.
    found, counts = np.unique(np.asarray(sample.chain), axis=0, return_counts=True)
    others = length - decisions
    instances = (
        np.prod(np.arange(length, others, -1))  # places
        * actions**decisions
        * (decisions * actions) ** others
    )
    assert len(found) == instances
    assert stats.chisquare(counts).pvalue > 0.01
    assert (np.sum(found <= decisions * actions, axis=-1) == decisions).all()


def test_right_actions_and_places_are_uniform_at_the_papers_sizes():
    env = SecretInformant(length=10, decisions=2)
    sample = jax.jit(jax.vmap(env.sample))(jax.random.split(jax.random.key(6), 40_000))
    chain, right = np.asarray(sample.chain), np.asarray(sample.right_actions)
    informants = env.chain_row(1, right, np.arange(2))
    _, _, places = np.nonzero(chain[:, None] == informants[:, :, None])
    assert len(places) == 80_000  # each informant is there, once
    first, second = places.reshape(-1, 2).T
    assert (first != second).all()
    cells = ((first * 10 + second) * 3 + right[:, 0]) * 3 + right[:, 1]
    counts = np.bincount(cells, minlength=900).reshape(10, 10, 9)[~np.eye(10, dtype=bool)]
    assert stats.chisquare(counts.ravel()).pvalue > 0.01
    fillers = chain[chain > 6] - 7
    assert stats.chisquare(np.bincount(fillers, minlength=6)).pvalue > 0.01


@pytest.mark.slow
def test_jit_vmap_scan_agree_with_single_steps():
    env = SecretInformant(length=3, decisions=2)
    keys = jax.random.split(jax.random.key(7), 16)
    actions = jax.random.randint(jax.random.key(8), (30, 16), 0, 3)

    def step(state, action):
        return jax.vmap(lambda s, a: env.step(s, a, None))(state, action)

    state, _ = jax.jit(jax.vmap(env.reset))(keys)
    _, together = jax.jit(lambda s: jax.lax.scan(step, s, actions))(state)
    assert together.observation.shape == (30, 16, env.observation_size)
    assert together.terminated[-1].mean() > 0.5 and together.reward.sum() > 0
    for run in range(3):
        observations, rewards, ends = play(env, env.sample(keys[run]), actions[:, run])
        np.testing.assert_array_equal(together.observation[:, run], observations[1:])
        np.testing.assert_array_equal(together.reward[:, run], rewards)
        np.testing.assert_array_equal(together.terminated[:, run], ends)


def test_equal_settings_compile_once():
    traces = []

    @functools.partial(jax.jit, static_argnums=0)
    def run(env, key, action):
        traces.append(env)
        state, _ = env.reset(key)
        return env.step(state, action, key)

    for seed in range(3):
        run(SecretInformant(length=4), jax.random.key(seed), jnp.int32(seed))
    assert len(traces) == 1
    assert SecretInformant(length=4) == SecretInformant(length=4) != SecretInformant(length=5)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"length": 0}, "length=0 must be an integer of at least 1"),
        ({"length": 2.5}, "length=2.5 must be an integer of at least 1"),
        ({"actions": 1}, "actions=1 must be an integer of at least 2"),
        ({"decisions": 0}, "decisions=0 must be an integer of at least 1"),
        ({"length": 2, "decisions": 3}, "decisions=3 exceeds length=2"),
    ],
)
def test_wrong_settings(arguments, message):
    with pytest.raises(ValueError, match=message):
        SecretInformant(**arguments)


@pytest.mark.parametrize(
    "chain, message",
    [
        ([(True, 0, 0)], "length=2"),
        ([(False, 0, 0), (False, 0, 0)], "one informative for each of 1 decisions"),
        ([(True, 0, 0), (True, 0, 0)], "one informative for each of 1 decisions"),
        ([(True, 3, 0), (False, 0, 0)], "actions below 3"),
        ([(True, 0, 0), (False, 0, 1)], "decisions below 1"),
    ],
)
def test_wrong_instances(chain, message):
    with pytest.raises(ValueError, match=message):
        SecretInformant(length=2).make_instance(chain)


def test_the_path_bit_where_the_paper_is_silent():
    usual, other = SecretInformant(2, 2), SecretInformant(2, 2, path_bit_at_first=False, path_bit_in_chain=True)
    assert usual.decision_states()[:, -1].tolist() == [1, 1] and other.decision_states()[:, -1].tolist() == [0, 1]
    assert not usual.informative_states()[..., -1].any() and other.informative_states()[..., -1].all()
    assert other.uninformative_states()[..., -1].all() and not other.states[0].any()
    without = SecretInformant(2, 2, correct_path_bit=False, path_bit_in_chain=True)
    assert np.array_equal(without.states, SecretInformant(2, 2, correct_path_bit=False).states)
    for wrong in ({"correct_path_bit": 2}, {"path_bit_in_chain": "no"}, {"length": True}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            SecretInformant(**wrong)
