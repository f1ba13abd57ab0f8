"""The episodic agent against the paper's equations, written down again in NumPy's float64."""

import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recollect import prng
from recollect.agents.convolution import Convolution
from recollect.agents.distributions import MultiCategorical
from recollect.agents.episodic import NETWORKS, PRESETS, Decision, EpisodicActorCritic
from recollect.agents.networks import Layer
from tiers import first_quick, slow

S, A = 4, 3  # size of an observation, number of actions
SMALL = EpisodicActorCritic(
    memory_size=3,
    hidden=3,
    critic_start="random",
    initializer="uniform",
    learning_rate=0.01,
    entropy=0.002,
    surprise=0.0,
    trace_decay=0.0,
    value_rate=1.0,
    query_rate=1.0,
    query_gain=1.0,
    write_gain=1.0,
    credit_cap=math.inf,
)


class Step(NamedTuple):
    observation: jax.Array
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array


def timestep(observation, reward=0.0, terminated=False, truncated=False):
    return Step(jnp.asarray(observation, jnp.float32), jnp.float32(reward), jnp.array(terminated), jnp.array(truncated))


def fill(state, filled=(True, True, True), log_weights=(-0.5, -1.5, -3.0), slot=1, action=2, seed=0):
    """A state in mid-episode: stored weights that are not the present ones, a recalled state, an action."""
    rng = np.random.default_rng(seed)
    items = jnp.asarray(rng.integers(0, 2, (3, S)), jnp.float32).at[:, 0].set(1.0)
    held = jnp.asarray(filled)
    memory = state.memory._replace(
        items=items,
        log_weights=jnp.where(held, jnp.asarray(log_weights, jnp.float32), -jnp.inf),
        ranks=jnp.where(held, jnp.cumsum(held), 0).astype(jnp.int32),
        seen=jnp.sum(held, dtype=jnp.int32),
    )
    recalled = jnp.where(jnp.any(held), items[slot], 0.0)
    decision = Decision(jnp.array([0.0, 1.0, 1.0, 0.0]), recalled, jnp.int32(slot), jnp.int32(action))
    traces = jax.tree.map(jnp.zeros_like, state.params)
    return state._replace(traces=traces, memory=memory, decision=decision)


@pytest.fixture(scope="module")
def state():
    return fill(SMALL.init(prng.key(3), S, A))


NEXT = np.array([1.0, 0.0, 1.0, 1.0])

# -- the paper's equations, in float64 (complex, so that derivatives can be taken by the complex step)


def doubles(params):
    return jax.tree.map(lambda x: np.asarray(x, np.float64), params)


def net(network, x):
    for layer in network[:-1]:
        x = np.tanh(layer.weight @ x + layer.bias)
    return network[-1].weight @ x + network[-1].bias


def value(params, s):
    return np.tanh(net(params.value, s)[0])


def probabilities(params, s, m):
    e = np.exp(net(params.policy, np.concatenate([s, m])))
    return e / e.sum()


def query(params, s, items, filled, tau=np.exp):
    q = np.tanh(net(params.query, s))
    e = np.where(filled, np.exp(items @ q / tau(params.temperature)), 0.0)
    return e / e.sum()


def weight(params, s):
    return 1 / (1 + np.exp(-net(params.write, s)[0]))


def slopes(loss, params):
    """The gradient by the complex step, exact to rounding."""
    flat, shape = jax.tree.flatten(doubles(params))
    out = []
    for i, leaf in enumerate(flat):
        slope = np.zeros(leaf.shape)
        for at in np.ndindex(leaf.shape):
            bumped = [x.astype(complex) for x in flat]
            bumped[i][at] += 1e-30j
            slope[at] = np.imag(loss(shape.unflatten(bumped))) / 1e-30
        out.append(slope)
    return shape.unflatten(out)


def td_error(agent, params, state, step):
    v_next = agent.terminal_value if step.terminated else value(params, np.asarray(step.observation, float))
    return float(step.reward) + agent.discount * v_next - value(params, np.asarray(state.decision.observation, float))


def losses(agent, state, step):
    """What the paper has each network descend on, δ and the stored weights held constant."""
    fixed = doubles(state.params)
    s, m = (np.asarray(x, float) for x in (state.decision.observation, state.decision.recalled))
    items, filled = np.asarray(state.memory.items, float), np.asarray(state.memory.filled)
    stored = np.exp(np.asarray(state.memory.log_weights, float))
    slot, action = int(state.decision.slot), int(state.decision.action)
    delta = td_error(agent, fixed, state, step)
    target = delta + value(fixed, s)  # r + γ V(S'), through which no gradient goes

    def written(p):
        credited = [slot] if agent.estimator == "queried" else range(len(items))
        return -sum(delta / stored[i] * weight(p, items[i]) for i in credited if filled[i])

    def entropy(p):
        pi = probabilities(p, s, m)
        return np.sum(pi * np.log(pi))

    return {
        "value": lambda p: (target - value(p, s)) ** 2,
        "policy": lambda p: -delta * np.log(probabilities(p, s, m)[action]),
        "query": lambda p: -delta * np.log(query(p, s, items, filled)[slot]) if filled.any() else 0.0,
        "write": written,
        "entropy": entropy,
    }


def from_scores(agent, state, step, entropy=0.0):
    """The direction the agent moves in: δ times the gradient of its score."""
    return _pulled(agent, state, jnp.float32(td_error(agent, doubles(state.params), state, step)), jnp.float32(entropy))


@jax.jit
def _pulled(agent, state, delta, entropy):
    _, pull = jax.vjp(lambda p: agent.scores(p, state.decision, state.memory), state.params)
    return pull((delta, entropy))[0]


def assert_close(found, expected, tolerance=2e-5):
    for f, e in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(f, e, rtol=tolerance, atol=tolerance * 0.1)


def assert_equal(found, expected):
    for f, e in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.array_equal(f, e)


def same_leaves(a, b):
    a, b = jax.tree.leaves(a), jax.tree.leaves(b)
    return len(a) == len(b) and all(x.shape == y.shape and np.array_equal(x, y) for x, y in zip(a, b, strict=True))


