"""The recurrent baseline: its hand-written backpropagation against autodiff, its RMSProp by hand, its window."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recollect import prng
from recollect.agents.networks import apply_gru, init_gru
from recollect.agents.recurrent import Past, RecurrentActorCritic, backpropagate, unroll

S, A, UNITS, WINDOW = 3, 2, 4, 6
AGENT = RecurrentActorCritic(
    width=UNITS, window=WINDOW, learning_rate=0.01, critic_start="random", initializer="uniform"
)


class Step(NamedTuple):
    observation: jax.Array
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array


def timestep(observation, reward=0.0, terminated=False, truncated=False):
    return Step(jnp.asarray(observation, jnp.float32), jnp.float32(reward), jnp.array(terminated), jnp.array(truncated))


def close(found, expected, tolerance=1e-5):
    for f, e in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(f, e, rtol=tolerance, atol=tolerance)


# -- backpropagation

GRU = init_gru(jax.random.key(0), S, UNITS, "uniform")
RNG = np.random.default_rng(0)
BEFORE = jnp.asarray(RNG.normal(size=UNITS), jnp.float32)
OBSERVATIONS = jnp.asarray(RNG.normal(size=(WINDOW, S)), jnp.float32)  # full: leftovers past the length must not count
D_H = jnp.asarray(RNG.normal(size=UNITS), jnp.float32)


def explicit(gru, past, length):
    """The hidden state by a plain Python loop, for autodiff to differentiate."""
    h = past.before
    for t in range(length):
        h = apply_gru(gru, h, past.observations[t])
    return h


@jax.jit
def ours(past):
    unrolled = unroll(GRU, past)
    return unrolled.h, backpropagate(GRU, past, unrolled, D_H)


@jax.jit
def all_explicit(past):
    """[(h, gradient)] for every length up to the window."""
    return [jax.vjp(lambda g, n=n: explicit(g, past, n), GRU)[0] for n in range(WINDOW + 1)], [
        jax.vjp(lambda g, n=n: explicit(g, past, n), GRU)[1](D_H)[0] for n in range(WINDOW + 1)
    ]


@pytest.fixture(scope="module")
def references():
    return all_explicit(Past(OBSERVATIONS, jnp.int32(0), BEFORE))


@pytest.mark.parametrize("length", [0, 1, 2, WINDOW - 1, WINDOW])
def test_backpropagation_equals_autodiff(length, references):
    h, gradient = ours(Past(OBSERVATIONS, jnp.int32(length), BEFORE))
    close(h, references[0][length])
    close(gradient, references[1][length])


def test_backpropagation_mapped_over_runs_of_different_lengths(references):
    """Mapped, all runs share the loop of the longest; each must still get its own gradient."""
    lengths = [3, 0, WINDOW, 1]
    many = len(lengths)
    pasts = Past(
        jnp.broadcast_to(OBSERVATIONS, (many, WINDOW, S)),
        jnp.array(lengths, jnp.int32),
        jnp.broadcast_to(BEFORE, (many, UNITS)),
    )
    h, gradient = jax.vmap(ours)(pasts)
    for i, length in enumerate(lengths):
        close(h[i], references[0][length])
        close(jax.tree.map(lambda x, i=i: x[i], gradient), references[1][length])


def test_no_numbers_from_beyond_the_length(references):
    """What an earlier episode left in the places past the length does not reach the state or the gradient."""
    spoilt = OBSERVATIONS.at[3:].set(1e6)
    h, gradient = ours(Past(spoilt, jnp.int32(3), BEFORE))
    close(h, references[0][3])
    close(gradient, references[1][3])


# -- the agent


begin = jax.jit(AGENT.begin)
compiled_learn = jax.jit(AGENT.learn)


def learn(state, step, active=True):
    return compiled_learn(state, step, prng.key(0), jnp.array(active))


@pytest.fixture(scope="module")
def lived():
    """Eight steps of one episode, two more than the window, without learning."""
    state = jax.jit(AGENT.init, static_argnums=(1, 2))(prng.key(0), S, A)
    seen = jnp.asarray(np.random.default_rng(1).normal(size=(8, S)), jnp.float32)
    states = []
    for t, observation in enumerate(seen):
        state, action = begin(state, observation, prng.key(t))
        assert int(action) == int(state.decision.action) in (0, 1)
        states.append(state)
    return seen, states


def test_hidden_state_is_the_whole_episodes(lived):
    """Also once the window is full: what leaves it lives on in the state before it."""
    seen, states = lived
    h = jnp.zeros(UNITS)
    for t, state in enumerate(states):
        h = apply_gru(state.params.gru, h, seen[t])
        close(state.unrolled.h, h)
        length = min(t + 1, WINDOW)
        assert int(state.past.length) == length
        assert np.array_equal(state.past.observations[:length], seen[t + 1 - length : t + 1])


def test_shapes_stay_as_they_are(lived):
    _, states = lived
    shapes = [jax.tree.map(jnp.shape, state) for state in states]
    assert all(shape == shapes[0] for shape in shapes)


@jax.jit
@jax.grad
def loss_gradient(params, seen, start, action, target, delta, entropy):
    """The step's three losses through an explicit unrolled loop; the critic sees the state alone."""
    h = start
    for s in seen:
        h = apply_gru(params.gru, h, s)
    logits = AGENT.policy_logits(params, seen[-1], h)
    log_pi = jax.nn.log_softmax(logits)
    negative_entropy = jnp.sum(jnp.exp(log_pi) * log_pi)
    return 0.5 * (target - AGENT.value(params, seen[-1])) ** 2 - delta * log_pi[action] + entropy * negative_entropy


