"""One look at the weights of a chunk of rows: the vectors of its blocks, and rows that each of them may give.

How many rows of a block belong to the sample is known only after all blocks were seen, and by then its weights are
gone. But which ones they are, given how many, need not wait. Rows drawn independently of each other, ∝ their weights,
are a sample by the product law given that they are all different. So every block draws a few more than it is likely to
need while its weights are at hand. When its number k is known, the first k of them are its rows, or if two are the same
the next k. Nothing is read again and no weights are kept.

Where that may not do, because of heavy rows or of a sample that is not a small part of the table, the weights of the
block are kept, or read again where there is no room for them.
"""

import math
import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import njit

from recollect.reservoir import counts
from recollect.reservoir.counts import Tree
from recollect.reservoir.random import seeded
from recollect.reservoir.tables import Piece

RISK = 0.1  # largest chance that one of a block's rows is drawn twice with which it makes do with rows drawn beforehand
SELDOM = 1e-3  # how often these rows may be too few, whose weights are then read again


class Block(NamedTuple):
    """Rows of a block drawn with replacement, and all of its weights, where they were kept."""

    places: np.ndarray
    weights: np.ndarray
    kept: np.ndarray | None

    def rows(self, k: int) -> tuple[np.ndarray, np.ndarray] | None:
        """The places and weights of k rows by the product law, in rising order, if so many were drawn beforehand."""
        places, weights = _first_different(self.places, self.weights, k)
        return (places, weights) if len(places) else None


@njit(cache=True, error_model="numpy")  # too short to let go of Python's lock, as NumPy's sorting does
def _first_different(places, weights, k):
    for at in range(0, len(places) - k + 1, k):
        order = at + np.argsort(places[at : at + k])
        own = places[order]
        if np.all(own[1:] > own[:-1]):
            return own, weights[order]
    return places[:0], weights[:0]


class Scan(NamedTuple):
    """What is known of a chunk after one look at it."""

    tree: Tree
    blocks: list[Block]
    positive: int

    @property
    def kept_bytes(self) -> int:
        """Memory of the weights that were kept."""
        return sum(block.kept.nbytes for block in self.blocks if block.kept is not None)

    @property
    def own_bytes(self) -> int:
        """Memory of everything else."""
        vectors = sum(c.mass.nbytes + (0 if c.sums is None else c.sums.nbytes) for row in self.tree.levels for c in row)
        return vectors + sum(16 * len(block.places) + 500 for block in self.blocks)

    def without_weights(self) -> "Scan":
        """The same, the weights to be read again."""
        return self._replace(blocks=[block._replace(kept=None) for block in self.blocks])


def look(chunk: np.ndarray, log_theta: float, block: int, rng: np.ndarray) -> Scan | None:
    """Count the blocks of a chunk and draw from them; None if one of the numbers is no weight."""
    parts = [chunk[at : at + block] for at in range(0, len(chunk), block)]
    counted = [counts.count_checked(part, log_theta) for part in parts]
    if any(positive < 0 for _, _, positive in counted):
        return None
    tree = Tree([part for part, _, _ in counted])
    blocks = [_block(part, log_theta, own[0], own[1], rng) for part, own in zip(parts, counted, strict=True)]
    return Scan(tree, blocks, sum(positive for _, _, positive in counted))


def _block(part: np.ndarray, log_theta: float, counted: counts.Counts, squares: float, rng: np.ndarray) -> Block:
    assert counted.sums is not None
    likely = float(counted.sums.sum())
    risk = 0.5 * squares  # P(two of k draws the same) ≤ k² Σ p² / 2, with k = Σ u
    if not 0.0 < likely < math.inf or risk > RISK:
        return Block(_NO_PLACES, _NO_WEIGHTS, part if likely else None)
    most = likely + 5.0 * math.sqrt(likely) + 4.0
    attempts = math.ceil(math.log(SELDOM) / math.log(min(max(risk, SELDOM), 0.5)))
    places = np.empty(int(max(most, 1.15 * attempts * likely + 4.0)), np.int64)
    counts.draw_repeatedly(*counts.in_range(part, log_theta), counted.sums, rng, places)
    return Block(places, part[places], None)


class Known(NamedTuple):
    """What is known of a piece after one look at it."""

    log_theta: float
    scans: list[Scan]
    tree: Tree  # of the scans


class Cache:
    """Weights, and what was counted from them, of the pieces that fit in so many bytes."""

    def __init__(self, most: int):
        self.left, self._lock = most, threading.Lock()
        self.weights: dict[Piece, list[np.ndarray] | None] = {}
        self.known: dict[Piece, Known] = {}

    def take(self, size: int) -> bool:
        """Set so many bytes aside, if they are there."""
        with self._lock:
            fits = size <= self.left
            self.left -= size if fits else 0
            return fits

    def offer(self, piece: Piece, chunk: np.ndarray) -> None:
        """Keep a chunk of a piece, or drop all of that piece where there is no room."""
        kept = self.weights.setdefault(piece, [])
        if kept is not None and self.take(chunk.nbytes):
            kept.append(chunk)
        elif kept is not None:
            self.take(-sum(part.nbytes for part in kept))
            self.weights[piece] = None


class Scanned:
    """The scans of a piece, as its chunks come.

    Args:
        piece: what is scanned.
        log_theta: the scale of the weights.
        block: rows of a block.
        seed: of the piece.
        cache: where scans are kept if there is room for them.
        keep: hold them here whatever their size, and in the cache only the weights that are to be kept.
    """

    def __init__(
        self, piece: Piece, log_theta: float, block: int, seed: Sequence[int], cache: Cache | None, keep: bool = False
    ):
        self.piece, self.log_theta, self.block, self.cache, self.keep = piece, log_theta, block, cache, keep
        self.rng, self.roots = seeded([*seed, 0]), []
        self.scans: list[Scan] | None = None if cache is None else []

    def add(self, chunk: np.ndarray) -> int:
        """Look at a chunk; how many of its weights are positive, or −1 and nothing done if one is no weight."""
        scan = look(chunk, self.log_theta, self.block, self.rng)
        if scan is None:
            return -1
        self.roots.append(scan.tree.root)
        if self.scans is not None and self.cache is not None:
            if not self.cache.weights.get(self.piece) and not self.cache.take(scan.kept_bytes):
                scan = scan.without_weights()
            if self.keep or self.cache.take(scan.own_bytes):
                self.scans.append(scan)
            else:
                self.cache.take(-sum(scan.own_bytes + scan.kept_bytes for scan in self.scans))
                self.scans = None
        return scan.positive

    def known(self) -> Known:
        """All of it, where scans are held."""
        assert self.scans is not None
        return Known(self.log_theta, self.scans, Tree(self.roots))

    def vector(self) -> dict[str, np.ndarray]:
        """The vector of the piece, of which all is then in the cache."""
        if self.cache is None or self.scans is None:
            root = Tree(self.roots).root
        else:
            known = self.cache.known[self.piece] = self.known()
            root = known.tree.root
        return {"first": np.array(root.first), "mass": root.mass}


_NO_PLACES, _NO_WEIGHTS = np.zeros(0, np.int64), np.zeros(0)
