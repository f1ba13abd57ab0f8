"""A learner that was saved anywhere goes on to the same bits: parameters, memory, statistics and metrics."""

import copy
import errno
import functools
import json
import pickle
import shutil
import signal
import time
from unittest import mock

import gymnasium as gym
import jax
import numpy as np
import pytest

from recollect import Learner, cli
from recollect.agents.distributions import Gaussian
from recollect.agents.episodic import EpisodicActorCritic
from recollect.agents.realtime import RealTimeActorCritic
from recollect.agents.recurrent import RecurrentActorCritic
from recollect.engines.compiled_host import CompiledHost
from recollect.engines.host import blank_rows
from recollect.envs import making, spaces
from recollect.errors import FileError, RecollectError
from recollect.store import checkpoints, files, lock, run_folders, run_reading, trees
from recollect.store.interrupts import Interrupted
from recollect.training import callbacks, env_pool, inspection
from recollect.training import online as learner_module
from recollect.training.env_pool import NotRepeatableError
from recollect.training.normalization import Normalizer
from recollect.training.resuming import resume
from recollect.training.returned import EnvironmentFault
from reliability import commands

NATIVE = EpisodicActorCritic(memory_size=2, hidden=4)
BOTH = {"normalize_observations": True, "normalize_rewards": True}
CLOCKS = ("seconds", "steps_per_second")


class Walk(gym.Env):
    """Every observation, reward and ending is drawn; ``loose``: from numbers that no seed determines."""

    observation_space = gym.spaces.Box(-5.0, 5.0, (3,), np.float32)
    action_space = gym.spaces.Discrete(3)
    loose = False

    def __init__(self):
        self.drift = np.random.default_rng()

    def _seen(self, rng):
        return np.clip(rng.normal(self.at, 0.1, 3), -5, 5).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = self.np_random.normal()
        return self._seen(self.np_random), {}

    def step(self, action):
        rng = self.drift if self.loose else self.np_random
        self.at += float(np.sum(action)) - 1.0
        over = bool(self.np_random.uniform() < 0.15)
        return self._seen(rng), float(rng.normal(self.at)), over, bool(self.np_random.uniform() < 0.05), {}


class LooseWalk(Walk):
    loose = True


class Continuous(Walk):
    action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)


def bits(learner):
    """Everything that training depends on."""
    state = {"live": learner.host.unpack(learner._packed), "normalizer": learner.normalizer.state()}
    drawn = {} if learner._drawn is None else {"drawn": np.asarray(learner._drawn)}
    found = {**trees.flatten(state), **learner.fleet.state(), "recent": learner._recent, **drawn}
    return {name: array.tobytes() for name, array in found.items()}


def rows(*folders):
    found = [json.loads(line) for folder in folders for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if name not in CLOCKS} for row in found]


CASES = {
    "native": (NATIVE, Walk, {}),
    "native-fifo": (NATIVE.replace(memory="fifo"), Walk, {}),
    "native-uniform-each": (NATIVE.replace(memory="uniform"), Walk, {"copies": 2, "learners": "each", **BOTH}),
    "native-rmsprop": (NATIVE.replace(trace_decay=0.5, optimizer="rmsprop"), Walk, BOTH),
    "shared": (NATIVE, Walk, {"copies": 3, **BOTH}),
    "continuous": (NATIVE.replace(optimizer="rmsprop"), Continuous, BOTH),
    "native-recurrent": (RecurrentActorCritic(width=4, window=3), Walk, BOTH),
    "native-real-time-each": (RealTimeActorCritic(width=4), Walk, {"copies": 2, "learners": "each"}),
    "recurrent-each": (
        RecurrentActorCritic(width=4, window=3, activation="relu"),
        Walk,
        {"copies": 2, "learners": "each"},
    ),
}


@pytest.fixture
def one_by_one(monkeypatch):
    """Training looks up after every step, so that it is interrupted at the very step that asks for it."""
    monkeypatch.setattr(learner_module, "PAUSE", 0.0)


def interrupted(moment, work, number=signal.SIGINT):
    """Ctrl-C at the so-manieth step of training from now; steps that are played again do not count."""
    step, left = env_pool.Copies.step, [moment]

    def counting(self, drawn, rows):
        step(self, drawn, rows)
        left[0] -= 1
        if left[0] == 0:
            signal.raise_signal(number)

    with mock.patch.object(env_pool.Copies, "step", counting), pytest.raises(Interrupted):
        work()


