"""An environment's own pictures and texts, small enough to keep: PNG written with zlib alone, equal ones once."""

import base64
import struct
import zlib
from typing import Any

import numpy as np

LARGEST_SIDE = 320
"""Pixels; larger pictures are thinned out by a whole factor."""
MOST_BYTES = 3_000_000
"""Of all pictures of an episode together; later steps of a longer one have none."""


def png(picture: np.ndarray) -> bytes:
    r"""A uint8 picture [height, width, 3] as a PNG file.

    >>> png(np.zeros((2, 2, 3), np.uint8))[:8]
    b'\x89PNG\r\n\x1a\n'
    """
    height, width, _ = picture.shape

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows = np.zeros((height, 1 + 3 * width), np.uint8)  # each begins with its filter, 0 for none
    rows[:, 1:] = picture.reshape(height, -1)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(rows.tobytes(), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


class Frames:
    """What ``env.render()`` showed at each step."""

    def __init__(self) -> None:
        self.known: dict[bytes, int] = {}
        self.pictures: list[str] = []
        self.of: list[int] = []  # which picture each step has; −1 for none
        self.texts: list[str] = []
        self.bytes = 0

    def add(self, shown: Any) -> None:
        """One step's picture or text; anything else is passed over."""
        self.texts.append(shown if isinstance(shown, str) else "")
        self.of.append(self._place(shown) if isinstance(shown, np.ndarray) else -1)

    def _place(self, shown: np.ndarray) -> int:
        if shown.ndim != 3 or shown.shape[2] != 3 or shown.dtype != np.uint8 or 0 in shown.shape:
            return -1
        by = -(-max(shown.shape[:2]) // LARGEST_SIDE)
        small = np.ascontiguousarray(shown[::by, ::by])
        key = small.tobytes() + repr(small.shape).encode()
        if key not in self.known:
            written = png(small)
            if self.bytes + len(written) > MOST_BYTES:
                return -1
            self.bytes += len(written)
            self.known[key] = len(self.pictures)
            self.pictures.append(base64.b64encode(written).decode())
        return self.known[key]

    def document(self) -> dict[str, Any]:
        """What an episode of a recording says of it."""
        found: dict[str, Any] = {}
        if self.pictures:
            found["frames"] = {"png": self.pictures, "of": self.of}
        if any(self.texts):
            found["texts"] = self.texts
        return found
