"""Ctrl-C while the command runs: it ends soon, with one line and 130, wherever it was.

Python's own way is not enough. It raises ``KeyboardInterrupt`` in whatever the main thread does next, and

1. what is raised in a callback of the garbage collector (JAX has one) or in a ``__del__`` is printed and forgotten;
2. what is raised while a compiled module is imported (JAX's, again) can crash it;
3. nothing is raised before a compiled call returns, and compiling takes seconds;
4. taking the interpreter down while other threads compile ends in a crash.

Here ``sys.unraisablehook`` notices what was forgotten, and the signal is sent again; within an import, where nothing
has begun that could be put in order, the handler ends the process itself; a thread, which Python wakes as soon as the
signal is there, does so if the main thread is not heard from; and a command that has ended by a signal takes nothing
down: streams are flushed, and the process is over.

Work that has a way of its own to end (`recollect.store.interrupts`) puts its own handler in place while it lasts. The
thread then does nothing about the signal, so that of these four only the first and the last are left.

This is for the process's own command: who calls the library keeps their handlers. It imports next to nothing before
the handler is there, so that an impatient Ctrl-C finds it.
"""

import _thread
import os
import signal
import sys
import types
from collections.abc import Callable

from recollect.errors import EXIT_INTERRUPTED

UNHEARD = 0.5
"""Seconds after which a main thread that is in a compiled call is not waited for."""

UNWINDING = 5.0
"""Seconds that the main thread then has to put things in order: to end its workers, to say how to continue."""

AGAIN = 0  # in the pipe, beside the numbers of signals: send it again


def command(run: Callable[[], int]) -> int:
    """``run``'s exit code, in a process that Ctrl-C ends from now on; where Ctrl-C is ignored, it stays so."""
    if os.name != "posix" or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return run()
    ctrl_c = CtrlC()
    try:
        ctrl_c.watch()
        code = run()
    except BaseException as error:
        # Not only KeyboardInterrupt: what it passed through, XLA for one, may have made another error of it.
        ctrl_c.over = True
        if ctrl_c.asked or isinstance(error, KeyboardInterrupt):
            ctrl_c.end()
        raise
    ctrl_c.over = True
    if ctrl_c.asked or code == EXIT_INTERRUPTED:
        leave(code)
    return code


def leave(code: int) -> None:
    """End the process without taking it down. Flushing is given a moment: another thread may hold a stream."""
    try:
        import threading

        flushing = threading.Thread(target=_flush, daemon=True)
        flushing.start()
        flushing.join(UNHEARD)
    finally:
        os._exit(code)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # closed, or none
            continue


def _importing(frame: types.FrameType | None) -> bool:
    """Whether an import is under way in the frame or in one that it was called from."""
    while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    return frame is not None


class CtrlC:
    """The handler, the hook and the thread."""

    def __init__(self):
        self.asked = False
        self.over = False  # nobody is left to tell: the handler ends the process itself
        self._forgotten = False
        self._line = _thread.allocate_lock()  # who gets it, handler, thread or command, says the line
        self._hook = sys.unraisablehook

    def watch(self) -> None:
        """Put all three in place, the handler first."""
        signal.signal(signal.SIGINT, self._receive)
        import threading

        self._read, self._write = os.pipe()
        sys.unraisablehook = self._notice
        os.set_blocking(self._write, False)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        threading.Thread(target=self._wait, name="Ctrl-C", daemon=True).start()

    def end(self) -> None:
        """End the process at once, with the line."""
        try:
            if self._line.acquire(blocking=False):
                os.write(2, b"recollect: interrupted\n")
        finally:
            leave(EXIT_INTERRUPTED)

    def _receive(self, number: int, frame: types.FrameType | None) -> None:
        forgotten, self._forgotten = self._forgotten, False
        if self.over or (self.asked and not forgotten) or _importing(frame):
            self.end()
        self.asked = True
        raise KeyboardInterrupt

    def _notice(self, what: "sys.UnraisableHookArgs") -> None:
        if not issubclass(what.exc_type, KeyboardInterrupt):
            self._hook(what)
            return
        self._forgotten = True
        os.write(self._write, bytes([AGAIN]))

    def _wait(self) -> None:
        """The thread's whole life."""
        while self._hear(None) != signal.SIGINT or signal.getsignal(signal.SIGINT) != self._receive:
            pass
        self._hear_all(UNHEARD)
        if self.asked:
            self._hear_all(UNWINDING)
        self.end()

    def _hear_all(self, seconds: float) -> None:
        import time

        until = time.monotonic() + seconds
        while self._hear(until - time.monotonic()) is not None:
            pass

    def _hear(self, seconds: float | None) -> int | None:
        """The next signal's number, or None after so many seconds; what was forgotten is sent again."""
        import select
        import time

        if not select.select([self._read], [], [], None if seconds is None else max(seconds, 0.0))[0]:
            return None
        (number,) = os.read(self._read, 1)
        if number == AGAIN:
            time.sleep(0.01)  # by then the callback is left
            os.kill(os.getpid(), signal.SIGINT)
        return number