def make(case):
    agent, env, options = CASES[case]
    return Learner(agent, env, seed=2, check=False, **options)


@pytest.mark.parametrize("case", CASES)
def test_interrupted_anywhere_and_resumed(case, tmp_path, one_by_one):
    """At random moments, in the middle of rows and of episodes: the bits and the rows of one that was left alone."""
    env, run = CASES[case][1], tmp_path / "run"
    whole = make(case).learn(120, log_every=17, folder=tmp_path / "whole")
    assert isinstance(whole.host, CompiledHost)
    last = 120 // (whole.copies if whole.shared else 1)
    moments = np.sort(np.random.default_rng(len(case)).choice(np.arange(1, last), 4, replace=False))
    interrupted(moments[0], lambda: make(case).learn(120, log_every=17, folder=run))
    for number, moment in zip((signal.SIGTERM, signal.SIGINT, signal.SIGTERM), np.diff(moments), strict=True):
        interrupted(moment, lambda: resume(run, env), number)
    found = resume(run, env)
    assert bits(found) == bits(whole) and rows(run) == rows(tmp_path / "whole")
    assert found.exact and commands.read_json(run / "status.json")["exact"] is True
    assert [wrong for _, wrong in run_reading.verify(run) if wrong] == []
    table = [(folder / "metrics.csv").read_text().splitlines() for folder in (run, tmp_path / "whole")]
    assert [line.split(",")[:6] for line in table[0]] == [line.split(",")[:6] for line in table[1]]


@pytest.mark.parametrize("case", ["native", "shared"])
def test_load_and_learn(case, tmp_path, one_by_one):
    """In Python, into a folder of its own: what comes is what would have come."""
    whole = make(case).learn(120, log_every=17, folder=tmp_path / "whole")
    learner = make(case)
    learner.advance(7)
    interrupted(15, lambda: learner.learn(80, log_every=17, folder=tmp_path / "first"))
    rest = Learner.load(learner.save(tmp_path / "kept").parent, Walk)
    again = Learner.load(rest.save(tmp_path / "again").parent, Walk)  # saved before it was taken up
    for found, name in ((rest, "rest"), (again, "more"), (learner, None)):
        found.learn(120 - found.steps, log_every=17, folder=name and tmp_path / name)
        assert bits(found) == bits(whole)
    assert rows(tmp_path / "first") == rows(tmp_path / "whole")
    assert (
        rows(tmp_path / "rest") == rows(tmp_path / "more") == rows(tmp_path / "whole")[-len(rows(tmp_path / "rest")) :]
    )


def test_callbacks_are_remembered(tmp_path, one_by_one):
    """Evaluations and the patience of an early stop come at the same rows; callbacks of one's own are asked for."""

    def learn(folder):
        watch = [callbacks.Evaluate(30, 2), callbacks.EarlyStop(-1e9, patience=5), callbacks.Checkpoint(20)]
        return make("native").learn(120, log_every=10, folder=tmp_path / folder, callbacks=watch)

    whole = learn("whole")
    assert whole.steps < 120, "stopped early"
    interrupted(33, lambda: learn("run"))
    interrupted(5, lambda: resume(tmp_path / "run", Walk))
    found = resume(tmp_path / "run", Walk)
    assert bits(found) == bits(whole) and rows(tmp_path / "run") == rows(tmp_path / "whole")
    assert sum("evaluation" in row for row in rows(tmp_path / "run")) >= 1
    before = commands.content(tmp_path / "run")
    assert resume(tmp_path / "run", Walk).steps == whole.steps and commands.content(tmp_path / "run") == before
    interrupted(3, lambda: make("native").learn(9, folder=tmp_path / "own", callbacks=[lambda learner, row: None]))
    with pytest.raises(FileError, match=r"callbacks of your own .*lambda.* are not in the folder"):
        resume(tmp_path / "own", Walk)
    assert resume(tmp_path / "own", Walk, callbacks=[]).steps == 9


