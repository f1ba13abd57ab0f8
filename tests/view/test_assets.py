"""The committed script and style sheet are what their sources build."""

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ASSETS = ROOT / "src" / "recollect" / "view" / "assets"


def need_node():
    if shutil.which("node") is None:
        pytest.skip("Node is not here: the viewer is built with it, not used with it")
    if not (ROOT / "viewer" / "node_modules" / "esbuild").is_dir():
        pytest.skip("viewer/node_modules is not here: make viewer installs it")


def test_the_committed_viewer_was_built_from_these_sources():
    """Without Node: the build notes down the sum of what it read."""
    viewer, found = ROOT / "viewer", hashlib.sha256()
    for path in (viewer / "build.js", viewer / "package-lock.json", *sorted((viewer / "src").iterdir())):
        found.update(f"{path.relative_to(viewer).as_posix()}\0".encode() + path.read_bytes())
    noted = (ASSETS / "sources.sha256").read_text().strip()
    assert found.hexdigest() == noted, "the viewer's sources have changed: make viewer builds it anew"


def test_the_committed_viewer_is_what_its_sources_build(tmp_path):
    need_node()
    subprocess.run(["node", "build.js", str(tmp_path)], cwd=ROOT / "viewer", check=True, capture_output=True)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == sorted(path.name for path in ASSETS.iterdir())
    for name in names:
        assert (tmp_path / name).read_bytes() == (ASSETS / name).read_bytes(), f"{name}: make viewer builds it anew"


def test_the_sources_are_typed():
    need_node()
    found = subprocess.run(
        ["node", "node_modules/typescript/bin/tsc", "--noEmit"], cwd=ROOT / "viewer", capture_output=True, text=True
    )
    assert found.returncode == 0, found.stdout


def test_what_is_vendored_has_its_licence():
    text = (ASSETS / "uplot-license.txt").read_text()
    assert "MIT" in text and "Leon Sorokin" in text
