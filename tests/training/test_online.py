"""The learner: what people do with it, and what it does when an environment misbehaves."""

import csv
import json
import math
import shutil

import gymnasium as gym
import jax
import numpy as np
import pytest

from recollect import Learner
from recollect.agents.convolution import Convolution
from recollect.agents.episodic import EpisodicActorCritic
from recollect.agents.recurrent import RecurrentActorCritic
from recollect.envs.spaces import SpaceError
from recollect.envs.t_maze import TMazeEnv
from recollect.errors import FileError, RecollectError
from recollect.store import checkpoints
from recollect.training import callbacks
from recollect.training.env_pool import EnvironmentFault
from recollect.training.normalization import Normalizer
from recollect.training.stepping import next_sample
from training.probes import Three

AGENT = EpisodicActorCritic(memory_size=2, hidden=4)


class Probe(Three):
    """Counts; pays 1 for action 1; ends after ``length`` steps; goes wrong at step ``when`` of its life."""

    def __init__(self, wrong=None, when=7, length=3, cut=False):
        self.wrong, self.when, self.length, self.cut, self.age = wrong, when, length, cut, 0

    def step(self, action):
        self.t += 1
        self.age += 1
        observation, reward = np.array([self.t / self.length, 0.0], np.float32), float(action)
        if self.age == self.when:
            if self.wrong == "raise":
                raise RuntimeError("the simulator is gone")
            observation = {"outside": observation + 9, "nan": observation * np.nan}.get(self.wrong, observation)
            reward = {"reward": math.inf}.get(self.wrong, reward)
        over = self.t == self.length
        return observation, reward, over and not self.cut, over and self.cut, {}


def parameters(learner, copy=0):
    return [np.array(leaf) for leaf in jax.tree.leaves(learner.state(copy).params)]


def same(a, b):
    return all(map(np.array_equal, parameters(a), parameters(b)))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "run"
    return Learner(AGENT, "recollect/TMaze-v0", seed=3, env_options={"length": 1}).learn(
        250, log_every=100, folder=folder, log="tensorboard"
    )


@pytest.mark.slow
def test_the_query_entropy_of_a_row_is_the_mean_over_decisions_since_the_last(tmp_path):
    env, agent = {"env": "recollect/TMaze-v0", "env_options": {"length": 4}}, EpisodicActorCritic(memory_size=3)
    Learner(agent, **env).learn(1000, log_every=400, folder=tmp_path / "run")
    rows = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    found = [json.loads(row)["query_entropy"] for row in rows]
    other, means = Learner(agent, **env), []
    for end in (400, 800, 1000):
        seen = []
        while (step := next_sample(other.steps)) <= end:
            other.advance(step - other.steps)
            seen.append(float(agent.query_entropy(other.state())))
        assert len(seen) >= 3 and not all(np.isnan(seen))  # nothing to recall where an episode begins
        means.append(np.nanmean(seen))
    np.testing.assert_allclose(found, means, rtol=1e-5)