def test_nobody_plays_in_the_environment_that_is_learned_in(tmp_path, one_by_one):
    """Evaluation, inspection and their callbacks take another one, or say why they cannot; training goes on exactly."""
    learner, whole = (Learner(NATIVE, Walk(), seed=2, check=False) for _ in range(2))
    whole.learn(60, log_every=10, folder=tmp_path / "whole")
    learner.learn(25, log_every=10, folder=tmp_path / "run")
    for attempt in (
        lambda: learner.evaluate(1),
        lambda: inspection.play(learner),
        lambda: learner.evaluate(1, env=learner.env),
        lambda: learner.learn(5, callbacks=[callbacks.Evaluate(2)]),
    ):
        with pytest.raises(RecollectError, match=r"one Walk and is learning in it|environment that is learned in"):
            attempt()
    assert learner.steps == 25
    assert len(learner.evaluate(2, env=Walk).returns) == 2 and inspection.play(learner, env=Walk())
    with pytest.raises(RecollectError, match=r"env has the action space .*, the learner's is"):
        learner.evaluate(1, env=Continuous)
    learner.learn(35, log_every=10)
    assert bits(learner) == bits(whole)


@pytest.mark.parametrize("kind", ["instance", "factory"])
def test_an_environment_that_someone_else_reset_is_brought_back(kind, tmp_path):
    """Between two calls, by ``learner.env`` or by whoever holds the environment: no transition is spliced."""
    whole = Learner(NATIVE, Walk, seed=2, check=False).learn(60, log_every=10, folder=tmp_path / "whole")
    learner = Learner(NATIVE, Walk() if kind == "instance" else Walk, seed=2, check=False)
    for k in range(6):
        learner.learn(10, log_every=10, folder=tmp_path / "run")
        learner.env.reset(seed=k)
        learner.env.step(0)
    assert bits(learner) == bits(whole) and learner.exact and rows(tmp_path / "run") == rows(tmp_path / "whole")
    assert copy.deepcopy(learner.env).reset(seed=1)[0].shape == (3,) and pickle.loads(pickle.dumps(learner.env))
    learner.close()
    assert not vars(learner.env).keys() & {"reset", "step"}


def test_an_environment_that_someone_else_reset_and_that_does_not_come_again(tmp_path):
    learner = Learner(NATIVE, LooseWalk(), seed=4, check=False).learn(10, folder=tmp_path / "run")
    while learner.fleet.lengths == [0]:
        learner.advance(1)
    learner.env.reset(seed=0)
    with pytest.warns(RuntimeWarning, match="LooseWalk was reset or stepped outside of training"):
        learner.learn(10)
    assert not learner.exact and commands.read_json(tmp_path / "run" / "status.json")["exact"] is False


def test_a_second_call_is_resumed_with_its_own_settings(tmp_path, one_by_one):
    """Its interval of rows, its callbacks, its limits; a callback of one's own is asked for."""

    def learn(folder, watch, moment=None):
        learner = make("native").learn(20, log_every=10, folder=tmp_path / folder)
        again = functools.partial(learner.learn, 80, log_every=25, callbacks=watch, checkpoint_every=33.0)
        if moment is None:
            return again()
        interrupted(moment, again)

    watch = [callbacks.EarlyStop(-1e9, patience=3), callbacks.Evaluate(30, 1)]
    whole = learn("whole", [*watch, lambda learner, row: None])
    assert whole.steps == 95 and [row["steps"] for row in rows(tmp_path / "whole")] == [10, 20, 45, 70, 95]
    learn("run", [callbacks.EarlyStop(-1e9, patience=3), callbacks.Evaluate(30, 1)], 37)
    found = resume(tmp_path / "run", Walk)
    assert bits(found) == bits(whole) and rows(tmp_path / "run") == rows(tmp_path / "whole") and found.exact
    assert found._learning["checkpoint_every"] == 33.0
    learn("own", [lambda learner, row: None], 37)
    with pytest.raises(FileError, match="callbacks of your own"):
        resume(tmp_path / "own", Walk)
    assert [row["steps"] for row in rows(resume(tmp_path / "own", Walk, callbacks=[]).folder)][-3:] == [70, 95, 100]


NAMED = ("CartPole-v1", "Pendulum-v1", "Acrobot-v1", "FrozenLake-v1", "Blackjack-v1", "recollect/TMaze-v0")
NAMED += ("MiniGrid-MemoryS7-v0", "popgym-RepeatPreviousEasy-v0", "bsuite/memory_len/3", "bsuite/catch_noise/3")


