"""``recollect bench reservoir``: what an item costs."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numba import njit

from recollect import Reservoir

CAPACITIES = (3, 16, 64, 256, 1024)
LENGTHS = (1_000_000, 10_000_000)
Method = Callable[[np.ndarray], object]


@njit(cache=True, error_model="numpy", fastmath=True)
def plain_sum(w):
    """Reading every weight once: the floor."""
    total = 0.0
    for x in w:
        total += x
    return total


def _nanoseconds(runs: dict[str, Method], parts: dict[str, np.ndarray], seconds: float) -> dict[str, float]:
    """For each method the best of the rounds that fit in ``seconds``, three at least, in nanoseconds per item.

    The best is what is left when nothing else uses the machine. The methods take turns, so that a busy moment does not
    fall on one of them alone.
    """
    taken: dict[str, list[float]] = {name: [] for name in runs}
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds or min(map(len, taken.values())) < 3:
        for name, run in runs.items():
            start = time.perf_counter()
            run(parts[name])
            taken[name].append(time.perf_counter() - start)
    return {name: min(times) / len(parts[name]) * 1e9 for name, times in taken.items()}


def shipped(n: int) -> dict[str, Method]:
    """The reservoir of capacity n, and the floor."""

    def reservoir(w: np.ndarray) -> None:
        Reservoir(n, seed=0).extend(range(len(w)), w)

    return {"reservoir": reservoir, "sum": plain_sum}


def times(
    capacities: Sequence[int],
    lengths: Sequence[int],
    report: Callable[[str], None],
    methods: Callable[[int], Mapping[str, Method]] = shipped,
    linear: tuple[str, ...] = (),
    seconds: float = 7.5,
) -> list[dict]:
    """Nanoseconds per item for every method, capacity and stream length; weights uniform on (0, 1].

    The methods named ``linear`` cost O(n) per item and are timed on a shorter stream, as their cost does not change.
    """
    rows = []
    for length in lengths:
        w = 1 - np.random.default_rng(0).random(length)
        for n in capacities:
            report(f"n = {n}, {length:,} items")
            runs, parts = dict(methods(n)), {}
            for name, run in runs.items():
                run(w[: 4 * n + 1000])  # compiled before the clock starts
                parts[name] = w[: min(length, max(20 * n, 20_000_000 // n))] if name in linear else w
            rows.append({"n": n, "items": length, **_nanoseconds(runs, parts, seconds)})
    return rows


def add_times(n: int = 64, calls: int = 20_000) -> dict[str, float]:
    """Nanoseconds of one ``add`` from Python, one at a time: median and mean (which holds the gathered passes)."""
    r = Reservoir(n, seed=0)
    weights = (1 - np.random.default_rng(0).random(calls)).tolist()
    for w in weights[:2000]:
        r.add(None, w)
    clock = time.perf_counter_ns
    taken = []
    for w in weights:
        start = clock()
        r.add(None, w)
        taken.append(clock() - start)
    return {"median": statistics.median(taken), "mean": statistics.fmean(taken)}
