"""One process at a time in a run folder.

The lock is the file ``lock.json``, which names its holder (host, process, when that started), under a lock of the
operating system's, which ends with the process that holds it. So a holder that died on this machine is known to be dead
and is succeeded; of one on another machine, or before a restart of this one, nobody here can tell, and its lock is
broken only when that is asked for.
"""

import contextlib
import fcntl
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

from recollect.errors import FileError, RecollectError
from recollect.store import files

LOCK = "lock.json"


class Lock:
    """Held from construction to ``release``; ``predecessor`` names a holder that had died, or None."""

    def __init__(self, folder: Path, *, break_lock: bool = False, name: str = LOCK):
        """Take the lock or refuse at once, naming the holder.

        ``break_lock``: also take one whose holder ran on another host or before the last restart. One that is held by
        a living process here is never taken.
        """
        self.path = folder / name
        self._handle = _open_locked(self.path)
        try:
            self.predecessor = self._succeed(break_lock)
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, json.dumps(_me()).encode(), 0)
            os.fsync(self._handle)
        except BaseException as error:
            os.close(self._handle)
            if isinstance(error, OSError):
                raise RecollectError(f"cannot write {self.path}: {error.strerror}") from error
            raise

    def _succeed(self, break_lock: bool) -> str | None:
        content = os.pread(self._handle, 4096, 0)
        if not content:
            return None
        holder = _parse(content)
        if not break_lock and holder.get("boot") != _boot():
            raise RecollectError(
                f"{self.path.parent} is locked by {_describe(holder)}, on another host or before a restart: "
                "if that process is gone, --break-lock takes the lock over"
            )
        return _describe(holder)

    def release(self) -> None:
        """Let others in."""
        if self._handle >= 0:
            with contextlib.suppress(OSError):  # the folder may be gone or read-only by now
                self.path.unlink(missing_ok=True)
            os.close(self._handle)
            self._handle = -1


def holder(folder: Path) -> str | None:
    """Who holds the lock of a folder, if a living process here does, or one elsewhere says that it does."""
    try:
        handle, _ = files.open_plain(folder / LOCK)
    except FileError:
        return None
    try:
        found = _parse(os.pread(handle, 4096, 0))
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _describe(found)
    except OSError:
        return None
    finally:
        os.close(handle)
    return _describe(found) if found and found.get("boot") != _boot() else None


def _open_locked(path: Path) -> int:
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        except OSError as error:
            raise RecollectError(f"cannot lock {path.parent}: {path.name}: {error.strerror}") from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Its last holder may have removed the file between the two calls: then this lock is on no file at all.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.stat(path), os.fstat(handle)):
                    return handle
        except BlockingIOError as error:
            content = os.pread(handle, 4096, 0)
            os.close(handle)
            raise RecollectError(
                f"{path.parent} is in use by {_describe(_parse(content))}: wait for it or stop it"
            ) from error
        except OSError as error:
            os.close(handle)
            raise RecollectError(f"cannot lock {path.parent}: {error.strerror}") from error
        os.close(handle)


def _parse(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _describe(found: dict[str, Any]) -> str:
    return f"process {found.get('pid', '?')} on {found.get('host', '?')}, started {found.get('started', '?')}"


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
