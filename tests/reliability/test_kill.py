"""kill -9 at any moment, saves included: what is there loads, and the run goes on to the same end."""

import json
import random
import subprocess
import sys
import time

from recollect import runs
from reliability import commands
from reliability.commands import finish, real, wait_for
from reliability.standin import outcome

SMALL = ("reproduce", "fig3", "--seeds", 2, "--episodes", 20_000)


def test_killed_at_100_random_moments(tmp_path):
    """Half at a random time, half at a random call that touches the disk, in the middle of a write among them.

    The trainer is the stand-in; everything around it is real. After each kill every listed checkpoint is sound; every
    run that gets to its end has, in each group, the metrics and the last state of one that was left alone.
    """
    command = [sys.executable, str(commands.HERE / "standin.py"), "--kill", str(tmp_path), "100", "1"]
    done = subprocess.run(command, env=commands.environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["killed"] == 100 and found["in_saves"] >= 20 and found["finished_runs_compared"] >= 3, found


def test_the_real_trainer_killed_and_resumed(tmp_path):
    """The command itself, compiled loop and compiled baseline, killed three times where it saves all the time."""
    rng, cache = random.Random(0), tmp_path / "cache"
    whole, run = tmp_path / "whole", tmp_path / "run"
    finish(real(cache, *SMALL, "--out", whole))
    for kill in range(3):
        arguments = (*SMALL, "--out", run) if kill == 0 else ("resume", run)
        process = real(cache, *arguments, "--checkpoint-every", "0.01")
        before = commands.checkpoints_of(run)
        wait_for(lambda before=before: commands.checkpoints_of(run) != before, process)
        time.sleep(rng.uniform(0.0, 0.15))
        process.kill()
        assert process.wait() == -9
        process.communicate()
        assert commands.read_json(run / "status.json")["status"] == "running"
        assert runs.summary(run)["status"] == "stopped"
        assert [fault for _, fault in runs.verify(run) if fault] == []
    finish(real(cache, "resume", run))
    assert outcome(run) == outcome(whole)
    assert [e["event"] for e in commands.events(run)].count("resumed") == 3
    assert (run / "verdict.json").read_bytes() == (whole / "verdict.json").read_bytes()
    assert commands.read_json(run / "status.json")["exact"] is True
