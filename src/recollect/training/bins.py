"""Metrics by bin of episodes, put together from the records as they come."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from recollect.engines.loop import Record


def default_bins(episodes: int) -> int:
    """The largest number of equal parts up to 100."""
    return next(b for b in range(min(100, episodes), 0, -1) if episodes % b == 0)


class Completed(Sequence[dict[str, Any]]):
    """Bins that one call completed, by run and then by bin; an entry is made when somebody looks at it.

    Args:
        bins: what they are of.
        seeds: of the runs.
        runs: numbers of runs.
        which: of each of them a bin.
        first: called before the first entry is made.
    """

    def __init__(
        self,
        bins: "Bins",
        seeds: Sequence[int],
        runs: np.ndarray,
        which: np.ndarray,
        first: Callable[[], None] | None = None,
    ):
        order = np.lexsort((which, runs))
        self._bins, self._seeds, self._runs, self._which = bins, seeds, runs[order], which[order]
        self._first = first

    def __len__(self) -> int:
        return len(self._runs)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return [self[k] for k in range(*at.indices(len(self)))]
        if self._first is not None:
            self._first()
            self._first = None
        bins, run, b = self._bins, int(self._runs[at]), int(self._which[at])
        return {
            "seed": self._seeds[run],
            "episodes": (b + 1) * bins.bin_size,
            "return": float(bins.returns[run, b]),
            "length": float(bins.lengths[run, b]),
            "write_weights": bins.write_weights[run, b].tolist(),
            "query_vectors": bins.query_vectors[run, b].tolist(),
        }

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[k] for k in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


class Bins:
    """Metrics by bin, put together from the records as they come."""

    def __init__(self, runs: int, bins: int, bin_size: int, queries: tuple[int, ...]):
        self.bins, self.bin_size, self._queries = bins, bin_size, queries
        self.complete = np.zeros(runs, np.int64)
        self.returns = np.full((runs, bins), np.nan)
        self.lengths = np.full((runs, bins), np.nan)

    @functools.cached_property
    def write_weights(self) -> np.ndarray:
        """[run, bin, 2]; of many runs it is large, so that it is made when it is asked for."""
        return np.full((*self.returns.shape, 2), np.nan)

    @functools.cached_property
    def query_vectors(self) -> np.ndarray:
        """[run, bin, decisions, observation_size]; likewise."""
        return np.full((*self.returns.shape, *self._queries), np.nan)

    def arrays(self) -> dict[str, np.ndarray]:
        """What a checkpoint holds of this."""
        names = ("complete", "returns", "lengths", "write_weights", "query_vectors")
        return {name: getattr(self, name) for name in names}

    @staticmethod
    def like(runs: int, bins: int, queries: tuple[int, ...]) -> dict[str, np.ndarray]:
        """The form of `arrays`, without their memory."""
        shapes = {"returns": (), "lengths": (), "write_weights": (2,), "query_vectors": queries}
        found = {name: np.broadcast_to(np.nan, (runs, bins, *rest)) for name, rest in shapes.items()}
        return {"complete": np.broadcast_to(np.int64(0), (runs,)), **found}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Take over what a checkpoint held."""
        for name, array in arrays.items():
            setattr(self, name, array.copy())

    def extend(self, complete: np.ndarray, sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns and lengths of the bins up to ``complete`` that are new; gives their runs and numbers."""
        count = np.maximum(complete - self.complete, 0)
        runs = np.repeat(np.arange(len(count)), count)
        which = np.arange(len(runs)) - np.repeat(np.cumsum(count) - count, count) + self.complete[runs]
        self.returns[runs, which] = sums[runs, which, 0] / self.bin_size
        self.lengths[runs, which] = sums[runs, which, 1] / self.bin_size
        self.complete = np.maximum(self.complete, complete)
        return runs, which

    def add(self, seeds: Sequence[int], records: Record, sums: np.ndarray) -> Completed:
        """Take in what one call measured; returns the bins it completed."""
        runs, which = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for k in range(records.episode.shape[1]):
            complete = np.minimum(records.episode[:, k].astype(np.int64) // self.bin_size, self.bins)
            r, b = self.extend(complete, sums)
            self.write_weights[r, b] = records.write_weights[r, k]
            self.query_vectors[r, b] = records.query_vectors[r, k]
            runs.append(r)
            which.append(b)
        return Completed(self, seeds, np.concatenate(runs), np.concatenate(which))

    def recent_return(self) -> float:
        """Mean over runs of their last complete bin; NaN before the first."""
        some = np.flatnonzero(self.complete)
        return float(np.mean(self.returns[some, self.complete[some] - 1])) if len(some) else float("nan")