# -- gradients of the losses


def test_value_gradient(state):
    """The step is half of that down the literal gradient of δ²; ``value_rate`` 2 makes it whole."""
    step = timestep(NEXT, 0.7)
    loss = slopes(losses(SMALL, state, step)["value"], state.params)
    found = from_scores(SMALL, state, step)
    assert_close(found.value, jax.tree.map(lambda x: -0.5 * x, loss.value))


@pytest.mark.parametrize("name", ["policy", "query", "write"])
@pytest.mark.parametrize("estimator", ["queried", "every"])
def test_gradients_of_policy_query_and_write(state, name, estimator):
    agent, step = SMALL.replace(estimator=estimator), timestep(NEXT, 0.7)
    loss = slopes(losses(agent, state, step)[name], state.params)
    found = from_scores(agent, state, step)
    assert_close(getattr(found, name), jax.tree.map(np.negative, getattr(loss, name)))
    assert any(np.abs(leaf).max() > 1e-4 for leaf in jax.tree.leaves(getattr(found, name)))
    if name == "query":
        assert_close(found.temperature, -loss.temperature)
        assert abs(float(found.temperature)) > 1e-5


def test_only_the_recalled_item_or_every_item_is_credited(state):
    """G is δ/w_i of the recalled item alone, or of all: the second minus the first is what the others get."""
    step = timestep(NEXT, 0.7)
    fixed, items = doubles(state.params), np.asarray(state.memory.items, float)
    delta, stored = td_error(SMALL, fixed, state, step), np.exp(np.asarray(state.memory.log_weights, float))
    others = slopes(lambda p: sum(delta / stored[i] * weight(p, items[i]) for i in (0, 2)), state.params)
    queried = from_scores(SMALL, state, step)
    every = from_scores(SMALL.replace(estimator="every"), state, step)
    assert_close(jax.tree.map(jnp.subtract, every.write, queried.write), others.write, 1e-4)


def test_write_step_by_hand(state):
    """W = σ(0) = .5 now, .25 when stored, δ = .5: G = 2, ∂w/∂b = .25, so b moves by .5 times the step size."""
    agent = SMALL.replace(learning_rate=0.1, discount=1.0, entropy=0.0)
    zeros = fill(state, log_weights=(0.0, math.log(0.25), 0.0), action=1)
    zeros = zeros._replace(params=jax.tree.map(jnp.zeros_like, state.params))
    moved = agent.learn(zeros, timestep(NEXT, 0.5, terminated=True), prng.key(2)).params
    assert float(moved.write[-1].bias[0]) == pytest.approx(0.1 * 0.5)
    assert float(moved.value[-1].bias[0]) == pytest.approx(0.1 * 0.5)  # δ ∂V/∂b, and tanh'(0) = 1
    np.testing.assert_allclose(moved.policy[-1].bias, [-0.1 / 6, 0.1 / 3, -0.1 / 6], rtol=1e-5)  # δ (1[a] − π)


def test_rmsprop_by_hand(state):
    """From rest a parameter's first step is its rate over √(1 − decay), with the sign of its direction; then less."""
    agent = SMALL.replace(learning_rate=0.01, discount=1.0, entropy=0.0, optimizer="rmsprop", square_decay=0.75)
    zeros = fill(state, log_weights=(0.0, math.log(0.25), 0.0), action=1)
    nought = jax.tree.map(jnp.zeros_like, state.params)
    zeros = zeros._replace(params=nought, squares=nought)
    first = agent.learn(zeros, timestep(NEXT, 0.5, terminated=True), prng.key(2))
    assert float(first.params.write[-1].bias[0]) == pytest.approx(0.01 / 0.5, rel=1e-4)
    assert float(first.squares.write[-1].bias[0]) == pytest.approx(0.25 * 0.5**2, rel=1e-4)
    np.testing.assert_allclose(first.params.policy[-1].bias, [-0.02, 0.02, -0.02], rtol=1e-4)
    again = agent.learn(zeros._replace(squares=first.squares), timestep(NEXT, 0.5, terminated=True), prng.key(2))
    mean = 0.25 * 0.5**2 * (1 + 0.75)
    assert float(again.params.write[-1].bias[0]) == pytest.approx(0.01 * 0.5 / math.sqrt(mean), rel=1e-4)
    calm = agent.replace(epsilon=0.1).learn(zeros, timestep(NEXT, 0.5, terminated=True), prng.key(2))
    assert float(calm.params.write[-1].bias[0]) == pytest.approx(0.01 * 0.5 / math.sqrt(0.25 * 0.5**2 + 0.1), rel=1e-4)


@pytest.mark.parametrize("case", ["mid-episode", "the end", "cut short", "partly filled", "empty", "every item"])
def test_one_whole_step(case, state):
    """Every parameter after ``learn``, against the paper's losses plus entropy and discount."""
    agent = SMALL.replace(
        learning_rate=0.05,
        discount=0.9,
        entropy=0.03,
        value_rate=2.0,
        estimator="every" if case == "every item" else "queried",
    )
    step = timestep(NEXT, 0.7, terminated=case == "the end", truncated=case == "cut short")
    if case == "partly filled":
        state = fill(state, (True, False, True), slot=2)
    if case == "empty":
        state = fill(state, (False, False, False))
    found = agent.learn(state, step, prng.key(0)).params
    parts = losses(agent, state, step)
    total = slopes(
        lambda p: sum(parts[k](p) for k in parts if k != "entropy") + 0.03 * parts["entropy"](p), state.params
    )
    expected = jax.tree.map(lambda p, d: p - 0.05 * d, doubles(state.params), total)
    assert_close(found, expected, 3e-6)
    moved = jax.tree.map(lambda a, b: bool(jnp.any(a != b)), found, state.params)
    assert any(jax.tree.leaves(moved.query)) == any(jax.tree.leaves(moved.write)) == (case != "empty")
    assert all(jax.tree.leaves(moved.value)) and all(jax.tree.leaves(moved.policy))


def test_inactive_steps_learn_nothing_but_remember(state):
    after = SMALL.learn(state, timestep(NEXT, 0.7), prng.key(0), active=False)
    assert_equal(after.params, state.params)
    assert int(after.memory.seen) == int(state.memory.seen) + 1


