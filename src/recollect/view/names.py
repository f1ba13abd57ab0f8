"""What the elements of an observation and the actions are called.

An environment tells by itself with ``observation_names`` and ``action_names`` (sequences of text); else the names are
those of its spaces.

>>> of_observations(gym.spaces.Dict(seen=gym.spaces.Discrete(2), at=gym.spaces.Box(-1, 1, (2,))))
['seen = 0', 'seen = 1', 'at 0', 'at 1']
>>> of_actions(gym.spaces.Discrete(2, start=1))
['1', '2']
"""

import enum
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np


def of_observations(space: gym.Space, name: str = "") -> list[str]:
    """A name for each element of the vector that ``recollect.envs.spaces`` makes of an observation."""
    if isinstance(space, gym.spaces.Discrete):
        start = int(space.start)
        return [_joined(name, f"= {k}" if name else f"{k}") for k in range(start, start + int(space.n))]
    if isinstance(space, gym.spaces.MultiDiscrete):
        sizes, starts = space.nvec.ravel(), space.start.ravel()
        return [
            _joined(name, f"{k} = {value}")
            for k in range(len(sizes))
            for value in range(int(starts[k]), int(starts[k] + sizes[k]))
        ]
    if isinstance(space, gym.spaces.Dict):
        return [found for key, part in space.spaces.items() for found in of_observations(part, _joined(name, key))]
    if isinstance(space, gym.spaces.Tuple):
        return [found for k, part in enumerate(space.spaces) for found in of_observations(part, _joined(name, str(k)))]
    shape = space.shape or ()
    if not shape and name:
        return [name]
    return [_joined(name, ",".join(map(str, place))) for place in np.ndindex(*shape)]


def _joined(name: str, more: str) -> str:
    return f"{name} {more}" if name else str(more)


def of_actions(space: gym.Space) -> list[str]:
    """A name for each action of a discrete space, for each of every choice, or for each number of a continuous one."""
    if isinstance(space, gym.spaces.Discrete):
        return [str(k) for k in range(int(space.start), int(space.start + space.n))]
    return of_observations(space)


def told_by(env: Any, attribute: str, count: int) -> list[str] | None:
    """The names that the environment (or a wrapper of it) has under ``attribute``, if they are so many.

    Actions may also be an enumeration named ``actions``, as MiniGrid has them.
    """
    try:
        told = env.get_wrapper_attr(attribute)
    except AttributeError:
        told = getattr(env.unwrapped, "actions", None) if attribute == "action_names" else None
        if not (isinstance(told, type) and issubclass(told, enum.Enum)):
            return None
        told = [member.name for member in told]
    if not isinstance(told, Sequence) or isinstance(told, str) or len(told) != count:
        return None
    return [str(name) for name in told]
