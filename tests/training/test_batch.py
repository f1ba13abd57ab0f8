"""The online loop: what its results may depend on, and what they may not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recollect import prng
from recollect.agents.episodic import EpisodicActorCritic
from recollect.agents.recurrent import RecurrentActorCritic
from recollect.engines import loop
from recollect.engines.loop import start_run, step_run
from recollect.envs.secret_informant import SecretInformant
from recollect.errors import RecollectError
from recollect.training.batch import train, train_iter

ENV = SecretInformant(length=2, actions=2)
AGENT = EpisodicActorCritic(memory_size=2, hidden=4)
SEEDS = (0, 1, 2)


def run(agent=AGENT, episodes=200, seeds=SEEDS, **options):
    """The settings that most tests share, so that they share the compiled loop as well."""
    return train(agent, ENV, episodes, seeds, bins=10, **{"records_per_call": 1, **options})


@pytest.fixture(scope="module")
def base():
    return run()


def leaves(result, seed_place):
    return [np.asarray(leaf)[seed_place] for leaf in jax.tree.leaves(result.agent_states.params)]


def assert_same_run(a, i, b, j):
    """Bit for bit: curves, steps and parameters."""
    for name in ("returns", "lengths", "write_weights", "query_vectors", "steps", "finished"):
        assert np.array_equal(getattr(a, name)[i], getattr(b, name)[j], equal_nan=name != "finished"), name
    assert all(map(np.array_equal, leaves(a, i), leaves(b, j)))


# -- what must not matter


@pytest.mark.slow
def test_results_do_not_depend_on_how_much_one_call_does(base):
    """Two records a call; runs that are done wait for the others without changing."""
    other = run(records_per_call=2)
    for place in range(3):
        assert_same_run(base, place, other, place)


@pytest.mark.slow
def test_a_run_does_not_depend_on_the_seeds_beside_it(base):
    other = run(seeds=(7, 1, 9))
    assert_same_run(base, 1, other, 1)
    assert not np.array_equal(base.returns[0], other.returns[0])


@pytest.mark.slow
def test_a_run_by_itself_differs_by_rounding_alone(base):
    """How many runs share the loop, and a run's place among them, decides how the compiler vectorises sums.

    So the last bits of the parameters may differ; with these settings no draw is close enough to tip.
    """
    alone, moved = run(seeds=(1,)), run(seeds=(1, 2, 0))
    for other, place in ((alone, 0), (moved, 0)):
        assert np.array_equal(other.returns[place], base.returns[1])
        assert np.array_equal(other.lengths[place], base.lengths[1])
        for a, b in zip(leaves(other, place), leaves(base, 1), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.slow
def test_the_same_again(base):
    again = run()
    for place in range(3):
        assert_same_run(base, place, again, place)
    assert len({returns.tobytes() for returns in base.returns}) == 3, "seeds differ"


@pytest.mark.slow
def test_hyperparameters_may_differ_from_run_to_run(base):
    """An array with one entry a seed: each run equals that of the number alone."""
    spread = run(AGENT.replace(learning_rate=np.array([0.01, 0.02, 0.05]), entropy=np.array([0.0, 0.0003, 0.1])))
    assert_same_run(spread, 1, base, 1)
    assert_same_run(spread, 0, run(AGENT.replace(learning_rate=0.01, entropy=0.0)), 0)
    assert not np.array_equal(spread.returns[2], base.returns[2])


def test_compiles_once(base):
    """Other seeds, lengths of training, caps and hyperparameters are the same program."""
    compiled = loop.advance_in_jax._cache_size(), loop.start_one._cache_size()
    run(seeds=(5, 6, 7), episodes=10, max_episode_length=7, agent=AGENT.replace(discount=0.5, temperature_start=0.7))
    assert (loop.advance_in_jax._cache_size(), loop.start_one._cache_size()) == compiled


def test_any_number_of_runs_starts_alike(monkeypatch):
    """A few by one program whatever their number, many by one of their own: the same runs."""
    agents = loop.broadcast(AGENT, 4)
    runs = loop.start(agents, ENV, jnp.arange(4, dtype=jnp.uint32), 10)
    compiled = loop.start_one._cache_size()
    two = loop.start(loop.broadcast(AGENT, 2), ENV, jnp.arange(2, dtype=jnp.uint32), 5)
    assert loop.start_one._cache_size() == compiled and two.sums.shape == (2, 5, 3)
    monkeypatch.setattr(loop, "ONE_BY_ONE", 3)
    together = loop.start(agents, ENV, jnp.arange(4, dtype=jnp.uint32), 10)
    found, expected = (jax.tree.leaves(x._replace(key=jax.random.key_data(x.key))) for x in (runs, together))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype


# -- what is measured


def test_bins_add_up(base):
    assert base.episodes.tolist() == list(range(20, 201, 20))
    assert base.finished.all()
    np.testing.assert_array_equal(np.round(base.lengths.sum(axis=1) * 20), base.steps)
    assert (base.lengths >= ENV.shortest_episode).all()
    assert ((base.returns >= 0) & (base.returns <= 1)).all()
    assert np.allclose(base.returns * 20, np.round(base.returns * 20))
    assert ((base.write_weights > 0) & (base.write_weights < 1)).all()
    assert base.query_vectors.shape == (3, 10, 1, ENV.observation_size)


def test_progress_tells_of_every_bin_once(base):
    reports = list(train_iter(AGENT, ENV, 200, SEEDS, bins=10, records_per_call=1))
    *progress, result = reports
    assert [p.steps for p in progress] == [500 * (k + 1) for k in range(len(progress))]
    told = [(entry["seed"], entry["episodes"], entry["return"]) for p in progress for entry in p.new_bins]
    expected = [(s, int(e), base.returns[i, b]) for i, s in enumerate(SEEDS) for b, e in enumerate(base.episodes)]
    assert sorted(told) == sorted(expected)
    assert progress[-1].total_steps == base.steps.sum() and (progress[-1].episodes == 200).all()
    assert progress[-1].recent_return == pytest.approx(base.returns[:, -1].mean())
    assert_same_run(result, 2, base, 2)
    seen = []
    run(on_progress=lambda p: seen.append(p.steps))
    assert seen == [p.steps for p in progress]


def test_a_run_that_does_not_end_is_ended():
    """After max_steps, whatever one call does: bins not reached are NaN, and the run is marked."""
    result = run(max_steps=501)
    assert result.steps.tolist() == [501] * 3 and not result.finished.any()
    for curve in (result.returns, result.lengths, result.write_weights[..., 0], result.query_vectors[..., 0, 0]):
        reached = np.isfinite(curve)
        assert reached[:, 0].all() and not reached[:, -1].any()
        assert (np.diff(reached.astype(int), axis=1) <= 0).all()


def test_episodes_are_cut_at_their_cap():
    """Too short to reach the decision: every episode has the cap's length, pays nothing, and leaves no memory."""
    cap = ENV.shortest_episode - 1
    result = run(max_episode_length=cap)
    assert (result.lengths == cap).all() and (result.returns == 0).all() and result.finished.all()
    assert (result.steps == 200 * cap).all()
    assert (np.asarray(result.agent_states.memory.count) <= cap).all()


