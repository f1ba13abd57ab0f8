"""A sweep and a sample on a real Ray of two nodes, with workers and a node killed; run by ``test_ray``.

In a process of its own: Ray's threads and its warnings stay out of the tests' process. Prints one line of JSON.
"""

import functools
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from recollect import Reservoir
from recollect.cli import main
from recollect.studies import executors, sweep


def work(seed, seconds=0.0):
    """Bits that depend on the seed alone."""
    time.sleep(seconds)
    weights = np.random.default_rng(seed).lognormal(0, 1, 5000)
    r = Reservoir(16, seed=seed)
    r.extend(range(5000), weights)
    return {"items": r.items, "probabilities": r.inclusion_probabilities().tolist()}


def dies_once(seed, marker):
    """Kills its worker the first time."""
    if not os.path.exists(marker):
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return work(seed)


def dies():
    """Kills its worker every time."""
    os.kill(os.getpid(), signal.SIGKILL)


def shares(folder, own, other):
    """The accelerators this unit sees, and whether the other one was there while it ran."""
    Path(folder, own).touch()
    last = time.time() + 60
    while not Path(folder, other).exists() and time.time() < last:
        time.sleep(0.05)
    return {"sees": os.environ.get("CUDA_VISIBLE_DEVICES"), "met": time.time() < last}


def scenario(folder):
    """What a sweep and a sample give on a cluster that loses workers and a node, and what they give here."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 1,
            "num_gpus": 1,  # Ray takes our word for it
            "object_store_memory": 100_000_000,
            "include_dashboard": False,
        },
    )
    second = cluster.add_node(num_cpus=1, object_store_memory=100_000_000)
    found = {}
    executor = executors.OnRay(cluster.address)
    found["workers"] = executor.workers
    units = {f"unit {k}": functools.partial(work, k, 0.5) for k in range(8)}
    units["fragile"] = functools.partial(dies_once, 100, str(folder / "marker"))
    units["hopeless"] = dies
    said, ended = [], 0

    def say(text):
        nonlocal ended
        said.append(text)
        ended += text.startswith("unit ")
        if ended == 3 and second is not None and not (folder / "killed").exists():
            (folder / "killed").touch()
            cluster.remove_node(second, allow_graceful=False)

    rows, errors = sweep.run_all(units, {"x": 1}, folder / "report.json", executor=executor, say=say)
    alone = {
        name: (work(100) if name == "fragile" else u.func(u.args[0])) for name, u in units.items() if u is not dies
    }
    found["same"] = rows == sweep.plain(alone)
    found["errors"] = errors
    lines = [json.loads(line) for line in sweep.journal_of(folder / "report.json").read_bytes().splitlines()]
    found["once"] = sorted(line["unit"] for line in lines if "unit" in line) == sorted(units)
    found["again"] = sum("again, attempt" in text for text in said)
    executor._expected = {"numpy": "0.1"}
    try:
        sweep.run_all({"a": functools.partial(work, 1)}, {}, executor=executor)
    except executors.VersionsDifferError as error:
        found["refused"] = str(error)
    executor.close()
    executor = executors.OnRay(cluster.address, processors=0.5, accelerators=0.5)
    pair = {own: functools.partial(shares, str(folder), own, other) for own, other in ("ab", "ba")}
    rows, _ = sweep.run_all(pair, {}, executor=executor)
    found["shared"] = [rows[name]["sees"] for name in "ab"]
    found["at_once"] = rows["a"]["met"] and rows["b"]["met"]
    executor.close()
    os.environ["RAY_ADDRESS"] = cluster.address
    for on in ("local", "ray"):
        words = ["sample", str(folder / "*.csv"), "--weight", "w", "-n", "40", "--on", on]
        found[on] = main([*words, "--out", str(folder / f"{on}.parquet")])
    found["bytes"] = (folder / "local.parquet").read_bytes() == (folder / "ray.parquet").read_bytes()
    cluster.shutdown()
    return found


def hungry():
    """Takes a tenth of a gigabyte again and again, until somebody ends it."""
    held = []
    for _ in range(400):
        held.append(np.ones(12_500_000))
        time.sleep(0.05)
    return {"held": len(held)}


def without_memory():
    """What a sweep gives on a node whose memory a unit uses up; Ray is told to step in soon."""
    from ray.cluster_utils import Cluster

    facts = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    free, total = (int(facts[name].split()[0]) for name in ("MemAvailable", "MemTotal"))
    watch = {
        "memory_usage_threshold": 1 - free / total + 1_500_000 / total,
        "memory_monitor_refresh_ms": 100,
        "task_oom_retries": 0,
    }
    node = {"num_cpus": 2, "object_store_memory": 100_000_000, "include_dashboard": False, "_system_config": watch}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    executor = executors.OnRay(cluster.address)
    units = {f"unit {k}": functools.partial(work, k) for k in range(4)} | {"hungry": hungry}
    rows, errors = sweep.run_all(units, {}, executor=executor)
    executor.close()
    cluster.shutdown()
    return {"done": sorted(rows), "errors": errors}


if __name__ == "__main__":
    work(0)  # compiled here, once, and not by every worker that is killed before it is done
    if sys.argv[1:] == ["memory"]:
        print("FOUND", json.dumps(without_memory()), flush=True)
        os._exit(0)
    with tempfile.TemporaryDirectory(prefix="r") as here:
        for k in range(4):
            weights = np.random.default_rng(k).lognormal(0, 1, 500)
            text = "".join(f"{k * 500 + i},{w!r}\n" for i, w in enumerate(weights.tolist()))
            (Path(here) / f"{k}.csv").write_text("id,w\n" + text)
        print("FOUND", json.dumps(scenario(Path(here))))
    sys.stdout.flush()
    os._exit(0)  # Ray's own threads need not be waited for
