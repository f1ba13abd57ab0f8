"""What is done with one piece of a table, by any worker: it is surveyed, counted and drawn from.

Nothing but numbers is passed between the stages (``pieces`` has what they are for). What counting found out (``scans``)
stays in memory for the drawing while it fits the ``Cache``; where it does not, or where another machine does the next
stage, the weights are read again.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from recollect.errors import RecollectError
from recollect.reservoir import counts, tables, written
from recollect.reservoir.columns import pyarrow
from recollect.reservoir.random import seeded
from recollect.reservoir.scans import Cache, Scan, Scanned
from recollect.reservoir.tables import Piece, Select

CHUNK = tables.BATCH  # rows that are in memory together where weights are not kept
LITTLE = 1 << 26  # bytes that a worker without a cache may hold while it draws from a piece
PILOT = 16_384  # rows of a piece that are looked at beforehand
ALL = -1  # instead of a number of rows to draw from a piece

Arrays = dict[str, np.ndarray]
Tell = Callable[[int], None]  # of rows that were read; what it raises ends the reading


def silent(rows: int) -> None:
    """Nobody is told."""


class UnfitError(RecollectError):
    """The rows cannot be sampled as they are: what was found out about them so far will not be of use."""


class Options(NamedTuple):
    """What a sample depends on besides the rows."""

    select: Select
    bad: str = "stop"  # or skip, zero: what to do with a row whose weight is missing, negative or not finite
    columns: tuple[str, ...] | None = None  # of the output; None: all
    as_written: bool = False  # leave values of CSV and TSV as they are written: the output is text as well


def chunks(piece: Piece, options: Options, cache: Cache | None, tell: Tell = silent) -> Iterator[np.ndarray]:
    """The weights of a piece in runs of ``CHUNK`` rows, however its batches were cut."""
    kept = None if cache is None else cache.weights.get(piece)
    if kept:
        for own in kept:
            tell(0)
            yield own
        return
    chunk, filled = np.empty(CHUNK), 0
    for batch in tables.batches(piece, options.select.columns, options.select):
        weights = tables.weights_of(batch, options.select)
        while len(weights):
            if not filled and len(weights) >= CHUNK:  # as in most batches: no copy
                tell(CHUNK)
                yield weights[:CHUNK]
                weights = weights[CHUNK:]
                continue
            taken = min(CHUNK - filled, len(weights))
            chunk[filled : filled + taken] = weights[:taken]
            weights, filled = weights[taken:], filled + taken
            tell(taken)
            if filled == CHUNK:
                yield chunk
                chunk, filled = np.empty(CHUNK), 0
    if filled:
        yield chunk[:filled].copy()


def told(weights: np.ndarray, at: int, piece: Piece, row: int, column: str | None) -> str:
    """File, row, column and value of one of the weights that begin at a row of a piece."""
    what = "missing or not a number" if math.isnan(weights[at]) else str(weights[at])
    return f"{piece.path}, row {piece.first_row + row + at} (counted from 0): {column} is {what}"


def cleaned(weights: np.ndarray, piece: Piece, options: Options, row: int) -> int:
    """Set weights that are none to 0, in place, and say how many; under ``bad="stop"`` the first is an error."""
    with np.errstate(invalid="ignore"):
        wrong = np.flatnonzero(~((weights >= 0.0) & (weights < math.inf)))
    if len(wrong) and options.bad == "stop":
        raise UnfitError(
            f"{told(weights, int(wrong[0]), piece, row, options.select.weight)}; 0 and finite positive numbers are "
            "weights, --bad skip or --bad zero passes over others"
        )
    weights[wrong] = 0.0
    return len(wrong)


# -- the stages


def pilot(piece: Piece, options: Options) -> Arrays:
    """The tally of a piece's first rows, as if all were like them: enough to guess θ before the survey."""
    bins = np.zeros(counts.BINS, np.int64)
    batch = next(tables.batches(piece, options.select.columns, options.select, rows=PILOT), None)
    chunk = np.zeros(0) if batch is None else tables.weights_of(batch, options.select)
    if counts.positives(chunk)[0] < len(chunk):
        chunk = np.where((chunk > 0.0) & (chunk < math.inf), chunk, 0.0)
    counts.tally(chunk, bins, 1)
    return {**_not_empty(bins), "share": np.array([len(chunk), piece.rows])}


