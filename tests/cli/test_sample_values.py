"""``recollect sample``: what it does not compute with comes out as it went in."""

import io
import json
import sys

import pytest

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'recollect[tables]'")

import pyarrow.csv as pa_csv  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

from recollect import cli  # noqa: E402
from recollect.reservoir import text  # noqa: E402

ODD = [
    ("9007199254740993", "007", "1e5", "a", "1.50", "2024-01-31"),
    ("18446744073709551615", "12", "NA", '"b, ""c"""', "0.1", "2024-02-01"),
    ("0", "+49", "1E5", '"two\nlines"', "12345678901234567890.5", "2024-02-02"),
    ("5", "0", "", "", "-0", "2024-02-03"),
]
NAMES = ["id", "code", "hash", "text", "number", "day"]
CSV = "".join(",".join(row) + "\n" for row in ([*NAMES, "w"], *((*row, "2.50") for row in ODD)))


def run(*words):
    assert cli.main(["sample", *map(str, words)]) == 0


def refused(capsys, *words):
    assert cli.main(["sample", *map(str, words)]) == 1
    return capsys.readouterr().err


def put(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def fed(monkeypatch, content):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content.encode())))


def rows_of(text):
    """Of CSV or TSV, the lines without the two columns of the sample."""
    return [tuple(row.values())[:-2] for row in csv_rows(text)]


def csv_rows(text, delimiter=","):
    import csv

    return list(csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter))


@pytest.mark.parametrize("words", [("--weight", "w"), ("--uniform", "--where", "w > 1 and id >= 0 and code != 8")])
@pytest.mark.parametrize("source", ["file", "-"])
def test_csv_comes_out_as_it_is_written(tmp_path, monkeypatch, capsys, source, words):
    """Every column, the weight too, and quotation marks only where they are needed."""
    path, out = put(tmp_path / "data.csv", CSV), tmp_path / "out.csv"
    fed(monkeypatch, CSV)
    files = [path] if source == "file" else ["-", "--format", "csv"]
    run(*files, *words, "-n", 4, "--out", out)
    given = CSV.replace("w\n", "w,inclusion_probability,horvitz_thompson_weight\n").replace("2.50\n", "2.50,1,1\n")
    assert out.read_text() == given
    fed(monkeypatch, CSV)
    run(*files, *words, "-n", 4)
    assert capsys.readouterr().out == given
    fed(monkeypatch, CSV)
    run(*files, *words, "-n", 4, "--out", tmp_path / "out.tsv", "--columns", "text,id")
    rows = csv_rows((tmp_path / "out.tsv").read_text(), "\t")
    assert [row["id"] for row in rows] == [row[0] for row in ODD] and rows[2]["text"] == "two\nlines"


@pytest.mark.parametrize("source", ["file", "-"])
@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_types_of_csv_lose_nothing(tmp_path, monkeypatch, source, ending):
    """Whole numbers are int64, uint64 or text; what begins with 0 or + is text; decimals are float64 if kept."""
    path, out = put(tmp_path / "data.csv", CSV), tmp_path / f"out.{ending}"
    fed(monkeypatch, CSV)
    run(*([path] if source == "file" else ["-", "--format", "csv"]), "--weight", "w", "-n", 4, "--out", out)
    wanted = {
        "id": [9007199254740993, 18446744073709551615, 0, 5],
        "code": ["007", "12", "+49", "0"],
        "hash": [100000.0, None, 100000.0, None],
        "text": ["a", 'b, "c"', "two\nlines", ""],
        "number": ["1.50", "0.1", "12345678901234567890.5", "-0"],
        "w": [2.5] * 4,
    }
    if ending == "parquet":
        found = pq.read_table(out)
        kinds = [str(found.schema.field(name).type) for name in (*NAMES, "w")]
        assert kinds == ["uint64", "string", "double", "string", "string", "date32[day]", "double"]
        rows = found.to_pylist()
    else:
        rows = [json.loads(line) for line in out.read_text().splitlines()]
        assert [row["day"] for row in rows] == [row[5] for row in ODD]
    assert {name: [row[name] for row in rows] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-5", "9223372036854775807"], "int64"),
        (["1", "18446744073709551615"], "uint64"),
        (["-1", "18446744073709551615"], "string"),
        (["18446744073709551616"], "string"),
        (["9007199254740993", "1.5"], "string"),
        (["9007199254740992", "1.5", " 2 ", "inf", "-.5", "1e-3", "NaN", ""], "double"),
        (["0.1", "0.10000000000000001", "1.000000000000000056e-01"], "double"),
        (["0.10000000000000002"], "double"),
        (["0.12345678901234567890123"], "string"),
        (["1e999"], "string"),
        (["", ""], "null"),
        (["NA", "NA"], "string"),
        (["true", "False"], "bool"),
        (["2024-02-30"], "string"),
        (["2024-02-28 12:30:00", "2024-02-28T12:30"], "timestamp[s]"),
        (["2024-02-28T12:30:00+01:00"], "string"),
        (["01", "1"], "string"),
        (["1_000"], "string"),
        ([b"\xe4"], "binary"),
    ],
)
def test_what_type_keeps_all_of_it(values, kind):
    column = pa.array([value if isinstance(value, bytes) else value.encode() for value in values], pa.binary())
    found = text.kind_of(column)
    assert str(found) == kind
    kept = text.converted(column, found)
    if kind in ("int64", "uint64", "string"):
        assert [str(value) for value in kept.to_pylist()] == values


