"""The recording as other libraries may write it, and as they may get it wrong."""

import copy
import json

import numpy as np
import pytest

from recollect.errors import FileError
from recollect.view import format as recording
from view import samples


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6).reshape(2, 3),
        np.array([-1, 300]),
        np.array([1e-30, -2.5], np.float32),
        np.array([True, False]),
        np.zeros((0, 4), np.float32),
    ],
)
def test_arrays_come_back(array):
    found = recording.decode(json.loads(json.dumps(recording.encode(array))))
    assert found.shape == array.shape
    np.testing.assert_array_equal(found, array)


def test_observations_take_a_byte_where_one_holds_them():
    bits, picture = np.eye(3, dtype=np.float32), np.arange(4, dtype=np.float32) / 255
    for array in (bits, picture):
        encoded = recording.encode_values(array)
        assert encoded["dtype"] == "uint8"
        np.testing.assert_allclose(recording.decode(encoded), array, atol=1e-7)
    assert recording.encode_values(np.array([0.1234, 0.5], np.float32))["dtype"] == "float32"


def test_many_shares_take_two_bytes_each():
    shares = np.random.default_rng(0).random(recording.MANY)
    encoded = recording.encode_shares(shares)
    assert encoded["dtype"] == "uint16"
    np.testing.assert_allclose(recording.decode(encoded), shares, atol=1 / 65535)


@pytest.mark.parametrize("name", ["r.json", "r.json.gz"])
def test_a_file_comes_back(tmp_path, name):
    document = samples.document()
    assert recording.read(recording.write(tmp_path / name, document)) == document


def test_plain_lists_will_do(tmp_path):
    document = samples.document()
    for episode in document["episodes"]:
        for part in (episode, episode["memory"], episode["memory"]["stays"]):
            for name, value in part.items():
                if isinstance(value, dict) and "dtype" in value:
                    part[name] = recording.decode(value).tolist()
    assert recording.check(document, "here") is document


BROKEN = {
    "another format": (lambda d: d.update(format="trace"), "its format is 'trace'"),
    "a later version": (lambda d: d.update(version=9), "version 9"),
    "no episode": (lambda d: d.update(episodes=[]), "no episode"),
    "no observation": (lambda d: d["episodes"][0].pop("observation"), "observation"),
    "rewards of another length": (lambda d: d["episodes"][0].update(reward=[1.0]), "reward has the shape"),
    "too few bytes": (
        lambda d: d["episodes"][0]["reward"].update(shape=[99]),
        "bytes do not make",
    ),
    "no base64": (lambda d: d["episodes"][0]["reward"].update(data="*"), "not an array"),
    "a slot there is not": (
        lambda d: _held(d)["stays"].update(slot=recording.encode(np.full(_stays(d), 3))),
        "stays.slot must be whole numbers from 0 to 2",
    ),
    "a negative shape": (lambda d: d["episodes"][0]["reward"].update(shape=[-12]), "shape"),
    # What the page reads besides: each of these would have left it blank, or with numbers of another step.
    "no title": (lambda d: d.pop("title"), "'title' is missing"),
    "a title that is no text": (lambda d: d.update(title=3), "title must be a text, got a int"),
    "no environment": (lambda d: d.pop("environment"), "'environment' is missing"),
    "no actions": (lambda d: d.pop("actions"), "'actions' is missing"),
    "a kind of action there is not": (lambda d: d["actions"].update(kind="beta"), "kind is 'beta'; choose one of cat"),
    "sizes that are not the names'": (
        lambda d: d["actions"].update(sizes=[2]),
        r"sizes are \[2\], but there are 3 names",
    ),
    "a name that is no text": (
        lambda d: d["observation"].update(names=[1, 2, 3, 4]),
        "observation.names must be a text",
    ),
    "names that are no list": (lambda d: d["actions"].update(names="abc"), "actions.names must be a list, got a str"),
    "a picture of another size": (
        lambda d: d["observation"].update(shape=[3, 3, 1]),
        r"expected \[height, width, chan",
    ),
    "training without steps": (lambda d: d.update(training={"columns": {"return": [1]}}), "with steps among them"),
    "a policy of other actions": (lambda d: _first(d).update(policy=[[1.0]] * 12), r"policy has .* expected \[12, 3\]"),
    "actions of another length": (
        lambda d: _first(d).update(action=[0]),
        r"action .* expected \[12\] or \[12, choices\]",
    ),
    "texts of another length": (lambda d: _first(d).update(texts=["a"]), "texts are 1, expected 12"),
    "a frame there is not": (
        lambda d: _first(d).update(frames={"png": ["x"], "of": [1] * 12}),
        "frames.of must be whole",
    ),
    "frames without their places": (lambda d: _first(d).update(frames={"png": []}), "'of' is missing"),
    "a hidden state without values": (lambda d: _first(d).update(hidden=[{"name": "h"}]), "'values' is missing"),
    "a ragged list": (lambda d: _first(d).update(value=[[1.0], [1.0, 2.0]]), r"episodes\[0\]\.value: "),
    "half a slot": (lambda d: _held(d).update(recalled=[0.5] * 12), "recalled must be whole numbers from -1 to 2"),
    "no slots": (lambda d: _held(d).update(slots=0), "memory.slots is 0"),
    "a query of longer keys": (
        lambda d: _held(d).update(query=[[1.0] * 5] * 12),
        "query has 5 elements .* keys are missing",
    ),
    "nothing of what was seen before": (
        lambda d: _held(d)["stays"].update(seen=[-1] * _stays(d)),
        "keys are missing: without them",
    ),
    "keys of another size": (
        lambda d: _held(d).update(keys=[[1.0] * 5] * _stays(d)),
        r"keys has the shape .* expected \[\d+, 4\]",
    ),
    "names of other keys": (lambda d: _held(d).update(key_names=["a"]), "key_names are 1, a key has 4"),
    "a changing key there is not": (
        lambda d: _held(d).update(keys_changing={"elements": [4], "now": [[[0.0]] * 3] * 12}),
        "keys_changing.elements must be whole numbers from 0 to 3",
    ),
    "credit of other slots": (
        lambda d: _held(d).update(credit=[[0.0]] * 12),
        r"credit .* expected \[12\] or \[12, 3\]",
    ),
}


def _first(document):
    return document["episodes"][0]


def _held(document):
    return document["episodes"][0]["memory"]


def _stays(document):
    return recording.decode(document["episodes"][0]["memory"]["stays"]["slot"]).shape[0]


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_wrong_is_named(what):
    breaks, message = BROKEN[what]
    document = copy.deepcopy(samples.document())
    breaks(document)
    with pytest.raises(FileError, match=message):
        recording.check(document, "here.json")


def test_what_is_no_json_is_named(tmp_path):
    for content in (b"{", b"\x1f\x8b damaged"):
        (tmp_path / "r.json").write_bytes(content)
        with pytest.raises(FileError, match=r"r\.json"):
            recording.read(tmp_path / "r.json")
