"""An exact sample of tables that lie in many files: every piece is surveyed, then counted, then drawn from.

Three stages, each a function of one piece that any worker can do, with numbers alone passed between them:

1. ``survey`` reads the weights once and tallies them by size: that fixes θ, the scale of ``counts``;
2. ``count`` gives the vector of the piece; of large pieces ``survey`` does it on the way, at a θ that their first rows
   suggest (``pilot``) and that serves unless they were unlike the rest. The vectors of all pieces are joined in a tree
   of fixed shape, and down that tree the n places of the sample are shared out;
3. ``draw`` shares the places of the piece out further, to blocks and to rows, and reads the rows that were drawn.

Every piece draws with a seed made of the seed and its place, so the sample is the same whoever did which piece, in
whatever order. What counting found out (``scans``) stays in memory for the drawing while it fits the ``Cache``; where
it does not, or where another machine does the next stage, the weights are read again.
"""

import concurrent.futures
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from recollect.errors import RecollectError
from recollect.reservoir import counts, estimates, ratios, tables
from recollect.reservoir.counts import Counts, Tree
from recollect.reservoir.random import seeded
from recollect.reservoir.scans import Cache as Cache
from recollect.reservoir.scans import Scan, Scanned
from recollect.reservoir.tables import PROBABILITY as PROBABILITY
from recollect.reservoir.tables import WEIGHT as WEIGHT
from recollect.reservoir.tables import Piece, Select

CHUNK = tables.BATCH  # rows that are in memory together where weights are not kept
LEAST_BLOCK, LARGEST_BLOCK = 9, 17  # as powers of 2: rows of a block, the smallest part that has a vector
ATTEMPTS = 40  # at a scale of the weights at which n rows are likely; one is the rule
LITTLE = 1 << 26  # bytes that a worker without a cache may hold while it draws from a piece
FEW = 8  # chunks of a piece, on average, from which on the first of them is read beforehand
PILOT = 16_384  # rows of a piece that are looked at beforehand
ALL = -1  # instead of a number of rows to draw from a piece

Arrays = dict[str, np.ndarray]
Tell = Callable[[int], None]


class UnfitError(RecollectError):
    """The rows cannot be sampled as they are: what was found out about them so far will not be of use."""


class Options(NamedTuple):
    """What a sample depends on besides the rows."""

    select: Select
    bad: str = "stop"  # or skip, zero: what to do with a row whose weight is missing, negative or not finite
    columns: tuple[str, ...] | None = None  # of the output; None: all


def chunks(piece: Piece, options: Options, cache: Cache | None, tell: Tell = lambda rows: None) -> Iterator[np.ndarray]:
    """The weights of a piece in runs of ``CHUNK`` rows, however its batches were cut."""
    if cache is not None and cache.weights.get(piece):
        yield from cache.weights[piece]
        return
    chunk, filled = np.empty(CHUNK), 0
    for batch in tables.batches(piece, options.select.columns, options.select.weight):
        weights = tables.weights_of(batch, options.select)
        while len(weights):
            if not filled and len(weights) == CHUNK:  # as most batches are: no copy
                tell(CHUNK)
                yield weights
                break
            taken = min(CHUNK - filled, len(weights))
            chunk[filled : filled + taken] = weights[:taken]
            weights, filled = weights[taken:], filled + taken
            tell(taken)
            if filled == CHUNK:
                yield chunk
                chunk, filled = np.empty(CHUNK), 0
    if filled:
        yield chunk[:filled].copy()


def cleaned(weights: np.ndarray, piece: Piece, options: Options, row: int) -> int:
    """Set weights that are none to 0, in place, and say how many; under ``bad="stop"`` the first is an error."""
    with np.errstate(invalid="ignore"):
        wrong = np.flatnonzero(~((weights >= 0.0) & (weights < math.inf)))
    if len(wrong) and options.bad == "stop":
        value = weights[wrong[0]]
        what = "missing or not a number" if math.isnan(value) else str(value)
        raise UnfitError(
            f"{piece.path}, row {piece.first_row + row + int(wrong[0])} (counted from 0): {options.select.weight} is "
            f"{what}; 0 and finite positive numbers are weights, --bad skip or --bad zero passes over others"
        )
    weights[wrong] = 0.0
    return len(wrong)


