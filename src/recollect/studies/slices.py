"""Groups of seeds trained by an executor, here or on a cluster, a slice of time after another.

Each slice begins where the snapshot of the one before ended, wherever that was, and gives back what it reported and its
own snapshot. So the driver has checkpoints as it has from threads of its own (``crew``), and a worker that is lost
takes the work of one slice with it, which is done again.
"""

import concurrent.futures
import functools
import queue
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from recollect.studies.crew import PAUSE, Report, Task
from recollect.studies.executors import Done, Executor, VersionsDifferError
from recollect.studies.sweep import ATTEMPTS, Say
from recollect.training.batch import Progress, Result

State = Mapping[str, np.ndarray] | None
LONGEST = 15.0  # seconds of a slice; a compiled call is not cut short


class Slice(NamedTuple):
    """What a slice gave: its last report with all bins that came to their end, the snapshot, the result if it is over.

    Without a report there was nothing left to do but to give the result.
    """

    last: Progress | None
    snapshot: dict[str, np.ndarray] | None
    result: Result | None


def do_slice(task: Task, state: State, seconds: float) -> Slice:
    """Train a group for about so long, in a worker."""
    begin = task.begin if state is None else functools.partial(task.begin, state=state)  # type: ignore[call-arg]
    start, bins, last, result = time.monotonic(), [], None, None
    for content in begin():
        if isinstance(content, Result):
            result = content
            break
        last = content
        bins += content.new_bins
        if time.monotonic() - start >= seconds:
            break
    snapshot = None if last is None else last.snapshot()
    sent = None if last is None else last._replace(new_bins=bins, snapshot=dict)  # a snapshot's owner stays there
    return Slice(sent, snapshot, result)


def reports(
    tasks: Sequence[Task], executor: Executor, stop: threading.Event, every: float, say: Say
) -> Generator[Report]:
    """What the workers report, in the shape of ``crew.reports``, until all tasks are done or ``stop`` is set.

    Args:
        tasks: what is to be done; ``begin`` must be a function that can be sent to a worker, and take ``state``.
        executor: who does it.
        stop: ends everything at once: what the slices under way had done is lost, and their beginnings are saved.
        every: seconds between two snapshots of a task, at most ``LONGEST``.
        say: told who does what.
    """
    ended: queue.SimpleQueue[concurrent.futures.Future[Done]] = queue.SimpleQueue()
    under_way: dict[concurrent.futures.Future[Done], tuple[Task, State, int]] = {}  # begun from where, which attempt

    def submit(task: Task, state: State, attempt: int = 1) -> None:
        future = executor.submit(functools.partial(do_slice, task, state, min(every, LONGEST)))
        under_way[future] = task, state, attempt
        future.add_done_callback(ended.put)

    try:
        say(f"{len(tasks)} groups on {executor.describe()}")
        for task in tasks:
            submit(task, None)
        while under_way and not stop.is_set():
            try:
                future = ended.get(timeout=PAUSE)
            except queue.Empty:
                continue
            task, state, attempt = under_way.pop(future)
            error = future.exception()
            if isinstance(error, VersionsDifferError):
                raise error
            if error is not None and attempt < ATTEMPTS:
                say(f"{task.name}: {type(error).__name__}: {error}; again, attempt {attempt + 1} of {ATTEMPTS}")
                submit(task, state, attempt + 1)
            elif error is not None:
                yield Report(task, error, None)
            else:
                found, worker = future.result()
                if found.last is not None:
                    yield Report(task, found.last, None if found.result is not None else found.snapshot)
                if found.result is None:
                    submit(task, found.snapshot)
                else:
                    say(f"{task.name}: done [{worker}]")
                    yield Report(task, found.result, found.snapshot)
    finally:
        for future in under_way:
            future.cancel()