@pytest.mark.parametrize("name", NAMED)
def test_environments_by_name_come_again(name):
    """The environments alone, under random actions: brought to the same place, they go on alike."""
    envs = [making.make(name) for _ in range(2)]
    vector, actions = spaces.observations(envs[0].observation_space), spaces.actions(envs[0].action_space)
    rng, size = np.random.default_rng(0), vector.size
    first, second = (
        env_pool.Copies([env], name, 1, vector, actions, Normalizer(size, 1, False, False, 0.9), [(3, 0)])
        for env in envs
    )
    rows, other = blank_rows(1, size), blank_rows(1, size)

    def draw():
        if isinstance(actions.distribution, Gaussian):
            return rng.normal(size=(1, actions.distribution.size)).astype(np.float32)
        return rng.integers(actions.outputs, size=1)

    first.reset(rows)
    for _ in range(30):
        first.step(draw(), rows)
    drawn = draw()
    second.restore(first.state())
    second.replay(drawn)
    for _ in range(30):
        first.step(drawn, rows)
        second.step(drawn, other)
        assert np.array_equal(rows[:, :size], other[:, :size]) and first.scores == second.scores
        drawn = draw()


# -- environments that cannot be repeated


class Curriculum(Walk):
    """Begins elsewhere at every reset, whatever the seed."""

    resets = 0

    def reset(self, *, seed=None, options=None):
        Curriculum.resets += 1
        super().reset(seed=seed)
        self.at += Curriculum.resets / 1000
        return self._seen(self.np_random), {}


class Shorter(Walk):
    """Ends sooner in the second environment that is made."""

    born = 0

    def __init__(self):
        Shorter.born += 1
        self.first = Shorter.born == 1

    def step(self, action):
        observation, reward, over, cut, _ = super().step(action)
        return observation, reward, over or not self.first, cut, {}


class Generous(Walk):
    """Pays by the clock."""

    def step(self, action):
        observation, _, over, cut, _ = super().step(action)
        return observation, time.perf_counter() % 1, over, cut, {}


@pytest.mark.parametrize(
    ("env", "what"),
    [
        (LooseWalk, "the observations of its first 2 steps are others"),
        (Curriculum, "the observations of its first 2 steps are others"),
        (Shorter, "it ended at step 1 of 2"),
        (Generous, "the rewards of its first 2 steps are others"),
    ],
)
def test_an_environment_that_ignores_its_seed_is_refused(env, what, tmp_path, one_by_one):
    """Named, with the flag that continues in a new episode; nothing in the folder has changed by then."""
    run = tmp_path / "run"
    Shorter.born = 0
    learner = Learner(NATIVE, env, seed=4, check=False)
    interrupted(12, lambda: learner.learn(60, log_every=10, folder=run))
    while learner.fleet.lengths != [2]:
        assert learner.steps < 1000
        learner.advance(1)
    learner.save(run)
    before = commands.content(run)
    message = f"{env.__name__} does not give the same episode again for the same seed and actions: {what}"
    with pytest.raises(
        NotRepeatableError, match=rf"{message}; .*--allow-inexact .*allow_inexact=True.* in a new episode"
    ):
        resume(run, env)
    assert commands.content(run) == before
    with pytest.raises(NotRepeatableError, match=message):
        Learner.load(run, env, check=False).learn(5, folder=tmp_path / "loaded")
    assert not (tmp_path / "loaded").exists()
    found = resume(run, env, allow_inexact=True)
    assert found.steps == 60 and not found.exact
    assert commands.read_json(run / "status.json")["exact"] is False and message in str(commands.events(run))
    assert run_reading.summary(run)["exact"] is False
    assert not Learner.load(run, env, check=False).exact, "the mark stays"


