"""Metrics for TensorBoard: one file of events, made from the rows of metrics.

The file is written through the run folder, as everything in it is, and from its beginning when a run is resumed: so it
holds no point twice, and no link in the folder leads elsewhere. tensorboardX brings the protocol buffers.
"""

import struct
import time
from collections.abc import Sequence
from typing import Any

from recollect.errors import RecollectError
from recollect.store.run_folders import RunFolder

FOLDER, FILE = "tensorboard", "events.out.tfevents.recollect"


class Board:
    """The file ``tensorboard/events.out.tfevents.recollect`` of a run folder."""

    def __init__(self, folder: RunFolder):
        try:
            from tensorboardX.proto import event_pb2
            from tensorboardX.record_writer import masked_crc32c
            from tensorboardX.summary import scalar
        except ImportError as error:
            raise RecollectError("log='tensorboard' needs tensorboardX: pip install 'recollect[log]'") from error
        self._folder, self._sum, self._scalar = folder, masked_crc32c, scalar
        self._event: Any = event_pb2.Event  # type: ignore[attr-defined]

    def begin(self, rows: Sequence[dict[str, Any]]) -> None:
        """Write the file again, with these rows in it."""
        start = self._record(self._event(wall_time=time.time(), file_version="brain.Event:2"))
        self._folder.write(FILE, start + self._records(rows), below=FOLDER)

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        """Append rows."""
        self._folder.add_to(FILE, self._records(rows), below=FOLDER)

    def _records(self, rows: Sequence[dict[str, Any]]) -> bytes:
        found = []
        for row in rows:
            for name, value in row.items():
                # NaN where nothing was measured; a callback may have added what is no number
                if name in ("seed", "steps") or not isinstance(value, (int, float)) or value != value:
                    continue
                summary = self._scalar(f"seed {row['seed']}/{name}", value)
                found.append(self._record(self._event(wall_time=time.time(), step=row["steps"], summary=summary)))
        return b"".join(found)

    def _record(self, event: Any) -> bytes:
        content = event.SerializeToString()
        length = struct.pack("<Q", len(content))
        return b"".join([length, struct.pack("<I", self._sum(length)), content, struct.pack("<I", self._sum(content))])