def test_learning_leaves_metrics(trained):
    rows = [json.loads(line) for line in (trained.folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["steps"] for row in rows] == [100, 200, 250]
    assert rows[-1]["episodes"] == 250 // 3 and all(row["length"] == 3 and -1 <= row["return"] <= 1 for row in rows)
    assert all(0 < row["write_weight"] < 1 and row["agent"] == "episodic" and row["seed"] == 3 for row in rows)
    with open(trained.folder / "metrics.csv", newline="") as file:
        table = list(csv.DictReader(file))
    assert [float(row["return"]) for row in table] == [row["return"] for row in rows]
    assert list((trained.folder / "tensorboard").iterdir())
    status = json.loads((trained.folder / "status.json").read_text())
    assert status["status"] == "finished" and status["steps"] == 250
    config = json.loads((trained.folder / "config.json").read_text())
    assert config["agent"]["options"]["memory_size"] == 2 and config["environment"]["made"]["options"] == {"length": 1}


def test_runs_and_verify_know_a_learners_folder(trained, tmp_path):
    from recollect.store import run_reading

    found = run_reading.summary(trained.folder)
    assert found["status"] == "finished" and found["progress"] == 1 and -1 <= found["last_return"] <= 1
    assert [wrong for _, wrong in run_reading.verify(trained.folder) if wrong] == []
    with open(trained.folder / "metrics.jsonl") as file:
        first, *rest = file.readlines()
    copy = tmp_path / "copy"
    shutil.copytree(trained.folder, copy)
    (copy / "metrics.jsonl").write_text("".join([first.replace("0", "1"), *rest]))
    assert [wrong for _, wrong in run_reading.verify(copy) if wrong]


def test_the_same_seed_gives_the_same_agent(trained, tmp_path):
    again = Learner(AGENT, lambda: TMazeEnv(length=1), seed=3).learn(100, folder=tmp_path / "a").learn(150)
    other = Learner(AGENT, TMazeEnv(length=1), seed=4, check=False).learn(250, folder=tmp_path / "b")
    assert same(again, trained) and not same(other, trained)


def test_predict_carries_a_memory(trained):
    env = TMazeEnv(length=1)
    trained.reset()
    observation, _ = env.reset(seed=0)
    before = parameters(trained)
    for _ in range(3):
        action = trained.predict(observation)
        assert env.action_space.contains(action)
        observation, *_ = env.step(action)
    assert int(trained._player.state().memory.count) == 2  # what was seen before the last observation
    trained.reset()
    assert int(trained._player.state().memory.count) == 0
    assert all(map(np.array_equal, before, parameters(trained)))


def test_every_episode_of_predict_is_a_draw_of_its_own(tmp_path):
    learner = Learner(AGENT, Three, seed=3, check=False)

    def episodes(learner, count):
        for _ in range(count):
            learner.reset()
            yield [learner.predict(np.zeros(2)) for _ in range(12)]

    found, first = list(episodes(learner, 6)), learner.player(3)
    assert len({str(actions) for actions in found}) == 6
    assert found[0] == [first.act(np.zeros(2)) for _ in range(12)], "the first has the learner's own seed"
    learner.save(tmp_path)
    assert list(episodes(Learner.load(tmp_path, Three, check=False), 6)) == found


def test_evaluation_is_repeatable_and_learns_nothing(trained):
    before, drawn = parameters(trained), np.array(trained._drawn)
    first, second = trained.evaluate(5), trained.evaluate(5)
    assert np.array_equal(first.returns, second.returns) and (first.lengths == 3).all()
    assert first.mean == pytest.approx(first.returns.mean()) and "5 episodes" in str(first)
    assert all(map(np.array_equal, before, parameters(trained))) and np.array_equal(drawn, trained._drawn)


def test_save_and_load(trained, tmp_path):
    trained.save(tmp_path / "kept")
    for path in (tmp_path / "kept", trained.folder):
        loaded = Learner.load(path)
        assert same(loaded, trained) and loaded.steps == 250 and loaded.seed == 3
        assert np.array_equal(loaded.evaluate(3).returns, trained.evaluate(3).returns)
    with pytest.raises(RecollectError, match=r"has the observation space .* was saved with"):
        Learner.load(tmp_path / "kept", "CartPole-v1")
    with pytest.raises(FileError, match="holds no checkpoint"):
        Learner.load(tmp_path)
    own = Learner(AGENT, Probe(), check=False)
    own.save(tmp_path / "own")
    with pytest.raises(ValueError, match="give it as env"):
        Learner.load(tmp_path / "own")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("raise", r"step\(\d\) raised RuntimeError: the simulator is gone"),
        ("outside", r"an observation is not in the declared space: element 0 is 9.*outside the declared"),
        ("nan", "an observation is not in the declared space: element 0 is nan, not finite"),
        ("reward", "the reward is inf"),
    ],
)
def test_an_environment_that_misbehaves_stops_training(wrong, message, tmp_path):
    learner = Learner(AGENT, Probe(wrong), seed=5, check=False)
    with pytest.raises(EnvironmentFault, match=rf"Probe, seed 5, step 7: {message}.*; the state before it is saved in"):
        learner.learn(50, folder=tmp_path / "run")
    healthy = Learner(AGENT, Probe(), seed=5, check=False).learn(6, folder=tmp_path / "healthy")
    assert same(learner, healthy) and learner.steps == 6
    assert same(Learner.load(tmp_path / "run", Probe()), healthy)
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["status"] == "failed" and "step 7" in status["error"]
    assert learner.learn(20).steps == 26  # the fault was at one step; a new episode begins


@pytest.mark.slow
def test_a_fault_in_one_of_several_copies_names_it(tmp_path):
    made = iter([None, "reward", None])
    learner = Learner(AGENT, lambda: Probe(next(made)), seed=5, copies=2, learners="each", check=False)
    with pytest.raises(EnvironmentFault, match="seed 6, step 7: the reward is inf"):
        learner.learn(50, folder=tmp_path / "run")


