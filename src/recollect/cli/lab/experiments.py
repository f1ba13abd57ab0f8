"""The paper's experiments and harder ones, as commands of the laboratory take them."""

import argparse

from recollect.cli.arguments import names_among
from recollect.cli.reproduce import FIGURES

HARDER = (
    "no-bit",
    "no-bit-20",
    "decisions-3",
    "decisions-4",
    "actions-5",
    "length-50",
    "length-100",
    "memory-32",
)

figures = names_among("figure", (*FIGURES, *HARDER), FIGURES)
"""The experiments that a command may be asked for."""


def experiments_of(args: argparse.Namespace) -> dict:
    """Those that were asked for, with the budget that was asked for."""
    from recollect.studies.paper import FIGURES, HARDER
    from recollect.studies.study import block_of

    experiments = {name: (FIGURES | HARDER)[name] for name in args.figures}
    if args.episodes is not None:
        experiments = {name: e._replace(episodes=args.episodes) for name, e in experiments.items()}
    for experiment in experiments.values():
        block_of(experiment)
    return experiments
