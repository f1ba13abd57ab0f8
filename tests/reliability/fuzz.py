"""Fuzzing of every loader: run folder, checkpoint, learner's run, lock, reservoir file. Only own errors may come out.

What is fed is damaged in two ways: bytes (flipped, cut, repeated, put in) and meaning (a value in the JSON replaced, a
member removed, an array of another shape), with all sums made right again, so that the checks behind the sums are
reached as well. ``python tests/reliability/fuzz.py --minutes 10`` is ``make fuzz``; a short run is among the tests.
"""

import argparse
import contextlib
import hashlib
import io
import json
import random
import resource
import shutil
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np

from recollect import FileError, Learner, RecollectError, Reservoir
from recollect.agents.episodic import EpisodicActorCritic
from recollect.envs.t_maze import TMazeEnv
from recollect.store import checkpoints, lock, run_folders
from recollect.studies import reproduce
from recollect.training.resuming import resume

VALUES = [None, True, False, 0, -1, 1, 2**31, 2**63, 10**30, 0.5, -1e308, "", "x", "../../etc/passwd", "\x00", "é" * 50]
VALUES += [[], {}, [0] * 40, [[[[]]]], {"a": {"b": 1}}, [10**9, 10**9], ["float64"], "object", "O", "<f8", 1e400]


