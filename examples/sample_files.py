"""A weighted sample over several files, each read once, and an estimate of a total with its interval."""

import csv
import tempfile
from pathlib import Path

import numpy as np

from recollect import Reservoir


def write_files(folder, files=4, rows=5_000):
    """Invoices: what was booked, and what an audit would find (mostly the same)."""
    rng = np.random.default_rng(0)
    for k in range(files):
        booked = rng.lognormal(3.0, 1.0, rows)
        found = booked * np.where(rng.random(rows) < 0.1, 0.7, 1.0)
        with open(folder / f"part-{k}.csv", "w", newline="") as file:
            csv.writer(file).writerows(zip(booked.round(4), found.round(4), strict=True))
    return sorted(folder.glob("*.csv"))


def sample(path, seed):
    """Large bookings are more likely to be kept; a row is read, weighed and mostly forgotten."""
    reservoir = Reservoir(200, seed=seed)
    with open(path, newline="") as file:
        for booked, found in csv.reader(file):
            reservoir.add(float(found), weight=float(booked))
    return reservoir


def main():
    with tempfile.TemporaryDirectory() as folder:
        paths = write_files(Path(folder))
        parts = [sample(path, seed) for seed, path in enumerate(paths)]  # on as many machines as you like
        whole = Reservoir.merge_all(parts, seed=0)
        truth = sum(float(found) for path in paths for _, found in csv.reader(path.open()))
    total = whole.estimate_total(whole.items)
    low, high = (total.total + sign * 1.96 * total.standard_error for sign in (-1, 1))
    print(f"{len(whole)} of {whole.seen:,} rows were kept")
    print(f"the audited total is about {total.total:,.0f}, between {low:,.0f} and {high:,.0f}; it is {truth:,.0f}")


if __name__ == "__main__":
    main()
