"""Gymnasium's spaces as what an agent works with: observations as a float32 vector, actions drawn from a distribution.

``Box`` and ``MultiBinary`` are flattened, ``Discrete`` and ``MultiDiscrete`` are one-hot, ``Dict`` and ``Tuple`` are
their parts one after another. Boxes of whole numbers (pictures) are scaled from their bounds to [0, 1]; others are left
as they are. Anything else is refused, with the wrapper that helps.

>>> vector = observations(gym.spaces.Dict(seen=gym.spaces.Discrete(3), at=gym.spaces.Box(-1, 1, (2,))))
>>> out = np.zeros(vector.size, np.float32)
>>> vector.write({"seen": 1, "at": np.array([0.5, -0.5], np.float32)}, out)
>>> out.tolist()
[0.0, 1.0, 0.0, 0.5, -0.5]
"""

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from recollect.agents.distributions import Categorical, Distribution, Gaussian, MultiCategorical
from recollect.errors import RecollectError

WRITER = Callable[[Any, np.ndarray], None]


class SpaceError(RecollectError):
    """An observation or action space that no agent here can work with."""


class NotInSpaceError(ValueError):
    """An observation that is not what its space declares."""


class Observations(NamedTuple):
    """An observation space as a vector.

    Attributes:
        size: length of the vector.
        write: put an observation into such a float32 vector; ``NotInSpaceError`` if the space does not hold it.
        shape: of a picture (height, width, channels), else None.
    """

    size: int
    write: WRITER
    shape: tuple[int, int, int] | None


class Actions(NamedTuple):
    """An action space as a distribution.

    Attributes:
        outputs: how many outputs the policy network has.
        distribution: how an action is drawn from them.
        decode: what the environment takes, from what was drawn.
    """

    outputs: int
    distribution: Distribution
    decode: Callable[[np.ndarray], Any]


def observations(space: gym.Space) -> Observations:
    """The vector form of an observation space."""
    size, write = _vector(space, "observation space")
    shape = space.shape if isinstance(space, gym.spaces.Box) and len(space.shape) == 3 else None
    return Observations(size, write, shape)  # type: ignore[arg-type]


def _vector(space: gym.Space, place: str) -> tuple[int, WRITER]:
    if isinstance(space, gym.spaces.Box):
        return _box(space)
    if isinstance(space, gym.spaces.Discrete):
        return int(space.n), _one_hot(int(space.start), int(space.n))
    if isinstance(space, gym.spaces.MultiDiscrete):
        return _one_hots(space)
    if isinstance(space, gym.spaces.MultiBinary):
        return _bits(space)
    if isinstance(space, gym.spaces.Dict):
        parts = [(name, *_vector(part, f"{place}, {name!r}")) for name, part in space.spaces.items()]
        return _joined(parts, dict)
    if isinstance(space, gym.spaces.Tuple):
        parts = [(k, *_vector(part, f"{place}, part {k}")) for k, part in enumerate(space.spaces)]
        return _joined(parts, tuple)
    raise SpaceError(
        f"{place}: {type(space).__name__} observations are not supported ({space}); "
        "gymnasium.wrappers.FilterObservation leaves parts of a Dict out, TransformObservation makes a Box of the rest"
    )


def _box(space: gym.spaces.Box) -> tuple[int, WRITER]:
    size, shape = int(np.prod(space.shape)), space.shape
    low, high = space.low.ravel(), space.high.ravel()
    if np.issubdtype(space.dtype, np.floating):
        # Finite bounds throughout, so that one comparison finds what is infinite or NaN as well, also as a float32.
        largest = min(np.finfo(np.dtype(str(space.dtype))).max, np.finfo(np.float32).max)
        low, high = np.maximum(low, -largest), np.minimum(high, largest)

        def write(observation: Any, out: np.ndarray) -> None:
            flat = _of_shape(observation, shape)
            if not ((flat >= low) & (flat <= high)).all():
                _refuse(flat, low, high)
            out[:] = flat

        return size, write
    if np.issubdtype(space.dtype, np.bool_):
        low, high = low.astype(np.int8), high.astype(np.int8)
    span = np.maximum(high.astype(np.float64) - low, 1.0)

    def write_scaled(observation: Any, out: np.ndarray) -> None:
        flat = _of_shape(observation, shape)
        if not ((flat >= low) & (flat <= high)).all():
            _refuse(flat, low, high)
        out[:] = (flat - low.astype(np.float64)) / span

    return size, write_scaled


def _of_shape(observation: Any, shape: tuple[int, ...]) -> np.ndarray:
    array = np.asarray(observation)
    if array.shape != shape:
        raise NotInSpaceError(f"its shape is {array.shape}, declared is {shape}")
    return array.reshape(-1)


