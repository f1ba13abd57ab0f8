"""What an environment returned, checked in one place: by training, by replaying, by evaluating and by looking inside.

Anything else than Gymnasium's rules allow stops before an agent sees it, as an ``EnvironmentFault`` that names
environment, seed and step. Observations are checked against their space where they are written into a vector, in
``recollect.envs.spaces``.
"""

import numbers
from collections.abc import Callable
from typing import Any

import numpy as np

from recollect.errors import RecollectError, printable

LARGEST = float(np.finfo(np.float32).max)  # of a reward: agents learn in float32


class EnvironmentFault(RecollectError):  # noqa: N818
    """An environment did what none should: which, with which seed, at which step, and where the state is saved."""

    def __init__(self, environment: str, seed: int, step: int, what: str, saved: str = ""):
        self.environment, self.seed, self.step, self.what, self.saved = environment, seed, step, what, saved
        tail = f"; the state before it is saved in {saved}" if saved else ""
        super().__init__(f"{environment}, seed {seed}, step {step:,}: {what}{tail}")

    def __reduce__(self) -> tuple[Any, ...]:
        return EnvironmentFault, (self.environment, self.seed, self.step, self.what, self.saved)


Fault = Callable[[str], EnvironmentFault]
"""Makes the error for what is wrong, with environment, seed and step."""


def reset(function: Callable[..., Any], fault: Fault, **options: Any) -> Any:
    """The first observation of an episode; ``function``: the environment's ``reset``."""
    call = f"reset({', '.join(f'{name}={value!r:.100}' for name, value in options.items())})"
    try:
        found = function(**options)
    except Exception as error:
        raise fault(f"{call} raised {type(error).__name__}: {error}") from error
    try:
        observation, _ = found
    except (TypeError, ValueError) as error:
        raise fault(f"{call} returned {_short(found)}, not an observation and a dict of information") from error
    return observation


def step(function: Callable[[Any], Any], action: Any, fault: Fault) -> tuple[Any, float, bool, bool]:
    """Observation, reward, terminated and truncated after an action; ``function``: the environment's ``step``."""
    try:
        found = function(action)
    except Exception as error:
        raise fault(f"step({action!r}) raised {type(error).__name__}: {error}") from error
    try:
        observation, reward, terminated, truncated, _ = found
    except (TypeError, ValueError) as error:
        raise fault(
            f"step({action!r}) returned {_short(found)}, not observation, reward, terminated, truncated and information"
        ) from error
    return (
        observation,
        number(reward, fault),
        flag("terminated", terminated, fault),
        flag("truncated", truncated, fault),
    )


def number(reward: Any, fault: Fault) -> float:
    """A reward as a float that a float32 can hold."""
    if type(reward) is not float:
        reward = _real(reward, fault)
    if not -LARGEST <= reward <= LARGEST:
        raise fault(f"the reward is {reward}")
    return reward


def _real(reward: Any, fault: Fault) -> float:
    if not isinstance(reward, numbers.Real):
        try:
            array = np.asarray(reward)
        except Exception as error:
            raise fault(f"the reward is no number: {_short(reward)}") from error
        if array.dtype.kind not in "fiub" or array.size != 1:
            raise fault(f"the reward is no number: {_short(reward)}")
        reward = array.item()
    try:
        return float(reward)
    except (OverflowError, ValueError, TypeError) as error:
        raise fault(f"the reward is {_short(reward)}, more than a float32 can hold") from error


def flag(name: str, value: Any, fault: Fault) -> bool:
    """``terminated`` or ``truncated`` as a truth value."""
    if value is True or value is False:
        return value
    try:
        array = np.asarray(value)
    except Exception as error:
        raise fault(f"{name} is {_short(value)}, not true or false") from error
    if array.size != 1 or array.dtype.kind not in "biu" or array.item() not in (0, 1):
        raise fault(f"{name} is {_short(value)}, not true or false")
    return bool(array.item())


def _short(value: Any) -> str:
    try:
        return printable(repr(value), 100)
    except ValueError:  # an int of more digits than Python writes out
        return f"a {type(value).__name__} of {value.bit_length():,} bits"
