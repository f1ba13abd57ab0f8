"""benchmarks/board.py: tables of several reports. The reports are written here; those in the repository took hours."""

import json
import runpy
import sys
from pathlib import Path

import pytest

LONGER = 12, 14, 17, 20, 25, 30, 40, 50, 60, 70
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


@pytest.fixture
def board(tmp_path, monkeypatch, capsys):
    """What it prints of reports with these rows, or says it refuses."""

    def run(*reports: list[dict], options: tuple[str | Path, ...] = ()) -> str:
        paths = [tmp_path / f"{k}.json" for k in range(len(reports))]
        for path, rows in zip(paths, reports, strict=True):
            path.write_text(json.dumps({"command": f"from {path.name}", "versions": {}, "scale": 1.0, "rows": rows}))
        monkeypatch.setattr(sys, "argv", ["board.py", *map(str, (*paths, *options))])
        try:
            runpy.run_path(str(PATH), run_name="__main__")
        except SystemExit as refused:
            return f"{refused} {capsys.readouterr().err}"
        return capsys.readouterr().out

    return run


def test_rows_of_several_reports_stand_in_one_table(board):
    ours = [row("RepeatFirstEasy", "general", seed, 1.0) for seed in range(4)]
    ours += [row("RepeatFirstHard", "general", seed, final) for seed, final in enumerate([1.0, 1.0, 0.0, -0.5])]
    ours += [row("memory_len-30", "general", 0, 0.9)]
    theirs = [row(task, "gru", 9, -0.5) for task in ("RepeatFirstEasy", "RepeatFirstHard")]
    lines = board(ours, theirs).splitlines()
    assert lines[0] == "| task | general | gru | random |"
    assert "| popgym RepeatFirst, easy, hard | 1.00, .50 (4, 2) | −.50, −.50 | −.51, −.49 |" in lines
    assert "| memory_len, 30 | .90 | – | .00 |" in lines
    assert "| 2 tasks, 2 with a mark | general | gru |" in lines
    assert "| runs at the mark | 6 of 8 | 0 of 2 |" in lines
    assert "| tasks where more than half of the seeds are | 1 | 0 |" in lines
    assert "| seeds | 4 | 1 |" in lines
    alone = board(ours, theirs, options=("--agents", "general"))
    assert "gru" not in alone and "| 3 tasks, 3 with a mark | general |" in alone


def test_several_reports_are_joined_into_one_that_gives_the_same_table(board, tmp_path):
    ours = [row("RepeatFirstEasy", "general", seed, 1.0) for seed in range(2)]
    ours += [row("RepeatFirstHard", "general", 0, float("nan")), row("RepeatFirstHard", "general", 1, 0.2)]
    out = tmp_path / "both.json"
    printed = board(ours, [row("RepeatFirstEasy", "gru", 9, -0.5)], options=("--join", out))
    joined = json.loads(out.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert [part["command"] for part in joined["made"]] == ["from 0.json", "from 1.json"] and len(joined["rows"]) == 5
    assert board(options=(out, "--join", tmp_path / "again.json")) == printed
    assert json.loads((tmp_path / "again.json").read_text()) == joined
    before = out.read_bytes()
    assert "exists already" in board(ours, options=("--join", out)) and out.read_bytes() == before


def test_steps_to_the_mark(board):
    ours = [row("RepeatFirstEasy", "general", 0, 1.0), row("RepeatFirstHard", "general", 0, 0.2)]
    ours += [row("HigherLowerEasy", "general", 0, 0.5)]
    ours += [row(f"memory_len-{n}", "general", 0, 1.0 if n < 30 else 0.0) for n in (*range(1, 11), *LONGER)]
    lines = board(ours, options=("--steps",)).splitlines()
    assert lines[0] == "| task | general |"
    assert "| popgym RepeatFirst, easy, hard | 500, – |" in lines and "| memory_len, 1 to 70 | 500 to – |" in lines
    assert not any("HigherLower" in line for line in lines), "it has no mark"


def test_rows_that_cannot_stand_beside_one_another_are_refused(board):
    ours = [row("RepeatFirstEasy", "general", 0, 1.0)]
    assert "seed 0 is in another report as well" in board(ours, ours)
    longer = [row("RepeatFirstEasy", "gru", 0, 1.0, steps=2000)]
    assert "runs of 1,000, 2,000 steps are in one table" in board(ours, longer)
    assert "no none in these reports; there are general" in board(ours, options=("--agents", "none"))
