"""Many runs, one after another or some at a time, none of which can take the others with it.

A unit that fails, by an error of its own or because its worker is lost (killed, out of memory, its machine gone), is
done again, three times in all. Each failed attempt, and each unit's outcome, a row or an error, is a line of
``OUT.rows.jsonl`` as soon as it is known. Resuming reads the lines and does what has no row yet: what failed, what was
under way and what had not begun.
"""

import concurrent.futures
import contextlib
import hashlib
import itertools
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from recollect.errors import FileError, RecollectError
from recollect.store import files
from recollect.store.files import Folder
from recollect.store.lock import Lock
from recollect.store.provenance import BITS_DEPEND_ON, differences, encode, plain, refuse_changes, versions
from recollect.studies.executors import Executor, Processes, VersionsDifferError

Say = Callable[[str], None]
Units = Mapping[str, Callable[[], Any]]
Again = Callable[[str, int, Exception], bool]
ATTEMPTS = 3


def journal_of(out: Path) -> Path:
    """Where the rows of a report are kept until it is complete, and after."""
    return out.with_name(f"{out.name}.rows.jsonl")


def run_all(
    units: Units,
    config: dict[str, Any],
    out: Path | None = None,
    *,
    resume: bool = False,
    break_lock: bool = False,
    allow_inexact: bool = False,
    say: Say = lambda text: None,
    jobs: int = 1,
    executor: Executor | None = None,
) -> tuple[dict[str, Any], dict[str, str]]:
    """The row of every unit and the error of each that failed, by name, in the order of ``units``.

    Args:
        units: what is to be done, by name.
        config: what all of it depends on; resuming under another is refused, field by field.
        out: where the report will be; its rows are kept beside it. None keeps nothing.
        resume: take over the rows that are there already.
        break_lock: take over a lock whose holder may live elsewhere.
        allow_inexact: take over rows that were made under other versions, whose bits may differ.
        say: told of every outcome.
        jobs: units that run at once, each in a process of its own; with 1 they run in this one. What runs in processes
            must be a function that can be sent there, with its arguments.
        executor: what does the units instead; the caller closes it.
    """
    if out is None:
        try:
            return _do(units, {}, lambda content: None, say, jobs, executor)
        except KeyboardInterrupt as error:
            raise KeyboardInterrupt("nothing was kept; --out FILE keeps what is done, for --resume") from error
    journal = journal_of(out)
    lock = Lock(out.parent, name=f"{out.name}.lock", break_lock=break_lock)
    try:
        with Folder(out.parent) as place:
            there = resume and journal.exists()
            lines = _lines(journal) if there else []
            rows = _rows(journal, lines, config)
            _refuse_other_versions(journal, lines, allow_inexact)
            _refuse_other_units(journal, lines, rows, units)
            if journal.exists() and not resume:
                raise RecollectError(f"cannot write {journal}: it is there already")
            if there:  # what a crash left of a last line goes
                place.replace(journal.name, b"".join(lines))

            def write(content: dict[str, Any]) -> None:
                place.append(journal.name, encode(content, str(journal)))
                place.flush(journal.name)

            write({"config": config, "jobs": jobs, "versions": versions()})
            return _do(units, rows, write, say, jobs, executor)
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(
            f"what was done is in {journal}; the same command with --resume does the rest"
        ) from error
    finally:
        lock.release()


def _do(
    units: Units, rows: dict[str, Any], write: Callable, say: Say, jobs: int, executor: Executor | None
) -> tuple[dict, dict]:
    errors = {}
    for name in units:
        if name in rows:
            say(f"{name}: there already")
    missing = {name: work for name, work in units.items() if name not in rows}

    def again(name: str, attempt: int, error: Exception) -> bool:
        """Whether a unit that failed is tried once more; the attempt is then a line of its own."""
        if attempt < ATTEMPTS:
            write({"attempt": attempt, "at": name, "error": _described(error)})
            say(f"{name}: {_described(error)}; again, attempt {attempt + 1} of {ATTEMPTS}")
        return attempt < ATTEMPTS

    outcomes = _outcomes(missing, jobs, executor, say, again)
    with contextlib.closing(outcomes):
        for name, found, worker in outcomes:
            if isinstance(found, Exception):
                errors[name] = _described(found)
                outcome = {"unit": name, "error": errors[name], "attempts": ATTEMPTS}
            else:
                rows[name] = plain(found)
                outcome = {"unit": name, "row": rows[name], "sha256": _sum(name, rows[name])}
            write(outcome)
            say(f"{name}: {errors[name] if name in errors else _brief(rows[name])}{worker and f' [{worker}]'}")
    return {name: rows[name] for name in units if name in rows}, errors


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _outcomes(
    units: Units, jobs: int, executor: Executor | None, say: Say, again: Again
) -> Generator[tuple[str, Any, str]]:
    """The name of each unit, what came of it, and who did it, as they end."""
    if executor is not None:
        say(f"{len(units)} units on {executor.describe()}")
        yield from _with(executor, units, again)
    elif min(jobs, len(units)) <= 1:
        yield from _here(units, again)
    else:
        own = Processes(min(jobs, len(units)))
        try:
            yield from _with(own, units, again)
        finally:
            own.close()


