"""The recipes of docs/scale.md, as they stand there: one reservoir for each partition, merged in order."""

import pandas

from recollect import Reservoir


def part(frame, place):
    """One reservoir of a partition, a frame of pandas."""
    r = Reservoir(100, seed=[0, place])
    r.extend(frame, weight="price")
    return r


def with_dask(frame):
    """Partitions of a frame of Dask."""
    import dask

    parts = dask.compute(*(dask.delayed(part)(p, k) for k, p in enumerate(frame.to_delayed())))
    return Reservoir.merge_all(parts)


def with_ray_data(dataset):
    """Blocks of a dataset of Ray Data, each where it lies."""
    import ray

    place = ray.remote(part)
    return Reservoir.merge_all(ray.get([place.remote(block, k) for k, block in enumerate(dataset.to_pandas_refs())]))


def with_spark(frame, folder):
    """Partitions of a frame of Spark: each saves its reservoir where the driver can read it."""

    def save(frames):
        from pyspark import TaskContext

        place = TaskContext.get().partitionId()
        r = Reservoir(100, seed=[0, place])
        for batch in frames:
            r.extend(batch, weight="price")
        r.save(f"{folder}/{place}.reservoir")
        yield pandas.DataFrame({"place": [place]})

    places = sorted(row.place for row in frame.mapInPandas(save, "place int").collect())
    return Reservoir.merge_all([Reservoir.load(f"{folder}/{place}.reservoir") for place in places])
