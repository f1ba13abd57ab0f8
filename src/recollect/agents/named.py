"""The agents by the names that the command line and saved learners know them by. The networks are the same in all."""

import dataclasses
import math
from typing import Any

import numpy as np

from recollect.agents.base import Agent
from recollect.agents.convolution import Convolution
from recollect.agents.episode_memory import EpisodeMemory
from recollect.agents.episodic import PRESETS, EpisodicActorCritic
from recollect.agents.general import GeneralActorCritic
from recollect.agents.networks import NormedNetwork
from recollect.agents.optimizers import BoundedRMS
from recollect.agents.persistence import Persistence
from recollect.agents.realtime import RealTimeActorCritic
from recollect.agents.recurrent import RecurrentActorCritic
from recollect.agents.reopening import Reopening
from recollect.agents.settling import Settling
from recollect.agents.trace_units import TraceUnits
from recollect.errors import FileError

CLASSES: dict[str, type[Agent]] = {
    "GeneralActorCritic": GeneralActorCritic,
    "EpisodicActorCritic": EpisodicActorCritic,
    "RecurrentActorCritic": RecurrentActorCritic,
    "RealTimeActorCritic": RealTimeActorCritic,
}

PARTS: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        BoundedRMS,
        Convolution,
        EpisodeMemory,
        NormedNetwork,
        Persistence,
        Reopening,
        Settling,
        TraceUnits,
    )
}
"""What agents are made of and a file can hold: by name, with numbers, names and lists of them for options."""

_NO_UNITS = TraceUnits(units=0)

NAMES: dict[str, tuple[type[Agent], dict[str, Any]]] = {
    "general": (GeneralActorCritic, {}),
    "trace-units": (GeneralActorCritic, {"memory": EpisodeMemory("none")}),
    "reservoir": (GeneralActorCritic, {"units": _NO_UNITS}),
    "memoryless": (GeneralActorCritic, {"units": _NO_UNITS, "memory": EpisodeMemory("none")}),
    "even-weights": (GeneralActorCritic, {"memory": EpisodeMemory("uniform")}),
    "one-horizon": (GeneralActorCritic, {"discounts": (0.95,)}),
    "fresh-chance": (GeneralActorCritic, {"persistence": Persistence(0.0)}),
    "paper": (EpisodicActorCritic, PRESETS["paper"]),
    "episodic": (EpisodicActorCritic, {}),
    "fifo": (EpisodicActorCritic, {"memory": "fifo"}),
    "uniform": (EpisodicActorCritic, {"memory": "uniform"}),
    "none": (EpisodicActorCritic, {"memory": "none"}),
    "gru": (RecurrentActorCritic, {"window": 128}),
    "gru-truncated": (RecurrentActorCritic, {"window": 8}),
    "gru-rtrl": (RealTimeActorCritic, {}),
}
"""general: the default; trace-units and reservoir: with one of its two kinds of memory, memoryless: with neither;
even-weights: write weights are not learned; one-horizon: .95 alone; fresh-chance: without steady chance.
paper, episodic: the paper's agent by its presets; fifo, uniform, none: with another memory. gru: gradients through the
last 128 steps, which is the whole episode in all but long ones; gru-truncated: through 8; gru-rtrl: carried forward
instead of back, through the whole episode, however long."""

_NOT_SAVED = ("actions",)  # set from the environment


def make(name: str, **options: Any) -> Agent:
    """The agent called ``name``, with options of its class on top; those of a part are named PART.OPTION.

    >>> make("general", memory_size=4, **{"memory.radius": 0.5}).memory.radius
    0.5
    """
    cls, fixed = NAMES[name]
    agent: Any = cls(**fixed)
    for option, value in options.items():
        part, dot, of_part = option.rpartition(".")
        owner: Any = getattr(agent, part, None) if dot else agent
        if not dataclasses.is_dataclass(owner) or of_part not in _options(owner):
            owner, part, of_part = (owner, part, of_part) if dataclasses.is_dataclass(owner) else (agent, "", option)
            of = f"{part} of {name}" if part else name
            raise ValueError(f"{of} has no option {of_part!r}; there are {', '.join(_options(owner))}")
        plain = value is None or isinstance(
            value, (bool, int, float, str, list, tuple)
        )  # not a part, be it one of the caller's own
        if plain and dataclasses.is_dataclass(there := getattr(owner, of_part)):
            own = ", ".join(f"{option}.{name}" for name in _options(there))
            raise ValueError(f"{option}={value}: that is a part with options of its own, {own}")
        agent = agent.replace(**({part: dataclasses.replace(owner, **{of_part: value})} if dot else {option: value}))  # type: ignore[type-var]
    return agent


