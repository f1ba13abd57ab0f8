"""A training process is killed with SIGKILL, resumed, and ends at the same bits as one that was left alone."""

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np

import recollect
from recollect.training.resuming import resume

STEPS = 30_000
AGENT = recollect.EpisodicActorCritic(memory_size=2, hidden=8)
TRAIN = f"""
import recollect
agent = recollect.EpisodicActorCritic(memory_size=2, hidden=8)
recollect.Learner(agent, "CartPole-v1", seed=3).learn({STEPS}, folder="killed", checkpoint_every=0.05)
"""


def checkpoints(folder):
    return [path for path in folder.glob("checkpoints/*/*") if not path.name.startswith(".")]


def main():
    with tempfile.TemporaryDirectory() as here:
        killed = Path(here) / "killed"
        process = subprocess.Popen([sys.executable, "-c", TRAIN], cwd=here)
        while process.poll() is None and len(checkpoints(killed)) < 2:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        print("killed with", len(checkpoints(killed)), "checkpoints in its folder")
        resumed = resume(killed)
        alone = recollect.Learner(AGENT, "CartPole-v1", seed=3).learn(STEPS, folder=Path(here) / "alone")
        leaves = [jax.tree.leaves(learner.state()) for learner in (resumed, alone)]
        same = all(np.array_equal(a, b) for a, b in zip(*leaves, strict=True))
        print(f"resumed to step {resumed.steps:,}: every array is {'the same' if same else 'DIFFERENT'}")
        assert same


if __name__ == "__main__":
    main()
