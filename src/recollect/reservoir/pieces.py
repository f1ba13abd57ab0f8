"""An exact sample of tables that lie in many files: every piece is surveyed, then counted, then drawn from.

Three stages, each a function of one piece that any worker can do, with numbers alone passed between them:

1. ``survey`` reads the weights once and tallies them by size: that fixes θ, the scale of ``counts``;
2. ``count`` gives the vector of the piece; of large pieces ``survey`` does it on the way, at a θ that their first rows
   suggest (``pilot``) and that serves unless they were unlike the rest. The vectors of all pieces are joined in a tree
   of fixed shape, and down that tree the n places of the sample are shared out;
3. ``draw`` shares the places of the piece out further, to blocks and to rows, and reads the rows that were drawn.

Every piece draws with a seed made of the seed and its place, so the sample is the same whoever did which piece, in
whatever order. Weights stay in memory between the stages while they fit the ``Cache``; where they do not, or where
another machine does the next stage, they are read again.
"""

import concurrent.futures
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from recollect.errors import RecollectError
from recollect.reservoir import counts, estimates, ratios, tables
from recollect.reservoir.counts import Counts, Tree
from recollect.reservoir.random import seeded
from recollect.reservoir.tables import Piece, Select

CHUNK = tables.BATCH  # rows that are in memory together where weights are not kept
LEAST_BLOCK, LARGEST_BLOCK = 9, 17  # as powers of 2: rows of a block, the smallest part that has a vector
ATTEMPTS = 40  # at a scale of the weights at which n rows are likely; one is the rule
FEW = 8  # chunks of a piece, on average, from which on the first of them is read beforehand
ALL = -1  # instead of a number of rows to draw from a piece
PROBABILITY, WEIGHT = "inclusion_probability", "horvitz_thompson_weight"

Arrays = dict[str, np.ndarray]
Tell = Callable[[int], None]


class Options(NamedTuple):
    """What a sample depends on besides the rows."""

    select: Select
    bad: str = "stop"  # or skip, zero: what to do with a row whose weight is missing, negative or not finite
    columns: tuple[str, ...] | None = None  # of the output; None: all


class Cache:
    """Weights, and what was counted from them, of the pieces that fit in so many bytes."""

    def __init__(self, most: int):
        self.left, self.weights, self.trees, self._lock = most, {}, {}, threading.Lock()

    def offer(self, piece: Piece, chunk: np.ndarray) -> None:
        """Keep a chunk of a piece, or drop all of that piece where there is no room."""
        with self._lock:
            kept = self.weights.setdefault(piece, [])
            if kept is None:
                return
            if self.left < chunk.nbytes:
                self.left += sum(part.nbytes for part in kept)
                self.weights[piece] = None
            else:
                self.left -= chunk.nbytes
                kept.append(chunk)


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
        raise RecollectError(
            f"{piece.path}, row {piece.first_row + row + int(wrong[0])} (counted from 0): {options.select.weight} is "
            f"{what}; 0 and finite positive numbers are weights, --bad skip or --bad zero passes over others"
        )
    weights[wrong] = 0.0
    return len(wrong)


# -- the stages


def pilot(piece: Piece, options: Options) -> Arrays:
    """The tally of a piece's first rows, as if all were like them: enough to guess θ before the survey."""
    bins = np.zeros(counts.BINS, np.int64)
    chunk = next(chunks(piece, options, None), np.zeros(0))
    weights = np.where((chunk > 0.0) & (chunk < math.inf), chunk, 0.0)
    counts.tally(weights, bins, 1)
    places = np.flatnonzero(bins)
    return {"places": places, "numbers": bins[places], "share": np.array([len(chunk), tables.rows_of(piece)])}