def _options(owner: Any) -> list[str]:
    """What can be set: numbers and names, and for the parts that this library knows their own."""
    return [f.name for f in dataclasses.fields(owner) if f.name not in (*_NOT_SAVED, "pictures")]


def name_of(agent: Any) -> str:
    """How an agent is called in run folders."""
    if isinstance(agent, GeneralActorCritic):
        kinds = (getattr(agent.units, "units", 1) > 0, getattr(agent.memory, "law", "") != "none")
        return {(True, True): "general", (True, False): "trace-units", (False, True): "reservoir"}.get(
            kinds, "memoryless"
        )
    if isinstance(agent, EpisodicActorCritic):
        return "episodic" if agent.memory == "reservoir" else agent.memory
    if isinstance(agent, RealTimeActorCritic):
        return "gru-rtrl"
    return "gru" if isinstance(agent, RecurrentActorCritic) else type(agent).__name__.lower()


def describe(agent: Agent) -> dict[str, Any]:
    """An agent as JSON can hold it."""
    options = {
        field.name: _plain(field.name, getattr(agent, field.name))
        for field in dataclasses.fields(agent)  # type: ignore[arg-type]
        if field.name not in _NOT_SAVED
    }
    return {"class": _class(agent, CLASSES), "options": options}


def _class(value: Any, known: dict[str, type]) -> str:
    """What a file calls the class of ``value``; one that only has the name of a ``known`` one is the user's own."""
    cls = type(value)
    return cls.__name__ if known.get(cls.__name__, cls) is cls else f"{cls.__module__}.{cls.__name__}"


def _plain(name: str, value: Any) -> Any:
    """An option as JSON can hold it; a part of the user's own is named, and refused when it is to be made again."""
    if isinstance(value, (np.ndarray, np.generic)) or hasattr(value, "dtype"):
        if np.ndim(value):
            raise ValueError(f"{name} must be one number for a learner, got shape {np.shape(value)}")
        value = np.asarray(value).item()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return str(value) if math.isinf(value) else value
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return [_plain(name, item) for item in value]
    options = {}
    if type(value) in PARTS.values():
        options = {field.name: _plain(name, getattr(value, field.name)) for field in dataclasses.fields(value)}  # type: ignore[arg-type]
    return {"part": _class(value, PARTS), "options": options}


def restore(described: Any) -> Agent:
    """The agent that ``describe`` described; ``FileError`` if it is none."""
    try:
        if (own := _own(described)) is not None:
            raise FileError(
                f"{own} is none of this release's: if it is your own, give the agent as it was made, in Python: "
                "Learner.load(FOLDER, agent=AGENT) or recollect.training.resuming.resume(FOLDER, agent=AGENT)"
            )
        cls = CLASSES[described["class"]]
        options = _known(cls, described["options"])
        form = described["options"].get("pictures")
        if isinstance(form, dict) and "part" not in form:  # as release 0.1 wrote it
            options["pictures"] = Convolution(**{**form, "shape": tuple(form["shape"])})
        return cls(**options)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileError(f"not an agent that this release knows: {type(error).__name__}: {error}") from error


def _own(described: Any) -> str | None:
    """The first class in a description that is not this library's, if there is one."""
    if described["class"] not in CLASSES:
        return str(described["class"])
    parts = (value.get("part") for value in described["options"].values() if isinstance(value, dict))
    return next((f"{part!r}" for part in parts if part is not None and part not in PARTS), None)


def _known(cls: type, options: dict[str, Any]) -> dict[str, Any]:
    """Options of a class with the parts made of their descriptions; one that it no longer has may be None: not used."""
    fields = {f.name for f in dataclasses.fields(cls)}
    options = {name: value for name, value in options.items() if name in fields or value is not None}
    if unknown := [name for name in options if name not in fields]:
        raise ValueError(f"{cls.__name__} has no option {unknown[0]!r}")
    return {name: _made(value) for name, value in options.items()}


def _made(value: Any) -> Any:
    if isinstance(value, str) and value in ("inf", "-inf"):
        return float(value)
    if isinstance(value, list):
        return tuple(_made(item) for item in value)
    if isinstance(value, dict) and "part" in value:
        if value["part"] not in PARTS:
            raise ValueError(f"{value['part']!r} is no part of this library's agents; there are {', '.join(PARTS)}")
        cls = PARTS[value["part"]]
        return cls(**_known(cls, value["options"]))
    return value
