"""The library's own errors. Wrong arguments raise ``ValueError`` or ``TypeError``; these are for everything else."""

import unicodedata

EXIT_INTERRUPTED = 130
"""What the command exits with that a signal ended."""


class RecollectError(Exception):
    """Base of the errors that recollect raises on its own account."""


class FileError(RecollectError):
    """A file is not what it should be: foreign, corrupt, truncated, or of a version this release cannot read."""


def printable(value: object, most: int = 2000) -> str:
    r"""Text from somewhere else, for a terminal: control characters and invisible ones written out, on one line.

    >>> printable("a\x1b[2Jb\nc")
    'a\\x1b[2Jb c'
    """
    text = " ".join(str(value)[: most + 1].splitlines()) if not isinstance(value, str) else value[: most + 1]
    shown = "".join(_shown(c) for c in " ".join(text.splitlines()))
    return shown if len(text) <= most else f"{shown[:most]}…"


def _shown(character: str) -> str:
    kind = unicodedata.category(character)
    if kind in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"):
        return character.encode("unicode_escape").decode("ascii")
    return character
