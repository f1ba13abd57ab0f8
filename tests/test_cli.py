"""The command from the outside."""

import json
import subprocess
import sys

import pytest

import recollect
from recollect import cli


def test_version_and_help(capsys):
    out = subprocess.run([sys.executable, "-m", "recollect", "--version"], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == f"recollect {recollect.__version__}"
    with pytest.raises(SystemExit) as stop:
        cli.main(["--help"])
    text = capsys.readouterr().out
    assert stop.value.code == 0
    for command in ("demo", "bench"):
        assert f"recollect {command}" in text


@pytest.mark.parametrize("arguments", [[], ["nothing"], ["bench"], ["bench", "reservoir", "--items", "0"]])
def test_wrong_commands(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2 and "usage:" in capsys.readouterr().err


def test_bench_reservoir(capsys):
    assert cli.main(["bench", "reservoir", "--json", "--capacities", "3", "--items", "20000"]) == 0
    report = json.loads(capsys.readouterr().out)
    (row,) = report["nanoseconds_an_item"]
    assert row["n"] == 3 and all(row[m] > 0 for m in ("algorithm1", "direct", "reservoir", "a_expj", "sum"))
    assert report["add_nanoseconds"]["median"] > 0


def test_demo(tmp_path, capsys):
    assert cli.main(["demo", "--out", str(tmp_path / "a folder")]) == 0
    assert (tmp_path / "a folder" / "reservoir.png").stat().st_size > 10_000
    (tmp_path / "file").write_text("")
    assert cli.main(["demo", "--out", str(tmp_path / "file")]) == 1
    assert "recollect: " in capsys.readouterr().err
