"""Environments: the secret informant problem and the T-maze in pure JAX, and as Gymnasium environments.

`base` says what a JAX environment is; `making` finds a Gymnasium environment by its id and checks it, `spaces` turns
its observations and actions into vectors; `bsuite` and `minigrid` adapt other suites, `adapters` JAX
environments of gymnax and xminigrid. May import `agents`.

The names below are imported when first used, so that registering with Gymnasium needs neither JAX nor NumPy.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recollect.envs.adapters import adapt
    from recollect.envs.base import Environment, TimeStep
    from recollect.envs.secret_informant import FORWARD, Instance, SecretInformant
    from recollect.envs.t_maze import TMaze

_HOME = {
    "adapt": "recollect.envs.adapters",
    "Environment": "recollect.envs.base",
    "TimeStep": "recollect.envs.base",
    "FORWARD": "recollect.envs.secret_informant",
    "Instance": "recollect.envs.secret_informant",
    "SecretInformant": "recollect.envs.secret_informant",
    "TMaze": "recollect.envs.t_maze",
}

__all__ = ["FORWARD", "Environment", "Instance", "SecretInformant", "TMaze", "TimeStep", "adapt", "register"]


def register() -> None:
    """Make ``recollect/SecretInformant-v0``, ``TMaze-v0`` and ``NoisyRecall-v0`` known to ``gymnasium.make``.

    Episodes have no time limit, as in the paper; ``gymnasium.make(..., max_episode_steps=n)`` sets one.
    """
    from gymnasium.envs.registration import register as gymnasium_register
    from gymnasium.envs.registration import registry

    if "recollect/SecretInformant-v0" not in registry:
        gymnasium_register(
            id="recollect/SecretInformant-v0",
            entry_point="recollect.envs.gymnasium:SecretInformantEnv",
            reward_threshold=0.95,
        )
        gymnasium_register(id="recollect/TMaze-v0", entry_point="recollect.envs.t_maze:TMazeEnv", reward_threshold=0.95)
        gymnasium_register(
            id="recollect/NoisyRecall-v0",
            entry_point="recollect.envs.noisy_recall:NoisyRecallEnv",
            reward_threshold=0.95,
        )


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module 'recollect.envs' has no attribute {name!r}; public names: {', '.join(__all__)}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
