"""``recollect sample``: every format the same rows, every number of workers the same bytes; bad rows; resuming."""

import gzip
import io
import json
import math
import sys

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'recollect[tables]'")

import pyarrow.csv as pa_csv  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

from recollect import Reservoir, cli  # noqa: E402
from recollect.errors import RecollectError  # noqa: E402
from recollect.reservoir import columns, conditions, law, pieces, scans, stages, tables, text  # noqa: E402

N = 3000


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    price = rng.lognormal(0, 1, N).round(4)
    region = pa.array(["north" if x < 0.3 else "south" for x in rng.random(N)])
    return pa.table({"id": np.arange(N), "price": price, "paid": price * rng.uniform(0.5, 1.5, N), "region": region})


def put(table, path, kind):
    if kind == "parquet":
        pq.write_table(table, path, row_group_size=700)
    elif kind in ("csv", "tsv"):
        pa_csv.write_csv(table, path, pa_csv.WriteOptions(delimiter="\t" if kind == "tsv" else ","))
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=900)
    return str(path)


def run(*words):
    assert cli.main(["sample", *map(str, words)]) == 0


def refused(capsys, *words):
    assert cli.main(["sample", *map(str, words)]) == 1
    return capsys.readouterr().err


def test_every_format_gives_the_same_rows(table, tmp_path):
    found = {}
    for kind in ("parquet", "arrow", "csv", "tsv", "jsonl"):
        path = put(table, tmp_path / f"data.{kind}", kind)
        out = tmp_path / f"out-{kind}.parquet"
        run(path, "--weight", "price", "-n", 50, "--seed", 3, "--out", out)
        found[kind] = pq.read_table(out)
    first = found["parquet"]
    assert first.num_rows == 50 and first["id"].to_pylist() == sorted(first["id"].to_pylist())
    for one in found.values():
        assert one["id"].to_pylist() == first["id"].to_pylist()
        assert one[columns.PROBABILITY].to_pylist() == first[columns.PROBABILITY].to_pylist()
    p = law.inclusion_probabilities(np.log(table["price"].to_numpy()), 50)[first["id"].to_numpy()]
    assert first[columns.PROBABILITY].to_numpy() == pytest.approx(p, rel=1e-12)
    assert first[columns.WEIGHT].to_numpy() == pytest.approx(1 / p, rel=1e-12)


def test_the_same_bytes_whoever_does_it(table, tmp_path, monkeypatch):
    """Workers, what stays in memory, and how the files are read do not matter; the seed does."""
    paths = [put(table.slice(k, 500), tmp_path / f"{k:05}.parquet", "parquet") for k in range(0, N, 500)]
    common = ("--weight", "price", "-n", 200)
    run(*paths, *common, "--jobs", 1, "--out", tmp_path / "a.parquet")
    run(tmp_path / "0*.parquet", *common, "--jobs", 3, "--memory", 0.000001, "--out", tmp_path / "b.parquet")
    monkeypatch.setattr(tables, "BATCH", 77)
    run(*paths, *common, "--jobs", 2, "--out", tmp_path / "c.parquet")
    run(*paths, *common, "--seed", 1, "--out", tmp_path / "d.parquet")
    a, b, c, d = ((tmp_path / f"{name}.parquet").read_bytes() for name in "abcd")
    assert a == b == c != d


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [64, 131072])
def test_the_law_over_files(tmp_path, monkeypatch, chunk):
    """Subsets over files of one row and of several, some without weight; through all stages."""
    monkeypatch.setattr(stages, "CHUNK", chunk)
    weights = [0.5, 3.0, 0.0, 1.0, 8.0, 2.0]
    cuts = [(0, 1), (1, 4), (4, 6)]
    paths = [put(pa.table({"w": weights[a:b]}), tmp_path / f"{a}.arrow", "arrow") for a, b in cuts]
    parts = [piece for path in paths for piece in tables.pieces_of(path)]
    options = stages.Options(tables.Select("w"))
    hits, runs = {}, 800

    for seed in range(runs):
        found = pieces.sample(parts, options, 2, seed, at_once)
        hits[tuple(found.table["w"].to_pylist())] = hits.get(tuple(found.table["w"].to_pylist()), 0) + 1
    positive = [w for w in weights if w]
    expected = law.enumerate_law(positive, 2)
    from scipy.stats import chisquare

    observed = [hits.get(tuple(positive[i] for i in s), 0) for s in expected]
    assert sum(observed) == runs
    assert chisquare(observed, np.array(list(expected.values())) * runs).pvalue > 1e-3