@pytest.mark.slow
def test_finished_runs_do_not_change_any_more():
    agents = loop.broadcast(AGENT, 3)
    limits = jnp.int32(20), jnp.int32(2), jnp.int32(2**31 - 1), jnp.int32(2**31 - 1)
    runs = loop.start(agents, ENV, jnp.array(SEEDS, jnp.uint32), 10)
    runs, _ = loop.advance_in_jax(agents, ENV, runs, limits, records=1)
    kept = jax.tree.map(np.array, (runs.agent.params, runs.sums, runs.steps, runs.episode))
    assert (kept[3] == 20).all() and (kept[2] < 500).all()
    runs, _ = loop.advance_in_jax(agents, ENV, runs, limits, records=1)
    for before, after in zip(
        jax.tree.leaves(kept),
        jax.tree.leaves((runs.agent.params, runs.sums, runs.steps, runs.episode)),
        strict=True,
    ):
        assert np.array_equal(before, after)


# -- the loop, step by step


def test_the_loop_is_the_agents_own_steps():
    """``init``, ``begin`` and ``learn`` in a Python loop, with the loop's keys: the same 500 steps."""
    seed, cap = 1, 9
    agents = loop.broadcast(AGENT, 3)
    runs = loop.start(agents, ENV, jnp.array(SEEDS, jnp.uint32), 10)
    limits = jnp.int32(1000), jnp.int32(100), jnp.int32(cap), jnp.int32(2**31 - 1)
    runs, _ = loop.advance_in_jax(agents, ENV, runs, limits, records=1)

    init, begin, learn = jax.jit(AGENT.init, static_argnums=(1, 2)), jax.jit(AGENT.begin), jax.jit(AGENT.learn)
    reset, step = jax.jit(ENV.reset), jax.jit(ENV.step)
    keys_of_step = jax.jit(lambda key, t: [prng.at(key, t, purpose) for purpose in range(4)])
    key_agent, key_reset, key_begin, key_loop = jax.random.split(prng.key(seed), 4)
    env_state, observation = reset(key_reset)
    state, action = begin(init(key_agent, ENV.observation_size, ENV.num_actions), observation, key_begin)
    length = episodes = cut = 0
    for t in range(loop.RECORD):
        _, key_reset, key_learn, key_begin = keys_of_step(key_loop, t)
        env_state, timestep = step(env_state, action)
        length += 1
        timestep = timestep._replace(truncated=jnp.array(length >= cap and not timestep.terminated))
        state = learn(state, timestep, key_learn)
        observation = timestep.observation
        if timestep.terminated or timestep.truncated:
            env_state, observation = reset(key_reset)
            length, episodes, cut = 0, episodes + 1, cut + int(timestep.truncated)
        state, action = begin(state, observation, key_begin)
    assert episodes == int(runs.episode[1]) > cut > 0
    assert int(action) == int(runs.agent.decision.action[1])
    for mine, theirs in zip(jax.tree.leaves(state.params), jax.tree.leaves(runs.agent.params), strict=True):
        np.testing.assert_allclose(mine, theirs[1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("agent", [AGENT, RecurrentActorCritic(width=4, window=3)], ids=["episodic", "recurrent"])
def test_what_the_loop_carries_does_not_grow(agent):
    """A step returns what it was given, in shape and type, so neither episodes nor training can make it larger."""

    def shape(tree):
        return jax.tree.map(lambda x: (x.shape, x.dtype), tree)

    start = jax.eval_shape(lambda: start_run(agent, ENV, jnp.uint32(0), 5))
    after = jax.eval_shape(lambda r: step_run(agent, ENV, r, *map(jnp.int32, (5, 1, 9, 99))), start)
    assert shape(start) == shape(after)


# -- arguments


@pytest.mark.parametrize(
    "options, message",
    [
        ({"episodes": 0}, "episodes must be at least 1, got 0"),
        ({"seeds": ()}, "seeds must name at least one seed"),
        ({"seeds": (1, 1)}, "seeds must differ from one another"),
        ({"seeds": (-1,)}, r"seeds must lie between 0 and 2\^31 - 1"),
        ({"bins": 0}, "bins must be at least 1, got 0"),
        ({"records_per_call": 0}, "records_per_call must be at least 1, got 0"),
        ({"bins": 7}, "episodes=200 must be a multiple of bins=7"),
        ({"max_steps": 0}, "max_steps must be at least 1, got 0"),
        ({"max_episode_length": -5}, "max_episode_length must be at least 1, got -5"),
        ({"episodes": 10**18}, r"episodes must be below 2\^31, got 1000000000000000000"),
        (
            {"agent": AGENT.replace(learning_rate=np.array([0.1, 0.2]))},
            r"must be one number or one per run \(3\), got shape \(2,\)",
        ),
    ],
)
def test_wrong_arguments_are_refused(options, message):
    settings = {"agent": AGENT, "env": ENV, "episodes": 200, "seeds": SEEDS, **options}
    with pytest.raises(ValueError, match=message):
        train(**settings)


@pytest.mark.parametrize(
    "options, message",
    [
        (
            {"agent": ENV, "env": AGENT},
            r"^agent=SecretInformant\(.* and env are swapped: train\(agent, env, episodes\)",
        ),
        ({"agent": "general"}, r"^agent='general' must be an agent, such as recollect\.GeneralActorCritic\(\)"),
        ({"agent": EpisodicActorCritic}, r"^agent=.* is a class: give an object of it, as in EpisodicActorCritic\(\)"),
        ({"env": "CartPole-v1"}, r"^env='CartPole-v1' is not a JAX environment, .* Learner\(env='CartPole-v1'\)"),
        ({"env": SecretInformant}, r"^env=.* is a class: give an object of it, as in SecretInformant\(\)"),
        ({"env": 3}, "^env=3 is not a JAX environment: it has no observation_size, num_actions, reset, step; "),
        ({"episodes": "10"}, "^episodes='10' must be a whole number"),
        ({"episodes": 1.5}, "^episodes=1.5 must be a whole number"),
        ({"seeds": 3}, "^seeds=3 must be a sequence of whole numbers"),
        ({"seeds": [0.5]}, "^seeds=.* must be a sequence of whole numbers"),
        ({"on_progress": 3}, "^on_progress=3 must be a function"),
    ],
)
def test_arguments_of_another_kind_are_refused(options, message):
    settings = {"agent": AGENT, "env": ENV, "episodes": 200, "seeds": SEEDS, **options}
    with pytest.raises(TypeError, match=message):
        train(**settings)


class Faulty(SecretInformant):
    """Pays NaN for the right decision."""

    def step(self, state, action, key=None):
        state, timestep = super().step(state, action, key)
        return state, timestep._replace(reward=jnp.where(timestep.reward > 0, jnp.nan, timestep.reward))


def test_an_environment_that_gives_nan_is_named():
    with pytest.raises(
        RecollectError, match="seed 7: the environment gave a reward or an observation that is not finite"
    ):
        train(AGENT, Faulty(2, 1), 100, [7], records_per_call=1)
