"""Training by an executor: slices that go on where the one before ended, lost workers, refusals."""

import concurrent.futures
import functools
import threading

import numpy as np
import pytest

from recollect import cli
from recollect.store.run_reading import read
from recollect.studies import crew, executors, slices
from recollect.training.batch import Progress, Result


class AtOnce:
    """An executor that loses its worker at the calls it is told to."""

    workers = 1

    def __init__(self, fails=()):
        self.calls, self.fails = 0, dict(fails)

    def submit(self, work):
        self.calls += 1
        future = concurrent.futures.Future()
        if self.calls in self.fails:
            future.set_exception(self.fails[self.calls])
        else:
            future.set_result(executors.Done(work(), "here"))
        return future

    def describe(self):
        return "this thread"


def begin(name, state=None):
    """Five calls, the first from the state's place on; then the result."""
    at = 0 if state is None else int(state["at"])
    while at < 5:
        at += 1
        here = {"at": np.array(at)}
        yield Progress(at, at, np.array([at]), [{"bin": at, "of": name}], 0.0, lambda here=here: here)
    yield Result((0,), *[np.zeros(1)] * 7, None)


def run(executor, tasks, every=0.0):
    said = []
    got = slices.reports(tasks, executor, threading.Event(), every, said.append)
    return list(got), said


TASKS = [crew.Task(name, "k", functools.partial(begin, name)) for name in "ab"]


@pytest.mark.parametrize("every", [0.0, 60.0])
def test_slices_follow_each_other(every):
    found, said = run(AtOnce(), TASKS, every)
    for task in TASKS:
        own = [report for report in found if report.task.name == task.name]
        bins = [
            line["bin"] for report in own if isinstance(report.content, Progress) for line in report.content.new_bins
        ]
        assert bins == [1, 2, 3, 4, 5]
        assert isinstance(own[-1].content, Result) and sum(isinstance(r.content, Result) for r in own) == 1
        assert [int(r.snapshot["at"]) for r in own if r.snapshot] == ([1, 2, 3, 4, 5] if every == 0.0 else [5])
    assert said[0] == "2 groups on this thread" and "a: done [here]" in said


def test_a_lost_slice_is_done_again_and_three_are_an_error():
    lost = executors.WorkerLostError("gone")
    found, said = run(AtOnce({3: lost, 4: lost}), TASKS[:1])
    bins = [line["bin"] for r in found if isinstance(r.content, Progress) for line in r.content.new_bins]
    assert bins == [1, 2, 3, 4, 5] and sum("again, attempt" in text for text in said) == 2
    found, said = run(AtOnce({3: lost, 5: lost, 7: lost}), TASKS)
    assert {r.task.name for r in found if isinstance(r.content, Result)} == {"b"}
    assert [r.task.name for r in found if r.content is lost] == ["a"]
    with pytest.raises(executors.VersionsDifferError):
        run(AtOnce({2: executors.VersionsDifferError("numpy")}), TASKS)


def test_gpus_are_given_out_by_ray(tmp_path, capsys):
    words = ["reproduce", "fig4", "--out", str(tmp_path / "run"), "--gpus", "0.5"]
    assert cli.main(words) == 1 and "with --on ray" in capsys.readouterr().err and not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_figure_by_processes_is_that_by_threads(tmp_path, capsys, monkeypatch):
    """The same lines, verdict and picture; a run whose executor fails is resumed by another, or by threads."""
    words = ["reproduce", "fig4", "--episodes", "200", "--seeds", "3", "--no-baseline", "--out"]
    assert cli.main([*words, str(tmp_path / "threads")]) == 0
    assert cli.main([*words, str(tmp_path / "processes"), "--jobs", "2", "--group", "2"]) == 0
    assert "2 groups on 2 processes" in capsys.readouterr().err

    class Ends(AtOnce):
        def close(self):
            pass

    lost = executors.WorkerLostError("gone")
    failing = [*words, str(tmp_path / "resumed"), "--jobs", "2", "--group", "2", "--checkpoint-every", "1e-9"]
    with monkeypatch.context() as patched:
        patched.setattr(executors, "make", lambda *args: Ends(dict.fromkeys(range(2, 50), lost)))
        assert cli.main(failing) == 1
    assert "gone" in capsys.readouterr().err
    assert cli.main([*failing, "--group", "3", "--resume"]) == 1
    assert "group: was 2, is 3" in capsys.readouterr().err
    assert cli.main([*failing, "--resume"]) == 0
    expected = sorted((tmp_path / "threads" / "metrics.jsonl").read_bytes().splitlines())
    for name in ("processes", "resumed"):
        folder = tmp_path / name
        assert sorted((folder / "metrics.jsonl").read_bytes().splitlines()) == expected
        assert (folder / "figure.svg").read_bytes() == (tmp_path / "threads" / "figure.svg").read_bytes()
        assert (folder / "verdict.json").read_bytes() == (tmp_path / "threads" / "verdict.json").read_bytes()
        assert read(folder)[2]["status"] == "finished"


def test_groups_are_refused_when_they_are_none():
    from recollect.studies.plan import make_plan

    assert make_plan("fig4", seeds=5, group=2).jobs[0].groups == ((0, 1), (2, 3), (4,))
    assert (
        "group" not in make_plan("fig4").config()["plan"] and make_plan("fig4", group=2).config()["plan"]["group"] == 2
    )
    with pytest.raises(ValueError, match="group=0 must be a whole number"):
        make_plan("fig4", group=0)
