"""``recollect bench reservoir`` and ``recollect bench algorithm1``."""

import statistics
import time
from collections.abc import Callable

import numpy as np

from recollect import Reservoir
from recollect.reservoir.random import seeded
from recollect.studies.speed import rivals

CAPACITIES = (3, 16, 64, 256, 1024)
LENGTHS = (1_000_000, 10_000_000)
METHODS = ("algorithm1", "direct", "reservoir", "a_expj", "sum")


def _nanoseconds(
    runs: dict[str, Callable[[np.ndarray], object]], parts: dict[str, np.ndarray], seconds: float = 7.5
) -> dict[str, float]:
    """For each method the best of the rounds that fit in ``seconds``, three at least, in nanoseconds an item.

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


def _runs(n: int) -> dict[str, Callable[[np.ndarray], object]]:
    def shipped(w: np.ndarray) -> None:
        Reservoir(n, seed=0).extend(range(len(w)), w)

    return {
        "algorithm1": lambda w: rivals.algorithm1(w, n, seeded(0)),
        "direct": lambda w: rivals.direct(w, n, seeded(0)),
        "reservoir": shipped,
        "a_expj": lambda w: rivals.a_expj(w, n, seeded(0)),
        "sum": rivals.plain_sum,
    }


def times(capacities=CAPACITIES, lengths=LENGTHS, report: Callable[[str], None] = lambda _: None) -> list[dict]:
    """Nanoseconds an item for every method, capacity and stream length; weights uniform on (0, 1].

    The two methods that cost O(n) an item are timed on a shorter stream, since their cost an item does not change.
    """
    rows = []
    for length in lengths:
        w = 1 - np.random.default_rng(0).random(length)
        for n in capacities:
            report(f"n = {n}, {length:,} items")
            runs = _runs(n)
            parts = {}
            for name, run in runs.items():
                run(w[: 4 * n + 1000])  # compiled before the clock starts
                linear = name in ("algorithm1", "direct")
                parts[name] = w[: min(length, max(20 * n, 20_000_000 // n))] if linear else w
            rows.append({"n": n, "items": length, **_nanoseconds(runs, parts)})
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


def shares(repeats: int = 8) -> list[dict]:
    """Share of the sample that comes from the last half of a uniform stream (it should be .50)."""
    rows = []
    for n, length in ((3, 200_000), (16, 200_000), (64, 200_000), (256, 20_000), (1024, 10_000)):
        w = 1 - np.random.default_rng(n).random(length)
        printed, shipped, first_nan = [], [], -1
        for seed in range(repeats):
            kept, first_nan = rivals.algorithm1(w, n, seeded(seed))
            printed.append(np.mean(kept >= length // 2))
            r = Reservoir(n, seed=seed)
            r.extend(range(length), w)
            shipped.append(np.mean(r.indices >= length // 2))
        rows.append(
            {
                "n": n,
                "items": length,
                "algorithm1": float(np.mean(printed)),
                "reservoir": float(np.mean(shipped)),
                "standard_error": 0.5 / float(np.sqrt(repeats * n)),
                "first_nan": None if first_nan < 0 else int(first_nan),
            }
        )
    return rows