def test_one_large_number_in_the_last_block(tmp_path, monkeypatch, capsys):
    """However the file is cut into blocks: the ids of all rows are their own."""
    first, rows = 9007199254740993, 40_001
    ids = [*range(first, first + rows - 1), 2**64 - 1]
    path = put(tmp_path / "data.csv", "id,w\n" + "".join(f"{k},1\n" for k in ids))
    outputs = {}
    for block in (1 << 14, 1 << 22):
        monkeypatch.setattr(text, "TEXT_BLOCK", block)
        for ending in ("csv", "parquet", "jsonl"):
            out = tmp_path / f"{block}.{ending}"
            run(path, "--weight", "w", "-n", rows, "--out", out)
            outputs.setdefault(ending, set()).add(out.read_bytes())
    for wanted in (first + 1, 2**64 - 1):
        run(path, "--weight", "w", "-n", 5, "--where", f"id == {wanted}", "--out", tmp_path / f"{wanted}.csv")
        assert [row["id"] for row in csv_rows((tmp_path / f"{wanted}.csv").read_text())] == [str(wanted)]
    monkeypatch.setattr(text, "TEXT_BLOCK", 1 << 14)  # what the first rows tell does not hold for --where
    said = refused(capsys, path, "--weight", "w", "-n", 5, "--where", f"id == {first + 1}")
    assert "invalid value '18446744073709551615'; a weight is a number, and a column of --where has the type" in said
    assert {len(found) for found in outputs.values()} == {1}
    assert [int(row["id"]) for row in csv_rows(outputs["csv"].pop().decode())] == ids
    assert pq.read_table(tmp_path / f"{1 << 22}.parquet")["id"].to_pylist() == ids


def test_the_type_does_not_hang_on_the_rows_that_are_drawn(tmp_path):
    """The first rows have a say in it: a code is text also where those drawn do not begin with 0."""
    content = "code,w\n007,0\n" + "".join(f"{k},1\n" for k in range(1, 50))
    path = put(tmp_path / "data.csv", content)
    run(path, "--weight", "w", "-n", 3, "--out", tmp_path / "out.parquet")
    assert str(pq.read_table(tmp_path / "out.parquet").schema.field("code").type) == "string"


@pytest.mark.parametrize("source", ["file", "-"])
@pytest.mark.parametrize("block", [1 << 10, 1 << 22])
def test_json_lines_come_out_as_they_went_in(tmp_path, monkeypatch, source, block):
    """Whole numbers of 64 bits with and without a sign, dates, and the order of the columns."""
    monkeypatch.setattr(text, "TEXT_BLOCK", block)
    rows = [
        {
            "id": 9007199254740993 + k,
            "big": 2**64 - 1 - k,
            "t": f"2024-01-01T00:00:{k:02}Z",
            "in": {"b": k, "a": [k]},
            "w": 1.5,
        }
        for k in range(60)
    ]
    content = "".join(json.dumps(row) + ("\r\n\n" if k % 7 == 0 else "\n") for k, row in enumerate(rows))
    path, out = put(tmp_path / "data.jsonl", content.rstrip()), tmp_path / "out.jsonl"
    fed(monkeypatch, content.rstrip())
    files = [path] if source == "file" else ["-", "--format", "jsonl"]
    run(*files, "--weight", "w", "--where", "id >= 9007199254740993", "-n", 60, "--out", out)
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [list(row)[:5] for row in found] == [list(row) for row in rows]
    assert [{name: row[name] for name in rows[0]} for row in found] == rows
    fed(monkeypatch, content.rstrip())
    run(*files, "--uniform", "-n", 60, "--columns", "big,id", "--out", tmp_path / "out.parquet")
    table = pq.read_table(tmp_path / "out.parquet")
    assert table["big"].to_pylist() == [row["big"] for row in rows] and table.schema.names[:2] == ["big", "id"]


