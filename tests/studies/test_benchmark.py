"""The board: its arithmetic by hand, a small one from end to end, searches, and that its data holds together."""

import json
import math

import numpy as np
import pytest

from recollect import cli
from recollect.agents import named
from recollect.errors import RecollectError
from recollect.studies import benchmark, plots, ranges, sweep
from recollect.studies.tasks import AGENTS, HELD_OUT, KINDS, NORMALIZED, TASKS
from recollect.training import progress


@pytest.mark.slow
def test_a_small_benchmark_from_end_to_end(tmp_path, capsys):
    out = tmp_path / "results.json"
    arguments = ["--tasks", "t-maze-5,memory_len-2", "--agents", "paper", "--seeds", "2"]
    assert cli.main(["benchmark", "memory", *arguments, "--scale", "0.004", "--out", str(out)]) == 0
    report = json.loads(out.read_text())
    pairs = {(row["task"], row["agent"], row["seed"]) for row in report["rows"]}
    assert len(pairs) == len(report["rows"]) == 2 * 2
    assert all(len(row["curve"]) == benchmark.BLOCKS for row in report["rows"])
    assert out.with_suffix(".png").stat().st_size > 5000 and "median steps" in capsys.readouterr().out
    assert report["options"]["agents"]["paper"] == {"memory_size": 16, "normalized": True}
    assert report["options"]["tasks"]["t-maze-5"]["env_options"] == {"length": 5}
    assert cli.main(["benchmark", "memory", "--tasks", "no-such"]) == 1
    assert "no task 'no-such'" in capsys.readouterr().err


@pytest.mark.slow
def test_a_benchmark_goes_on_where_it_was(tmp_path, monkeypatch, capsys):
    out, tried, pair = tmp_path / "results.json", [], benchmark.pair

    def fail_at_paper(task, agent, *rest, **options):
        tried.append(agent)
        if agent == "paper" and len(tried) < 5:
            raise RuntimeError("no luck")
        return pair(task, agent, *rest, **options)

    monkeypatch.setattr(benchmark, "pair", fail_at_paper)
    command = [
        "benchmark",
        "memory",
        "--tasks",
        "t-maze-5",
        "--agents",
        "episodic,paper",
        "--seeds",
        "1",
        "--jobs",
        "1",
    ]
    command += ["--scale", "0.002", "--out", str(out)]
    assert cli.main(command) == 1 and "no luck" in capsys.readouterr().err
    assert cli.main(command) == 1 and "exists already" in capsys.readouterr().err
    with monkeypatch.context() as other:
        other.setitem(AGENTS, "episodic", {"discount": 0.123})
        assert cli.main([*command, "--resume"]) == 1 and "0.123" in capsys.readouterr().err
    assert cli.main([*command, "--resume"]) == 0 and tried == ["episodic", *["paper"] * 4]
    report = json.loads(out.read_text())
    assert [row["agent"] for row in report["rows"]] == ["episodic", "paper"]
    assert set(report["over_tasks"]) == {"episodic", "paper"}


@pytest.mark.parametrize("words", [[], ["--search", "1"]])
@pytest.mark.parametrize("damaged", [lambda row: 5, lambda row: {k: row[k] for k in row if k != "solved"}])
def test_rows_of_a_journal_without_sums_that_are_none(tmp_path, monkeypatch, capsys, words, damaged):
    rows = [{"episodes": 1000, "return": 1.0, "steps": 1000 * k} for k in range(1, 1001)]
    row = benchmark._row("t-maze-5", TASKS["t-maze-5"], "general", 0, rows, 1.0)
    monkeypatch.setattr(benchmark, "pair", lambda *a, **k: [row])
    out = tmp_path / "r.json"
    command = ["benchmark", "memory", "--tasks", "t-maze-5", "--seeds", "1", "--jobs", "1", "--out", str(out), *words]
    assert cli.main(command) == 0
    first, line = map(json.loads, sweep.journal_of(out).read_text().splitlines())
    made = line["row"]
    line = {"unit": line["unit"], "row": damaged(made) if isinstance(made, dict) else [damaged(made[0])]}
    sweep.journal_of(out).write_text("".join(json.dumps(each) + "\n" for each in (first, line)))
    assert cli.main([*command, "--resume"]) == 1
    assert f"{sweep.journal_of(out)} is damaged: its rows are not those of this command" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("out", "there", "picture"),
    [
        ("X.json", "a picture of mine", "X.png"),
        ("r.v2", "a picture of mine", "r.v2.png"),
        ("board.png", None, "board.png"),
        ("X.json", None, "X.png"),
    ],
)
@pytest.mark.parametrize("resume", [[], ["--resume"]])
def test_the_picture_takes_the_place_of_nothing(tmp_path, monkeypatch, capsys, out, there, picture, resume):
    """A file or, where nothing is said of what it holds, a folder."""
    monkeypatch.setattr(benchmark, "pair", lambda *a, **k: pytest.fail("the work has begun"))
    place = tmp_path / picture
    place.mkdir() if there is None else place.write_text(there)
    assert cli.main(["benchmark", "memory", "--tasks", "t-maze-5", "--out", str(tmp_path / out), *resume]) == 1
    said = capsys.readouterr().err
    assert str(place) in said and ("it is not an ordinary file" if there is None else "exists already") in said
    assert place.is_dir() or place.read_text() == there
    assert [path.name for path in tmp_path.iterdir()] == [picture]