@pytest.mark.parametrize("end", [None, "terminated", "truncated"])
def test_one_whole_step(lived, end):
    """RMSProp's first step from rest: ν = (1 − decay) g², θ ← θ − rate · g / √(ν + ε), all by hand."""
    seen, states = lived
    state = states[3]
    after_seen = np.array([1.0, -1.0, 0.5], np.float32)
    step = timestep(after_seen, 0.7, **({end: True} if end else {}))
    v_next = 0.0 if end == "terminated" else float(AGENT.value(state.params, step.observation))
    target = 0.7 + AGENT.discount * v_next
    delta = target - float(AGENT.value(state.params, seen[3]))
    gradient = loss_gradient(
        state.params, list(seen[:4]), jnp.zeros(UNITS), state.decision.action, target, delta, AGENT.entropy
    )
    after = learn(state, step)

    def by_hand(p, g):
        p, g = np.asarray(p, np.float64), np.asarray(g, np.float64)
        return p - AGENT.learning_rate * g / np.sqrt((1 - AGENT.decay) * g**2 + AGENT.epsilon)

    # Where a gradient is tiny RMSProp divides two tiny numbers, and float32 shows.
    close(after.params, jax.tree.map(by_hand, state.params, gradient), 2e-4)
    close(after.optimizer.nu, jax.tree.map(lambda g: (1 - AGENT.decay) * g**2, gradient), 1e-5)
    assert int(after.past.length) == (0 if end else 4)


def test_rmsprop_by_hand():
    """Gradients 3 and then −1 at decay .9: ν = .9 and then .91."""
    rms = AGENT.replace(epsilon=1e-12)._rms()
    state = rms.init(jnp.zeros(()))
    for g, nu in ((3.0, 0.9), (-1.0, 0.91)):
        scaled, state = rms.update(jnp.float32(g), state)
        assert float(state.nu) == pytest.approx(nu)
        assert float(scaled) == pytest.approx(g / math.sqrt(nu))


def test_a_second_step_remembers_the_first(lived):
    state = lived[1][3]
    once = learn(state, timestep(np.zeros(S), 0.7))
    twice = learn(once, timestep(np.zeros(S), 0.7))
    nus = [jax.tree.leaves(s.optimizer.nu)[0].sum() for s in (state, once, twice)]
    assert nus[0] == 0 and nus[2] > nus[1] > 0


@pytest.mark.parametrize("case", ["inactive", "NaN reward", "NaN observation"])
def test_steps_that_must_not_learn(lived, case):
    state = lived[1][3]
    step = {
        "inactive": timestep(np.zeros(S), 0.7),
        "NaN reward": timestep(np.zeros(S), np.nan),
        "NaN observation": timestep(np.full(S, np.nan), 0.7),
    }[case]
    after = learn(state, step, active=case != "inactive")
    for before, now in zip(
        jax.tree.leaves((state.params, state.optimizer)), jax.tree.leaves((after.params, after.optimizer)), strict=True
    ):
        assert np.array_equal(before, now)


def test_step_by_step(lived):
    """After an update the whole episode is gone through again under the new parameters; an end starts afresh."""
    seen, states = lived
    following = np.ones(S, np.float32)
    for ends, episode in ((False, [*seen[:4], following]), (True, [following])):
        state = learn(states[3], timestep(following, 0.7, terminated=ends))
        state, _ = begin(state, jnp.asarray(following), prng.key(5))
        h = jnp.zeros(UNITS)
        for s in episode:
            h = apply_gru(state.params.gru, h, jnp.asarray(s))
        close(state.unrolled.h, h)
        assert int(state.past.length) == len(episode)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_observation_is_over_with_its_episode(lived, bad):
    """Shorter episodes after it never write over its place in the window, and learn all the same."""
    state, _ = begin(lived[1][3], jnp.full(S, bad, jnp.float32), prng.key(0))
    state = learn(state, timestep(np.zeros(S), 0.7, terminated=True))
    start = state.params
    state, _ = begin(state, jnp.ones(S), prng.key(1))
    after = learn(state, timestep(np.zeros(S), 0.7)).params
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after))
    assert not np.array_equal(after.gru.candidate.weight, start.gru.candidate.weight)


@pytest.mark.parametrize(
    "option, bad, message",
    [
        ("width", 0, "width=0 must be an integer of at least 1"),
        ("window", 1.5, "window=1.5 must be an integer of at least 1"),
        ("learning_rate", -1.0, r"learning_rate=-1.0 is outside \(0.0, 10.0\]"),
        ("discount", 2.0, r"discount=2.0 is outside \[0.0, 1.0\]"),
        ("entropy", "none", "entropy='none' must be a number"),
        ("decay", 1.5, r"decay=1.5 is outside \[0.0, 1.0\]"),
        ("epsilon", 0.0, r"epsilon=0.0 is outside \(0.0, inf\]"),
        ("activation", "elu", "activation='elu': choose one of 'tanh', 'relu', 'sigmoid'"),
        ("initializer", "he", "initializer='he': choose one of 'normal', 'glorot', 'uniform'"),
        ("critic_start", "one", "critic_start='one': choose one of 'zero', 'random'"),
    ],
)
def test_bad_values_are_refused(option, bad, message):
    with pytest.raises(ValueError, match=message):
        RecurrentActorCritic(**{option: bad})
