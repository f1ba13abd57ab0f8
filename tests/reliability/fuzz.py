"""Fuzzing of every loader and of every command on whole run folders. Only own errors may come out.

What is fed is damaged in two ways: bytes (flipped, cut, repeated, put in) and meaning (a value in the JSON replaced, a
member removed, an array of another shape), with all sums made right again, so that the checks behind the sums are
reached as well. A whole run folder is changed in its links and names besides, by someone who wants something outside of
it read, written or removed; every command is run on it, and nothing outside may have changed by then.
``python tests/reliability/fuzz.py --minutes 10`` is ``make fuzz``; a short run is among the tests.
"""

import argparse
import contextlib
import hashlib
import io
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from unittest import mock

import gymnasium as gym
import numpy as np

from recollect import FileError, Learner, RecollectError, Reservoir, cli
from recollect.agents.episodic import EpisodicActorCritic
from recollect.envs.t_maze import TMazeEnv
from recollect.errors import printable
from recollect.store import checkpoints, lock, provenance, run_folders, run_reading
from recollect.studies import reproduce
from recollect.training import callbacks
from recollect.training.resuming import resume

ARRAYS = "arrays.safetensors"
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
    for reader in (run_reading.read, run_reading.summary, run_reading.verify):
        with contextlib.suppress(FileError):
            reader(path)
    folder = run_folders.RunFolder.reopen(path)
    try:
        plan = reproduce.plan_of(path, folder.config)
        run_reading.seconds_between_checkpoints(path, folder.config)
        provenance.refuse_changes(folder.config, plan.config(), str(path), ("command", "versions", "checkpoints"))
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
    name = rng.choice(["manifest.json", "manifest.json", ARRAYS, "SHA256SUMS"])
    content = (path / name).read_bytes()
    (path / name).write_bytes(rarely_bytes(rng, content) if name == "manifest.json" else damage_bytes(rng, content))
    if name != "SHA256SUMS" and rng.random() < 0.8:
        files = ("manifest.json", ARRAYS)
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
    for reader in (run_reading.summary, run_reading.verify):
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


# -- whole folders, and every command on them


def entries(path):
    """Every name in a folder, links as such; none is followed."""
    return sorted(found for found in path.rglob("*") if not any(above.is_symlink() for above in found.parents))


def snapshot(path):
    """All that can be told of what lies in a folder: names, kinds, targets, contents, times of change."""
    found = {}
    for entry in entries(path):
        state = entry.lstat()
        content = os.readlink(entry) if entry.is_symlink() else entry.read_bytes() if entry.is_file() else ""
        # A folder's own time changes with each name in it, which is seen by the names.
        found[str(entry.relative_to(path))] = (state.st_mode, content, 0 if entry.is_dir() else state.st_mtime_ns)
    return found


def reseal(checkpoint):
    """Make the sums of a checkpoint right again, as someone would who forges one."""
    with contextlib.suppress(OSError):
        sums = (hashlib.sha256((checkpoint / name).read_bytes()).hexdigest() for name in ("manifest.json", ARRAYS))
        text = "".join(f"{s}  {name}\n" for name, s in zip(("manifest.json", ARRAYS), sums, strict=True))
        (checkpoint / "SHA256SUMS").unlink()
        (checkpoint / "SHA256SUMS").write_text(text)


def remove(path):
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def mutate_links(rng, run, home):
    """A name, there already or one that a command writes, becomes a link to what belongs to the user."""
    written = ["log.jsonl", "metrics.csv", "metrics.jsonl", "status.json", "lock.json", "episode-0.png", "tensorboard"]
    written += ["checkpoints", "checkpoints/learner", "checkpoints/learner/checkpoint-00000099", "config.json"]
    written += ["tensorboard/events.out.tfevents.recollect", "figure.png", "verdict.md", ".status.json.00000000.tmp"]
    place = run / rng.choice(written) if rng.random() < 0.6 else rng.choice(entries(run))
    if not place.parent.is_dir() or place.parent.is_symlink():
        return
    remove(place)
    target = rng.choice([home / "thesis.tex", home, home / "20260101", home / "new", Path("..") / "home", place])
    if rng.random() < 0.15 and target == home / "thesis.tex":
        os.link(target, place)
    else:
        place.symlink_to(target)


def mutate_names(rng, run, home):
    """Something is called otherwise, is there twice, is missing, or is another kind of thing."""
    place, kind = rng.choice(entries(run)), rng.random()
    odd = [
        "20260101",
        "checkpoint-99999999",
        ".old-thesis",
        ".recollect-new-01234567",
        "\x1b[2J",
        "a\nb",
        "é" * 60,
        "-rf",
    ]
    other = place.with_name(rng.choice(odd))
    if kind < 0.4 and not os.path.lexists(other):
        place.rename(other)
    elif kind < 0.6:
        remove(place)
    elif kind < 0.75 and place.is_file():
        remove(place)
        rng.choice([lambda: os.mkfifo(place), lambda: place.mkdir(), lambda: place.write_bytes(b"")])()
    elif not os.path.lexists(other):
        shutil.copytree(place, other, symlinks=True) if place.is_dir() else shutil.copyfile(
            place, other, follow_symlinks=False
        )


