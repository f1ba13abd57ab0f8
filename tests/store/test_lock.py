"""One process at a time: who holds a folder, who has died, and what others can tell."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from recollect import RecollectError
from recollect.store import lock
from reliability import commands

HOLD = (
    "import os, sys, time; from pathlib import Path; from recollect.store.lock import Lock\n"
    "held = Lock(Path(sys.argv[1]))\n"
    "pid = os.fork()\n"
    "if pid: print(pid, flush=True)\n"
    "time.sleep(60)\n"
)


def test_held_and_released(tmp_path):
    held = lock.Lock(tmp_path)
    assert f"process {os.getpid()} on" in lock.holder(tmp_path) and held.predecessor is None
    with pytest.raises(RecollectError, match=rf"is in use by process {os.getpid()} on .*: wait for it or stop it"):
        lock.Lock(tmp_path, break_lock=True)
    held.release()
    held.release()
    assert lock.holder(tmp_path) is None and os.listdir(tmp_path) == []


def test_a_forked_child_does_not_hold_the_lock(tmp_path):
    """The holder is killed and its child lives on: the lock is free, and the next one knows who died."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], env=commands.environment(), stdout=subprocess.PIPE, text=True
    )
    child = int(holder.stdout.readline())
    try:
        assert f"process {holder.pid}" in lock.holder(tmp_path)
        holder.kill()
        holder.wait()
        os.kill(child, 0)  # alive
        deadline = time.monotonic() + 30  # on a loaded machine the child may not have run at all yet
        while lock.holder(tmp_path) is not None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert lock.holder(tmp_path) is None
        mine = lock.Lock(tmp_path)
        assert f"process {holder.pid}" in mine.predecessor
        mine.release()
    finally:
        os.kill(child, signal.SIGKILL)
        holder.stdout.close()


def test_another_host_is_believed_until_asked_otherwise(tmp_path):
    (tmp_path / "lock.json").write_text('{"host": "far", "pid": 7, "started": "then", "boot": "other"}')
    assert lock.holder(tmp_path) == "process 7 on far, started then"
    with pytest.raises(RecollectError, match="locked by process 7 on far, started then, on another host or before a"):
        lock.Lock(tmp_path)
    mine = lock.Lock(tmp_path, break_lock=True)
    assert mine.predecessor == "process 7 on far, started then"
    mine.release()


def test_text_of_a_forged_lock_is_made_harmless(tmp_path):
    forged = {"host": "\x1b[2J\x1b]0;owned\x07", "pid": "1\n2\u202e", "started": "x" * 10_000, "boot": "other"}
    (tmp_path / "lock.json").write_text(json.dumps(forged)[:4000])
    (tmp_path / "lock.json").write_text(json.dumps({**forged, "started": "x" * 1000}))
    said = lock.holder(tmp_path)
    assert said.isprintable() and "\x1b" not in said and len(said) < 300


def test_looking_does_not_get_in_the_way_of_taking(tmp_path):
    """``recollect runs`` in a loop beside processes that take the lock: none of them is turned away."""
    stop = threading.Event()

    def looking():
        while not stop.is_set():
            lock.holder(tmp_path)

    watchers = [threading.Thread(target=looking) for _ in range(2)]
    for watcher in watchers:
        watcher.start()
    try:
        for _ in range(50):
            lock.Lock(tmp_path).release()
    finally:
        stop.set()
        for watcher in watchers:
            watcher.join()


def test_a_look_at_what_a_dead_holder_left_is_no_holder(tmp_path):
    """Who looks holds the file for a moment, to find out whether anybody does: one who takes it then is not refused."""
    (tmp_path / "lock.json").write_text(json.dumps({**lock._me(), "pid": 2**22}))
    handle = os.open(tmp_path / "lock.json", os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_SH)
    looking = threading.Timer(0.005, lambda: os.close(handle))
    looking.start()
    taken = lock.Lock(tmp_path)
    looking.join()
    assert taken.predecessor is not None
    taken.release()


def test_a_holder_that_is_writing_its_name_is_waited_for(tmp_path, monkeypatch):
    """It is written while who looks waits for it."""
    held = lock.Lock(tmp_path)
    content = (tmp_path / "lock.json").read_text()
    (tmp_path / "lock.json").write_text("")
    with monkeypatch.context() as patch:
        patch.setattr(lock.time, "sleep", lambda seconds: (tmp_path / "lock.json").write_text(content))
        assert f"process {os.getpid()}" in lock.holder(tmp_path)
    held.release()


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_what_is_no_lock_file_is_refused(tmp_path, kind):
    place = tmp_path / "run"
    place.mkdir()
    (tmp_path / "thesis").write_text("mine")
    if kind == "link":
        (place / "lock.json").symlink_to(tmp_path / "thesis")
    elif kind == "folder":
        (place / "lock.json").mkdir()
    else:
        os.mkfifo(place / "lock.json")
    with pytest.raises(RecollectError, match="cannot lock"):
        lock.Lock(place)
    assert lock.holder(place) is None and (tmp_path / "thesis").read_text() == "mine"
