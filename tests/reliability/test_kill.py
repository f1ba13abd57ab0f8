"""kill -9 at any moment, saves included: what is there loads, and the run continues to the same end."""

import json
import random
import signal
import subprocess
import sys
import time

from recollect import cli
from recollect.store import checkpoints, run_reading
from reliability import commands
from reliability.commands import real, wait_for
from reliability.standin import outcome

SMALL = ("reproduce", "fig3", "--seeds", 2, "--episodes", 6000)


def test_killed_at_100_random_moments(tmp_path):
    """Half at a random time, half at a random call that touches the disk, in the middle of a write among them.

    The trainer is the stand-in; everything around it is real. After each kill every listed checkpoint is intact; every
    run that gets to its end has, in each group, the metrics and the last state of one that was left alone.
    """
    command = [sys.executable, str(commands.HERE / "standin.py"), "--kill", str(tmp_path), "100", "1"]
    done = subprocess.run(command, env=commands.environment(), capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["killed"] >= 100 and found["in_saves"] >= 20 and found["finished_runs_compared"] >= 3, found


def test_the_real_trainer_killed_and_resumed(tmp_path):
    """The command itself, compiled loop and compiled baseline, killed three times where it saves all the time."""
    rng, whole, run = random.Random(0), tmp_path / "whole", tmp_path / "run"
    assert cli.main([*map(str, SMALL), "--out", str(whole)]) == 0
    for kill in range(3):
        arguments = (*SMALL, "--out", run) if kill == 0 else ("resume", run)
        process = real(*arguments, "--checkpoint-every", "0.01")
        before = commands.checkpoints_of(run)
        wait_for(lambda before=before: commands.checkpoints_of(run) != before, process)
        time.sleep(rng.uniform(0.0, 0.15))
        process.kill()
        assert process.wait() == -9
        process.communicate()
        assert commands.read_json(run / "status.json")["status"] == "running"
        assert run_reading.summary(run)["status"] == "stopped"
        assert [fault for _, fault in run_reading.verify(run) if fault] == []
    assert cli.main(["resume", str(run)]) == 0
    assert outcome(run) == outcome(whole)
    assert [e["event"] for e in commands.events(run)].count("resumed") == 3
    assert (run / "verdict.json").read_bytes() == (whole / "verdict.json").read_bytes()
    assert commands.read_json(run / "status.json")["exact"] is True


LEARNER = (
    "train",
    "--env",
    "CartPole-v1",
    "--agent",
    "episodic",
    "--steps",
    "20000",
    "--log-every",
    "300",
    "--evaluate-every",
    "7000",
)
LEARNER += ("--normalize", "both", "--set", "critic_output=linear", "--set", "hidden=8")


def test_a_learner_killed_and_resumed(tmp_path, capsys):
    """``recollect train`` in Gymnasium, killed twice in the middle of episodes, ended by SIGTERM, and resumed."""
    rng, run, whole, within = random.Random(1), tmp_path / "run", tmp_path / "whole", []
    for number in (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM):
        arguments = ("resume", run) if run.exists() else (*LEARNER, "--out", run)
        process = real(*arguments, "--checkpoint-every", "0.02")
        before = commands.checkpoints_of(run)
        wait_for(lambda before=before: commands.checkpoints_of(run) != before, process)
        time.sleep(rng.uniform(0.0, 0.1))
        process.send_signal(number)
        _, err = process.communicate(timeout=120)
        assert process.returncode == (130 if number == signal.SIGTERM else -9), err
        status = "interrupted" if number == signal.SIGTERM else "stopped"
        assert run_reading.summary(run)["status"] == status and 0 <= run_reading.summary(run)["progress"] < 1
        assert [fault for _, fault in run_reading.verify(run) if fault] == []
        newest = checkpoints.load(run / "checkpoints" / "learner")
        assert 0 < newest.meta["steps"] < 20_000
        within.append(len(newest.arrays["fleet.taken"]) > 0)
    assert "recollect resume continues it" in err
    assert any(within)  # an end of an episode may be hit by chance, but not three times
    assert cli.main(["resume", str(run)]) == 0 and "steps:   20,000" in capsys.readouterr().out
    assert cli.main([*LEARNER, "--out", str(whole)]) == 0
    found = [outcome_of_learner(path) for path in (run, whole)]
    assert found[0] == found[1]
    assert [e["event"] for e in commands.events(run)].count("resumed") == 3
    assert cli.main(["verify", str(run)]) == 0 and cli.main(["runs", str(tmp_path)]) == 0
    assert run_reading.summary(run) == {
        **run_reading.summary(whole),
        "run": "run",
        "command": run_reading.summary(run)["command"],
    }


def outcome_of_learner(path):
    """The last state and the rows of metrics, but for what the clock said."""
    arrays = checkpoints.load(path / "checkpoints" / "learner").arrays
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        del row["seconds"], row["steps_per_second"]
    return {name: array.tobytes() for name, array in arrays.items()}, rows