# -- traces, surprise, the bound on credit


def test_traces_over_three_steps_by_hand(state):
    """With every parameter 0, δ is the reward and the output biases' gradients are constants; γλ = .5 · .8 = .4.

    V's is 1: its trace is 1, 1.4, 1.56, and 1 again after the end; its bias moves by step size · δ · trace. For action
    2 of three the policy's are 1[a] − 1/3. The write network's is w(S_i)/w_i · (1 − w) = .5/.25 · .5 = 1 for the
    recalled state. The loop sets V back to 0, so that δ stays the reward.
    """
    agent = SMALL.replace(learning_rate=0.1, discount=0.5, trace_decay=0.8, entropy=0.0)
    learn = jax.jit(agent.learn)
    zeros = jax.tree.map(jnp.zeros_like, state.params)
    state = fill(state, log_weights=[math.log(0.25)] * 3)._replace(params=zeros)
    held = state.memory
    for reward, over, z in ((0.3, False, 1.0), (-0.2, False, 1.4), (0.5, True, 1.56), (1.0, False, 1.0)):
        after = learn(state, timestep(NEXT, reward, terminated=over), prng.key(0))
        np.testing.assert_allclose(after.params.value[-1].bias, 0.1 * reward * z, rtol=1e-6)
        np.testing.assert_allclose(after.params.write[-1].bias, 0.1 * reward * z, rtol=1e-6)
        np.testing.assert_allclose(
            after.params.policy[-1].bias, 0.1 * reward * z * np.array([-1, -1, 2]) / 3, rtol=1e-5
        )
        kept = 0.0 if over else z
        np.testing.assert_allclose(after.traces.value[-1].bias, kept, rtol=1e-6)
        np.testing.assert_allclose(after.traces.policy[-1].bias, kept * np.array([-1, -1, 2]) / 3, rtol=1e-6)
        if over:
            assert not any(np.any(leaf) for leaf in jax.tree.leaves(after.traces))
        state = after._replace(params=zeros, memory=held)


def test_a_cut_ends_the_traces_and_a_bad_step_leaves_them(state):
    agent = SMALL.replace(trace_decay=0.8)
    state = state._replace(traces=jax.tree.map(jnp.ones_like, state.params))
    cut = agent.learn(state, timestep(NEXT, 0.3, truncated=True), prng.key(0))
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(cut.traces))
    for step, active in ((timestep(NEXT, np.nan), True), (timestep(NEXT, 0.3), False)):
        after = agent.learn(state, step, prng.key(0), active=active)
        assert_equal(after.traces, state.traces)
        assert_equal(after.params, state.params)


def test_surprise_is_entropy_by_the_size_of_the_error(state):
    """The policy moves by entropy + surprise · |δ| along the entropy's gradient, which no trace holds."""
    for reward in (0.7, -0.7):
        step = timestep(NEXT, reward)
        delta = td_error(SMALL, doubles(state.params), state, step)
        found = SMALL.replace(surprise=0.5).learn(state, step, prng.key(0))
        same = SMALL.replace(entropy=0.002 + 0.5 * abs(delta)).learn(state, step, prng.key(0))
        assert_close(found.params, same.params, 1e-6)
        plain = SMALL.learn(state, step, prng.key(0))
        assert_equal(found.traces, plain.traces)
        assert_equal(found.params._replace(policy=None), plain.params._replace(policy=None))
        assert not same_leaves(found.params.policy, plain.params.policy)


def test_the_query_is_kept_open_as_the_policy_is(state):
    """It moves by query_openness · (entropy + surprise · |δ|) along the gradient of its own entropy, in no trace.

    From zero weights but for the query's output biases (1, 0, −1, 0): τ = 1 and q = tanh of them, so that the logits of
    the stored states, and the entropy's slope by each bias, can be written down.
    """
    agent = SMALL.replace(learning_rate=0.1, discount=1.0, entropy=0.3, surprise=0.5, query_openness=2.0)
    bias = np.array([1.0, 0.0, -1.0, 0.0])[:S]
    zeros = jax.tree.map(jnp.zeros_like, state.params)
    layer = zeros.query[-1]._replace(bias=jnp.asarray(bias, jnp.float32))
    state = fill(state)._replace(params=zeros._replace(query=(*zeros.query[:-1], layer)))
    step = timestep(NEXT, 0.7, terminated=True)
    items = np.asarray(state.memory.items, float)
    weights = np.exp(items @ np.tanh(bias))
    q = weights / weights.sum()
    slope = -q * (np.log(q) - np.sum(q * np.log(q)))
    expected = 0.1 * 2.0 * (0.3 + 0.5 * 0.7) * (slope @ items) * (1 - np.tanh(bias) ** 2)
    plain, found = (one.learn(state, step, prng.key(0)) for one in (agent.replace(query_openness=0.0), agent))
    np.testing.assert_allclose(found.params.query[-1].bias - plain.params.query[-1].bias, expected, atol=1e-6)
    at_temperature = -0.1 * 2.0 * (0.3 + 0.5 * 0.7) * np.sum(slope * np.log(weights))
    assert float(found.params.temperature - plain.params.temperature) == pytest.approx(at_temperature, rel=1e-4)
    assert_equal(found.traces, plain.traces)
    assert_equal(
        found.params._replace(query=None, temperature=None), plain.params._replace(query=None, temperature=None)
    )


@pytest.mark.parametrize("cap, moved", [(math.inf, 0.05), (1.5, 0.0375), (4.0, 0.05)])
def test_bound_on_credit_by_hand(state, cap, moved):
    """As in ``test_write_step_by_hand``, where w/w_i = 2: a bound of 1.5 leaves three quarters of the step."""
    agent = SMALL.replace(learning_rate=0.1, discount=1.0, entropy=0.0, credit_cap=cap)
    zeros = fill(state, log_weights=(0.0, math.log(0.25), 0.0), action=1)
    zeros = zeros._replace(params=jax.tree.map(jnp.zeros_like, state.params))
    after = agent.learn(zeros, timestep(NEXT, 0.5, terminated=True), prng.key(2)).params
    assert float(after.write[-1].bias[0]) == pytest.approx(moved)


