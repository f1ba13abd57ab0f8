"""Files that are written whole or not at all, and read without trusting them: no links, no surprises in size.

Everything that recollect writes goes through a ``Folder``: a folder that is held open. What is written into it goes
into that folder whatever becomes of its name or of the working directory, and through no link: a name in it that is a
link is refused, and a file that has a second name elsewhere (a hard link) is replaced by a copy of its own first. Only
the folder that the user named may itself be reached through links.
"""

import contextlib
import json
import os
import secrets
import stat
import time
from pathlib import Path
from typing import Any, NoReturn

import filelock

from recollect.errors import FileError, RecollectError

LARGEST_JSON = 2**26  # bytes; nothing that recollect writes as JSON comes near it
LARGEST_LINES = 2**30  # bytes of a file of lines
_PLAIN = os.O_NOFOLLOW | os.O_NONBLOCK  # through no link, and not waiting for the other end of a pipe


class Folder:
    """A folder held open, to write in; ``path`` is for messages. Whatever cannot be written is a ``RecollectError``."""

    def __init__(self, path: Path | str, *, create: bool = False):
        """Open what the user named; ``create``: make it, with the folders above it, where it is not there."""
        self.path, self._handle = Path(path).absolute(), -1
        try:
            if create:
                self.path.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            self._fail(error, self.path)

    def below(self, name: str, *, create: bool = False) -> "Folder":
        """A folder in this one, which must not be a link."""
        inner = Folder.__new__(Folder)
        inner.path, inner._handle = self.path / _one_name(name), -1
        try:
            if create:
                with contextlib.suppress(FileExistsError):
                    self._call(os.mkdir, name)
            inner._handle = self._call(os.open, name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError as error:
            self._fail(error, inner.path)
        return inner

    def _call(self, function: Any, name: str, *arguments: Any) -> Any:
        """A function of ``os`` on a name in this folder."""
        return function(_one_name(name), *arguments, dir_fd=self._handle)

    def __enter__(self) -> "Folder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the folder; it is not to be used any more."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def age(self) -> float:
        """Seconds since a name in it last changed."""
        return time.time() - os.stat(self._handle).st_mtime

    def claim(self) -> bool:
        """Mark it, until it is closed, as one that a living process is at work in; False if another one is."""
        try:
            return filelock.lock_descriptor(self._handle, blocking=False)
        except OSError:  # a file system without locks
            return False

    # -- writing

    def append(self, name: str, content: bytes) -> None:
        """Add to the end of a file all of ``content`` or, where that fails (a full disk), nothing of it."""
        try:
            handle = self._call(os.open, name, os.O_RDWR | os.O_APPEND | os.O_CREAT | _PLAIN, 0o666)
            try:
                found = os.fstat(handle)
                if not stat.S_ISREG(found.st_mode):
                    raise RecollectError(f"cannot write {self.path / name}: it is not an ordinary file")
                if found.st_nlink > 1:
                    with open(handle, "rb", closefd=False) as file:
                        self.replace(name, file.read() + content)
                    return
                try:
                    _put(handle, content)
                except BaseException:
                    os.ftruncate(handle, found.st_size)
                    raise
            finally:
                os.close(handle)
        except OSError as error:
            self._fail(error, self.path / name)

    def replace(self, name: str, content: bytes) -> None:
        """Put ``content`` in the place of a file: the old or the new one is there at any moment, also after a crash.

        What is there and is neither a file nor a link, such as a device or a pipe, stays: it is a ``RecollectError``.
        """
        temporary = f".{_one_name(name)}.{secrets.token_hex(4)}.tmp"
        if (kind := self._kind(name)) and not (stat.S_ISREG(kind) or stat.S_ISLNK(kind)):
            raise RecollectError(f"cannot write {self.path / name}: it is not an ordinary file")
        try:
            try:
                self.create(temporary, content)
                self.rename(temporary, name)
            except BaseException:
                with contextlib.suppress(OSError):
                    self._call(os.unlink, temporary)
                raise
            self.sync()
        except OSError as error:
            self._fail(error, self.path / name)

    def create(self, name: str, *parts: bytes | memoryview) -> None:
        """Write a new file and flush it to disk; a name that is taken is an ``OSError``, as any fault is."""
        handle = self._call(os.open, name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _PLAIN, 0o666)
        try:
            _put(handle, *parts)
            os.fsync(handle)
        finally:
            os.close(handle)

    def flush(self, name: str) -> None:
        """See to it that what was appended to a file is on disk."""
        try:
            handle = self._call(os.open, name, os.O_RDWR | _PLAIN)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            self._fail(error, self.path / name)

    def sync(self) -> None:
        """Flush the list of names to disk."""
        os.fsync(self._handle)

    # -- names

    def make(self, name: str) -> None:
        """Make a folder; one that is there is an ``OSError``."""
        self._call(os.mkdir, name)

    def rename(self, old: str, new: str) -> None:
        """Give another name, in this folder; what was a file of that name is replaced."""
        os.replace(_one_name(old), _one_name(new), src_dir_fd=self._handle, dst_dir_fd=self._handle)

    def names(self) -> list[str]:
        """What is in it."""
        return os.listdir(self._handle)

    def is_folder(self, name: str) -> bool:
        """Whether a name is a folder, and no link to one."""
        return stat.S_ISDIR(self._kind(name))

    def _kind(self, name: str) -> int:
        """The mode of what has a name, of a link its own; 0 where nothing has it."""
        try:
            return os.stat(name, dir_fd=self._handle, follow_symlinks=False).st_mode
        except OSError:
            return 0

    def remove_files(self, name: str, *known: str) -> None:
        """Remove a folder that holds nothing but the ``known`` files, in their order; anything else in it stays."""
        with self.below(name) as inner:
            for file in known:
                with contextlib.suppress(FileNotFoundError):
                    inner._call(os.unlink, file)
        self._call(os.rmdir, name)

    def _fail(self, error: OSError, path: Path) -> NoReturn:
        why = "it is a link" if os.path.islink(path) and path != self.path else error.strerror
        raise RecollectError(f"cannot write {path}: {why}") from error


def _one_name(name: str) -> str:
    """Refuse what would lead out of a folder."""
    if name in ("", ".", "..") or "/" in name or os.sep in name or "\x00" in name:
        raise ValueError(f"{name!r} is not the name of a file in a folder")
    return name


def _put(handle: int, *parts: bytes | memoryview) -> None:
    for part in parts:
        left = memoryview(part).cast("B")
        while len(left):
            left = left[os.write(handle, left) :]


def replace(path: Path | str, content: bytes) -> None:
    """Put ``content`` in the place of the file that the user named, or of a link; see ``Folder.replace``."""
    path = Path(path)
    with Folder(path.parent) as folder:
        folder.replace(path.name, content)


def open_plain(path: Path) -> tuple[int, int]:
    """A handle for reading an ordinary file, and its size; links, pipes and folders are a ``FileError``."""
    try:
        handle = os.open(path, os.O_RDONLY | _PLAIN)
    except FileNotFoundError as error:
        raise FileError(f"{path} is missing") from error
    except (OSError, ValueError) as error:
        raise FileError(f"{path} cannot be read: {'it is a link' if _is_link(path) else error}") from error
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode):
        os.close(handle)
        raise FileError(f"{path} cannot be read: it is not an ordinary file")
    return handle, found.st_size


