"""The reservoir beside other samplers, in one run."""

import argparse
import json
import sys

import rivals

from recollect.cli.arguments import counts
from recollect.cli.reports import print_table, progress
from recollect.reservoir.random import seeded
from recollect.studies.algorithm1 import algorithm1
from recollect.studies.speed import reservoir

LINEAR = ("algorithm1", "direct")


def methods(n: int) -> dict[str, reservoir.Method]:
    """All of them at capacity n."""
    return {
        "algorithm1": lambda w: algorithm1(w, n, seeded(0)),
        "direct": lambda w: rivals.direct(w, n, seeded(0)),
        "a_expj": lambda w: rivals.a_expj(w, n, seeded(0)),
        **reservoir.shipped(n),
    }


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--capacities", type=counts, default=reservoir.CAPACITIES, help="n, comma-separated")
    parser.add_argument("--items", type=counts, default=reservoir.LENGTHS, help="stream lengths, comma-separated")
    args = parser.parse_args()
    rows = reservoir.times(args.capacities, args.items, progress, methods, LINEAR)
    add = reservoir.add_times()
    if args.json:
        print(json.dumps({"nanoseconds_an_item": rows, "add_nanoseconds": add}, indent=1))
        return 0
    names = list(methods(1))
    print_table(
        ["items", "n", *names, "algorithm1/reservoir", "reservoir/a_expj"],
        [
            [
                f"{r['items']:,}",
                str(r["n"]),
                *(f"{r[m]:.2f}" for m in names),
                f"{r['algorithm1'] / r['reservoir']:.0f}",
                f"{r['reservoir'] / r['a_expj']:.2f}",
            ]
            for r in rows
        ],
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
