"""benchmarks/board.py: tables of several reports. The reports are written here; those in the repository took hours."""

import json
import subprocess
import sys
from pathlib import Path

PATH = Path(__file__).parents[1] / "benchmarks" / "board.py"


def row(task: str, agent: str, seed: int, final: float, steps: int = 1000) -> dict:
    solved = final >= 0.95
    soon = 500 if solved else None
    return {
        "task": task,
        "agent": agent,
        "seed": seed,
        "steps": steps,
        "final": final,
        "solved": solved,
        "steps_to_solve": soon,
    }


def board(tmp_path: Path, *reports: list[dict], options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    paths = [tmp_path / f"{k}.json" for k in range(len(reports))]
    for path, rows in zip(paths, reports, strict=True):
        path.write_text(json.dumps({"rows": rows}))
    return subprocess.run([sys.executable, PATH, *paths, *options], capture_output=True, text=True, timeout=100)


def test_rows_of_several_reports_stand_in_one_table(tmp_path):
    ours = [row("RepeatFirstEasy", "general", seed, 1.0) for seed in range(4)]
    ours += [row("RepeatFirstHard", "general", seed, final) for seed, final in enumerate([1.0, 1.0, 0.0, -0.5])]
    ours += [row("memory_len-30", "general", 0, 0.9)]
    theirs = [row(task, "gru", 9, -0.5) for task in ("RepeatFirstEasy", "RepeatFirstHard")]
    result = board(tmp_path, ours, theirs)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "| task | general | gru | random |"
    assert "| popgym RepeatFirst, easy, hard | 1.00, .50 (4, 2) | −.50, −.50 | −.51, −.49 |" in lines
    assert "| memory_len, 30 | .90 | – | .00 |" in lines
    assert "| 2 tasks, 2 with a mark | general | gru |" in lines
    assert "| runs at the mark | 6 of 8 | 0 of 2 |" in lines
    assert "| tasks where more than half of the seeds are | 1 | 0 |" in lines
    assert "| seeds | 4 | 1 |" in lines
    alone = board(tmp_path, ours, theirs, options=("--agents", "general")).stdout
    assert "gru" not in alone and "| 3 tasks, 3 with a mark | general |" in alone


def test_rows_that_cannot_stand_beside_one_another_are_refused(tmp_path):
    ours = [row("RepeatFirstEasy", "general", 0, 1.0)]
    assert "seed 0 is in another report as well" in board(tmp_path, ours, ours).stderr
    longer = [row("RepeatFirstEasy", "gru", 0, 1.0, steps=2000)]
    assert "runs of 1,000, 2,000 steps are in one table" in board(tmp_path, ours, longer).stderr
    assert "no none in these reports; there are general" in board(tmp_path, ours, options=("--agents", "none")).stderr
