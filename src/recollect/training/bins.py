"""Metrics by bin of episodes, put together from the records as they come."""

from collections.abc import Sequence

import numpy as np

from recollect.engines.loop import Record


def default_bins(episodes: int) -> int:
    """The largest number of equal parts up to 100."""
    return next(b for b in range(min(100, episodes), 0, -1) if episodes % b == 0)


class Bins:
    """Metrics by bin, put together from the records as they come."""

    def __init__(self, runs: int, bins: int, bin_size: int, queries: tuple[int, ...]):
        self.bins, self.bin_size = bins, bin_size
        self.complete = np.zeros(runs, np.int64)
        self.returns = np.full((runs, bins), np.nan)
        self.lengths = np.full((runs, bins), np.nan)
        self.write_weights = np.full((runs, bins, 2), np.nan)
        self.query_vectors = np.full((runs, bins, *queries), np.nan)

    def arrays(self) -> dict[str, np.ndarray]:
        """What a checkpoint holds of this."""
        names = ("complete", "returns", "lengths", "write_weights", "query_vectors")
        return {name: getattr(self, name) for name in names}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Take over what a checkpoint held."""
        for name, array in arrays.items():
            setattr(self, name, array.copy())

    def add(self, seeds: Sequence[int], records: Record, sums: np.ndarray) -> list[dict]:
        """Take in what one call measured; returns the bins it completed."""
        new = []
        for run, seed in enumerate(seeds):
            for b in range(self.complete[run], min(int(records.episode[run, -1]) // self.bin_size, self.bins)):
                k = int(np.searchsorted(records.episode[run], (b + 1) * self.bin_size))
                self.returns[run, b] = sums[run, b, 0] / self.bin_size
                self.lengths[run, b] = sums[run, b, 1] / self.bin_size
                self.write_weights[run, b] = records.write_weights[run, k]
                self.query_vectors[run, b] = records.query_vectors[run, k]
                self.complete[run] = b + 1
                new.append(
                    {
                        "seed": seed,
                        "episodes": (b + 1) * self.bin_size,
                        "return": float(self.returns[run, b]),
                        "length": float(self.lengths[run, b]),
                        "write_weights": self.write_weights[run, b].tolist(),
                        "query_vectors": self.query_vectors[run, b].tolist(),
                    }
                )
        return new

    def recent_return(self) -> float:
        """Mean over runs of their last complete bin; NaN before the first."""
        last = [self.returns[run, b - 1] for run, b in enumerate(self.complete) if b]
        return float(np.mean(last)) if last else float("nan")
