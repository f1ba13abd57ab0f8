"""JAX environments of other libraries: step by step the same as the originals, and trained by name."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import recollect
from recollect import cli, prng
from recollect.engines.choice import for_training
from recollect.envs import adapt, adapters, making
from recollect.envs.jax_env import JaxEnv
from recollect.envs.t_maze import TMaze
from recollect.errors import RecollectError


@pytest.fixture
def gymnax():
    return pytest.importorskip("gymnax", reason="the extra `jax-envs` brings gymnax")


@pytest.fixture
def xminigrid():
    return pytest.importorskip("xminigrid", reason="the extra `jax-envs` brings xminigrid")


@pytest.fixture
def not_compiled():
    with jax.disable_jit():
        yield


def as_written(function):
    """The originals mix types, which this library's tests forbid."""

    def called(*args):
        with jax.numpy_dtype_promotion("standard"):
            return function(*args)

    return called


def numbers(tree):
    keys = (jnp.issubdtype(x.dtype, jax.dtypes.prng_key) for x in map(jnp.asarray, jax.tree.leaves(tree)))
    leaves = jax.tree.leaves(tree)
    return [np.asarray(jax.random.key_data(x) if key else x) for x, key in zip(leaves, keys, strict=True)]


def assert_same(a, b):
    for x, y in zip(numbers(a), numbers(b), strict=True):
        np.testing.assert_array_equal(x, y)


def as_vector(observation):
    return np.asarray(observation, np.float32).reshape(-1)


@pytest.mark.parametrize(
    ("name", "options", "seen", "steps", "ends"),
    [
        ("MemoryChain-bsuite", {"memory_length": 4}, as_vector, 60, {(True, False)}),
        ("MemoryChain-bsuite", {"memory_length": 8, "max_steps_in_episode": 7}, as_vector, 40, {(False, True)}),
        (
            "CartPole-v1",
            {"max_steps_in_episode": 7, "theta_threshold_radians": 0.06},
            as_vector,
            24,
            {(True, False), (False, True)},
        ),
        ("Catch-bsuite", {}, as_vector, 60, {(True, False)}),
        ("FrozenLake-misc", {}, lambda x: np.eye(16, dtype=np.float32)[x], 60, {(True, False)}),
    ],
)
def test_gymnax_steps_as_its_own(request, gymnax, name, options, seen, steps, ends):
    """Beside gymnax's public ``step`` with the same keys, which restarts, and tells the last observation apart.

    CartPole operation by operation: compiled, the two may round apart, as parameters are constants here.
    """
    if name == "CartPole-v1":
        request.getfixturevalue("not_compiled")
    original, params = gymnax.make(name)
    params = params.replace(**options)
    env = adapt(original, params)
    key, rng, found = prng.key(3), np.random.default_rng(0), set()
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    its_reset, its_step = as_written(original.reset), as_written(original.step)
    state, observation = reset(key)
    first, its_state = its_reset(key, params)
    np.testing.assert_array_equal(observation, seen(first))
    assert_same(state, its_state)
    for t in range(steps):
        key_step, key_reset = prng.at(key, t, 0), prng.at(key, t, 1)
        action = np.int32(rng.integers(env.num_actions))
        _, its_state, its_reward, *its_flags, info = its_step(key_step, state, action, params)
        state, (observation, reward, *flags) = step(state, action, key_step)
        np.testing.assert_array_equal(observation, seen(info["final_observation"]))
        assert observation.shape == (env.observation_size,) and observation.dtype == np.float32
        assert reward == its_reward and flags == its_flags
        if any(flags):
            found.add(tuple(map(bool, flags)))
            state, observation = reset(key_reset)
            first, its_state = its_reset(key_reset, params)
            np.testing.assert_array_equal(observation, seen(first))
        assert_same(state, its_state)
    assert found >= ends


