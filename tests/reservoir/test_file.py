"""Saving and loading: bit for bit, and every damaged file refused."""

import io
import json
import os
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect import FileError, Reservoir
from recollect.reservoir import file


def filled(kind="linear", n=4, t=200):
    r = Reservoir(n, seed=5)
    scale = 300 if kind == "log" else 1
    r.extend(range(t), log_weights=np.random.default_rng(0).normal(0, scale, t))
    return r


def same_state(a, b):
    """But for ratios beyond an item's rank, which are never used and not saved."""
    x, y = a._state, b._state
    return all(name == "rows" or np.array_equal(was, getattr(y, name)) for name, was in x._asdict().items()) and all(
        np.array_equal(x.rows[slot, : rank + 1], y.rows[slot, : rank + 1]) for rank, slot in enumerate(x.order, 1)
    )


@pytest.mark.parametrize("kind", ["linear", "log"])
@pytest.mark.parametrize("t", [0, 2, 37, 5000])
def test_continues_bit_for_bit(tmp_path, kind, t):
    a = filled(kind, t=t)
    a.save(tmp_path / "r")
    b = Reservoir.load(tmp_path / "r")
    more = np.random.default_rng(1).lognormal(0, 1, 3000)
    for r in (a, b):
        r.extend(range(3000), more)
    assert a.items == b.items and a.seen == b.seen == t + 3000
    assert same_state(a, b)
    assert np.array_equal(a.weights, b.weights)
    with pytest.raises(ValueError, match="share their seed"):
        a.merge(b)


def test_items_of_every_kind_come_back(tmp_path):
    items = [None, True, 3, 2**80, 2.5, float("inf"), "é", b"\x00\xff", (1, "a"), [1, [2]], {"k": (1,)}]
    items += [
        np.arange(6.0).reshape(2, 3),
        np.float32(1.5),
        np.int8(3),
        np.array("text"),
        np.asfortranarray(np.eye(3)[:2]),
    ]
    r = Reservoir(len(items), seed=0)
    for item in items:
        r.add(item, 1.0)
    r.save(tmp_path / "ä file.zip")
    back = Reservoir.load(tmp_path / "ä file.zip").items
    for a, b in zip(items, back, strict=True):
        assert type(a) is type(b)
        assert np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b


def test_unsavable_items_leave_the_old_file(tmp_path):
    r = filled()
    r.save(tmp_path / "r")
    old = (tmp_path / "r").read_bytes()
    r.add(object(), 1e9)
    with pytest.raises(TypeError, match="items of type object cannot be saved"):
        r.save(tmp_path / "r")
    assert (tmp_path / "r").read_bytes() == old and os.listdir(tmp_path) == ["r"]


@pytest.mark.parametrize("item", [np.array([object()]), np.zeros(2, "V0"), np.ma.masked_array([1.0], [True])])
def test_items_that_would_not_come_back_are_refused(tmp_path, item):
    r = Reservoir(1, seed=0)
    r.add(item, 1.0)
    with pytest.raises(TypeError, match="cannot be saved"):
        r.save(tmp_path / "r")


def test_the_file_has_the_usual_permissions(tmp_path):
    filled().save(tmp_path / "r")
    (tmp_path / "plain").touch()
    assert (tmp_path / "r").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_unwritable_and_missing_places(tmp_path):
    with pytest.raises(IsADirectoryError):
        filled().save(tmp_path)
    with pytest.raises(FileNotFoundError):
        filled().save(tmp_path / "no" / "r")
    with pytest.raises(FileNotFoundError):
        Reservoir.load(tmp_path / "none")


def test_no_file_takes_the_place_of_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileExistsError, match="pipe is not an ordinary file"):
        Reservoir(2, seed=0).save(tmp_path / "pipe")
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"] and (tmp_path / "pipe").is_fifo()


def test_every_flipped_byte_is_noticed(tmp_path):
    """A changed byte is refused, or it stood where the archive keeps nothing of ours (dates, attributes)."""
    r = filled(n=2, t=30)
    path = tmp_path / "r"
    r.save(path)
    sound = path.read_bytes()
    refused = 0
    for at in range(0, len(sound), 7):
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 0x10]) + sound[at + 1 :])
        try:
            b = Reservoir.load(path)
        except FileError as error:
            assert str(path) in str(error)
            refused += 1
        else:
            assert b.items == r.items and same_state(b, r)
    assert refused > 0.7 * len(range(0, len(sound), 7))


