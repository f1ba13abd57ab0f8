"""The training loop beside the yardsticks, in one run; takes the options of ``recollect bench train``."""

import json
import sys

import yardsticks

from recollect import cli
from recollect.cli import bench
from recollect.cli.reports import progress
from recollect.store.run_folders import command_line, versions


def main() -> int:
    """Measure and print, as JSON."""
    args = cli.parser().parse_args(["bench", "train", *sys.argv[1:]])
    report = bench.measured(args)
    others = ()
    if args.env in (None, bench.PAPERS):  # they are the paper's agent in the secret informant
        progress("yardsticks: C, eager JAX, PyTorch")
        others = (yardsticks.c_loop(), yardsticks.eager(), yardsticks.pytorch())
    report["others"] = [row for row in others if row is not None]
    c = next((row["steps_per_second"] for row in report["others"] if row["engine"].startswith("C")), None)
    if c is not None:
        for row in report["by_runs"]:
            row["times_the_C_loop"] = row["steps_per_second"] / c
    if args.picture is not None:
        from recollect.studies import lab_plots

        lab_plots.draw_speed(report["by_runs"], args.picture)
    print(json.dumps({"command": command_line(), "versions": versions(), **report}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
