"""``recollect sample`` beside reading, beside itself with two workers, and beside Apache DataSketches, in one run.

    python benchmarks/sample.py --rows 32000000 --out benchmarks/sample.json

Reading: pyarrow reads the weight column of the same Parquet files and does nothing with it. Times are the processor
time of the process, which other work on the machine does not change much; those with two workers are by the clock.
Rounds take turns and the best of each is kept. DataSketches: one call an item, which is all that its package offers.
"""

import argparse
import concurrent.futures
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from recollect.reservoir import pieces, tables

FILES = 4


def write(folder: Path, rows: int) -> dict[str, list[str]]:
    """Files of prices alone, of prices beside an id, and a CSV of fewer rows."""
    rng = np.random.default_rng(0)
    found: dict[str, list[str]] = {"price": [], "price and id": [], "csv": []}
    for k in range(FILES):
        price = rng.lognormal(3.0, 1.0, rows // FILES)
        for kind, columns in (
            ("price", {"price": price}),
            ("price and id", {"price": price, "id": np.arange(len(price))}),
        ):
            path = folder / f"{kind.replace(' ', '-')}-{k}.parquet"
            pq.write_table(pa.table(columns), path, row_group_size=1 << 20)
            found[kind].append(str(path))
        path = folder / f"price-{k}.csv"
        pa.csv.write_csv(pa.table({"price": price[: len(price) // 8]}), path)
        found["csv"].append(str(path))
    return found


def read(paths: list[str]) -> None:
    """What any sampler must do: the weight column through pyarrow, in batches, on one thread."""
    for path in paths:
        with pq.ParquetFile(path, memory_map=True) as file:
            for _ in file.iter_batches(tables.BATCH, columns=["price"], use_threads=False):
                pass


def sample(paths: list[str], n: int, jobs: int) -> None:
    """All of ``recollect sample`` but for the command line and the output file."""
    parts = [piece for path in paths for piece in tables.pieces_of(path)]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        options = pieces.Options(tables.Select("price"))
        pieces.sample(parts, options, n, 0, pool.submit, cache=pieces.Cache(1 << 30))


def best(runs: dict[str, Callable[[], None]], clock: Callable[[], float], rounds: int) -> dict[str, float]:
    """The least time of each, the rounds taking turns; the first round, which compiles, is not counted."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name, run in runs.items():
            start = clock()
            run()
            times[name].append(clock() - start)
            print(f"  round {turn}, {name}: {times[name][-1]:.2f} s", file=sys.stderr, flush=True)
    return {name: min(taken[1:]) for name, taken in times.items()}


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
    parser.add_argument("--rows", type=int, default=32_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-n", type=int, default=1_000)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as here:
        files = write(Path(here), args.rows)
        runs = {"read": lambda: read(files["price"])}
        for n in (args.n, 10 * args.n):
            runs[f"sample n={n}"] = lambda n=n: sample(files["price"], n, 1)
        runs[f"sample n={args.n}, another column"] = lambda: sample(files["price and id"], args.n, 1)
        processor = best(runs, time.process_time, args.rounds)
        clock = best(
            {
                f"{kind}, {jobs} workers": lambda kind=kind, jobs=jobs: sample(files[kind], args.n, jobs)
                for kind in ("price", "csv")
                for jobs in (1, 2)
            },
            time.perf_counter,
            args.rounds,
        )
    found = {
        "rows": args.rows,
        "nanoseconds_a_row": {name: seconds / args.rows * 1e9 for name, seconds in processor.items()},
        "reading_over_sampling": {name: processor["read"] / s for name, s in processor.items() if name != "read"},
        "two_workers_over_one": {
            kind: clock[f"{kind}, 1 workers"] / clock[f"{kind}, 2 workers"] for kind in ("price", "csv")
        },
        "datasketches_nanoseconds_an_item": sketches(1_000_000, args.n),
    }
    print(json.dumps(found, indent=1))
    if args.out is not None:
        args.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