def test_bad_rows(table, tmp_path, capsys):
    spoiled = table["price"].to_pylist()
    spoiled[1200], spoiled[1300], spoiled[1400] = None, -2.0, math.inf
    path = put(table.set_column(1, "price", pa.array(spoiled)), tmp_path / "bad.parquet", "parquet")
    out = tmp_path / "out.parquet"
    said = refused(capsys, path, "--weight", "price", "-n", 5, "--out", out)
    assert "bad.parquet, row 1200 (counted from 0): price is missing or not a number" in said and "--bad skip" in said
    for how, memory in (("skip", 1.0), ("zero", 0.000001)):
        run(
            path,
            "--weight",
            "price",
            "-n",
            2997,
            "--bad",
            how,
            "--memory",
            memory,
            "--out",
            tmp_path / f"{how}.parquet",
        )
        assert "3 bad rows passed over" in capsys.readouterr().err
        kept = pq.read_table(tmp_path / f"{how}.parquet")["id"].to_pylist()
        assert len(kept) == 2997 and not {1200, 1300, 1400} & set(kept)


def test_interrupted_and_resumed(table, tmp_path, capsys, monkeypatch):
    """Nothing half-written; the second time reads only what is missing, and the result is that of one go."""
    paths = [put(table.slice(k, 1000), tmp_path / f"{k:05}.csv", "csv") for k in (0, 1000, 2000)]
    words = (*paths, "--weight", "price", "-n", 100, "--jobs", 1)
    run(*words, "--out", tmp_path / "whole.parquet")
    survey, done = stages.survey, []

    def failing(piece, *args, **kwargs):
        if piece.path == paths[2] and not fixed:
            raise RecollectError("the disk is gone")
        done.append(piece.path)
        return survey(piece, *args, **kwargs)

    monkeypatch.setattr(stages, "survey", failing)
    out, fixed = tmp_path / "out.parquet", False
    assert "the disk is gone" in refused(capsys, *words, "--out", out)
    assert not out.exists() and done == paths[:2]
    assert "--resume continues it" in refused(capsys, *words, "--out", out)
    assert "n: was 100, is 99" in refused(capsys, *paths, "--weight", "price", "-n", 99, "--resume", "--out", out)
    fixed = True
    done.clear()
    run(*words, "--resume", "--out", out)
    assert done == paths[2:]
    assert out.read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    assert not (tmp_path / "out.parquet.parts").exists()
    assert "exists already" in refused(capsys, *words, "--out", out)


def test_one_process_at_a_time(table, tmp_path, capsys, monkeypatch):
    """A sample that is being drawn is in use; one killed after it was written leaves nothing to redo."""
    from recollect.cli.sample_parts import Parts
    from recollect.store.lock import Lock

    path, out = put(table, tmp_path / "data.csv", "csv"), tmp_path / "out.parquet"
    lock = Lock(tmp_path, name="out.parquet.lock")
    assert f"{out} is in use by" in refused(capsys, path, "--uniform", "-n", 5, "--out", out)
    lock.release()

    def killed(self):
        assert out.exists()  # parts go after the sample is there
        raise RecollectError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(Parts, "remove", killed)
        assert "killed" in refused(capsys, path, "--uniform", "-n", 5, "--out", out)
    assert pq.read_table(out).num_rows == 5 and not (tmp_path / "out.parquet.lock").exists()


def test_what_a_new_user_tries(table, tmp_path, capsys):
    """Packed text, files named twice, nothing to sample, columns that cannot be added up, files that differ."""
    import gzip

    path = put(table, tmp_path / "a.csv", "csv")
    packed = tmp_path / "a.CSV.gz"
    packed.write_bytes(gzip.compress((tmp_path / "a.csv").read_bytes()))
    for name in (path, packed):
        run(name, "--weight", "price", "-n", 7)
    first, second = capsys.readouterr().out.split("id,price,")[1:]
    assert first == second
    link = tmp_path / "link.csv"
    link.symlink_to(path)
    assert "named twice" in refused(capsys, path, link, "--uniform", "-n", 5)
    (tmp_path / "x.parquet.gz").touch()
    assert "compression of their own" in refused(capsys, tmp_path / "x.parquet.gz", "--uniform", "-n", 5)
    assert "without .gz" in refused(capsys, path, "--uniform", "-n", 5, "--out", tmp_path / "x.csv.gz")
    none = tmp_path / "none.csv"
    run(path, "--weight", "price", "-n", 5, "--where", "id > 1000000", "--total", "paid", "--out", none)
    assert "0 to 0" in capsys.readouterr().out
    assert pa_csv.read_csv(none).schema.names[:2] == ["id", "price"]
    (tmp_path / "header.csv").write_text("id,price\n")
    run(tmp_path / "header.csv", "--weight", "price", "-n", 5, "--out", tmp_path / "header.parquet")
    assert pq.read_table(tmp_path / "header.parquet").schema.names[:2] == ["id", "price"]
    assert "'region' holds string" in refused(capsys, path, "--uniform", "-n", 5, "--total", "region")
    assert "no column 'nix'" in refused(capsys, path, "--uniform", "-n", 5, "--total", "paid", "--by", "nix")
    other = put(pa.table({"id": ["x"] * 9, "price": np.ones(9)}), tmp_path / "other.parquet", "parquet")
    assert "differ in the type" in refused(capsys, path, other, "--uniform", "-n", N + 9, "--columns", "id,price")