def survey(
    piece: Piece,
    options: Options,
    log_theta: float | None = None,
    block: int = 0,
    cache: Cache | None = None,
    tell: Tell = lambda rows: None,
) -> Arrays:
    """How many rows a piece has, how many of them bad and how many of positive weight, and the tally of weights.

    With a guess of θ the piece is counted on the way: the vector is in the result as well.
    """
    bins = np.zeros(counts.BINS, np.int64)
    rows = bad = population = 0
    trees: list[Tree] = []
    offer = cache is not None and not cache.weights.get(piece)  # what is there already stays, whatever its size
    for chunk in chunks(piece, options, cache, tell):
        positive, valid = counts.positives(chunk)
        if valid < len(chunk):
            chunk = chunk.copy()  # it may be memory of pyarrow's
            bad += cleaned(chunk, piece, options, rows)
            positive, _ = counts.positives(chunk)
        counts.tally(chunk, bins, 32 if len(chunk) == CHUNK else 1)
        if log_theta is not None:
            trees.append(_tree(chunk, log_theta, block))
        rows += len(chunk)
        population += positive
        if cache is not None and offer:
            cache.offer(piece, chunk)
    places = np.flatnonzero(bins)
    found = {"rows": np.array([rows, bad, population]), "places": places, "numbers": bins[places]}
    return found if log_theta is None else found | _counted(piece, trees, log_theta, cache)


def _tree(chunk: np.ndarray, log_theta: float, block: int) -> Tree:
    return Tree([counts.count(chunk[at : at + block], log_theta) for at in range(0, len(chunk), block)])


def _counted(piece: Piece, trees: list[Tree], log_theta: float, cache: Cache | None) -> Arrays:
    """The vector of a piece from the trees of its chunks, which stay where its weights do."""
    if cache is not None and cache.weights.get(piece):
        cache.trees[piece] = log_theta, trees
    root = Tree([tree.root for tree in trees]).root
    return {"first": np.array(root.first), "mass": root.mass}


def _clean_chunks(piece: Piece, options: Options, cache: Cache | None) -> Iterator[np.ndarray]:
    """The weights as ``survey`` saw them: bad ones, which it may have passed over, are 0."""
    cached, row = cache is not None and bool(cache.weights.get(piece)), 0
    for chunk in chunks(piece, options, cache):
        if options.bad != "stop" and not cached:
            chunk = chunk.copy()
            cleaned(chunk, piece, options, row)
        row += len(chunk)
        yield chunk


def count(piece: Piece, options: Options, log_theta: float, block: int, cache: Cache | None = None) -> Arrays:
    """The vector of a piece."""
    trees = [_tree(chunk, log_theta, block) for chunk in _clean_chunks(piece, options, cache)]
    return _counted(piece, trees, log_theta, cache)