# -- the stages


def pilot(piece: Piece, options: Options) -> Arrays:
    """The tally of a piece's first rows, as if all were like them: enough to guess θ before the survey."""
    bins = np.zeros(counts.BINS, np.int64)
    batch = next(tables.batches(piece, options.select.columns, options.select.weight, rows=PILOT), None)
    chunk = np.zeros(0) if batch is None else tables.weights_of(batch, options.select)
    if counts.positives(chunk)[0] < len(chunk):
        chunk = np.where((chunk > 0.0) & (chunk < math.inf), chunk, 0.0)
    counts.tally(chunk, bins, 1)
    places = np.flatnonzero(bins)
    return {"places": places, "numbers": bins[places], "share": np.array([len(chunk), piece.rows])}


def survey(
    piece: Piece,
    options: Options,
    log_theta: float | None = None,
    block: int = 0,
    seed: Sequence[int] = (),
    cache: Cache | None = None,
    tell: Tell = lambda rows: None,
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
    places = np.flatnonzero(bins)
    found = {"rows": np.array([rows, bad, population]), "places": places, "numbers": bins[places]}
    return found if scanned is None else found | scanned.vector()


def _clean_chunks(piece: Piece, options: Options, cache: Cache | None) -> Iterator[np.ndarray]:
    """The weights as ``survey`` saw them: bad ones, which it may have passed over, are 0."""
    cached, row = cache is not None and bool(cache.weights.get(piece)), 0
    for chunk in chunks(piece, options, cache):
        if options.bad != "stop" and not cached:
            chunk = chunk.copy()
            cleaned(chunk, piece, options, row)
        row += len(chunk)
        yield chunk


def count(
    piece: Piece, options: Options, log_theta: float, block: int, seed: Sequence[int], cache: Cache | None = None
) -> Arrays:
    """The vector of a piece."""
    scanned = Scanned(piece, log_theta, block, seed, cache)
    for chunk in _clean_chunks(piece, options, cache):
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
) -> Arrays:
    """The rows of a piece that belong to the sample: k drawn ones, or all of positive weight, and those certain."""
    if k == ALL:
        here, chosen = _all_positive(piece, options, cache)
    elif k:
        here, chosen = _drawn(piece, options, log_theta, block, seed, k, cache)
    else:
        here, chosen = np.zeros(0, np.int64), np.zeros(0)
    if certain is None and tables.holds_only(piece, options.select.weight, options.columns):
        table = tables.pyarrow().table({options.select.weight: chosen})  # the rows are their weights: all is known
        return {"positions": here, "weights": chosen, "table": to_bytes(table)}
    if certain is not None:
        here, chosen = np.append(here, certain), np.append(chosen, np.full(len(certain), math.inf))
        order = np.argsort(here)
        here, chosen = here[order], chosen[order]
    return {"positions": here, "weights": chosen, "table": to_bytes(rows_at(piece, here, options))}


Found = tuple[np.ndarray, np.ndarray]  # positions in the piece, weights


def _all_positive(piece: Piece, options: Options, cache: Cache | None) -> Found:
    positions, weights, row = [np.zeros(0, np.int64)], [np.zeros(0)], 0
    for chunk in _clean_chunks(piece, options, cache):
        found = np.flatnonzero(chunk)
        positions.append(row + found)
        weights.append(chunk[found])
        row += len(chunk)
    return np.concatenate(positions), np.concatenate(weights)


