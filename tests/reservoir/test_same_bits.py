"""The same bits from a process that compiles as from one that finds everything compiled."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
PROGRAM = """
import hashlib
import numpy as np
from recollect import Reservoir
from recollect.reservoir import counts

weights = np.random.default_rng(0).lognormal(3.0, 1.0, 100_000)
whole = counts._count(weights, 1e-5)
r = Reservoir(64, seed=0)
r.extend(range(len(weights)), weights)
found = [*whole[2:], r.inclusion_probabilities(), r.log_weights, r.items]
print(*(hashlib.sha256(np.asarray(x).tobytes()).hexdigest()[:16] for x in found))
"""


@pytest.mark.slow
def test_compiled_now_or_before(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(SOURCE)}

    def run():
        done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    first = run()
    assert any(tmp_path.rglob("*.nbc"))
    assert run() == first