def draw(
    piece: Piece,
    options: Options,
    log_theta: float,
    block: int,
    k: int,
    seed: Sequence[int],
    certain: np.ndarray | None = None,
    cache: Cache | None = None,
) -> Arrays:
    """The rows of a piece that belong to the sample: k drawn ones, or all of positive weight, and those certain."""
    rng = seeded(list(seed))
    known = cache.trees.get(piece) if cache is not None else None
    trees: list[Tree] = known[1] if known is not None and known[0] == log_theta else []
    if not trees and k > 0:
        # Without a cache this reads the piece twice: once for the vectors of its chunks, once for the rows of each.
        trees = [_tree(chunk, log_theta, block) for chunk in _clean_chunks(piece, options, cache)]
    shares = Tree([tree.root for tree in trees]).share_out(k, rng) if k > 0 else []
    positions, weights, row = [np.zeros(0, np.int64)], [np.zeros(0)], 0
    for place, chunk in enumerate(_clean_chunks(piece, options, cache) if k else ()):
        if k == ALL:
            found = np.flatnonzero(chunk)
            positions.append(row + found)
            weights.append(chunk[found])
        elif shares[place]:
            tree = trees[place]
            for at, share in enumerate(tree.share_out(shares[place], rng)):
                part = chunk[at * block : (at + 1) * block]
                found = counts.draw(part, tree.levels[0][at], log_theta, share, rng)
                positions.append(row + at * block + found)
                weights.append(part[found])
        row += len(chunk)
    here, chosen = np.concatenate(positions), np.concatenate(weights)
    if certain is None and tables.holds_only(piece, options.select.weight, options.columns):
        table = tables.pyarrow().table({options.select.weight: chosen})  # the rows are their weights: all is known
        return {"positions": here, "weights": chosen, "table": to_bytes(table)}
    if certain is not None:
        here, chosen = np.append(here, certain), np.append(chosen, np.full(len(certain), math.inf))
        order = np.argsort(here)
        here, chosen = here[order], chosen[order]
    return {"positions": here, "weights": chosen, "table": to_bytes(rows_at(piece, here, options))}


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
    local: dict[str, Any] = {} if cache is None else {"cache": cache}
    told = {} if tell is None else {"tell": tell}

    def stage(name: str, work: Callable[..., Arrays], *each: Any, **more: Any) -> list[Arrays]:
        return _each(name, pieces, submit, kept, say, lambda k, p: (work, p, options, *(x[k] for x in each), more))

    guess = None if certain is not None else _guess(pieces, n, lambda: stage("pilot", pilot))
    guessed = [] if guess is None else [[guess[0]] * len(pieces), [guess[1]] * len(pieces)]
    surveyed = stage("survey", survey, *guessed, **local, **told)
    bins = np.zeros(counts.BINS, np.int64)
    for found in surveyed:
        bins[found["places"]] += found["numbers"]
    rows, bad, population = (int(sum(found["rows"][k] for found in surveyed)) for k in range(3))
    size = min(n, population)
    block = _block(population, n) if guess is None else guess[1]
    whole, log_theta, shares = counts.NOTHING, 0.0, [ALL] * len(pieces)
    same = [log_theta] * len(pieces), [block] * len(pieces)
    if size == 0:  # as with n = 0, when all that is asked for is certain
        shares = [0] * len(pieces)
    elif size < population:
        log_theta = counts.odds_factor(bins, size) if guess is None else guess[0]
        for attempt in range(ATTEMPTS):
            same = [log_theta] * len(pieces), [block] * len(pieces)
            counted = attempt == 0 and guess is not None
            vectors = surveyed if counted else stage(f"count-{attempt}", count, *same, **local)
            tree = Tree([Counts(int(found["first"]), found["mass"]) for found in vectors])
            if _covers(tree.root, size):
                break
            log_theta = counts.odds_factor(bins, size) if counted else log_theta + _correction(tree.root, size)
        else:
            raise RecollectError(f"no scale of the weights was found in {ATTEMPTS} steps: they are too uneven")
        whole, shares = tree.root, tree.share_out(size, seeded([seed, 0]))
    seeds = [[seed, 1, k] for k in range(len(pieces))]
    sure = [None if certain is None else certain.get(piece) for piece in pieces]
    drawn = stage("draw", draw, *same, shares, seeds, sure, **local)
    return _assembled(drawn, rows, bad, population, whole, log_theta, size)


def _block(population: int, n: int) -> int:
    """How many rows a block has: about four of the sample fall into one."""
    return 1 << int(np.clip(round(math.log2(4 * max(population, 1) / max(n, 1))), LEAST_BLOCK, LARGEST_BLOCK))


def _guess(pieces: Sequence[Piece], n: int, run: Callable[[], list[Arrays]]) -> tuple[float, int] | None:
    """The logarithm of θ and the size of blocks, from the first rows of every piece where these are few."""
    if not pieces or any(piece.format != "parquet" for piece in pieces):
        return None
    if sum(tables.rows_of(piece) for piece in pieces) < FEW * CHUNK * len(pieces):
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
    drawn: list[Arrays], rows: int, bad: int, population: int, whole: Counts, log_theta: float, size: int
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
    table = pa.concat_tables(parts, promote_options="permissive") if parts else pa.table({})
    for name, values in ((PROBABILITY, p), (WEIGHT, 1.0 / p)):
        table = table.append_column(name, pa.array(values))
    return Sample(table, p, log_weights, rows, bad, population, whole, log_theta)
