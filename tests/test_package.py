"""What is shipped: the wheel's contents, and a first use of it in an environment that has nothing else."""

import argparse
import fcntl
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import recollect
from recollect import cli

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow

COMMANDS = [
    "envs recollect",
    "train --env CartPole-v1 --steps 200 --set memory_size=2 --set hidden=4 --agent episodic --out cartpole",
    "evaluate cartpole --episodes 3",
    "inspect cartpole --limit 5",
    "reproduce fig3 --episodes 25 --seeds 1 --no-baseline --out fig3",
    "plot fig3",
    "runs .",
    "verify fig3",
    "resume cartpole",
    "view cartpole --no-open --limit 5",
    "bench reservoir --capacities 3 --items 20000 --seconds 0.1",
    "lab tune 1 --widths 2 --rates 4 --episodes 100",
]
REFUSED = ["benchmark memory --tasks nothing", "sample table.csv --uniform -n 3"]  # the second for want of pyarrow


def run(*command, cwd=ROOT, ok=True, **options):
    done = subprocess.run([str(x) for x in command], cwd=cwd, capture_output=True, text=True, check=False, **options)
    assert (done.returncode == 0) == ok, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder with a wheel and a source distribution; hatchling comes from this environment or from the index.

    The first worker that needs it makes it, and the others wait.
    """
    base = tmp_path_factory.getbasetemp()
    out = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "dist"
    with open(out.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not out.exists():
            run(sys.executable, "-m", "build", "--outdir", out)
    return out


def test_the_wheel_holds_the_package_and_nothing_else(built):
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"recollect"}
    assert "recollect/py.typed" in names and "recollect/studies/baseline.json" in names
    wrong = [name for name in names if name.endswith((".c", ".pyc")) or "bench/" in name or "/test" in name]
    assert wrong == []
    assert wheel.stat().st_size < 2_000_000


def test_the_metadata_is_valid(built):
    run(sys.executable, "-m", "twine", "check", "--strict", *built.iterdir())


def test_an_empty_environment(built, tmp_path):
    """``pip install`` of the wheel, then every command of the first level."""
    (wheel,) = built.glob("*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv")  # not even pip is in it
    bin_ = tmp_path / "venv" / "bin"
    # Bytecode of what is imported below is written then, that of all the rest never.
    quietly = ["--quiet", "--disable-pip-version-check", "--no-compile"]
    # Nothing of this checkout may be found; XLA compiles as quickly as in the other tests.
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "JAX", "COV"))}
    pip = [sys.executable, "-m", "pip", "--python", bin_ / "python", "install", *quietly]
    run(*pip, f"{wheel}[plots]", env=clean)
    version = run(bin_ / "recollect", "--version", cwd=tmp_path, env=clean).stdout.strip()
    assert version == f"recollect {recollect.__version__}"
    # The other commands in one process, which imports JAX once.
    program = "import json, sys\nfrom recollect import cli\nfor words in json.load(sys.stdin):\n"
    program += "    print('$', *words)\n    assert cli.main(words) == 0, words\n"
    done = run(bin_ / "python", "-c", program, cwd=tmp_path, env=clean, input=json.dumps([c.split() for c in COMMANDS]))
    printed = dict(part.split("\n", 1) for part in done.stdout.removeprefix("$ ").split("\n$ "))
    assert list(printed) == COMMANDS
    assert "recollect/TMaze-v0" in printed["envs recollect"]
    assert printed["evaluate cartpole --episodes 3"].startswith("return ")
    assert (tmp_path / "cartpole" / "episode-0.png").stat().st_size > 10_000
    assert "finished" in printed["runs ."] and "cartpole" in printed["runs ."]
    assert (tmp_path / "cartpole" / "view.html").stat().st_size > 100_000
    for words in REFUSED:
        refused = run(bin_ / "recollect", *words.split(), cwd=tmp_path, env=clean, ok=False)
        assert refused.stderr.startswith("recollect: ") and refused.stderr.count("\n") == 1
    assert "pip install 'recollect[tables]'" in refused.stderr


def test_every_command_of_the_first_level_is_among_them():
    commands = next(a for a in cli.parser()._actions if isinstance(a, argparse._SubParsersAction)).choices
    assert {words.split()[0] for words in (*COMMANDS, *REFUSED)} == set(commands)