def test_hard_links_are_one_file(table, tmp_path, capsys):
    path, link = put(table, tmp_path / "a.csv", "csv"), tmp_path / "b.csv"
    link.hardlink_to(path)
    assert "b.csv: named twice, before as" in refused(capsys, path, link, "--uniform", "-n", 5)
    assert "a.csv: named twice, before as" in refused(capsys, path, path, "--uniform", "-n", 5)


def test_a_column_that_changes_its_type(tmp_path, capsys, monkeypatch):
    """Numbers in its first rows, then words: it comes out as it is written, as text where a type is needed."""
    path, rows = tmp_path / "mixed.csv", 200_000
    path.write_text("id,code\n" + "".join(f"{k},{k if k < rows - 5 else 'A'}\n" for k in range(rows)))
    monkeypatch.setattr(text, "TEXT_BLOCK", 1 << 16)
    run(path, "--uniform", "-n", rows, "--out", tmp_path / "out.csv")
    drawn = [line.rsplit(",", 2)[0] for line in (tmp_path / "out.csv").read_text().splitlines()]
    assert drawn == path.read_text().splitlines()
    run(path, "--uniform", "-n", rows, "--out", tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet")["code"].to_pylist()[-6:] == [str(rows - 6), *"AAAAA"]
    assert "invalid value 'A'" in refused(capsys, path, "--weight", "code", "-n", 5)
    assert "invalid value 'A'" in refused(capsys, path, "--uniform", "--where", "code > 5", "-n", 5)


@pytest.mark.parametrize("block", [1 << 12, 1 << 22])  # of a file of 100 kB: its types show in its beginning, or in all
@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "-"])
def test_json_lines_of_mixed_types_can_be_left_out(tmp_path, capsys, monkeypatch, kind, block):
    """A column that is now a number, now a word or a list, at once or later on; also packed, and standard input."""
    rows = [{"id": k, "w": 1.0 + k % 7, "x": [1, "a", [2]][k % 3], "y": k if k < 2000 else "b"} for k in range(3000)]
    path, words = tmp_path / f"mixed.{kind}", ["--weight", "w", "--where", "w > 2", "-n", 50]
    content = "".join(json.dumps(row) + "\n" for row in rows).encode().rstrip()
    packed = gzip.compress(content[:40_000]) + gzip.compress(content[40_000:])  # of two members
    path.write_bytes(packed if kind == "jsonl.gz" else content)
    monkeypatch.setattr(text, "TEXT_BLOCK", block)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    files = ["-", "--format", "jsonl"] if kind == "-" else [path]
    run(*files, *words, "--columns", "id", "--out", tmp_path / "out.jsonl")
    drawn = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(drawn) == 50 and all(rows[row["id"]]["w"] > 2 for row in drawn)
    if kind != "-":
        said = refused(capsys, *files, *words)
        assert "Column(/x) changed from number to string" in said and "--columns leaves out one that changes" in said
        assert "Column(/x) changed from number to string" in refused(capsys, *files, *words, "--columns", "id,x")
        assert "no column 'z'; there are id, w, x, y" in refused(capsys, *files, *words, "--columns", "id,z")
        run(*files, "--uniform", "-n", 3000, "--columns", "w", "--out", tmp_path / "all.parquet")
        assert pq.read_table(tmp_path / "all.parquet")["w"].to_pylist() == [row["w"] for row in rows]
        (tmp_path / "cut.jsonl").write_text('{"w": 1}\n{"w": \n')
        assert "JSON parse error" in refused(capsys, tmp_path / "cut.jsonl", *words, "--columns", "w")


def test_conditions(table, tmp_path):
    path = put(table, tmp_path / "data.parquet", "parquet")
    where = "region == north and price >= 1"
    run(path, "--weight", "price", "-n", 30, "--where", where, "--out", tmp_path / "out.csv")
    found = pa_csv.read_csv(tmp_path / "out.csv")
    assert found.num_rows == 30
    assert set(found["region"].to_pylist()) == {"north"} and min(found["price"].to_pylist()) >= 1
    assert conditions.conditions("a=1 and b != 'x y'") == (("a", "==", "1"), ("b", "!=", "x y"))
    with pytest.raises(RecollectError, match="COLUMN OP VALUE"):
        conditions.conditions("price ~ 3")