def mutate_json(rng, run, home):
    """A value in the config, the status or a checkpoint's manifest: paths, modules, terminal escapes, odd types."""
    files = [path for path in entries(run) if path.suffix in (".json", ".jsonl") and path.is_file()]
    files = [path for path in files if not path.is_symlink()]
    if not files:
        return
    place = rng.choice(files)
    content = place.read_bytes()
    try:
        value = json.loads(content.splitlines()[0] if place.suffix == ".jsonl" else content)
    except (ValueError, IndexError):
        return
    kind = rng.random()
    if kind < 0.3 and isinstance(value, dict):
        outside = rng.choice([str(home), str(home / "20260101"), "../home"])
        forged = {"class": "Checkpoint", "options": {"every": 1, "folder": outside}}
        meta = value.get("meta") if isinstance(value.get("meta"), dict) else {}
        config = meta.get("config") if isinstance(meta.get("config"), dict) else {}
        for owner in (value, meta, config):
            if isinstance(owner.get("learning"), dict):
                owner["learning"]["callbacks"] = [forged]
    elif kind < 0.4 and isinstance(value, dict):
        value |= {"status": "\x1b]0;x\x07", "error": ["\x1b[2J"], "command": {"a": 1}, "host": "\x1b[1m", "pid": [1]}
    else:
        value = damage_value(rng, value)
    lines = content.splitlines(keepends=True)[1:] if place.suffix == ".jsonl" else []
    place.write_bytes(json.dumps(value).encode() + b"\n" + b"".join(lines))
    if place.name == "manifest.json":
        reseal(place.parent)


def mutate_bytes(rng, run, home):
    files = [path for path in entries(run) if path.is_file() and not path.is_symlink()]
    if files:
        place = rng.choice(files)
        place.write_bytes(damage_bytes(rng, place.read_bytes()))
        if place.name in (ARRAYS, "manifest.json"):
            reseal(place.parent)


MUTATIONS = (mutate_links, mutate_links, mutate_names, mutate_json, mutate_json, mutate_bytes)
COMMANDS = (("runs",), ("runs", "--json"), ("verify",), ("evaluate", "--episodes", "1"), ("inspect", "--limit", "3"))
COMMANDS += (("resume",), ("resume", "--fallback"), ("resume", "--allow-inexact", "--break-lock"), ("plot",))


def run_command(words):
    """As ``cli.main``, which shows other errors as well: here only the library's own may come out."""
    arguments = cli.parser().parse_args(words)
    try:
        arguments.run(arguments)
    except RecollectError as error:
        print(printable(error), file=sys.stderr)
        return True
    except ValueError as error:
        assert "give it as env" in str(error), f"{words[0]}: {type(error).__name__}: {error}"
        return True
    return False


@contextlib.contextmanager
def bounded():
    """What a file asks for in vain amounts of is not done: that takes long, and harms nobody."""
    learn_to_goal, evaluate = Learner.learn_to_goal, Learner.evaluate

    def short(self, *arguments, **options):
        if self.goal - self.steps > 100:
            raise RecollectError("too long to try")
        learn_to_goal(self, *arguments, **options)

    def few(self, episodes=100, **options):
        return evaluate(self, min(episodes, 3), **options)

    with mock.patch.object(Learner, "learn_to_goal", short), mock.patch.object(Learner, "evaluate", few):
        yield


def fuzz_folder(rng, sound, here):
    """A whole run folder, changed in several ways: every command on it, and nothing outside of it has changed."""
    outer = here / "outer"
    shutil.rmtree(outer, ignore_errors=True)
    home, run = outer / "home", outer / "run"
    for name in ("thesis.tex", "20260101/photo", "20260102/photo", ".old-letters/letter"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(name)
    shutil.copytree(sound / "folder", run)
    for _ in range(rng.choice([1, 1, 2, 3])):
        rng.choice(MUTATIONS)(rng, run, home)
    before, links = snapshot(home), (home / "thesis.tex").stat().st_ino
    refused = False
    for command in rng.sample(COMMANDS, 4):
        told = io.StringIO()
        with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told), bounded():
            refused = run_command([command[0], str(run), *command[1:]]) or refused
        assert snapshot(home) == before, f"{command} changed what is outside of the folder"
        assert sorted(os.listdir(outer)) == ["home", "run"], f"{command} made something outside of the folder"
        said = told.getvalue()
        assert "\x1b" not in said and "\x07" not in said, f"{command} printed a control character"
    assert (home / "thesis.tex").stat().st_ino == links
    if refused:
        raise RecollectError("refused")


LOADERS = {"run": fuzz_run, "checkpoint": fuzz_checkpoint, "learner": fuzz_learner}
LOADERS |= {"lock": fuzz_lock, "reservoir": fuzz_reservoir, "folder": fuzz_folder}


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
    learner.save(here / "sound" / "learner")
    if "FuzzedMaze-v0" not in gym.registry:
        gym.register("FuzzedMaze-v0", entry_point=TMazeEnv, kwargs={"length": 2})
    watched = Learner(EpisodicActorCritic(memory_size=2, hidden=3), "FuzzedMaze-v0", check=False)
    watch = [callbacks.Checkpoint(5), callbacks.Evaluate(5, 1), callbacks.EarlyStop(9.0)]
    watched.learn(10, log_every=4, folder=here / "sound" / "folder", callbacks=watch, log="tensorboard")
    watched.goal = 14
    watched.save(here / "sound" / "folder")
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
        # What takes milliseconds is fed more often than what makes environments and compiles.
        turns = [name for name in loaders for _ in range(1 if name in ("learner", "folder") else 10)]
        end, number = time.monotonic() + seconds, 0
        while time.monotonic() < end or number < least:
            number += 1
            name = turns[number % len(turns)]
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
