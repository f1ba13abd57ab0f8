"""``recollect sample`` beside reading, beside itself with two workers, and beside Apache DataSketches, in one run.

    python benchmarks/sample.py --rows 96000000 --out benchmarks/sample.json

Reading: pyarrow reads the weight column of the same Parquet files, as a table (``read_table``) and in batches that
are thrown away at once (``batches``), on one thread; one worker samples them. Times are the processor time of the
process, which other work on the machine changes less than the clock. Two workers are compared with one by the clock,
which needs an idle machine; beside them is what the machine allows: two processes at once, each of which does all of
one worker's work and shares nothing with the other, over one of them alone. Rounds take turns; a ratio is that of two
times of one round, and the median over rounds is shown with the least and the largest. The load of the machine is
shown as well. DataSketches: one call an item, which is all that its package offers.
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
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from recollect.reservoir import pieces, scans, stages, tables

FILES = 4
BOTH = "read_table, both columns"
KINDS = ("price", "csv")  # of files, for two workers


def write(folder: Path, rows: int) -> dict[str, list[str]]:
    """Files of prices alone, one of prices beside an id, and CSV of fewer rows."""
    rng = np.random.default_rng(0)
    found: dict[str, list[str]] = {"price": [], "price and id": [], "csv": []}
    for k in range(FILES):
        price = rng.lognormal(3.0, 1.0, rows // FILES)
        ways = {"price": {"price": price}} | (
            {} if k else {"price and id": {"price": price, "id": np.arange(len(price))}}
        )
        for kind, columns in ways.items():
            path = folder / f"{kind.replace(' ', '-')}-{k}.parquet"
            pq.write_table(pa.table(columns), path, row_group_size=1 << 20)
            found[kind].append(str(path))
        path = folder / f"price-{k}.csv"
        pa.csv.write_csv(pa.table({"price": price[: len(price) // 8]}), path)
        found["csv"].append(str(path))
    return found


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


def sample(paths: list[str], n: int, jobs: int) -> None:
    """All of ``recollect sample`` but for the command line and the output file."""
    parts = [piece for path in paths for piece in tables.pieces_of(path)]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        options = stages.Options(tables.Select("price"))
        pieces.sample(parts, options, n, 0, pool.submit, cache=scans.Cache(1 << 30))


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

    def __init__(self, paths: list[str], n: int):
        context = multiprocessing.get_context("spawn")
        self.ends = []
        for _ in range(2):
            here, there = context.Pipe()
            context.Process(target=_twin, args=(there, paths, n), daemon=True).start()
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


def _twin(end: Any, paths: list[str], n: int) -> None:
    while end.recv():
        sample(paths, n, 1)
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


def main() -> None:
    """Print the table, and write it where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=96_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("-n", type=int, default=1_000)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if importlib.util.find_spec("datasketches") is None:
        parser.error("DataSketches is measured beside it: pip install datasketches")
    with tempfile.TemporaryDirectory() as here:
        files = write(Path(here), args.rows)
        runs: dict[str, Callable[[], Any]] = {
            "read_table": lambda: read_table(files["price"]),
            "batches": lambda: read_batches(files["price"]),
        }
        for n in (args.n, 10 * args.n):
            runs[f"sample n={n}"] = lambda n=n: sample(files["price"], n, 1)
        other = f"sample n={args.n}, another column"
        runs[other] = lambda: sample(files["price and id"], args.n, 1)
        runs[BOTH] = lambda: read_table(files["price and id"], ["price", "id"])
        processor = in_turns(runs, time.process_time, args.rounds)
        clocks: dict[str, Callable[[], Any]] = {}
        pairs = {kind: Twins(files[kind], args.n) for kind in KINDS}
        for kind, twins in pairs.items():
            for number in (1, 2):
                clocks[f"{kind}, {number}"] = lambda kind=kind, number=number: sample(files[kind], args.n, number)
                clocks[f"{kind}, twins, {number}"] = lambda twins=twins, number=number: twins.run(number)
        clock = in_turns(clocks, time.perf_counter, args.rounds)
        for twins in pairs.values():
            twins.stop()
    sampled = [f"sample n={n}" for n in (args.n, 10 * args.n)]
    sizes = {name: args.rows // FILES if "column" in name else args.rows for name in processor}
    found = {
        "rows": args.rows,
        "rows_with_another_column": args.rows // FILES,
        "rounds": args.rounds,
        "load": os.getloadavg(),
        "nanoseconds_a_row": {name: float(np.median(taken)) / sizes[name] * 1e9 for name, taken in processor.items()},
        "read_table_over_sampling": {name: ratio(processor["read_table"], processor[name]) for name in sampled},
        "batches_over_sampling": {name: ratio(processor["batches"], processor[name]) for name in sampled},
        "read_table_over_sampling, both columns": ratio(processor[BOTH], processor[other]),
        "two_workers_over_one": {k: ratio(clock[f"{k}, 1"], clock[f"{k}, 2"]) for k in KINDS},
        "two_processes_that_share_nothing_over_one": {
            k: [2 * x for x in ratio(clock[f"{k}, twins, 1"], clock[f"{k}, twins, 2"])] for k in KINDS
        },
        "seconds_of_one_worker": {k: float(np.median(clock[f"{k}, 1"])) for k in KINDS},
        "datasketches_nanoseconds_an_item": sketches(1_000_000, args.n),
    }
    print(json.dumps(found, indent=1))
    if args.out is not None:
        args.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
