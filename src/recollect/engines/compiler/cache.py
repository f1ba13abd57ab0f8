"""Machine code kept on disk between processes, by what it was made from.

A file is the SHA-256 of the code and the code; one that does not fit its sum is made again. The folder is
``RECOLLECT_CACHE`` or ``recollect/code`` in the user's cache folder; an empty ``RECOLLECT_CACHE`` keeps nothing.
"""

import contextlib
import functools
import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

from recollect.errors import RecollectError
from recollect.store import files

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
    with contextlib.suppress(OSError, RecollectError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        files.replace(path, hashlib.sha256(code).digest() + code)
        _tidy(path.parent)


def read(key: str) -> Any:
    """What `write` kept by ``key``, or None; numbers, text and lists and tables of them."""
    found = get(key)
    return None if found is None else json.loads(found)


def write(key: str, value: Any) -> None:
    """Keep what JSON can hold."""
    put(key, json.dumps(value).encode())


@functools.cache
def _tidy(where: Path) -> None:
    """Remove the oldest of our own files beyond the limit, which are those named by a sum; once per process."""
    ours = (f for f in where.glob("*.o") if re.fullmatch("[0-9a-f]{64}[.]o", f.name))
    kept = sorted(((f.stat().st_mtime, f.stat().st_size, f) for f in ours), reverse=True)
    total = 0
    for _, size, file in kept:
        total += size
        if total > LARGEST:
            file.unlink(missing_ok=True)
