"""The recipes of docs/scale.md with the libraries they are for, each skipped where it is not installed."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CASES = [
    pytest.param("dask", "dask", marks=pytest.mark.slow),
    pytest.param("ray-data", "ray", marks=pytest.mark.ray),
    pytest.param("spark", "pyspark", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("name", "package"), CASES)
def test_a_recipe_gives_what_one_machine_gives(name, package):
    if importlib.util.find_spec(package) is None or importlib.util.find_spec("pandas") is None:
        pytest.skip(f"{package} or pandas is not installed")
    if name == "spark" and shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    environment = {
        **os.environ,
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONPATH": os.pathsep.join([str(HERE.parent), *sys.path]),
    }
    environment.pop("RAY_ADDRESS", None)
    with tempfile.TemporaryDirectory(
        prefix="r", ignore_cleanup_errors=True
    ) as folder:  # short: Ray's sockets lie there
        words = [sys.executable, HERE / "run_recipe.py", name, folder]
        run = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=300)
    lines = [line for line in run.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, run.stderr[-3000:]
    ids, expected, seen = json.loads(lines[-1].removeprefix("FOUND "))
    assert ids == expected and len(set(ids)) == 100 and seen == 4000