def test_truncated_and_foreign_files(tmp_path):
    path = tmp_path / "r"
    filled().save(path)
    sound = path.read_bytes()
    for cut in (0, 1, 100, len(sound) // 2, len(sound) - 1):
        path.write_bytes(sound[:cut])
        with pytest.raises(FileError):
            Reservoir.load(path)
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    with pytest.raises(FileError):
        Reservoir.load(tmp_path / "other.npz")


def rewritten(path, change, compression=zipfile.ZIP_STORED):
    """The file with ``change(members)`` applied and its checksums made to match again."""
    import hashlib

    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    header = json.loads(members.pop("header.json"))
    change(header, members)
    header["sha256"] = {name: hashlib.sha256(data).hexdigest() for name, data in members.items()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("header.json", json.dumps(header))
        for name, data in members.items():
            archive.writestr(name, data)


def npy(array, **options):
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "change",
    [
        lambda h, m: h.update(version=3),
        lambda h, m: h.update(law="uniform"),
        lambda h, m: h.update(format="something else"),
        lambda h, m: m.pop("state.g.npy"),
        lambda h, m: m.update({"state.order.npy": npy(np.array([0, 1, 2, 900]))}),
        lambda h, m: m.update({"state.counts.npy": npy(np.array([200, 99, 0, 0]))}),
        lambda h, m: m.update({"state.g.npy": npy(np.zeros(3))}),
        lambda h, m: m.update({"state.g.npy": npy(np.array([object()], dtype=object), allow_pickle=True)}),
        lambda h, m: m.update({"items.json": b"[{}]"}),
        lambda h, m: m.update({"items.json": b'[{"array": 7}, 1, 2, 3]'}),
        lambda h, m: m.update({"items.json": b"[" * 100_000}),
        lambda h, m: m.update({"items.json": b"not json"}),
        lambda h, m: m.update({"state.extra.npy": npy(np.zeros(1))}),
        lambda h, m: m.update({"state.index.npy": npy(np.array([0, 1, 2, 900]))}),
        lambda h, m: m.update({"state.index.npy": npy(np.array([0, 1, 2, -1]))}),
        lambda h, m: m.update({"state.rng.npy": npy(np.zeros(4, np.uint64))}),
        lambda h, m: m.update({"state.counts.npy": npy(np.array([200, 4, 2**40, 0]))}),
        lambda h, m: m.update({"state.weights.npy": npy(-np.ones(4))}),
        lambda h, m: m.update({"state.g.npy": npy(np.zeros(30))}),
    ],
)
def test_forged_files(tmp_path, change):
    path = tmp_path / "r"
    filled().save(path)
    rewritten(path, change)
    with pytest.raises(FileError):
        Reservoir.load(path)


def test_compressed_members_are_refused(tmp_path):
    path = tmp_path / "r"
    filled().save(path)
    rewritten(path, lambda h, m: m.update({"array.0.npy": npy(np.zeros(10**6))}), zipfile.ZIP_DEFLATED)
    with pytest.raises(FileError, match="compressed"):
        Reservoir.load(path)


@settings(max_examples=80, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("any") / "r"
    path.write_bytes(content)
    with pytest.raises(FileError):
        Reservoir.load(path)


@pytest.mark.parametrize("deep", [10**5000, 2**100_000, -(10**6000)], ids=["digits", "bits", "negative"])
def test_numbers_of_thousands_of_digits_are_refused_as_promised(tmp_path, deep):
    r = Reservoir(2, seed=0)
    r.extend([deep, [deep]], [1.0, 1.0])
    with pytest.raises(TypeError, match=r"a whole number of .* bits cannot be saved"):
        r.save(tmp_path / "r")
    assert list(tmp_path.iterdir()) == []


def test_deep_nesting_is_refused_as_promised(tmp_path):
    for depth in (150, 100_000):
        item = 0
        for _ in range(depth):
            item = [item] if depth % 2 else (item,)
        r = Reservoir(2, seed=0)
        r.extend([item], [1.0])
        with pytest.raises(TypeError, match="nested more than 100 deep"):
            r.save(tmp_path / "r")
    item = 2**13_000
    for _ in range(90):
        item = [item]
    r = Reservoir(2, seed=0)
    r.extend([item], [1.0])
    r.save(tmp_path / "r")
    assert Reservoir.load(tmp_path / "r").items == [item]


def test_what_does_not_fit_is_refused_with_the_bytes(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"capacity=10000000 needs 800,000,080,000,000 bytes"):
        Reservoir(10_000_000)
    a, b = (Reservoir(10, seed=k) for k in range(2))
    a.extend(range(30), np.ones(30))
    a.save(tmp_path / "a")
    monkeypatch.setattr(file, "available", lambda: 879)
    with pytest.raises(MemoryError, match=r"merging needs 880 bytes .*, 879 are available"):
        a.merge(b)
    with pytest.raises(MemoryError, match="loading it needs 880 bytes"):
        Reservoir.load(tmp_path / "a")
    monkeypatch.setattr(file, "available", lambda: 880)
    assert len(a.merge(b)) == len(Reservoir.load(tmp_path / "a")) == 10