def _here(units: Units, again: Again) -> Generator[tuple[str, Any, str]]:
    for name, work in units.items():
        for attempt in itertools.count(1):
            try:
                found = work()
            except Exception as error:  # whatever it is, it is this unit's alone
                found = error
                if again(name, attempt, error):
                    continue
            yield name, found, ""
            break


def _with(executor: Executor, units: Units, again: Again) -> Generator[tuple[str, Any, str]]:
    """As they end. Twice as many units as workers are under way, so that none waits for the next to be sent."""
    waiting = [(name, 1) for name in reversed(list(units))]
    under_way: dict[concurrent.futures.Future[Any], tuple[str, int]] = {}
    try:
        while waiting or under_way:
            while waiting and len(under_way) < 2 * executor.workers:
                name, attempt = waiting.pop()
                under_way[executor.submit(units[name])] = name, attempt
            ended, _ = concurrent.futures.wait(under_way, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in ended:
                name, attempt = under_way.pop(future)
                error = future.exception()
                if isinstance(error, VersionsDifferError) or (error is not None and not isinstance(error, Exception)):
                    raise error
                if error is not None and again(name, attempt, error):
                    waiting.append((name, attempt + 1))
                elif error is not None:
                    yield name, error, ""
                else:
                    yield name, future.result().found, future.result().worker
    finally:
        for future in under_way:
            future.cancel()


def _refuse_other_units(journal: Path, lines: Sequence[bytes], rows: Mapping[str, Any], units: Units) -> None:
    """Refuse to do again, under other names, what has its rows already: how finely work is shared out may differ."""
    if unknown := [name for name in rows if name not in units]:
        jobs = json.loads(lines[0]).get("jobs", "as before")  # of releases that did not write it down
        raise RecollectError(
            f"{journal} has rows of {len(unknown)} units that are none of these, such as {unknown[0]!r}: the work was "
            f"shared out in another way; --jobs {jobs} continues it"
        )


def made_by(lines: Sequence[bytes]) -> list[dict[str, str]]:
    """The versions that made the rows of a journal, each once, in the order of its lines."""
    found, now = [], {}
    for line in map(json.loads, lines):
        if "config" in line:
            now = line["versions"] if isinstance(line.get("versions"), dict) else {}
        elif "row" in line and now not in found:
            found.append(now)
    return found


def _refuse_other_versions(journal: Path, lines: Sequence[bytes], allow_inexact: bool) -> None:
    """Refuse to put rows beside others that were made under versions which decide their bits."""
    now, wrong = versions(), []
    for was in made_by(lines):
        wrong += differences(*({name: v.get(name) for name in BITS_DEPEND_ON} for v in (was, now)))
    if wrong and not allow_inexact:
        raise RecollectError(
            f"the rows in {journal} were made under other versions: {'; '.join(dict.fromkeys(wrong))}; "
            "--allow-inexact goes on nevertheless and writes all versions in the report"
        )


def _brief(row: Any) -> str:
    """An outcome on one line: its numbers and words, or how many rows it is."""
    if not isinstance(row, dict):
        return f"{len(row)} rows" if isinstance(row, list) else str(row)
    return ", ".join(f"{name} {value}" for name, value in row.items() if isinstance(value, (int, float, str)))


def _lines(journal: Path) -> list[bytes]:
    """The complete lines of a journal; a file that has none is one only if it begins as a journal does."""
    lines = files.read_lines(journal)
    start = b"" if lines else files.read(journal, files.LARGEST_LINES)
    if start and not start.startswith(b'{"config"'):
        raise FileError(f"{journal} is not the journal of a report")
    return lines


def _rows(journal: Path, lines: list[bytes], config: dict[str, Any]) -> dict[str, Any]:
    """The row of each unit. Each has its sum, but for those that come before any has: of releases without sums."""
    rows: dict[str, Any] = {}
    summed = False
    for number, line in enumerate(lines, 1):
        try:
            found = json.loads(line)
            if number == 1:
                refuse_changes(found["config"], config, str(journal), ())
            elif "row" in found:
                name, rows[name] = found["unit"], found["row"]
                summed = summed or "sha256" in found
                if summed and found["sha256"] != _sum(name, rows[name]):
                    raise FileError(f"{journal} is damaged: line {number} is not as it was written")
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise FileError(f"{journal} is damaged: line {number} is not a line of a sweep") from error
    return rows


def _sum(name: str, row: Any) -> str:
    """What tells whether a row is as it was written."""
    return hashlib.sha256(encode([name, row], "a row")).hexdigest()[:16]