@pytest.mark.slow
def test_a_search_ranks_its_settings(tmp_path, capsys):
    out = tmp_path / "search.json"
    arguments = ["--tasks", "t-maze-5", "--agents", "episodic,gru", "--seeds", "1", "--scale", "0.002", "--jobs", "1"]
    command = ["benchmark", "memory", *arguments, "--search", "2", "--set", "discount=0.5", "--out", str(out)]
    assert cli.main(command) == 0
    report, shown = json.loads(out.read_text()), capsys.readouterr().out
    assert [row["agent"] for row in report["rows"]] == ["episodic"] * 2 + ["gru"] * 2
    for agent in ("episodic", "gru"):
        own = [row for row in report["rows"] if row["agent"] == agent]
        drawn = ranges.draw(benchmark.RANGES[agent], 2, ["discount"])
        assert sorted(map(str, drawn)) == sorted(str(row["settings"]) for row in own)
        merits = [(row["solved"], row["whole"]) for row in own]
        assert merits == sorted(merits, reverse=True)
    assert f"learning_rate={report['rows'][0]['settings']['learning_rate']:g}" in shown
    again = [
        "benchmark",
        "memory",
        "--agents",
        "gru",
        "--seeds",
        "1",
        "--scale",
        "0.002",
        "--search",
        "1",
        "--jobs",
        "1",
    ]
    again += ["--best", str(out), "--out", str(tmp_path / "best.json")]
    assert cli.main([*again, "--tasks", "t-maze-5"]) == 0
    tried = [row["settings"] for row in report["rows"] if row["agent"] == "gru"]
    (found,) = [row["settings"] for row in json.loads((tmp_path / "best.json").read_text())["rows"]]
    assert {name: found[name] for name in tried[0]} == tried[0]
    capsys.readouterr()
    assert cli.main([*again[:-1], str(tmp_path / "other.json"), "--tasks", "t-maze-10"]) == 1
    assert "has no settings of t-maze-10 gru" in capsys.readouterr().err
    assert cli.main(["benchmark", "memory", "--tasks", "t-maze-5", "--best", str(out)]) == 1
    assert "--best: of a search" in capsys.readouterr().err
    assert cli.main(["benchmark", "memory", "--tasks", "t-maze-5", "--set", "discount=0.5"]) == 1
    assert "--set: options are fixed for a --search" in capsys.readouterr().err
    assert cli.main(["benchmark", "memory", "--tasks", "t-maze-5", "--search", "2", "--set", "nonsense=1"]) == 1
    assert "has no option 'nonsense'" in capsys.readouterr().err
    assert cli.main(["benchmark", "memory", "--tasks", "t-maze-5", "--agents", "memoryless", "--search", "2"]) == 1
    assert "memoryless has nothing to tune" in capsys.readouterr().err


