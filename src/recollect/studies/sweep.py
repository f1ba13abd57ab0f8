"""Many runs, one after another or some at a time, none of which can take the others with it.

Each unit's outcome, a row or an error, is a line of ``OUT.rows.jsonl`` as soon as it is known. Resuming reads the lines
and does what has no row yet: what failed, what was under way and what had not begun.
"""

import concurrent.futures
import contextlib
import json
import multiprocessing
import os
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

from recollect.errors import FileError, RecollectError
from recollect.store import files
from recollect.store.lock import Lock
from recollect.store.provenance import plain, versions
from recollect.store.run_folders import refuse_changes

Say = Callable[[str], None]
Units = Mapping[str, Callable[[], Any]]


def journal_of(out: Path) -> Path:
    """Where the rows of a report are kept until it is complete, and after."""
    return out.with_name(f"{out.name}.rows.jsonl")


def run_all(
    units: Units,
    config: dict[str, Any],
    out: Path | None = None,
    *,
    resume: bool = False,
    say: Say = lambda text: None,
    jobs: int = 1,
) -> tuple[dict[str, Any], dict[str, str]]:
    """The row of every unit and the error of each that failed, by name, in the order of ``units``.

    Args:
        units: what is to be done, by name.
        config: what all of it depends on; resuming under another is refused, field by field.
        out: where the report will be; its rows are kept beside it. None keeps nothing.
        resume: take over the rows that are there already.
        say: told of every outcome.
        jobs: units that run at once, each in a process of its own; with 1 they run in this one. What runs in processes
            must be a function that can be sent there, with its arguments.
    """
    if out is None:
        return _do(units, {}, None, say, jobs)
    journal = journal_of(out)
    lock = Lock(out.parent, name=f"{out.name}.lock")
    try:
        rows = _read(journal, config) if resume and journal.exists() else {}
        with open(journal, "ab" if resume else "xb", buffering=0) as lines:
            os.truncate(journal, _whole(journal))
            _write(lines, {"config": config, "versions": versions()})
            return _do(units, rows, lines, say, jobs)
    except OSError as error:
        raise RecollectError(f"cannot write {journal}: {error.strerror}") from error
    finally:
        lock.release()


def _do(units: Units, rows: dict[str, Any], lines: Any, say: Say, jobs: int) -> tuple[dict, dict]:
    errors = {}
    for name in units:
        if name in rows:
            say(f"{name}: there already")
    missing = {name: work for name, work in units.items() if name not in rows}
    outcomes = _here(missing) if min(jobs, len(missing)) <= 1 else _in_processes(missing, jobs)
    with contextlib.closing(outcomes):
        for name, found in outcomes:
            if isinstance(found, Exception):
                errors[name] = f"{type(found).__name__}: {found}"
                outcome = {"unit": name, "error": errors[name]}
            else:
                rows[name] = plain(found)
                outcome = {"unit": name, "row": rows[name]}
            say(f"{name}: {errors[name] if name in errors else _brief(rows[name])}")
            if lines is not None:
                _write(lines, outcome)
    return {name: rows[name] for name in units if name in rows}, errors


def _here(units: Units) -> Generator[tuple[str, Any]]:
    for name, work in units.items():
        try:
            found = work()
        except Exception as error:  # whatever it is, it is this unit's alone
            found = error
        yield name, found


def _in_processes(units: Units, jobs: int) -> Generator[tuple[str, Any]]:
    """As they end. However this ends, no process is left behind."""
    fresh = multiprocessing.get_context("spawn")  # what JAX has started in this process does not survive a fork
    pool = concurrent.futures.ProcessPoolExecutor(min(jobs, len(units)), fresh)
    try:
        names = {pool.submit(work): name for name, work in units.items()}
        for future in concurrent.futures.as_completed(names):
            error = future.exception()
            if error is not None and not isinstance(error, Exception):
                raise error
            yield names[future], error or future.result()
    finally:
        at_work = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in at_work:
            process.terminate()
        for process in at_work:
            process.join()


def _brief(row: Any) -> str:
    """An outcome on one line: its numbers and words, or how many rows it is."""
    if not isinstance(row, dict):
        return f"{len(row)} rows" if isinstance(row, list) else str(row)
    return ", ".join(f"{name} {value}" for name, value in row.items() if isinstance(value, (int, float, str)))


def _write(lines: Any, content: dict[str, Any]) -> None:
    lines.write(json.dumps(plain(content), allow_nan=False).encode() + b"\n")
    os.fsync(lines.fileno())


def _whole(journal: Path) -> int:
    """How many bytes of the journal are whole lines."""
    return files.read(journal, files.LARGEST_JSON).rfind(b"\n") + 1


def _read(journal: Path, config: dict[str, Any]) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    content = files.read(journal, files.LARGEST_JSON)
    for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), 1):
        try:
            found = json.loads(line)
            if number == 1:
                refuse_changes(found["config"], config, str(journal), ())
            elif "row" in found:
                rows[found["unit"]] = found["row"]
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise FileError(f"{journal} is damaged: line {number} is not a line of a sweep") from error
    return rows
