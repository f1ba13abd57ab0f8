"""Ctrl-C and SIGTERM: the first asks for a checkpoint and an orderly end, the second ends the process at once."""

import os
import signal
import threading
from types import FrameType
from typing import Any

from recollect.errors import EXIT_INTERRUPTED

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """Training was asked to end and did, with all of it in a checkpoint."""


class Interrupts:
    """While entered, turns the first signal into ``asked`` being set.

    Signals reach the main thread only: entered in another one, this watches nothing.

    Args:
        exits: whether the second one ends the process. Otherwise it is a ``KeyboardInterrupt``: for work that has no
            threads of its own, in a process that may be someone else's.
    """

    def __init__(self, exits: bool = True):
        self.asked, self._exits = threading.Event(), exits
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._receive) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.asked.is_set() and not self._exits:
            raise KeyboardInterrupt
        if self.asked.is_set():
            # Not by an exception: someone who asks twice is not to wait for threads, files or a compiled call.
            os.write(2, b"\nrecollect: stopped at once; the newest checkpoint is what there is\n")
            os._exit(EXIT_INTERRUPTED)
        self.asked.set()
        os.write(2, b"\nrecollect: saving a checkpoint; once more to stop at once\n")
