"""Resuming is exact: from any report on, through a checkpoint on disk, the same bits as without a break."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recollect import EpisodicActorCritic, FileError, RecollectError, RecurrentActorCritic, SecretInformant, prng
from recollect.engines import loop
from recollect.envs.base import TimeStep
from recollect.store import checkpoints, trees
from recollect.training import batch
from recollect.training.batch import train_iter
from recollect.training.group import state_like

ENV = SecretInformant(length=2, actions=2)
AGENTS = {
    "episodic": EpisodicActorCritic(memory_size=2, hidden=4),
    "fifo": EpisodicActorCritic(memory_size=2, hidden=4, memory="fifo", reset_memory=False),
    "recurrent": RecurrentActorCritic(width=4, window=3),
}
OPTIONS = {"bins": 5, "records_per_call": 1, "max_steps": 2600}


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Runs may end after six records, what ``max_steps`` above comes to, and not only after forty."""
    monkeypatch.setattr(loop, "WHOLE", 6)


def parts(result):
    """Everything a result holds, as bytes."""
    arrays = trees.flatten({name: getattr(result, name) for name in result.__dataclass_fields__})
    return {name: (array.dtype, array.shape, array.tobytes()) for name, array in arrays.items()}


def run(agent, state=None, **options):
    return train_iter(AGENTS[agent], ENV, 200, (3, 1), state=state, **{**OPTIONS, **options})


def blank():
    """A state of the right form, without compiling anything."""
    form = trees.shapes(state_like(AGENTS["episodic"], ENV, 2, 5))
    return {name: np.zeros(shape, dtype) for name, (shape, dtype) in form.items()}


@pytest.mark.parametrize("agent", ["episodic", "recurrent"])
def test_the_compiled_loop(tmp_path, agent):
    saved, bins = [], []
    for report in run(agent):
        if isinstance(report, batch.Result):
            break
        bins.append(report.new_bins)
        checkpoints.save(tmp_path / str(len(saved)), report.snapshot(), {})
        saved.append(tmp_path / str(len(saved)))
    whole = parts(report)
    assert len(saved) >= 2
    like = trees.shapes(state_like(AGENTS[agent], ENV, 2, 5))
    for k, folder in enumerate(saved):
        state = checkpoints.load(folder, like=like).arrays
        *reports, result = run(agent, state)
        assert parts(result) == whole
        rest = [line for report in reports for line in report.new_bins]
        assert repr(rest) == repr([line for lines in bins[k + 1 :] for line in lines])
    # From the last snapshot nothing is compiled or stepped, whatever a call would do: the result is there at once.
    sizes = loop.advance_in_jax._cache_size()
    (result,) = run(agent, state, records_per_call=4)
    assert parts(result) == whole and loop.advance_in_jax._cache_size() == sizes


@pytest.mark.parametrize(
    ("agent", "env", "options", "message"),
    [
        (
            "episodic",
            SecretInformant(length=2, actions=3),
            {},
            r"observation: expected float32\[2, 8\], got float32\[2, 7\]",
        ),
        ("episodic", SecretInformant(length=3, actions=2), {}, r"chain: expected int32\[2, 3\], got int32\[2, 2\]"),
        ("recurrent", ENV, {}, r"runs.agent.optimizer.nu"),
        ("fifo", ENV, {}, "runs.agent.memory"),
        ("episodic", ENV, {"bins": 10}, r"expected int64\[2, 10\]|expected float\d+\[2, 10"),
    ],
)
def test_another_observation_agent_or_task_is_refused_before_compiling(tmp_path, agent, env, options, message):
    """Expected and got, by name; through the file and from the arrays alike."""
    state = blank()
    checkpoints.save(tmp_path, state, {})
    compiled_before = loop.advance_in_jax._cache_size(), loop.start_one._cache_size()
    bins = options.get("bins", 5)
    with pytest.raises(FileError, match=message):
        checkpoints.load(tmp_path, like=trees.shapes(state_like(AGENTS[agent], env, 2, bins)))
    with pytest.raises(FileError, match=message):
        next(train_iter(AGENTS[agent], env, 200, (3, 1), state=state, **{**OPTIONS, **options}))
    assert (loop.advance_in_jax._cache_size(), loop.start_one._cache_size()) == compiled_before


def test_another_dtype_is_refused():
    state = blank()
    name = "runs.agent.decision.observation"
    with pytest.raises(FileError, match=rf"{name}: expected float32\[2, 7\], got float64\[2, 7\]"):
        next(run("episodic", {**state, name: state[name].astype(np.float64)}))


# -- nothing that is not finite


FAULTS = [np.nan, np.inf, -np.inf]


class Faulty(SecretInformant):
    """At the 700th step of a run pays ``pay`` and adds ``see`` to what is seen; both are kept in the state."""

    def reset(self, key):
        state, observation = super().reset(key)
        return (state, jnp.int32(0), jnp.float32(np.nan), jnp.float32(0.0)), observation

    def step(self, state, action, key):
        state, step, pay, see = state
        state, timestep = super().step(state, action, key)
        reward = timestep.reward + jnp.where(step == 699, pay, 0.0)
        observation = timestep.observation.at[0].add(jnp.where(step == 699, see, 0.0))
        timestep = timestep._replace(reward=reward, observation=observation, terminated=jnp.array(False))
        return (state, step + 1, pay, see), timestep


