"""Weights from prescribed probabilities: all of these are read first and solved for together."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from recollect.errors import RecollectError
from recollect.reservoir import stages
from recollect.reservoir.law import Solved, weights_for
from recollect.reservoir.scans import Cache
from recollect.reservoir.stages import Options, Tell, UnfitError
from recollect.reservoir.tables import Piece


class Prescribed(NamedTuple):
    """What ``pieces.sample`` needs to know of them."""

    solved: Solved
    cache: Cache  # holds the weights
    certain: dict[Piece, np.ndarray]  # places of rows of probability 1
    n: int  # how many rows there are to draw besides


def solve(parts: Sequence[Piece], options: Options, n: int | None, memory: int, tell: Tell) -> Prescribed:
    """Read a column, of probabilities or, where n is given, of sizes that they are in proportion to, and find weights.

    Args:
        parts: in the order of the stream.
        options: what the sample depends on; the column is its weight.
        n: how many rows, or None where the probabilities say it.
        memory: bytes for what is kept besides.
        tell: told how many rows were read.
    """
    chunks = {piece: list(stages.chunks(piece, options, None, tell)) for piece in parts}
    values = np.concatenate([chunk for own in chunks.values() for chunk in own] or [np.zeros(0)])
    at = 0
    for piece, own in chunks.items():
        row = 0
        for chunk in own:
            _refuse_unfit(chunk, piece, row, options.select.weight, n is not None)
            row += len(chunk)
    pi = values if n is None else _proportional(values, n)
    try:
        solved = weights_for(pi)
    except ValueError as error:
        raise UnfitError(f"{options.select.weight}: {error}") from error
    lw = solved.log_weights
    free = np.isfinite(lw)
    weights = np.zeros(len(lw))
    weights[free] = np.exp(lw[free])
    cache, certain = Cache(memory), {}
    for piece, own in chunks.items():
        end = at + sum(map(len, own))
        mine = weights[at:end]
        cache.weights[piece] = [mine[k : k + stages.CHUNK] for k in range(0, len(mine), stages.CHUNK)]
        certain[piece] = np.flatnonzero(lw[at:end] == np.inf)
        at = end
    return Prescribed(solved, cache, certain, round(float(pi.sum())) - sum(map(len, certain.values())))


def _refuse_unfit(values: np.ndarray, piece: Piece, row: int, column: str | None, sizes: bool) -> None:
    """Refuse what is no size, or no probability, by its file and row; no other row can take its place."""
    wrong = np.flatnonzero(~((values >= 0.0) & ((values < math.inf) if sizes else (values <= 1.0))))
    if len(wrong):
        wanted = "sizes, for --pps, are 0 or finite positive numbers" if sizes else "probabilities are from 0 to 1"
        raise UnfitError(
            f"{stages.told(values, int(wrong[0]), piece, row, column)}; {wanted}: mend the row, or choose among the "
            "others with --where"
        )


def _proportional(sizes: np.ndarray, n: int) -> np.ndarray:
    """Probabilities in proportion to sizes that sum to n; where that would exceed 1 they are 1."""
    positive = int(np.sum(sizes > 0))
    if n > positive:
        raise RecollectError(f"-n {n}: only {positive} rows have a positive size")
    certain = np.zeros(len(sizes), bool)
    while True:
        free = sizes / max(float(sizes[~certain].max(initial=0.0)), 5e-324)  # so that no sum is too large or too small
        share = (n - int(certain.sum())) / max(float(free[~certain].sum()), 1.0)
        pi = np.where(certain, 1.0, free * share)
        over = (pi >= 1.0) & ~certain
        if not over.any():
            return pi
        certain |= over
