"""The library's own errors. Wrong arguments raise ``ValueError`` or ``TypeError``; these are for everything else."""


class RecollectError(Exception):
    """Base of the errors that recollect raises on its own account."""


class FileError(RecollectError):
    """A file is not what it should be: foreign, corrupt, truncated, or of a version this release cannot read."""
