"""Where units of work are done: in processes of this machine, or on a Ray cluster.

Both have the shape of ``concurrent.futures``: ``submit`` gives a future. A worker that dies takes only the unit with it
that it was doing, whose future then holds ``WorkerLostError``. What a worker computes depends on the versions of what
it has installed, so every worker compares its own with the driver's before its first unit and refuses a difference by
name.
"""

import concurrent.futures
import contextlib
import functools
import multiprocessing
import os
import platform
import queue
import signal
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from typing import Any, NamedTuple, TypeAlias

from recollect.cores import cores
from recollect.errors import RecollectError
from recollect.store.provenance import BITS_DEPEND_ON, versions


class WorkerLostError(RecollectError):
    """The worker of a unit ended in the middle of it: killed, out of memory, or with its machine."""


class VersionsDifferError(RecollectError):
    """A worker has other versions than the driver, so that its results would not be the driver's."""


class Done(NamedTuple):
    """What a unit gave, and which worker did it."""

    found: Any
    worker: str


_agreed: dict[str, str] = {}


def _do(work: Callable[[], Any], expected: dict[str, str]) -> Done:
    """Do a unit in a worker, which first makes sure that it is like the driver."""
    name = f"{platform.node()} {os.getpid()}"
    if _agreed != expected:
        own = versions()
        differing = [
            f"{field} {own.get(field)!r}, the driver has {value!r}"
            for field, value in expected.items()
            if own.get(field) != value
        ]
        if differing:
            raise VersionsDifferError(f"worker {name} has {'; '.join(differing)}: install the same everywhere")
        _agreed.update(expected)
    return Done(work(), name)


def _expected() -> dict[str, str]:
    own = versions()
    return {field: own[field] for field in BITS_DEPEND_ON}


class Processes:
    """So many processes of this machine, each doing one unit at a time."""

    def __init__(self, jobs: int):
        self.workers = jobs
        self._expected = _expected()
        # JAX's state does not survive a fork. A pool of one process each: which of them broke says which unit it did.
        self._context = multiprocessing.get_context("spawn")
        self._slots: queue.SimpleQueue[_Slot] = queue.SimpleQueue()
        self._all = [_Slot(self._context) for _ in range(jobs)]
        for slot in self._all:
            self._slots.put(slot)
        self._threads = concurrent.futures.ThreadPoolExecutor(jobs)

    def submit(self, work: Callable[[], Any]) -> "concurrent.futures.Future[Done]":
        """Start a unit, which must be a function that can be sent to a process."""
        return self._threads.submit(self._run, work)

    def _run(self, work: Callable[[], Any]) -> Done:
        slot = self._slots.get()
        try:
            return slot.run(work, self._expected)
        finally:
            self._slots.put(slot)

    def describe(self) -> str:
        """What does the work, on one line."""
        return f"{self.workers} processes on {platform.node()}"

    def close(self) -> None:
        """Stop what is under way and wait until the processes are gone."""
        for slot in self._all:
            slot.end()
        self._threads.shutdown(wait=True, cancel_futures=True)


def _end_with_driver() -> None:
    """In a worker: end when the driver does, however it ends; a pool's process would wait for work for ever."""
    driver = multiprocessing.parent_process()

    def watch() -> None:
        if driver is not None:
            driver.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class _Slot:
    """One worker process, started when it is first needed and again after it died."""

    def __init__(self, context: Any):
        self._context, self._pool, self._process, self._over = context, None, 0, False

    def run(self, work: Callable[[], Any], expected: dict[str, str]) -> Done:
        if self._over:
            raise concurrent.futures.CancelledError
        try:
            if self._pool is None:
                self._pool = concurrent.futures.ProcessPoolExecutor(1, self._context, _end_with_driver)
                self._process = self._pool.submit(os.getpid).result()
            return self._pool.submit(_do, work, expected).result()
        except BrokenProcessPool as error:
            pool, self._pool = self._pool, None
            if pool is not None:
                pool.shutdown(wait=False)
            if self._over:
                raise concurrent.futures.CancelledError from error
            raise WorkerLostError(
                f"process {self._process} ended in the middle of it: killed, or out of memory"
            ) from error

    def end(self) -> None:
        self._over = True
        pool = self._pool
        if pool is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process, signal.SIGTERM)
            pool.shutdown(wait=True, cancel_futures=True)


