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
        lambda d: d["episodes"][0]["memory"]["stays"].update(slot=recording.encode(np.full(_stays(d), 3))),
        "stays.slot goes beyond 2",
    ),
    "a negative shape": (lambda d: d["episodes"][0]["reward"].update(shape=[-12]), "shape"),
}


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
