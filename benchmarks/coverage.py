"""How often the 95 % interval of ``Reservoir.estimate_total`` covers the true total.

    python benchmarks/coverage.py --out benchmarks/coverage.json

A population of lognormal weights; values in proportion to the weights but for noise (correlated), values that have
nothing to do with them (uncorrelated), which no weighted sample suits, and values of which all but one in a hundred
are 0 (rare), which no small sample suits. Beside the interval that is offered, the plain one: 1.96 standard errors to
either side. Lengths are compared where the plain one has any.
"""

import argparse
import json
import math
import sys
import time
from pathlib import Path

import numpy as np

from recollect import Reservoir
from recollect.reservoir import estimates

POPULATION = 20_000


def measure(n: int, repetitions: int, first_seed: int = 0) -> list[dict]:
    """Three rows: coverage, and the mean length of the intervals in standard errors."""
    rng = np.random.default_rng(0)
    weights = rng.lognormal(0.0, 1.0, POPULATION)
    values = {
        "correlated": weights * rng.uniform(0.5, 1.5, POPULATION),
        "uncorrelated": rng.lognormal(0.0, 0.5, POPULATION),
        "rare": (rng.random(POPULATION) < 0.01).astype(float),
    }
    covered = {name: np.zeros(2) for name in values}
    ratios: dict[str, list[float]] = {name: [] for name in values}
    shown = time.monotonic()
    for seed in range(first_seed, first_seed + repetitions):
        r = Reservoir(n, seed=seed)
        r.extend(range(POPULATION), weights)
        pairs = r.joint_inclusion_probabilities() if n <= estimates.PAIRS else None
        p = r.inclusion_probabilities()
        for name, y in values.items():
            found = estimates.total(y[r.indices], p, pairs)
            low, high = found.interval()
            true, reach = y.sum(), 1.959964 * found.standard_error
            covered[name] += low <= true <= high, abs(found.total - true) <= reach
            if reach > 0:
                ratios[name].append((high - low) / (2 * reach))
        if time.monotonic() - shown > 5:
            shown = time.monotonic()
            print(f"  n = {n}: {seed - first_seed + 1} of {repetitions}", file=sys.stderr, flush=True)
    return [
        {
            "n": n,
            "values": name,
            "repetitions": repetitions,
            "interval": covered[name][0] / repetitions,
            "plain": covered[name][1] / repetitions,
            "length_over_plain": float(np.mean(ratios[name])),
            "standard_error": math.sqrt(0.95 * 0.05 / repetitions),
        }
        for name in values
    ]


def main() -> None:
    """Print the table, and write it where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--capacities", default="16,64,256,1024")
    parser.add_argument("--repetitions", type=int, default=2_000)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows = [row for n in args.capacities.split(",") for row in measure(int(n), args.repetitions)]
    print("| n | values | 95 % interval covers | ±1.96 standard errors | length over plain |\n|--:|---|--:|--:|--:|")
    for row in rows:
        print(
            f"| {row['n']:,} | {row['values']} | {row['interval']:.1%} | {row['plain']:.1%} "
            f"| {row['length_over_plain']:.2f} |"
        )
    if args.out is not None:
        args.out.write_text(json.dumps({"population": POPULATION, "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
