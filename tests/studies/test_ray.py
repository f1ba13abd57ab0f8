"""Sweeps and samples on a real Ray of two nodes on this machine."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'recollect[ray]'")


def test_a_cluster_that_loses_workers_and_a_node():
    """Every finished unit once in the journal, the bits of one machine; what dies three times is an error."""
    environment = {
        **os.environ,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DEDUP_LOGS": "0",
        "RAY_health_check_period_ms": "500",
        "RAY_health_check_failure_threshold": "3",
        "RAY_health_check_initial_delay_ms": "500",
    }
    environment.pop("RAY_ADDRESS", None)
    script = Path(__file__).with_name("ray_scenario.py")
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, timeout=400)
    lines = [line for line in run.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, run.stderr[-3000:]
    found = json.loads(lines[-1].removeprefix("FOUND "))
    assert found["workers"] == 2
    assert found["same"] and found["once"]
    assert list(found["errors"]) == ["hopeless"] and "WorkerCrashedError" in found["errors"]["hopeless"]
    assert found["again"] >= 3  # two of the hopeless unit, one of the fragile one, and what the node had
    assert "numpy" in found["refused"] and "the driver has '0.1'" in found["refused"]
    assert found["local"] == found["ray"] == 0 and found["bytes"]
