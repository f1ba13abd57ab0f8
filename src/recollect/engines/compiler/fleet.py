"""Many runs of one compiled step: one run per vector lane, blocks of lanes over threads."""

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from recollect.cores import cores
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

    def _in_blocks(self, x: np.ndarray) -> np.ndarray:
        """Rows as [block, …, lane], the last block filled up with the last run's."""
        short = len(self.blocks) * self.lanes - self.runs
        rows = np.concatenate([x, np.repeat(x[-1:], short, axis=0)]) if short else x
        if self.lanes == 1:
            return rows
        return np.moveaxis(rows.reshape(-1, self.lanes, *x.shape[1:]), 1, -1)

    def load(self, tree: Any) -> None:
        """Take over the states, with a leading axis over runs."""
        views = [block.views() for block in self.blocks]
        for place, x in enumerate(self.layout.numbers(tree)):
            for block, part in zip(views, self._in_blocks(x), strict=True):
                block[place][...] = part

    def unload(self) -> Any:
        """A copy of the states, with a leading axis over runs."""
        columns = zip(*(block.views() for block in self.blocks), strict=True)
        return self.layout.wrap([self._gather(list(column)) for column in columns])

    def _gather(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        if self.lanes == 1:
            return np.stack(arrays)[: self.runs]
        last = arrays[0].ndim - 1
        return np.concatenate([a.transpose(last, *range(last)) for a in arrays])[: self.runs]

    def attach(self, program: Program, leaves: Sequence[Any] | None = None) -> list[Attached]:
        """A program on every block, the leaves of its inputs set: shared ones alone, others with an axis over runs."""
        attached = [Attached(program, block) for block in self.blocks]
        for place, (x, shared) in enumerate(zip(leaves or (), program.shared, strict=leaves is not None)):
            parts = itertools.repeat(x) if shared else self._in_blocks(np.asarray(x))
            for one, part in zip(attached, parts, strict=not shared):
                one.inputs[place][...] = part
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
    threads = min(threads or cores(), blocks)
    if threads <= 1:
        for k in range(blocks):
            work(k)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(blocks)))