def _drawn(
    piece: Piece, options: Options, log_theta: float, block: int, seed: Sequence[int], k: int, cache: Cache | None
) -> Found:
    """Draw k rows of a piece: from what its scan drew beforehand, and where that does not do from its weights."""
    cache = Cache(LITTLE) if cache is None else cache
    known, rng = cache.scans.get(piece), seeded([*seed, 1])
    if known is None or known[0] != log_theta:
        again = Scanned(piece, log_theta, block, seed, cache, keep=True)
        for chunk in _clean_chunks(piece, options, cache):
            again.add(chunk)
        known = log_theta, again.scans or []
    scanned: list[Scan] = known[1]
    shares = Tree([scan.tree.root for scan in scanned]).share_out(k, rng)
    found: dict[tuple[int, int], Found] = {}
    left: dict[tuple[int, int], int] = {}
    for place, scan in enumerate(scanned):
        for at, share in enumerate(scan.tree.share_out(shares[place], rng)) if shares[place] else ():
            rows = scan.blocks[at].rows(share) if share else None
            if rows is not None:
                found[place, at] = rows
            elif share:
                left[place, at] = share
    for (place, at), weights in _weights_of_blocks(piece, options, block, scanned, list(left), cache):
        chosen = counts.draw(weights, scanned[place].tree.levels[0][at], log_theta, left[place, at], rng)
        found[place, at] = chosen, weights[chosen]
    order = sorted(found)
    return (
        np.concatenate([place * CHUNK + at * block + found[place, at][0] for place, at in order]),
        np.concatenate([found[key][1] for key in order]),
    )


def _weights_of_blocks(
    piece: Piece, options: Options, block: int, scanned: list[Scan], wanted: list[tuple[int, int]], cache: Cache
) -> Iterator[tuple[tuple[int, int], np.ndarray]]:
    """The weights of some blocks of a piece, in order, read again where one of them was not kept."""
    kept = {(place, at): scanned[place].blocks[at].kept for place, at in wanted}
    if all(weights is not None for weights in kept.values()):
        yield from ((key, weights) for key, weights in kept.items() if weights is not None)
        return
    for place, chunk in enumerate(_clean_chunks(piece, options, cache)):
        for own, at in wanted:
            if own == place:
                yield (place, at), chunk[at * block : (at + 1) * block]


def rows_at(piece: Piece, positions: np.ndarray, options: Options) -> Any:
    """These rows of a piece, counted from its first, as a table."""
    pa = tables.pyarrow()
    columns = None if options.columns is None else list(options.columns)
    found, row, schema = [], 0, None
    for part in _parts_with_rows(piece, positions, columns, options.select.weight):
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


def _parts_with_rows(
    piece: Piece, positions: np.ndarray, columns: list[str] | None, weight: str | None
) -> Iterator[Any]:
    """The batches of a piece; of a Parquet file only the groups that hold one of the rows, else how many rows."""
    if not len(positions):
        return
    if piece.format != "parquet":
        yield from tables.batches(piece, columns, weight)
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


def to_bytes(table: Any) -> np.ndarray:
    """A table as the bytes of Arrow's streaming format."""
    pa = tables.pyarrow()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return np.frombuffer(sink.getvalue(), np.uint8)


# -- all of it


class Kept(Protocol):
    """Where results of stages are kept, so that an interrupted sample can be resumed."""

    def read(self, stage: str, at: int) -> Arrays | None:
        """What was kept, or None."""

    def write(self, stage: str, at: int, found: Arrays) -> None:
        """Keep it."""


class Sample(NamedTuple):
    """A sample: its rows with two further columns, and what they stand for."""

    table: Any
    probabilities: np.ndarray
    log_weights: np.ndarray
    rows: int
    bad: int
    population: int  # rows of positive weight
    whole: Counts
    log_theta: float

    def pairs(self) -> np.ndarray | None:
        """The probabilities of pairs of rows to be drawn together, where that is not too much work."""
        n = len(self.probabilities)
        if n > estimates.PAIRS or len(self.whole.mass) == 1 or np.isinf(self.log_weights).any():
            return None
        lg, first = counts.log_ratios(self.whole, self.log_theta)
        return ratios.joint_inclusion(lg, self.log_weights, n, n - first)