def _not_empty(bins: np.ndarray) -> Arrays:
    """A tally as the bins that hold anything, and what they hold."""
    places = np.flatnonzero(bins > 0)  # of truths, an eighth of the time
    return {"places": places, "numbers": bins[places]}


def survey(
    piece: Piece,
    options: Options,
    log_theta: float | None = None,
    block: int = 0,
    seed: Sequence[int] = (),
    cache: Cache | None = None,
    tell: Tell = silent,
) -> Arrays:
    """How many rows a piece has, how many of them bad and how many of positive weight, and the tally of weights.

    With a guess of θ the piece is counted on the way: the vector is in the result as well.
    """
    bins = np.zeros(counts.BINS, np.int64)
    rows = bad = population = 0
    scanned = None if log_theta is None else Scanned(piece, log_theta, block, seed, cache)
    offer = cache is not None and scanned is None and not cache.weights.get(piece)  # what is there already stays
    for chunk in chunks(piece, options, cache, tell):
        positive = -1 if scanned is None else scanned.add(chunk)
        if positive < 0:
            positive, valid = counts.positives(chunk)
            if valid < len(chunk):
                chunk = chunk.copy()  # it may be memory of pyarrow's
                bad += cleaned(chunk, piece, options, rows)
                positive = counts.positives(chunk)[0]
            if scanned is not None:
                scanned.add(chunk)
        counts.tally(chunk, bins, max(1, len(chunk) // (16 * counts.GROUP)))  # of a whole chunk, 16 groups
        rows += len(chunk)
        population += positive
        if cache is not None and offer:
            cache.offer(piece, chunk)
    found = {"rows": np.array([rows, bad, population]), **_not_empty(bins)}
    return found if scanned is None else found | scanned.vector()


def _clean_chunks(piece: Piece, options: Options, cache: Cache | None, tell: Tell) -> Iterator[np.ndarray]:
    """The weights as ``survey`` saw them: bad ones, which it may have passed over, are 0."""
    cached, row = cache is not None and bool(cache.weights.get(piece)), 0
    for chunk in chunks(piece, options, cache, tell):
        if options.bad != "stop" and not cached:
            chunk = chunk.copy()
            cleaned(chunk, piece, options, row)
        row += len(chunk)
        yield chunk


def count(
    piece: Piece,
    options: Options,
    log_theta: float,
    block: int,
    seed: Sequence[int],
    cache: Cache | None = None,
    tell: Tell = silent,
) -> Arrays:
    """The vector of a piece."""
    scanned = Scanned(piece, log_theta, block, seed, cache)
    for chunk in _clean_chunks(piece, options, cache, tell):
        scanned.add(chunk)
    return scanned.vector()


def draw(
    piece: Piece,
    options: Options,
    log_theta: float,
    block: int,
    seed: Sequence[int],
    k: int,
    certain: np.ndarray | None = None,
    cache: Cache | None = None,
    tell: Tell = silent,
) -> Arrays:
    """The rows of a piece that belong to the sample: k drawn ones, or all of positive weight, and those certain."""
    if k == ALL:
        here, chosen = _all_positive(piece, options, cache, tell)
    elif k:
        here, chosen = _drawn(piece, options, log_theta, block, seed, k, cache, tell)
    else:
        here, chosen = np.zeros(0, np.int64), np.zeros(0)
    if certain is None and tables.holds_only(piece, options.select.weight, options.columns):
        return {"positions": here, "weights": chosen}  # the rows are their weights: all is known
    if certain is not None:
        here, chosen = np.append(here, certain), np.append(chosen, np.full(len(certain), math.inf))
        order = np.argsort(here)
        here, chosen = here[order], chosen[order]
    return {"positions": here, "weights": chosen, "table": to_bytes(rows_at(piece, here, options, tell))}


Found = tuple[np.ndarray, np.ndarray]  # positions in the piece, weights


def _all_positive(piece: Piece, options: Options, cache: Cache | None, tell: Tell) -> Found:
    positions, weights, row = [np.zeros(0, np.int64)], [np.zeros(0)], 0
    for chunk in _clean_chunks(piece, options, cache, tell):
        found = np.flatnonzero(chunk)
        positions.append(row + found)
        weights.append(chunk[found])
        row += len(chunk)
    return np.concatenate(positions), np.concatenate(weights)


def _drawn(
    piece: Piece,
    options: Options,
    log_theta: float,
    block: int,
    seed: Sequence[int],
    k: int,
    cache: Cache | None,
    tell: Tell,
) -> Found:
    """Draw k rows of a piece: from what its scan drew beforehand, and where that does not do from its weights."""
    cache = Cache(LITTLE) if cache is None else cache
    known, rng = cache.known.get(piece), seeded([*seed, 1])
    if known is None or known.log_theta != log_theta:
        again = Scanned(piece, log_theta, block, seed, cache, keep=True)
        for chunk in _clean_chunks(piece, options, cache, tell):
            again.add(chunk)
        known = again.known()
    scanned, shares = known.scans, known.tree.share_out(k, rng)
    found: dict[tuple[int, int], Found] = {}
    left: dict[tuple[int, int], int] = {}
    for place, scan in enumerate(scanned):
        for at, share in enumerate(scan.tree.share_out(shares[place], rng)) if shares[place] else ():
            rows = scan.blocks[at].rows(share) if share else None
            if rows is not None:
                found[place, at] = rows
            elif share:
                left[place, at] = share
    for (place, at), weights in _weights_of_blocks(piece, options, block, scanned, list(left), cache, tell):
        tell(0)
        chosen = counts.draw(weights, scanned[place].tree.levels[0][at], log_theta, left[place, at], rng)
        found[place, at] = chosen, weights[chosen]
    order = sorted(found)
    return (
        np.concatenate([place * CHUNK + at * block + found[place, at][0] for place, at in order]),
        np.concatenate([found[key][1] for key in order]),
    )


def _weights_of_blocks(
    piece: Piece,
    options: Options,
    block: int,
    scanned: list[Scan],
    wanted: list[tuple[int, int]],
    cache: Cache,
    tell: Tell,
) -> Iterator[tuple[tuple[int, int], np.ndarray]]:
    """The weights of some blocks of a piece, in order, read again where one of them was not kept."""
    kept = {(place, at): scanned[place].blocks[at].kept for place, at in wanted}
    if all(weights is not None for weights in kept.values()):
        yield from ((key, weights) for key, weights in kept.items() if weights is not None)
        return
    for place, chunk in enumerate(_clean_chunks(piece, options, cache, tell)):
        for own, at in wanted:
            if own == place:
                yield (place, at), chunk[at * block : (at + 1) * block]


def rows_at(piece: Piece, positions: np.ndarray, options: Options, tell: Tell = silent) -> Any:
    """These rows of a piece, counted from its first, as a table."""
    pa = pyarrow()
    columns = None if options.columns is None else list(options.columns)
    found, row, schema = [], 0, None
    for part in _parts_with_rows(piece, positions, columns):
        tell(0)
        if isinstance(part, int):
            row += part
            continue
        schema = part.schema
        low, high = np.searchsorted(positions, [row, row + part.num_rows])
        if high > low:
            found.append(pa.Table.from_batches([part]).take(pa.array(positions[low:high] - row)))
        row += part.num_rows
        if high == len(positions):
            break
    if found:
        return pa.concat_tables(found)
    return pa.table({}) if schema is None else schema.empty_table()


def _parts_with_rows(piece: Piece, positions: np.ndarray, columns: list[str] | None) -> Iterator[Any]:
    """The batches of a piece; of a Parquet file only the groups that hold one of the rows, else how many rows."""
    if not len(positions):
        return
    if piece.format != "parquet":
        yield from (written.rows if piece.format in written.FORMATS else tables.batches)(piece, columns)
        return
    start, end = piece.groups or (0, 0)
    row = 0
    sizes = tables.group_sizes(piece)
    for group in range(start, end):
        low, high = np.searchsorted(positions, [row, row + sizes[group]])
        if high > low:
            yield from tables.batches(piece._replace(groups=(group, group + 1)), columns)
        else:
            yield int(sizes[group])
        row += sizes[group]


def table_of(drawn: Arrays, weight: str | None) -> Any:
    """The rows that ``draw`` found."""
    pa = pyarrow()
    if "table" not in drawn:
        return pa.table({weight: drawn["weights"]})
    return pa.ipc.open_stream(pa.py_buffer(drawn["table"])).read_all()


def to_bytes(table: Any) -> np.ndarray:
    """A table as the bytes of Arrow's streaming format."""
    pa = pyarrow()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return np.frombuffer(sink.getvalue(), np.uint8)