def test_vector_environments_begin_anew_when_asked(tmp_path):
    """Their restarts are seeded by rules of their own."""

    def env():
        return gym.vector.SyncVectorEnv([Walk, Walk])

    Learner(NATIVE, env(), seed=0, learners="each", check=False).learn(30, folder=tmp_path / "run")
    with pytest.raises(NotRepeatableError, match="a vector environment restarts its copies by rules of its own"):
        Learner.load(tmp_path / "run", env(), check=False).learn(5, folder=tmp_path / "a")
    with pytest.raises(NotRepeatableError, match="0 bytes are kept of its"):
        Learner.load(tmp_path / "run", Walk, check=False).learn(5, folder=tmp_path / "a")
    found = Learner.load(tmp_path / "run", env(), check=False, allow_inexact=True).learn(10, folder=tmp_path / "a")
    assert found.steps == 40 and not found.exact


def test_an_episode_too_long_to_keep(tmp_path, monkeypatch):
    """The actions that are kept of it do not grow beyond a limit; it is refused, not taken up wrongly."""
    monkeypatch.setattr(env_pool, "RECORDED", 40)
    learner = Learner(NATIVE, gym.make("MountainCar-v0"), seed=0, check=False)
    learner.learn(50, folder=tmp_path / "run")
    assert len(learner.fleet.taken[0]) == 40
    with pytest.raises(
        NotRepeatableError, match="an episode of 50 steps is longer than the 40 bytes that are kept of it"
    ):
        Learner.load(tmp_path / "run", gym.make("MountainCar-v0"), check=False).learn(1, folder=tmp_path / "a")


# -- what is promised of every run


@pytest.mark.parametrize("case", ["native", "shared"])
def test_an_update_that_is_not_finite_stops_training(case, tmp_path):
    """Parameters stay finite, and the error names environment, seed and step, at that step."""
    learner = make(case)
    learner.advance(2 * learner.copies)
    live = learner.host.unpack(learner._packed)
    huge = jax.tree.map(lambda leaf: np.full_like(leaf, 3e38), live.agent.params)
    learner._packed = learner.host.pack(live._replace(agent=live.agent._replace(params=huge)))
    with pytest.raises(
        EnvironmentFault, match="Walk, seed 2, step 3: the update was not finite, and nothing was learned"
    ):
        learner.learn(500, folder=tmp_path / "run")
    assert learner.steps == 3 * learner.copies
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(learner.state().params))
    status = commands.read_json(tmp_path / "run" / "status.json")
    assert status["status"] == "failed" and "step 3" in status["error"]
    assert run_reading.summary(tmp_path / "run")["error"] == status["error"]
    assert learner.learn(3, strict=False).steps == 3 * learner.copies + 3


@pytest.mark.parametrize("reward", [1e39, -1e300])
def test_a_reward_beyond_float32_is_no_reward(reward, tmp_path):
    class Absurd(Walk):
        def step(self, action):
            observation, _, _, _, _ = super().step(action)
            return observation, reward, False, False, {}

    with pytest.raises(EnvironmentFault, match="step 1: the reward is"):
        Learner(NATIVE, Absurd(), check=False).learn(5, folder=tmp_path / "run")


def test_a_memory_of_a_billion_is_refused_by_its_bytes():
    options = {"copies": 20, "learners": "each", "check": False}
    for memory in ("fifo", "uniform"):
        with pytest.raises(
            ValueError, match=r"copies=20: the agent's state and observations need [\d,]{13,} bytes, this machine has"
        ):
            Learner(NATIVE.replace(memory_size=10**9, memory=memory), Walk, **options)


def test_other_spaces_and_agents_are_refused_before_anything_is_compiled(tmp_path, monkeypatch):
    make("native").learn(5, folder=tmp_path / "run")
    monkeypatch.setattr(CompiledHost, "_start_held", lambda *a: pytest.fail("started"))

    class Wider(Walk):
        observation_space = gym.spaces.Box(-5.0, 5.0, (4,), np.float32)

    for attempt in (resume, functools.partial(Learner.load, check=False)):
        with pytest.raises(RecollectError, match=r"Wider has the observation space .*\(4,\).* saved with .*\(3,\)"):
            attempt(tmp_path / "run", Wider)
    found = checkpoints.load(tmp_path / "run" / "checkpoints" / "learner")
    other = {**found.meta, "agent": {**found.meta["agent"], "options": {"memory_size": 3, "hidden": 4}}}
    with pytest.raises(
        FileError, match=r"live.agent.memory.items: expected float32\[1, 3, 3\], got float32\[1, 2, 3\]"
    ):
        Learner.restore(found._replace(meta=other), Walk, check=False)


