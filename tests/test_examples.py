"""The programs in examples/ run as a reader would run them, print what they promise, and stay short."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"

# Arguments that make the longer ones short, and what they must print.
PROMISED = {
    "look_inside.py": (["20000"], r"recalled step 0"),
    "own_jax_environment.py": (["64"], r"(4\d|5\d|6\d) of 64 agents solved it"),
    "own_task.py": (["30000"], r"return (1\.000|0\.9\d\d)"),
    "resume_after_kill.py": ([], r"every array is the same"),
    "sample_files.py": ([], r"it is 644,496"),
}


def test_every_example_is_short_and_run():
    """Those that need PyTorch have tests of their own."""
    paths = [path for path in EXAMPLES.glob("*.py") if not path.name.startswith("torch_")]
    assert {path.name for path in paths} == set(PROMISED)
    for path in paths:
        assert len(path.read_text().splitlines()) < 60, path


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PROMISED))
def test_it_does_what_it_promises(name, tmp_path):
    arguments, expected = PROMISED[name]
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.search(expected, done.stdout), done.stdout
    assert list(tmp_path.iterdir()) == [], "it leaves nothing behind"
