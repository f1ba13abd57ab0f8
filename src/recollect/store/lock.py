"""One process at a time in a run folder.

The lock is the file ``lock.json``, which names its holder (host, process, when that started), under a lock of the
operating system's, which ``filelock`` takes: it ends with the process that holds it, and a child that was forked does
not hold it. So a holder that died on this machine is known to be dead and is succeeded; of one on another machine, or
before a restart of this one, nobody here can tell, and its lock is broken only when that is asked for.
"""

import contextlib
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import filelock

from recollect.errors import FileError, RecollectError, printable
from recollect.store import files

LOCK = "lock.json"
PATIENCE = 0.3  # seconds: ``holder`` looks at a lock by taking it for an instant
_LARGEST = 4096  # bytes


class Lock:
    """Held from construction to ``release``; ``predecessor`` names a holder that had died, or None."""

    def __init__(self, folder: Path, *, break_lock: bool = False, name: str = LOCK):
        """Take the lock or refuse at once, naming the holder.

        ``break_lock``: also take one whose holder ran on another host or before the last restart. One that is held by
        a living process here is never taken.
        """
        self.path, self.predecessor = Path(folder).absolute() / name, None
        self._of = self.path.parent if name == LOCK else self.path.with_suffix("")  # what is locked, for messages
        self._lock = filelock.FileLock(
            self.path,
            thread_local=False,
            fallback_to_soft=False,
            on_acquired=lambda handle: self._succeed(handle, break_lock),
        )
        try:
            self._lock.acquire(timeout=PATIENCE, poll_interval=0.02)
        except filelock.Timeout as error:
            holder = _describe(_look(self.path))
            raise RecollectError(f"{self._of} is in use by {holder}: wait for it or stop it") from error
        except OSError as error:
            raise RecollectError(f"cannot lock {self._of}: {name}: {error.strerror}") from error

    def _succeed(self, handle: int, break_lock: bool) -> None:
        """With the operating system's lock in hand: look who had it before, and write down who has it now."""
        if content := os.pread(handle, _LARGEST, 0):
            holder = _parse(content)
            if not break_lock and holder.get("boot") != _boot():
                raise RecollectError(
                    f"{self._of} is locked by {_describe(holder)}, on another host or before a restart: "
                    "if that process is gone, --break-lock takes the lock over"
                )
            self.predecessor = _describe(holder)
        me = json.dumps(_me()).encode()
        os.pwrite(handle, me, 0)
        os.ftruncate(handle, len(me))
        os.fsync(handle)

    def release(self) -> None:
        """Let others in."""
        if self._lock.is_locked:
            with contextlib.suppress(OSError):  # the folder may be gone or read-only by now
                self.path.unlink(missing_ok=True)  # while it is held: who opened it before sees that it is gone
            self._lock.release()


def holder(folder: Path) -> str | None:
    """Who holds the lock of a folder, if a living process here does, or one elsewhere says that it does."""
    path = folder / LOCK
    try:
        handle, _ = files.open_plain(path)
    except FileError:
        return None
    try:
        held = not filelock.lock_descriptor(handle, blocking=False)
        found = _look(path) if held else _parse(os.pread(handle, _LARGEST, 0))
    except OSError:
        return None
    finally:
        os.close(handle)
    return _describe(found) if held or (found and found.get("boot") != _boot()) else None


def _look(path: Path) -> dict[str, Any]:
    """What a lock that is held says of its holder, who may be writing it just now."""
    found: dict[str, Any] = {}
    for _ in range(5):
        with contextlib.suppress(FileError):
            found = _parse(files.read(path, _LARGEST))
        if found:
            break
        time.sleep(0.002)
    return found


def _parse(content: bytes) -> dict[str, Any]:
    try:
        found = files.parse_json(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _describe(found: dict[str, Any]) -> str:
    """Of a lock file, which anybody may have written: for people to read, and short."""
    pid, host, started = (printable(found.get(name, "?"), 64) for name in ("pid", "host", "started"))
    return f"process {pid} on {host}, started {started}"


def _me() -> dict[str, Any]:
    return {"host": platform.node(), "pid": os.getpid(), "started": _started(), "boot": _boot()}


def _started() -> str:
    """When this process started, as UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - _age()))


def _age() -> float:
    """Seconds since this process started, by the system's account of it; 0 where there is none."""
    try:
        fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0


def _boot() -> str:
    """What tells this machine since its last start from every other."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return platform.node()