class Lawless(Probe):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0] + 5, {}


def test_check_env_comes_first():
    with pytest.raises(RecollectError, match=r"Lawless does not keep to Gymnasium's rules: .*check=False"):
        Learner(AGENT, Lawless())


def test_spaces_are_refused_before_anything_is_compiled():
    env = Probe()
    env.observation_space = gym.spaces.Text(3)
    with pytest.raises(SpaceError, match="Text observations are not supported"):
        Learner(AGENT, env)


def test_termination_and_truncation_are_told_apart(tmp_path):
    """Cut episodes bootstrap: the critic's last bias moves by rate · V(next) · V's slope more than at an end."""
    options = {"learning_rate": 0.1, "discount": 0.9, "critic_start": "random", "value_rate": 1.0}
    agent = EpisodicActorCritic(memory_size=1, hidden=4, **options)
    learners = [Learner(agent, Probe(length=1, cut=cut), seed=0, check=False) for cut in (False, True)]
    before = learners[0].state().params
    biases = [
        float(learner.learn(1, folder=tmp_path / str(k)).state().params.value[-1].bias[0])
        for k, learner in enumerate(learners)
    ]
    first, _ = Probe().reset(seed=Learner(agent, Probe(), check=False).fleet.reset_seed(0))
    v, v_next = agent.value(before, first), agent.value(before, np.array([1.0, 0.0], np.float32))
    assert abs(v_next) > 0.01
    assert biases[1] - biases[0] == pytest.approx(float(0.1 * 0.9 * v_next * (1 - v**2)), rel=1e-3)


def test_callbacks(tmp_path):
    seen = []
    evaluate, stop = callbacks.Evaluate(every=20, episodes=2), callbacks.EarlyStop(-1.0, patience=3)
    learner = Learner(AGENT, Probe, seed=0)
    learner.learn(
        100,
        log_every=10,
        folder=tmp_path / "run",
        callbacks=[evaluate, lambda _, row: seen.append(row["steps"]), callbacks.Checkpoint(20), stop],
    )
    assert seen == [10, 20, 30] and learner.steps == 30
    assert [steps for steps, _ in evaluate.results] == [20]
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row.get("evaluation") is not None for row in rows] == [False, True, False]
    assert len(checkpoints.listing(tmp_path / "run" / "checkpoints" / "learner")) == 2
    assert learner.learn(10, callbacks=[lambda _, row: True]).steps == 40


@pytest.mark.slow
@pytest.mark.parametrize(
    ("space", "agent"),
    [
        (gym.spaces.MultiDiscrete([2, 3]), AGENT),
        (gym.spaces.Box(-2.0, 2.0, (2,), np.float32), AGENT),
        (gym.spaces.Box(-2.0, 2.0, (1,), np.float32), RecurrentActorCritic(width=4, window=3)),
    ],
)
def test_other_actions(space, agent, tmp_path):
    class Other(Probe):
        def __init__(self):
            super().__init__()
            self.action_space = space

        def step(self, action):
            assert action in self.action_space
            return super().step(float(np.sum(action) > 0))

    learner = Learner(agent, Other(), seed=0).learn(30, folder=tmp_path / "run")
    start = Learner(agent, Other(), seed=0)
    assert not same(learner, start) and learner.predict(np.zeros(2, np.float32)) in space


@pytest.mark.slow
def test_copies_that_share_an_agent_move_by_the_mean(tmp_path):
    """All copies have the same parameters, and each its own memory."""
    learner = Learner(AGENT, Probe, seed=0, copies=3).learn(90, folder=tmp_path / "run")
    a, b = parameters(learner, 0), parameters(learner, 2)
    assert all(map(np.array_equal, a, b)) and not same(learner, Learner(AGENT, Probe, seed=0))
    assert learner.steps == 90 and learner.fleet.steps == 30 and sum(learner.episodes) == 30
    memories = [np.asarray(learner.state(k).memory.items) for k in range(3)]
    assert not np.array_equal(memories[0], memories[1])  # each saw episodes of its own


