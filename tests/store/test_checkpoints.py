"""Checkpoints: what is saved comes back bit for bit; what is damaged or forged is named and refused."""

import hashlib
import json
import os
import subprocess

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect import FileError
from recollect.store import checkpoints

META = {"step": 12, "note": "größe", "nested": {"list": [1, 2.5, None]}}


def arrays():
    rng = np.random.default_rng(0)
    found = {f"a.{kind}": rng.integers(0, 2, (2, 3)).astype(kind) for kind in checkpoints._DTYPES}
    return {**found, "scalar": np.float32(1.5), "none": np.zeros((0, 4)), "nan": np.array([np.nan, np.inf, -0.0])}


def same(a, b):
    assert list(a) == list(b)
    for name in a:
        x, y = np.asarray(a[name]), b[name]
        assert x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes(), name


def reseal(path):
    """Make the sums right again, as someone who forges a checkpoint would."""
    sums = {name: hashlib.sha256((path / name).read_bytes()).hexdigest() for name in ("manifest.json", "arrays.bin")}
    (path / "SHA256SUMS").write_text("".join(f"{s}  {name}\n" for name, s in sums.items()))


def test_everything_comes_back(tmp_path):
    path = checkpoints.save(tmp_path / "ä folder", arrays(), META)
    found = checkpoints.load(tmp_path / "ä folder")
    same(arrays(), found.arrays)
    assert found.meta == META and found.path == path and found.number == 1 and found.passed_over == ()
    assert all(array.flags.writeable and array.flags.owndata for array in found.arrays.values())
    checkpoints.verify(path)


@given(st.dictionaries(st.text(max_size=8), st.lists(st.integers(0, 3), max_size=3), max_size=5), st.data())
@settings(max_examples=30, deadline=None)
def test_any_arrays_come_back(tmp_path_factory, named_shapes, data):
    folder = tmp_path_factory.mktemp("any")
    kinds = st.sampled_from(list(checkpoints._DTYPES))
    given_ = {
        name: np.frombuffer(os.urandom(8 * int(np.prod(shape))), np.uint8)[: int(np.prod(shape))]
        .reshape(shape)
        .astype(data.draw(kinds))
        for name, shape in named_shapes.items()
    }
    checkpoints.save(folder, given_, {})
    same(given_, checkpoints.load(folder).arrays)


def test_readable_without_recollect(tmp_path):
    path = checkpoints.save(tmp_path, arrays(), META)
    assert sorted(p.name for p in path.iterdir()) == ["SHA256SUMS", "arrays.bin", "manifest.json"]
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=path, check=True, capture_output=True)
    manifest = json.loads((path / "manifest.json").read_text())
    entry = next(e for e in manifest["arrays"] if e["name"] == "nan")
    content = np.memmap(path / "arrays.bin", entry["dtype"], "r", entry["offset"], tuple(entry["shape"]))
    assert content.tobytes() == arrays()["nan"].tobytes()


def test_the_last_k_are_kept(tmp_path):
    for step in range(6):
        checkpoints.save(tmp_path, {"x": np.array(step)}, {}, keep=2)
    assert [p.name for p in checkpoints.listing(tmp_path)] == ["00000005", "00000006"]
    assert sorted(os.listdir(tmp_path)) == ["00000005", "00000006"]
    assert checkpoints.load(tmp_path).arrays["x"] == 5


def test_what_a_crash_leaves_is_neither_listed_nor_kept(tmp_path):
    checkpoints.save(tmp_path, arrays(), META)
    (tmp_path / ".new-0123").mkdir()
    (tmp_path / ".new-0123" / "arrays.bin").write_bytes(b"half")
    (tmp_path / ".old-0123").mkdir()
    assert [p.name for p in checkpoints.listing(tmp_path)] == ["00000001"]
    checkpoints.save(tmp_path, arrays(), META)
    assert sorted(os.listdir(tmp_path)) == ["00000001", "00000002"]


