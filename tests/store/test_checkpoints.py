"""Checkpoints: what is saved comes back bit for bit; what is damaged or forged is named and refused."""

import hashlib
import json
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file
from safetensors.numpy import save as as_tensors

from recollect import FileError
from recollect.store import checkpoints
from tiers import first_quick

ARRAYS = "arrays.safetensors"
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
    sums = {name: hashlib.sha256((path / name).read_bytes()).hexdigest() for name in ("manifest.json", ARRAYS)}
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
    assert sorted(p.name for p in path.iterdir()) == ["SHA256SUMS", ARRAYS, "manifest.json"]
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=path, check=True, capture_output=True)
    manifest = json.loads((path / "manifest.json").read_text())
    assert {"name": "nan", "dtype": "float64", "shape": [3]} in manifest["arrays"]
    assert load_file(path / ARRAYS)["nan"].tobytes() == arrays()["nan"].tobytes()


def test_the_last_k_are_kept(tmp_path):
    for step in range(6):
        checkpoints.save(tmp_path, {"x": np.array(step)}, {}, keep=2)
    assert [p.name for p in checkpoints.listing(tmp_path)] == ["checkpoint-00000005", "checkpoint-00000006"]
    assert sorted(os.listdir(tmp_path)) == ["checkpoint-00000005", "checkpoint-00000006"]
    assert checkpoints.load(tmp_path).arrays["x"] == 5
    for wrong in (0, -3, 1.5, True):
        with pytest.raises(ValueError, match=r"^keep=.* must be an integer of at least 1"):
            checkpoints.save(tmp_path, {"x": np.array(6)}, {}, keep=wrong)
    assert checkpoints.load(tmp_path).arrays["x"] == 5


def test_what_a_crash_leaves_is_neither_listed_nor_kept(tmp_path):
    checkpoints.save(tmp_path, arrays(), META)
    for name in (".recollect-new-01234567", ".recollect-old-01234567", ".new-89abcdef"):
        (tmp_path / name).mkdir()
        content = b"half" if "recollect" in name else b'{"format": "recollect checkpoint"}'
        (tmp_path / name / "manifest.json").write_bytes(content)
    (tmp_path / ".recollect-new-00000000").mkdir()
    os.utime(tmp_path / ".recollect-new-00000000", (0, 0))
    assert [p.name for p in checkpoints.listing(tmp_path)] == ["checkpoint-00000001"]
    checkpoints.save(tmp_path, arrays(), META)
    assert sorted(os.listdir(tmp_path)) == ["checkpoint-00000001", "checkpoint-00000002"]


def test_nothing_that_is_no_checkpoint_is_ever_touched(tmp_path):
    """Dates as names, hidden folders that begin like temporary ones, notes in a checkpoint, numbers of other tools."""
    foreign = {f"2026010{k}/data": b"mine" for k in range(1, 6)}
    foreign |= {".old-thesis/x": b"mine", ".new-ideas/y": b"mine", ".recollect-new-01234567/z": b"mine"}
    foreign |= {".old-01234567/arrays.bin": b"no manifest beside it", "checkpoint-00000003/of another tool": b"mine"}
    foreign |= {".old-89abcdef/manifest.json": b'{"name": "a web page of mine"}', ".new-89abcdef/manifest.json": b"[]"}
    foreign |= {"00000001": b"a file", "checkpoint-20260101/model.pt": b"mine"}
    for name, content in foreign.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / ".old-00000000").mkdir()
    os.utime(tmp_path / ".old-00000000", (0, 0))
    kept = checkpoints.save(tmp_path, arrays(), META)
    (kept / "notes.txt").write_text("the good one")
    for _ in range(5):
        checkpoints.save(tmp_path, arrays(), META, keep=2)
    assert {name: (tmp_path / name).read_bytes() for name in foreign} == foreign
    assert (kept / "notes.txt").read_text() == "the good one" and (tmp_path / ".old-00000000").is_dir()
    ours = [p for p in checkpoints.listing(tmp_path) if (p / "manifest.json").exists() and p != kept]
    assert len(ours) == 2


