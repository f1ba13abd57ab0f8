"""Groups of seeds trained side by side in threads, one per core, each reporting and taking snapshots as it goes."""

import math
import queue
import threading
import time
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from recollect.cores import cores
from recollect.training.batch import Progress, Result

PATIENCE = 15.0  # seconds that threads get to end after a failure or an interrupt

PAUSE = 0.1
"""Seconds between looks at whether to stop: a signal that comes just as Python begins to wait wakes nobody."""


class Task(NamedTuple):
    """One group. ``kind``: tasks of one kind run the same compiled loop. ``begin``: starts it, called in a thread."""

    name: str
    kind: Hashable
    begin: Callable[[], Iterator[Progress | Result]]


class Report(NamedTuple):
    """What a task said, with the snapshot that it was time for, or None."""

    task: Task
    content: Progress | Result | BaseException
    snapshot: dict[str, np.ndarray] | None


class _End(NamedTuple):
    """A thread has nothing more to do."""


class _Work:
    """What the threads of one crew share: tasks to begin, and where they report."""

    def __init__(self, tasks: Sequence[Task], stop: threading.Event, every: float):
        self.inbox: queue.SimpleQueue[Report | _End] = queue.SimpleQueue()
        self.pending: set[str] = set()  # tasks whose last snapshot is on its way
        self._todo: queue.SimpleQueue[Task] = queue.SimpleQueue()
        for task in tasks:
            self._todo.put(task)
        # A loop is compiled at its first call. Threads that came to the same one at once would each compile it.
        self._compiling = {task.kind: threading.Lock() for task in tasks}
        self._stop, self._every = stop, every

    def run(self) -> None:
        """What a thread does: one task after another, until there is none or it is told to stop."""
        while not self._stop.is_set():
            try:
                task = self._todo.get_nowait()
            except queue.Empty:
                break
            try:
                self._carry_out(task)
            except BaseException as error:
                self.inbox.put(Report(task, error, None))
        self.inbox.put(_End())

    def _carry_out(self, task: Task) -> None:
        steps = task.begin()
        with self._compiling[task.kind]:
            content = None if self._stop.is_set() else next(steps, None)
        saved, newest = time.monotonic(), None
        while content is not None:
            snapshot = None
            newest = newest if isinstance(content, Result) else content
            due = time.monotonic() - saved >= self._every and task.name not in self.pending
            if newest is not None and (due or isinstance(content, Result) or self._stop.is_set()):
                snapshot, saved = newest.snapshot(), time.monotonic()
                self.pending.add(task.name)
            self.inbox.put(Report(task, content, snapshot))
            content = None if self._stop.is_set() else next(steps, None)


def reports(tasks: Sequence[Task], stop: threading.Event, every: float) -> Generator[Report]:
    """What the threads report, until all tasks are done or ``stop`` is set and each has given a last snapshot.

    The threads (compiled calls hold no lock of Python's) take the tasks in order. Only the thread that iterates writes
    files, so that nothing needs a lock. A task that fails reports its error, and the rest continue. However the
    iteration ends, the threads are told to stop and waited for, as a compiled call takes about a second and a
    compilation several.

    Args:
        tasks: what is to be done.
        stop: ends everything after what is under way.
        every: seconds between two snapshots of a task; there is one at its end and one when it is stopped, too. None is
            taken while the one before is still being dealt with, so that a slow disk makes them fewer, not a queue.
    """
    work = _Work(tasks, stop, every)
    # Daemons, so that the process can end without them, also by a second Ctrl-C while they are waited for.
    at_work = min(max(2, cores()), len(tasks))
    threads = [threading.Thread(target=work.run, daemon=True) for _ in range(at_work)]
    deadline = math.inf
    try:
        for thread in threads:
            thread.start()
        while at_work:
            if stop.is_set():
                deadline = min(deadline, time.monotonic() + PATIENCE)
            try:
                item = work.inbox.get(timeout=PAUSE)
            except queue.Empty:
                if time.monotonic() < deadline:
                    continue
                break
            if isinstance(item, _End):
                at_work -= 1
            else:
                yield item
                if item.snapshot is not None:
                    work.pending.discard(item.task.name)
    finally:
        stop.set()
        deadline = min(deadline, time.monotonic() + PATIENCE)
        for thread in threads:
            while thread.is_alive() and time.monotonic() < deadline:
                thread.join(PAUSE)
