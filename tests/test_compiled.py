"""The compiled baseline against its definition, over random settings."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recollect import RecurrentActorCritic, SecretInformant, compiled, prng
from recollect.agents.recurrent import Decision, Past, unroll
from recollect.envs.base import TimeStep
from recollect.training import Progress, Result


@pytest.mark.parametrize("case", range(6))
def test_one_update_equals_the_definition(case):
    rng = np.random.default_rng(case)
    s, a, h, window = int(rng.integers(3, 10)), int(rng.integers(2, 5)), int(rng.integers(2, 12)), 8
    length = [1, window, *rng.integers(2, window, 4)][case]
    over, action, reward = bool(case % 2), int(rng.integers(a)), float(rng.normal())
    rate, discount, entropy, decay, epsilon = 0.01, 0.9, 0.03, 0.8, 1e-6
    agent = RecurrentActorCritic(
        width=h, window=window, learning_rate=rate, discount=discount, entropy=entropy, decay=decay, epsilon=epsilon
    )
    state = agent.init(prng.key(case), s, a)
    params = jax.tree.map(lambda p: p + 0.2 * rng.normal(size=p.shape).astype(np.float32), state.params)
    observations = (rng.normal(size=(window, s)) * (rng.random((window, s)) < 0.5)).astype(np.float32)
    before, x_next = rng.normal(size=h).astype(np.float32), rng.normal(size=s).astype(np.float32)
    past = Past(jnp.asarray(observations), jnp.int32(length), jnp.asarray(before))
    state = state._replace(
        params=params,
        past=past,
        unrolled=unroll(params.gru, past),
        decision=Decision(past.observations[length - 1], jnp.int32(action)),
    )
    timestep = TimeStep(jnp.asarray(x_next), jnp.float32(reward), jnp.bool_(over), jnp.bool_(False))

    theta = compiled.flatten(params)
    start, squares, grad = theta.copy(), np.zeros_like(theta), np.zeros_like(theta)
    states, gates = np.zeros((window + 1, h)), np.zeros((window, 3 * h))
    states[0] = before
    at_gru = sum(out * into + out for out, into in compiled.Layout(s, h, a).blocks()[:5])
    x, x_after = observations.astype(np.float64), x_next.astype(np.float64)
    settings = (rate, discount, entropy, decay, epsilon)
    for _ in range(2):  # twice, so that RMSProp's state counts too
        state = agent.learn(state, timestep, prng.key(0))
        state = state._replace(
            past=past, unrolled=unroll(state.params.gru, past), decision=state.decision
        )  # the same step once more
        compiled.unroll(theta, at_gru, s, h, x, length, states, gates)
        compiled.learn(
            theta,
            squares,
            grad,
            (s, h, a),
            x,
            length,
            states,
            gates,
            action,
            reward,
            x_after,
            over,
            settings,
        )
    expected = compiled.flatten(state.params)
    assert np.abs(expected - start).max() > 1e-3
    assert theta == pytest.approx(expected, abs=3e-5)


def test_parameters_come_back():
    params = RecurrentActorCritic(width=4).init(prng.key(0), 5, 3).params
    back = compiled.unflatten(compiled.flatten(params), compiled.Layout(5, 4, 3))
    assert jax.tree.structure(back) == jax.tree.structure(params)
    jax.tree.map(np.testing.assert_array_equal, back, params)


def run(seed=0, episodes=400, max_steps=10**9, bins=4, **options):
    agent = RecurrentActorCritic(width=5, **options)
    return list(compiled.train_iter(agent, SecretInformant(3, 1), episodes, seed, max_steps=max_steps, bins=bins))


def test_reports_and_result():
    *reports, result = run()
    assert len(reports) == 4 and all(isinstance(r, Progress) for r in reports) and isinstance(result, Result)
    assert result.finished.all() and result.returns.shape == (1, 4)
    assert result.steps[0] == round(float(result.lengths.sum()) * 100)
    assert [r.new_bins[0]["episodes"] for r in reports] == [100, 200, 300, 400]
    assert np.isnan(result.write_weights).all()


def test_same_seed_same_bits():
    a, b, c = run()[-1], run(bins=8)[-1], run(seed=1)[-1]
    assert np.array_equal(compiled.flatten(a.agent_states), compiled.flatten(b.agent_states))
    assert not np.array_equal(compiled.flatten(a.agent_states), compiled.flatten(c.agent_states))


def test_a_run_that_takes_too_long_is_ended():
    *_, result = run(max_steps=700)
    assert result.steps[0] == 700 and not result.finished[0] and np.isnan(result.returns[0, -1])


def test_it_learns_to_remember():
    """A chain of three, one informative state: guessing gives 1/3."""
    result = run(episodes=6000, bins=6, learning_rate=0.003)[-1]
    assert result.returns[0, -1] > 0.9


@pytest.mark.parametrize(
    ("options", "message"), [({"activation": "relu"}, "tanh"), ({"bins": 7}, "multiple of bins=7")]
)
def test_wrong_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        run(**options)
