"""Many runs of one compiled step: one run per vector lane, blocks of lanes over threads."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from recollect.engines.compiler.program import Attached, Layout, Memory, Program

LANES = 16
"""Runs in one block: the floats of a 512-bit vector, or two of 256."""


LARGE = 1 << 16
"""Bytes of one run from which a block of runs no longer fits in a core's cache: each is a block by itself then."""


def lanes_for(runs: int, layout: Layout) -> int:
    """The width that suits a number of runs of this size; results are the same for any.

    A large run has vectors along its units instead, and its numbers stay in the cache from one step to the next.
    """
    if layout.bytes > LARGE:
        return 1
    return min(LANES, 1 << (runs - 1).bit_length())


class Fleet:
    """The states of many runs, in blocks of lanes, and programs that move them.

    Args:
        layout: of one run's state.
        runs: how many.
        lanes: runs per block; the last block is filled up with copies of the last run.
    """

    def __init__(self, layout: Layout, runs: int, lanes: int | None = None):
        self.layout, self.runs = layout, runs
        self.lanes = lanes or lanes_for(runs, layout)
        self.blocks = [Memory(layout, self.lanes) for _ in range(-(-runs // self.lanes))]

    def _block(self, x: np.ndarray, k: int) -> np.ndarray:
        """The rows of one block, filled up with the last run's."""
        rows = x[k * self.lanes : (k + 1) * self.lanes]
        short = self.lanes - len(rows)
        return np.concatenate([rows, np.repeat(rows[-1:], short, axis=0)]) if short else rows

    def _spread(self, x: np.ndarray, k: int) -> np.ndarray:
        rows = self._block(x, k)
        return rows[0] if self.lanes == 1 else np.moveaxis(rows, 0, -1)

    def load(self, tree: Any) -> None:
        """Take over the states, with a leading axis over runs."""
        for x, place in zip(self.layout.numbers(tree), range(len(self.layout.shapes)), strict=True):
            for k, block in enumerate(self.blocks):
                block.views()[place][...] = self._spread(x, k)

    def unload(self) -> Any:
        """A copy of the states, with a leading axis over runs."""
        columns = zip(*(block.views() for block in self.blocks), strict=True)
        return self.layout.wrap([self._gather(list(column)) for column in columns])

    def _gather(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        if self.lanes == 1:
            return np.stack(arrays)[: self.runs]
        return np.concatenate([np.moveaxis(a, -1, 0) for a in arrays])[: self.runs]

    def attach(self, program: Program, leaves: Sequence[Any] | None = None) -> list[Attached]:
        """A program on every block, the leaves of its inputs set: shared ones alone, others with an axis over runs."""
        attached = []
        for k, block in enumerate(self.blocks):
            one = Attached(program, block)
            for array, x, shared in zip(one.inputs, leaves or (), program.shared, strict=leaves is not None):
                array[...] = x if shared else self._spread(np.asarray(x), k)
            attached.append(one)
        return attached

    def stacked(self, found: Sequence[Sequence[Sequence[np.ndarray]]]) -> list[np.ndarray]:
        """Arrays by [block][time][leaf] as leaves [run, time, …]."""
        leaves = []
        for place in range(len(found[0][0])):
            over_time = [np.stack([at[place] for at in block]) for block in found]
            leaves.append(self._gather(over_time))
        return leaves


def over_blocks(work: Callable[[int], None], blocks: int, threads: int | None = None) -> None:
    """Do something for each block, on as many threads as there are cores."""
    threads = min(threads or len(os.sched_getaffinity(0)), blocks)
    if threads <= 1:
        for k in range(blocks):
            work(k)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(blocks)))
