"""Writing under a folder handle: whole or not at all, through no link; reading without trust."""

import ast
import errno
import os
import threading
from pathlib import Path

import pytest

from recollect import FileError, RecollectError
from recollect.store import files
from recollect.store.files import Folder

SOURCE = Path(__file__).parents[2] / "src" / "recollect"


@pytest.fixture
def outside(tmp_path):
    """A file of the user's that nothing may change, with links to it and to its folder from a run."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis").write_text("years of work")
    (tmp_path / "run").mkdir()
    yield tmp_path / "home" / "thesis"
    assert [p.name for p in (tmp_path / "home").iterdir()] == ["thesis"]
    assert (tmp_path / "home" / "thesis").read_text() == "years of work"


def test_links_are_refused_on_appending(tmp_path, outside):
    (tmp_path / "run" / "log.jsonl").symlink_to(outside)
    (tmp_path / "run" / "dangling").symlink_to(tmp_path / "home" / "new")
    with Folder(tmp_path / "run") as folder:
        for name in ("log.jsonl", "dangling"):
            with pytest.raises(RecollectError, match=f"cannot write .*{name}: it is a link"):
                folder.append(name, b"line\n")
            with pytest.raises(RecollectError, match="it is a link"):
                folder.flush(name)


def test_a_link_is_replaced_and_not_written_through(tmp_path, outside):
    (tmp_path / "run" / "episode-0.png").symlink_to(outside)
    files.replace(tmp_path / "run" / "episode-0.png", b"picture")
    assert not (tmp_path / "run" / "episode-0.png").is_symlink()
    assert (tmp_path / "run" / "episode-0.png").read_bytes() == b"picture"


def test_folders_that_are_links_are_refused(tmp_path, outside):
    (tmp_path / "run" / "tensorboard").symlink_to(tmp_path / "home")
    with Folder(tmp_path / "run") as folder, pytest.raises(RecollectError, match="tensorboard: it is a link"):
        folder.below("tensorboard", create=True)


def test_a_hard_link_is_parted_from_its_other_name(tmp_path, outside):
    os.link(outside, tmp_path / "run" / "log.jsonl")
    with Folder(tmp_path / "run") as folder:
        folder.append("log.jsonl", b"!")
        folder.append("log.jsonl", b"!")
    assert (tmp_path / "run" / "log.jsonl").read_text() == "years of work!!"


def test_what_the_user_names_may_be_reached_through_links(tmp_path):
    (tmp_path / "scratch").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "scratch")
    with Folder(tmp_path / "runs" / "a", create=True) as folder:
        folder.append("x", b"1")
    assert (tmp_path / "scratch" / "a" / "x").read_bytes() == b"1"


def test_names_do_not_lead_out(tmp_path):
    with Folder(tmp_path) as folder:
        for name in ("../x", "a/b", "..", ".", "", "a\x00b", "/etc/passwd"):
            for call in (folder.append, folder.replace, folder.create):
                with pytest.raises(ValueError, match="is not the name of a file"):
                    call(name, b"")
            with pytest.raises(ValueError, match="is not the name of a file"):
                folder.below(name)


def test_the_folder_may_move_and_the_process_go_elsewhere(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path)
    with Folder("a") as folder:
        monkeypatch.chdir("/")
        folder.append("x", b"1")
        (tmp_path / "a").rename(tmp_path / "b")
        folder.append("x", b"2")
        folder.replace("y", b"3")
    assert (tmp_path / "b" / "x").read_bytes() == b"12" and (tmp_path / "b" / "y").read_bytes() == b"3"


def test_appending_is_all_or_nothing(tmp_path, monkeypatch):
    write, room = os.write, [9]

    def full(handle, content):
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = write(handle, bytes(content)[: room[0]])
        room[0] -= taken
        return taken

    with Folder(tmp_path) as folder:
        folder.append("log", b"first\n")
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            with pytest.raises(RecollectError, match=r"cannot write .*log: No space left on device"):
                folder.append("log", b"second, longer than there is room for\n")
        folder.append("log", b"third\n")
    assert (tmp_path / "log").read_bytes() == b"first\nthird\n"


def test_pipes_and_folders_are_not_written_to(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "inner").mkdir()
    with Folder(tmp_path) as folder:
        with pytest.raises(RecollectError, match="it is not an ordinary file"):
            folder.append("pipe", b"x")
        with pytest.raises(RecollectError, match="cannot write"):
            folder.append("inner", b"x")
        with pytest.raises(RecollectError, match="cannot write"):
            folder.replace("inner", b"x")
    assert sorted(os.listdir(tmp_path)) == ["inner", "pipe"]


def test_no_file_takes_the_place_of_a_pipe_or_a_device(tmp_path):
    """Whoever may do anything, as root, and says ``--out /dev/null`` still has it afterwards."""
    pipe = tmp_path / "pipe.html"
    os.mkfifo(pipe)
    with pytest.raises(RecollectError, match=r"pipe\.html: it is not an ordinary file"):
        files.replace(pipe, b"page")
    assert [path.name for path in tmp_path.iterdir()] == ["pipe.html"] and pipe.is_fifo()


def test_only_known_files_are_removed(tmp_path):
    (tmp_path / "a").mkdir()
    for name in ("one", "two", "notes"):
        (tmp_path / "a" / name).write_text(name)
    with Folder(tmp_path) as folder, pytest.raises(OSError):
        folder.remove_files("a", "one", "two")
    assert os.listdir(tmp_path / "a") == ["notes"]


def test_claims(tmp_path):
    """Who is at work in a folder is noticed by others, and no longer when it is closed."""
    with Folder(tmp_path) as first, Folder(tmp_path) as second:
        assert first.claim() and not second.claim()
        first.close()
        assert second.claim()


def test_replacing_is_never_seen_half_done(tmp_path):
    files.replace(tmp_path / "x", b"a" * 10_000)
    seen, stop = set(), threading.Event()

    def look():
        while not stop.is_set():
            seen.add(files.read(tmp_path / "x", 20_000))

    watcher = threading.Thread(target=look)
    watcher.start()
    for k in range(50):
        files.replace(tmp_path / "x", (b"b" if k % 2 else b"a") * 10_000)
    stop.set()
    watcher.join()
    assert seen <= {b"a" * 10_000, b"b" * 10_000} and os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", "[" * 100_000, "{", "9" * 5000, "\xff"])
def test_only_strict_json_is_read(tmp_path, text):
    (tmp_path / "x").write_bytes(b'{"a": ' + text.encode("latin-1") + b"}")
    with pytest.raises(FileError, match="is damaged"):
        files.read_json(tmp_path / "x")


def test_links_are_not_read(tmp_path):
    (tmp_path / "x").symlink_to("/etc/hostname")
    with pytest.raises(FileError, match="it is a link"):
        files.read(tmp_path / "x", 100)
    with pytest.raises(FileError, match="it is a link"):
        files.refuse_links(tmp_path / "x")
    files.refuse_links(tmp_path)


WRITES_ITSELF = {
    "store/files.py": "the one place",
    "reservoir/file.py": "left of the store: writes a new file beside its target and renames it",
}


def calls_of(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            yield name, node


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_every_write_goes_through_one_module(path):
    """No file is opened for writing anywhere else, whatever folder it is in."""
    if str(path.relative_to(SOURCE)) in WRITES_ITSELF:
        return
    for name, node in calls_of(path):
        assert name not in ("write_text", "write_bytes", "symlink_to", "hardlink_to", "copytree", "rmtree"), name
        if name in ("open", "fdopen"):
            modes = [a.value for a in [*node.args, *(k.value for k in node.keywords)] if isinstance(a, ast.Constant)]
            assert not [m for m in modes if isinstance(m, str) and set(m) & set("wax+") and len(m) <= 3], ast.dump(node)
        if name == "savefig":
            assert getattr(node.args[0], "id", "") == "buffer", "a picture is drawn into memory"
