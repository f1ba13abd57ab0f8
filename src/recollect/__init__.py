"""recollect: reinforcement-learning agents that learn online what to remember.

The public names below are imported when first used, so that ``import recollect`` stays quick.
"""

import importlib
import sys

from recollect._version import __version__

TYPE_CHECKING = False  # as typing has it, which takes longer to import than all of this

if TYPE_CHECKING:
    from recollect.agents.episodic import EpisodicActorCritic
    from recollect.agents.general import GeneralActorCritic
    from recollect.agents.recurrent import RecurrentActorCritic
    from recollect.envs.secret_informant import SecretInformant
    from recollect.errors import FileError, RecollectError
    from recollect.reservoir.stream import Reservoir
    from recollect.training.batch import Result, train
    from recollect.training.online import Learner
    from recollect.training.returned import EnvironmentFault

_HOME = {
    "EnvironmentFault": "recollect.training.returned",
    "EpisodicActorCritic": "recollect.agents.episodic",
    "FileError": "recollect.errors",
    "GeneralActorCritic": "recollect.agents.general",
    "Learner": "recollect.training.online",
    "RecollectError": "recollect.errors",
    "RecurrentActorCritic": "recollect.agents.recurrent",
    "Reservoir": "recollect.reservoir.stream",
    "Result": "recollect.training.batch",
    "SecretInformant": "recollect.envs.secret_informant",
    "train": "recollect.training.batch",
}

__all__ = [
    "EnvironmentFault",
    "EpisodicActorCritic",
    "FileError",
    "GeneralActorCritic",
    "Learner",
    "RecollectError",
    "RecurrentActorCritic",
    "Reservoir",
    "Result",
    "SecretInformant",
    "__version__",
    "train",
]


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module 'recollect' has no attribute {name!r}; public names: {', '.join(__all__)}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


# gymnasium.make("recollect:recollect/SecretInformant-v0") imports this module after Gymnasium; by itself, importing
# recollect does not import Gymnasium.
if "gymnasium" in sys.modules:
    from recollect.envs import register

    register()
