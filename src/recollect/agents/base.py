"""What every agent is: ``init``, ``begin``, ``learn`` on one time step, and ``step``, which is the two together."""

import abc
import dataclasses
import sys
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


class TimeStep(Protocol):
    """What an agent is told after an action; environments have their own type of this form."""

    @property
    def observation(self) -> Array:
        """The next observation."""
        ...

    @property
    def reward(self) -> Array:
        """The reward for the action."""
        ...

    @property
    def terminated(self) -> Array:
        """Whether the episode is over."""
        ...

    @property
    def truncated(self) -> Array:
        """Whether the episode was cut short."""
        ...


class Turn(NamedTuple):
    """Where a decision stands between two others: with it, an agent can tell what its memory makes of the step."""

    before: Any  # the state before the observation came that was decided at
    key_begin: Array  # the key that ``begin`` decided with
    key_watch: Array  # the key that ``watch`` or ``learn`` will be given


class Agent(abc.ABC):
    """Base of the agents: a frozen dataclass whose numbers JAX may trace, so that runs can differ in them.

    The loop around an agent is

        state = agent.init(key, observation_size, num_actions)
        state, action = agent.begin(state, observation, key)          # a first observation
        state, action = agent.step(state, timestep, key)              # learn from what came of the action, act again

    until a time step that ends the episode, which goes to ``learn``, and then ``begin`` takes the next episode's first
    observation.
    """

    learned: ClassVar[tuple[str, ...]] = ("params",)
    """The fields of the state that learning moves, as against what belongs to one stream of experience."""

    def __post_init__(self) -> None:
        check_fields(self)

    @abc.abstractmethod
    def init(self, key: Array, observation_size: int, num_actions: int) -> Any:
        """Fresh parameters and an empty memory."""

    @abc.abstractmethod
    def begin(self, state: Any, observation: Array, key: Array) -> tuple[Any, Array]:
        """Choose an action at ``observation`` without learning; the state holds the choice until ``learn``."""

    @abc.abstractmethod
    def learn(self, state: Any, timestep: TimeStep, key: Array, active: Array | bool = True) -> Any:
        """Learn from what came of the last action; with ``active`` false the parameters stay as they are."""

    def watch(self, state: Any, timestep: TimeStep, key: Array) -> Any:
        """Take in what came of the last action without learning from it: the memory continues, the parameters stay."""
        return self.learn(state, timestep, key, active=False)

    def update(self, state: Any, timestep: TimeStep, key: Array, active: Array | bool = True) -> tuple[Any, Array]:
        """As ``learn``, and whether the update was finite; one that is not is not made."""
        return self.learn(state, timestep, key, active), jnp.array(True)

    def write_weights(self, state: Any, observations: Array) -> Array:
        """[observation]: the weight with which each would be stored; NaN for an agent that has no such thing."""
        del state
        return jnp.full(observations.shape[0], jnp.nan)

    def query_entropy(self, state: Any) -> Array:
        """[]: −Σ Q log Q of the query that the decision under way was made with, in nats.

        NaN where there was nothing to recall, and for an agent that has no such thing.
        """
        del state
        return jnp.full((), jnp.nan)

    def step(self, state: Any, timestep: TimeStep, key: Array) -> tuple[Any, Array]:
        """One time step: learn from it, then act at its observation."""
        key_learn, key_begin = jax.random.split(key)
        return self.begin(self.learn(state, timestep, key_learn), timestep.observation, key_begin)

    def explain(self, state: Any, timestep: TimeStep, turn: Turn | None = None) -> dict[str, Any]:
        """What the agent held and thought when it chose the action that ``timestep`` came of, for looking at.

        The keys are those of ``recollect.agents.explanation.Explanation``; an agent tells what it has, here nothing.
        Pure, so that it can be compiled; ``state`` is the one that ``begin`` or ``step`` returned. With ``turn``, a
        memory of slots also tells where this step's observation goes: its own draw, made with the keys it draws with.
        """
        del state, timestep, turn
        return {}

    def replace(self, **changes: Any) -> Any:
        """The same agent with some hyperparameters changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]


def traced(**metadata: Any) -> Any:
    """Field metadata of a hyperparameter that may differ from run to run within one compiled loop."""
    return {"traced": True, **metadata}


def number(default: Any, low: float, high: float, low_open: bool = False) -> Any:
    """A traced hyperparameter between two numbers."""
    return dataclasses.field(default=default, metadata=traced(refuse=(check_number, low, high, low_open)))


def choice(default: Any, choices: Collection[Any]) -> Any:
    """An option that is one of some names."""
    return dataclasses.field(default=default, metadata={"refuse": (check_choice, choices)})


def count(default: int) -> Any:
    """A whole number of at least 1."""
    return dataclasses.field(default=default, metadata={"refuse": (check_count,)})


def flag(default: bool) -> Any:
    """A truth value."""
    return dataclasses.field(default=default, metadata={"refuse": (check_flag,)})


def check_fields(owner: Any) -> None:
    """Refuse what is outside of what its field says."""
    for field in dataclasses.fields(owner):
        if "refuse" in field.metadata:
            refuse, *limits = field.metadata["refuse"]
            refuse(field.name, getattr(owner, field.name), *limits)


def register(cls: type) -> type:
    """Make an agent class a JAX pytree whose leaves are its traced hyperparameters."""
    fields = dataclasses.fields(cls)
    jax.tree_util.register_dataclass(
        cls,
        data_fields=[f.name for f in fields if f.metadata.get("traced")],
        meta_fields=[f.name for f in fields if not f.metadata.get("traced")],
    )
    return cls


def why_unknown(
    agent: Agent, cls: type, options: Collection[str], choices: Mapping[str, Collection[Any]]
) -> str | None:
    """Why an engine that is written for ``cls`` cannot run this agent, or None if it can.

    It knows ``options`` in any value, those named in ``choices`` in these, all others at their class's default: one
    that is added to the class later is declined. Of values that differ from run to run, each must fit. A subclass is
    refused: it may do anything.
    """
    if type(agent) is not cls:
        return f"it is written for {cls.__name__}, not for {type(agent).__name__}"

    def known(field: dataclasses.Field) -> Collection[Any]:
        return choices.get(field.name, (field.default,))

    def fits(field: dataclasses.Field) -> bool:
        value = getattr(agent, field.name)
        return bool(np.all(np.any([np.asarray(value == x) for x in known(field)], axis=0)))

    found = [
        f"{field.name}={getattr(agent, field.name)!r} (known: {', '.join(map(repr, known(field)))})"
        for field in dataclasses.fields(agent)  # type: ignore[arg-type]
        if field.name not in options and not fits(field)
    ]

    return f"it does not know {', '.join(found)}" if found else None


_NO_NUMBERS = (type(None), str, bytes, complex, list, tuple, dict, set, frozenset, type)


def check_number(name: str, value: Any, low: float, high: float, low_open: bool = False) -> None:
    """Refuse a hyperparameter outside its range, be it a number or one per run; what JAX traces is let through."""
    array = isinstance(value, (np.ndarray, np.generic))
    if isinstance(value, _NO_NUMBERS) or (array and not np.can_cast(value.dtype, float, "same_kind")):
        raise ValueError(f"{name}={value!r} must be a number")
    if not array and not isinstance(value, (int, float)):
        return
    try:
        numbers = np.asarray(value, float)
    except OverflowError:
        raise ValueError(f"{name} is a number of more than {sys.float_info.max:g}") from None
    if not np.all((low < numbers if low_open else low <= numbers) & (numbers <= high)):
        bracket = "(" if low_open else "["
        raise ValueError(f"{name}={value} is outside {bracket}{low}, {high}]")


def check_flag(name: str, value: Any) -> None:
    """Refuse an option that is not a truth value."""
    if not isinstance(value, bool):
        raise ValueError(f"{name}={value!r} must be True or False")


def check_count(name: str, value: Any) -> None:
    """Refuse what is not a whole number of at least 1."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name}={value!r} must be an integer of at least 1")


