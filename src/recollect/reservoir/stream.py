"""``Reservoir``: an exact weighted sample of a stream of anything."""

import copy
import itertools
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from recollect.reservoir import estimates, file, merging, passes, ratios, tables
from recollect.reservoir.estimates import Estimate
from recollect.reservoir.passes import HELD, IS_LOG, RANGE, SEEN, SHIFT
from recollect.reservoir.random import seeded

_LN2 = math.log(2.0)
_LARGEST_LOG = 1e9  # beyond it float64 could no longer tell weights apart that differ by a factor of a few
_PENDING = 256  # items that ``add`` gathers before they pass through the compiled code together
_CHUNK = 65_536  # items of an iterable that are passed through together


def _first_shift(values: np.ndarray, is_log: bool) -> int:
    """The binary order of magnitude of the first positive weight; 0 if it is near 1 anyway."""
    positive = (float(v) for v in values if v > (-math.inf if is_log else 0.0))
    first = next(positive, 0.0 if is_log else 1.0)
    if not math.isfinite(first):
        return 0
    exponent = round(first / _LN2) if is_log else math.frexp(first)[1]
    return exponent if abs(exponent) > RANGE // 2 else 0


def _number(value: Any) -> float:
    """A weight as a float; what is not one number is refused."""
    if isinstance(value, (str, bytes, complex)) or getattr(value, "ndim", 0):
        raise TypeError(f"a weight must be a number, got {type(value).__name__}")
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _own(item: Any) -> Any:
    """The item, or a copy of it where the caller may write into its memory later."""
    return item.copy() if isinstance(item, (np.ndarray, np.void)) else item


def _to_read(values: np.ndarray) -> np.ndarray:
    """A view that cannot be written to, as a table's columns cannot: the passes are compiled for one kind of array."""
    seen = values.view()
    seen.flags.writeable = False
    return seen


