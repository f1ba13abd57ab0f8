"""The run folder: written whole, read with care."""

import json
import os

import numpy as np
import pytest

from recollect import FileError, RecollectError
from recollect.store.run_folders import RunFolder, check_free
from recollect.store.run_reading import read

CONFIG = {"agents": {"a": {"seeds": [3, 5], "episodes": 20, "bins": 4}}}


def line(seed, episodes, value):
    weights, vectors = [value, float("nan")], [[value, 0.0], [0.0, value]]
    return {
        "seed": seed,
        "episodes": episodes,
        "return": value,
        "length": 12.0,
        "write_weights": weights,
        "query_vectors": vectors,
    }


@pytest.fixture
def folder(tmp_path):
    folder = RunFolder(tmp_path / "run", CONFIG)
    folder.append("a", [line(3, 5, 0.25), line(5, 5, 0.5)])
    folder.append("a", [])
    folder.append("a", [line(5, 10, 1.0)])
    return folder


def test_what_is_written_is_read(folder):
    config, curves, status = read(folder.path)
    assert config["agents"] == CONFIG["agents"] and {"command", "versions"} <= set(config)
    assert status == {"status": "running", "exact": True}
    a = curves["a"]
    np.testing.assert_array_equal(a.episodes, [5, 10, 15, 20])
    np.testing.assert_array_equal(a.returns, [[0.25, np.nan, np.nan, np.nan], [0.5, 1.0, np.nan, np.nan]])
    np.testing.assert_array_equal(a.write_weights[1, 1], [1.0, np.nan])
    np.testing.assert_array_equal(a.query_vectors[1, 1], np.eye(2))
    assert a.lengths[0, 0] == 12.0 and np.isnan(a.lengths[0, 1])


def test_files_are_strict_json(tmp_path):
    def refuse(word):
        raise AssertionError(word)

    folder = RunFolder(tmp_path / "run", {"agents": {}, "low": -np.inf, "none": np.nan, "pair": (1, np.inf)})
    config = json.loads((folder.path / "config.json").read_text(), parse_constant=refuse)
    assert (config["low"], config["none"], config["pair"]) == ("-inf", None, [1, "inf"])
    assert sorted(p.name for p in folder.path.iterdir()) == [
        "config.json",
        "lock.json",
        "log.jsonl",
        "metrics.jsonl",
        "status.json",
    ]


def test_an_empty_run_is_read(tmp_path):
    curves = read(RunFolder(tmp_path / "run", CONFIG).path)[1]
    assert curves["a"].returns.shape == (2, 4) and np.isnan(curves["a"].returns).all()


def test_a_line_being_written_is_left_out(folder):
    whole = read(folder.path)[1]["a"].returns
    with open(folder.path / "metrics.jsonl", "a") as out:
        out.write('{"agent": "a", "seed": 3, "epi')
    np.testing.assert_array_equal(read(folder.path)[1]["a"].returns, whole)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", None, "not a run folder: config.json is missing"),
        ("status.json", None, "not a run folder: status.json is missing"),
        ("metrics.jsonl", None, "not a run folder: metrics.jsonl is missing"),
        ("config.json", "{", "not a valid run folder: "),
        ("config.json", "[]", "not a valid run folder"),
        ("config.json", "{}", "KeyError: 'agents'"),
        ("config.json", '{"agents": []}', "not a valid run folder"),
        ("config.json", '{"agents": {"a": {"seeds": [3, 5], "episodes": 20, "bins": 0}}}', "do not divide"),
        ("config.json", '{"agents": {"a": {"seeds": [3, 5], "episodes": 20, "bins": "4"}}}', "TypeError"),
        ("config.json", '{"agents": {"a": {"seeds": [3], "episodes": 20, "bins": 4}}}', "KeyError: 5"),
        ("status.json", "[]", "not a valid run folder"),
        ("status.json", '"running"', "not a valid run folder"),
        ("metrics.jsonl", "3\n", "not a valid run folder"),
        ("metrics.jsonl", '{"agent": "a", "seed": 3, "epi\n', "not a valid run folder"),
        ("metrics.jsonl", '{"agent": "a", "seed": 3, "episodes": 5}\n', "KeyError: 'query_vectors'"),
        ("metrics.jsonl", "\N{BROKEN BAR}", None),
    ],
)
def test_damaged_folders_are_named(folder, name, content, message):
    path = folder.path / name
    path.unlink()
    if content is not None:
        path.write_text(content, encoding="utf-8")
    if message is None:
        assert np.isnan(read(folder.path)[1]["a"].returns).all()
        return
    with pytest.raises(FileError, match=message) as raised:
        read(folder.path)
    assert str(folder.path) in str(raised.value) and "\n" not in str(raised.value)


def test_what_is_no_folder_at_all(tmp_path):
    with pytest.raises(FileError, match=r"not a run folder: config\.json is missing"):
        read(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="not a run folder"):
        read(tmp_path / "file")
    (tmp_path / "bytes").mkdir()
    for name in ("config.json", "status.json", "metrics.jsonl"):
        (tmp_path / "bytes" / name).write_bytes(b"\xff\xfe")
    with pytest.raises(FileError, match="UnicodeDecodeError"):
        read(tmp_path / "bytes")


def test_places_that_are_refused(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "loose").symlink_to(tmp_path / "gone")
    for path in (tmp_path, tmp_path / "file", tmp_path / "loose"):
        with pytest.raises(RecollectError, match="exists already: choose another --out, or remove it"):
            RunFolder(path, CONFIG)
    with pytest.raises(RecollectError, match="is not a folder"):
        RunFolder(tmp_path / "file" / "run", CONFIG)
    check_free(tmp_path / "deep" / "down")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "loose"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_no_permission(tmp_path):
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(RecollectError, match="no permission"):
        check_free(tmp_path / "closed" / "run")
