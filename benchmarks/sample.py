"""``recollect sample`` beside reading, and beside Apache DataSketches, in one run; and one worker beside two.

    python benchmarks/sample.py --out benchmarks/sample.json
    python benchmarks/sample.py --workers parquet --out benchmarks/sample.json

Reading: pyarrow reads the weight column of the same Parquet files, as a table (``read_table``) and in batches that
are thrown away at once (``batches``), on one thread; one worker samples them. Times are the processor time of the
process, which other work on the machine changes less than the clock. DataSketches: one call an item, which is all that
its package offers.

``--workers`` compares two workers with one by the clock instead, which needs an idle machine, on files large enough
for one worker to take seconds. Beside them are two threads over one that read the same columns and throw them away,
and what the machine allows: two processes at once, each of which does all of one worker's work and shares nothing with
the other, over one of them alone. Reading is the bound where two readers gain less than two processes that sample.

Rounds take turns; a ratio is that of two times of one round, and the median over rounds is shown with the least and
the largest. The load of the machine is shown as well. ``--out`` keeps what it has of the other commands.
"""

import argparse
import concurrent.futures
import importlib.util
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from recollect.reservoir import pieces, scans, stages, tables

FILES, SIZES = 4, (1_000, 10_000)
BOTH = "read_table, both columns"


class Kind(NamedTuple):
    """Files that two workers share: how one is written, and what is sampled from them."""

    rows: int  # of all files
    write: Callable[[Path, np.ndarray], None]
    ending: str
    n: int = 1_000
    where: tuple[tuple[str, str, str], ...] = ()


def _parquet(path: Path, price: np.ndarray) -> None:
    pq.write_table(pa.table({"price": price}), path, row_group_size=1 << 20)


def _zstd(path: Path, price: np.ndarray) -> None:
    pq.write_table(pa.table({"price": price.round(2)}), path, row_group_size=1 << 20, compression="zstd")


def _with_shop(path: Path, price: np.ndarray) -> None:
    columns = {"price": price.round(2), "shop": np.arange(len(price)) * 7919 % 50}
    pq.write_table(pa.table(columns), path, row_group_size=1 << 20)


def _csv(path: Path, price: np.ndarray) -> None:
    pa.csv.write_csv(pa.table({"price": price}), path)


def _jsonl(path: Path, price: np.ndarray) -> None:
    path.write_text("".join(f'{{"price": {x!r}}}\n' for x in price.tolist()), encoding="utf-8")


KINDS = {
    "parquet": Kind(512_000_000, _parquet, "parquet"),
    "parquet-10000": Kind(512_000_000, _parquet, "parquet", 10_000),
    "parquet-small": Kind(96_000_000, _parquet, "parquet"),
    "zstd": Kind(384_000_000, _zstd, "parquet"),
    "where": Kind(96_000_000, _with_shop, "parquet", where=(("shop", "<", "25"),)),
    "csv": Kind(24_000_000, _csv, "csv"),
    "jsonl": Kind(8_000_000, _jsonl, "jsonl"),
}