@pytest.mark.parametrize("name", ["SHA256SUMS", "arrays.bin", "manifest.json"])
def test_every_flipped_bit_is_noticed(tmp_path, name):
    """Each bit of each file in turn; the file is named, and --fallback goes back and says so."""
    small = {"x": np.arange(4, dtype=np.int16), "y": np.float64(2.5)}
    checkpoints.save(tmp_path, small, {"step": 1})
    path = checkpoints.save(tmp_path, small, {"step": 2})
    file = path / name
    sound = file.read_bytes()
    for bit in range(8 * len(sound)):
        damaged = bytearray(sound)
        damaged[bit // 8] ^= 1 << bit % 8
        file.write_bytes(damaged)
        with pytest.raises(FileError, match=r"damaged.*checkpoint 00000001 is before it: --fallback") as raised:
            checkpoints.load(tmp_path)
        assert str(path) in str(raised.value)
        with pytest.raises(FileError):
            checkpoints.verify(path)
    found = checkpoints.load(tmp_path, fallback=True)
    assert found.meta == {"step": 1} and len(found.passed_over) == 1 and str(path) in found.passed_over[0]


@pytest.mark.parametrize("name", ["SHA256SUMS", "arrays.bin", "manifest.json"])
def test_truncated_and_missing_files(tmp_path, name):
    checkpoints.save(tmp_path, arrays(), {"step": 1})
    path = checkpoints.save(tmp_path, arrays(), {"step": 2})
    sound = (path / name).read_bytes()
    for content in (b"", sound[:-1], sound + b"\n"):
        (path / name).write_bytes(content)
        with pytest.raises(FileError, match=f"{path / name} is damaged"):
            checkpoints.load(tmp_path)
    (path / name).unlink()
    with pytest.raises(FileError, match=f"{path / name} is missing"):
        checkpoints.load(tmp_path)
    assert checkpoints.load(tmp_path, fallback=True).meta == {"step": 1}


def test_none_is_sound(tmp_path):
    with pytest.raises(FileError, match="holds no checkpoint"):
        checkpoints.load(tmp_path)
    with pytest.raises(FileError, match="holds no checkpoint"):
        checkpoints.load(tmp_path / "nowhere", fallback=True)
    path = checkpoints.save(tmp_path, arrays(), META)
    (path / "arrays.bin").write_bytes(b"")
    with pytest.raises(FileError, match=r"holds no sound checkpoint: .*arrays\.bin is damaged"):
        checkpoints.load(tmp_path, fallback=True)


def test_other_arrays_than_expected_are_refused_before_they_are_read(tmp_path):
    path = checkpoints.save(tmp_path, {"obs": np.zeros((2, 8), np.float32), "old": np.zeros(1)}, {})
    like = {"obs": ((2, 9), "float32"), "new": ((), "int32")}
    with pytest.raises(FileError) as raised:
        checkpoints.load(tmp_path, like=like)
    for part in (
        "obs: expected float32[2, 9], got float32[2, 8]",
        "new: expected int32[], got nothing",
        "old: expected nothing, got float64[1]",
    ):
        assert part in str(raised.value)
    (path / "arrays.bin").write_bytes(os.urandom(24 * 3))  # not even looked at
    with pytest.raises(FileError, match="expected float32"):
        checkpoints.load(tmp_path, like=like)


def forge(path, change):
    manifest = json.loads((path / "manifest.json").read_text())
    change(manifest)
    (path / "manifest.json").write_text(json.dumps(manifest))
    reseal(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(format="other"), "its format is 'other'"),
        (lambda m: m.update(version=2), "this release reads version 1"),
        (lambda m: m.update(meta=[]), "meta is not an object"),
        (lambda m: m.update(bytes=10**15), "are promised"),
        (lambda m: m.pop("arrays"), "KeyError"),
        (lambda m: m.update(arrays=3), "TypeError"),
        (lambda m: m["arrays"][0].update(shape=[10**9, 10**9]), "wrong place|allowed|promised"),
        (lambda m: m["arrays"][0].update(shape=[-1]), "the shape of"),
        (lambda m: m["arrays"][0].update(shape=[True, 3]), "the shape of"),
        (lambda m: m["arrays"][0].update(dtype="object"), "unknown dtype"),
        (lambda m: m["arrays"][0].update(dtype=["x"]), "TypeError"),
        (lambda m: m["arrays"][0].update(offset=-8), "wrong place"),
        (lambda m: m["arrays"][1].update(name="a.bool"), "occurs twice"),
        (lambda m: m["arrays"][1].update(name=None), "no text"),
    ],
)
def test_forged_manifests(tmp_path, change, message):
    path = checkpoints.save(tmp_path, arrays(), META)
    forge(path, change)
    with pytest.raises(FileError, match=message):
        checkpoints.load(tmp_path)


