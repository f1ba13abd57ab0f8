"""``recollect sample``: an exact weighted sample of tables of any size."""

import argparse
import concurrent.futures
import glob
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from recollect._version import __version__
from recollect.cli.arguments import Commands, add_break_lock, add_on, count, multiple, names, seed
from recollect.cli.sample_checks import check, check_columns, check_schema
from recollect.cores import cores
from recollect.errors import RecollectError
from recollect.training.progress import Pace, say

EVERY = 2.0  # seconds between two lines of progress

NOTE = """\
The law: each set of n rows with probability proportional to the product of its weights. A row twice as heavy is not
drawn twice as often unless the sample is a small part of the table; the output says with what probability each row was.
For probabilities in proportion to a column use --pps, for given ones --inclusion."""


class _Progress:
    """Rows read, rows a second and what is left, on stderr every two seconds; its end stops the threads that read."""

    def __init__(self, rows: int | None):
        self.rows, self.read, self._due = rows, 0, Pace(EVERY)
        self.stop, self._lock = threading.Event(), threading.Lock()

    def tell(self, rows: int) -> None:
        if self.stop.is_set():
            raise RecollectError("stopped")
        with self._lock:
            self.read += rows
            if not self._due():
                return
        rate = self.read / (time.monotonic() - self._due.start)
        of = f" of {self.rows:,}" if self.rows else ""
        left = f", {max(0.0, (self.rows - self.read) / rate):.0f} s left" if self.rows else ""
        say(f"{self.read:,}{of} rows, {rate:,.0f} rows/s{left}")

    def say(self, stage: str, done: int, of: int) -> None:
        if self._due():
            say(f"{stage.split('-')[0]}: {done} of {of} pieces")


def _sample(args: argparse.Namespace) -> None:
    from recollect.reservoir.columns import pyarrow
    from recollect.store.lock import Lock

    pyarrow()
    check(args)
    if args.out is None:
        _draw_and_show(args)
        return
    lock = Lock(args.out.parent, name=f"{args.out.name}.lock", break_lock=args.break_lock)
    try:
        if os.path.lexists(args.out):  # a link too, whatever it leads to
            raise RecollectError(f"{args.out} exists already: choose another --out, or remove it")
        _draw_and_show(args)
    finally:
        lock.release()


def _draw_and_show(args: argparse.Namespace) -> None:
    from recollect.cli.sample_output import show
    from recollect.cli.sample_parts import Parts
    from recollect.reservoir import conditions, stages, tables, text

    column = next((name for name in (args.weight, args.inclusion, args.pps) if name is not None), None)
    select = tables.Select(column, () if args.where is None else conditions.conditions(args.where))
    is_text = args.out is None or tables.format_of(str(args.out)) in text.DELIMITERS
    options = stages.Options(select, args.bad or "stop", args.columns, is_text)
    if args.files == ["-"]:
        show(args, _from_stdin(args, options))
        return
    states = _states(_paths(args))
    parts = [piece for path in states for piece in tables.pieces_of(path, args.format)]
    check_columns(args, parts, select)
    if args.out is None:
        show(args, _from_files(args, options, parts, states, None))
        return
    kept = Parts(args.out, _plan(args, states), args.resume)
    try:
        show(args, _from_files(args, options, parts, states, kept))
        kept.remove()
    except stages.UnfitError:  # whatever mends it, it will be another sample
        kept.remove()
        raise
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(
            f"what was done is in {kept.path}; the same command with --resume does the rest"
        ) from error
    except Exception:
        if not kept.has_results:
            kept.remove()
        raise
    finally:
        kept.close()


def _paths(args: argparse.Namespace) -> list[str]:
    found = []
    for text in args.files:
        matching = [text] if os.path.exists(text) else sorted(glob.glob(text))
        if not matching:
            raise RecollectError(f"{text}: no such file")
        found += matching
    places: dict[tuple[int, int], str] = {}
    for path in found:
        state = os.stat(path)
        place = state.st_dev, state.st_ino  # the same through links of either kind
        if place in places:
            raise RecollectError(f"{path}: named twice, before as {places[place]}; rows would count twice")
        places[place] = path
    return found


