"""The loop around Gymnasium beside Stable-Baselines3's A2C; takes the options of ``recollect bench host``."""

import functools
import json
import sys

import yardsticks

from recollect import cli
from recollect.cli.reports import progress
from recollect.studies.speed import online


def main() -> int:
    """Measure and print, as JSON."""
    args = cli.parser().parse_args(["bench", "host", *sys.argv[1:]])
    rows = online.speeds(args.steps, args.hidden, args.env, args.agents, progress)
    if (a2c := yardsticks.a2c(args.env, args.hidden)) is None:
        progress("Stable-Baselines3 is not installed: A2C is left out")
    else:
        progress("Stable-Baselines3's A2C")
        rows["sb3 a2c"] = online.best(functools.partial(a2c.learn, args.steps), args.steps)
    print(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
