"""Run one recipe in a process of its own, so that its threads and warnings stay there; prints the ids of the sample."""

import json
import os
import sys

import numpy as np
import pandas

from cli import recipes


def frame():
    """4,000 rows."""
    return pandas.DataFrame({"id": np.arange(4000), "price": np.random.default_rng(0).lognormal(0, 1, 4000)})


def expected(cuts):
    """What one machine gives for these partitions."""
    parts = [recipes.part(frame().iloc[a:b], k) for k, (a, b) in enumerate(cuts)]
    return [row["id"] for row in recipes.Reservoir.merge_all(parts).items]


def main(name, folder):
    """The ids from the recipe, and from one machine."""
    expected([(0, 1000), (1000, 2000)])  # compiled here, once, and not by every worker
    if name == "dask":
        import dask.dataframe

        parts = dask.dataframe.from_pandas(frame(), npartitions=4)
        cuts, at = [], 0
        for p in parts.partitions:
            cuts.append((at, at + len(p)))
            at += len(p)
        found = recipes.with_dask(parts)
    elif name == "ray-data":
        import ray
        import ray.data

        ray.init(num_cpus=2, _temp_dir=folder, object_store_memory=100_000_000, include_dashboard=False)
        dataset = ray.data.from_pandas([frame().iloc[a : a + 1000] for a in range(0, 4000, 1000)])
        cuts = [(a, a + 1000) for a in range(0, 4000, 1000)]
        found = recipes.with_ray_data(dataset)
    else:
        from pyspark.sql import SparkSession

        os.environ["PYSPARK_PYTHON"] = sys.executable
        spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
        rows = [(int(row.id), float(row.price)) for row in frame().itertuples()]
        table = spark.createDataFrame(spark.sparkContext.parallelize(rows, 4), "id long, price double")
        cuts = [(a, a + 1000) for a in range(0, 4000, 1000)]
        found = recipes.with_spark(table, folder)
        spark.stop()
    print("FOUND", json.dumps([[int(row["id"]) for row in found.items], expected(cuts), found.seen]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
