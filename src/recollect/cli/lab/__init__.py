"""``recollect lab``: the experiments behind the documentation. One module per command, whose ``register`` adds it."""

from recollect.cli.arguments import Commands
from recollect.cli.lab import atlas, extensions, lengths, looping, measurements, readings, study, tune


def register(commands: Commands) -> None:
    """Add ``lab`` and its commands."""
    lab = commands.add_parser("lab", help="the studies behind the documentation: recollect lab --help")
    subjects = lab.add_subparsers(metavar="STUDY", required=True)
    for subject in (study, atlas, lengths, looping, extensions, tune, readings, measurements):
        subject.register(subjects)
