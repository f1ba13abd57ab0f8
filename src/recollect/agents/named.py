"""The agents by the names that the command line and saved learners know them by. The networks are the same in all."""

import dataclasses
import math
from typing import Any

import numpy as np

from recollect.agents.base import Agent
from recollect.agents.convolution import Convolution
from recollect.agents.episodic import EpisodicActorCritic
from recollect.agents.realtime import RealTimeActorCritic
from recollect.agents.recurrent import RecurrentActorCritic
from recollect.errors import FileError

CLASSES: dict[str, type[Agent]] = {
    "EpisodicActorCritic": EpisodicActorCritic,
    "RecurrentActorCritic": RecurrentActorCritic,
    "RealTimeActorCritic": RealTimeActorCritic,
}

NAMES: dict[str, tuple[type[Agent], dict[str, Any]]] = {
    "episodic": (EpisodicActorCritic, {}),
    "fifo": (EpisodicActorCritic, {"memory": "fifo"}),
    "uniform": (EpisodicActorCritic, {"memory": "uniform"}),
    "none": (EpisodicActorCritic, {"memory": "none"}),
    "gru": (RecurrentActorCritic, {"window": 128}),
    "gru-truncated": (RecurrentActorCritic, {"window": 8}),
    "gru-rtrl": (RealTimeActorCritic, {}),
}
"""gru: gradients through the last 128 steps, which is the whole episode in all but long ones; gru-truncated: through 8;
gru-rtrl: carried forward instead of back, through the whole episode, however long."""

_NOT_SAVED = ("actions",)  # set from the environment


def make(name: str, **options: Any) -> Agent:
    """The agent called ``name``, with options of its class on top."""
    cls, fixed = NAMES[name]
    known = [f.name for f in dataclasses.fields(cls) if f.name not in (*_NOT_SAVED, "pictures")]  # type: ignore[arg-type]
    for option in options:
        if option not in known:
            raise ValueError(f"{name} has no option {option!r}; there are {', '.join(known)}")
    return cls(**{**fixed, **options})


def name_of(agent: Any) -> str:
    """How an agent is called in run folders."""
    if isinstance(agent, EpisodicActorCritic):
        return "episodic" if agent.memory == "reservoir" else agent.memory
    if isinstance(agent, RealTimeActorCritic):
        return "gru-rtrl"
    return "gru" if isinstance(agent, RecurrentActorCritic) else type(agent).__name__.lower()


def describe(agent: Agent) -> dict[str, Any]:
    """An agent as JSON can hold it."""
    options: dict[str, Any] = {}
    for field in dataclasses.fields(agent):  # type: ignore[arg-type]
        if field.name in _NOT_SAVED:
            continue
        value = getattr(agent, field.name)
        if isinstance(value, (np.ndarray, np.generic)) or hasattr(value, "dtype"):
            if np.ndim(value):
                raise ValueError(f"{field.name} must be one number for a learner, got shape {np.shape(value)}")
            value = np.asarray(value).item()
        if isinstance(value, Convolution):
            value = dataclasses.asdict(value)
        options[field.name] = str(value) if isinstance(value, float) and math.isinf(value) else value
    return {"class": type(agent).__name__, "options": options}


def restore(described: Any) -> Agent:
    """The agent that ``describe`` described; ``FileError`` if it is none."""
    try:
        cls = CLASSES[described["class"]]
        fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
        options: dict[str, Any] = {
            name: float(value) if isinstance(value, str) and value in ("inf", "-inf") else value
            for name, value in described["options"].items()
            if name in fields or _refuse(name, cls)
        }
        if options.get("pictures") is not None:
            form = options["pictures"]
            options["pictures"] = Convolution(**{**form, "shape": tuple(form["shape"])})
        return cls(**options)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileError(f"not an agent that this release knows: {type(error).__name__}: {error}") from error


def _refuse(name: str, cls: type) -> bool:
    raise ValueError(f"{cls.__name__} has no option {name!r}")
