"""Faults that were found by trying to break the learner, each as it was found: what belongs to the user stays."""

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import gymnasium as gym
import numpy as np
import pytest

from recollect import EpisodicActorCritic, FileError, Learner, RecollectError, cli
from recollect.store import checkpoints, files, run_folders, run_reading
from recollect.store.interrupts import Interrupted
from recollect.training import callbacks, inspection
from recollect.training.recording import read_rows
from recollect.training.resuming import resume
from reliability import commands
from training.probes import Three

A = EpisodicActorCritic(memory_size=2, hidden=4)


class Count(Three):
    """Counts to three; ``slow``: seconds of a step from the hundredth of its life on; ``endless``: never ends."""

    slow, endless, age = 0.0, False, 0

    def step(self, action):
        self.t += 1
        self.age += 1
        if self.slow and self.age > 100:
            time.sleep(self.slow)
        over = self.t == 3 and not self.endless
        return np.array([min(self.t, 3) / 3, 0.0], np.float32), float(action), over, False, {}


@pytest.fixture
def home(tmp_path):
    """What belongs to the user, and nothing may change."""
    kept = {f"2026010{k}/photo.jpg": f"photo {k}" for k in range(1, 5)} | {".old-thesis/thesis.tex": "years of work"}
    for name, content in kept.items():
        (tmp_path / "home" / name).parent.mkdir(parents=True)
        (tmp_path / "home" / name).write_text(content)
    yield tmp_path / "home"
    assert {name: (tmp_path / "home" / name).read_text() for name in kept} == kept


# -- what belongs to the user


@pytest.mark.slow
def test_saving_into_a_folder_of_photos_deletes_none(home, tmp_path):
    learner = Learner(A, "CartPole-v1", check=False)
    for _ in range(5):
        learner.save(home)
    learner.learn(60, log_every=10, folder=tmp_path / "run", callbacks=[callbacks.Checkpoint(10, home)])
    assert len(checkpoints.listing(home)) == 3 and Learner.load(home).steps == 60


def test_a_strangers_run_names_no_place_outside_of_it(home, tmp_path, capsys):
    """Not the callback's folder in the config, not in the checkpoint; on the command line it can be said."""
    run = tmp_path / "run"
    learner = Learner(A, "CartPole-v1", check=False)
    learner.learn(30, log_every=10, folder=run, callbacks=[callbacks.Checkpoint(10, home)])
    assert str(home) not in (run / "config.json").read_text()
    learner.goal = 60
    learner.save(run)
    forged = [{"class": "Checkpoint", "options": {"every": 1, "folder": str(home)}}]
    newest = checkpoints.load(run / "checkpoints" / "learner")
    config = {**newest.meta["config"], "learning": {**newest.meta["config"]["learning"], "callbacks": forged}}
    meta = {**newest.meta, "config": config, "learning": {**newest.meta["learning"], "callbacks": forged}}
    checkpoints.save(run / "checkpoints" / "learner", newest.arrays, meta)
    (run / "config.json").write_text(json.dumps({**commands.read_json(run / "config.json"), **config}))
    before, there = commands.content(run), commands.content(home)
    assert cli.main(["resume", str(run)]) == 1
    assert "--checkpoint-folder" in capsys.readouterr().err
    assert commands.content(run) == before and commands.content(home) == there
    assert cli.main(["resume", str(run), "--checkpoint-folder", str(tmp_path / "told")]) == 0
    assert commands.content(home) == there and checkpoints.listing(tmp_path / "told")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["log.jsonl", "metrics.csv", "status.json", "tensorboard", "episode-0.png", "lock.json"]
)
def test_links_in_a_run_are_not_written_through(name, home, tmp_path, capsys):
    run = tmp_path / "run"
    Learner(A, "CartPole-v1", check=False).learn(20, log_every=10, folder=run, log="tensorboard")
    thesis = home / ".old-thesis" / "thesis.tex"
    if name == "tensorboard":
        for file in (run / name).iterdir():
            file.unlink()
        (run / name).rmdir()
        (run / name).symlink_to(home)
    else:
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(thesis)
    before = commands.content(home)
    for command in ("resume", "inspect", "verify", "runs"):
        cli.main([command, str(run)])
    assert commands.content(home) == before