def _from_files(args: argparse.Namespace, options: Any, parts: list[Any], states: dict[str, Any], kept: Any) -> Any:
    """The sample, of files that must not change meanwhile."""
    try:
        found = _drawn(args, options, parts, kept)
    except Exception as error:
        _refuse_changed(states, error)
        raise
    _refuse_changed(states)
    return found


def _drawn(args: argparse.Namespace, options: Any, parts: list[Any], kept: Any) -> Any:
    from recollect.reservoir import pieces, prescribed, scans

    sizes = [piece.rows for piece in parts]
    progress = _Progress(None if None in sizes else sum(sizes))
    common: dict[str, Any] = {"kept": kept, "say": progress.say}
    n, memory = args.n, int(args.memory * 2**30)
    if args.inclusion is not None or args.pps is not None:
        solved, cache, common["certain"], n = prescribed.solve(parts, options, n, memory, progress.tell)
        found = f"  weights found in {solved.iterations} steps, largest error {solved.error:.1e}"
        print(found, file=sys.stderr, flush=True)
    elif args.on == "local":
        cache = scans.Cache(memory)
    else:
        return _on_ray(args, parts, options, n, common)
    pool = concurrent.futures.ThreadPoolExecutor(args.jobs)
    try:
        return pieces.sample(parts, options, n, args.seed, pool.submit, cache=cache, tell=progress.tell, **common)
    finally:
        progress.stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


def _states(paths: list[str]) -> dict[str, list[int]]:
    """What tells a file from itself after a change: its size, and when it was last written to."""
    found = {path: os.stat(path) for path in paths}
    return {path: [state.st_size, state.st_mtime_ns] for path, state in found.items()}


def _refuse_changed(states: dict[str, list[int]], error: Exception | None = None) -> None:
    """Refuse a table of which some rows were read before a change and some after it; ``error``: what came of it."""
    from recollect.reservoir.stages import UnfitError

    for path, was in states.items():
        if os.path.exists(path) and _states([path])[path] != was:
            raise UnfitError(f"{path} changed while it was read: there is no one table to sample from") from error


def _on_ray(args: argparse.Namespace, parts: list[Any], options: Any, n: int, common: dict[str, Any]) -> Any:
    from recollect.reservoir import pieces
    from recollect.studies import executors

    parts = [piece._replace(path=os.path.abspath(piece.path)) for piece in parts]
    executor: Any = executors.make(args.on, args.jobs, check=False)

    def submit(work: Any, *arguments: Any, **more: Any) -> "concurrent.futures.Future[Any]":
        outer: concurrent.futures.Future[Any] = concurrent.futures.Future()
        _again(executor, 1, outer, work, arguments, more)
        return outer

    say(f"{len(parts)} pieces on {executor.describe()}")
    try:
        return pieces.sample(parts, options, n, args.seed, submit, **common)
    finally:
        executor.close()


def _again(executor: Any, attempt: int, outer: Any, work: Any, arguments: tuple, more: dict) -> None:
    """Start a stage of a piece; one whose worker was lost is started again, three times in all."""
    from recollect.studies.executors import WorkerLostError
    from recollect.studies.sweep import ATTEMPTS

    def over(future: Any) -> None:
        error = future.exception()
        if isinstance(error, WorkerLostError) and attempt < ATTEMPTS:
            _again(executor, attempt + 1, outer, work, arguments, more)
        elif error is not None:
            outer.set_exception(error)
        else:
            outer.set_result(future.result().found)

    executor.submit(work, *arguments, **more).add_done_callback(over)


def _plan(args: argparse.Namespace, states: dict[str, list[int]]) -> dict[str, Any]:
    """What a sample depends on: one that is resumed must agree in all of it."""
    found = {name: getattr(args, name) for name in ("weight", "uniform", "inclusion", "pps", "n", "seed", "where")}
    found |= {"bad": args.bad or "stop", "columns": args.columns, "format": args.format}
    return {"recollect": __version__, **found, "files": states}


