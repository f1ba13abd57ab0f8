"""An exact sample of tables that lie in many files: every piece is surveyed, then counted, then drawn from.

Three stages (``stages``), each a function of one piece that any worker can do, with numbers alone passed between them:

1. ``survey`` reads the weights once and tallies them by size: that fixes θ, the scale of ``counts``;
2. ``count`` gives the vector of the piece; of large pieces ``survey`` does it on the way, at a θ that their first rows
   suggest (``pilot``) and that serves unless they were unlike the rest. The vectors of all pieces are joined in a tree
   of fixed shape, and down that tree the n places of the sample are shared out;
3. ``draw`` shares the places of the piece out further, to blocks and to rows, and reads the rows that were drawn.

Every piece draws with a seed made of the seed and its place, so the sample is the same whoever did which piece, in
whatever order.
"""

import concurrent.futures
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from recollect.errors import RecollectError
from recollect.reservoir import counts, estimates, ratios, stages, tables, written
from recollect.reservoir.columns import pyarrow, with_probabilities
from recollect.reservoir.counts import Counts, Tree
from recollect.reservoir.random import seeded
from recollect.reservoir.scans import Cache
from recollect.reservoir.stages import Arrays, Options, Tell
from recollect.reservoir.tables import Piece

LEAST_BLOCK, LARGEST_BLOCK = 9, 17  # as powers of 2: rows of a block, the smallest part that has a vector
ATTEMPTS = 40  # at a scale of the weights at which n rows are likely; one is the rule
FEW = 8  # chunks of a piece, on average, from which on the first of them is read beforehand


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
        tell: told how many rows were read, 0 of those that are read again, from the threads that read them, which stop
            where it raises; for workers in this process alone.
        certain: by piece, the places of rows that are in every sample, besides n; their weights must be 0.
    """
    if len(set(pieces)) < len(pieces):
        raise RecollectError("a piece is there twice: what is kept of a piece goes by its name, so name each once")
    local: dict[str, Any] = {} if cache is None else {"cache": cache}
    first: dict[str, Any] = local if tell is None else {**local, "tell": tell}
    later: dict[str, Any] = local if tell is None else {**local, "tell": lambda rows: tell(0)}

    def stage(name: str, work: Callable[..., Arrays], *each: Any, **more: Any) -> list[Arrays]:
        return _each(name, pieces, submit, kept, say, lambda k, p: (work, p, options, *(x[k] for x in each), more))

    guess = None if certain is not None else _guess(pieces, n, lambda: stage("pilot", stages.pilot))
    seeds = [[seed, 1, k] for k in range(len(pieces))]
    guessed = [] if guess is None else [[guess[0]] * len(pieces), [guess[1]] * len(pieces), seeds]
    surveyed = stage("survey", stages.survey, *guessed, **first)
    bins = np.zeros(counts.BINS, np.int64)
    for found in surveyed:
        bins[found["places"]] += found["numbers"]
    rows, bad, population = (int(sum(found["rows"][k] for found in surveyed)) for k in range(3))
    size = min(n, population)
    block = _block(population, n) if guess is None else guess[1]
    whole, log_theta, shares = counts.NOTHING, 0.0, [stages.ALL] * len(pieces)
    same = [log_theta] * len(pieces), [block] * len(pieces), seeds
    if size == 0:  # as with n = 0, when all that is asked for is certain
        shares = [0] * len(pieces)
    elif size < population:
        log_theta = counts.odds_factor(bins, size) if guess is None else guess[0]
        for attempt in range(ATTEMPTS):
            same = [log_theta] * len(pieces), [block] * len(pieces), seeds
            counted = attempt == 0 and guess is not None
            vectors = surveyed if counted else stage(f"count-{attempt}", stages.count, *same, **later)
            tree = Tree([Counts(int(found["first"]), found["mass"]) for found in vectors])
            if _covers(tree.root, size):
                break
            log_theta = counts.odds_factor(bins, size) if counted else log_theta + _correction(tree.root, size)
        else:
            raise RecollectError(f"no scale of the weights was found in {ATTEMPTS} steps: they are too uneven")
        whole, shares = tree.root, tree.share_out(size, seeded([seed, 0]))
    sure = [None if certain is None else certain.get(piece) for piece in pieces]
    drawn = stage("draw", stages.draw, *same, shares, sure, **later)
    found = _assembled(pieces, options, drawn, rows, bad, population, whole, log_theta, size)
    return found._replace(population=population + sum(map(len, (certain or {}).values())))


def _block(population: int, n: int) -> int:
    """How many rows a block has: 16 of the sample fall into one or, where few are drawn twice by chance, up to 64."""
    drawn = np.clip(0.2 * population / max(n, 1), 16, 64)
    exponent = round(math.log2(drawn * max(population, 1) / max(n, 1)))
    return 1 << int(np.clip(exponent, LEAST_BLOCK, LARGEST_BLOCK))


def _guess(pieces: Sequence[Piece], n: int, run: Callable[[], list[Arrays]]) -> tuple[float, int] | None:
    """The logarithm of θ and the size of blocks, from the first rows of every piece where these are few."""
    if sum(piece.rows or 0 for piece in pieces) < max(1, FEW * stages.CHUNK * len(pieces)):
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
    variance = float(np.dot((numbers - whole.mean) ** 2, whole.mass))
    return float(np.clip((n - whole.mean) / max(variance, 1e-3 * max(n, 1)), -3.0, 3.0))


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
    pa = pyarrow()
    with np.errstate(divide="ignore"):
        log_weights = np.log(np.concatenate([found["weights"] for found in drawn]))
    if size < population:
        sure = np.isinf(log_weights)
        p = np.ones(len(log_weights))
        p[~sure] = counts.inclusion_probabilities(whole, log_theta, log_weights[~sure], size)
    else:
        p = np.ones(len(log_weights))
    weight, named = options.select.weight, zip(pieces, drawn, strict=True)
    parts = [(piece, stages.table_of(found, weight)) for piece, found in named if len(found["positions"])]
    try:
        table = (
            written.joined(parts, pieces, options.columns, options.as_written) if parts else _no_rows(pieces, options)
        )
    except pa.ArrowException as error:
        raise RecollectError(f"files differ in the type of a column, which --columns may leave out: {error}") from error
    return Sample(with_probabilities(table, p), p, log_weights, rows, bad, population, whole, log_theta)


def _no_rows(pieces: Sequence[Piece], options: Options) -> Any:
    """An empty table with the columns that rows would have had."""
    pa = pyarrow()
    return tables.schema_of(pieces[0], options.columns).empty_table() if pieces else pa.table({})