def damage_bytes(rng, content):
    content = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 2, 8])):
        at = rng.randrange(len(content) + 1)
        kind = rng.randrange(6)
        if kind == 0 and at < len(content):
            content[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del content[at:]
        elif kind == 2:
            content[at:at] = rng.randbytes(rng.randrange(1, 9))
        elif kind == 3:
            content[at : at + rng.randrange(1, 20)] = b""
        elif kind == 4:
            content[at:at] = content[max(0, at - 64) : at]
        else:
            content[at:at] = rng.choice(
                [b"[" * 5000, b'{"a":' * 3000, b"\n", b"\x00" * 100, b"9" * 6000, b"NaN", b"1e999"]
            )
    return bytes(content)


def damage_value(rng, value):
    """The same JSON with something in it replaced, removed or added."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        kind = rng.random()
        if kind < 0.1:
            return {k: v for k, v in value.items() if k != key}
        if kind < 0.2:
            return {**value, rng.choice(["x", "", key + "x"]): rng.choice(VALUES)}
        return {**value, key: damage_value(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        kind = rng.random()
        if kind < 0.1:
            return value[:at]
        if kind < 0.2:
            return value + value
        return [*value[:at], damage_value(rng, value[at]), *value[at + 1 :]]
    return rng.choice(VALUES)


def damage_json(rng, content):
    value = json.loads(content)
    for _ in range(rng.choice([1, 1, 2, 4])):
        value = damage_value(rng, value)
    return json.dumps(value).encode()


def rarely_bytes(rng, content):
    return damage_bytes(rng, content) if rng.random() < 0.4 else damage_json(rng, content)


def load_run(path):
    """Everything that reads a run folder."""
    for reader in (run_folders.read, run_folders.summary, run_folders.verify):
        with contextlib.suppress(FileError):
            reader(path)
    folder = run_folders.RunFolder.reopen(path)
    try:
        plan = reproduce.plan_of(path, folder.config)
        reproduce._every_of(path, folder.config)
        run_folders.refuse_changes(folder.config, plan.config(), str(path), ("command", "versions", "checkpoints"))
        found = folder.load("a-0", {"x": ((4,), "float64")}, fallback=True)
        folder.cut_metrics({} if found is None else {"a-0": found})
    finally:
        folder.close()


def fuzz_run(rng, sound, here):
    path = here / "run"
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(sound, path)
    name = rng.choice(["config.json", "status.json", "metrics.jsonl", "metrics.jsonl"])
    content = (path / name).read_bytes()
    if name == "metrics.jsonl":
        lines = content.splitlines(keepends=True)
        at = rng.randrange(len(lines))
        lines[at] = rarely_bytes(rng, lines[at]) + b"\n" * rng.randrange(2)
        content = b"".join(lines)
    else:
        content = rarely_bytes(rng, content)
    (path / name).write_bytes(content)
    load_run(path)


def fuzz_checkpoint(rng, sound, here):
    folder = here / "checkpoints"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(sound / "checkpoints" / "a-0", folder)
    path = checkpoints.listing(folder)[-1]
    name = rng.choice(["manifest.json", "manifest.json", "arrays.bin", "SHA256SUMS"])
    content = (path / name).read_bytes()
    (path / name).write_bytes(rarely_bytes(rng, content) if name == "manifest.json" else damage_bytes(rng, content))
    if name != "SHA256SUMS" and rng.random() < 0.8:
        files = ("manifest.json", "arrays.bin")
        sums = (hashlib.sha256((path / name).read_bytes()).hexdigest() for name in files)
        (path / "SHA256SUMS").write_text("".join(f"{s}  {name}\n" for name, s in zip(files, sums, strict=True)))
    with contextlib.suppress(FileError):
        checkpoints.verify(path)
    checkpoints.load(folder, like={"x": ((4,), "float64")} if rng.random() < 0.5 else None)


def fuzz_learner(rng, sound, here):
    """A learner's run: damaged config or metrics, or a checkpoint whose sums are right and whose content is not."""
    path = here / "learner"
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(sound / "learner", path)
    newest = checkpoints.listing(path / "checkpoints" / "learner")[-1]
    kind = rng.random()
    if kind < 0.3:
        damaged = path / rng.choice(["config.json", "metrics.jsonl", "status.json"])
        content = damaged.read_bytes()
        first, *rest = content.splitlines(keepends=True) if damaged.suffix == ".jsonl" else [content]
        damaged.write_bytes(b"".join([rarely_bytes(rng, first), b"\n", *rest]))
    else:
        found = checkpoints.read(newest)
        meta, arrays = dict(found.meta), dict(found.arrays)
        if kind < 0.6:
            # What the config holds too is left alone half of the time, so that the checks behind it are reached.
            names = [name for name in meta if name != "config"] if rng.random() < 0.5 else list(meta)
            name = rng.choice(names)
            meta[name] = damage_value(rng, meta[name])
        else:
            names = [name for name in arrays if rng.random() < 0.3 or not name.startswith("live")]
            name = rng.choice(names)
            array = arrays[name]
            arrays[name] = rng.choice(
                [
                    array.reshape(-1)[:-1],
                    np.zeros(array.shape, np.int8),
                    np.roll(array.reshape(-1), 1).reshape(array.shape),
                    np.zeros(array.shape, array.dtype),
                    array[None],
                ]
            )
        with contextlib.suppress(ValueError):  # what strict JSON cannot hold
            checkpoints.save(newest.parent, arrays, meta)
    for reader in (run_folders.summary, run_folders.verify):
        with contextlib.suppress(FileError):
            reader(path)
    learner = Learner.load(path, lambda: TMazeEnv(length=2), check=False)
    learner.take_up()
    if rng.random() < 0.2 and 0 <= learner.goal - learner.steps < 1000:
        resume(path, lambda: TMazeEnv(length=2))


def fuzz_lock(rng, sound, here):
    (here / "lock.json").write_bytes(rarely_bytes(rng, b'{"host": "h", "pid": 1, "started": "x", "boot": "y"}'))
    lock.holder(here)
    lock.Lock(here, break_lock=rng.random() < 0.5).release()


def fuzz_reservoir(rng, sound, here):
    content = (sound / "reservoir").read_bytes()
    if rng.random() < 0.4:
        content = damage_bytes(rng, content)
    else:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        header = json.loads(members.pop("header.json"))
        name = rng.choice([*members, "header.json"])
        if name == "header.json":
            header = damage_value(rng, header)
        elif name == "items.json":
            members[name] = damage_json(rng, members[name])
        elif rng.random() < 0.5:
            members[name] = damage_bytes(rng, members[name])
        else:
            array = np.load(io.BytesIO(members[name]), allow_pickle=False)
            flat = array.reshape(-1).copy()
            if flat.size:
                flat[rng.randrange(flat.size)] = rng.choice([0, 1, 2, 100])
            changed = rng.choice([array[:0], array[..., None], array.astype(np.float32), flat.reshape(array.shape)])
            buffer = io.BytesIO()
            np.save(buffer, changed, allow_pickle=False)
            members[name] = buffer.getvalue()
        if isinstance(header, dict) and isinstance(header.get("sha256"), dict):
            header["sha256"] = {k: hashlib.sha256(v).hexdigest() for k, v in members.items()}
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            archive.writestr("header.json", json.dumps(header))
            for k, v in members.items():
                archive.writestr(k, v)
        content = out.getvalue()
    (here / "reservoir").write_bytes(content)
    found = Reservoir.load(here / "reservoir")
    found.extend(range(50), np.ones(50))  # what was let in must work
    assert len(found.items) <= 4


LOADERS = {"run": fuzz_run, "checkpoint": fuzz_checkpoint, "learner": fuzz_learner}
LOADERS |= {"lock": fuzz_lock, "reservoir": fuzz_reservoir}


def make_sound(here):
    """One of each, undamaged."""
    config = reproduce.make_plan("fig3", seeds=2, episodes=100, with_baseline=False).config()
    config["checkpoints"] = {"every": 60.0, "keep": 3}
    with run_folders.RunFolder(here / "sound", config) as folder:
        line = {"return": 0.5, "length": 12.0, "write_weights": [0.5, 0.5], "query_vectors": [[0.0] * 8]}
        for episodes in (1, 2):
            folder.append("episodic", [{"seed": seed, "episodes": episodes, **line} for seed in (0, 1)], "a-0")
            folder.save("a-0", "episodic", [0, 1], {"x": np.arange(4.0)})
    learner = Learner(EpisodicActorCritic(memory_size=2, hidden=3), lambda: TMazeEnv(length=2), check=False)
    learner.learn(10, log_every=4, folder=here / "sound" / "learner")
    learner.goal = 20
    learner._checkpoint()
    reservoir = Reservoir(4, seed=0)
    reservoir.extend(["a", 1, (2.5, None), np.arange(3), {"k": b"x"}, *range(20)], np.ones(25))
    reservoir.save(here / "sound" / "reservoir")
    return here / "sound"


def fuzz(seconds, seed=0, loaders=tuple(LOADERS), say=lambda text: None, least=0):
    """Feed the loaders for so long and so often; returns how often each was fed and how often it refused."""
    count = {name: {"fed": 0, "refused": 0} for name in loaders}
    with tempfile.TemporaryDirectory() as place:
        here = Path(place)
        sound = make_sound(here)
        end, number = time.monotonic() + seconds, 0
        while time.monotonic() < end or number < least:
            number += 1
            name = loaders[number % len(loaders)]
            rng = random.Random(f"{seed} {number}")
            count[name]["fed"] += 1
            try:
                LOADERS[name](rng, sound, here)
            except RecollectError:
                count[name]["refused"] += 1
            except BaseException as error:
                raise AssertionError(f"{name}, seed {seed}, input {number}: {type(error).__name__}: {error}") from error
            if number % 5000 == 0:
                say(json.dumps(count))
    return count


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    arguments = parser.parse_args()
    # Room for what JAX reserves, and not for what a forged size could ask for.
    resource.setrlimit(resource.RLIMIT_AS, (2**35, resource.getrlimit(resource.RLIMIT_AS)[1]))
    print(f"seed {arguments.seed}", flush=True)
    print(json.dumps(fuzz(60 * arguments.minutes, arguments.seed, say=lambda text: print(text, flush=True)), indent=1))
