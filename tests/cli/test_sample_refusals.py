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


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_conditions_that_do_not_mean_what_they_say(tmp_path, capsys, kind):
    """Text is not put in order with numbers; nothing is nan; doubles do not tell large whole numbers apart."""
    path = put(tmp_path, "region,price,code\nnorth,1.5,007\nsouth,2.5,010\n")
    if kind == "parquet":
        import pyarrow.parquet as pq

        table = pa.table({"region": ["north", "south"], "price": [1.5, 2.5], "code": ["007", "010"]})
        pq.write_table(table, path := tmp_path / "data.parquet")
    words = (path, "--uniform", "-n", 2)
    assert "--where region > 5: the column holds text" in refused(capsys, *words, "--where", "region > 5")
    assert "--where price > nan: no number is nan" in refused(capsys, *words, "--where", "price > nan")
    said = refused(capsys, *words, "--where", "price == 9007199254740993")
    assert "double, which cannot tell such whole numbers apart" in said
    run(*words, "--where", "price > 1e20")
    capsys.readouterr()
    run(*words, "--where", "region > no and region == north and code == 007")
    assert capsys.readouterr().out.splitlines()[1:] == ["north,1.5,007,1,1"]
    if kind == "csv":  # a text that can be read as a number is one where it is put in order with numbers
        run(*words, "--where", "code > 8")
        assert capsys.readouterr().out.splitlines()[1:] == ["south,2.5,010,1,1"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--uniform", "--bad", "skip"), "--bad: with --uniform there are no weights that could be bad"),
        (("--uniform", "--level", ".9"), "--level: of the intervals of a --total COLUMN"),
        (("--pps", "w", "--bad", "zero"), "--bad: with --inclusion and --pps every row needs a probability"),
    ],
)
def test_words_that_would_have_no_effect(tmp_path, capsys, words, said):
    assert said in refused(capsys, put(tmp_path, "w\n1\n2\n"), *words, "-n", 1)


@pytest.mark.parametrize("order", [1, -1])
def test_files_that_lack_columns_of_the_others(tmp_path, capsys, order):
    """Their rows would come out as if values were missing; what all have can be sampled, in whatever order it comes."""
    paths = [put(tmp_path, "id,w,x,y\n1,1,2,3\n", "a.csv"), put(tmp_path, "w,id\n1,2\n", "b.csv")][::order]
    said = refused(capsys, *paths, "--weight", "w", "-n", 2)
    assert "b.csv lacks columns that" in said and "a.csv has: x, y; with --columns" in said
    assert "b.csv: no column 'x'" in refused(capsys, *paths, "--weight", "w", "-n", 2, "--columns", "x")
    run(*paths, "--weight", "w", "-n", 2, "--columns", "id,w")
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "1,1,1,1",
        "2,1,1,1",
        "id,w," + "inclusion_probability,horvitz_thompson_weight",
    ]


def test_two_columns_of_one_name(tmp_path, capsys):
    path = put(tmp_path, "a,w,a\n1,2,3\n")
    assert "two columns 'a': give them names of their own" in refused(capsys, path, "--weight", "w", "-n", 1)
    run(path, "--weight", "w", "-n", 1, "--columns", "w")


def test_a_link_to_nothing_is_there(tmp_path, capsys):
    """As of a disk that is not mounted: no file takes the place of the link."""
    out = tmp_path / "out.csv"
    out.symlink_to(tmp_path / "gone" / "out.csv")
    assert "out.csv exists already" in refused(capsys, put(tmp_path, "w\n1\n"), "--uniform", "-n", 1, "--out", out)
    assert out.is_symlink()