def test_xminigrid_steps_as_its_own(xminigrid):
    original, params = xminigrid.make("MiniGrid-MemoryS8", max_steps=12)
    env = adapt(original, params)
    assert env.observation_size == 3 * 3 * (13 + 12) and env.num_actions == 6
    its_reset, its_step = (as_written(jax.jit(f, static_argnums=0)) for f in (original.reset, original.step))
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    key, rng, found, rewards = prng.key(5), np.random.default_rng(1), set(), set()
    for episode in range(16):
        key_reset = prng.at(key, episode, 0)
        timestep, (state, observation) = its_reset(params, key_reset), reset(key_reset)
        over = False
        while not over:
            view = np.asarray(observation).reshape(3, 3, 25)
            np.testing.assert_array_equal(view[..., :13].argmax(-1), timestep.observation[..., 0])
            np.testing.assert_array_equal(view[..., 13:].argmax(-1), timestep.observation[..., 1])
            assert (view.sum(-1) == 2).all() and set(np.unique(view)) == {0, 1}
            assert_same(state, timestep)
            action = np.int32(rng.choice(6, p=[0.7, 0.1, 0.1, 0.04, 0.03, 0.03]))
            timestep = its_step(params, timestep, action)
            state, (observation, reward, *flags) = step(state, action, prng.key(0))
            over = bool(timestep.last())
            ends = [tuple(map(int, x)) for x in timestep.state.carry.__dict__.values()]  # where it is right and wrong
            goal = tuple(map(int, timestep.state.agent.position)) in ends
            assert reward == timestep.reward and flags == [goal, over and not goal]
            found |= {(goal, over and not goal)} if over else set()
            rewards.add(float(reward) > 0)
    assert found == {(True, False), (False, True)} and rewards == {False, True}


def test_equal_environments_are_one(gymnax, xminigrid):
    """So that a second training in an environment that was made again compiles nothing again."""
    for name, options in (("gymnax:Acrobot-v1", {"max_steps_in_episode": 9}), ("xminigrid:MiniGrid-MemoryS8", {})):
        one, two = adapters.named(name, **options), adapters.named(name, **options)
        assert one == two and hash(one) == hash(two) and one.original is not two.original
    assert adapters.named("gymnax:MemoryChain-bsuite", num_bits=2) != adapters.named("gymnax:MemoryChain-bsuite")
    assert adapters.named("gymnax:CartPole-v1") != adapters.named("gymnax:CartPole-v1", gravity=9.0)