@pytest.mark.parametrize("values", [[1, 2**64], [-1, 2**64 - 1], [1.5, 2**53 + 1]])
def test_json_lines_with_numbers_that_no_column_holds(tmp_path, capsys, values):
    """Never another number instead: file and row are named, and --columns leaves the column out."""
    first = put(tmp_path / "first.jsonl", '{"x": 3, "w": 1}\n')
    path = put(tmp_path / "data.jsonl", "".join(json.dumps({"x": x, "w": 1}) + "\n" for x in values))
    said = refused(capsys, first, path, "--weight", "w", "-n", 3)
    assert f"data.jsonl, row 1 (counted from 0): column 'x' cannot hold {values[1]} beside its other values" in said
    run(first, path, "--weight", "w", "-n", 3, "--columns", "w", "--out", tmp_path / "out.jsonl")


@pytest.mark.parametrize("line", ['{"w": 1} {"w": 2}', '{"w":\n1}', "[1]"])
def test_a_line_that_is_no_object_of_its_own(tmp_path, capsys, line):
    """pyarrow counts objects and not lines: the rows would not be those whose weights were read."""
    path = put(tmp_path / "data.jsonl", '{"w": 1, "x": "} {"}\n\n' + line + '\n{"w": 1}\n')
    assert "data.jsonl" in refused(capsys, path, "--uniform", "-n", 3)
    if line != "[1]":
        assert "row 1 (counted from 0): a line of JSON lines is one object" in refused(
            capsys, path, "--uniform", "-n", 3
        )


def test_totals_of_columns_that_are_kept_as_text(tmp_path, capsys):
    path = put(tmp_path / "data.csv", "x,g,w\n007,a,1\n1e1,,1\n 2 ,all,1\n")
    for words in ((), ("--out", tmp_path / "out.parquet")):
        run(path, "--weight", "w", "-n", 3, "--total", "x", "--by", "g", *words)
        lines = [line.split()[:3] for line in capsys.readouterr().out.splitlines()[1:]]
        assert lines == [["(empty)", "1", "10"], ["a", "1", "7"], ["all", "1", "2"], ["(all)", "3", "19"]]
    later = put(tmp_path / "later.csv", "x,g,w\nseven,a,1\n")
    assert "no number there" in refused(capsys, path, later, "--weight", "w", "-n", 4, "--total", "x")


def test_bytes_that_are_not_utf8(tmp_path, capsys):
    """In values they stay as they are; names are told apart by their letters, so they must be UTF-8."""
    path = put(tmp_path / "data.csv", b"id,w\n\xe4,1\n")
    run(path, "--weight", "w", "-n", 1, "--out", tmp_path / "out.csv")
    assert (
        (tmp_path / "out.csv").read_bytes().startswith(b"id,w,inclusion_probability,horvitz_thompson_weight\n\xe4,1,")
    )
    for content in (b"h\xe4user,w\n1,1\n", b"w,h\xe4user"):
        path = put(tmp_path / "names.csv", content)
        said = refused(capsys, path, "--weight", "w", "-n", 1)
        assert "names.csv: the names of its columns are not UTF-8, which is expected" in said and "iconv" in said
    path = put(tmp_path / "names.csv", ("x" * (text.HEADER - 1) + "ä,w\n1,1\n").encode())  # cut within a letter
    run(path, "--weight", "w", "-n", 1, "--columns", "w")


def test_parquet_to_csv_as_pyarrow_writes_it(tmp_path):
    """But for quotation marks that nothing needs."""
    table = pa.table({"a": [1.5, None], "b,c": ["", None], "d": pa.array(["x", 'y"'], pa.string()).dictionary_encode()})
    pq.write_table(table, tmp_path / "data.parquet")
    run(tmp_path / "data.parquet", "--uniform", "-n", 2, "--out", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == (
        'a,"b,c",d,inclusion_probability,horvitz_thompson_weight\n1.5,"",x,1,1\n,,"y""",1,1\n'
    )
    options = pa_csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
    assert pa_csv.read_csv(tmp_path / "out.csv", convert_options=options)["b,c"].to_pylist() == ["", None]
