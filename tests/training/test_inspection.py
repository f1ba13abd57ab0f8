"""Looking inside an agent, and the benchmark's arithmetic."""

import dataclasses
import json
import math

import numpy as np
import pytest

from recollect import Learner, cli
from recollect.agents import named
from recollect.agents.episodic import EpisodicActorCritic
from recollect.agents.recurrent import RecurrentActorCritic
from recollect.cli import learners
from recollect.errors import RecollectError
from recollect.studies import benchmark, ranges
from recollect.studies.tasks import AGENTS, DEFAULT, TASKS
from recollect.training import inspection, progress

OPTIONS = {"env_options": {"length": 4}, "check": False}


def test_an_episode_shows_what_was_held_and_recalled():
    learner = Learner(EpisodicActorCritic(memory_size=2, hidden=4), "recollect/TMaze-v0", **OPTIONS)
    moments = inspection.play(learner, seed=1)
    assert len(moments) == 6 and moments[0].slot == -1 and np.isnan(moments[0].weights).all()
    for t, m in enumerate(moments[1:], 1):
        held = ~np.isnan(m.weights)
        assert held.sum() == min(t, 2) and m.probabilities[held].sum() == pytest.approx(1, abs=1e-5)
        assert np.array_equal(m.recalled, m.items[m.slot]) and (m.since[held] < t).all()
        assert ((m.weights[held] > 0) & (m.weights[held] < 1)).all()
    assert moments[-1].reward in (-1.0, 1.0)
    columns, rows = inspection.lines(moments)
    assert len(rows) == 6 and all(len(row) == len(columns) for row in rows)
    assert rows[0][-3] == "nothing" and sum("▸" in cell for cell in rows[3]) == 1


def test_agents_without_a_memory_are_refused():
    learner = Learner(RecurrentActorCritic(width=2, window=2), "recollect/TMaze-v0", **OPTIONS)
    with pytest.raises(RecollectError, match="no episodic memory"):
        inspection.play(learner)


def test_from_training_to_a_picture_on_the_command_line(tmp_path, capsys):
    run = str(tmp_path / "run")
    train = [
        "train",
        "--env",
        "recollect/TMaze-v0",
        "--env-set",
        "length=2",
        "--steps",
        "300",
        "--agent",
        "episodic",
        "--set",
        "hidden=4",
    ]
    assert cli.main([*train, "--out", run, "--log-every", "100", "--evaluate-every", "200"]) == 0
    assert cli.main(["evaluate", run, "--episodes", "5"]) == 0
    assert cli.main(["inspect", run]) == 0
    out = capsys.readouterr().out
    assert "folder:" in out and "5 episodes" in out and "in 4 steps; ▸ marks" in out
    assert (tmp_path / "run" / "episode-0.png").stat().st_size > 5000
    assert cli.main([*train, "--out", run]) == 1
    assert "exists already" in capsys.readouterr().err
    assert cli.main([*train, "--set", "nonsense=1"]) == 1
    assert "has no option 'nonsense'" in capsys.readouterr().err


def test_a_small_benchmark_from_end_to_end(tmp_path, capsys):
    out = tmp_path / "results.json"
    arguments = ["--tasks", "t-maze-5,memory_len-2", "--agents", "episodic,none,oracle", "--seeds", "2"]
    assert cli.main(["benchmark", "memory", *arguments, "--scale", "0.002", "--out", str(out)]) == 0
    report = json.loads(out.read_text())
    pairs = {(row["task"], row["agent"], row["seed"]) for row in report["rows"]}
    assert len(pairs) == len(report["rows"]) == 2 * 2 * 2 + 2  # the oracle where the task offers one
    assert all(len(row["curve"]) == benchmark.BLOCKS for row in report["rows"])
    assert out.with_suffix(".png").stat().st_size > 5000 and "median steps" in capsys.readouterr().out
    for task, given in report["options"].items():
        assert given["agents"]["none"] == TASKS[task].agent_options("none") and given["env"] == TASKS[task].env
    assert cli.main(["benchmark", "memory", "--tasks", "no-such"]) == 1
    assert "no task 'no-such'" in capsys.readouterr().err