class Reservoir:
    """Keep ``capacity`` items of a stream, each subset of that size with probability ∝ the product of its weights.

    Until more than ``capacity`` items have come, all are kept. An item of weight 0 is seen and never kept: with fewer
    than ``capacity`` items of positive weight, the reservoir holds just those.

    >>> r = Reservoir(2, seed=0)
    >>> r.extend(["a", "b", "c", "d"], [1, 2, 4, 8])
    >>> len(r), r.seen
    (2, 4)
    >>> r.items, r.weights.tolist(), r.inclusion_probabilities().round(3).tolist()
    (['a', 'd'], [1.0, 8.0], [0.2, 0.8])

    Args:
        capacity: how many items to keep, n.
        seed: an integer (or anything ``numpy.random.SeedSequence`` takes). The same seed, items and weights give the
            same sample. Reservoirs that are to be merged need different seeds. None: from the operating system.

    A reservoir belongs to one thread. It takes 8 capacity² bytes.
    """

    def __init__(self, capacity: int, seed: Any = None):
        if isinstance(capacity, bool) or not isinstance(capacity, (int, np.integer)):
            raise TypeError(f"capacity must be an integer, got {type(capacity).__name__}")
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}")
        need, have = 8 * int(capacity) * (int(capacity) + 1), os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if need > have:
            raise ValueError(f"capacity={capacity} needs {need:,} bytes (8 capacity²), this machine has {have:,}")
        rng = seeded(seed)
        # What its randomness, or that of those merged into it, began as: tells whether two samples are independent.
        self._origins = frozenset([tuple(int(word) for word in rng)])
        self._state = passes.empty(int(capacity), rng)
        self._items: list[Any] = [None] * int(capacity)
        self._given = np.zeros((2, int(capacity)))  # by slot: weight and log-weight
        self._pending: tuple[list[Any], list[float]] = ([], [])
        self._pending_is_log = False

    # -- putting items in

    def add(self, item: Any, weight: float | None = None, *, log_weight: float | None = None) -> None:
        """Show one item with its weight, or with the logarithm of its weight."""
        is_log = weight is None
        if is_log == (log_weight is None):
            raise TypeError("give exactly one of weight and log_weight")
        value = log_weight if is_log else weight
        if type(value) is not float:
            value = _number(value)
        if not (-_LARGEST_LOG <= value <= _LARGEST_LOG or value == -math.inf if is_log else 0.0 <= value < math.inf):
            raise ValueError(f"item {self.seen} of the stream: {_complaint(value, is_log)}")
        if is_log != self._pending_is_log:
            self._settle()
            self._pending_is_log = is_log
        items, values = self._pending
        items.append(_own(item))
        values.append(value)
        if len(items) >= _PENDING:
            self._settle()

    def extend(
        self,
        items: Any,
        weights: ArrayLike | Iterable[float] | None = None,
        *,
        log_weights: Any = None,
        weight: str | None = None,
    ) -> None:
        """Show many items with their weights (or log-weights): the fast path.

        With ``weight``, ``items`` is a table (of pyarrow, pandas, Polars, a lazy frame of Polars, or anything with
        Arrow's C stream interface), each row an item, kept as a dictionary, and ``weight`` names the column of weights.

        Arrays, lists, ranges and tuples are used as they are; other iterables are taken in chunks. If anything is
        wrong with any of them, the error names the position and the reservoir stays exactly as it was.
        """
        if weight is not None:
            self._extend_frame(items, weight, weights is None and log_weights is None)
            return
        is_log = weights is None
        if is_log == (log_weights is None):
            raise TypeError("give exactly one of weights and log_weights, or of a table the column with weight=")
        given: Any = log_weights if is_log else weights
        items, given = (np.asarray(x) if _is_foreign_array(x) else x for x in (items, given))
        self._settle()
        saved = None
        try:
            for chunk, values, large in self._chunks(items, given):
                values = _floats(values)
                if values.shape != (len(chunk),):
                    raise ValueError(
                        f"one weight per item is needed: {len(chunk)} items, weights of shape {values.shape}"
                    )
                if saved is None and large:
                    saved = self._state.copy(), list(self._items), self._given.copy()
                if saved is None:
                    self._check(values, is_log)
                self._feed(chunk, values, is_log)
        except BaseException:
            if saved is not None:
                self._state, self._items, self._given = saved
            raise

    def _extend_frame(self, frame: Any, weight: str, alone: bool) -> None:
        """Show the rows of a table, batch by batch; if one is wrong, none of them."""
        if not alone:
            raise TypeError("weight= names a column of a table: give neither weights nor log_weights beside it")
        if not tables.is_frame(frame):
            raise TypeError(
                f"weight= names a column of a table, and {type(frame).__name__} is none: tables of pyarrow, pandas and "
                "Polars are, and what has __arrow_c_stream__"
            )
        self._settle()
        saved = self._state.copy(), list(self._items), self._given.copy()
        try:
            for batch in tables.frame_batches(frame):
                if weight not in batch.schema.names:
                    raise KeyError(f"no column {weight!r}; there are {', '.join(batch.schema.names)}")
                values = tables.weights_of(batch, tables.Select(weight))
                if len(values):
                    self._check(values, False)
                    self._feed(tables.Rows(batch), values, False)
        except BaseException:
            self._state, self._items, self._given = saved
            raise

    def _chunks(self, items: Any, given: Any) -> Iterator[tuple[Any, Any, bool]]:
        """Pieces of the input, and whether to make a copy to fall back on rather than check each piece beforehand."""
        if _indexable(items) and _indexable(given):
            if len(items) != len(given):
                raise ValueError(f"as many weights as items are needed: {len(items)} items, {len(given)} weights")
            if len(items):
                plain = type(items) in (list, tuple, range, np.ndarray)  # others may fail when an item is fetched
                yield items, given, not plain or len(items) > max(_CHUNK, self.capacity**2)
            return
        for name, x in (("items", items), ("weights", given)):
            if np.ndim(x) == 0 and not isinstance(x, Iterable):
                raise TypeError(f"{name} must be a sequence or another iterable, got {type(x).__name__}")
        items, given = iter(items), iter(given)
        while True:
            chunk, values = list(itertools.islice(items, _CHUNK)), list(itertools.islice(given, _CHUNK))
            if not chunk and not values:
                return
            yield chunk, values, len(chunk) == _CHUNK

    def _check(self, values: np.ndarray, is_log: bool) -> None:
        low, high = (-_LARGEST_LOG, _LARGEST_LOG) if is_log else (0.0, np.finfo(np.float64).max)
        good = (values >= low) & (values <= high) | (values == -np.inf if is_log else False)
        if not good.all():
            at = int(np.argmin(good))
            raise ValueError(f"item {self.seen + at} of the stream: {_complaint(values[at], is_log)}")

    def _settle(self) -> None:
        """Let what ``add`` gathered pass through."""
        items, values = self._pending
        if items:
            self._feed(items, np.array(values, np.float64), self._pending_is_log)
            self._pending = ([], [])

    def _feed(self, items: Any, values: np.ndarray, is_log: bool) -> None:
        """Pass weights through. A bad one among them is an error that leaves those before it passed through."""
        state = self._state
        first = int(state.counts[SEEN])
        fed = 0
        if not state.counts[IS_LOG]:
            if not state.counts[HELD]:
                state.counts[SHIFT] = _first_shift(values, is_log)
            shift = int(state.counts[SHIFT])
            if is_log:
                # 2^(2 RANGE), which the pass stops at, stands for every weight that is too large or too small.
                relative = values - shift * _LN2
                relative = np.where(np.abs(relative) > RANGE * _LN2, 2 * RANGE * _LN2, relative)
                weights = np.where(values == -np.inf, 0.0, np.exp(relative))
            else:
                weights = values
                if shift:
                    with np.errstate(over="ignore", under="ignore"):
                        weights = np.ldexp(values, -shift)
                    # A weight that left the type must not pass for 0: the pass stops at the least one and at inf.
                    weights = np.where((weights == 0.0) & (values > 0.0), 5e-324, weights)
            fed = passes.pass_linear(_to_read(weights), *state)
        if fed < len(values):
            self._check(values[fed:], is_log)
            if not state.counts[IS_LOG]:
                passes.to_logs(state)
            with np.errstate(divide="ignore"):
                log_weights = values[fed:] if is_log else np.log(values[fed:])
            arrays = state.g, state.rows, state.weights, state.index, state.order, state.counts, state.rng
            passes.pass_log(_to_read(log_weights), *arrays)
        for slot in np.flatnonzero(state.index[: state.counts[HELD]] >= first):
            at = int(state.index[slot]) - first
            self._items[slot] = _own(items[at])
            value = float(values[at])
            if is_log:
                with np.errstate(over="ignore"):
                    self._given[:, slot] = np.exp(value), value
            else:
                self._given[:, slot] = value, math.log(value)

    # -- looking at it

    @property
    def capacity(self) -> int:
        """How many items are kept at most."""
        return len(self._items)

    @property
    def seen(self) -> int:
        """How many items were shown."""
        return int(self._state.counts[SEEN]) + len(self._pending[0])

    def __len__(self) -> int:
        self._settle()
        return int(self._state.counts[HELD])

    def _slots(self) -> np.ndarray:
        """The slots of the kept items, in order of arrival."""
        return self._state.order[self.capacity - len(self) :]

    @property
    def items(self) -> list[Any]:
        """The kept items, in order of arrival."""
        return [self._items[slot] for slot in self._slots()]

    @property
    def weights(self) -> np.ndarray:
        """The weights of ``items``, as they were given (inf where a given log-weight is beyond floating point)."""
        return self._given[0, self._slots()]

    @property
    def log_weights(self) -> np.ndarray:
        """The logarithms of ``weights``."""
        return self._given[1, self._slots()]

    @property
    def indices(self) -> np.ndarray:
        """Where in the stream ``items`` stood, counted from 0."""
        return self._state.index[self._slots()]

    def __repr__(self) -> str:
        return f"<Reservoir: {len(self)} of {self.seen} items kept, capacity {self.capacity}>"

    def log_ratios(self) -> np.ndarray:
        """log(e_k / e_{k−1}) of all weights seen, k = 1 … capacity; −inf beyond the number of items seen."""
        return self._log_ratios()[1 : self.capacity + 1]

    def _log_ratios(self) -> np.ndarray:
        """All log-ratios that are kept, with everything shown so far in them; the state stays as it is."""
        self._settle()
        g = self._state.g.copy()
        if self._state.counts[IS_LOG]:
            return g
        passes.flush(g, self._state.block.copy())
        with np.errstate(divide="ignore"):
            return np.log(g) + float(self._state.counts[SHIFT]) * _LN2

    def inclusion_probabilities(self) -> np.ndarray:
        """For each of ``items``, the probability, over all randomness, that a stream like this one keeps it."""
        lg, n = self._log_ratios(), self.capacity
        return ratios.inclusion(lg, self.log_weights, n, ratios.margin(n))

    def joint_inclusion_probabilities(self) -> np.ndarray:
        """For each pair of ``items``, the probability that both are kept."""
        lg, n = self._log_ratios(), self.capacity
        return ratios.joint_inclusion(lg, self.log_weights, n, ratios.margin(n))

    def estimate_total(self, values: ArrayLike) -> Estimate:
        """Estimate the sum of a quantity over the whole stream from its values at ``items``.

        Horvitz and Thompson's estimate Σ y/π, unbiased for streams without weight-0 items, with Sen, Yates and
        Grundy's estimate of its variance (Deville's for more than 512 items): 0 while everything is kept, NaN when
        one item was kept of several.
        ``interval()`` of the result gives a 95% interval for the sum. Two standard errors either way are one only where
        values roughly follow weights; where a few items make up most of the total they cover the truth less often.

        >>> r = Reservoir(8, seed=1)
        >>> r.extend(range(1000), np.full(1000, 0.5))
        >>> round(r.estimate_total(np.ones(8)).total, 6)  # how many items were there?
        1000.0
        """
        y = estimates.checked(np.asarray(values), len(self))
        if len(self) > estimates.PAIRS:
            return estimates.total(y, self.inclusion_probabilities())
        pairs = self.joint_inclusion_probabilities()
        return estimates.total(y, np.diagonal(pairs), pairs)

    # -- joining and keeping

    def merge(self, other: "Reservoir", *, seed: Any = None) -> "Reservoir":
        """A sample of both streams together, as if ``other``'s had followed this one's; both stay as they are.

        The result is exact and streams on. ``seed`` settles its randomness; by default that follows from the two.
        """
        if not isinstance(other, Reservoir):
            raise TypeError(f"can merge with another Reservoir only, got {type(other).__name__}")
        if other.capacity != self.capacity:
            raise ValueError(f"capacities differ: {self.capacity} and {other.capacity}; both samples must be as large")
        if self._origins & other._origins:
            raise ValueError(
                "the two reservoirs share their seed, or one was merged from the other, so their samples are not "
                "independent; give each its own seed, such as seed=[0, shard], and merge each once"
            )
        self._settle()
        other._settle()
        file.refuse_without_memory("merging", self.capacity)
        if seed is None:
            seed = [int(word) for word in np.concatenate([self._state.rng, other._state.rng])]
        merged = Reservoir(self.capacity, seed)
        merged._origins = self._origins | other._origins
        merged._state, origin = merging.merge(self._state, other._state, merged._state.rng)
        for slot, (side, s) in enumerate(origin):
            source = (self, other)[side]
            merged._items[slot] = source._items[s]
            merged._given[:, slot] = source._given[:, s]
        return merged

    @staticmethod
    def merge_all(reservoirs: Sequence["Reservoir"], *, seed: Any = None) -> "Reservoir":
        """Merge several, in the order given; one alone comes back as a copy."""
        reservoirs = list(reservoirs)
        if not reservoirs:
            raise ValueError("merge_all needs at least one reservoir")
        if not isinstance(reservoirs[0], Reservoir):
            raise TypeError(f"can merge reservoirs only, got {type(reservoirs[0]).__name__}")
        merged = copy.copy(reservoirs[0])
        for k, other in enumerate(reservoirs[1:]):
            merged = merged.merge(other, seed=None if seed is None else [seed, k])
        return merged

    def __copy__(self) -> "Reservoir":
        self._settle()
        twin = Reservoir(self.capacity, 0)
        twin._origins = self._origins
        twin._state = self._state.copy()
        twin._items = list(self._items)
        twin._given = self._given.copy()
        return twin

    def save(self, path: Any) -> None:
        """Write everything to ``path``, in one step: a reader finds the old file or the new one, never half of one.

        Items may be None, booleans, numbers, strings, bytes, NumPy arrays and scalars, and tuples, lists and
        string-keyed dictionaries of these.
        """
        self._settle()
        held = int(self._state.counts[HELD])
        file.write(path, self._state, self._origins, self._given, self._items[:held])

    @classmethod
    def load(cls, path: Any) -> "Reservoir":
        """Read what ``save`` wrote; the reservoir continues bit for bit. ``FileError`` if the file is not intact."""
        state, origins, given, items = file.read(path)
        r = cls(len(state.order), 0)
        r._origins, r._state, r._given = origins, state, given
        r._items[: len(items)] = items
        return r


def _indexable(x: Any) -> bool:
    return isinstance(x, np.ndarray) or (isinstance(x, Sequence) and not isinstance(x, (str, bytes)))


def _is_foreign_array(x: Any) -> bool:
    """Arrays of other libraries and table columns, whose own indexing may go by label or by device."""
    return hasattr(x, "__array__") and not isinstance(x, np.ndarray)


def _floats(values: Any) -> np.ndarray:
    """Weights as float64; text, dates, complex and masked entries are refused rather than converted."""
    array = np.asarray(values)
    if isinstance(values, np.ma.MaskedArray) or array.dtype.kind not in "biufO":
        raise TypeError(f"weights must be numbers, got {type(values).__name__} of {array.dtype}")
    if array.dtype.kind == "O":
        array = np.array([_number(v) for v in array.ravel()]).reshape(array.shape)
    return np.ascontiguousarray(array, dtype=np.float64)


def _complaint(value: float, is_log: bool) -> str:
    if is_log:
        return f"log_weight is {value}; numbers within ±1e9, or -inf for weight 0, are allowed"
    return f"weight is {value}; 0 and finite positive numbers are allowed"