def sample(
    pieces: Sequence[Piece],
    options: Options,
    n: int,
    seed: int,
    submit: Callable[..., "concurrent.futures.Future[Any]"],
    *,
    cache: Cache | None = None,
    kept: Kept | None = None,
    say: Callable[[str, int, int], None] = lambda stage, done, of: None,
    tell: Tell | None = None,
    certain: dict[Piece, np.ndarray] | None = None,
) -> Sample:
    """Draw n rows of all pieces by the product law.

    Args:
        pieces: in the order of the stream.
        options: what the sample depends on.
        n: how many rows; with fewer of positive weight, all of those.
        seed: of the sample.
        submit: starts a stage, as ``concurrent.futures.Executor.submit`` does.
        cache: where weights stay between stages; for workers that share this process's memory.
        kept: where results of stages are kept.
        say: told how many pieces a stage is done with.
        tell: told how many rows were read, from the threads that read them; for workers in this process alone.
        certain: by piece, the places of rows that are in every sample, besides n; their weights must be 0.
    """
    if len(set(pieces)) < len(pieces):
        raise RecollectError("a piece is there twice: what is kept of a piece goes by its name, so name each once")
    local: dict[str, Any] = {} if cache is None else {"cache": cache}
    told = {} if tell is None else {"tell": tell}

    def stage(name: str, work: Callable[..., Arrays], *each: Any, **more: Any) -> list[Arrays]:
        return _each(name, pieces, submit, kept, say, lambda k, p: (work, p, options, *(x[k] for x in each), more))

    guess = None if certain is not None else _guess(pieces, n, lambda: stage("pilot", pilot))
    seeds = [[seed, 1, k] for k in range(len(pieces))]
    guessed = [] if guess is None else [[guess[0]] * len(pieces), [guess[1]] * len(pieces), seeds]
    surveyed = stage("survey", survey, *guessed, **local, **told)
    bins = np.zeros(counts.BINS, np.int64)
    for found in surveyed:
        bins[found["places"]] += found["numbers"]
    rows, bad, population = (int(sum(found["rows"][k] for found in surveyed)) for k in range(3))
    size = min(n, population)
    block = _block(population, n) if guess is None else guess[1]
    whole, log_theta, shares = counts.NOTHING, 0.0, [ALL] * len(pieces)
    same = [log_theta] * len(pieces), [block] * len(pieces), seeds
    if size == 0:  # as with n = 0, when all that is asked for is certain
        shares = [0] * len(pieces)
    elif size < population:
        log_theta = counts.odds_factor(bins, size) if guess is None else guess[0]
        for attempt in range(ATTEMPTS):
            same = [log_theta] * len(pieces), [block] * len(pieces), seeds
            counted = attempt == 0 and guess is not None
            vectors = surveyed if counted else stage(f"count-{attempt}", count, *same, **local)
            tree = Tree([Counts(int(found["first"]), found["mass"]) for found in vectors])
            if _covers(tree.root, size):
                break
            log_theta = counts.odds_factor(bins, size) if counted else log_theta + _correction(tree.root, size)
        else:
            raise RecollectError(f"no scale of the weights was found in {ATTEMPTS} steps: they are too uneven")
        whole, shares = tree.root, tree.share_out(size, seeded([seed, 0]))
    sure = [None if certain is None else certain.get(piece) for piece in pieces]
    drawn = stage("draw", draw, *same, shares, sure, **local)
    found = _assembled(pieces, options, drawn, rows, bad, population, whole, log_theta, size)
    return found._replace(population=population + sum(map(len, (certain or {}).values())))


