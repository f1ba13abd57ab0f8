"""What commands print and write: progress, tables, reports as JSON."""

import argparse
import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from recollect.errors import RecollectError, printable
from recollect.training.progress import say


def progress(text: str) -> None:
    """Say on standard error what begins now."""
    say(f"{text} …")


def print_table(columns: list[str], rows: list[list[str]]) -> None:
    """Print a table as wide as the terminal, or as 140 columns where there is none."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right")
    for row in rows:
        # As text, not as markup: a cell may come from a file of somebody else's.
        table.add_row(*(Text(printable(cell)) for cell in row))
    console = Console()
    (console if console.is_terminal else Console(width=140)).print(table)


def print_rows(columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a table of a report's rows; ``columns``: the format of each under its title, as in ``"{items:,}"``."""
    print_table(list(columns), [[form.format(**row) for form in columns.values()] for row in rows])


def check_out(args: argparse.Namespace) -> None:
    """Refuse a place for the report before the work begins rather than after it."""
    from recollect.studies.sweep import journal_of

    resume = getattr(args, "resume", False)  # not of a command whose report is made in one piece
    if args.out is None:
        if resume:
            raise RecollectError("--resume: say with --out which report to continue")
        return
    if not resume:
        for path in (args.out, journal_of(args.out)):
            if path.exists():
                raise RecollectError(
                    f"{path} exists already: choose another --out, or remove it; --resume does what is missing"
                )
    if args.out.exists() and not args.out.is_file():
        raise RecollectError(f"cannot write {args.out}: it is not an ordinary file")
    try:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        if not args.out.exists():
            args.out.touch()
            args.out.unlink()
    except OSError as error:
        raise RecollectError(f"cannot write {args.out}: {error.strerror}") from error


@contextlib.contextmanager
def executor_of(args: argparse.Namespace, here: bool) -> Iterator[Any]:
    """What ``--on``, ``--jobs`` and ``--gpus`` ask for, closed afterwards; None if the work is done ``here``."""
    from recollect.studies import executors

    if args.gpus is not None and args.on == "local":
        raise RecollectError("--gpus: shares of accelerators are given out by Ray, with --on ray")
    executor = None if here else executors.make(args.on, args.jobs or 1, args.gpus or 0.0)
    try:
        yield executor
    finally:
        if executor is not None:
            executor.close()


def run_units(
    args: argparse.Namespace, units: Mapping[str, Callable[[], object]], **known: object
) -> tuple[dict, dict[str, str]]:
    """Do all units, or those that are missing.

    They can be taken up again under the same config alone: what was asked, but for where and how to watch, and what
    else they depend on, ``known``.
    """
    from recollect.studies.sweep import run_all

    aside = ("run", "out", "resume", "records", "draw", "picture", "json", "jobs", "on", "gpus", "break_lock")
    config = {name: value for name, value in vars(args).items() if name not in aside} | known
    how: dict[str, Any] = {"resume": args.resume, "break_lock": args.break_lock, "jobs": args.jobs}
    with executor_of(args, args.on == "local") as executor:
        return run_all(units, config, args.out, say=say, executor=executor, **how)


def write_report(args: argparse.Namespace, report: dict, errors: dict[str, str]) -> None:
    """Write what was found, with the command and the versions that found it; then fail where a part failed."""
    from recollect.store.run_folders import command_line, versions, write_json

    whole = {"command": command_line(), "versions": versions(), **report, **({"errors": errors} if errors else {})}
    if args.out is None:
        print(json.dumps(whole, indent=1))
    else:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        write_json(args.out, whole)
        print(f"written: {args.out}")
    if errors:
        again = "; --resume tries again" if args.out else ""
        raise RecollectError(f"failed: {'; '.join(f'{name}: {error}' for name, error in errors.items())}{again}")