@pytest.mark.parametrize("name", ["live.agent.memory.ranks", "live.agent.decision.action"])
def test_forged_indices_are_refused(name, tmp_path):
    """Compiled code would write where they point."""
    make("native").learn(5, folder=tmp_path / "run")
    found = checkpoints.load(tmp_path / "run" / "checkpoints" / "learner")
    for value in (-1, 10**6):
        forged = {**found.arrays, name: np.full_like(found.arrays[name], value)}
        with pytest.raises(FileError, match=r"the state is not valid: .* are outside 0 to"):
            Learner.restore(found._replace(arrays=forged), Walk, check=False)


def test_no_module_is_imported_because_a_file_names_it(tmp_path, monkeypatch, capsys):
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    learner = Learner(NATIVE, "CartPole-v1", check=False).learn(5, folder=tmp_path / "run")
    learner._made["id"] = "evil:CartPole-v1"
    learner.save(tmp_path / "run")
    with pytest.raises(FileError, match="names a module to import, 'evil:CartPole-v1': give it as env"):
        Learner.load(tmp_path / "run")
    for command in ("evaluate", "inspect"):
        assert cli.main([command, str(tmp_path / "run")]) == 1 and "--env" in capsys.readouterr().err
    assert cli.main(["evaluate", str(tmp_path / "run"), "--env", "CartPole-v1", "--episodes", "1"]) == 0


@pytest.fixture
def stopped(tmp_path, one_by_one):
    run = tmp_path / "run"
    watch = [callbacks.Checkpoint(10)]
    interrupted(43, lambda: make("native").learn(60, log_every=10, folder=run, callbacks=watch))
    return run


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    return make("native").learn(60, log_every=10, folder=folder, callbacks=[callbacks.Checkpoint(10)])


