"""``recollect plot``: the picture of a run, from its folder alone."""

import argparse
from pathlib import Path

from recollect.cli.arguments import Commands


def _plot(args: argparse.Namespace) -> None:
    from recollect.studies.plots import draw_figure

    print(f"picture: {' '.join(str(picture) for picture in draw_figure(args.folder))}")


def register(commands: Commands) -> None:
    """Add ``plot``."""
    plot = commands.add_parser("plot", help="draw a run again from its folder")
    plot.add_argument("folder", type=Path, metavar="DIR")
    plot.set_defaults(run=_plot)
