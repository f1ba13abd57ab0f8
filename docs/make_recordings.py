"""Trains and records the three agents that the documentation shows.

    python docs/make_recordings.py [NAME ...]

writes ``docs/recordings/NAME.json.gz``; ``docs/theatre_pages.py`` makes pages of them whenever the site is built.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

from recollect import EpisodicActorCritic, Learner
from recollect.training.callbacks import Record
from recollect.view import format as recording
from recollect.view import sources

HERE = Path(__file__).parent / "recordings"

IN_MINIGRID = {
    "memory_size": 16,
    "products": 16,
    "learning_rate": 0.01,
    "discount": 0.97,
    "entropy": 0.02,
    "surprise": 0.1,
}
IN_MINIGRID |= {"trace_decay": 0.9, "value_rate": 1.0, "write_rate": 0.3, "hidden": 16}

SHOWN: dict[str, tuple[dict[str, Any], str, dict[str, Any], int, int]] = {
    # options of the agent, environment, its options, steps of training, seed of the episode
    "t-maze": ({"memory_size": 3}, "recollect/TMaze-v0", {"length": 10}, 60_000, 0),
    "secret-informant": ({"memory_size": 3}, "recollect/SecretInformant-v0", {"length": 10}, 250_000, 1),
    "minigrid": (IN_MINIGRID, "MiniGrid-MemoryS7-v0", {"things": ("wall", "key", "ball")}, 300_000, 3),
}


def main(names: list[str]) -> None:
    """Make those named, or all."""
    for name in names or SHOWN:
        settings, env, options, steps, seed = SHOWN[name]
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder) / name
            agent, steady = EpisodicActorCritic(**settings), name == "minigrid"
            learner = Learner(agent, env, env_options=options, seed=0, normalize_observations=steady)
            learner.learn(steps, progress=True, folder=run, callbacks=[Record(6 if steady else 12)])
            found = sources.document(run, env=env, seed=seed, say=print)
            print(learner.evaluate(50), recording.write(HERE / f"{name}.json.gz", found))


if __name__ == "__main__":
    main(sys.argv[1:])