def _block(population: int, n: int) -> int:
    """How many rows a block has: 16 of the sample fall into one or, where few are drawn twice by chance, up to 64."""
    drawn = np.clip(0.2 * population / max(n, 1), 16, 64)
    exponent = round(math.log2(drawn * max(population, 1) / max(n, 1)))
    return 1 << int(np.clip(exponent, LEAST_BLOCK, LARGEST_BLOCK))


def _guess(pieces: Sequence[Piece], n: int, run: Callable[[], list[Arrays]]) -> tuple[float, int] | None:
    """The logarithm of θ and the size of blocks, from the first rows of every piece where these are few."""
    if sum(piece.rows or 0 for piece in pieces) < max(1, FEW * CHUNK * len(pieces)):
        return None
    if any(piece.rows is None for piece in pieces):
        return None
    bins = np.zeros(counts.BINS)
    for found in run():
        seen, rows = found["share"]
        bins[found["places"]] += found["numbers"] * (rows / max(seen, 1))
    population = float(bins.sum())
    return (counts.odds_factor(bins, n), _block(int(population), n)) if n < 0.5 * population else None


def _each(name, pieces, submit, kept, say, job) -> list[Arrays]:
    found: list[Any] = [kept.read(name, k) if kept is not None else None for k in range(len(pieces))]
    missing = [k for k, one in enumerate(found) if one is None]
    done = len(pieces) - len(missing)
    say(name, done, len(pieces))
    futures = {}
    try:
        for k in missing:
            work, *arguments, more = job(k, pieces[k])
            futures[submit(work, *arguments, **more)] = k
        for future in concurrent.futures.as_completed(futures):
            k = futures[future]
            found[k] = future.result()
            if kept is not None:
                kept.write(name, k, found[k])
            done += 1
            say(name, done, len(pieces))
    finally:
        for future in futures:
            future.cancel()
    return found


def _covers(whole: Counts, n: int) -> bool:
    """Whether n lies where the vector, and so those of all parts, were not cut off."""
    at = n - whole.first
    return 0 < at < len(whole.mass) - 1 and bool(whole.mass[at] > 1e-12 * whole.mass.max())


def _correction(whole: Counts, n: int) -> float:
    numbers = np.arange(whole.first, whole.first + len(whole.mass))
    mean = float(np.dot(numbers, whole.mass))
    variance = float(np.dot((numbers - mean) ** 2, whole.mass))
    return float(np.clip((n - mean) / max(variance, 1e-3 * max(n, 1)), -3.0, 3.0))


def _assembled(
    pieces: Sequence[Piece],
    options: Options,
    drawn: list[Arrays],
    rows: int,
    bad: int,
    population: int,
    whole: Counts,
    log_theta: float,
    size: int,
) -> Sample:
    pa = tables.pyarrow()
    with np.errstate(divide="ignore"):
        log_weights = np.log(np.concatenate([found["weights"] for found in drawn]))
    if size < population:
        sure = np.isinf(log_weights)
        p = np.ones(len(log_weights))
        p[~sure] = counts.inclusion_probabilities(whole, log_theta, log_weights[~sure], size)
    else:
        p = np.ones(len(log_weights))
    parts = [pa.ipc.open_stream(pa.py_buffer(found["table"])).read_all() for found in drawn if len(found["positions"])]
    try:
        table = pa.concat_tables(parts or _no_rows(pieces, options), promote_options="permissive")
    except pa.ArrowException as error:
        raise RecollectError(f"files differ in the type of a column, which --columns may leave out: {error}") from error
    return Sample(tables.with_probabilities(table, p), p, log_weights, rows, bad, population, whole, log_theta)


def _no_rows(pieces: Sequence[Piece], options: Options) -> list[Any]:
    """An empty table with the columns that rows would have had."""
    pa = tables.pyarrow()
    return [tables.schema_of(pieces[0], options.columns).empty_table() if pieces else pa.table({})]
