"""``recollect reproduce`` from the outside: small budgets, and trainers that fail or never end."""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from recollect import RecollectError, cli
from recollect.store.run_reading import read
from recollect.studies import reproduce
from recollect.studies.reproduce import Standing, make_plan
from recollect.training.batch import Progress, Result

pytestmark = pytest.mark.slow

FILES = ["checkpoints", "config.json", "figure.png", "figure.svg", "log.jsonl", "metrics.jsonl", "status.json"]
FILES += ["verdict.json", "verdict.md"]


def read_json(path):
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A small run of figure 4 with its baseline; later runs of the same shape reuse what it compiled."""
    out = tmp_path_factory.mktemp("runs") / "fig4"
    assert cli.main(["reproduce", "fig4", "--episodes", "200", "--seeds", "2", "--out", str(out)]) == 0
    return out


def test_the_folder(finished):
    assert sorted(p.name for p in finished.iterdir()) == FILES
    config, curves, status = read(finished)
    assert (config["figure"], config["preset"], config["experiment"]["length"]) == ("fig4", "paper", 10)
    ours, theirs = config["agents"]["episodic"], config["agents"]["recurrent"]
    assert (ours["seeds"], ours["episodes"], ours["bins"], ours["max_steps"]) == ([0, 1], 200, 100, 4 * 200 * 12)
    assert ours["hyperparameters"]["learning_rate"] == 0.005 and ours["hyperparameters"]["memory_size"] == 3
    assert (theirs["seeds"], theirs["max_steps_over_shortest"]) == ([1, 2, 3], 4.0)
    assert status["status"] == "finished" and status["wall_seconds"] > 0
    for name, seeds in (("episodic", 2), ("recurrent", 3)):
        assert status["agents"][name]["finished"] == [True] * seeds
        assert all(200 * 12 <= steps <= 20_000 for steps in status["agents"][name]["steps"])
        assert curves[name].returns.shape == (seeds, 100) and np.isfinite(curves[name].returns).all()
    assert np.isfinite(curves["episodic"].query_vectors).all() and np.isnan(curves["recurrent"].write_weights).all()


def test_the_verdict(finished):
    verdict = read_json(finished / "verdict.json")
    assert verdict["note"] == "the budget was shortened: 200 episodes a seed, where the paper has about 25,000"
    assert verdict["rows"][0]["verdict"] == "does not hold" and len(verdict["rows"]) == 6
    assert "shortened" in (finished / "verdict.md").read_text()


def test_plot_needs_the_folder_alone(finished, tmp_path, capsys):
    for name in ("config.json", "metrics.jsonl", "status.json"):
        (tmp_path / name).write_bytes((finished / name).read_bytes())
    assert cli.main(["plot", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"picture: {tmp_path / 'figure.png'} {tmp_path / 'figure.svg'}\n"
    assert (tmp_path / "figure.svg").read_bytes() == (finished / "figure.svg").read_bytes()


def test_an_existing_folder_is_left_alone(finished, capsys):
    before = {p.name: p.stat().st_mtime_ns for p in finished.iterdir()}
    assert cli.main(["reproduce", "fig4", "--out", str(finished)]) == 1
    assert capsys.readouterr().err == f"recollect: {finished} exists already: choose another --out, or remove it\n"
    assert {p.name: p.stat().st_mtime_ns for p in finished.iterdir()} == before


def test_seeds_that_do_not_finish_are_reported(finished, tmp_path, capsys):
    out = tmp_path / "run"
    arguments = ["--episodes", "2000", "--seeds", "2", "--max-steps", "0.1", "--no-baseline", "--out", str(out)]
    assert cli.main(["reproduce", "fig4", *arguments]) == 0
    printed = capsys.readouterr().out
    assert "2 of 2 seeds did not finish" in " ".join(printed.replace("│", " ").split())
    assert str(out / "figure.png") in printed and f"folder:  {out}" in printed and "shortened" in printed
    status = read_json(out / "status.json")
    assert status["status"] == "finished" and status["agents"]["episodic"]["finished"] == [False, False]
    assert list(status["agents"]) == ["episodic"] and len(read_json(out / "verdict.json")["rows"]) == 5
    assert "did not finish (looping)" in (out / "figure.svg").read_text()
    assert {row["verdict"] for row in read_json(out / "verdict.json")["rows"]} == {"does not hold"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fig7"], "invalid choice: 'fig7'"),
        ([], "required: figure"),
        (["fig4", "--seeds", "0"], "at least 1"),
        (["fig4", "--seeds", "1.5"], "must be whole"),
        (["fig4", "--seeds", "1,2"], "one number is wanted"),
        (["fig4", "--seeds", "inf"], "must be whole"),
        (["fig4", "--episodes", "0"], "at least 1"),
        (["fig4", "--episodes", "many"], "not a comma-separated list of whole numbers"),
        (["fig4", "--max-steps", "0"], "greater than 0"),
        (["fig4", "--max-steps", "nan"], "must be a finite number"),
        (["fig4", "--max-steps", "x"], "is not a number"),
        (["fig4", "--preset", "best"], "invalid choice: 'best'"),
        (["fig4", "--episodes", "310"], "recollect: episodes=310 must be a multiple of 25"),
        (["fig4", "--episodes", "1e9"], "recollect: 1,000,000,000 episodes are too many"),
        (["all", "--episodes", "10"], "recollect: episodes=10 must be a multiple of 25"),
        (["fig4", "--out", "file/run"], "recollect: cannot create the run folder file/run"),
        (["fig4", "--out", "."], "recollect: . exists already"),
        (["all", "--out", "taken"], "recollect: taken/fig6-paper exists already"),
    ],
)
def test_refused_before_anything_is_made(arguments, message, tmp_path, monkeypatch, capsys):
    def never(plan, job, group, state):
        raise AssertionError("training began")

    (tmp_path / "file").write_text("")
    (tmp_path / "taken" / "fig6-paper").mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(reproduce, "begin", never)
    try:
        code = cli.main(["reproduce", *arguments])
    except SystemExit as stop:
        code = stop.code
    error = capsys.readouterr().err
    assert code == (1 if message.startswith("recollect: ") else 2) and message in error
    assert code == 2 or error.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_pictures_that_cannot_be_drawn_are_refused_first(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert cli.main(["reproduce", "fig3", "--out", str(tmp_path / "run")]) == 1
    assert "pip install 'recollect[plots]'" in capsys.readouterr().err and not (tmp_path / "run").exists()


def result(seeds):
    n = len(seeds)
    nothing = np.full((n, 1, 1), np.nan)
    return Result(tuple(seeds), np.ones(1), *[nothing] * 4, np.full(n, 9), np.full(n, True), None)


def report(steps, episodes, new_bins=()):
    return Progress(steps, steps, np.array(episodes), list(new_bins), 0.5)


def test_one_failed_group_is_recorded_and_the_rest_go_on(tmp_path, monkeypatch, capsys):
    """The baseline fails: the episodic agent finishes, folder and command say which."""

    def begin(plan, job, group, state):
        yield report(10, [1])
        if job.name == "recurrent":
            raise RuntimeError("out of luck\nand more lines")
        yield report(20, [2])
        yield result(job.groups[group])

    monkeypatch.setattr(reproduce, "begin", begin)
    assert cli.main(["reproduce", "fig4", "--out", str(tmp_path / "run")]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "recollect: training of the recurrent agent failed: RuntimeError: out of luck"
    status = read_json(tmp_path / "run" / "status.json")
    assert status["status"] == "failed" and status["error"].endswith("RuntimeError: out of luck")
    assert list(status["errors"]) == ["recurrent-0"]
    assert status["agents"]["recurrent"]["finished"] == [None] * 3
    assert status["agents"]["episodic"]["finished"] == [True] * 3
    assert not (tmp_path / "run" / "verdict.json").exists()
    logged = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [line["event"] for line in logged if line["event"] != "engine"] == ["begun", "failed"]
    engines = {line["group"]: line["engine"] for line in logged if line["event"] == "engine"}
    assert engines["episodic-0"] in ("cuda", "cpu", "jax") and "recurrent-0" in engines


def test_one_failed_figure_is_recorded_and_the_rest_go_on(tmp_path, monkeypatch, capsys):
    def train(plan, path, watch, every, executor, say):
        assert executor is None  # threads of this process
        asked.append(path.name)
        if plan.figure == "fig4":
            raise RecollectError("out of luck")

    asked = []
    monkeypatch.setattr(reproduce, "train", train)
    monkeypatch.setattr(
        reproduce, "conclude", lambda path: ({"figure": "", "title": "", "preset": "", "rows": [], "note": None}, [])
    )
    assert cli.main(["reproduce", "all", "--out", str(tmp_path)]) == 1
    assert asked == [f"fig{k}-paper" for k in (3, 4, 5, 6)]
    assert capsys.readouterr().err.splitlines()[-1] == "recollect: out of luck"


def test_interrupt(tmp_path, monkeypatch, capsys):
    """Ctrl-C: bins so far are kept, the folder says interrupted, exit 130; what there is can be drawn."""
    line = {"seed": 0, "episodes": 250, "return": 0.5, "length": 12.0, "write_weights": [0.5, 0.5]}
    line["query_vectors"] = [[0.0] * 8]
    metrics = tmp_path / "run" / "metrics.jsonl"

    def begin(plan, job, group, state):
        yield report(10, [250, 1, 1], [line])
        while True:
            time.sleep(0.01)
            yield report(20, [250, 1, 1])

    def interrupt():
        while not (metrics.exists() and metrics.stat().st_size):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(reproduce, "begin", begin)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=interrupt).start()
        assert cli.main(["reproduce", "fig4", "--no-baseline", "--out", str(tmp_path / "run")]) == 130
    finally:
        signal.signal(signal.SIGINT, handler)
    assert capsys.readouterr().err.endswith("recollect: interrupted; recollect resume continues it\n")
    status = read_json(tmp_path / "run" / "status.json")
    assert status["status"] == "interrupted" and status["agents"]["episodic"]["finished"] == [None] * 3
    assert read(tmp_path / "run")[1]["episodic"].returns[0, 0] == 0.5
    assert cli.main(["plot", str(tmp_path / "run")]) == 0


def test_all_figures_get_a_folder_each(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(reproduce, "train", lambda plan, path, *rest: asked.append((plan, path)))
    monkeypatch.setattr(
        reproduce, "conclude", lambda path: ({"figure": "", "title": "", "preset": "", "rows": [], "note": None}, [])
    )
    monkeypatch.chdir(tmp_path)
    assert cli.main(["reproduce", "all", "--preset", "robust"]) == 0
    assert [path for _, path in asked] == [Path(f"runs/fig{k}-robust") for k in (3, 4, 5, 6)]
    assert [len(plan.jobs) for plan, _ in asked] == [2, 2, 2, 1]
    assert [len(plan.jobs[-1].seeds) for plan, _ in asked] == [3, 3, 10, 3]
    assert cli.main(["reproduce", "fig3", "--seeds", "5", "--no-baseline"]) == 0
    plan, path = asked[-1]
    assert path == Path("runs/fig3-paper") and [job.seeds for job in plan.jobs] == [(0, 1, 2, 3, 4)]


@pytest.mark.parametrize("figure", ["fig3", "fig4", "fig5", "fig6"])
def test_plans_of_the_paper(figure):
    plan = make_plan(figure)
    assert plan.bins == 100 and plan.seeds == 3
    assert plan.jobs[0].max_steps == 4 * plan.episodes * plan.experiment.env.shortest_episode


def test_pace(monkeypatch):
    """Rate and time left are measured from the first report on, which leaves compilation out."""
    clock = iter([100.0, 102.0, 103.0])
    monkeypatch.setattr(reproduce.time, "monotonic", lambda: next(clock))
    job = make_plan("fig3", episodes=100).jobs[1]._replace(groups=((0,), (1,)), max_steps=1_000)
    standing = Standing(job, 100)
    assert np.isnan(standing.pace()).all() and standing.mean_episodes == 0
    standing.update(0, report(100, [20]))
    standing.update(0, report(300, [60]))
    # 40 of 200 episodes and 200 steps in 2 s; 140 episodes are left.
    assert standing.pace() == pytest.approx((100.0, 7.0)) and standing.mean_episodes == 30
    # A run that loops is done when its steps are.
    standing.update(0, report(1_000, [61]))
    assert standing.share == pytest.approx(0.5)