class OnRay:
    """The workers of a Ray cluster, or of a Ray started here for the purpose.

    Args:
        address: None for a Ray of one's own on this machine; ``ray://HOST:PORT`` or ``HOST:PORT`` for a cluster.
        processors: of each unit.
        accelerators: of each unit, which may be a fraction: units then share one.
        check: whether workers compare the versions that training depends on with the driver's.
    """

    def __init__(
        self, address: str | None = None, *, processors: float = 1.0, accelerators: float = 0.0, check: bool = True
    ):
        ray = _ray()
        self._ray, self._own, self._folder = ray, not ray.is_initialized(), None
        if self._own:
            self._start(address)
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        self.workers = _places(nodes, processors, accelerators)
        if not self.workers:
            self.close()
            most = {kind: max((node.get(kind, 0.0) for node in nodes), default=0.0) for kind in ("CPU", "GPU")}
            raise RecollectError(
                f"each unit asks for {processors:g} CPU and {accelerators:g} GPU of one node; no node of the Ray "
                f"cluster has more than {most['CPU']:g} CPU and {most['GPU']:g} GPU"
            )
        # Attempts are counted by the sweep, in its journal, so Ray makes none of its own.
        self._task = ray.remote(num_cpus=processors, num_gpus=accelerators, max_retries=0)(_do)
        self._expected = _expected() if check else {}

    def _start(self, address: str | None) -> None:
        ray = self._ray
        own: dict[str, Any] = {}
        if address is None:
            own = {"num_cpus": cores(), "object_store_memory": 200_000_000}
            # Ray's sockets lie in its folder, and the path of a socket may have 107 bytes, of which it takes 66.
            if len(tempfile.gettempdir()) < 30:
                self._folder = tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True)
                own["_temp_dir"] = self._folder.name
        try:
            ray.init(address or "local", log_to_driver=False, logging_level="error", **own)
        except ConnectionError as error:
            raise RecollectError(
                f"--on {address}: no Ray cluster answers there: {_on_one_line(error)}. A cluster listens at "
                "ray://HOST:PORT from `ray start --ray-client-server-port PORT`, and may want its token, in "
                "RAY_AUTH_TOKEN"
            ) from error
        except ImportError as error:
            raise RecollectError(f"--on {address}: pip install 'recollect[ray]'; {_on_one_line(error)}") from error

    def submit(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> "concurrent.futures.Future[Done]":
        """Start a unit, or let it wait for a worker."""
        inner = self._task.remote(functools.partial(work, *args, **kwargs), self._expected).future()
        outer: concurrent.futures.Future[Done] = concurrent.futures.Future()
        outer.set_running_or_notify_cancel()

        def over(future: Any) -> None:
            if future.cancelled():
                outer.set_exception(concurrent.futures.CancelledError())
            elif (error := future.exception()) is None:
                outer.set_result(future.result())
            else:
                outer.set_exception(self._own_error(error))

        inner.add_done_callback(over)
        return outer

    def _own_error(self, error: BaseException) -> BaseException:
        """Ray's errors as they would be without Ray."""
        faults = self._ray.exceptions
        lost = (faults.WorkerCrashedError, faults.NodeDiedError, faults.OutOfMemoryError, faults.ObjectLostError)
        if isinstance(error, (*lost, faults.LocalRayletDiedError)):
            return WorkerLostError(f"{type(error).__name__}: its worker, or the machine it ran on, is gone")
        cause = getattr(error, "cause", None)
        return cause if isinstance(error, faults.RayTaskError) and isinstance(cause, BaseException) else error

    def describe(self) -> str:
        """What does the work, on one line, with the address of Ray's dashboard."""
        nodes = sum(1 for node in self._ray.nodes() if node["Alive"])
        address = getattr(self._ray, "get_dashboard_url", lambda: None)() or "none"
        return f"Ray: {self.workers} workers on {nodes} nodes, dashboard: {address}"

    def close(self) -> None:
        """Leave the cluster; a Ray that was started for this ends."""
        if self._own:
            self._ray.shutdown()
        if self._folder is not None:
            self._folder.cleanup()


Executor: TypeAlias = Processes | OnRay
"""``submit`` as in ``concurrent.futures``, giving ``Done``; ``close`` leaves no process behind."""


def _places(nodes: list[dict[str, float]], processors: float, accelerators: float) -> int:
    """How many units fit at once: each on one node.

    >>> _places([{"CPU": 8.0, "GPU": 1.0}, {"CPU": 2.0}], 1.0, 0.25), _places([{"CPU": 4.0, "GPU": 1.0}] * 2, 1.0, 2.0)
    (4, 0)
    """
    fit = 0
    for node in nodes:
        own = [int(node.get("CPU", 0.0) / processors + 1e-9)]
        if accelerators:
            own.append(int(node.get("GPU", 0.0) / accelerators + 1e-9))
        fit += min(own)
    return fit


def _on_one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise RecollectError("--on ray needs Ray: pip install 'recollect[ray]'") from error
    return ray


def make(on: str, jobs: int, accelerators: float = 0.0, check: bool = True) -> Executor:
    """The executor called ``on``: ``local``, ``ray``, ``ray://HOST:PORT``.

    ``ray`` alone is the cluster at ``RAY_ADDRESS`` where that is set, and else one that is started here.
    """
    if on == "local":
        return Processes(jobs)
    if on == "ray":
        return OnRay(os.environ.get("RAY_ADDRESS") or None, accelerators=accelerators, check=check)
    if on.startswith("ray://"):
        return OnRay(on, accelerators=accelerators, check=check)
    raise RecollectError(f"--on {on}: local, ray and ray://HOST:PORT are known")
