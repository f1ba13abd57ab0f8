"""Commands in processes of their own, with the real trainer or its stand-in."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"


def environment(**more):
    return {**os.environ, "PYTHONPATH": str(SOURCE), "JAX_PLATFORMS": "cpu", **more}


def standin(*arguments, **more):
    """``recollect ARGUMENTS`` with the stand-in for the trainer."""
    command = [sys.executable, str(HERE / "standin.py"), *map(str, arguments)]
    return subprocess.Popen(command, env=environment(**more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def real(*arguments):
    """``recollect ARGUMENTS``; what is compiled is kept where the tests keep theirs."""
    command = [sys.executable, "-m", "recollect", *map(str, arguments)]
    return subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process, code=0):
    out, err = process.communicate(timeout=240)
    assert process.returncode == code, f"exit {process.returncode}\n{out}\n{err}"
    return out, err


def wait_for(condition, process=None, seconds=120.0):
    end = time.monotonic() + seconds
    while not condition():
        if process is not None and process.poll() is not None:
            raise AssertionError(f"exit {process.returncode}: {process.communicate()}")
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def read_json(path):
    return json.loads(path.read_text())


def events(run):
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def checkpoints_of(run):
    return sorted(run.glob("checkpoints/*/checkpoint-*"))


def content(run):
    """Every file with its content: to see that nothing was changed."""
    return {str(path.relative_to(run)): path.read_bytes() for path in run.rglob("*") if path.is_file()}