def test_each_network_has_its_own_rate(state):
    step = timestep(NEXT, 0.7)
    plain = SMALL.learn(state, step, prng.key(0)).params
    agent = SMALL.replace(value_rate=2.0, policy_rate=3.0, query_rate=0.5, write_rate=0.0)
    found = agent.learn(state, step, prng.key(0)).params
    rates = {"value": 2.0, "policy": 3.0, "query": 0.5, "write": 0.0, "temperature": 0.5}
    for name, rate in rates.items():
        once = jax.tree.map(jnp.subtract, getattr(plain, name), getattr(state.params, name))
        moved = jax.tree.map(jnp.subtract, getattr(found, name), getattr(state.params, name))
        assert_close(moved, jax.tree.map(lambda x, r=rate: r * x, once), 2e-4)


# -- memories for comparison


def test_oracle_keeps_what_has_the_bit_and_learns_no_weight(state):
    """The state (0, 1, 1, 0) is written with weight 1 for bit 1 and not at all for bit 0."""
    room = fill(state, (True, True, False))
    for bit, count in ((1, 3), (0, 2)):
        after = SMALL.replace(oracle_bit=bit).learn(room, timestep(NEXT, 0.7), prng.key(0))
        assert int(after.memory.count) == count
        assert_equal(after.params.write, state.params.write)
        assert not same_leaves(after.params.query, state.params.query)
    assert float(SMALL.replace(oracle_bit=1).learn(room, timestep(NEXT), prng.key(0)).memory.log_weights[2]) == 0.0


def test_no_memory_holds_nothing_and_teaches_no_query(state):
    agent = SMALL.replace(memory="none")
    start = agent.init(prng.key(3), S, A)
    now, _ = agent.begin(start, one_hot(1), prng.key(1))
    for k in range(2):
        now, _ = agent.step(now, timestep(one_hot(k), 0.5), prng.key(2 + k))
        assert int(now.memory.count) == 0 and now.decision.recalled.tolist() == [0.0] * S
    for name in ("query", "write", "temperature"):
        assert_equal(getattr(now.params, name), getattr(start.params, name))
    assert not same_leaves(now.params.policy, start.params.policy)


# -- what is remembered when


def one_hot(k):
    return np.eye(S, dtype=np.float32)[k]


def test_memory_holds_the_states_before_the_read():
    agent = SMALL
    state, _ = agent.begin(agent.init(prng.key(0), S, A), one_hot(0), prng.key(1))
    assert state.decision.recalled.tolist() == [0.0] * S and int(state.memory.count) == 0
    state, _ = agent.step(state, timestep(one_hot(1)), prng.key(2))
    assert state.decision.recalled.tolist() == one_hot(0).tolist()
    assert state.decision.observation.tolist() == one_hot(1).tolist()
    assert float(state.memory.log_weights[0]) < 0


def test_memory_written_before_the_read():
    agent = SMALL.replace(write="before")
    state, _ = agent.begin(agent.init(prng.key(0), S, A), one_hot(0), prng.key(1))
    assert state.decision.recalled.tolist() == one_hot(0).tolist()
    learnt = agent.learn(state, timestep(one_hot(1)), prng.key(2))
    assert int(learnt.memory.seen) == 1, "and not written again after it"


@pytest.mark.parametrize("distinct, held", [(False, [0, 1, 1]), (True, [0, 1, 2])])
def test_what_comes_again_is_kept_once_or_each_time(distinct, held):
    agent = SMALL.replace(distinct=distinct)
    state, _ = agent.begin(agent.init(prng.key(0), S, A), one_hot(0), prng.key(1))
    for t, k in enumerate((1, 1, 2, 0) if distinct else (1, 1, 3)):
        state, _ = agent.step(state, timestep(one_hot(k)), prng.key(2 + t))
    assert np.asarray(state.memory.items).tolist() == [one_hot(k).tolist() for k in held]
    assert int(state.memory.seen) == 3, "of the law, those that were not there"


def test_stored_weight_is_the_one_from_before_the_update(state):
    """S_t is written with w under the parameters it was seen with, those before this step's update."""
    part = fill(state, (True, True, False))
    after = SMALL.replace(learning_rate=5.0).learn(part, timestep(NEXT, 0.7), prng.key(0))
    before, now = (float(SMALL.log_write_weight(p, part.decision.observation)) for p in (state.params, after.params))
    assert float(after.memory.log_weights[2]) == pytest.approx(before, rel=1e-6)
    assert abs(before - now) > 0.01


@pytest.mark.parametrize("end", ["terminated", "truncated"])
@pytest.mark.parametrize("reset", [True, False])
def test_memory_is_emptied_at_the_end(state, end, reset):
    agent = SMALL.replace(reset_memory=reset)
    after = agent.learn(state, timestep(NEXT, **{end: True}), prng.key(0)).memory
    assert int(after.count) == (0 if reset else 3)
    on = agent.learn(state, timestep(NEXT), prng.key(0)).memory
    assert int(on.count) == 3


def test_what_follows_a_cut_is_bootstrapped(state):
    """Truncated, the value of what is seen counts; terminated, the terminal value does."""
    fixed = doubles(state.params)
    v = value(fixed, np.asarray(state.decision.observation, float))
    slope = slopes(lambda p: value(p, np.asarray(state.decision.observation, float)), state.params).value[-1].bias[0]
    for end, follows in (("truncated", value(fixed, NEXT)), ("terminated", 0.25)):
        agent = SMALL.replace(learning_rate=1.0, discount=0.5, terminal_value=0.25)
        after = agent.learn(state, timestep(NEXT, 0.3, **{end: True}), prng.key(0)).params
        moved = float(after.value[-1].bias[0] - state.params.value[-1].bias[0])
        assert moved == pytest.approx((0.3 + 0.5 * follows - v) * slope, rel=1e-4)