@pytest.mark.slow
def test_several_processes_may_save_to_one_folder(tmp_path):
    """At the same time: none fails, and what is left is intact."""
    code = (
        "import sys, numpy as np; from recollect.store import checkpoints\n"
        "for k in range(30): checkpoints.save(sys.argv[1], {'x': np.arange(1000.0)}, {'k': k})"
    )
    at_once = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    errors = [process.communicate(timeout=120)[1] for process in at_once]
    assert [process.returncode for process in at_once] == [0, 0, 0], errors
    assert all(name.startswith("checkpoint-") for name in os.listdir(tmp_path))
    for path in checkpoints.listing(tmp_path):
        checkpoints.verify(path)


def test_a_checkpoint_that_goes_as_it_is_about_to_be_read(tmp_path, monkeypatch):
    read, gone = checkpoints.read, []

    def late(path, **options):
        if not gone:
            gone.append(path)
            checkpoints.save(tmp_path, {"x": np.zeros(3)}, {"newer": True}, keep=1)
        return read(path, **options)

    checkpoints.save(tmp_path, {"x": np.zeros(3)}, {"newer": False})
    monkeypatch.setattr(checkpoints, "read", late)
    found = checkpoints.load(tmp_path)
    assert found.meta == {"newer": True} and found.passed_over == () and not gone[0].exists()


def test_loading_beside_a_run_that_saves_often(tmp_path):
    """A checkpoint that goes while it is read has newer ones: no error, no fallback."""
    checkpoints.save(tmp_path, {"x": np.zeros(50_000)}, {})
    stop = threading.Event()

    def saving():
        while not stop.is_set():
            checkpoints.save(tmp_path, {"x": np.zeros(50_000)}, {}, keep=1)

    worker = threading.Thread(target=saving)
    worker.start()
    try:
        for _ in range(100):
            assert checkpoints.load(tmp_path).passed_over == ()
    finally:
        stop.set()
        worker.join()


@pytest.mark.parametrize("name", first_quick(["SHA256SUMS", ARRAYS, "manifest.json"]))
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
        with pytest.raises(FileError, match=r"damaged.*checkpoint-00000001 is before it: --fallback") as raised:
            checkpoints.load(tmp_path)
        assert str(path) in str(raised.value)
        with pytest.raises(FileError):
            checkpoints.verify(path)
    found = checkpoints.load(tmp_path, fallback=True)
    assert found.meta == {"step": 1} and len(found.passed_over) == 1 and str(path) in found.passed_over[0]


@pytest.mark.parametrize("name", ["SHA256SUMS", ARRAYS, "manifest.json"])
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
    (path / ARRAYS).write_bytes(b"")
    with pytest.raises(FileError, match=r"holds no intact checkpoint: .*arrays\.safetensors is damaged"):
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
    (path / ARRAYS).write_bytes(os.urandom((path / ARRAYS).stat().st_size))  # not even looked at
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
        (lambda m: m.update(version=3), "this release reads versions 1 to 2"),
        (lambda m: m["arrays"][0].update(shape=[0, 2**62]), "more than the"),
        (lambda m: m.update(meta=[]), "meta is not an object"),
        (lambda m: m.update(bytes=10**15), "are allowed"),
        (lambda m: m.pop("arrays"), "KeyError"),
        (lambda m: m.update(arrays=3), "TypeError"),
        (lambda m: m["arrays"][0].update(shape=[10**9, 10**9]), "allowed|promised"),
        (lambda m: m["arrays"][0].update(shape=[3, 2]), "its arrays are not those of the manifest"),
        (lambda m: m["arrays"][0].update(shape=[-1]), "the shape of"),
        (lambda m: m["arrays"][0].update(shape=[True, 3]), "the shape of"),
        (lambda m: m["arrays"][0].update(dtype="object"), "unknown dtype"),
        (lambda m: m["arrays"][0].update(dtype=["x"]), "TypeError"),
        (lambda m: m["arrays"][1].update(name="a.bool"), "occurs twice"),
        (lambda m: m["arrays"][1].update(name=None), "no text"),
    ],
)
def test_forged_manifests(tmp_path, change, message):
    path = checkpoints.save(tmp_path, arrays(), META)
    forge(path, change)
    with pytest.raises(FileError, match=message):
        checkpoints.load(tmp_path)
    with pytest.raises(FileError, match=message):
        checkpoints.verify(path)


