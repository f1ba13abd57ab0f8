"""What the state of a ``Reservoir`` costs: bytes in memory and on disk, and the time to merge, to save and to load.

    python benchmarks/state.py --out benchmarks/state.json

Beside it, the vector that stands for the same rows where they can be read twice (``recollect.reservoir.counts``), and
the time to join two of those.
"""

import argparse
import json
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from recollect import Reservoir
from recollect.reservoir import counts


def measure(n: int) -> dict:
    """One row; times are processor time."""
    rng = np.random.default_rng(n)
    weights = rng.lognormal(0.0, 1.0, (2, 4 * n))
    sides = [Reservoir(n, seed=[n, k]) for k in range(2)]
    clock = time.process_time
    start = clock()
    for r, w in zip(sides, weights, strict=True):
        r.extend(range(len(w)), w)
    filled = clock() - start
    start = clock()
    merged = sides[0].merge(sides[1])
    merge = clock() - start
    with tempfile.TemporaryDirectory() as here:
        path = Path(here) / "reservoir"
        start = clock()
        merged.save(path)
        save, size = clock() - start, path.stat().st_size
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # two reservoirs, their merger, and saving it
        del sides, merged
        start = clock()
        Reservoir.load(path)
        load = clock() - start
    bins = np.zeros(counts.BINS, np.int64)
    counts.tally(weights.ravel(), bins, 1)
    log_theta = counts.odds_factor(bins, n)
    parts = [
        counts.Tree([counts.count(w[k : k + 512], log_theta) for k in range(0, len(w), 512)]).root for w in weights
    ]
    start = clock()
    whole = counts.joined(*parts)
    join = clock() - start
    return {
        "n": n,
        "bytes_in_memory": 8 * n * (n + 1),
        "bytes_on_disk": size,
        "fill_seconds": filled,
        "merge_seconds": merge,
        "save_seconds": save,
        "load_seconds": load,
        "most_bytes": most,
        "vector_bytes": whole.mass.nbytes,
        "join_seconds": join,
    }


def main() -> None:
    """Print the table, and write it where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--capacities", default="1024,2048,4096,8192,16384")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    measure(64)  # compiles
    rows = []
    print("| n | memory | file | merge | save | load | most memory | vector | join |")
    print("|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for n in (int(x) for x in args.capacities.split(",")):
        print(f"  n = {n}", file=sys.stderr, flush=True)
        row = measure(n)
        rows.append(row)
        print(
            f"| {n:,} | {row['bytes_in_memory'] / 2**20:,.0f} MiB | {row['bytes_on_disk'] / 2**20:,.0f} MiB "
            f"| {row['merge_seconds']:.2f} s | {row['save_seconds']:.2f} s "
            f"| {row['load_seconds']:.2f} s | {row['most_bytes'] / 2**20:,.0f} MiB "
            f"| {row['vector_bytes'] / 2**10:,.0f} KiB | {row['join_seconds'] * 1e3:.1f} ms |",
            flush=True,
        )
        if args.out is not None:
            args.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
