"""What commands print and write: progress, tables, reports as JSON."""

import argparse
import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from recollect.errors import FileError, RecollectError, printable
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


def check_out(args: argparse.Namespace, *beside: Path | None) -> None:
    """Refuse a place for the report, or for a picture ``beside`` it, before the work begins rather than after it."""
    from recollect.studies.sweep import journal_of

    resume = getattr(args, "resume", False)  # not of a command whose report is made in one piece
    if args.out is None and resume:
        raise RecollectError("--resume: say with --out which report to continue")
    report = [] if args.out is None else [args.out, journal_of(args.out)]
    places = [*report, *(path for path in beside if path is not None)]
    if len({os.path.realpath(path) for path in places}) < len(places):
        raise RecollectError(f"{places[-1]} is a file of the report itself: choose another name for the picture")
    begun = resume and os.path.lexists(report[1])
    for path in places:
        if os.path.lexists(path) and not path.is_file():
            raise RecollectError(f"cannot write {path}: it is not an ordinary file")
        if os.path.lexists(path) and not begun:
            what = f"there is nothing to resume, {report[1]} is missing: " if resume else ""
            remedy = "choose another --out, or remove it; --resume does what is missing"
            if resume or path not in report:
                remedy = "choose another name, or remove it"
            raise RecollectError(f"{what}{path} exists already: {remedy}")
    for path in places:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RecollectError(f"cannot write {path}: {error.strerror}") from error
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise RecollectError(f"cannot write {path}: no permission to write in {path.parent}")


def picture_of(out: Path) -> Path:
    """Where the picture of a report is put: its name without ``.json``, so that no two reports share one.

    >>> picture_of(Path("a/board.json")).name, picture_of(Path("board.v1")).name
    ('board.png', 'board.v1.png')
    """
    return out.with_name(f"{out.name.removesuffix('.json')}.png")


def check_place(
    path: Path, option: str, named: bool, given: Sequence[Path] = (), ours: Callable[[Path], bool] = lambda path: False
) -> None:
    """Refuse to write onto a file that was given, or that is there and not one of ``ours``.

    ``option`` is what says where; ``named``: whether it has been said.
    """
    if os.path.realpath(path) in map(os.path.realpath, given):
        raise RecollectError(f"cannot write {path}: it is among what was given; {option} says where")
    if not os.path.lexists(path):
        return
    if not path.is_file():
        raise RecollectError(f"cannot write {path}: it is not an ordinary file")
    if not ours(path):
        raise RecollectError(
            f"{path} exists already: {f'choose another {option}, or remove it' if named else f'{option} says where'}"
        )


def draw_reports(
    args: argparse.Namespace, what: str, reports: Sequence[Path], draw: Callable[[list[dict], Path], object]
) -> None:
    """Draw the rows of reports together: ``--draw`` of the command ``what``, which makes such reports."""
    from recollect.store import files
    from recollect.studies import drawing

    for option in ("out", "resume", "search", "best", "json"):
        if getattr(args, option, None):
            raise RecollectError(f"--{option}: --draw only draws what reports hold")
    picture, named = args.picture or reports[0].with_suffix(".png"), args.picture is not None
    check_place(picture, "--picture", named, reports, ours=lambda path: named)
    drawing.require(picture)
    found: list[dict] = []
    for path in reports:
        rows = files.read_json(path).get("rows")
        if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
            raise FileError(f"{path} is no report of {what}: it has no rows")
        found += rows
    try:
        draw(found, picture)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        names = ", ".join(map(str, reports))
        raise FileError(f"{names}: no report of {what}: {type(error).__name__}: {error}") from error
    print(f"written: {picture}")


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

    aside = ("run", "out", "resume", "records", "draw", "picture", "json", "jobs", "on", "gpus")
    aside += ("break_lock", "allow_inexact")
    config = {name: value for name, value in vars(args).items() if name not in aside} | known
    how: dict[str, Any] = {name: getattr(args, name) for name in ("resume", "break_lock", "allow_inexact", "jobs")}
    with executor_of(args, args.on == "local") as executor:
        return run_all(units, config, args.out, say=say, executor=executor, **how)


@contextlib.contextmanager
def reading_rows(args: argparse.Namespace) -> Iterator[None]:
    """Tell what fails over rows that were taken over as a fault of their journal: those of old ones carry no sums."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        if not args.resume:
            raise
        from recollect.studies.sweep import journal_of

        what = f"its rows are not those of this command: {type(error).__name__}: {error}"
        raise FileError(f"{journal_of(args.out)} is damaged: {what}") from error


def write_report(args: argparse.Namespace, report: dict, errors: dict[str, str]) -> None:
    """Write what was found, with the command and the versions that found it; then fail where a part failed."""
    from recollect.store import files
    from recollect.store.run_folders import command_line, versions, write_json
    from recollect.studies.sweep import journal_of, made_by

    head: dict[str, Any] = {"command": command_line(), "versions": versions()}
    if args.out is not None and getattr(args, "allow_inexact", False):
        head["rows_made_by"] = made_by(files.read_lines(journal_of(args.out)))
    whole = {**head, **report, **({"errors": errors} if errors else {})}
    if args.out is None:
        print(json.dumps(whole, indent=1))
    else:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        write_json(args.out, whole)
        print(f"written: {args.out}")
    if errors:
        again = "; --resume tries again" if args.out else ""
        raise RecollectError(f"failed: {'; '.join(f'{name}: {error}' for name, error in errors.items())}{again}")
