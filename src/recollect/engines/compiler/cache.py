"""Machine code kept on disk between processes, by what it was made from.

A file is the SHA-256 of the code and the code; one that does not fit its sum is made again. The folder is
``RECOLLECT_CACHE`` or ``recollect/code`` in the user's cache folder; an empty ``RECOLLECT_CACHE`` keeps nothing.
"""

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

LARGEST = 2**28
"""Bytes that are kept in all; the oldest files go first."""


def folder() -> Path | None:
    """Where code is kept, or None."""
    named = os.environ.get("RECOLLECT_CACHE")
    if named is not None:
        return Path(named) if named else None
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "recollect" / "code"


def _file(key: str) -> Path | None:
    where = folder()
    return where / f"{hashlib.sha256(key.encode()).hexdigest()}.o" if where else None


def get(key: str) -> bytes | None:
    """The code made from ``key``, if it was kept and is intact."""
    path = _file(key)
    if path is None:
        return None
    try:
        data = path.read_bytes()
    except OSError:
        return None
    code = data[32:]
    return code if len(data) > 32 and hashlib.sha256(code).digest() == data[:32] else None


def put(key: str, code: bytes) -> None:
    """Keep code; where that is not possible, it is made again next time."""
    path = _file(key)
    if path is None:
        return
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, name = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(code).digest() + code)
            os.replace(name, path)
        except OSError:
            os.unlink(name)
            raise
        _tidy(path.parent)


def _tidy(where: Path) -> None:
    """Remove the oldest files beyond the limit."""
    files = sorted(((f.stat().st_mtime, f.stat().st_size, f) for f in where.glob("*.o")), reverse=True)
    total = 0
    for _, size, file in files:
        total += size
        if total > LARGEST:
            file.unlink(missing_ok=True)