def _refuse(flat: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
    at = int(np.argmin((flat >= low) & (flat <= high)))
    value = flat[at].item()
    if not np.isfinite(value):
        raise NotInSpaceError(f"element {at} is {value}, not finite")
    raise NotInSpaceError(f"element {at} is {value}, outside the declared [{low[at]}, {high[at]}]")


def _whole(value: Any, start: int, n: int) -> int:
    try:
        index = operator.index(value.item() if isinstance(value, np.ndarray) else value) - start
    except (TypeError, ValueError) as error:
        raise NotInSpaceError(f"{value!r} is not a whole number") from error
    if not 0 <= index < n:
        raise NotInSpaceError(f"{value} is outside the declared {start} to {start + n - 1}")
    return index


def _one_hot(start: int, n: int) -> WRITER:
    def write(observation: Any, out: np.ndarray) -> None:
        index = _whole(observation, start, n)
        out[:] = 0.0
        out[index] = 1.0

    return write


def _one_hots(space: gym.spaces.MultiDiscrete) -> tuple[int, WRITER]:
    sizes, starts, shape = space.nvec.ravel(), space.start.ravel(), space.nvec.shape
    offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]])

    def write(observation: Any, out: np.ndarray) -> None:
        index = _of_shape(observation, shape) - starts
        if index.dtype.kind not in "iu" or not ((index >= 0) & (index < sizes)).all():
            raise NotInSpaceError(f"{observation} is outside the declared {space}")
        out[:] = 0.0
        out[offsets + index] = 1.0

    return int(sizes.sum()), write


def _bits(space: gym.spaces.MultiBinary) -> tuple[int, WRITER]:
    shape = space.shape

    def write(observation: Any, out: np.ndarray) -> None:
        flat = _of_shape(observation, shape)
        if not ((flat == 0) | (flat == 1)).all():
            raise NotInSpaceError(f"{observation} holds something other than 0 and 1")
        out[:] = flat

    return int(np.prod(shape)), write


def _joined(parts: list[tuple[Any, int, WRITER]], kind: type) -> tuple[int, WRITER]:
    places, end = [], 0
    for key, size, write_part in parts:
        places.append((key, slice(end, end + size), write_part))
        end += size

    def write(observation: Any, out: np.ndarray) -> None:
        if not isinstance(observation, kind) or len(observation) != len(places):
            raise NotInSpaceError(
                f"a {kind.__name__} of {len(places)} parts is declared, got {type(observation).__name__}"
            )
        for key, place, write_part in places:
            try:
                write_part(observation[key], out[place])
            except NotInSpaceError as error:
                raise NotInSpaceError(f"part {key!r}: {error}") from error
            except KeyError as error:
                raise NotInSpaceError(f"part {key!r} is missing") from error

    return end, write


def actions(space: gym.Space) -> Actions:
    """The distribution over an action space."""
    if isinstance(space, gym.spaces.Discrete):
        start = int(space.start)
        return Actions(int(space.n), Categorical(), lambda drawn: int(drawn) + start)
    if isinstance(space, gym.spaces.MultiDiscrete):
        starts, shape, dtype = space.start.ravel(), space.nvec.shape, space.dtype
        distribution = MultiCategorical(tuple(int(n) for n in space.nvec.ravel()))
        decode = lambda drawn: (drawn + starts).reshape(shape).astype(dtype)  # noqa: E731
        return Actions(distribution.outputs, distribution, decode)
    if isinstance(space, gym.spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return _continuous(space)
    raise SpaceError(
        f"action space: {type(space).__name__} actions are not supported ({space}); "
        "gymnasium.wrappers.TransformAction maps Discrete, MultiDiscrete or a Box of floats onto them"
    )


def _continuous(space: gym.spaces.Box) -> Actions:
    """Where both bounds are finite, they are ±1 in the policy's own units; elsewhere its units are the action's."""
    bounded = np.isfinite(space.low) & np.isfinite(space.high)
    centre = np.where(bounded, (np.where(bounded, space.low, 0.0) + np.where(bounded, space.high, 0.0)) / 2, 0.0)
    half = np.where(bounded, np.where(bounded, space.high, 1.0) - centre, 1.0)
    distribution = Gaussian(int(np.prod(space.shape)))

    def decode(drawn: np.ndarray) -> np.ndarray:
        scaled = centre + half * np.asarray(drawn, np.float64).reshape(space.shape)
        return np.clip(scaled, space.low, space.high).astype(space.dtype)

    return Actions(distribution.outputs, distribution, decode)