@pytest.mark.slow
def test_an_interrupted_run_whose_files_are_links(home, tmp_path, capsys):
    """The run is gone on with, so that everything is written: into the folder, or refused."""
    for name in ("log.jsonl", "metrics.jsonl", "metrics.csv", "status.json", "tensorboard"):
        run = tmp_path / name
        learner = Learner(A, "CartPole-v1", check=False).learn(20, log_every=10, folder=run)
        learner.goal, learner._learning = 60, {**learner._learning, "log": "tensorboard"}
        learner.save(run)
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(home if name == "tensorboard" else home / ".old-thesis" / "thesis.tex")
        before = commands.content(home)
        cli.main(["resume", str(run)])
        assert commands.content(home) == before, name


# -- second thoughts


@pytest.mark.slow
def test_gymnasiums_own_vector_environments(tmp_path):
    """As the documentation has it: ``make_vec`` gives one whose ``reset`` takes a single seed."""
    learner = Learner(A, gym.make_vec("CartPole-v1", num_envs=8)).learn(100, folder=tmp_path / "run")
    assert learner.copies == 8 and learner.steps >= 100


def test_default_names_do_not_race(tmp_path, monkeypatch):
    """Learners that begin at once, each in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    learners = [Learner(A, Count, check=False) for _ in range(12)]
    faults = []

    def work(learner):
        try:
            learner._open(None, {})
        except Exception as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=(learner,)) for learner in learners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    names = sorted(learner.folder.name for learner in learners)
    assert names == sorted(["Count-episodic-seed0", *(f"Count-episodic-seed0-{k}" for k in range(2, 13))])
    for learner in learners:
        learner._recorder.release()


@pytest.mark.slow
def test_ctrl_c_is_heard_when_steps_become_slow(tmp_path):
    """Quick steps until training has got used to their pace, then slow ones: at most a few more are taken."""
    slow = threading.Event()

    class Slowing(Count):
        first, taken = None, 0

        def step(self, action):
            Slowing.first = Slowing.first or time.monotonic()
            if time.monotonic() - Slowing.first > 1.0:
                slow.set()
                Slowing.taken += 1
                assert Slowing.taken < 200, "a portion of what was quick is thousands of steps"
                time.sleep(0.02)
            return super().step(action)

    def ask():
        slow.wait(60)
        time.sleep(0.2)
        signal.raise_signal(signal.SIGINT)

    learner, asking = Learner(A, Slowing, check=False), threading.Thread(target=ask)
    learner.advance(1)  # what has to be compiled is
    Slowing.first = None
    asking.start()
    with pytest.raises(Interrupted):
        learner.learn(10**8, log_every=10**8, folder=tmp_path / "run")
    asking.join()
    assert checkpoints.load(tmp_path / "run" / "checkpoints" / "learner").meta["steps"] == learner.steps


@pytest.mark.slow
def test_ctrl_c_is_heard_in_an_evaluation_that_does_not_end(tmp_path):
    class Endless(Count):
        endless = True

        def step(self, action):
            if self.age == 500:  # which the one that is learned in does not become
                signal.raise_signal(signal.SIGINT)
            return super().step(action)

    learner = Learner(A, Endless, check=False)
    with pytest.raises(Interrupted):
        learner.learn(50, log_every=10, folder=tmp_path / "run", callbacks=[callbacks.Evaluate(10, 1)])
    found = checkpoints.load(tmp_path / "run" / "checkpoints" / "learner")
    assert found.meta["steps"] == 10 and found.meta["metrics"]["lines"] == 0
    assert resume(tmp_path / "run", Endless, callbacks=[]).steps == 50


def test_print_options_do_not_matter(tmp_path):
    class Fine(Count):
        def __init__(self):  # a Box keeps how its bounds were printed when it was made
            bounds = np.array([-1.23456789, -1]), np.array([1.0, 1.00001])
            self.observation_space = gym.spaces.Box(*bounds, dtype=np.float64)

    with np.printoptions(precision=3):
        Learner(A, Fine, check=False).learn(10, folder=tmp_path / "run")
    assert Learner.load(tmp_path / "run", Fine, check=False).steps == 10
    with np.printoptions(precision=1, threshold=1):
        assert Learner.load(tmp_path / "run", Fine, check=False).steps == 10


def test_a_callback_may_add_columns(tmp_path):
    def add(learner, row):
        row["loss"] = np.float32(0.5)
        if row["steps"] >= 20:
            row["note"], row["seed"], row["steps"] = "späte Zeile", 99, -1

    watch = [add, callbacks.EarlyStop(0.5, patience=4, column="loss")]
    learner = Learner(A, Count, check=False).learn(60, log_every=10, folder=tmp_path / "run", callbacks=watch)
    assert learner.steps == 40
    rows = read_rows(tmp_path / "run")
    assert [(row["steps"], row["loss"], row.get("note")) for row in rows[:2]] == [
        (10, 0.5, None),
        (20, 0.5, "späte Zeile"),
    ]
    table = (tmp_path / "run" / "metrics.csv").read_text().splitlines()
    assert table[0].endswith(",evaluation,loss,note") and table[1].endswith(",0.5,") and len(table) == 5
    assert [wrong for _, wrong in run_reading.verify(tmp_path / "run") if wrong] == []


def test_what_a_callback_adds_must_be_json(tmp_path):
    learner = Learner(A, Count, check=False)
    with pytest.raises(TypeError, match="a row of metrics cannot be written as JSON: model is a Learner"):
        learner.learn(20, log_every=10, folder=tmp_path / "run", callbacks=[lambda own, row: row.update(model=own)])


@pytest.mark.slow
def test_several_agents_are_listed_together(tmp_path, capsys):
    learner = Learner(A, Count, copies=3, learners="each", check=False)
    learner.learn(30, log_every=10, folder=tmp_path / "run")
    last = [row["return"] for row in read_rows(tmp_path / "run")[-3:]]
    assert run_reading.summary(tmp_path / "run")["last_return"] == pytest.approx(np.mean(last))
    watch = [callbacks.Evaluate(10, 2), callbacks.EarlyStop(-9.0, patience=3)]
    learner.learn(60, log_every=10, callbacks=watch)
    assert learner.steps == 60, "three rows of each, not of all"
    assert sorted(watch[0].by_seed) == [0, 1, 2]
    assert all("evaluation" in row for row in read_rows(tmp_path / "run")[-9:])


@pytest.mark.slow
def test_numpy_numbers_are_numbers(tmp_path):
    options = {"copies": np.int64(2), "seed": np.int32(1), "env_options": {"length": np.int64(2)}}
    learner = Learner(A, "recollect/TMaze-v0", check=False, **options)
    watch = [callbacks.Evaluate(np.int64(10), np.int64(1)), callbacks.EarlyStop(np.float32(9), np.int64(2))]
    learner.learn(
        np.int64(20),
        log_every=np.int64(10),
        checkpoint_every=np.float32(5),
        callbacks=watch,
        strict=np.True_,
        folder=tmp_path / "run",
    )
    assert (
        Learner.load(tmp_path / "run").steps == 20 and learner.evaluate(np.int64(2), seed=np.int64(0)).returns.size == 2
    )


def test_what_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="env_options cannot be written as JSON: render is a function"):
        Learner(A, "CartPole-v1", env_options={"render": lambda: None})
    learner = Learner(A, Count, check=False)
    learner.described["options"]["hidden"] = object()
    with pytest.raises(TypeError, match=r"the config cannot be written as JSON: agent\.options\.hidden is a object"):
        learner.learn(5)
    assert os.listdir(tmp_path) == []


def test_learning_on_after_a_full_disk(tmp_path, monkeypatch):
    """In the same process, after half a row was written: the next row begins on a line of its own."""
    learner, put = Learner(A, Count, check=False), files._put
    learner.learn(20, log_every=10, folder=tmp_path / "run")

    def full(handle, *parts):
        if b'"steps": 40' in bytes(parts[0]):
            put(handle, bytes(parts[0])[:20])
            raise OSError(28, "No space left on device")
        put(handle, *parts)

    with monkeypatch.context() as patch:
        patch.setattr(files, "_put", full)
        with pytest.raises(RecollectError, match=r"cannot write .*metrics\.jsonl: No space left"):
            learner.learn(30, log_every=10)
    learner.learn(30, log_every=10)
    assert [row["steps"] for row in read_rows(tmp_path / "run")] == [10, 20, 30, 40, 50, 60, 70]
    assert [wrong for _, wrong in run_reading.verify(tmp_path / "run") if wrong] == []
    assert len((tmp_path / "run" / "metrics.csv").read_text().splitlines()) == 8


@pytest.mark.parametrize("name", ["metrics.csv", "tensorboard"])
def test_a_table_that_could_not_be_written_is_made_good(name, tmp_path, monkeypatch):
    learner = Learner(A, Count, check=False).learn(20, log_every=10, folder=tmp_path / "run", log="tensorboard")
    add = run_folders.RunFolder.add_to

    def full(self, file, content, below=None):
        if name in (file, below):
            raise RecollectError("no room")
        add(self, file, content, below)

    with monkeypatch.context() as patch:
        patch.setattr(run_folders.RunFolder, "add_to", full)
        with pytest.raises(RecollectError, match="no room"):
            learner.learn(20, log_every=10, log="tensorboard")
    learner.learn(20, log_every=10, log="tensorboard")
    steps = [row["steps"] for row in read_rows(tmp_path / "run")]
    assert steps == sorted(set(steps)) and steps[-1] == learner.steps == 50
    assert len((tmp_path / "run" / "metrics.csv").read_text().splitlines()) == 1 + len(steps)


def test_an_environment_that_changes_the_working_directory(tmp_path, monkeypatch):
    class Wandering(Count):
        def reset(self, *, seed=None, options=None):
            os.chdir("/")
            return super().reset(seed=seed)

    monkeypatch.chdir(tmp_path)
    learner = Learner(A, Wandering, check=False).learn(30, log_every=10)
    assert learner.folder == tmp_path / "runs" / "Wandering-episodic-seed0"
    assert len(read_rows(learner.folder)) == 3 and checkpoints.listing(learner.folder / "checkpoints" / "learner")
    assert len(learner.learn(10, log_every=10).folder.parts) > 2


def test_save_and_load_mean_the_same_folder(tmp_path):
    learner = Learner(A, Count, check=False).learn(20, folder=tmp_path / "run")
    learner.advance(5)
    path = learner.save(tmp_path / "run")
    assert path.parent == tmp_path / "run" / "checkpoints" / "learner"
    assert Learner.load(tmp_path / "run", Count, check=False).steps == 25
    assert not (tmp_path / "run" / "lock.json").exists()
    other = Learner(A, Count, check=False)
    with pytest.raises(RecollectError, match="is the run folder of another learner"):
        other.save(tmp_path / "run")
    assert Learner.load(other.save(tmp_path / "plain").parent, Count, check=False).steps == 0


# -- smaller ones


def test_a_callback_that_calls_learn_is_told_so(tmp_path):
    learner = Learner(A, Count, check=False)
    with pytest.raises(RecollectError, match="learn was called while it is at work, by one of its callbacks"):
        learner.learn(20, log_every=10, folder=tmp_path / "run", callbacks=[lambda own, row: own.learn(5)])
    assert learner.learn(20, log_every=10).steps == 30


def test_a_callback_that_raises_leaves_a_checkpoint_of_that_moment(tmp_path):
    def fail(learner, row):
        if row["steps"] == 20:
            raise KeyError("out of luck")

    with pytest.raises(KeyError):
        Learner(A, Count, check=False).learn(50, log_every=10, folder=tmp_path / "run", callbacks=[fail])
    assert checkpoints.load(tmp_path / "run" / "checkpoints" / "learner").meta["steps"] == 20
    assert [row["steps"] for row in read_rows(resume(tmp_path / "run", Count, callbacks=[]).folder)] == [
        10,
        20,
        30,
        40,
        50,
    ]


@pytest.mark.parametrize("agent", [A.replace(hidden=10**9), A.replace(hidden=10**12)])
def test_networks_that_do_not_fit_are_refused_by_their_bytes(agent):
    with pytest.raises(ValueError, match=r"the agent's state and observations need [\d,]{10,} bytes, this machine has"):
        Learner(agent, Count, check=False)


def test_observations_that_do_not_fit_are_refused_by_their_bytes():
    class Vast(Count):
        observation_space = gym.spaces.Discrete(2**40)

    with pytest.raises(ValueError, match=r"observations of 1,099,511,627,776 numbers need [\d,]+ bytes"):
        Learner(A, Vast, check=False)


@pytest.mark.slow
def test_a_file_with_a_vast_network_is_refused_by_its_bytes(tmp_path):
    Learner(A, "CartPole-v1", check=False).save(tmp_path)
    found = checkpoints.load(tmp_path)
    options = {**found.meta["agent"]["options"], "hidden": 10**12}
    meta = {**found.meta, "agent": {**found.meta["agent"], "options": options}}
    checkpoints.save(tmp_path, found.arrays, meta)
    with pytest.raises(RecollectError, match=r"need [\d,]{10,} bytes, this machine has"):
        Learner.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fleet.episodes", -1),
        ("fleet.steps", -1),
        ("fleet.lengths", -5),
        ("fleet.scores", np.nan),
        ("normalizer.returns", np.inf),
    ],
)
def test_forged_numbers_are_refused(name, value, tmp_path):
    Learner(A, "CartPole-v1", check=False).learn(5, folder=tmp_path / "run")
    found = checkpoints.load(tmp_path / "run" / "checkpoints" / "learner")
    forged = {**found.arrays, name: np.full_like(found.arrays[name], value)}
    with pytest.raises(FileError, match="not valid"):
        Learner.restore(found._replace(arrays=forged), "CartPole-v1", check=False)


@pytest.mark.parametrize("change", [{"seconds": 1e300}, {"seconds": -1}, {"logged": 9}, {"goal": -1}, {"steps": -5}])
def test_forged_counts_are_refused(change, tmp_path):
    Learner(A, "CartPole-v1", check=False).learn(5, folder=tmp_path / "run")
    found = checkpoints.load(tmp_path / "run" / "checkpoints" / "learner")
    with pytest.raises(FileError, match="is not a saved learner"):
        Learner.restore(found._replace(meta={**found.meta, **change}), "CartPole-v1", check=False)


def test_seeds_of_playing(tmp_path, capsys):
    learner = Learner(A, "CartPole-v1", check=False).learn(5, folder=tmp_path / "run")
    for call in (lambda: learner.evaluate(1, seed=-1), lambda: inspection.play(learner, seed=-1)):
        with pytest.raises(ValueError, match="seed=-1 must be a whole number between 0 and"):
            call()
    assert cli.main(["evaluate", str(tmp_path / "run"), "--seed", "0", "--episodes", "1"]) == 0
    with pytest.raises(SystemExit):
        cli.main(["inspect", str(tmp_path / "run"), "--seed", "-1"])
    assert "must be a whole number from 0" in capsys.readouterr().err


def test_a_learner_says_that_it_is_not_pickled():
    with pytest.raises(TypeError, match=r"a Learner is not pickled or copied.*save\(folder\)"):
        pickle.dumps(Learner(A, Count, check=False))


FORK = """
import multiprocessing, sys, warnings
warnings.simplefilter("ignore")
import numpy as np, recollect
from recollect import EpisodicActorCritic, Learner
def work(queue, learner):
    found = []
    for attempt in (lambda: learner.advance(1), lambda: learner.evaluate(1), lambda: learner.state(),
                    lambda: Learner(EpisodicActorCritic(memory_size=2, hidden=4), "CartPole-v1", check=False),
                    lambda: recollect.train(EpisodicActorCritic(memory_size=2), recollect.SecretInformant(), 1)):
        try:
            attempt()
            found.append("worked")
        except recollect.RecollectError as error:
            found.append(str(error))
    queue.put(found)
