"""Groups of seeds trained side by side in threads, one per core, each reporting and taking snapshots as it goes."""

import queue
import threading
import time
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from recollect.cores import cores
from recollect.training.batch import Progress, Result

PATIENCE = 15.0  # seconds that threads get to end after a failure or an interrupt


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


Inbox = queue.SimpleQueue[Report | _End | None]


def reports(tasks: Sequence[Task], inbox: Inbox, stop: threading.Event, every: float) -> Generator[Report]:
    """What the threads report, until all tasks are done or ``stop`` is set and each has given a last snapshot.

    The threads (compiled calls hold no lock of Python's) take the tasks in order. Only the thread that iterates writes
    files, so that nothing needs a lock. A task that fails reports its error, and the rest continue. However the
    iteration ends, the threads are told to stop and waited for, as a compiled call takes about a second and a
    compilation several.

    Args:
        tasks: what is to be done.
        inbox: how the threads report; None in it wakes the iteration to see that it should stop.
        stop: ends everything after what is under way.
        every: seconds between two snapshots of a task; there is one at its end and one when it is stopped, too. None is
            taken while the one before is still being dealt with, so that a slow disk makes them fewer, not a queue.
    """
    todo: queue.SimpleQueue[Task] = queue.SimpleQueue()
    for task in tasks:
        todo.put(task)
    # A loop is compiled at its first call. Threads that came to the same one at once would each compile it.
    compiling = {task.kind: threading.Lock() for task in tasks}
    pending: set[str] = set()  # tasks whose last snapshot is on its way

    def carry_out(task: Task) -> None:
        steps = task.begin()
        with compiling[task.kind]:
            content = None if stop.is_set() else next(steps, None)
        saved, newest = time.monotonic(), None
        while content is not None:
            snapshot = None
            newest = newest if isinstance(content, Result) else content
            due = time.monotonic() - saved >= every and task.name not in pending
            if newest is not None and (due or isinstance(content, Result) or stop.is_set()):
                snapshot, saved = newest.snapshot(), time.monotonic()
                pending.add(task.name)
            inbox.put(Report(task, content, snapshot))
            content = None if stop.is_set() else next(steps, None)

    def work() -> None:
        while not stop.is_set():
            try:
                task = todo.get_nowait()
            except queue.Empty:
                break
            try:
                carry_out(task)
            except BaseException as error:
                inbox.put(Report(task, error, None))
        inbox.put(_End())

    # Daemons, so that the process can end without them, also by a second Ctrl-C while they are waited for.
    at_work = min(max(2, cores()), len(tasks))
    threads = [threading.Thread(target=work, daemon=True) for _ in range(at_work)]
    deadline = None
    try:
        for thread in threads:
            thread.start()
        while at_work:
            if deadline is None and stop.is_set():
                deadline = time.monotonic() + PATIENCE
            try:
                item = inbox.get(timeout=None if deadline is None else max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                break
            if isinstance(item, _End):
                at_work -= 1
            elif item is not None:
                yield item
                if item.snapshot is not None:
                    pending.discard(item.task.name)
    finally:
        stop.set()
        deadline = deadline or time.monotonic() + PATIENCE
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