def test_totals(table, tmp_path, capsys):
    path = put(table, tmp_path / "data.parquet", "parquet")
    run(path, "--weight", "price", "-n", 400, "--total", "paid", "--by", "region")
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in lines] == ["region", "north", "south", "all"]
    numbers = {line[0]: [float(x.replace(",", "")) for x in (line[2], line[4], line[6])] for line in lines[1:]}
    paid, region = table["paid"].to_numpy(), np.array(table["region"].to_pylist())
    for name, (total, low, high) in numbers.items():
        true = paid.sum() if name == "all" else paid[region == name].sum()
        assert low < true < high and low < total < high
    assert "--columns leaves out paid" in refused(
        capsys, path, "--weight", "price", "-n", 4, "--columns", "id", "--total", "paid"
    )


def test_prescribed_probabilities(table, tmp_path):
    """--inclusion gives the probabilities of the column, --pps those in proportion to it, both exactly."""
    price = table["price"].to_numpy()
    pi = 60 * price / price.sum()
    path = put(table.append_column("pi", pa.array(pi)), tmp_path / "data.parquet", "parquet")
    run(path, "--inclusion", "pi", "--out", tmp_path / "a.parquet")
    found = pq.read_table(tmp_path / "a.parquet")
    assert found.num_rows == 60
    assert found[columns.PROBABILITY].to_numpy() == pytest.approx(pi[found["id"].to_numpy()], rel=1e-9)
    run(path, "--pps", "price", "-n", 1000, "--out", tmp_path / "b.parquet")
    found = pq.read_table(tmp_path / "b.parquet")
    p, w = found[columns.PROBABILITY].to_numpy(), found["price"].to_numpy()
    assert found.num_rows == 1000 and (p == 1).sum() > 10
    assert np.ptp((p / w)[p < 1]) < 1e-9 * (p / w)[p < 1].max()