def test_a_benchmark_goes_on_where_it_was(tmp_path, monkeypatch, capsys):
    out, tried, pair = tmp_path / "results.json", [], benchmark.pair

    def fail_at_none(task, agent, *rest, **options):
        tried.append(agent)
        if agent == "none" and len(tried) < 3:
            raise RuntimeError("no luck")
        return pair(task, agent, *rest, **options)

    monkeypatch.setattr(benchmark, "pair", fail_at_none)
    command = ["benchmark", "memory", "--tasks", "t-maze-5", "--agents", "episodic,none", "--seeds", "1", "--jobs", "1"]
    command += ["--scale", "0.002", "--out", str(out)]
    assert cli.main(command) == 1 and "no luck" in capsys.readouterr().err
    assert cli.main(command) == 1 and "exists already" in capsys.readouterr().err
    with monkeypatch.context() as other:
        changed = dataclasses.replace(TASKS["t-maze-5"], episodic=(("discount", 0.123),))
        other.setitem(TASKS, "t-maze-5", changed)
        assert cli.main([*command, "--resume"]) == 1 and "0.123" in capsys.readouterr().err
    assert cli.main([*command, "--resume"]) == 0 and tried == ["episodic", "none", "none"]
    report = json.loads(out.read_text())
    assert [row["agent"] for row in report["rows"]] == ["episodic", "none"] and set(report["over_tasks"]) == {
        "episodic",
        "none",
    }


def test_a_search_ranks_its_settings(tmp_path, capsys):
    out = tmp_path / "search.json"
    arguments = ["--tasks", "t-maze-5", "--agents", "episodic,gru", "--seeds", "2", "--scale", "0.002"]
    command = ["benchmark", "memory", *arguments, "--search", "3", "--set", "discount=0.5", "--out", str(out)]
    assert cli.main(command) == 0
    report, shown = json.loads(out.read_text()), capsys.readouterr().out
    assert [row["agent"] for row in report["rows"]] == ["episodic"] * 3 + ["gru"] * 3
    for agent in ("episodic", "gru"):
        own = [row for row in report["rows"] if row["agent"] == agent]
        drawn = ranges.draw(benchmark.RANGES[agent], 3, ["discount"])
        assert sorted(map(str, drawn)) == sorted(str(row["settings"]) for row in own)
        merits = [(row["solved"], row["whole"]) for row in own]
        assert merits == sorted(merits, reverse=True)
    assert f"learning_rate={report['rows'][0]['settings']['learning_rate']:g}" in shown
    near = ["--search", "2", "--near", "--out", str(tmp_path / "near.json"), "--agents", "gru"]
    assert cli.main(["benchmark", "memory", "--tasks", "t-maze-5", "--seeds", "2", "--scale", "0.002", *near]) == 0
    tried = [row["settings"] for row in json.loads((tmp_path / "near.json").read_text())["rows"]]
    assert dict(TASKS["t-maze-5"].recurrent) in tried and len(tried) == 2
    again = ["benchmark", "memory", "--agents", "gru", "--seeds", "1", "--scale", "0.002", "--search", "1"]
    again += ["--best", str(tmp_path / "near.json"), "--out", str(tmp_path / "best.json")]
    assert cli.main([*again, "--tasks", "t-maze-5"]) == 0
    assert [row["settings"] for row in json.loads((tmp_path / "best.json").read_text())["rows"]] == tried[:1]
    capsys.readouterr()
    assert cli.main([*again[:-1], str(tmp_path / "other.json"), "--tasks", "t-maze-10"]) == 1
    assert "has no settings of t-maze-10 gru" in capsys.readouterr().err
    assert cli.main(["benchmark", "memory", "--tasks", "t-maze-5", "--near"]) == 1
    assert "--near: of a search" in capsys.readouterr().err
    assert cli.main(["benchmark", "memory", "--tasks", "t-maze-5", "--set", "discount=0.5"]) == 1
    assert "--set: options are fixed for a --search" in capsys.readouterr().err
    assert cli.main(["benchmark", "memory", "--tasks", "t-maze-5", "--search", "2", "--set", "nonsense=1"]) == 1
    assert "has no option 'nonsense'" in capsys.readouterr().err
    assert cli.main(["benchmark", "memory", "--tasks", "t-maze-5", "--agents", "oracle", "--search", "2"]) == 1
    assert "the oracle is not tuned" in capsys.readouterr().err


