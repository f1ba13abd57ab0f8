"""Unit costs of work on a cluster, measured here, and what they come to for a sweep of 10⁵ runs and 10¹² rows.

    python benchmarks/cluster.py --out benchmarks/cluster.json

Measured: small tasks a second through a Ray of this machine, a line of the journal, rows a second of one worker from
``benchmarks/sample.json``, the size of a piece's vector, the time to join two. The rest is arithmetic, and is printed
as such. Networks, schedulers of many nodes and slow disks are not in it.
"""

import argparse
import concurrent.futures
import functools
import json
import math
import operator
import tempfile
import time
from pathlib import Path

import numpy as np

from recollect.reservoir import counts, tables
from recollect.studies import executors, sweep


def tasks_a_second(number: int = 400) -> float:
    """Of empty units, through the executor for Ray, after its workers are up."""
    executor = executors.make("ray", 2)
    try:
        work = functools.partial(operator.add, 1, 1)
        concurrent.futures.wait([executor.submit(work) for _ in range(4)])
        start = time.perf_counter()
        concurrent.futures.wait([executor.submit(work) for _ in range(number)])
        return number / (time.perf_counter() - start)
    finally:
        executor.close()


def journal_seconds(number: int = 200) -> float:
    """Of one unit's line, flushed to disk."""
    units = {str(k): functools.partial(operator.add, k, 1) for k in range(number)}
    with tempfile.TemporaryDirectory() as here:
        start = time.perf_counter()
        sweep.run_all(units, {}, Path(here) / "report.json")
        return (time.perf_counter() - start) / number


def vectors(n: int, pieces: int) -> tuple[int, float]:
    """Bytes of the vector of a piece that n/pieces rows come from, and the seconds to join all of them."""
    mean = n / pieces
    sd = math.sqrt(mean)
    k = np.arange(max(0, math.floor(mean - 13.6 * sd)), math.ceil(mean + 13.6 * sd) + 30)
    mass = np.exp(-mean + k * math.log(mean) - np.array([math.lgamma(x + 1) for x in k]))
    part = counts.Counts(int(k[0]), mass / mass.sum())
    few = min(pieces, 4096)
    counts.Tree([part] * 4)
    start = time.process_time()
    counts.Tree([part] * few)
    return part.mass.nbytes, (time.process_time() - start) * pieces / few


def main() -> None:
    """Print what was measured and what follows from it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1_000)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    speed = json.loads(Path(__file__).with_name("sample.json").read_text(encoding="utf-8"))
    row = speed["nanoseconds_a_row"]["sample n=10000"] * 1e-9
    rows, n, runs, packed = 10**12, 10_000, 10**5, 64
    pieces = rows // tables.PIECE
    size, join = vectors(n, pieces)
    found = {
        "measured": {
            "ray_tasks_a_second": tasks_a_second(),
            "journal_line_seconds": journal_seconds(),
            "seconds_a_row": row,
            "vector_bytes_of_a_piece": size,
            "join_all_vectors_seconds": join,
        }
    }
    rate, line = found["measured"]["ray_tasks_a_second"], found["measured"]["journal_line_seconds"]
    looks = 1 + min(n, pieces) / pieces  # all pieces once, and those again that rows come from
    found["sample of 10^12 rows, n = 10,000"] = {
        "pieces": pieces,
        "tasks": 3 * pieces,
        "looks_at_the_weight_column": looks,
        "bytes_read_of_the_weight_column": 8 * rows * looks,
        "bytes_of_vectors_to_the_driver": pieces * size,
        "depth_of_the_tree": math.ceil(math.log2(pieces)),
        "hours_of_one_worker": looks * rows * row / 3600,
        f"hours_of_{args.workers}_workers": looks * rows * row / 3600 / args.workers,
        "hours_of_the_driver_for_tasks": 3 * pieces / rate / 3600,
    }
    units = math.ceil(runs / packed)
    found["sweep of 10^5 runs, 64 seeds in a unit"] = {
        "units": units,
        "seconds_of_the_driver": units * (1 / rate + line),
        "units_of_each_worker": units / args.workers,
    }
    print(json.dumps(found, indent=1))
    if args.out is not None:
        args.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