def check_choice(name: str, value: str, choices: Any) -> None:
    """Refuse an option that is not one of its names."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name}={value!r}: choose one of {', '.join(map(repr, choices))}")


def take_numbers(owner: Any, *names: str) -> None:
    """Make Python's own numbers of arrays of one number in these fields, which are not traced and must be hashable."""
    for name in names:
        value = getattr(owner, name)
        if hasattr(value, "dtype") and np.ndim(value) == 0:
            object.__setattr__(owner, name, np.asarray(value).item())


def check_part(name: str, value: Any, example: str, methods: Collection[str]) -> None:
    """Refuse what cannot be a part of an agent: anything but an object with these methods that can be hashed."""
    missing = [method for method in methods if not hasattr(value, method)]
    if missing or isinstance(value, type):
        lacks = "it is a class, not an object" if isinstance(value, type) else f"it has no {', '.join(missing)}"
        raise TypeError(
            f"{name}={value!r} cannot be that part of an agent: {lacks}; give {example}, or an object of your own with "
            f"{', '.join(methods)}"
        )
    try:
        hash(value)
    except TypeError as error:
        if type(value).__hash__ is not None and not jax.tree_util.all_leaves([value]):
            return  # one that is registered may hold arrays, one number per run
        raise TypeError(
            f"{name}={value!r} must be hashable ({error}): make its class a dataclass(frozen=True) whose fields are "
            "numbers, names and tuples of them"
        ) from error