def test_damage_is_refused_or_passed_over(stopped, whole):
    newest = checkpoints.listing(stopped / "checkpoints" / "learner")[-1] / "arrays.safetensors"
    found = bytearray(newest.read_bytes())
    found[len(found) // 2] ^= 4
    newest.write_bytes(found)
    before = commands.content(stopped)
    with pytest.raises(
        FileError, match=r"is damaged: its SHA-256 .*--fallback goes back to it, in Python fallback=True"
    ):
        resume(stopped, Walk)
    assert commands.content(stopped) == before
    learner = resume(stopped, Walk, fallback=True)
    assert bits(learner) == bits(whole) and rows(stopped) == rows(whole.folder)
    assert "went back a checkpoint" in [event["event"] for event in commands.events(stopped)]


def change(run, *keys, value):
    config = commands.read_json(run / "config.json")
    place = config
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    (run / "config.json").write_text(json.dumps(config))


def test_another_config_is_refused_field_by_field(stopped, whole):
    change(stopped, "checkpoints", "every", value=7.5)
    for keys, value, message in (
        (("agent", "options", "learning_rate"), 0.5, r"agent.options.learning_rate: was .*, is 0.5"),
        (("learning", "log_every"), 5, "learning.log_every: was 10, is 5"),
        (("seed",), 3, "seed: was 2, is 3"),
    ):
        kept = (stopped / "config.json").read_text()
        change(stopped, *keys, value=value)
        before = commands.content(stopped)
        with pytest.raises(RecollectError, match=message + r".*only checkpoints may change"):
            resume(stopped, Walk)
        assert commands.content(stopped) == before
        (stopped / "config.json").write_text(kept)
    assert bits(resume(stopped, Walk)) == bits(whole)


def test_other_versions_are_refused_or_marked(stopped, monkeypatch):
    was = run_folders.versions()
    monkeypatch.setattr(run_folders, "versions", lambda: {**was, "jax": "another"})
    with pytest.raises(
        RecollectError, match=r"would not continue bit for bit: jax: was .*, is \"another\"; --allow-inexact"
    ):
        resume(stopped, Walk)
    assert not resume(stopped, Walk, allow_inexact=True).exact
    assert commands.read_json(stopped / "status.json")["exact"] is False


def test_one_process_at_a_time(stopped, whole):
    holder = lock.Lock(stopped)
    with pytest.raises(RecollectError, match="is in use by process"):
        resume(stopped, Walk)
    holder.release()
    learner = resume(stopped, Walk)
    assert not (stopped / "lock.json").exists()
    other = Learner.load(stopped, Walk, check=False)
    other._recorder = learner._recorder
    (stopped / "metrics.jsonl").write_bytes((stopped / "metrics.jsonl").read_bytes() + b"\n")
    with pytest.raises(RecollectError, match="another process has continued"):
        learner.learn(5)
    assert not (stopped / "lock.json").exists()


def test_a_run_without_a_checkpoint_begins_again(stopped, whole):
    shutil.rmtree(stopped / "checkpoints")
    assert bits(resume(stopped, Walk)) == bits(whole) and rows(stopped) == rows(whole.folder)


def test_what_fails_leaves_the_folder_free_and_says_why(tmp_path):
    def fail(learner, row):
        raise KeyError("out of luck")

    with pytest.raises(KeyError):
        make("native").learn(30, log_every=10, folder=tmp_path / "run", callbacks=[fail])
    status = commands.read_json(tmp_path / "run" / "status.json")
    assert status["status"] == "failed" and status["error"] == "KeyError: 'out of luck'"
    assert not (tmp_path / "run" / "lock.json").exists()


def test_a_full_disk(tmp_path, whole, one_by_one, monkeypatch):
    """The path is named, the checkpoint before is intact and nothing half-written is listed; given room, it goes on."""
    run, put, left = tmp_path / "run", files._put, [33]

    def full(handle, *parts):
        left[0] -= 1
        if left[0] < 0:
            put(handle, b"".join(map(bytes, parts))[:7])
            raise OSError(errno.ENOSPC, "No space left on device")
        put(handle, *parts)

    with monkeypatch.context() as patch:
        patch.setattr(files, "_put", full)
        with pytest.raises(RecollectError, match=r"cannot write the checkpoint .*run.*No space left on device"):
            make("native").learn(60, log_every=10, folder=run, callbacks=[callbacks.Checkpoint(10)])
    assert [wrong for _, wrong in run_reading.verify(run) if wrong] == [] and not list(run.rglob(".recollect-*"))
    assert not (run / "lock.json").exists() and run_reading.summary(run)["status"] == "stopped", (
        "nor could the status be written"
    )
    assert bits(resume(run, Walk)) == bits(whole) and rows(run) == rows(whole.folder)


def test_twice_raises_at_once(tmp_path, one_by_one):
    """The second Ctrl-C, here while the checkpoint is being saved: what was there is what there is."""
    run = tmp_path / "run"
    interrupted(8, lambda: make("native").learn(30, folder=run))
    before = commands.content(run / "checkpoints")
    again, save = [], CompiledHost.unpack

    def unpack(self, packed):
        again.append(signal.raise_signal(signal.SIGINT))
        return save(self, packed)

    with mock.patch.object(CompiledHost, "unpack", unpack), pytest.raises(KeyboardInterrupt) as raised:
        interrupted(5, lambda: resume(run, Walk))
    assert again == [] and not isinstance(raised.value, Interrupted)
    assert commands.content(run / "checkpoints") == before and run_reading.summary(run)["status"] == "stopped"
    assert resume(run, Walk).steps == 30


def test_the_command_says_what_is_the_matter(tmp_path, one_by_one, capsys):
    """One line, with the environment and the flag; an environment that has no id is for Python to give."""
    gym.register("Loose-v0", entry_point=LooseWalk)
    run = tmp_path / "run"
    interrupted(43, lambda: Learner(NATIVE, "Loose-v0", seed=3, check=False).learn(60, folder=run))
    assert cli.main(["resume", str(run)]) == 1
    error = capsys.readouterr().err
    assert "recollect: Loose-v0 does not give the same episode again" in error and "--allow-inexact" in error
    assert cli.main(["resume", str(run), "--allow-inexact"]) == 0 and "steps:   60" in capsys.readouterr().out
    assert cli.main(["runs", str(tmp_path)]) == 0 and "finished, not bit-exact" in capsys.readouterr().out
    assert cli.main(["verify", str(run)]) == 0
    interrupted(5, lambda: make("native").learn(60, folder=tmp_path / "own"))
    capsys.readouterr()
    assert cli.main(["resume", str(tmp_path / "own")]) == 1
    assert "recollect.training.resuming.resume(FOLDER, env)" in capsys.readouterr().err
