"""What ``recollect sample`` keeps beside its output until that is written, so that it can be resumed."""

import contextlib
import io
import json
import os
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from recollect.errors import FileError, RecollectError
from recollect.store import files
from recollect.store.files import Folder
from recollect.store.provenance import differences

PLAN = "plan.json"
_FIELDS = {  # of the results of each stage, at least
    "pilot": {"places", "numbers", "share"},
    "survey": {"rows", "places", "numbers"},
    "count": {"first", "mass"},
    "draw": {"positions", "weights"},
}
_STAGE = re.compile(r"(pilot|survey|count-[0-9]+|draw)-[0-9]+\.npz")
_TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{8}\.tmp")  # what a crash leaves of a file that was being written


class Parts:
    """The results of stages in the folder ``OUT.parts``, held open; nothing else in that folder is touched."""

    def __init__(self, out: Path, plan: dict[str, Any], resume: bool):
        """Take the folder or make it; one that was begun with another ``plan`` is refused, field by field."""
        self.path = out.absolute().with_name(f"{out.name}.parts")
        with Folder(self.path.parent) as above:
            there = self.path.name in above.names()
            if there and not resume:
                raise RecollectError(
                    f"{self.path} is left from an interrupted sample: --resume continues it, or remove the folder"
                )
            self._folder = above.below(self.path.name, create=not there)
        try:
            self._begin(plan)
        except BaseException:
            self._folder.close()
            raise

    def _begin(self, plan: dict[str, Any]) -> None:
        if not set(self._folder.names()) - set(self._temporaries()):  # new, or made just before a crash
            self._folder.replace(PLAN, json.dumps(plan, indent=1).encode())
        elif found := differences(files.read_json(self.path / PLAN), plan):
            raise RecollectError(f"--resume: {self.path} was begun with something else: {'; '.join(found)}")

    def read(self, stage: str, at: int) -> dict[str, np.ndarray] | None:
        """What was kept of a piece, or None."""
        name = f"{stage}-{at}.npz"
        if name not in self._folder.names():
            return None
        try:
            handle, _ = files.open_plain(self.path / name)
            with os.fdopen(handle, "rb") as file, np.load(file, allow_pickle=False) as found:
                kept = {own: found[own] for own in found.files}
            if not _FIELDS[stage.partition("-")[0]] <= set(kept):
                raise ValueError("it is of something else")
        except (FileError, OSError, ValueError, LookupError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise FileError(f"{self.path / name} is damaged: remove it, and --resume does that piece again") from error
        return kept

    def write(self, stage: str, at: int, found: dict[str, np.ndarray]) -> None:
        """Keep the result of a stage of a piece."""
        buffer, arrays = io.BytesIO(), dict[str, Any](found)
        np.savez(buffer, allow_pickle=False, **arrays)
        self._folder.replace(f"{stage}-{at}.npz", buffer.getvalue())

    def _stages(self) -> list[str]:
        return [name for name in self._folder.names() if _STAGE.fullmatch(name)]

    def _temporaries(self) -> list[str]:
        found = {name: _TEMPORARY.fullmatch(name) for name in self._folder.names()}
        return [name for name, match in found.items() if match and (match[1] == PLAN or _STAGE.fullmatch(match[1]))]

    @property
    def has_results(self) -> bool:
        """Whether there is anything to continue from."""
        return bool(self._stages())

    def close(self) -> None:
        """Let go of the folder, which stays, for ``--resume``."""
        self._folder.close()

    def remove(self) -> None:
        """Remove what was written here; whatever else somebody put into the folder stays, and the folder with it."""
        ours = [*sorted(self._stages()), *self._temporaries(), PLAN]
        self._folder.close()
        with contextlib.suppress(OSError, RecollectError), Folder(self.path.parent) as above:
            above.remove_files(self.path.name, *ours)
