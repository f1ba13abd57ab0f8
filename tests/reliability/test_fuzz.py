"""Every loader under damaged and forged input: a short, bounded run of what ``make fuzz`` does for ten minutes."""

import io
import zipfile
from pathlib import Path

import pytest

from recollect import FileError, Reservoir
from reliability.fuzz import LOADERS, fuzz


@pytest.mark.parametrize("loader", LOADERS)
def test_only_the_librarys_own_errors_come_out(loader):
    least = 12 if loader == "folder" else 50  # each of which four commands are run on
    count = fuzz(0.5, seed=7, loaders=(loader,), least=least)[loader]
    assert count["fed"] >= least and 0 < count["refused"] <= count["fed"]


def test_what_a_command_does_outside_of_a_folder_is_noticed(monkeypatch):
    """The check itself: a command that writes through a link, or beside the folder, does not pass."""

    def careless(words):
        home = Path(words[1]).parent / "home"
        (home / "thesis.tex").write_text("gone")

    monkeypatch.setattr("reliability.fuzz.run_command", careless)
    with pytest.raises(AssertionError, match="changed what is outside of the folder"):
        fuzz(0.1, seed=7, loaders=("folder",), least=1)


def test_members_that_overlap_are_refused_before_they_are_read(tmp_path):
    """A zip bomb without compression: a thousand members that are all the same stretch of the file."""
    r = Reservoir(2, seed=0)
    r.extend(range(100), [1.0] * 100)
    r.save(tmp_path / "r")
    out = io.BytesIO((tmp_path / "r").read_bytes())
    with zipfile.ZipFile(out, "a") as archive:
        archive.writestr("array.0.npy", b"x" * 100_000)
        (last,) = [info for info in archive.filelist if info.filename == "array.0.npy"]
        for k in range(1, 1000):
            twin = zipfile.ZipInfo(f"array.{k}.npy")
            for name in ("header_offset", "file_size", "compress_size", "CRC"):
                setattr(twin, name, getattr(last, name))
            archive.filelist.append(twin)
        archive._didModify = True
    (tmp_path / "bomb").write_bytes(out.getvalue())
    with pytest.raises(FileError, match="some of them overlap"):
        Reservoir.load(tmp_path / "bomb")
