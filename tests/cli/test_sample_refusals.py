"""``recollect sample``: what it refuses, by what name, and what it advises."""

import pytest

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'recollect[tables]'")

from recollect import cli  # noqa: E402


def run(*words):
    assert cli.main(["sample", *map(str, words)]) == 0


def refused(capsys, *words):
    assert cli.main(["sample", *map(str, words)]) == 1
    return capsys.readouterr().err


def put(tmp_path, text, name="data.csv"):
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return tmp_path / name


@pytest.mark.parametrize("option", ["--weight", "--inclusion", "--pps", "--where", "--total", "--by"])
def test_an_empty_word_is_refused(tmp_path, capsys, option):
    """As of a variable that was not set; before anything is read, so the file need not be there."""
    words = ("--weight", "w") if option in ("--where", "--total", "--by") else ()
    said = refused(capsys, tmp_path / "none.csv", *words, option, "", "-n", 2)
    assert f"{option} is empty, as a variable is that was not set" in said


@pytest.mark.parametrize(
    ("words", "value", "said"),
    [
        (("--pps", "w", "-n", 1), "-1", "w is -1.0; sizes, for --pps, are 0 or finite positive numbers"),
        (("--pps", "w", "-n", 1), "", "w is missing or not a number; sizes, for --pps"),
        (("--inclusion", "w"), "1.13", "w is 1.13; probabilities are from 0 to 1"),
        (("--inclusion", "w"), "-.5", "w is -0.5; probabilities are from 0 to 1"),
    ],
)
def test_what_is_no_size_or_probability(tmp_path, capsys, words, value, said):
    """Its file, row and column; --bad, which cannot help here, is not advised, and what is advised does help."""
    first = put(tmp_path, "id,w\n0,0.5\n1,0.5\n", "first.csv")
    second = put(tmp_path, f"id,w\n0,0.5\n1,{value}\n2,0.5\n", "second.csv")
    told = refused(capsys, first, second, *words)
    assert f"second.csv, row 1 (counted from 0): {said}" in told
    assert "--bad" not in told and "with --where" in told
    run(first, second, *words, "--where", "w >= 0 and w <= 1")


def test_probabilities_that_sum_to_no_whole_number(tmp_path, capsys):
    assert "w: pi sums to 1.2" in refused(capsys, put(tmp_path, "id,w\n0,0.5\n1,0.7\n"), "--inclusion", "w")