def test_step_is_learn_then_begin(state):
    key_learn, key_begin = jax.random.split(prng.key(4))
    step = timestep(NEXT, 0.7)
    expected, action = SMALL.begin(SMALL.learn(state, step, key_learn), step.observation, key_begin)
    found, acted = SMALL.step(state, step, prng.key(4))
    assert_equal(found, expected)
    assert int(acted) == int(action) == int(found.decision.action)


@pytest.mark.parametrize("option", ["filled", "all"])
def test_partly_filled_memory_is_read_by_option(state, option):
    """Among the filled slots only, or among all with zeros in the empty ones."""
    agent = SMALL.replace(partial_read=option)
    part = fill(state, (True, False, False))
    part = part._replace(memory=part.memory._replace(items=part.memory.items.at[1:].set(0.0)))
    slots = {int(agent.begin(part, NEXT, k)[0].decision.slot) for k in jax.random.split(prng.key(0), 12)}
    assert slots == ({0} if option == "filled" else {0, 1, 2})


# -- options


FLOATS = {
    "learning_rate": 0.5,
    "square_decay": 0.5,
    "epsilon": 0.5,
    "discount": 0.5,
    "entropy": 0.5,
    "bias_rate": 0.0,
    "value_gain": 2.0,
    "policy_gain": 2.0,
    "query_gain": 2.0,
    "write_gain": 2.0,
    "temperature_start": 2.0,
    "surprise": 0.5,
    "query_openness": 2.0,
    "trace_decay": 0.5,
    "value_rate": 2.0,
    "policy_rate": 2.0,
    "query_rate": 2.0,
    "write_rate": 2.0,
    "credit_cap": 0.5,
    "reward_rate_step": 0.5,
    "forgetting": 0.5,
    "terminal_value": 0.5,
    "log_weight_floor": -0.01,
}
CHOICES = {
    "memory_size": 2,
    "hidden": 2,
    "products": 2,
    "estimator": "every",
    "memory": "fifo",
    "distinct": True,
    "oracle_bit": 1,
    "optimizer": "rmsprop",
    "objective": "average",
    "encoder": "projection",
    "encoding_size": 3,
    "activation": "relu",
    "initializer": "glorot",
    "critic_start": "zero",
    "temperature": "softplus",
    "empty_read": "current",
    "partial_read": "all",
    "write": "before",
    "reset_memory": False,
    "critic_output": "linear",
    "pictures": Convolution((2, 2, 1), features=S),
    "actions": MultiCategorical((A,)),
}

NEEDS = {
    "reward_rate_step": {"objective": "average"},
    "encoding_size": {"encoder": "projection"},
    "square_decay": {"optimizer": "rmsprop"},
    "epsilon": {"optimizer": "rmsprop"},
}


def first(agent, observation):
    return agent.begin(agent.init(prng.key(0), S, A), observation, prng.key(1))[0]


def then(agent, state, step, key):
    return agent.step(state, step, key)[0]


def short_life(agent, first=first, then=then):
    """Four steps, the last of which ends the episode, with up to three states in memory, one of them twice."""
    observations = np.random.default_rng(0).integers(0, 2, (5, S))
    observations[2] = observations[0]
    lives = [first(agent, jnp.asarray(observations[0], jnp.float32))]
    for t in range(1, 5):
        lives.append(then(agent, lives[-1], timestep(observations[t], 0.5, terminated=t == 4), prng.key(1 + t)))
    return lives


compiled_life = functools.partial(short_life, first=jax.jit(first), then=jax.jit(then))  # one program for all numbers


@pytest.fixture(scope="module")
def usual():
    return {life: life(SMALL) for life in (short_life, compiled_life)}


# Numbers have one program in common; every choice is one of its own.
OWN_PROGRAM = [option for option in (*FLOATS, *CHOICES) if option in CHOICES or option in NEEDS]


@pytest.mark.parametrize("option", [*(k for k in FLOATS if k not in NEEDS), *slow(OWN_PROGRAM)])
def test_every_option_does_something(option, usual):
    changed = SMALL.replace(**{option: {**FLOATS, **CHOICES}[option]})
    assert getattr(changed, option) != getattr(SMALL, option)
    life = compiled_life if option in FLOATS else short_life
    if option in NEEDS:
        base = SMALL.replace(**NEEDS[option])
        assert not same_leaves(life(changed.replace(**NEEDS[option])), life(base))
    elif option in ("memory_size", "hidden", "products", "pictures"):
        shapes = jax.eval_shape(lambda: changed.init(prng.key(0), S, A))
        assert jax.tree.map(jnp.shape, shapes) != jax.tree.map(jnp.shape, usual[life][0])
    else:
        assert not same_leaves(life(changed), usual[life])


def test_every_option_is_tested():
    assert {f.name for f in dataclasses.fields(EpisodicActorCritic)} == set(FLOATS) | set(CHOICES)
    assert {f.name for f in dataclasses.fields(EpisodicActorCritic) if f.metadata.get("traced")} == set(FLOATS)


def test_numbers_are_leaves_and_choices_are_structure():
    """So that one compiled loop can hold runs that differ in numbers."""
    assert len(jax.tree.leaves(SMALL)) == len(FLOATS)
    assert jax.tree.structure(SMALL) == jax.tree.structure(SMALL.replace(learning_rate=0.3))
    assert jax.tree.structure(SMALL) != jax.tree.structure(SMALL.replace(estimator="every"))