@pytest.mark.parametrize("agent", ["episodic", "recurrent"])
def test_nothing_that_is_not_finite_reaches_the_parameters(agent):
    """NaN, ∞ and −∞, in reward and observation; a reward so large that the update is not finite; and nothing wrong.

    Eight runs go on for 300 steps after it, all their parameters finite; training stops with step, environment, seed.
    """
    env, seeds, agent = Faulty(2, 1, 2), range(30, 38), AGENTS[agent].replace(learning_rate=10.0)
    agents = loop.broadcast(agent, 8)
    runs = loop.start(agents, env, jnp.array(seeds, jnp.uint32), 1)
    pay, see = jnp.array([*FAULTS, 0.0, 0.0, 0.0, 3e38, 0.0]), jnp.array([0.0, 0.0, 0.0, *FAULTS, 0.0, 0.0])
    runs = runs._replace(env=(*runs.env[:2], pay, see))
    start = trees.flatten({**state_like(agent, env, 8, 1), "runs": runs})
    limits = tuple(jnp.int32(x) for x in (10, 10, 2**31 - 1, 2**31 - 1))
    after, _ = loop.advance_in_jax(agents, env, runs, limits, records=2)
    assert after.faults.tolist() == [700] * 6 + [-700, 0] and after.steps.tolist() == [1000] * 8
    kept = trees.flatten((after.agent.params, getattr(after.agent, "optimizer", ())))
    assert all(np.isfinite(array).all() for array in kept.values())

    for first, what in ((0, "the environment gave a reward or an observation that is"), (6, "the update was")):
        # The faults of the runs before it are taken away; the program is the one that is compiled already.
        pays, sees = start["runs.env.2"].copy(), start["runs.env.3"].copy()
        pays[:first] = sees[:first] = 0.0
        state = {**start, "runs.env.2": pays, "runs.env.3": sees}
        with pytest.raises(RecollectError) as raised:
            list(train_iter(agent, env, 10, seeds, bins=1, records_per_call=2, state=state))
        message = str(raised.value)
        assert (
            f"seed {seeds[first]}: {what} not finite at step 700 of Faulty(length=2, decisions=1, actions=2" in message
        )


def test_finite_steps_out_of_range_do_not_reach_the_parameters():
    """A gradient that is finite, a step size that leads out of float32: the update is not made."""
    agent = AGENTS["episodic"]
    state = agent.init(prng.key(0), 4, 2)
    state, _ = jax.jit(agent.begin)(state, jnp.ones(4), prng.key(1))
    update = jax.jit(lambda agent, state, step: agent.update(state, step, prng.key(2)))
    made = {}
    for reward in (1.0, 1e30, -3e38, 3e38, np.inf, np.nan):
        step = TimeStep(jnp.ones(4), jnp.float32(reward), jnp.array(False), jnp.array(False))
        for rate in (0.01, 10.0):
            after, sound = update(agent.replace(learning_rate=rate), state, step)
            before, arrays = trees.flatten(state.params), trees.flatten(after.params)
            assert all(np.isfinite(array).all() for array in arrays.values()), (reward, rate)
            assert sound or all(np.array_equal(before[name], array) for name, array in arrays.items())
            made[reward, rate] = bool(sound)
    assert made[1.0, 0.01] and made[3e38, 0.01] and not made[3e38, 10.0] and not made[np.inf, 0.01]


# -- memory that cannot be had, episodes that are cut


def test_a_memory_of_a_billion_is_refused_by_its_bytes():
    with pytest.raises(ValueError, match=r"memory_size=1000000000 needs 4,000,000,000,000,000,000 bytes per run"):
        EpisodicActorCritic(memory_size=10**9)
    for memory in ("fifo", "uniform"):
        agent = EpisodicActorCritic(memory_size=10**9, memory=memory)
        with pytest.raises(
            ValueError, match=r"the states of 2 runs need [\d,]{13,} bytes, this machine has [\d,]+: take a"
        ):
            next(train_iter(agent, ENV, 10, (0, 1)))


def test_a_cut_episode_bootstraps():
    """At the cap the next state's value counts, as in the middle of an episode; at an end it does not."""
    agent = EpisodicActorCritic(memory_size=2, critic_start="random", discount=0.9)
    state = agent.init(prng.key(0), 4, 2)
    state, _ = jax.jit(agent.begin)(state, jnp.array([1.0, 0, 1, 0]), prng.key(1))
    learn = jax.jit(agent.learn)

    def after(terminated, truncated):
        step = TimeStep(jnp.array([0.0, 1, 1, 0]), jnp.float32(0.5), jnp.array(terminated), jnp.array(truncated))
        return trees.flatten(learn(state, step, prng.key(2)).params)

    going, cut, ended = after(False, False), after(False, True), after(True, False)
    assert all(np.array_equal(going[k], cut[k]) for k in going)
    assert any(not np.array_equal(ended[k], cut[k]) for k in going)