def _from_stdin(args: argparse.Namespace, options: Any) -> Any:
    """One look at each row: what cannot be read again passes through a ``Reservoir``."""
    from recollect import Reservoir
    from recollect.reservoir import columns, counts, pieces, stages, tables, written

    if args.inclusion is not None or args.pps is not None or args.on != "local":
        raise RecollectError("standard input is read once, here: --inclusion, --pps and --on are for files")
    if args.resume:
        raise RecollectError("--resume: standard input cannot be read again")
    if args.format in (None, "parquet"):
        raise RecollectError("standard input: --format is one of csv, tsv, jsonl, arrow (Parquet is read from its end)")
    tables.format_of("standard input", args.format)
    pa = columns.pyarrow()
    piece, progress = tables.Piece("standard input", args.format), _Progress(None)
    r = Reservoir(args.n, seed=args.seed)
    totals = set() if args.total is None else {args.total}
    incoming = written.Incoming(piece, sys.stdin.buffer, options.select, args.columns, totals)
    rows = bad = population = 0
    drawn: list[Any] = []
    for looked_at, batch in incoming:
        if not drawn:
            check_schema(args, incoming.schema, piece, options.select)
            drawn = [pa.Table.from_batches([batch]).schema.empty_table()]
        weights = tables.weights_of(looked_at, options.select).copy()
        bad += stages.cleaned(weights, piece, options, rows)
        rows += len(weights)
        population += counts.positives(weights)[0]
        if len(weights):
            r.extend(tables.Slices(pa.Table.from_batches([batch])), weights)
        progress.tell(len(weights))
    p = r.inclusion_probabilities()
    drawn = r.items if len(r) else drawn
    table = pa.table({})
    if drawn:
        parts = [(piece, pa.concat_tables(drawn, promote_options="permissive"))]
        table = written.joined_with(parts, incoming.head, args.columns, options.as_written)
    table = columns.with_probabilities(table, p)
    return pieces.Sample(table, p, r.log_weights, rows, bad, population, counts.NOTHING, 0.0)


def _level(text: str) -> float:
    number = multiple(text)
    if number >= 1.0:
        raise argparse.ArgumentTypeError(f"{text!r}: must be below 1, such as 0.95")
    return number


def register(commands: Commands) -> None:
    """Add ``sample``."""
    sample = commands.add_parser(
        "sample",
        help="an exact weighted sample of tables of any size",
        epilog=NOTE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sample.add_argument(
        "files", nargs="+", metavar="FILE", help="Parquet, Arrow IPC, CSV, TSV, JSON lines; - is standard input"
    )
    sample.add_argument("--weight", metavar="COLUMN", help="weight of each row: 0 or a positive number")
    sample.add_argument("--uniform", action="store_true", help="all rows weigh the same")
    sample.add_argument(
        "--inclusion", metavar="COLUMN", help="probability of each row to be in the sample, instead; sums to its size"
    )
    sample.add_argument(
        "--pps", metavar="COLUMN", help="probabilities in proportion to that column, at most 1, instead of weights"
    )
    sample.add_argument("-n", type=count, help="rows of the sample")
    sample.add_argument("--out", type=Path, help="file to write, by its ending; default: CSV to standard output")
    sample.add_argument("--columns", type=names, help="comma-separated: columns of the output (default: all)")
    sample.add_argument("--where", metavar="CONDITION", help="'COLUMN OP VALUE [and ...]': sample among these rows")
    sample.add_argument(
        "--bad",
        choices=("stop", "skip", "zero"),
        help="rows whose weight is missing, negative or infinite: stop (default), or pass over and count them",
    )
    sample.add_argument("--total", metavar="COLUMN", help="estimate the sum of a column over all rows")
    sample.add_argument("--by", metavar="COLUMN", help="and over each group of rows")
    sample.add_argument("--level", type=_level, help="of the intervals of --total (default: 0.95)")
    sample.add_argument("--seed", type=seed, default=0, help="one seed, one sample (default: 0)")
    sample.add_argument("--jobs", type=count, default=cores(), help="threads (default: one per core); same sample")
    sample.add_argument(
        "--memory", type=multiple, default=1.0, metavar="GIB", help="for weights kept between two looks (default: 1)"
    )
    sample.add_argument("--format", help="of the files, where their endings do not tell")
    sample.add_argument("--resume", action="store_true", help="continue an interrupted sample: read what is missing")
    add_break_lock(sample)
    add_on(sample)
    sample.set_defaults(run=_sample)