BAD = [
    ("memory_size", 0, "memory_size=0 must be an integer of at least 1"),
    ("memory_size", 2.5, "memory_size=2.5 must be an integer of at least 1"),
    ("hidden", True, "hidden=True must be an integer of at least 1"),
    ("learning_rate", 0.0, r"learning_rate=0.0 is outside \(0.0, 10.0\]"),
    ("learning_rate", "fast", "learning_rate='fast' must be a number"),
    ("learning_rate", np.array([0.1, -0.1]), r"learning_rate=.*is outside \(0.0, 10.0\]"),
    ("discount", 1.01, r"discount=1.01 is outside \[0.0, 1.0\]"),
    ("discount", math.nan, r"discount=nan is outside \[0.0, 1.0\]"),
    ("entropy", -0.1, r"entropy=-0.1 is outside \[0.0, 10.0\]"),
    ("temperature_start", 0.0, r"temperature_start=0.0 is outside \(0.0, inf\]"),
    ("bias_rate", -1.0, r"bias_rate=-1.0 is outside \[0.0, inf\]"),
    ("value_rate", math.nan, r"value_rate=nan is outside \[0.0, inf\]"),
    ("objective", "total", "objective='total': choose one of 'discounted', 'average'"),
    ("reward_rate_step", 2.0, r"reward_rate_step=2.0 is outside \[0.0, 1.0\]"),
    ("forgetting", -1.0, r"forgetting=-1.0 is outside \[0.0, inf\]"),
    ("encoder", "lstm", "encoder='lstm': choose one of 'raw', 'projection', 'recurrent'"),
    ("encoding_size", 0, "encoding_size=0 must be an integer of at least 1"),
    ("surprise", -0.1, r"surprise=-0.1 is outside \[0.0, 10.0\]"),
    ("trace_decay", 1.5, r"trace_decay=1.5 is outside \[0.0, 1.0\]"),
    ("credit_cap", 0.0, r"credit_cap=0.0 is outside \(0.0, inf\]"),
    ("oracle_bit", -1, "oracle_bit=-1 must be None or the place of an element of the observation"),
    ("oracle_bit", 1.0, "oracle_bit=1.0 must be None or the place"),
    ("write_gain", math.nan, "write_gain=nan is outside"),
    ("terminal_value", math.nan, "terminal_value=nan is outside"),
    ("log_weight_floor", 0.5, r"log_weight_floor=0.5 is outside \[-inf, 0.0\]"),
    ("estimator", "all", "estimator='all': choose one of 'queried', 'every'"),
    ("memory", "lifo", "memory='lifo': choose one of 'reservoir', 'uniform', 'fifo', 'none'"),
    ("activation", "gelu", "activation='gelu': choose one of 'tanh', 'relu', 'sigmoid'"),
    ("initializer", "he", "initializer='he': choose one of 'normal', 'glorot', 'uniform'"),
    ("critic_start", "one", "critic_start='one': choose one of 'zero', 'random'"),
    ("temperature", "log", "temperature='log': choose one of 'exp', 'softplus'"),
    ("empty_read", "noise", "empty_read='noise': choose one of 'zeros', 'current'"),
    ("partial_read", "some", "partial_read='some': choose one of 'filled', 'all'"),
    ("write", "never", "write='never': choose one of 'after', 'before'"),
    ("reset_memory", "no", "reset_memory='no' must be True or False"),
]


@pytest.mark.parametrize("option, bad, message", BAD, ids=[f"{name}={value}" for name, value, _ in BAD])
def test_bad_values_are_refused(option, bad, message):
    with pytest.raises(ValueError, match=message):
        EpisodicActorCritic(**{option: bad})


def test_presets():
    paper = EpisodicActorCritic.preset("paper")
    assert (paper.learning_rate, paper.discount, paper.entropy) == (0.005, 1.0, 0.0)
    assert (paper.surprise, paper.trace_decay, paper.credit_cap) == (0.0, 0.0, math.inf)
    for kind in ("rate", "gain"):
        assert all(getattr(paper, f"{name}_{kind}") == 1 for name in ("value", "policy", "query", "write"))
    assert (paper.hidden, paper.estimator, paper.memory, paper.write) == (10, "queried", "reservoir", "after")
    robust = EpisodicActorCritic.preset("robust", memory_size=7)
    assert robust == EpisodicActorCritic(memory_size=7), "robust is the default"
    assert robust.discount < 1 and robust.entropy > 0 and robust.memory_size == 7
    assert EpisodicActorCritic.preset("robust", discount=0.5).discount == 0.5
    assert set(PRESETS) == {"paper", "robust"}
    with pytest.raises(ValueError, match="preset='best': choose one of 'paper', 'robust'"):
        EpisodicActorCritic.preset("best")


def test_layers_are_the_papers():
    """One hidden layer of 10 units for value, query and write, two for the policy, which sees S_t and m_t."""
    params = jax.eval_shape(lambda: EpisodicActorCritic.preset("paper").init(prng.key(0), 8, 3)).params
    shapes = {name: [layer.weight.shape for layer in getattr(params, name)] for name in NETWORKS}
    assert shapes == {
        "value": [(10, 8), (1, 10)],
        "policy": [(10, 16), (10, 10), (3, 10)],
        "query": [(10, 8), (8, 10)],
        "write": [(10, 8), (1, 10)],
    }


@pytest.mark.parametrize("temperature", ["exp", "softplus"])
@pytest.mark.parametrize("start", [0.1, 1.0, 30.0])
def test_temperature_starts_where_it_should(temperature, start):
    agent = SMALL.replace(temperature=temperature, temperature_start=start)
    assert float(agent.tau(agent.init(prng.key(0), S, A).params)) == pytest.approx(start, rel=1e-5)


# -- numbers at the edge


def with_write_bias(params, bias):
    last = params.write[-1]
    return params._replace(write=(*params.write[:-1], Layer(last.weight, jnp.full_like(last.bias, bias))))


@pytest.mark.parametrize("estimator", ["queried", "every"])
def test_credit_stays_finite_where_the_weight_underflows(state, estimator):
    """At log w = −200 and −20,000 δ/w is infinite in float32; the update is finite and what the logs say."""
    agent = SMALL.replace(estimator=estimator)
    for bias in (-200.0, -20000.0):
        params = with_write_bias(state.params, bias)
        stored = jax.vmap(lambda s, p=params: agent.log_write_weight(p, s))(state.memory.items)
        assert float(jnp.exp(stored).max()) == 0.0 and not np.isfinite(0.5 / jnp.exp(stored)).any()
        tiny = state._replace(params=params, memory=state.memory._replace(log_weights=stored))
        after = agent.learn(tiny, timestep(NEXT, 0.7), prng.key(0))
        delta = td_error(agent, doubles(params), tiny, timestep(NEXT, 0.7))
        moved = float(after.params.write[-1].bias[0]) - bias
        count = 1 if estimator == "queried" else 3
        # ∂log w/∂b = 1 there and the quotient of weights is 1; a bias of −20,000 has steps of 0.002.
        assert moved == pytest.approx(agent.learning_rate * delta * count, abs=1e-5 if bias == -200.0 else 0.002)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after.params))
        assert np.isfinite(after.memory.log_weights).all()


