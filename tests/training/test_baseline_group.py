"""The compiled baseline against its definition: one step over random settings, whole trajectories, and company."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recollect import RecurrentActorCritic, SecretInformant, prng
from recollect.agents.recurrent import Decision, Past
from recollect.engines import recurrent as engine
from recollect.envs.secret_informant import Instance
from recollect.errors import RecollectError
from recollect.reservoir.random import seeded, uniform
from recollect.training import baseline_group, batch
from recollect.training.reports import Progress, Result

ENDLESS = 10**9


def drawn(pi, rng):
    left, action = uniform(rng), 0
    while action < len(pi) - 1 and left >= pi[action]:
        left -= float(pi[action])
        action += 1
    return action


@functools.partial(jax.jit, static_argnums=0)
def moved_on(env, run, action):
    """The environment's own step."""
    right, chain = run[engine.HEAD + env.length :][: env.decisions], run[engine.HEAD :][: env.length]
    state, _ = env.start(instance_of(right, chain))
    state = state._replace(position=run[engine.POSITION], correct=run[engine.CORRECT] > 0)
    return env.step(state, action)[1]


def instance_of(right, chain):
    return Instance(jnp.asarray(right, jnp.int32), jnp.asarray(chain, jnp.int32))


@pytest.mark.parametrize("case", range(6))
def test_one_step_equals_the_definition(case):
    """Four runs at different places of their episodes, windows full or not; float32, to 3e-5 where steps are 1e-2."""
    rng = np.random.default_rng(case)
    env = SecretInformant(int(rng.integers(2, 9)), int(rng.integers(1, 3)), int(rng.integers(2, 5)))
    agent = RecurrentActorCritic(
        width=int(rng.integers(2, 12)), window=8, learning_rate=0.01, entropy=0.03, decay=0.8, epsilon=1e-6
    )
    s, a, h, lanes = env.observation_size, env.num_actions, agent.width, 4
    begin, learn, policy_logits, sample = (
        jax.jit(f) for f in (agent.begin, agent.learn, agent.policy_logits, env.sample)
    )
    shapes = jax.eval_shape(lambda: agent.init(prng.key(case), s, a))
    blank = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    theta = 0.3 * rng.normal(size=(lanes, baseline_group.flatten(blank.params).size)).astype(np.float32)
    runs = engine.start(agent, env, range(lanes), theta, 1)
    runs.squares[:] = rng.exponential(0.01, runs.squares.shape)
    runs.before[:] = rng.normal(size=runs.before.shape)
    for r, run in enumerate(runs.ints):
        instance = sample(prng.key(10 * case + r))
        run[engine.HEAD :][: env.length] = instance.chain
        run[engine.HEAD + env.length :][: env.decisions] = instance.right_actions
        run[engine.TAKEN], run[engine.PAST] = 3, [1, 8, *rng.integers(2, 8, 2)][r]
        run[engine.POSITION], run[engine.CORRECT] = rng.integers(env.length + env.decisions + 1), rng.integers(2)
        run[engine.ROW] = rng.integers(len(env.states))
        run[engine.HEAD + env.length + env.decisions :] = rng.integers(len(env.states), size=agent.window)
    was = engine.Runs(*(array.copy() for array in runs))
    settings = baseline_group.settings_of(agent, lanes)
    engine.Engine(agent, env, (ENDLESS, ENDLESS, ENDLESS), settings, 4, 1).advance(runs, np.arange(lanes), 1)

    for r in range(lanes):
        run, words = was.ints[r], was.rng[r]
        rows = run[engine.HEAD + env.length + env.decisions :]
        past = Past(jnp.asarray(env.states[rows]), jnp.int32(run[engine.PAST]), jnp.asarray(was.before[r]))
        params, squares = (
            jax.tree.map(jnp.asarray, baseline_group.unflatten(x[r], s, h, a)) for x in (was.theta, was.squares)
        )
        state = blank._replace(params=params, optimizer=blank.optimizer._replace(nu=squares), past=past)
        x = jnp.asarray(env.states[run[engine.ROW]])
        state, _ = begin(state, x, prng.key(0))
        pi = np.asarray(jax.nn.softmax(policy_logits(params, x, state.unrolled.h)))
        action = drawn(pi, words)
        state = state._replace(decision=Decision(x, jnp.int32(action)))
        timestep = moved_on(env, run.astype(np.int32), np.int32(action))
        state = learn(state, timestep, prng.key(0))
        expected = baseline_group.flatten(state.params)
        assert np.abs(expected - was.theta[r]).max() > 1e-3
        assert runs.theta[r] == pytest.approx(expected, abs=3e-5)
        assert runs.squares[r] == pytest.approx(baseline_group.flatten(state.optimizer.nu), rel=1e-4, abs=1e-6)
        assert runs.ints[r, engine.STEPS] == 1 and runs.ints[r, engine.EPISODE] == int(timestep.terminated)


