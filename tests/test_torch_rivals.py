"""benchmarks/torch_rivals.py: when a run counts as solved, the journal, the tables. The runs themselves take hours."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).parents[1] / "benchmarks" / "torch_rivals.py"


@pytest.fixture(scope="module")
def rivals():
    spec = importlib.util.spec_from_file_location("torch_rivals", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules["torch_rivals"] = module
    spec.loader.exec_module(module)
    return module


def test_solved_at_the_step_at_which_a_hundred_episodes_reach_the_mark(rivals):
    watch = rivals.Watch(mark=0.95)
    for k in range(99):
        watch.step(), watch.step()
        watch.end(1.0)
        assert not watch.solved, k
    watch.step()
    watch.end(-4.0)  # a mean of exactly .95
    assert watch.solved and watch.solved_steps == 199
    watch.step()
    watch.end(0.0)
    assert watch.solved_steps == 199 and watch.best == pytest.approx(0.95)


def test_what_is_played_is_watched(rivals):
    watch = rivals.Watch(mark=0.95)
    env = rivals.watched("t-maze-10", watch)
    for seed in range(3):
        env.reset(seed=seed)
        over, score = False, 0.0
        while not over:
            _, reward, over, _, _ = env.step(0)
            score += reward
        assert watch.last[-1] == score
    assert (watch.steps, watch.episodes) == (36, 3)


def test_a_run_ends_with_a_row(rivals):
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0")
    row = rivals.run({"task": "t-maze-10", "agent": "torch-actor-critic", "seed": 0, "steps": 500})
    assert row["taken"] == 512 and row["episodes"] == 32 and row["solved_steps"] is None
    assert json.loads(json.dumps(row)) == row


def test_the_journal_and_its_tables(rivals, tmp_path, capsys):
    journal = tmp_path / "rows.jsonl"
    assert rivals.read(journal) == []
    row = {"task": "t-maze-10", "agent": "learner", "seed": 0, "steps": 100, "taken": 100, "cpu_seconds": 2.0}
    row |= {"best": 1.0, "solved_steps": 40, "solved_seconds": 3.0, "solved_cpu_seconds": 1.0}
    other = row | {"seed": 1, "solved_steps": None, "solved_seconds": None, "solved_cpu_seconds": None, "best": 0.5}
    journal.write_text(f'{json.dumps(row)}\n{json.dumps(other)}\n{{"task": "t-ma')
    rows = rivals.read(journal)
    assert rows == [row, other] and "cut short" in capsys.readouterr().err
    assert "| learner | 1 of 2 | 40 | 3 (1) | 50 | 0.75 | 100 |" in rivals.tables(rows)
    assert rivals.key(row) != rivals.key(other)
