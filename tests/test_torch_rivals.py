"""benchmarks/torch_rivals.py: when a run counts as solved, the journal, the tables. The runs themselves take hours."""

import argparse
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


def test_out_of_time_a_run_may_end(rivals):
    watch = rivals.Watch(mark=0.95, cpu_seconds=0.0)
    watch.step()
    assert watch.over and not watch.solved
    watch.raises = True
    with pytest.raises(rivals.Over):
        watch.step()
    assert watch.steps == 1


JOB = {"task": "t-maze-10", "agent": "torch-actor-critic", "seed": 0, "steps": 500, "limit": None}


@pytest.mark.slow
def test_a_run_ends_with_a_row(rivals):
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0")
    row = rivals.run(JOB)
    assert row["taken"] == 512 and row["episodes"] == 32 and row["solved_steps"] is None and not row["cut"]
    assert json.loads(json.dumps(row)) == row
    assert rivals.run(JOB | {"limit": 1e-9})["cut"]


def test_the_journal_and_its_tables(rivals, tmp_path, capsys):
    journal = tmp_path / "rows.jsonl"
    assert rivals.read(journal) == []
    row = {"task": "t-maze-10", "agent": "learner", "seed": 0, "steps": 100, "taken": 100, "cpu_seconds": 2.0}
    row |= {"limit": 9.0, "best": 1.0, "solved_steps": 40, "solved_seconds": 3.0, "solved_cpu_seconds": 1.0}
    row["cut"] = False
    none = {"solved_steps": None, "solved_seconds": None, "solved_cpu_seconds": None}
    other = row | none | {"seed": 1, "taken": 60, "cpu_seconds": 9.0, "best": 0.5, "cut": True}
    lines = [json.dumps(found) for found in (row | none, row, other)]
    journal.write_text("\n".join(lines) + '\n{"task": "t-ma')
    rows = rivals.read(journal)
    assert rows == [row, other] and "cut short" in capsys.readouterr().err  # a run made again counts once
    assert "| learner | 1 of 2 | 40 | 1 | 3 | 28 | 0.75 (0.50 to 1.00) | 9 s: 60 steps or more |" in rivals.tables(rows)
    assert [rivals.settled(found, limit) for found in rows for limit in (5.0, 9.0, 20.0, None)] == [
        *(True, True, True, True),
        *(True, True, False, False),
    ]


def test_one_seed_of_everything_before_the_next(rivals):
    args = argparse.Namespace(agents=["learner", "recurrent-ppo"], tasks=["t-maze-10"], seeds=2, scale=0.5)
    args.cpu_seconds = 60.0
    found = [(job["seed"], job["agent"], job["steps"], job["limit"]) for job in rivals.jobs_of(args)]
    assert found == [(seed, agent, 50_000, 60.0) for seed in (0, 1) for agent in ("recurrent-ppo", "learner")]


@pytest.mark.slow
def test_a_crew_runs_in_processes_and_tells_a_failure(rivals, monkeypatch):
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0")
    monkeypatch.syspath_prepend(PATH.parent)  # where the other processes find the module
    jobs = [JOB, JOB | {"task": "no-such-task"}, JOB | {"seed": 1}]
    crew, found = rivals.Crew(jobs, processes=2), {}
    while crew.left:
        found |= {rivals.key(job): row and row["taken"] for job, row in crew.ended(1.0)}
    assert found == dict(zip(map(rivals.key, jobs), [512, None, 512], strict=True))