def test_a_trajectory_equals_the_definition():
    """Six episodes step by step, some past the window: the same actions, and parameters to 1e-4 in float32."""
    env, agent, seed, episodes = SecretInformant(5, 2), RecurrentActorCritic(width=4, window=8), 3, 6
    begin, learn = jax.jit(agent.begin), jax.jit(agent.learn)
    logits = jax.jit(agent.policy_logits)
    step = jax.jit(env.step)
    state = agent.init(jax.random.key(seed), env.observation_size, env.num_actions)
    words, steps, returns = seeded([seed, 1]), 0, 0.0
    o = engine._layout(agent, env)
    for _ in range(episodes):
        run = np.zeros(engine.HEAD + o.L + o.D + o.window, np.int64)
        engine._begin_episode(run, o, words)
        place, x = env.start(instance_of(run[engine.HEAD + o.L :][: o.D], run[engine.HEAD :][: o.L]))
        over = False
        while not over:
            state, _ = begin(state, x, prng.key(0))
            action = drawn(np.asarray(jax.nn.softmax(logits(state.params, x, state.unrolled.h))), words)
            place, timestep = step(place, jnp.int32(action))
            state = learn(state._replace(decision=Decision(x, jnp.int32(action))), timestep, prng.key(0))
            over, x, steps = bool(timestep.terminated), timestep.observation, steps + 1
            returns += float(timestep.reward)
    result = batch.train(agent, env, episodes, (8, seed, 9), bins=1, max_steps=ENDLESS)
    assert steps > 8 * episodes and result.steps[1] == steps
    assert result.returns[1, 0] == pytest.approx(returns / episodes)
    assert baseline_group.flatten(result.agent_states.params)[1] == pytest.approx(
        baseline_group.flatten(state.params), abs=1e-4
    )


def test_parameters_come_back():
    params = RecurrentActorCritic(width=4).init(prng.key(0), 5, 3).params
    back = baseline_group.unflatten(baseline_group.flatten(params), 5, 4, 3)
    assert jax.tree.structure(back) == jax.tree.structure(params)
    jax.tree.map(np.testing.assert_array_equal, back, params)


def reports_of(seeds=(0,), episodes=400, max_steps=ENDLESS, bins=4, state=None, **options):
    agent = RecurrentActorCritic(**{"width": 5, **options})
    return list(
        batch.train_iter(
            agent, SecretInformant(3, 1), episodes, seeds, max_steps=max_steps, bins=bins, state=state, engine="cpu"
        )
    )


def theta_of(result):
    return baseline_group.flatten(result.agent_states.params)


def test_reports_and_result():
    *reports, result = reports_of((0, 5))
    assert reports and all(isinstance(r, Progress) for r in reports) and isinstance(result, Result)
    assert result.finished.all() and result.returns.shape == (2, 4)
    assert result.steps.tolist() == (result.lengths.sum(axis=1) * 100).round().astype(int).tolist()
    for seed, returns in zip((0, 5), result.returns, strict=True):
        new = [line for r in reports for line in r.new_bins if line["seed"] == seed]
        assert [line["episodes"] for line in new] == [100, 200, 300, 400]
        assert [line["return"] for line in new] == returns.tolist()
    assert reports[-1].total_steps == result.steps.sum() and reports[-1].steps == result.steps.max()
    assert np.isnan(result.write_weights).all()


def test_company_changes_nothing(monkeypatch):
    """Not a bit, whatever the other seeds, the lanes of a block, the threads and the length of a call."""
    many = reports_of(range(6))[-1]
    for seeds in ((4,), (5, 4)):
        few = reports_of(seeds)[-1]
        assert np.array_equal(theta_of(few), theta_of(many)[list(seeds)])
        assert np.array_equal(few.returns, many.returns[list(seeds)])
    monkeypatch.setattr(baseline_group, "FIRST_STEPS", 3)
    monkeypatch.setattr(baseline_group, "SECONDS", 1e-4)
    assert np.array_equal(theta_of(reports_of(range(6))[-1]), theta_of(many))
    assert len({row.tobytes() for row in theta_of(many)}) == 6


def test_it_goes_on_from_a_snapshot(monkeypatch):
    monkeypatch.setattr(baseline_group, "FIRST_STEPS", 301)
    monkeypatch.setattr(baseline_group, "SECONDS", 1e-3)
    agent, env = RecurrentActorCritic(width=5), SecretInformant(3, 1)
    iterator = batch.train_iter(agent, env, 400, (0, 1, 2), max_steps=ENDLESS, bins=4)
    first = next(iterator)
    assert isinstance(first, Progress)
    saved = first.snapshot()
    *_, whole = iterator
    assert isinstance(whole, Result)
    rest = reports_of((0, 1, 2), state=saved)[-1]
    assert np.array_equal(theta_of(rest), theta_of(whole)) and np.array_equal(rest.lengths, whole.lengths)
    assert (rest.steps == whole.steps).all()


def test_a_learning_rate_a_seed():
    both = reports_of((3, 3), learning_rate=np.array([0.001, 0.01]))[-1]
    for k, rate in enumerate((0.001, 0.01)):
        assert np.array_equal(theta_of(reports_of((3,), learning_rate=rate)[-1])[0], theta_of(both)[k])


def test_a_run_that_takes_too_long_is_ended():
    *_, result = reports_of(max_steps=700)
    assert result.steps[0] == 700 and not result.finished[0] and np.isnan(result.returns[0, -1])


def test_it_learns_to_remember():
    """A chain of three, one informative state: guessing gives 1/3."""
    result = reports_of(range(4), episodes=6000, bins=6, learning_rate=0.003)[-1]
    assert np.median(result.returns[:, -1]) > 0.9


def test_what_is_not_finite_is_said():
    state = baseline_group.state_like(RecurrentActorCritic(width=5), SecretInformant(3, 1), 2, 4)
    state["rng"][:] = [seeded(0), seeded(1)]
    state["squares"][1, 7] = np.inf
    with pytest.raises(RecollectError, match="seed 1: the update was not finite at step 1 of"):
        reports_of((0, 1), state=state)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bins": 7}, "multiple of bins=7"),
        ({"seeds": ()}, "at least one"),
    ],
)
def test_wrong_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        reports_of(**options)