def test_the_benchmark_says_how_far_it_is(monkeypatch, capsys):
    """Also between two rows of metrics, which can be minutes apart, and before the first."""
    monkeypatch.setattr(progress, "EVERY", 0.0)
    benchmark.pair("t-maze-5", "none", range(2), 0.5, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > benchmark.BLOCKS and all("recollect/TMaze-v0 none: " in line for line in lines)
    assert " of 14,000 steps" in lines[0] and "steps/s" not in lines[0]
    assert "14,000 of 14,000 steps" in lines[-1] and "steps/s, return" in lines[-1]


def test_the_benchmarks_seeds_count_from_where_one_says(capsys):
    def curves(seeds, first_seed):
        rows = benchmark.pair("t-maze-5", "episodic", range(first_seed, first_seed + seeds), 0.01)
        return {row["seed"]: (row["curve"], row["episodes"]) for row in rows}

    three = curves(3, 6)
    assert list(three) == [6, 7, 8] and three[6] != three[7]
    assert curves(1, 7)[7] == three[7]  # a seed is the same run, whatever it is counted from
    for nonsense in ("-1", "1.5", "many", "", str(2**31)):
        with pytest.raises(SystemExit):
            cli.main(["benchmark", "memory", "--tasks", "t-maze-5", "--first-seed", nonsense])
        assert "must be a whole number from 0" in capsys.readouterr().err
    assert cli.main(["benchmark", "memory", "--tasks", "t-maze-5", "--first-seed", str(2**31 - 5)]) == 1
    assert "10 seeds from 2147483643 on" in capsys.readouterr().err


def row(task, agent, seed, final, needed=None, solved=False):
    return {"task": task, "agent": agent, "seed": seed, "final": final, "steps_to_solve": needed, "solved": solved}


def test_the_table_by_hand():
    rows = [
        row("t-maze-5", "episodic", k, x, n, x == 1) for k, (x, n) in enumerate([(1.0, 50), (1.0, 70), (0.0, None)])
    ]
    (line,) = benchmark.table(rows)
    # The middle half of three: half of the lowest's third is outside, as is half of the highest's.
    assert line["return"] == pytest.approx(2 * (0 * (1 / 3 - 1 / 4) + 1 / 3 + (3 / 4 - 2 / 3)))
    assert line["solved"] == 2 and line["median_steps"] == 70 and line["interval"][0] <= line["return"]
    rows += [row("t-maze-5", "none", 0, 0.0), row("memory_len-2", "episodic", 0, 1.0)]
    both = benchmark.over_tasks(rows)
    assert both["none"]["mean"] == 0 and both["episodic"]["mean"] == pytest.approx(line["return"])


def test_bsuites_score_looks_at_all_of_training():
    """600 rows of one mistake each, then 400 without: 60% of a run of a thousand episodes."""
    rows = [{"steps": 7 * k, "episodes": k, "return": -1.0 if k <= 600 else 1.0} for k in range(1, 1001)]
    found = {name: benchmark._row(name, TASKS[name], "episodic", 0, rows, 1.0) for name in ("memory_len-2", "t-maze-5")}
    own = found["t-maze-5"]
    assert own["final"] == 1 and own["solved"] and own["steps_to_solve"] == 7 * 600
    assert own["curve"] == [-1.0] * 30 + [1.0] * 20
    assert found["memory_len-2"]["whole"] == pytest.approx(-0.2) and not found["memory_len-2"]["solved"]


def test_how_soon_by_hand():
    """What is done before the first twenty rows at the mark; a lucky few among long episodes do not count."""
    few = np.zeros(1000)
    few[::50] = 1
    many = np.where(np.arange(1000) < 500, few, 2)
    right = np.where(np.arange(1000) < 700, 0.0, 1.0)
    assert benchmark.first_good(many * right, many, 0.95) == 699  # one mistake in forty
    assert benchmark.first_good(many * right, many, 1.0) == 700
    lucky = np.where(np.arange(1000) < 500, 1.0, right)
    assert benchmark.first_good(many * lucky, many, 1.0) == 700
    assert benchmark.first_good(many * 0.9, many, 0.95) is None
    assert benchmark.first_good(few * lucky, few, 1.0) == 0  # in so short a run one episode has to do
    assert benchmark.first_good(np.full(1000, 2.0), np.full(1000, 2), 1.0) == 0
    assert benchmark.first_good(np.zeros(1000), np.zeros(1000), 1.0) is None


def test_the_tasks_are_sound():
    assert set(DEFAULT) <= set(TASKS) and all(task.low < task.solved <= task.optimal for task in TASKS.values())
    assert (
        TASKS["memory_len-30"].env == "bsuite/memory_len/15" and TASKS["memory_size-10"].env == "bsuite/memory_size/9"
    )
    for agent in set(AGENTS) - {"oracle"}:
        for task in TASKS.values():
            named.make(agent, **task.agent_options(agent))
    easy = TASKS["RepeatFirstEasy"]
    assert easy.normalize_rewards and easy.agent_options("episodic")["log_weight_floor"] == -10.0
    own = easy.agent_options("gru")
    assert (own["width"], own["critic_output"]) == (16, "linear") and own | dict(easy.recurrent) == own
    memoryless = easy.agent_options("none")
    assert memoryless["discount"] == dict(easy.episodic)["discount"] != dict(easy.every)["discount"]
    assert set(AGENTS) - {"oracle"} == set(learners.LEARNERS) and not math.isnan(TASKS["MiniGrid-MemoryS7"].low)