def test_whole_numbers_are_scaled_as_gymnasiums_are(gymnax):
    from gymnax.environments import spaces

    from recollect.envs.gymnax import _vector
    from recollect.envs.spaces import observations

    parts = {
        "picture": (spaces.Box(0, 255, (2, 2), jnp.uint8), np.array([[0, 51], [255, 1]], np.uint8)),
        "wide": (spaces.Box(0, 2**20, (1,), jnp.int32), np.array([77], np.int32)),
        "kind": (spaces.Discrete(3), np.int32(2)),
        "at": (spaces.Box(-1.0, 1.0, (2,)), np.array([0.5, -0.5], np.float32)),
    }
    size, encode = _vector(spaces.Dict({name: space for name, (space, _) in parts.items()}), "observation space")
    observation = {name: x for name, (_, x) in parts.items()}
    expected = []
    for space, x in parts.values():
        vector = observations(spaces.gymnax_space_to_gym_space(space))
        expected.append(np.zeros(vector.size, np.float32))
        vector.write(x, expected[-1])
    assert size == 10
    np.testing.assert_allclose(encode(observation), np.concatenate(expected), rtol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gymnax:MemoryChain-bsuite", "gymnax:CartPole-v1", "xminigrid:MiniGrid-MemoryS8"])
def test_training_is_compiled_as_in_xla(gymnax, xminigrid, name):
    env, agent = adapters.named(name), recollect.EpisodicActorCritic(memory_size=2, hidden=4, learning_rate=0.01)
    results = [recollect.train(agent, env, 40, (0, 1), max_steps=500, engine=engine) for engine in ("cpu", "jax")]
    assert [r.engine for r in results] == ["cpu", "jax"]
    np.testing.assert_array_equal(results[0].steps, results[1].steps)
    np.testing.assert_allclose(results[0].returns, results[1].returns, rtol=1e-5)


def test_the_step_compiler_serves_them(gymnax, xminigrid):
    agent = recollect.EpisodicActorCritic(memory_size=2, hidden=4)
    for name in ("gymnax:MemoryChain-bsuite", "gymnax:CartPole-v1", "xminigrid:MiniGrid-MemoryS8"):
        assert for_training(agent, adapters.named(name)).engine in ("cpu", "compiled-gpu")


def test_trained_by_name_from_the_command_line(gymnax, xminigrid, tmp_path, capsys):
    out = tmp_path / "run"
    words = ["train", "--agent", "none", "--steps", "120", "--record", "0"]
    assert (
        cli.main([*words, "--env", "gymnax:MemoryChain-bsuite", "--env-set", "memory_length=3", "--out", str(out)]) == 0
    )
    assert "episodes: 30" in capsys.readouterr().out
    assert cli.main(["evaluate", str(out), "--episodes", "2"]) == 0
    assert cli.main(["envs", "MiniGrid-MemoryS128"]) == 0
    assert "xminigrid:MiniGrid-MemoryS128" in capsys.readouterr().out
    env = making.make("xminigrid:MiniGrid-MemoryS8")
    making.check(env, "xminigrid:MiniGrid-MemoryS8")


@pytest.mark.parametrize("package", ["gymnax", "xminigrid"])
def test_a_missing_package_is_named_with_its_extra(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(RecollectError, match=rf"needs {package}: pip install 'recollect\[jax-envs\]'"):
        making.make(f"{package}:Anything")
    assert not any(env_id.startswith(f"{package}:") for env_id, _ in making.listing())


def test_what_cannot_be_adapted_is_refused(gymnax):
    with pytest.raises(TypeError, match="neither gymnax nor xminigrid"):
        adapt(TMaze())
    with pytest.raises(RecollectError, match="only Discrete"):
        adapters.named("gymnax:Pendulum-v1")
    with pytest.raises(RecollectError, match="`recollect envs gymnax:` lists"):
        adapters.named("gymnax:NoSuch-v0")
    with pytest.raises(RecollectError, match="no_such_option"):
        adapters.named("gymnax:CartPole-v1", no_such_option=1)


def test_jax_environments_by_name_without_other_packages():
    assert adapters.named("recollect/TMaze-v0", length=3) == TMaze(3)
    assert adapters.named("recollect.envs.t_maze:TMaze") == TMaze()
    with pytest.raises(RecollectError, match="is no environment in JAX"):
        adapters.named("CartPole-v1")
    with pytest.raises(RecollectError, match=r"cannot make 'recollect\.envs\.t_maze:Nothing'"):
        adapters.named("recollect.envs.t_maze:Nothing")


def test_a_jax_environment_in_gymnasium_is_the_same():
    """`TMaze` through `JaxEnv`: its rules, and chance from Gymnasium's seed alone."""
    env = JaxEnv(TMaze(length=2, passive=False))
    making.check(env, "TMaze")
    for seed in range(4):
        first, _ = env.reset(seed=seed)
        again, _ = env.reset(seed=seed)
        np.testing.assert_array_equal(first, again)
        cue = int(first.argmax())
        path = [env.step(np.int64(a)) for a in (2, 2, 0, 2, cue)]
        assert [step[1] for step in path] == pytest.approx([0, 0, -0.1, 0, 1])
        assert [step[2] for step in path] == [False] * 4 + [True]
    assert {int(env.reset(seed=seed)[0].argmax()) for seed in range(8)} == {0, 1}
    with pytest.raises(ValueError, match="action=3 must be at least 0 and below 3"):
        env.step(np.int64(3))