@pytest.mark.parametrize("bad", first_quick([np.nan, np.inf]))
@pytest.mark.parametrize("where", ["reward", "observation"])
@pytest.mark.parametrize("estimator", first_quick(["queried", "every"]))
def test_bad_numbers_leave_the_parameters_alone(bad, where, estimator, state):
    """A bad reward or observation leaves no trace in the parameters; the next episode learns again."""
    agent = SMALL.replace(estimator=estimator)
    seen = np.array([1.0, bad, 0.0, 0.0]) if where == "observation" else NEXT
    after, _ = agent.step(state, timestep(seen, bad if where == "reward" else 0.1), prng.key(0))
    if where == "reward" or np.isnan(bad):
        assert_equal(after.params, state.params)
    after, _ = agent.step(after, timestep(NEXT, 0.5, terminated=True), prng.key(2))  # it was acted at; now it is shown
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((after.params, after.memory.items)))
    spoilt = after.params
    for k in range(2):
        after, _ = agent.step(after, timestep(one_hot(k), 0.5), prng.key(3 + k))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after.params))
    for name in ("value", "policy", "write"):
        assert not any(
            map(np.array_equal, jax.tree.leaves(getattr(after.params, name)), jax.tree.leaves(getattr(spoilt, name)))
        )


# -- probes: problems so small that one thing alone can fail, and what must have been learned is a number


class World(NamedTuple):
    """A problem in tables over its situations."""

    shows: np.ndarray  # [situation]: the observation's one bit
    leads: np.ndarray  # [situation, action], −1 for the end
    pays: np.ndarray  # [situation, action]


def world(*situations):
    """Each: what is shown, where all actions lead or each does, what all pay or each does; six rows for all worlds."""
    rows = [*situations, *[(0, -1, 0.0)] * (6 - len(situations))]
    shows, leads, pays = zip(*rows, strict=True)
    table = [np.array([np.broadcast_to(x, A) for x in column]) for column in (leads, pays)]
    return World(np.array(shows), *table)


CHAIN = world((0, 1, 0.2), (1, -1, 0.5))
BANDIT = world((0, -1, (0.2, 0.8, 0.2)))
ASK = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0))
# Situations 0 and 1 show what to do, the last two look alike and ask for it; between them, maybe, one telling nothing.
RECALL = world((0, 2, 0.0), (1, 3, 0.0), (2, -1, ASK[0]), (2, -1, ASK[1]))
NOISE = world((0, 2, 0.0), (1, 3, 0.0), (3, 4, 0.0), (3, 5, 0.0), (2, -1, ASK[0]), (2, -1, ASK[1]))
# The first action decides; two steps later it pays, and what is seen until then is the same whatever was done.
LATE = world((0, (3, 1, 3), 0.0), (1, 2, 0.0), (1, -1, 1.0), (1, 4, 0.0), (1, -1, 0.0))
ENDLESS = world((0, 1, 0.6), (1, 0, 0.0))


@functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 2})
@jax.vmap
def _live(agent, world, starts, key):
    """6,000 steps; the state at the end and the mean return over the last 1,000 steps."""
    key_init, key_loop = jax.random.split(key)

    def start(key):
        return jax.random.randint(key, (), 0, starts)

    def see(situation):
        return jax.nn.one_hot(world.shows[situation], S)

    def step(carry, t):
        state, situation = carry
        key_start, key_learn, key_begin = jax.random.split(jax.random.fold_in(key_loop, t), 3)
        reward, later = world.pays[situation, state.decision.action], world.leads[situation, state.decision.action]
        state = agent.learn(state, Step(see(later), reward, later < 0, jnp.array(False)), key_learn)
        situation = jnp.where(later < 0, start(key_start), later)
        state, _ = agent.begin(state, see(situation), key_begin)
        return (state, situation), (reward, later < 0)

    first = start(key_init)
    state, _ = agent.begin(agent.init(key_init, S, A), see(first), key_init)
    (state, _), (rewards, ends) = jax.lax.scan(step, (state, first), jnp.arange(6000))
    return state, jnp.sum(rewards[-1000:]) / jnp.sum(ends[-1000:], dtype=jnp.float32)


def live(world, starts, seeds=8, **changes):
    agent = EpisodicActorCritic(**{"memory_size": 1, "hidden": 8, "discount": 0.9, "learning_rate": 0.05, **changes})
    runs = jax.tree.map(lambda x: jnp.broadcast_to(jnp.float32(x), (seeds,)), agent)
    tables = World(
        jnp.asarray(world.shows, jnp.int32), jnp.asarray(world.leads, jnp.int32), jnp.asarray(world.pays, jnp.float32)
    )
    tables = jax.tree.map(lambda x: jnp.broadcast_to(x, (seeds, *x.shape)), tables)
    state, returns = _live(runs, tables, jnp.full(seeds, starts), jax.random.split(prng.key(0), seeds))
    return agent, state, np.asarray(returns)


def of_each(function, params, *bits):
    """``function(params, states…)`` of every run, the states given by their bits; a bit of None is the zero state."""
    states = [jnp.zeros(S) if bit is None else jnp.asarray(one_hot(bit)) for bit in bits]
    return np.asarray(jax.vmap(lambda p: function(p, *states))(params))


def test_probe_value():
    """A chain that pays .2 and then .5 at γ = .9: V is .65 and then .5."""
    agent, state, returns = live(CHAIN, 1)
    for bit, v in ((0, 0.65), (1, 0.5)):
        np.testing.assert_allclose(of_each(agent.value, state.params, bit), v, atol=0.01)
    np.testing.assert_allclose(returns, 0.7, rtol=1e-4)


def test_probe_policy():
    """A bandit whose second arm pays .8, the others .2."""
    agent, state, _ = live(BANDIT, 1)
    logits = of_each(agent.policy_logits, state.params, 0, None)
    assert (np.asarray(jax.nn.softmax(logits))[:, 1] > 0.9).all()


