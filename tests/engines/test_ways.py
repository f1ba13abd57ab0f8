"""How runs are spread over a GPU's threads, held against the figures that were measured."""

import json
from pathlib import Path

import pytest

from recollect.engines import compiled_gpu

REPORT = json.loads((Path(__file__).parents[2] / "benchmarks" / "gpu-h200.json").read_text())
FIGURES = [*REPORT["kernels_before"], *REPORT["kernels"]]  # of a way that is in both, what was measured last
PROCESSORS = 132  # of an H200
WAYS = {
    "teams": compiled_gpu.TEAMS,
    "teams, 168 registers, 300": compiled_gpu.TEAMS_IN_TURN,
    "teams, 22 KB": compiled_gpu.TEAMS_OF_LARGE,
    "threads, 64 registers": compiled_gpu.THREADS,
}
SIZES = {"tmaze": 6912, "recommended": 21632}  # bytes of the agent's state


@pytest.mark.parametrize("pair", SIZES)
@pytest.mark.parametrize("runs", [1024, 4096, 32768, 131072])
def test_the_way_that_is_taken_was_the_fastest_or_nearly(pair, runs):
    speeds = {row["way"]: row["steps_per_second"] for row in FIGURES if (row["pair"], row["runs"]) == (pair, runs)}
    way = compiled_gpu.way_for(runs, PROCESSORS, SIZES[pair])
    name = next(name for name, options in WAYS.items() if options == way)
    assert len(speeds) >= 10 and speeds[name] > 0.97 * max(speeds.values())
