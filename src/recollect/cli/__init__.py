"""The command ``recollect``.

Each module here is a group of commands: its ``register`` adds them to the parser, and imports nothing heavy; what a
command does is imported when it runs. The laboratory (`recollect.cli.lab`) is a drawer of its own. Start at ``main``.
May import every other room; imports none itself before Ctrl-C is looked after (`recollect.cli.ctrl_c`).
"""

import functools
import sys

from recollect._version import __version__
from recollect.cli import ctrl_c
from recollect.errors import EXIT_INTERRUPTED, RecollectError, printable

TYPE_CHECKING = False  # as typing has it
if TYPE_CHECKING:
    import argparse

DESCRIPTION = "Reinforcement-learning agents that learn online what to remember."
EXAMPLES = """\
a start:
  recollect train --env CartPole-v1 --steps 20000
  recollect evaluate runs/CartPole-v1-general-seed0
  recollect view runs/CartPole-v1-general-seed0
  recollect reproduce fig4 --preset robust
`recollect COMMAND --help` shows a command's options."""

LABORATORY = ("study", "atlas", "lengths", "looping", "extensions", "tune", "readings", "soak")
FROM_BENCH = ("estimators", "inclusion", "endless", "checkpoints", "algorithm1")


@functools.cache
def parser() -> "argparse.ArgumentParser":
    """The command's options; kept apart so that tests and documentation can read them."""
    import argparse

    from recollect.cli import bench, benchmark, lab, learners, reproduce, runs, sample, view

    top = argparse.ArgumentParser(
        prog="recollect",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=functools.partial(argparse.RawDescriptionHelpFormatter, max_help_position=16),
    )
    top.add_argument("-V", "--version", action="version", version=f"recollect {__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True, title="commands")
    for subject in (learners, view, reproduce, benchmark, sample, runs, bench, lab):
        subject.register(commands)
    return top


def moved(argv: list[str]) -> str | None:
    """The new spelling of a command of release 0.1 that moved to the laboratory, or None."""
    if argv and argv[0] in LABORATORY:
        return f"recollect lab {argv[0]}"
    if len(argv) > 1 and argv[0] == "bench" and argv[1] in FROM_BENCH:
        return f"recollect lab {argv[1]}"
    return None


def main(argv: list[str] | None = None) -> int:
    """Run the command: the process's own, or one of these words; errors that have a cause and a fix are one line."""
    return ctrl_c.command(lambda: _run(sys.argv[1:])) if argv is None else _run(argv)


def _run(argv: list[str]) -> int:
    from recollect.store.interrupts import Interrupted

    if (spelling := moved(argv)) is not None:
        print(f"recollect: this command is now `{spelling}`, with the same options", file=sys.stderr)
        return 2
    args = parser().parse_args(argv)
    try:
        args.run(args)
    except (RecollectError, OSError, ValueError) as error:
        print(f"recollect: {printable(error, 20_000)}", file=sys.stderr)
        return 1
    except Interrupted:
        print("recollect: interrupted; recollect resume continues it", file=sys.stderr)
        return EXIT_INTERRUPTED
    except KeyboardInterrupt as error:
        print(f"recollect: interrupted{f'; {error}' if str(error) else ''}", file=sys.stderr)
        return EXIT_INTERRUPTED
    return 0