def test_names_are_never_paths(tmp_path):
    """An array may be called anything: names are keys and nothing else."""
    outside = tmp_path / "outside"
    path = checkpoints.save(tmp_path / "run", {"x": np.arange(3)}, {})
    (path / ARRAYS).write_bytes(as_tensors({"../../outside": np.arange(3)}))
    forge(path, lambda m: (m["arrays"][0].update(name="../../outside"), m.update(bytes=(path / ARRAYS).stat().st_size)))
    assert list(checkpoints.load(tmp_path / "run").arrays) == ["../../outside"] and not outside.exists()


@pytest.mark.parametrize("name", ["SHA256SUMS", ARRAYS, "manifest.json"])
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
    (tmp_path / "run" / "checkpoint-00000007").symlink_to(path)
    with pytest.raises(FileError, match="is not a checkpoint: a link"):
        checkpoints.load(tmp_path / "run")
    checkpoints.save(tmp_path / "run", arrays(), META, keep=1)
    assert checkpoints.load(tmp_path / "run").number == 8
    checkpoints.verify(path)


def test_a_file_that_is_all_hole_is_refused_before_it_is_read(tmp_path):
    """The bomb that needs no zip: a file that claims a terabyte and takes up nothing."""
    path = checkpoints.save(tmp_path, {"x": np.zeros(4)}, {})
    os.truncate(path / ARRAYS, 2**40)
    with pytest.raises(FileError, match="should have "):
        checkpoints.load(tmp_path)
    forge_big = {"name": "x", "dtype": "uint8", "shape": [2**40]}
    manifest = json.loads((path / "manifest.json").read_text())
    manifest.update(arrays=[forge_big], bytes=2**40)
    (path / "manifest.json").write_text(json.dumps(manifest))
    sums = hashlib.sha256((path / "manifest.json").read_bytes()).hexdigest()
    (path / "SHA256SUMS").write_text(f"{sums}  manifest.json\n{'0' * 64}  {ARRAYS}\n")
    with pytest.raises(FileError, match="allowed"):
        checkpoints.load(tmp_path)
    os.truncate(path / "manifest.json", 2**40)
    with pytest.raises(FileError, match="more than the"):
        checkpoints.load(tmp_path)


def test_a_pickle_is_never_run(tmp_path):
    """Under each name that a checkpoint has, sealed as if it were sound: refused, and not executed."""
    bomb = b"cposix\nsystem\n(S'touch " + str(tmp_path / "executed").encode() + b"'\ntR."
    for name in ("SHA256SUMS", ARRAYS, "manifest.json"):
        path = checkpoints.save(tmp_path / name, {"x": np.zeros(len(bomb), np.uint8)}, {})
        (path / name).write_bytes(bomb)
        if name != "SHA256SUMS":
            reseal(path)
        with pytest.raises(FileError):
            checkpoints.load(tmp_path / name)
    assert not (tmp_path / "executed").exists()


def test_what_cannot_be_saved_leaves_nothing(tmp_path):
    with pytest.raises(TypeError, match="x: arrays of dtype object are not saved"):
        checkpoints.save(tmp_path, {"x": np.array([None])}, {})
    with pytest.raises(ValueError):
        checkpoints.save(tmp_path, {}, {"x": float("nan")})
    assert os.listdir(tmp_path) == []
