"""Files that are written whole or not at all, and read without trusting them: no links, no surprises in size."""

import json
import os
import secrets
import stat
from pathlib import Path
from typing import Any

from recollect.errors import FileError, RecollectError

LARGEST_JSON = 2**26  # bytes; nothing that recollect writes as JSON comes near it


def sync_folder(path: Path) -> None:
    """Flush a folder's list of names to disk, where the system can."""
    if os.name == "posix":
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write(path: Path, *parts: bytes | memoryview) -> None:
    """Write a new file and flush its content to disk; one that is there already is an error."""
    with open(path, "xb", buffering=0) as out:
        for part in parts:
            left = memoryview(part).cast("B")
            while len(left):
                left = left[out.write(left) :]
        os.fsync(out.fileno())


def replace(path: Path, content: bytes) -> None:
    """Put ``content`` in the place of a file: the old one or the new one is there at every moment, also after a crash.

    A ``RecollectError`` names the path and the cause where that cannot be done.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        try:
            write(temporary, content)
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)
    except OSError as error:
        raise RecollectError(f"cannot write {path}: {error.strerror}") from error


def open_plain(path: Path) -> tuple[int, int]:
    """A handle for reading an ordinary file, and its size; links, pipes and folders are a ``FileError``."""
    try:
        # Not following a link, and not waiting for the other end of a pipe.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError as error:
        raise FileError(f"{path} is missing") from error
    except (OSError, ValueError) as error:
        link = os.path.islink(path)
        raise FileError(f"{path} cannot be read: {'it is a link' if link else error}") from error
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode):
        os.close(handle)
        raise FileError(f"{path} cannot be read: it is not an ordinary file")
    return handle, found.st_size


def read(path: Path, most: int) -> bytes:
    """The content of an ordinary file of at most so many bytes."""
    handle, size = open_plain(path)
    with os.fdopen(handle, "rb") as file:
        if size > most:
            raise FileError(f"{path} has {size:,} bytes, more than the {most:,} such a file can have")
        try:
            return file.read(most)
        except OSError as error:
            raise FileError(f"{path} cannot be read: {error.strerror}") from error


def read_json(path: Path, most: int = LARGEST_JSON) -> dict[str, Any]:
    """The JSON object in a file; a file that holds anything else is a ``FileError``."""
    content = read(path, most)
    try:
        found = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path} is not sound: {type(error).__name__}: {_one_line(error)}") from error
    if not isinstance(found, dict):
        raise FileError(f"{path} is not sound: it does not hold a JSON object")
    return found


def _one_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]
