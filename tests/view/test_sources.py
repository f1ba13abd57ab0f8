"""What lies at a path as documents: runs with their snapshots, figures, reports; and the command that shows them."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from recollect import EpisodicActorCritic, Learner, cli
from recollect.errors import FileError
from recollect.store import checkpoints, files
from recollect.store.run_reading import SNAPSHOTS
from recollect.training import callbacks
from recollect.training.callbacks import Record
from recollect.training.resuming import resume
from recollect.view import boards, sources
from recollect.view import format as recording
from studies.synthetic import write_run

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "a run"
    learner = Learner(EpisodicActorCritic(memory_size=2), "recollect/TMaze-v0", env_options={"length": 3}, seed=2)
    learner.learn(400, folder=folder, log_every=20, callbacks=[Record(4)])
    return folder, learner


@pytest.mark.slow
def test_snapshots_are_few_and_early(run):
    folder, _ = run
    steps = [checkpoints.read(path).meta["steps"] for path in checkpoints.listing(folder / SNAPSHOTS)]
    assert steps == [40, 100, 240, 400]  # the rows after 25, 100, 225 and 400 steps: the goal times (k/4)²


@pytest.mark.parametrize(("goal", "last", "due"), [(1600, -1, 100), (1600, 100, 400), (1600, 900, 1600)])
def test_when_the_next_is_due(goal, last, due):
    assert Record(4).due(goal, last) == due
    assert Record(4).due(goal, goal) == math.inf


def test_more_than_wanted_make_room(tmp_path):
    learner = Learner(EpisodicActorCritic(memory_size=2), "recollect/TMaze-v0", seed=2)
    keeper = Record(3)
    for _ in range(6):
        learner.learn(60, folder=tmp_path / "run" if learner.folder is None else None, log_every=10, callbacks=[keeper])
    kept = [checkpoints.read(path).meta["steps"] for path in checkpoints.listing(tmp_path / "run" / SNAPSHOTS)]
    assert 2 <= len(kept) <= 3 and kept == sorted(kept) and kept[-1] == 360


def test_a_run_is_the_same_episode_by_its_agents_from_first_to_last(run):
    folder, learner = run
    document = recording.check(sources.document(folder), folder)
    assert [episode["trained"] for episode in document["episodes"]] == [0, 40, 100, 240, 400]
    cues = {tuple(recording.decode(episode["observation"])[0]) for episode in document["episodes"]}
    assert len(cues) == 1
    now = recording.decode(sources.of_learner(learner, 0, 1000, "x")["episodes"][0]["value"])
    np.testing.assert_array_equal(recording.decode(document["episodes"][-1]["value"]), now)
    assert document["training"]["status"] == "finished" and document["training"]["columns"]["steps"][-1] == 400
    json.dumps(document, allow_nan=False)


def test_episodes_that_are_known_are_not_played_again(run, monkeypatch):
    folder, _ = run
    known = {}
    sources.document(folder, known=known)
    assert sorted(known) == [0, 40, 100, 240, 400]
    monkeypatch.setattr(sources.episodes, "play", lambda *_: pytest.fail("played again"))
    sources.document(folder, known=known)


def test_a_damaged_snapshot_is_left_out(run, tmp_path):
    import shutil

    folder = tmp_path / "copy"
    shutil.copytree(run[0], folder)
    first = checkpoints.listing(folder / SNAPSHOTS)[0]
    next(first.glob("arrays.*")).write_bytes(b"nothing")
    assert [episode["trained"] for episode in sources.document(folder)["episodes"]] == [0, 100, 240, 400]


def test_a_resumed_run_goes_on_with_its_snapshots(tmp_path):
    """Stopped in the middle and resumed from its config, which tells of them, it has those of a run that was not."""
    learner = Learner(EpisodicActorCritic(memory_size=2), "recollect/TMaze-v0", seed=2)
    with pytest.raises(ZeroDivisionError):
        learner.learn(
            160, folder=tmp_path / "run", log_every=20, callbacks=[Record(4), callbacks.EarlyStop(2.0), Fails()]
        )
    told = files.read_json(tmp_path / "run" / "config.json")["learning"]["callbacks"]
    assert told[0] == {"class": "Record", "options": {"snapshots": 4}}
    resume(tmp_path / "run", callbacks=callbacks.restore(told[:2]))
    kept = [checkpoints.read(path).meta["steps"] for path in checkpoints.listing(tmp_path / "run" / SNAPSHOTS)]
    assert kept == [20, 40, 100, 160]


class Fails:
    def __call__(self, learner, row):
        return 1 / 0 if row["steps"] == 60 else None


def test_a_saved_learner_is_shown(run, tmp_path):
    run[1].save(tmp_path / "saved")
    assert sources.document(tmp_path / "saved")["episodes"][0]["trained"] == 400


def test_a_page_from_python(run, tmp_path):
    path = run[1].view(seed=3).save(tmp_path / "page.html")
    assert "<!doctype html>" in path.read_text()


def test_a_report_is_a_board():
    path = ROOT / "benchmarks" / "data" / "memory-t-maze.json"
    report = json.loads(path.read_text())
    board = boards.document(report, path)
    assert len(board["rows"]) == len(report["table"]) and board["notes"][0].startswith("Made by: recollect benchmark")
    assert board["rows"][0]["return"] == report["table"][0]["return"]
    curve = board["curves"][0]
    own = [row["curve"] for row in report["rows"] if row["task"] == curve["title"] and row["agent"] == "episodic"]
    np.testing.assert_allclose(curve["series"][0]["values"], np.mean(own, axis=0))
    json.dumps(board, allow_nan=False)


def test_what_cannot_be_shown_says_what_can(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "no.json").write_text("[1, 2]")
    (tmp_path / "text.md").write_text("hello")
    (tmp_path / "ragged.json").write_text('{"rows": [{"task": "a", "curve": [[1], [2]]}]}')
    (tmp_path / "vast.json").write_text('{"rows": [{"return": 1%s}]}' % ("0" * 400))
    wrong = {"empty": "it is not a run folder", "no.json": "no table of rows", "text.md": "not JSON"}
    wrong |= {name: rf"{name} is not a report" for name in ("ragged.json", "vast.json")}
    for name, what in wrong.items():
        with pytest.raises(FileError, match=what):
            sources.document(tmp_path / name)


def test_the_command_writes_a_page_and_a_recording(run, tmp_path, capsys):
    out, kept = tmp_path / "page.html", tmp_path / "r.json.gz"
    words = ["view", str(run[0]), "--no-open", "--out", str(out), "--recording", str(kept), "--limit", "3"]
    assert cli.main(words) == 0
    assert "page:" in capsys.readouterr().out and out.exists()
    assert recording.read(kept)["episodes"][0]["steps"] == 3
    again = tmp_path / "again.html"
    assert cli.main(["view", str(kept), str(kept), "--no-open", "--out", str(again)]) == 0 and again.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--port", "80"], "--port goes with --serve"),
        (["--serve", "--out", "x.html"], "--out writes a file"),
        (["--recording", "x.json"], "one recording"),
        (["--recording", "x.txt"], "ends in .json or .json.gz"),
        (["--out", "."], "--out . is a folder"),
    ],
)
def test_options_that_do_not_go_together_are_refused(tmp_path, capsys, words, message):
    rows = {"table": [{"task": "t", "return": 1.0}]}
    (tmp_path / "report.json").write_text(json.dumps(rows))
    assert cli.main(["view", str(tmp_path / "report.json"), "--no-open", *words]) == 1
    assert message in capsys.readouterr().err


ROWS = json.dumps({"table": [{"task": "t", "return": 1.0}]})


@pytest.mark.parametrize(
    ("words", "place", "content", "message"),
    [
        ("report.json", "report.html", "my page", "--out says where"),
        ("report.json other.json", "view.html", "my page", "--out says where"),
        ("report.json --out report.json", "report.json", ROWS, "among what was given"),
        ("report.json --out ./x/../report.json", "report.json", ROWS, "among what was given"),
        ("report.json --out thesis.txt", "thesis.txt", "my text", "choose another --out"),
        ("report.json --recording other.json", "other.json", ROWS, "choose another --recording"),
        ("report.json --recording report.json", "report.json", ROWS, "among what was given"),
        ("report.json --recording n.json --out n.json", "report.json", ROWS, "among what was given"),
    ],
)
def test_a_page_takes_the_place_of_a_page_alone(tmp_path, monkeypatch, capsys, words, place, content, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").mkdir()
    files = {"report.json": ROWS, "other.json": ROWS, place: content}
    for name, text in files.items():
        Path(name).write_text(text)
    assert cli.main(["view", "--no-open", *words.split()]) == 1
    assert message in capsys.readouterr().err
    assert {name: Path(name).read_text() for name in files} == files and len(list(tmp_path.iterdir())) == len(files) + 1


def test_a_page_is_made_again(run, tmp_path):
    (tmp_path / "report.json").write_text(ROWS)
    for _ in range(2):
        assert cli.main(["view", "--no-open", str(tmp_path / "report.json")]) == 0
        kept = ["--recording", str(tmp_path / "r.json"), "--limit", "1"]
        assert cli.main(["view", "--no-open", str(run[0]), *kept]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.json", "report.html", "report.json"]


def test_a_figure_is_its_panels_with_every_seed_and_its_claims(tmp_path):
    document = sources.document(write_run(tmp_path / "4", "fig4", [{}, {"episodes_done": 40}], baseline=[{}] * 3))
    assert [panel["title"][:3] for panel in document["panels"]] == ["(a)", "(b)", "(c)"]
    returns = [one for one in document["panels"][1]["series"] if one["group"] == "episodic memory"]
    assert [one["name"] for one in returns] == ["run 1", "run 2"]
    assert returns[0]["values"][-1] == 0.99 and returns[1]["values"][-1] is None
    verdicts = {row["claim"]: row["verdict"] for row in document["claims"]}
    assert verdicts["close to perfect average return"] == "holds for 1 of 2 seeds"
    json.dumps(document, allow_nan=False)