def test_uniform_and_all(table, tmp_path):
    path = put(table, tmp_path / "data.arrow", "arrow")
    run(path, "--uniform", "-n", 300, "--columns", "id", "--out", tmp_path / "a.parquet")
    found = pq.read_table(tmp_path / "a.parquet")
    assert found.schema.names == ["id", columns.PROBABILITY, columns.WEIGHT]
    assert found[columns.PROBABILITY].to_numpy() == pytest.approx(0.1, rel=1e-12)
    run(path, "--weight", "price", "-n", N + 5, "--out", tmp_path / "b.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "b.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == list(range(N)) and {row[columns.PROBABILITY] for row in rows} == {1.0}


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_standard_input(table, tmp_path, monkeypatch, capsys, kind):
    path = put(table, tmp_path / f"data.{kind}", kind)
    stream = io.TextIOWrapper(io.BytesIO((tmp_path / f"data.{kind}").read_bytes()))
    monkeypatch.setattr(sys, "stdin", stream)
    run("-", "--format", kind, "--weight", "price", "-n", 20, "--out", tmp_path / "out.parquet")
    r = Reservoir(20, seed=0)
    r.extend(table, weight="price")
    found = pq.read_table(tmp_path / "out.parquet")
    assert found["id"].to_pylist() == [row["id"] for row in r.items]
    assert found[columns.PROBABILITY].to_numpy() == pytest.approx(r.inclusion_probabilities(), rel=1e-12)
    assert "--format is one of csv" in refused(capsys, "-", "--weight", "price", "-n", 20)
    assert path


def test_wrong_arguments(table, tmp_path, capsys):
    path = put(table, tmp_path / "data.parquet", "parquet")
    for words, said in (
        ((path, "-n", 5), "one of --weight"),
        ((path, "--weight", "price"), "-n says how many"),
        ((path, "--weight", "cost", "-n", 5), "no column 'cost'; there are id, price"),
        ((path, "--weight", "region", "-n", 5), "'region' holds string, not numbers"),
        ((tmp_path / "no.parquet", "--uniform", "-n", 5), "no such file"),
        ((tmp_path, "--uniform", "-n", 5), "a folder"),
        *[
            ((path, "--uniform", "-n", 5, "--format", "csv", "--out", tmp_path / name), "name it .csv, .tsv, .jsonl,")
            for name in ("x.what", "noext")
        ],
        ((path, "--uniform", "-n", 5, "--on", "mars"), "local, ray and ray://"),
        ((path, "--pps", "price", "-n", 9000), "only 3000 rows"),
    ):
        assert said in refused(capsys, *words)
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 no")
    assert "broken.parquet" in refused(capsys, tmp_path / "broken.parquet", "--uniform", "-n", 5)


def test_frames(table):
    """pyarrow, pandas, Polars, lazy and not: the same rows as from arrays; a bad row leaves all as it was."""
    expected = Reservoir(16, seed=1)
    expected.extend(range(N), table["price"].to_numpy())
    frames = [table, table.to_batches()[0]]
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    frames += [pandas.DataFrame(table.to_pydict()), polars.from_arrow(table), polars.from_arrow(table).lazy()]
    for frame in frames:
        r = Reservoir(16, seed=1)
        r.extend(frame, weight="price")
        assert [row["id"] for row in r.items] == expected.items, type(frame)
        assert r.items[0] == table.slice(expected.items[0], 1).to_pylist()[0]
    before = r.items
    with pytest.raises(ValueError, match="item 3001 of the stream: weight is -1"):
        r.extend(pa.table({"price": [1.0, -1.0]}), weight="price")
    assert r.items == before and r.seen == N
    with pytest.raises(KeyError, match="no column 'cost'"):
        r.extend(table, weight="cost")
    with pytest.raises(TypeError, match="list is none"):
        r.extend([1, 2], weight="price")


def test_duckdb(table):
    """A result of DuckDB, batch by batch: it speaks Arrow's C stream interface."""
    duckdb = pytest.importorskip("duckdb")
    query = duckdb.sql("select id, price * 2 as w from sold where price > 1", connection=connected(duckdb, table))
    r = Reservoir(16, seed=1)
    r.extend(query, weight="w")
    assert r.seen == int((table["price"].to_numpy() > 1).sum())


def connected(duckdb, table):
    connection = duckdb.connect()
    connection.register("sold", table)
    return connection


@pytest.mark.slow
@pytest.mark.parametrize("order", ["mixed", "misleading"])
def test_large_pieces_are_counted_while_they_are_surveyed(tmp_path, monkeypatch, order):
    """At a θ guessed from their first rows; where these mislead they are counted again, and the law is the same."""
    monkeypatch.setattr(stages, "CHUNK", 64)
    monkeypatch.setattr(tables, "BATCH", 64)
    monkeypatch.setattr(stages, "PILOT", 64)
    rng = np.random.default_rng(5)
    w = rng.lognormal(0, 1.5, 2000)
    if order == "misleading":
        w[np.arange(2000) % 700 < 64] *= 1e-4
    path = put(pa.table({"w": w}), tmp_path / "w.parquet", "parquet")
    parts, options, done = tables.pieces_of(path, rows=700), stages.Options(tables.Select("w")), []
    p = law.inclusion_probabilities(np.log(w), 40)
    hits, runs = np.zeros(2000), 400
    for seed in range(runs):
        found = pieces.sample(parts, options, 40, seed, at_once, say=lambda name, at, of: done.append(name))
        rows = np.flatnonzero(np.isin(w, found.table["w"].to_numpy()))
        assert found.probabilities == pytest.approx(p[rows], rel=1e-11)
        hits[rows] += 1
    assert "pilot" in done and ("count-1" in done) == (order == "misleading")
    z = (hits - runs * p) / np.sqrt(runs * p * (1 - p))
    assert hits.sum() == 40 * runs and abs(np.sum(z**2) - 2000) < 6 * math.sqrt(2 * 2000)


@pytest.mark.slow
def test_rows_drawn_while_weights_are_at_hand(tmp_path, monkeypatch):
    """The law of subsets where blocks draw beforehand, also where too few of those rows are different."""
    monkeypatch.setattr(scans, "RISK", math.inf)
    monkeypatch.setattr(pieces, "LEAST_BLOCK", 2)
    monkeypatch.setattr(stages, "CHUNK", 4)
    weights = [0.5, 3.0, 0.0, 1.0, 4.0, 2.0, 2.0]
    parts = [tables.Piece(put(pa.table({"w": weights}), tmp_path / "w.arrow", "arrow"), "arrow")]
    options, hits, runs, enough = stages.Options(tables.Select("w")), {}, 1000, [0, 0]
    for seed in range(runs):
        cache = scans.Cache(1 << 20)
        found = pieces.sample(parts, options, 3, seed, at_once, cache=cache)
        rows = tuple(found.table["w"].to_pylist())
        hits[rows] = hits.get(rows, 0) + 1
        for block in (block for scan in cache.known[parts[0]].scans for block in scan.blocks):
            assert len(block.places) and block.kept is None
            enough[block.rows(3) is not None] += 1
    assert min(enough) > 100  # both happen: all three found beforehand, and weights looked at again
    expected = {}
    positive = [w for w in weights if w]
    for s, p in law.enumerate_law(positive, 3).items():
        rows = tuple(positive[i] for i in s)
        expected[rows] = expected.get(rows, 0.0) + p
    from scipy.stats import chisquare

    assert sum(hits.values()) == runs and set(hits) <= set(expected)
    observed = [hits.get(rows, 0) for rows in expected]
    assert chisquare(observed, np.array(list(expected.values())) * runs).pvalue > 1e-3


@pytest.mark.slow
def test_sparse_samples_of_large_pieces(tmp_path, monkeypatch):
    """The same bits with and without memory for what was counted, for any number of workers; the right frequencies."""
    monkeypatch.setattr(stages, "CHUNK", 1024)
    monkeypatch.setattr(tables, "BATCH", 1024)
    rng = np.random.default_rng(8)
    w = rng.lognormal(0, 1, 40_000)
    w[17_000] = 5000.0  # a block whose weights are kept
    path = put(pa.table({"w": w, "id": np.arange(len(w))}), tmp_path / "w.parquet", "parquet")
    parts, options = tables.pieces_of(path, rows=13_000), stages.Options(tables.Select("w"))
    p = law.inclusion_probabilities(np.log(w), 12)
    heavy, largest, runs = 0, 0.0, 80
    for seed in range(runs):
        cache = scans.Cache(1 << 30)
        found = pieces.sample(parts, options, 12, seed, at_once, cache=cache)
        for little in (None, scans.Cache(0)) if seed < 10 else ():
            assert pieces.sample(parts, options, 12, seed, at_once, cache=little).table.equals(found.table)
        kept = sum(scan.kept_bytes for known in cache.known.values() for scan in known.scans)
        assert 0 < kept <= 8 * 1024 and not cache.weights
        ids = found.table["id"].to_numpy()
        assert len(set(ids)) == 12 and (w[ids] == found.table["w"].to_numpy()).all()
        assert found.probabilities == pytest.approx(p[ids], rel=1e-11)
        heavy += 17_000 in ids
        largest += float(np.mean(ids >= 20_000)) / runs
    assert abs(heavy - runs * p[17_000]) < 4 * math.sqrt(runs * p[17_000] * (1 - p[17_000]))
    assert abs(largest - p[20_000:].sum() / 12) < 4 * 0.5 / math.sqrt(12 * runs)


def at_once(work, *args, **kwargs):
    from concurrent.futures import Future

    future = Future()
    future.set_result(work(*args, **kwargs))
    return future


# -- found by trying to break it


def test_a_mended_command_is_not_taken_for_an_interrupted_one(table, tmp_path, capsys):
    """After a word that was wrong or a bad row, the right command runs: what it left would be of no use."""
    path, out = put(table, tmp_path / "data.parquet", "parquet"), tmp_path / "out.parquet"
    prices = [None if k == 7 else 1.0 for k in range(N)]
    spoiled = put(table.set_column(1, "price", pa.array(prices)), tmp_path / "bad.parquet", "parquet")
    assert "no column 'nix'" in refused(capsys, path, "--uniform", "--where", "nix > 1", "-n", 5, "--out", out)
    assert "row 7" in refused(capsys, path, spoiled, "--weight", "price", "-n", 5, "--jobs", 1, "--out", out)
    assert not (tmp_path / "out.parquet.parts").exists()
    run(path, spoiled, "--weight", "price", "-n", 5, "--bad", "skip", "--out", out)
    assert pq.read_table(out).num_rows == 5


def interrupted(tmp_path, table, monkeypatch):
    """A sample of three files of which one was not drawn from; the words of it, and its folder of parts."""
    paths = [put(table.slice(k, 1000), tmp_path / f"{k:05}.parquet", "parquet") for k in (0, 1000, 2000)]
    words = (*paths, "--weight", "price", "-n", 30, "--jobs", 1, "--out", tmp_path / "out.parquet")
    draw = stages.draw

    def failing(piece, *args, **kwargs):
        if piece.path == paths[2]:
            raise KeyboardInterrupt
        return draw(piece, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(stages, "draw", failing)
        assert cli.main(["sample", *map(str, words)]) == 130
    return words, tmp_path / "out.parquet.parts"


def test_ctrl_c_says_how_it_goes_on(table, tmp_path, capsys, monkeypatch):
    _, parts = interrupted(tmp_path, table, monkeypatch)
    said = capsys.readouterr().err
    assert f"what was done is in {parts}; the same command with --resume does the rest" in said


@pytest.mark.parametrize("how", ["cut", "flipped", "empty", "an array", "of something else", "a folder", "a link"])
def test_damaged_parts_are_named(table, tmp_path, capsys, monkeypatch, how):
    words, parts = interrupted(tmp_path, table, monkeypatch)
    part = parts / "survey-0.npz"
    content = part.read_bytes()
    part.unlink()
    if how == "a folder":
        part.mkdir()
    elif how == "a link":
        part.symlink_to(parts / "survey-1.npz")
    elif how == "an array":
        with open(part, "wb") as file:
            np.save(file, np.zeros(3))
    elif how == "of something else":
        np.savez(part, x=np.zeros(3))
    else:
        middle = len(content) // 2
        flipped = content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :]
        part.write_bytes({"cut": content[:-5], "flipped": flipped, "empty": b""}[how])
    assert "survey-0.npz is damaged: remove it" in refused(capsys, *words, "--resume")


def test_only_what_is_ours_goes_with_the_parts(table, tmp_path, monkeypatch):
    """Also what a kill left of a file that was being written; a file of the user's stays, whatever it is called."""
    words, parts = interrupted(tmp_path, table, monkeypatch)
    (parts / ".survey-1.npz.0a1b2c3d.tmp").write_bytes(b"half")
    (parts / "my-data.npz").write_bytes(b"mine")
    run(*words, "--resume")
    assert [path.name for path in parts.iterdir()] == ["my-data.npz"]


def test_killed_before_the_plan_was_written(table, tmp_path, capsys):
    path, out, parts = (
        put(table, tmp_path / "data.csv", "csv"),
        tmp_path / "out.parquet",
        tmp_path / "out.parquet.parts",
    )
    parts.mkdir()
    (parts / ".plan.json.0a1b2c3d.tmp").write_bytes(b"{")
    run(path, "--uniform", "-n", 5, "--out", out, "--resume")
    assert out.exists() and not parts.exists()
    out.unlink()
    (tmp_path / "photos").mkdir()
    parts.symlink_to(tmp_path / "photos")
    assert "it is a link" in refused(capsys, path, "--uniform", "-n", 5, "--out", out, "--resume")
    assert list((tmp_path / "photos").iterdir()) == []


def test_a_file_that_changes_while_it_is_read(table, tmp_path, capsys, monkeypatch):
    """Weights of before and rows of after are no sample of anything."""
    path, out = put(table, tmp_path / "data.csv", "csv"), tmp_path / "out.parquet"
    survey = stages.survey

    def changing(piece, *args, **kwargs):
        found = survey(piece, *args, **kwargs)
        put(table.slice(1), tmp_path / "data.csv", "csv")
        return found

    monkeypatch.setattr(stages, "survey", changing)
    for more in ((), ("--out", out)):
        assert "data.csv changed while it was read" in refused(capsys, path, "--weight", "price", "-n", 9, *more)
    assert not out.exists() and not (tmp_path / "out.parquet.parts").exists()


def test_columns_that_a_sample_cannot_have(table, tmp_path, capsys):
    """Names that would be there twice, types that a text cannot hold: said before anything is read."""
    path, first = put(table, tmp_path / "data.parquet", "parquet"), tmp_path / "first.parquet"
    run(path, "--weight", "price", "-n", 50, "--out", first)
    assert "'inclusion_probability' already" in refused(capsys, first, "--weight", "price", "-n", 5)
    run(first, "--weight", "price", "-n", 5, "--columns", "id,price", "--out", tmp_path / "second.parquet")
    assert pq.read_table(tmp_path / "second.parquet").schema.names[:2] == ["id", "price"]
    for chosen in ("", "id,id"):
        assert "each column once" in refused(capsys, path, "--uniform", "-n", 5, "--columns", chosen)
    twice = pa.Table.from_arrays([pa.array([1.0, 2.0]), pa.array([1.0, 2.0])], names=["w", "w"])
    pq.write_table(twice, tmp_path / "twice.parquet")
    assert "two columns 'w'" in refused(capsys, tmp_path / "twice.parquet", "--weight", "w", "-n", 1)
    odd = pa.table({"w": [1.0, 2.0], "list": [[1], [2, 3]], "bytes": [b"x", b"\xff"], "n": [math.nan, math.inf]})
    pq.write_table(odd, tmp_path / "odd.parquet")
    words = (tmp_path / "odd.parquet", "--weight", "w", "-n", 2)
    assert "'list' holds list" in refused(capsys, *words)
    assert "'bytes' holds binary" in refused(capsys, *words, "--out", tmp_path / "odd.jsonl")
    run(*words, "--columns", "w,list,n", "--out", tmp_path / "odd.jsonl")
    rows = [json.loads(line, parse_constant=pytest.fail) for line in (tmp_path / "odd.jsonl").read_text().splitlines()]
    assert [(row["list"], row["n"]) for row in rows] == [([1], None), ([2, 3], "inf")]


def test_conditions_with_blanks(tmp_path, capsys):
    wanted = (("sold in", "==", "north and south"), ("b", ">", "1"))
    assert conditions.conditions(""" 'sold in' == "north and south" and b>1 """) == wanted
    for wrong in ("a == 1 and", "and a == 1", "a b > 1", " "):
        with pytest.raises(RecollectError, match="COLUMN OP VALUE"):
            conditions.conditions(wrong)
    rows = {"sold in": ["north and south", "x", "north and south"], "b": [1, 2, 3]}
    path = put(pa.table(rows), tmp_path / "data.parquet", "parquet")
    run(path, "--uniform", "-n", 5, "--where", "'sold in' == 'north and south'")
    assert capsys.readouterr().out.count("north and south") == 2


def test_a_group_may_be_called_all(tmp_path, capsys):
    groups = {"x": [1.0, 2.0, 4.0, 8.0], "g": ["all", "b", None, "None"]}
    path = put(pa.table(groups), tmp_path / "data.parquet", "parquet")
    run(path, "--uniform", "-n", 4, "--total", "x", "--by", "g")
    lines = [line.split()[:3] for line in capsys.readouterr().out.splitlines()[1:]]
    assert lines == [
        ["(missing)", "1", "4"],
        ["None", "1", "8"],
        ["all", "1", "1"],
        ["b", "1", "2"],
        ["(all)", "4", "15"],
    ]


@pytest.mark.parametrize("scale", [5e-324, 1.0, 3e307])
def test_sizes_of_any_magnitude(tmp_path, scale):
    """Their sum may be more than a float64 can hold, or each of them hardly anything."""
    sizes = np.array([1.0, 1.0, 2.0, 2.0, 5.0]) * scale
    path = put(pa.table({"id": range(5), "size": sizes}), tmp_path / "data.parquet", "parquet")
    run(path, "--pps", "size", "-n", 3, "--out", tmp_path / "out.parquet")
    found = pq.read_table(tmp_path / "out.parquet")
    p = np.array([1 / 3, 1 / 3, 2 / 3, 2 / 3, 1.0])[found["id"].to_numpy()]
    assert found.num_rows == 3 and found[columns.PROBABILITY].to_numpy() == pytest.approx(p, rel=1e-12)


def test_lines_within_values(tmp_path):
    """Of a file of more than one block, which may end within a value."""
    with open(tmp_path / "data.csv", "w", encoding="utf-8") as file:
        file.write("id,w,text\n")
        file.writelines(f'{k},{1 + k % 3},"{"x" * (k % 997)}\n3,4,5\n"\n' for k in range(10_000))
    run(tmp_path / "data.csv", "--weight", "w", "-n", 10_000, "--columns", "id,w", "--out", tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet")["id"].to_pylist() == list(range(10_000))


def test_files_without_rows(table, tmp_path, capsys):
    """JSON lines that are none, Arrow without a batch: no rows, and what is known of the columns stays known."""
    (tmp_path / "empty.jsonl").touch()
    path = put(table, tmp_path / "data.jsonl", "jsonl")
    run(tmp_path / "empty.jsonl", path, "--weight", "price", "-n", 5, "--out", tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet").num_rows == 5
    with pa.ipc.new_file(tmp_path / "none.arrow", table.schema):
        pass
    run(tmp_path / "none.arrow", "--weight", "price", "-n", 5, "--total", "paid", "--out", tmp_path / "none.parquet")
    assert pq.read_table(tmp_path / "none.parquet").schema.names[:4] == table.schema.names


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--weight", "b", "--format", "csv"), "standard input: no column 'b'; there are a"),
        (("--weight", "a", "--format", "what"), "no format 'what'"),
        (("--weight", "a", "--format", "csv", "--total", "z"), "standard input: no column 'z'"),
    ],
)
def test_standard_input_is_looked_at_first(monkeypatch, capsys, words, said):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\n1\n2\n")))
    assert said in refused(capsys, "-", "-n", 1, *words)


def test_standard_input_without_rows_has_its_columns(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a,b\n")))
    run("-", "--format", "csv", "--weight", "a", "-n", 1)
    assert capsys.readouterr().out.startswith("a,b,inclusion_probability,")


def test_certain_rows_are_rows_of_positive_weight(tmp_path, capsys):
    path = put(pa.table({"pi": [1.0, 1.0, 0.5, 0.5, 0.0]}), tmp_path / "data.parquet", "parquet")
    run(path, "--inclusion", "pi")
    assert "3 of 4 rows of positive weight, 5 in all" in capsys.readouterr().err


@pytest.mark.parametrize("memory", [0, 1 << 20])
@pytest.mark.parametrize("stage", ["survey", "count-0", "draw"])
def test_workers_stop_within_a_piece(table, tmp_path, monkeypatch, stage, memory):
    """As after Ctrl-C: whoever is told of batches ends the reading by an error, at the first one in any stage."""
    monkeypatch.setattr(text, "TEXT_BLOCK", 1 << 12)
    path, stages_begun, calls = put(table, tmp_path / "data.csv", "csv"), [], []

    def tell(rows):
        calls.append(stages_begun[-1])
        if stages_begun[-1] == stage:
            raise RecollectError("stopped")

    with pytest.raises(RecollectError, match="stopped"):
        pieces.sample(
            tables.pieces_of(path),
            stages.Options(tables.Select("price")),
            300,
            0,
            at_once,
            cache=scans.Cache(memory),
            tell=tell,
            say=lambda name, done, of: stages_begun.append(name),
        )
    assert calls.count(stage) == 1