def test_names_are_never_paths(tmp_path):
    """An array may be called anything: names are keys and nothing else."""
    outside = tmp_path / "outside"
    path = checkpoints.save(tmp_path / "run", {"x": np.arange(3)}, {})
    forge(path, lambda m: m["arrays"][0].update(name="../../outside"))
    assert list(checkpoints.load(tmp_path / "run").arrays) == ["../../outside"] and not outside.exists()


@pytest.mark.parametrize("name", ["SHA256SUMS", "arrays.bin", "manifest.json"])
def test_links_and_pipes_are_not_followed(tmp_path, name):
    path = checkpoints.save(tmp_path, arrays(), META)
    (path / name).rename(tmp_path / name)
    (path / name).symlink_to(tmp_path / name)
    with pytest.raises(FileError, match=f"{name} cannot be read: it is a link"):
        checkpoints.load(tmp_path)
    (path / name).unlink()
    os.mkfifo(path / name)
    with pytest.raises(FileError, match="it is not an ordinary file"):
        checkpoints.load(tmp_path)
    (path / name).unlink()
    (path / name).mkdir()
    with pytest.raises(FileError, match="not an ordinary file"):
        checkpoints.load(tmp_path)


def test_a_checkpoint_that_is_a_link_is_not_followed(tmp_path):
    path = checkpoints.save(tmp_path / "elsewhere", arrays(), META)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "00000007").symlink_to(path)
    with pytest.raises(FileError, match="is not a checkpoint: a link"):
        checkpoints.load(tmp_path / "run")
    checkpoints.save(tmp_path / "run", arrays(), META, keep=1)
    assert os.listdir(tmp_path / "run") == ["00000008"]
    checkpoints.verify(path)


def test_a_file_that_is_all_hole_is_refused_before_it_is_read(tmp_path):
    """The bomb that needs no zip: a file that claims a terabyte and takes up nothing."""
    path = checkpoints.save(tmp_path, {"x": np.zeros(4)}, {})
    os.truncate(path / "arrays.bin", 2**40)
    with pytest.raises(FileError, match="should have 32"):
        checkpoints.load(tmp_path)
    forge_big = {"name": "x", "dtype": "uint8", "shape": [2**40], "offset": 0}
    manifest = json.loads((path / "manifest.json").read_text())
    manifest.update(arrays=[forge_big], bytes=2**40)
    (path / "manifest.json").write_text(json.dumps(manifest))
    sums = hashlib.sha256((path / "manifest.json").read_bytes()).hexdigest()
    (path / "SHA256SUMS").write_text(f"{sums}  manifest.json\n{'0' * 64}  arrays.bin\n")
    with pytest.raises(FileError, match="allowed"):
        checkpoints.load(tmp_path)
    os.truncate(path / "manifest.json", 2**40)
    with pytest.raises(FileError, match="more than the"):
        checkpoints.load(tmp_path)


def test_a_pickle_is_never_run(tmp_path):
    """Under each name that a checkpoint has, sealed as if it were sound: refused, and not executed."""
    bomb = b"cposix\nsystem\n(S'touch " + str(tmp_path / "executed").encode() + b"'\ntR."
    for name in ("SHA256SUMS", "arrays.bin", "manifest.json"):
        path = checkpoints.save(tmp_path / name, {"x": np.zeros(len(bomb), np.uint8)}, {})
        (path / name).write_bytes(bomb)
        if name != "SHA256SUMS":
            reseal(path)
        if name == "arrays.bin":  # bytes like any others
            assert checkpoints.load(tmp_path / name).arrays["x"].tobytes() == bomb
        else:
            with pytest.raises(FileError):
                checkpoints.load(tmp_path / name)
    assert not (tmp_path / "executed").exists()


def test_what_cannot_be_saved_leaves_nothing(tmp_path):
    with pytest.raises(TypeError, match="x: arrays of dtype object are not saved"):
        checkpoints.save(tmp_path, {"x": np.array([None])}, {})
    with pytest.raises(ValueError):
        checkpoints.save(tmp_path, {}, {"x": float("nan")})
    assert os.listdir(tmp_path) == []