def write(folder: Path, rows: int) -> dict[str, list[str]]:
    """Files of prices alone, and one of prices beside an id."""
    rng = np.random.default_rng(0)
    found: dict[str, list[str]] = {"price": [], "price and id": [str(folder / "price-and-id.parquet")]}
    for k in range(FILES):
        price = rng.lognormal(3.0, 1.0, rows // FILES)
        _parquet(folder / f"price-{k}.parquet", price)
        found["price"].append(str(folder / f"price-{k}.parquet"))
        if not k:
            columns = {"price": price, "id": np.arange(len(price))}
            pq.write_table(pa.table(columns), found["price and id"][0], row_group_size=1 << 20)
    return found


def write_kind(folder: Path, kind: Kind) -> list[str]:
    """Twice as many files, since a text file is one worker's."""
    rng = np.random.default_rng(0)
    paths = [folder / f"{k}.{kind.ending}" for k in range(2 * FILES)]
    for path in paths:
        kind.write(path, rng.lognormal(3.0, 1.0, kind.rows // len(paths)))
    return [str(path) for path in paths]


def read_table(paths: list[str], columns: tuple[str, ...] | list[str] = ("price",)) -> None:
    """The weight column through pyarrow, on one thread."""
    for path in paths:
        pq.read_table(path, columns=list(columns), use_threads=False, memory_map=True)


def read_batches(paths: list[str]) -> None:
    """The same in batches, each thrown away before the next."""
    for path in paths:
        with pq.ParquetFile(path, memory_map=True) as file:
            for _ in file.iter_batches(tables.BATCH, columns=["price"], use_threads=False):
                pass


def sample(paths: list[str], n: int, jobs: int, where: tuple[tuple[str, str, str], ...] = ()) -> None:
    """All of ``recollect sample`` but for the command line and the output file."""
    parts = [piece for path in paths for piece in tables.pieces_of(path)]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        options = stages.Options(tables.Select("price", where))
        pieces.sample(parts, options, n, 0, pool.submit, cache=scans.Cache(1 << 30))


def read(paths: list[str], jobs: int, where: tuple[tuple[str, str, str], ...]) -> None:
    """The columns that ``sample`` looks at, piece by piece in batches that are thrown away, by so many threads."""
    select = tables.Select("price", where)

    def one(piece: tables.Piece) -> None:
        for _ in tables.batches(piece, select.columns, select):
            pass

    parts = [piece for path in paths for piece in tables.pieces_of(path)]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, parts))


Times = dict[str, list[float]]


def in_turns(runs: dict[str, Callable[[], Any]], clock: Callable[[], float], rounds: int) -> Times:
    """The times of each, the rounds taking turns; the first round, which compiles, is not counted."""
    times: Times = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name, run in runs.items():
            start = clock()
            run()
            times[name].append(clock() - start)
            print(f"  round {turn}, {name}: {times[name][-1]:.2f} s", file=sys.stderr, flush=True)
    return {name: taken[1:] for name, taken in times.items()}


class Twins:
    """Two processes, each of which samples the same files with one worker whenever it is told to."""

    def __init__(self, paths: list[str], kind: Kind):
        context = multiprocessing.get_context("spawn")
        self.ends = []
        for _ in range(2):
            here, there = context.Pipe()
            context.Process(target=_twin, args=(there, paths, kind.n, kind.where), daemon=True).start()
            self.ends.append(here)

    def run(self, number: int) -> None:
        """Let so many of them work at once."""
        for end in self.ends[:number]:
            end.send(True)
        for end in self.ends[:number]:
            end.recv()

    def stop(self) -> None:
        """Let them go."""
        for end in self.ends:
            end.send(False)


def _twin(end: Any, paths: list[str], n: int, where: tuple[tuple[str, str, str], ...]) -> None:
    while end.recv():
        sample(paths, n, 1, where)
        end.send(None)


def ratio(above: list[float], below: list[float]) -> list[float]:
    """The median of the ratios of rounds, the least and the largest."""
    each = [a / b for a, b in zip(above, below, strict=True)]
    return [float(np.median(each)), min(each), max(each)]


def sketches(rows: int, n: int) -> dict[str, float]:
    """Nanoseconds an item of DataSketches' VarOpt and EB-PPS, other laws."""
    import datasketches

    weights = np.random.default_rng(0).lognormal(3.0, 1.0, rows).tolist()
    found = {}
    for name, make in (("VarOpt", datasketches.var_opt_sketch), ("EB-PPS", datasketches.ebpps_sketch)):
        sketch = make(n)
        start = time.process_time()
        for k, weight in enumerate(weights):
            sketch.update(k, weight)
        found[name] = (time.process_time() - start) / rows * 1e9
    return found


def beside_reading(rows: int, rounds: int) -> dict[str, Any]:
    """One worker, pyarrow and DataSketches, by processor time."""
    with tempfile.TemporaryDirectory() as here:
        files = write(Path(here), rows)
        runs: dict[str, Callable[[], Any]] = {
            "read_table": lambda: read_table(files["price"]),
            "batches": lambda: read_batches(files["price"]),
        }
        sampled = [f"sample n={n}" for n in SIZES]
        for n, name in zip(SIZES, sampled, strict=True):
            runs[name] = lambda n=n: sample(files["price"], n, 1)
        other = f"sample n={SIZES[0]}, another column"
        runs[other] = lambda: sample(files["price and id"], SIZES[0], 1)
        runs[BOTH] = lambda: read_table(files["price and id"], ["price", "id"])
        taken = in_turns(runs, time.process_time, rounds)
    sizes = {name: rows // FILES if "column" in name else rows for name in taken}
    return {
        "rows": rows,
        "rows_with_another_column": rows // FILES,
        "rounds": rounds,
        "load": os.getloadavg(),
        "nanoseconds_a_row": {name: float(np.median(own)) / sizes[name] * 1e9 for name, own in taken.items()},
        "read_table_over_sampling": {name: ratio(taken["read_table"], taken[name]) for name in sampled},
        "batches_over_sampling": {name: ratio(taken["batches"], taken[name]) for name in sampled},
        "read_table_over_sampling, both columns": ratio(taken[BOTH], taken[other]),
        "datasketches_nanoseconds_an_item": sketches(1_000_000, SIZES[0]),
    }


def two_over_one(kind: Kind, rounds: int) -> dict[str, Any]:
    """Two workers, two readers and two processes over one of each, by the clock."""
    with tempfile.TemporaryDirectory() as here:
        paths = write_kind(Path(here), kind)
        os.sync()  # what was written does not go to the disk meanwhile
        twins = Twins(paths, kind)
        runs: dict[str, Callable[[], Any]] = {}
        for number in (1, 2):
            runs[f"sample {number}"] = lambda number=number: sample(paths, kind.n, number, kind.where)
        for number in (1, 2):
            runs[f"read {number}"] = lambda number=number: read(paths, number, kind.where)
        for number in (1, 2):
            runs[f"twins {number}"] = lambda number=number: twins.run(number)
        taken = in_turns(runs, time.perf_counter, rounds)
        twins.stop()
    return {
        "rows": kind.rows,
        "n": kind.n,
        "rounds": rounds,
        "load": os.getloadavg(),
        "seconds_of_one_worker": float(np.median(taken["sample 1"])),
        "seconds_of_one_reader": float(np.median(taken["read 1"])),
        "two_workers_over_one": ratio(taken["sample 1"], taken["sample 2"]),
        "two_readers_over_one": ratio(taken["read 1"], taken["read 2"]),
        "two_processes_that_share_nothing_over_one": [2 * x for x in ratio(taken["twins 1"], taken["twins 2"])],
    }


def main() -> None:
    """Print what was asked for, and write it where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=96_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--workers", choices=KINDS, help="compare two workers with one on these files instead")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    before = json.loads(args.out.read_text(encoding="utf-8")) if args.out is not None and args.out.exists() else {}
    workers = before.get("workers", {})
    if args.workers is not None:
        workers |= {args.workers: two_over_one(KINDS[args.workers], args.rounds)}
        print(json.dumps(workers[args.workers], indent=1))
        found = before | {"workers": workers}
    else:
        if importlib.util.find_spec("datasketches") is None:
            parser.error("DataSketches is measured beside it: pip install datasketches")
        found = beside_reading(args.rows, args.rounds)
        print(json.dumps(found, indent=1))
        found |= {"workers": workers}
    if args.out is not None:
        args.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