def _is_link(path: Path) -> bool:
    try:
        return os.path.islink(path)
    except ValueError:  # a null byte
        return False


def refuse_links(*paths: Path) -> None:
    """Refuse to read through a name that is a link."""
    for path in paths:
        if path.is_symlink():
            raise FileError(f"{path} cannot be read: it is a link")


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


def read_lines(path: Path) -> list[bytes]:
    """The lines of a file that somebody may be appending to just now: what has no end of line yet is not among them."""
    content = read(path, LARGEST_LINES)
    return content[: content.rfind(b"\n") + 1].splitlines(keepends=True)


def parse_json(content: bytes | str) -> Any:
    """What strict JSON holds: NaN and infinities, which it does not, are a ``ValueError``, as is any other fault."""
    try:
        text = content if isinstance(content, str) else content.decode("utf-8")
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if number - number != 0.0:
        raise ValueError(f"{text} is more than a number can be")
    return number


def read_json(path: Path, most: int = LARGEST_JSON) -> dict[str, Any]:
    """The JSON object in a file; a file that holds anything else is a ``FileError``."""
    content = read(path, most)
    try:
        found = parse_json(content)
    except ValueError as error:
        raise FileError(f"{path} is damaged: {type(error).__name__}: {_one_line(error)}") from error
    if not isinstance(found, dict):
        raise FileError(f"{path} is damaged: it does not hold a JSON object")
    return found


def _one_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]