def test_probe_recall():
    """One telling state, then a decision that looks alike whatever was told: what to do with what is recalled."""
    agent, state, returns = live(RECALL, 2)
    assert (returns > 0.95).all(), returns
    for told in (0, 1):
        logits = of_each(agent.policy_logits, state.params, 2, told)
        assert (np.asarray(jax.nn.softmax(logits))[:, told] > 0.9).all()


def test_probe_write():
    """A state that tells nothing comes after the one that tells, and there is room for one: its weight must fall."""
    agent, state, returns = live(NOISE, 2)
    weights = {bit: np.exp(of_each(agent.log_write_weight, state.params, bit)) for bit in (0, 1, 3)}
    for telling in (0, 1):
        assert (weights[3] / weights[telling] < 0.1).all(), weights
    assert (returns > 0.9).all(), returns


@pytest.mark.slow
def test_probe_query():
    """Room for both states, so that the query alone decides: it must ask for the telling one."""
    agent, state, returns = live(NOISE, 2, memory_size=2, write_rate=0.0)
    q, tau = of_each(agent.query, state.params, 2), np.asarray(jax.vmap(agent.tau)(state.params))
    for telling in (0, 1):
        odds = np.exp((q[:, telling] - q[:, 3]) / tau)
        assert (odds / (1 + odds) > 0.9).all(), odds
    assert (returns > 0.9).all(), returns


@pytest.mark.slow
def test_probe_traces():
    """Between the action and what it pays lie two states that look alike: only a trace can tell the action."""
    agent, state, returns = live(LATE, 1, trace_decay=0.9)
    choice = np.asarray(jax.nn.softmax(of_each(agent.policy_logits, state.params, 0, None)))
    assert (choice[:, 1] > 0.9).all() and (returns > 0.9).all(), (choice, returns)
    _, _, without = live(LATE, 1, trace_decay=0.0)
    assert np.mean(without) < 0.6, without


@pytest.mark.slow
def test_probe_reward_rate():
    """No end: .6 at every other step. The average reward is .3, and the state that pays is worth .3 more."""
    agent, state, _ = live(ENDLESS, 1, objective="average", reward_rate_step=0.01)
    np.testing.assert_allclose(state.reward_rate, 0.3, atol=0.01)
    gap = of_each(agent.value, state.params, 0) - of_each(agent.value, state.params, 1)
    np.testing.assert_allclose(gap, 0.3, atol=0.02)


# -- average reward, encoded states


def test_average_reward_by_hand(state):
    """All parameters 0, r̄ = .2, r = .7: δ = .5, V's bias moves by .1 · .5, r̄ by .04 · .5; γ has no say."""
    agent = SMALL.replace(learning_rate=0.1, objective="average", reward_rate_step=0.04, discount=0.3)
    zeros = state._replace(params=jax.tree.map(jnp.zeros_like, state.params), reward_rate=jnp.float32(0.2))
    after = agent.learn(zeros, timestep(NEXT, 0.7), prng.key(0))
    assert float(after.params.value[-1].bias[0]) == pytest.approx(0.05)
    assert float(after.reward_rate) == pytest.approx(0.22)
    idle = agent.learn(zeros, timestep(NEXT, 0.7), prng.key(0), active=False)
    assert float(idle.reward_rate) == pytest.approx(0.2)
    assert float(SMALL.learn(state, timestep(NEXT, 0.7), prng.key(0)).reward_rate) == 0.0


def test_average_reward_bootstraps_without_discount(state):
    """δ = r − r̄ + V(S') − V(S), against float64."""
    agent = SMALL.replace(learning_rate=1.0, objective="average", reward_rate_step=1.0, discount=0.3)
    after = agent.learn(state._replace(reward_rate=jnp.float32(0.1)), timestep(NEXT, 0.7), prng.key(0))
    fixed = doubles(state.params)
    delta = 0.7 - 0.1 + value(fixed, NEXT) - value(fixed, np.asarray(state.decision.observation, float))
    assert float(after.reward_rate) == pytest.approx(0.1 + delta, rel=1e-5)


@pytest.mark.slow
def test_stored_states_are_encodings():
    """Recurrent: the observation beside h = tanh(W o + U h); what is stored tells what came before it."""
    agent = SMALL.replace(encoder="recurrent", encoding_size=5)
    start = agent.init(prng.key(0), S, A)
    assert start.memory.items.shape == (3, S + 5)
    into, back, hidden = (np.asarray(x, float) for x in start.encoder)
    assert not hidden.any()
    now, h = agent.begin(start, jnp.asarray(one_hot(1)), prng.key(1))[0], hidden
    for k in (2, 0):
        h = np.tanh(into @ one_hot(1 if k == 2 else 2) + back @ h)
        now, _ = agent.step(now, timestep(one_hot(k)), prng.key(k))
    np.testing.assert_allclose(now.memory.items[1], [*one_hot(2), *h], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        now.decision.observation[S:], np.tanh(into @ one_hot(0) + back @ h), rtol=1e-5, atol=1e-6
    )
    over = agent.learn(now, timestep(one_hot(3), terminated=True), prng.key(5))
    assert not np.asarray(over.encoder.hidden).any(), "the next episode begins without a past"
    assert_equal(over.encoder[:2], start.encoder[:2])


@pytest.mark.slow
def test_projected_states_forget_the_past():
    agent = SMALL.replace(encoder="projection", encoding_size=5)
    start = agent.init(prng.key(0), S, A)
    now = agent.begin(start, jnp.asarray(one_hot(1)), prng.key(1))[0]
    now, _ = agent.step(now, timestep(one_hot(2)), prng.key(2))
    np.testing.assert_allclose(now.decision.observation, np.tanh(np.asarray(start.encoder.into)[:, 2]), rtol=1e-6)
    assert now.memory.items.shape == (3, 5)


def test_a_memory_that_would_not_fit_is_refused():
    with pytest.raises(ValueError, match="memory_size=1000000000 needs 4,000,000,000,000,000,000 bytes"):
        EpisodicActorCritic(memory_size=10**9)
