"""``law.weights_for``: how long it takes to find the weights of prescribed probabilities, and how near they come.

    python benchmarks/weights_for.py --out benchmarks/weights_for.json

Each case is N items with probabilities in proportion to lognormal sizes, at most ``--largest``, that sum to n. The
error is what ``weights_for`` says of itself: the largest difference between a prescribed probability and the one that
the weights have. Beside it, the same difference by ``law.inclusion_probabilities``, which computes the probabilities
from the weights in another way, where n·N is small enough for that.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

from recollect.reservoir import law

CASES = ((10, 1_000), (100, 10_000), (1_000, 100_000), (1_000, 1_000_000), (10_000, 100_000), (10_000, 1_000_000))
CHECKED = 2e8  # n·N up to which the probabilities are worked out a second time, item by item


def probabilities(n: int, items: int, largest: float, seed: int = 0) -> np.ndarray:
    """Probabilities in proportion to lognormal sizes, none above ``largest``, that sum to n."""
    sizes = np.random.default_rng([seed, n, items]).lognormal(0.0, 1.0, items)
    pi = sizes * (n / sizes.sum())
    while pi.max() > largest * (1.0 + 1e-12):
        over = pi >= largest
        pi[over] = largest
        pi[~over] *= (n - largest * over.sum()) / pi[~over].sum()
    return pi


def measure(n: int, items: int, largest: float, repeats: int) -> dict:
    """One row; seconds by the clock and of the processor, the best of so many repeats."""
    pi = probabilities(n, items, largest)
    clock, processor = [], []
    for _ in range(repeats):
        since, used = time.perf_counter(), time.process_time()
        solved = law.weights_for(pi)
        clock.append(time.perf_counter() - since)
        processor.append(time.process_time() - used)
    again = None
    if n * items <= CHECKED:
        again = float(np.abs(law.inclusion_probabilities(solved.log_weights, n) - pi).max())
    return {
        "n": n,
        "items": items,
        "largest_probability": float(pi.max()),
        "seconds": min(clock),
        "processor_seconds": min(processor),
        "iterations": solved.iterations,
        "error": solved.error,
        "error_by_the_law": again,
    }


def main() -> None:
    """Print the table, and write it where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=float, default=0.9, help="largest probability (default: 0.9)")
    parser.add_argument("--repeats", type=int, default=3, help="of each case; the best counts (default: 3)")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    law.weights_for(probabilities(3, 50, args.largest))  # compiles
    rows = []
    print("| n | N | time | processor time | iterations | error | by the law |")
    print("|--:|--:|--:|--:|--:|--:|--:|")
    for n, items in CASES:
        print(f"  n = {n:,}, N = {items:,}", file=sys.stderr, flush=True)
        row = measure(n, items, args.largest, args.repeats)
        rows.append(row)
        again = "" if row["error_by_the_law"] is None else f"{row['error_by_the_law']:.1e}"
        print(
            f"| {n:,} | {items:,} | {row['seconds']:.2f} s | {row['processor_seconds']:.2f} s "
            f"| {row['iterations']} | {row['error']:.1e} | {again} |",
            flush=True,
        )
        if args.out is not None:
            args.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