@pytest.mark.slow
def test_independent_copies_are_as_alone(tmp_path):
    together = Learner(AGENT, Probe, seed=7, copies=2, learners="each").learn(60, folder=tmp_path / "both")
    alone = Learner(AGENT, Probe, seed=8).learn(60, folder=tmp_path / "one")
    for a, b in zip(parameters(together, 1), parameters(alone), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)
    rows = [json.loads(line) for line in (tmp_path / "both" / "metrics.jsonl").read_text().splitlines()]
    assert [row["seed"] for row in rows] == [7, 8]


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(gym.vector.AutoresetMode))
def test_vector_environments_in_every_mode_of_restarting(mode, tmp_path):
    """Each copy sees whole episodes: none is learned across, whatever the way to restart."""
    env = gym.vector.SyncVectorEnv([Probe, lambda: Probe(length=5)], autoreset_mode=mode)
    learner = Learner(AGENT, env, seed=0, learners="each", check=False)
    learner.learn(30, folder=tmp_path / mode.value)
    ended = learner.fleet.episodes
    idle = mode == gym.vector.AutoresetMode.NEXT_STEP
    assert ended == [30 // (3 + idle), 30 // (5 + idle)]
    if not idle:
        assert int(learner.state(1).memory.seen) == 30 % 5
    with pytest.raises(RecollectError, match="cannot be evaluated"):
        learner.evaluate(2)


@pytest.mark.parametrize("engine", ["cpu", "jax"])
def test_a_step_in_which_all_copies_wait_moves_nothing(engine, tmp_path):
    """All episodes end at once, and all wait for what comes next: nobody has learned, and there is no mean."""
    env = gym.vector.SyncVectorEnv([Probe] * 3, autoreset_mode=gym.vector.AutoresetMode.NEXT_STEP)
    learner = Learner(AGENT, env, seed=0, check=False, engine=engine).learn(6, folder=tmp_path / "run")
    before = parameters(learner)
    learner.learn(3)
    assert sum(learner.episodes) == 3 and all(map(np.array_equal, before, parameters(learner)))
    learner.learn(3)
    assert not all(map(np.array_equal, before, parameters(learner)))


def test_normalisation_shows_the_agent_what_it_says(tmp_path):
    learner = Learner(AGENT, Probe, seed=0, normalize_observations=True, normalize_rewards=True)
    learner.learn(300, folder=tmp_path / "run")
    (moments,) = learner.normalizer.observations
    assert moments.mean[0] == pytest.approx(np.mean([0, 1 / 3, 2 / 3, 1]), abs=0.02)
    seen = np.array([moments.mean[0] + moments.deviation()[0], 0.0], np.float32)
    learner.normalizer.observe(seen, 0, learn=False)
    assert seen[0] == pytest.approx(1.0, abs=1e-5)


def test_independent_copies_have_statistics_of_their_own():
    """What one copy sees does not move the other's scale, unless they are one agent."""
    rng = np.random.default_rng(0)
    for alone in (True, False):
        scale = Normalizer(2, 2, True, False, 0.9, alone=alone)
        for _ in range(500):
            scale.observe(rng.normal(size=2), 0)
            scale.observe(rng.normal(5.0, 3.0, size=2), 1)
        at_mean = np.array([5.0, 5.0])
        scale.observe(at_mean, 1, learn=False)
        assert (np.abs(at_mean) < 0.2).all() == alone
        again = Normalizer(2, 2, True, False, 0.9, alone=alone)
        again.restore(scale.state())
        seen = [np.array([1.0, 2.0]) for _ in range(2)]
        for one, x in zip((scale, again), seen, strict=True):
            one.observe(x, 0)
        np.testing.assert_array_equal(*seen)


def test_independent_copies_scale_their_own_rewards():
    """Two copies with rewards of different size: alone each comes to the same scale, together they share one."""
    for alone in (True, False):
        scale = Normalizer(1, 2, False, True, 0.9, alone=alone)
        rng = np.random.default_rng(0)
        for _ in range(500):
            reward = rng.choice([-1.0, 1.0])
            small, large = scale.reward(0.01 * reward, 0, False), scale.reward(reward, 1, False)
        assert (abs(small) == pytest.approx(abs(large), rel=1e-4)) == alone
        again = Normalizer(1, 2, False, True, 0.9, alone=alone)
        again.restore(scale.state())
        assert [again.reward(1.0, k, False) for k in range(2)] == [scale.reward(1.0, k, False) for k in range(2)]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"env": 5}, TypeError, "must be an id, a Gymnasium environment or a function"),
        ({"env": "NoSuchEnv-v0"}, RecollectError, "recollect envs"),
        ({"seed": -1}, ValueError, "seed=-1 must be"),
        ({"copies": 2}, ValueError, "copies=2 needs an id or a function"),
        ({"learners": "many"}, ValueError, "learners='many'"),
        ({"env_options": {"length": 2}}, ValueError, "env_options go with an id"),
        ({"normalize_rewards": "no"}, ValueError, "normalize_rewards='no' must be True or False"),
        ({"normalize_observations": "False"}, ValueError, "normalize_observations='False' must be True or False"),
        ({"agent": AGENT.replace(learning_rate=np.array([0.1, 0.2]))}, ValueError, "one number for a learner"),
    ],
)
def test_wrong_arguments(arguments, error, message):
    settings = {"agent": AGENT, "env": Probe(), "check": False, **arguments}
    with pytest.raises(error, match=message):
        Learner(settings.pop("agent"), settings.pop("env"), **settings)