@pytest.mark.slow
def test_the_benchmark_says_how_far_it_is(monkeypatch, capsys):
    """Also between two rows of metrics, which can be minutes apart, and before the first."""
    monkeypatch.setattr(progress, "EVERY", 0.0)
    benchmark.pair("t-maze-5", "episodic", range(2), 0.028, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > benchmark.BLOCKS and all("recollect/TMaze-v0 episodic: " in line for line in lines)
    assert " of 14,000 steps" in lines[0] and "steps/s" not in lines[0]
    assert "14,000 of 14,000 steps" in lines[-1] and "steps/s, return" in lines[-1]


@pytest.mark.slow
def test_the_benchmarks_seeds_count_from_where_one_says(capsys):
    def curves(seeds, first_seed):
        rows = benchmark.pair("t-maze-5", "episodic", range(first_seed, first_seed + seeds), 0.004)
        return {row["seed"]: (row["curve"], row["episodes"]) for row in rows}

    three = curves(3, 6)
    assert list(three) == [6, 7, 8] and three[6] != three[7]
    assert curves(1, 7)[7] == three[7]  # a seed is the same run, whatever it is counted from
    large = benchmark.pair("t-maze-5", "general", range(6, 8), 0.004)  # one after another
    assert [row["seed"] for row in large] == [6, 7] and large[0]["curve"] != large[1]["curve"]
    assert benchmark.pair("t-maze-5", "general", range(7, 8), 0.004)[0]["curve"] == large[1]["curve"]
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
    rows += [row("t-maze-5", "paper", 0, 0.0), row("memory_len-2", "episodic", 0, 1.0)]
    both = benchmark.over_tasks(rows)
    assert both["paper"]["mean"] == 0 and both["episodic"]["mean"] == pytest.approx(line["return"])


def test_a_row_by_hand():
    """600 rows of one mistake each, then 400 without."""
    rows = [{"steps": 7 * k, "episodes": k, "return": -1.0 if k <= 600 else 1.0} for k in range(1, 1001)]
    own = benchmark._row("t-maze-5", TASKS["t-maze-5"], "episodic", 0, rows, 1.0)
    assert own["final"] == 1 and own["solved"] and own["steps_to_solve"] == 7 * 600
    assert own["curve"] == [-1.0] * 30 + [1.0] * 20 and own["whole"] == pytest.approx(-0.2)


def test_seeds_are_divided_among_the_jobs():
    """Whoever runs them, every seed of every pair once; as many pieces as there are jobs."""
    for jobs in (1, 2, 7, 64):
        units = benchmark.units(["t-maze-5", "CartPole"], ["general"], range(3, 8), jobs=jobs)
        ran = [(unit.args[0], seed) for unit in units.values() for seed in unit.args[2]]
        assert sorted(ran) == [(task, seed) for task in ("CartPole", "t-maze-5") for seed in range(3, 8)]
        assert len(units) >= min(jobs, 10)


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
    stuck, once = np.where(np.arange(1000) < 800, 5, 0), np.arange(1000) == 420
    stuck[400:440] = once[400:440]  # one good episode between two pauses, and none that ends in the last tenth
    assert benchmark.first_good(1.0 * once, stuck, 1.0) is None
    longer = np.where(np.arange(1000) < 500, 2, few)  # forty poor episodes in twenty rows, then one good one in fifty
    assert benchmark.first_good(longer * (np.arange(1000) >= 500), longer, 1.0) == 500


def test_a_scale_that_leaves_too_little_is_refused():
    with pytest.raises(RecollectError, match=r"1e-09 leaves t-maze-5 fewer than 1,000 of its .* the least is"):
        benchmark.units(["t-maze-5"], ["general"], range(1), 1e-9)
    with pytest.raises(RecollectError, match=r"fewer than 1,000"):
        benchmark.check_search(["t-maze-5"], ["general"], range(1), 0.0)
    benchmark.units(list(TASKS), ["general"], range(1), 0.004)


@pytest.mark.parametrize("task", ["secret-informant-10", "secret-informant-20-2", "t-maze-1000", "CartPole"])
def test_the_least_scale_that_is_named_is_enough(task):
    with pytest.raises(RecollectError) as refused:
        benchmark.check([task], ["general"], range(1), 1e-9)
    benchmark.check([task], ["general"], range(1), float(str(refused.value).rsplit(" ", 1)[1]))


def test_the_tasks_and_agents_hold_together():
    assert {*KINDS, *HELD_OUT} <= set(TASKS) and not set(KINDS) & set(HELD_OUT) and set(NORMALIZED) <= set(AGENTS)
    for task in TASKS.values():
        assert task.low < task.best and (math.isnan(task.mark) or task.low < task.mark <= task.best)
    assert (
        TASKS["memory_len-30"].env == "bsuite/memory_len/15" and TASKS["memory_size-10"].env == "bsuite/memory_size/9"
    )
    assert sum(task.env.startswith("popgym-") for task in TASKS.values()) == 42
    for agent, options in AGENTS.items():
        assert named.make(agent, **options) is not None
    assert benchmark.chosen(None) == KINDS and benchmark.chosen(["t-maze-5"]) == ("t-maze-5",)
    assert benchmark.chosen(("all",)) == tuple(TASKS)


def test_what_is_left_out_of_the_general_agent_makes_another_agent():
    names = ("general", "trace-units", "reservoir", "memoryless", "even-weights", "one-horizon", "fresh-chance")
    agents = {name: named.make(name, **AGENTS[name]) for name in names}
    assert len(set(agents.values())) == len(agents)
    assert agents["one-horizon"].discounts == (0.95,) and agents["even-weights"].memory.law == "uniform"
    assert agents["fresh-chance"].persistence.share == 0.0


@pytest.mark.parametrize("option", ["--tasks", "--agents"])
def test_an_empty_list_is_refused_and_not_the_default(option, capsys):
    assert cli.main(["benchmark", "memory", option, ","]) == 1
    assert "names are separated by commas" in capsys.readouterr().err


@pytest.mark.parametrize(("option", "value"), [("--best", ""), ("--best", "x.json"), ("--study", "x")])
def test_what_only_a_search_takes_is_named(option, value, capsys):
    assert cli.main(["benchmark", "memory", option, value]) == 1
    assert f"{option}: of a search" in capsys.readouterr().err


def test_the_picture_has_every_agent_however_many(tmp_path):
    rows = [{"task": "t", "agent": agent, "steps": 100, "curve": [0.0, None, 1.0]} for agent in AGENTS]
    assert len(AGENTS) > 8  # more than there are colours
    assert plots.draw_benchmark(tmp_path / "board.png", rows).stat().st_size > 0
