"""Trains and records the three agents that the documentation shows.

    python docs/make_recordings.py [NAME ...]

writes ``docs/recordings/NAME.json.gz``; ``docs/theatre_pages.py`` makes pages of them whenever the site is built.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

from recollect import EpisodicActorCritic, Learner
from recollect.agents.general import GeneralActorCritic
from recollect.training.callbacks import Record
from recollect.view import format as recording
from recollect.view import sources

HERE = Path(__file__).parent / "recordings"
THINGS = ("wall", "key", "ball")

SHOWN: dict[str, tuple[Any, str, dict[str, Any], int, int]] = {
    # agent, environment, its options, steps of training, seed of the episode
    "t-maze": (EpisodicActorCritic(memory_size=3), "recollect/TMaze-v0", {"length": 10}, 60_000, 0),
    "secret-informant": (
        EpisodicActorCritic(memory_size=3), "recollect/SecretInformant-v0", {"length": 10}, 250_000, 1,
    ),
    "minigrid": (GeneralActorCritic(), "MiniGrid-MemoryS7-v0", {"things": THINGS}, 150_000, 3),
}  # fmt: skip


def main(names: list[str]) -> None:
    """Make those named, or all."""
    for name in names or SHOWN:
        agent, env, options, steps, seed = SHOWN[name]
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder) / name
            learner = Learner(agent, env, env_options=options, seed=0)
            learner.learn(steps, progress=True, folder=run, callbacks=[Record(6 if name == "minigrid" else 12)])
            found = sources.document(run, env=env, seed=seed, say=print)
            print(learner.evaluate(50), recording.write(HERE / f"{name}.json.gz", found))


if __name__ == "__main__":
    main(sys.argv[1:])