@pytest.mark.parametrize("engine", ["cpu", "jax"])
def test_a_copy_that_there_is_not_is_refused(engine):
    learner = Learner(AGENT, Three, copies=2, learners="each", engine=engine, check=False)
    for call in (learner.state, learner.reset, lambda k: learner.evaluate(1, copy=k), lambda k: learner.player(0, k)):
        for wrong in (2, -1, "1", True):
            with pytest.raises(ValueError, match=r"^copy=.* must be a whole number from 0 to 1, one of 2 copies"):
                call(wrong)


def test_how_many_checkpoints_to_keep_is_refused_before_any_is_written_or_removed(tmp_path):
    learner = Learner(AGENT, Three, check=False)
    kept = [learner.save(tmp_path) for _ in range(3)]
    for wrong in (-10, 0, 2.5, True, None, "3"):
        with pytest.raises(ValueError, match=r"^keep=.* must be an integer of at least 1"):
            learner.save(tmp_path, keep=wrong)
    assert checkpoints.listing(tmp_path) == kept
    assert [learner.save(tmp_path, keep=np.int64(1))] == checkpoints.listing(tmp_path)


@pytest.mark.parametrize("kind", [np.array, np.float32, jax.numpy.array])
def test_arrays_of_one_number_are_numbers(kind):
    learner = Learner(AGENT.replace(trace_decay=kind(0.5), discount=kind(0.25)), Three, check=False)
    assert learner.agent.replace(actions=AGENT.actions) == AGENT.replace(trace_decay=0.5, discount=0.25)
    with pytest.raises(ValueError, match=r"trace_decay=1.5 is outside"):
        Learner(AGENT.replace(trace_decay=jax.numpy.array(1.5)), Three, check=False)


def test_wrong_calls(tmp_path):
    learner = Learner(AGENT, Probe(), check=False)
    for options, message in (
        ({"steps": 0}, "steps=0 must be an integer of at least 1"),
        ({"steps": 1, "log": "wandb"}, "log='wandb': choose 'tensorboard'"),
        ({"steps": 1, "log_every": 0}, "log_every=0"),
    ):
        with pytest.raises(ValueError, match=message):
            learner.learn(**options)
    learner.learn(3, folder=tmp_path / "a")
    with pytest.raises(ValueError, match="writes to"):
        learner.learn(3, folder=tmp_path / "b")


class Pictures(Probe):
    """The same, seen as pictures."""

    def __init__(self):
        super().__init__()
        self.observation_space = gym.spaces.Box(0, 255, (6, 5, 2), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.full((6, 5, 2), 7, np.uint8), {}

    def step(self, action):
        _, *rest = super().step(action)
        return np.full((6, 5, 2), 50 * self.t, np.uint8), *rest


@pytest.mark.slow
def test_pictures_get_an_encoder_that_is_saved_with_the_agent(tmp_path):
    assert Learner(AGENT, Pictures(), pictures="agent", check=False).agent.pictures is None
    learner = Learner(AGENT, Pictures()).learn(10, folder=tmp_path / "run")
    assert learner.agent.pictures == Convolution((6, 5, 2))
    start = Learner(AGENT, Pictures(), check=False)
    moved = [
        np.abs(a - b).max()
        for a, b in zip(*(jax.tree.leaves(x.state().params.pictures) for x in (learner, start)), strict=True)
    ]
    assert max(moved) > 0
    own = AGENT.replace(pictures=Convolution((6, 5, 2), features=3))
    Learner(own, Pictures(), check=False).save(tmp_path / "own")
    assert Learner.load(tmp_path / "own", Pictures(), check=False).agent.pictures == own.pictures


def test_default_folders_have_names_that_any_file_system_takes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Learner(AGENT, "gymnasium:CartPole-v1").learn(10, progress=False)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["gymnasium-CartPole-v1-episodic-seed0"]
