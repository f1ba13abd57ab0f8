"""Sweeps and samples on a real Ray of two nodes on this machine."""

import importlib.util
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install 'recollect[ray]'"
)


def scenario(*arguments):
    """What ``ray_scenario.py`` found, in a process of its own."""
    environment = {
        **os.environ,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DEDUP_LOGS": "0",
        "RAY_health_check_period_ms": "500",
        "RAY_health_check_failure_threshold": "3",
        "RAY_health_check_initial_delay_ms": "500",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
    }
    environment.pop("RAY_ADDRESS", None)
    command = [sys.executable, Path(__file__).with_name("ray_scenario.py"), *arguments]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=400)
    lines = [line for line in run.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, run.stderr[-3000:]
    return json.loads(lines[-1].removeprefix("FOUND "))


@pytest.mark.slow
def test_a_cluster_that_loses_workers_and_a_node():
    """Every finished unit once in the journal, the bits of one machine; what dies three times is an error."""
    found = scenario()
    assert found["workers"] == 2
    assert found["same"] and found["once"]
    assert list(found["errors"]) == ["hopeless"] and "WorkerCrashedError" in found["errors"]["hopeless"]
    assert found["again"] >= 3  # two of the hopeless unit, one of the fragile one, and what the node had
    assert "numpy" in found["refused"] and "the driver has '0.1'" in found["refused"]
    assert found["shared"] == ["0", "0"] and found["at_once"]  # two units on one accelerator
    assert found["local"] == found["ray"] == 0 and found["bytes"]


@pytest.mark.ray
@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="the memory in use is read as Linux tells it")
def test_a_unit_that_takes_all_memory_is_an_error_and_the_rest_goes_on():
    found = scenario("memory")
    assert found["done"] == [f"unit {k}" for k in range(4)]
    assert list(found["errors"]) == ["hungry"] and "OutOfMemoryError" in found["errors"]["hungry"]


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.mark.ray
def test_a_cluster_by_its_address(tmp_path):
    """--on ray://HOST:PORT: a head with a client server, started as the manual says; the same bytes as here."""
    pytest.importorskip("grpc", reason="Ray's client needs grpcio: pip install 'recollect[ray]'")
    rows = "".join(f"{k},{w!r}\n" for k, w in enumerate(np.random.default_rng(0).lognormal(0, 1, 500).tolist()))
    (tmp_path / "a.csv").write_text("id,w\n" + rows)
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token"}
    environment["RAY_AUTH_TOKEN"] = secrets.token_hex(32)  # of this cluster alone
    environment.pop("RAY_ADDRESS", None)
    port = free_port()
    sample = [sys.executable, "-c", "import sys; from recollect.cli import main; sys.exit(main())", "sample"]
    sample += [str(tmp_path / "a.csv"), "--weight", "w", "-n", "40"]
    start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--port={free_port()}"]
    start += [f"--ray-client-server-port={port}", "--num-cpus=1", "--include-dashboard=false"]
    with (
        tempfile.TemporaryDirectory(prefix="r", ignore_cleanup_errors=True) as folder,
        open(tmp_path / "log", "w") as log,
    ):
        start += [f"--temp-dir={folder}", "--object-store-memory=100000000"]
        head = subprocess.Popen(start, env=environment, start_new_session=True, stdout=log, stderr=log)
        try:
            wait_for(port, head)
            for on in ("local", f"ray://127.0.0.1:{port}"):
                words = [*sample, "--out", str(tmp_path / f"{on[:3]}.parquet"), "--on", on]
                run = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=200)
                assert run.returncode == 0, run.stderr[-2000:]
            assert "1 pieces on Ray: 1 workers on 1 nodes" in run.stderr
            assert (tmp_path / "loc.parquet").read_bytes() == (tmp_path / "ray.parquet").read_bytes()
        finally:
            os.killpg(head.pid, signal.SIGTERM)
            head.wait(60)


def wait_for(port, head):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and head.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.5)
    raise AssertionError("Ray's head did not start")
