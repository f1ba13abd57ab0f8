"""Ctrl-C in processes of their own: one line and 130 wherever it lands, unless the work has its own way to end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from recollect.cli import ctrl_c

SOURCE = Path(__file__).parents[2] / "src"
LINE = "recollect: interrupted\n"

IN_A_CALLBACK = """
    def callback(*_):
        gc.callbacks.remove(callback)
        ready()
        until = time.monotonic() + 5
        while time.monotonic() < until:
            pass
    gc.callbacks.append(callback)
    gc.collect()
    time.sleep(120)
"""
IN_A_DEL = """
    class Slow:
        def __del__(self):
            ready()
            time.sleep(5)
    Slow()
    time.sleep(120)
"""
IN_A_COMPILED_CALL = """
    ready()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
"""
MADE_INTO_ANOTHER_ERROR = """
    try:
        ready()
        time.sleep(120)
    except KeyboardInterrupt:
        raise RuntimeError("a callback failed") from None
"""
IN_AN_IMPORT = """
    class Finder:
        def find_spec(self, *_):
            try:
                ready()
                time.sleep(120)
            finally:
                print("raised within the import")
    sys.meta_path.insert(0, Finder())
    import nothing_of_the_kind
"""
WITH_A_THREAD_THAT_NEVER_ENDS = """
    threading.Thread(target=time.sleep, args=(120,)).start()
    ready()
    time.sleep(120)
"""


def process(*command, cache=""):
    """As a shell starts it: with Ctrl-C not ignored, whatever started the tests; nothing compiled is found."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        environment = {**os.environ, "PYTHONPATH": str(SOURCE), "JAX_PLATFORMS": "cpu"}
        environment |= {"JAX_ENABLE_COMPILATION_CACHE": "false", "RECOLLECT_CACHE": str(cache)}
        environment["PYTHONUNBUFFERED"] = ""
        pipe = subprocess.PIPE
        return subprocess.Popen([sys.executable, *command], env=environment, stdout=pipe, stderr=pipe, text=True)
    finally:
        signal.signal(signal.SIGINT, before)


def program(body):
    """A process that does ``body`` as the command does its work, once it has said that it is ready."""
    lines = [
        "import gc, hashlib, sys, threading, time",
        "from recollect.cli import ctrl_c",
        "def ready(): print('ready', flush=True)",
        f"def run():{body}    return 0",
        "sys.exit(ctrl_c.command(run))",
    ]
    started = process("-c", "\n".join(lines))
    assert started.stdout.readline() == "ready\n", started.communicate()
    return started


def interrupt(started, within):
    begun = time.monotonic()
    started.send_signal(signal.SIGINT)
    with started:
        out, err = started.stdout.read(), started.stderr.read()
    assert time.monotonic() - begun < within
    return started.returncode, out, err


@pytest.mark.parametrize(
    "body",
    [IN_A_CALLBACK, IN_A_DEL, IN_A_COMPILED_CALL, IN_AN_IMPORT, MADE_INTO_ANOTHER_ERROR, WITH_A_THREAD_THAT_NEVER_ENDS],
    ids=["gc", "del", "compiled", "import", "other-error", "thread"],
)
def test_the_first_ends_it_wherever_it_lands(body):
    assert interrupt(program(body), within=40) == (130, "", LINE)


def test_the_line_is_said_once_though_two_end_it(monkeypatch, capfd):
    """As where the handler's flushing takes as long as its thread waits for it."""
    left = []
    monkeypatch.setattr(ctrl_c, "leave", left.append)
    ending = ctrl_c.CtrlC()
    ending.end()
    ending.end()
    assert (capfd.readouterr().err, left) == (LINE, [130, 130])


def test_what_is_under_way_is_put_in_order():
    """With what was written so far, and more time than a compiled call gets; a second Ctrl-C does not wait for it."""
    body = """
    try:
        ready()
        print("a row")
        time.sleep(120)
    finally:
        time.sleep({})
        print("in order")
"""
    started = program(body.format(1))
    time.sleep(0.3)
    assert interrupt(started, within=40) == (130, "a row\nin order\n", LINE)
    started = program(body.format(120))
    time.sleep(0.3)
    started.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert interrupt(started, within=40) == (130, "a row\n", LINE)


def test_work_with_its_own_way_to_end_keeps_it():
    """As long as it takes; and a second one that a callback swallowed is sent to it again."""
    body = """
    from recollect.store.interrupts import Interrupts
    with Interrupts(exits=False) as interrupts:
        ready()
        interrupts.asked.wait()
        time.sleep({})
        print("saved", flush=True)
        {}
"""
    code, out, err = interrupt(program(body.format(1.5, "")), within=40)
    assert (code, out) == (0, "saved\n") and err == "\nrecollect: saving a checkpoint; once more to stop at once\n"
    insists = "gc.callbacks.append(lambda *_: time.sleep(0.5)); gc.collect(); gc.callbacks.clear(); time.sleep(120)"
    started = program(body.format(0, insists))
    started.send_signal(signal.SIGINT)
    assert started.stdout.readline() == "saved\n"
    time.sleep(0.2)
    code, out, err = interrupt(started, within=40)
    assert code == 130 and err.endswith(f"at once\n{LINE}") and "Traceback" not in err


@pytest.mark.slow
@pytest.mark.parametrize("command", ["evaluate", "view"])
def test_a_real_command_at_many_moments(command, tmp_path):
    """While it imports, traces, compiles and plays."""
    from recollect import cli

    run = tmp_path / "run"
    words = ["--env", "recollect/TMaze-v0", "--steps", "200", "--record", "0", "--out", str(run)]
    assert cli.main(["train", *words]) == 0
    more = {"evaluate": ["--episodes", "1000000"], "view": ["--no-open"]}[command]
    for delay in (0.15, 0.4, 0.6, 0.7, 0.8, 0.9, 1.1, 1.5, 2.0, 2.5):
        started = process("-m", "recollect", command, str(run), *more, cache=tmp_path / str(delay))
        time.sleep(delay)
        code, _, err = interrupt(started, within=40)
        assert code == 130 and err.endswith(LINE) and "Traceback" not in err and "Exception" not in err, (delay, err)
