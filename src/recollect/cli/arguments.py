"""What an argument of a command may be, as ``argparse`` asks for it."""

import argparse
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

# argparse has no public name for what ``add_subparsers`` returns.
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def count(text: str) -> int:
    """A whole number of at least 1."""
    number, *more = counts(text)
    if more:
        raise argparse.ArgumentTypeError(f"{text!r}: one number is wanted")
    return number


def counts(text: str) -> tuple[int, ...]:
    """Whole numbers of at least 1, comma-separated."""
    from decimal import Decimal, InvalidOperation  # 1e6 is a whole number, and no float is as exact

    try:
        numbers = tuple(Decimal(x) for x in text.split(","))
    except InvalidOperation as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a comma-separated list of whole numbers") from error
    if not all(x.is_finite() and x == x.to_integral_value() for x in numbers):
        raise argparse.ArgumentTypeError(f"{text!r}: every number must be whole")
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: every number must be at least 1")
    if max(numbers) >= 2**63:
        raise argparse.ArgumentTypeError(f"{text!r}: every number must be below 2^63")
    return tuple(int(x) for x in numbers)


def snapshots(text: str) -> int:
    """0, or a whole number of at least 2."""
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) != 1):
        raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number of at least 2, or 0 for none")
    return int(text)


def finite(text: str) -> float:
    """A number."""
    try:
        number = float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from error
    if not abs(number) < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}: must be a finite number")
    return number


def seed(text: str) -> int:
    """A whole number from 0 to 2³¹ - 1."""
    if not (text.isascii() and text.isdigit() and int(text) < 2**31):
        raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number from 0 to 2^31 - 1")
    return int(text)


def multiple(text: str) -> float:
    """A number greater than 0."""
    number = finite(text)
    if number <= 0:
        raise argparse.ArgumentTypeError(f"{text!r}: must be greater than 0")
    return number


def names(text: str) -> tuple[str, ...]:
    """Names, comma-separated."""
    return tuple(name for name in text.split(",") if name)


def setting(text: str) -> tuple[str, object]:
    """``name=value``: the value in JSON, a number or truth as Python writes it (``.5``, ``True``), or else a string."""
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form name=value")
    try:
        return name, json.loads(value)
    except ValueError:
        if re.fullmatch(r"[+-]?(\d+\.|\d*\.\d+)(e[+-]?\d+)?", value, re.IGNORECASE):
            return name, float(value)
        return name, {"True": True, "False": False, "None": None}.get(value, value)


def add_seeds(command: argparse.ArgumentParser, default: int, what: str) -> None:
    """Which seeds: see ``seeds_of``."""
    command.add_argument("--seeds", type=count, default=default, help=f"{what} (default: {default})")
    command.add_argument("--first-seed", type=seed, default=0, help="seeds count from here (default: 0)")


def seeds_of(args: argparse.Namespace) -> range:
    """The seeds that were asked for."""
    return range(args.first_seed, args.first_seed + args.seeds)


def add_on(command: argparse.ArgumentParser) -> None:
    """Where the work is done."""
    command.add_argument(
        "--on",
        default="local",
        metavar="WHERE",
        help="local (default), ray (the cluster at RAY_ADDRESS, or one started here), or ray://HOST:PORT",
    )


def add_gpus(command: argparse.ArgumentParser) -> None:
    """Shares of accelerators."""
    command.add_argument(
        "--gpus", type=multiple, metavar="SHARE", help="with --on ray: GPUs that each unit asks for, such as 0.25"
    )


def names_among(
    what: str, known: tuple[str, ...], all_of: tuple[str, ...] | None = None
) -> Callable[[str], tuple[str, ...]]:
    """Comma-separated names among those that are known, or ``all``: every one, or ``all_of``."""

    def parse(text: str) -> tuple[str, ...]:
        names = (all_of or known) if text == "all" else tuple(text.split(","))
        if unknown := set(names) - set(known):
            raise argparse.ArgumentTypeError(f"unknown {what} {', '.join(unknown)}; choose among {', '.join(known)}")
        return names

    return parse


def add_set(command: argparse.ArgumentParser, what: str, option: str = "--set") -> None:
    """An option that is given as NAME=VALUE, as often as there are values to change."""
    command.add_argument(option, type=setting, action="append", default=[], metavar="NAME=VALUE", help=what)


def add_resume(
    command: argparse.ArgumentParser,
    jobs: int = 1,
    what: str = "units",
    out: str = "JSON file to write; default: standard output",
) -> None:
    """The options of commands that write a report piece by piece: where to, who does the pieces, and to resume it."""
    command.add_argument("--out", type=Path, help=out)
    command.add_argument(
        "--jobs", type=count, default=jobs, help=f"{what} that run at once, in processes (default: {jobs})"
    )
    add_on(command)
    add_gpus(command)
    command.add_argument(
        "--resume", action="store_true", help="continue the report of --out: do only what is missing or failed"
    )
    command.add_argument(
        "--allow-inexact", action="store_true", help="resume under other versions; the report names all of them"
    )
    add_break_lock(command)


def add_break_lock(command: argparse.ArgumentParser) -> None:
    """For commands that one process at a time may work on the output of."""
    command.add_argument(
        "--break-lock", action="store_true", help="take over a lock that is left from another host or a restart"
    )
