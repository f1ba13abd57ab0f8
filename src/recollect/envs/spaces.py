"""Gymnasium's spaces as what an agent works with: observations as a float32 vector, actions drawn from a distribution.

``Box`` and ``MultiBinary`` are flattened, ``Discrete`` and ``MultiDiscrete`` are one-hot, ``Dict`` and ``Tuple`` are
their parts one after another. Boxes of whole numbers with at most 65,536 values (pictures) are scaled from their bounds
to [0, 1]; others are left as they are. Anything else is refused, with the wrapper that helps.

>>> vector = observations(gym.spaces.Dict(seen=gym.spaces.Discrete(3), at=gym.spaces.Box(-1, 1, (2,))))
>>> out = np.zeros(vector.size, np.float32)
>>> vector.write({"seen": 1, "at": np.array([0.5, -0.5], np.float32)}, out)
>>> out.tolist()
[0.0, 1.0, 0.0, 0.5, -0.5]
"""

import hashlib
import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from recollect.agents.distributions import Categorical, Distribution, Gaussian, MultiCategorical
from recollect.errors import RecollectError

WIDEST_SCALED = 2**16 - 1
"""The widest range of whole numbers that is scaled to [0, 1]: in a wider one, numbers that differ by a few would be the
same as float32."""

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
    if size == 0:
        raise SpaceError(f"observation space: {space} holds no numbers: there is nothing to learn from")
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
        return _joined(parts, Mapping, "dict")
    if isinstance(space, gym.spaces.Tuple):
        parts = [(k, *_vector(part, f"{place}, part {k}")) for k, part in enumerate(space.spaces)]
        return _joined(parts, (tuple, list), "tuple")
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
        low, high, scale = np.maximum(low, -largest), np.minimum(high, largest), None
    else:
        if np.issubdtype(space.dtype, np.bool_):
            low, high = low.astype(np.int8), high.astype(np.int8)
        scale = scaling(low, high)

    def write(observation: Any, out: np.ndarray) -> None:
        flat = _of_shape(observation, shape)
        if not ((flat >= low) & (flat <= high)).all():
            _refuse(flat, low, high)
        out[:] = flat if scale is None else (flat - scale[0]) / scale[1]

    return size, write


def scaling(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What is taken away from whole numbers between bounds, and what they are divided by then: 0 and 1 if too wide."""
    low, high = low.astype(np.float64), high.astype(np.float64)
    span = np.maximum(high - low, 1.0)
    wide = span > WIDEST_SCALED
    return np.where(wide, 0.0, low), np.where(wide, 1.0, span)


def _of_shape(observation: Any, shape: tuple[int, ...]) -> np.ndarray:
    try:
        array = np.asarray(observation)
    except Exception as error:
        raise NotInSpaceError(f"it is no array: {type(error).__name__}: {error}") from error
    if array.dtype.kind not in "fiub":
        raise NotInSpaceError(f"it holds {array.dtype}, not real numbers: {observation!r:.100}")
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
    sizes, starts, shape = space.nvec.ravel().astype(np.int64), space.start.ravel().astype(np.int64), space.nvec.shape
    offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]])

    def write(observation: Any, out: np.ndarray) -> None:
        flat = _of_shape(observation, shape)
        index = flat.astype(np.int64) - starts  # whatever the dtype: unsigned ones would wrap below the start
        if flat.dtype.kind not in "iu" or not ((index >= 0) & (index < sizes)).all():
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


def _joined(parts: list[tuple[Any, int, WRITER]], kind: Any, name: str) -> tuple[int, WRITER]:
    places, end = [], 0
    for key, size, write_part in parts:
        places.append((key, slice(end, end + size), write_part))
        end += size

    def write(observation: Any, out: np.ndarray) -> None:
        if not isinstance(observation, kind) or len(observation) != len(places):
            raise NotInSpaceError(f"a {name} of {len(places)} parts is declared, got {type(observation).__name__}")
        for key, place, write_part in places:
            try:
                write_part(observation[key], out[place])
            except NotInSpaceError as error:
                raise NotInSpaceError(f"part {key!r}: {error}") from error
            except LookupError as error:
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
    if distribution.size == 0:
        raise SpaceError(f"action space: {space} holds no numbers: there is nothing to choose")

    def decode(drawn: np.ndarray) -> np.ndarray:
        scaled = centre + half * np.asarray(drawn, np.float64).reshape(space.shape)
        return np.clip(scaled, space.low, space.high).astype(space.dtype)

    return Actions(distribution.outputs, distribution, decode)


_PRINTED = {"precision": 8, "threshold": 1000, "edgeitems": 3, "linewidth": 75, "suppress": False, "sign": "-"}
_PRINTED |= {"floatmode": "maxprec", "formatter": None, "nanstr": "nan", "infstr": "inf", "legacy": False}


def describe(space: gym.Space) -> str:
    """A space in words that are the same for equal spaces, whatever ``np.set_printoptions`` says.

    >>> describe(gym.spaces.Dict(at=gym.spaces.Box(-1, 1, (2,)), seen=gym.spaces.Discrete(3)))
    'Dict(at: Box(-1.0, 1.0, (2,), float32), seen: Discrete(3, start=0))'
    """
    if isinstance(space, gym.spaces.Box):
        return f"Box({_numbers(space.low)}, {_numbers(space.high)}, {space.shape}, {space.dtype})"
    if isinstance(space, gym.spaces.Discrete):
        return f"Discrete({int(space.n)}, start={int(space.start)})"
    if isinstance(space, gym.spaces.MultiDiscrete):
        return f"MultiDiscrete({_numbers(space.nvec)}, start={_numbers(space.start)}, {space.shape}, {space.dtype})"
    if isinstance(space, gym.spaces.MultiBinary):
        return f"MultiBinary({space.shape})"
    if isinstance(space, gym.spaces.Dict):
        return f"Dict({', '.join(f'{name}: {describe(part)}' for name, part in space.spaces.items())})"
    if isinstance(space, gym.spaces.Tuple):
        return f"Tuple({', '.join(describe(part) for part in space.spaces)})"
    return _as_printed(space)


def _numbers(array: np.ndarray) -> str:
    """One number for all where they are the same, all of a few, or else a sum of them."""
    flat = array.ravel()
    if flat.size and (flat == flat[0]).all():
        return repr(flat[0].item())
    if flat.size <= 64:
        return repr(flat.tolist())
    content = np.ascontiguousarray(flat, flat.dtype.newbyteorder("<")).tobytes()
    return f"sha256:{hashlib.sha256(content).hexdigest()[:16]}"


def _as_printed(space: gym.Space) -> str:
    with np.printoptions(**_PRINTED):
        return repr(space)


def is_described_by(space: gym.Space, text: str) -> bool:
    """Whether a space is the one that ``describe`` gave the words for, or that an earlier release printed."""
    return text in (describe(space), _as_printed(space))