learner = Learner(EpisodicActorCritic(memory_size=2, hidden=4), "CartPole-v1", check=False)
learner.advance(5)
context = multiprocessing.get_context("fork")
queue = context.Queue()
child = context.Process(target=work, args=(queue, learner))
child.start()
for text in queue.get(timeout=60):
    print(text)
child.join(60)
"""


@pytest.mark.slow
def test_a_child_that_was_forked_after_training_is_told_so():
    done = subprocess.run(
        [sys.executable, "-c", FORK],
        env=commands.environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 5 and all("was forked from one in which JAX had begun" in line for line in lines), lines


# -- found since


def test_a_run_to_the_end_of_all_steps_can_be_gone_on_with(tmp_path):
    """``sys.maxsize`` is how people say "until I stop it"; what no file could say is refused at once."""
    stop = [lambda learner, row: os.kill(os.getpid(), signal.SIGINT)]
    with pytest.raises(Interrupted):
        Learner(A, Count, check=False).learn(sys.maxsize, log_every=10, folder=tmp_path / "run", callbacks=stop)
    learner = Learner.load(tmp_path / "run", Count, check=False)
    assert learner.steps >= 10 and learner.goal == sys.maxsize
    for steps in (sys.maxsize, 10**400):
        with pytest.raises(ValueError, match=r"fewer than 2\^63"):
            learner.learn(steps, folder=tmp_path / "other")
    with pytest.raises(Interrupted):
        resume(tmp_path / "run", Count, callbacks=stop)
    assert not (tmp_path / "other").exists()


def test_a_callback_cannot_spoil_the_rows(tmp_path):
    """Whatever one does to a row, the run is intact, listed, and can be resumed."""

    def spoil(learner, row):
        row.clear()
        row.update(agent="me", seed=9, steps="many", episodes=None, length="long", evaluation=[1], mine="text")
        row["return"] = 5

    run = tmp_path / "run"
    Learner(A, Count, check=False).learn(20, log_every=10, folder=run, callbacks=[spoil])
    assert [(row["seed"], row["steps"], row["return"], row["mine"]) for row in read_rows(run)] == [
        (0, 10, 5, "text"),
        (0, 20, 5, "text"),
    ]
    assert all(fault is None for _, fault in run_reading.verify(run))
    assert run_reading.summary(run)["last_return"] == 5.0
    assert Learner.load(run, Count, check=False).steps == 20


def test_an_early_stop_passes_over_what_was_not_measured(tmp_path):
    def nothing(learner, row):
        row["mine"] = None if row["steps"] < 30 else np.float32(3)

    stop = callbacks.EarlyStop(2, column="mine")
    learner = Learner(A, Count, check=False).learn(60, log_every=10, folder=tmp_path / "run", callbacks=[nothing, stop])
    assert learner.steps == 30
    with pytest.raises(TypeError, match="'mine' holds 'text', not a number"):
        stop(learner, {"seed": 0, "mine": "text"})


def test_a_learners_own_run_folder_by_another_name(tmp_path):
    learner = Learner(A, Count, check=False).learn(20, log_every=10, folder=tmp_path / "run")
    (tmp_path / "link").symlink_to(tmp_path / "run")
    learner.save(tmp_path / "link")
    assert len(checkpoints.listing(tmp_path / "run" / "checkpoints" / "learner")) == 2
