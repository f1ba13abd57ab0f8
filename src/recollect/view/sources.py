"""What a path holds, as documents for the page: a run, a recording, a ``reproduce`` folder, a benchmark's report."""

import contextlib
import functools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recollect.errors import FileError, RecollectError
from recollect.store import checkpoints, files
from recollect.store.run_reading import SNAPSHOTS
from recollect.training.online import Learner
from recollect.training.recording import GROUP, read_rows
from recollect.view import boards, episodes, figures
from recollect.view import format as recording

Say = Callable[[str], None]
Plays = dict[int, dict[str, Any]]

KINDS = (
    "a run folder of recollect train, a folder that Learner.save made, a recording (.json or .json.gz), "
    "a folder of recollect reproduce, or a report of recollect benchmark"
)


def document(
    path: Path,
    *,
    env: Any = None,
    seed: int = 0,
    limit: int = episodes.LIMIT_STEPS,
    say: Say = lambda text: None,
    known: Plays | None = None,
) -> dict[str, Any]:
    """The document of one path.

    Args:
        path: one of ``KINDS``.
        env: for a run, the environment to play in, where the run cannot make its own.
        seed: of the episode that a run's agents play.
        limit: most steps of it.
        say: told what is being done.
        known: for a run, episodes that were played before; see ``of_run``.
    """
    if path.is_dir():
        if (path / "config.json").exists():
            config = files.read_json(path / "config.json")
            if config.get("kind") == "learner":
                return of_run(path, env, seed, limit, say, known)
            if "figure" in config:
                return figures.document(path)
        elif checkpoints.listing(path):
            return of_learner(Learner.load(path, env), seed, limit, path.name, say)
        raise FileError(f"{path} cannot be shown: it is not {KINDS}")
    if not path.exists():
        raise FileError(f"{path} is not there; give {KINDS}")
    content = files.read(path, recording.LARGEST)
    if content[:2] == b"\x1f\x8b":
        return recording.read(path)
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path} cannot be shown: it is not JSON ({error}); give {KINDS}") from error
    if isinstance(found, dict) and found.get("format") == recording.FORMAT:
        return recording.check(found, path)
    return boards.document(found, path)


def of_learner(learner: Learner, seed: int, limit: int, title: str, say: Say = lambda text: None) -> dict[str, Any]:
    """A recording of what a learner has learned by now."""
    return episodes.record(learner, seed, limit, title, functools.partial(_tell, say, title))


def of_run(path: Path, env: Any, seed: int, limit: int, say: Say, known: Plays | None = None) -> dict[str, Any]:
    """A recording of a run: the same episode played by the agent at the start, at every snapshot and now.

    ``known``: episodes that were played before, by the steps their agents had been trained for; new ones are added.
    """
    known = {} if known is None else known
    newest = _newest(path, env)
    shown = episodes.showing(newest)
    try:
        head = episodes.describe(newest, shown, path.name)
        makers = {newest.steps: lambda: newest, **_earlier(path, env, newest.steps)}
        for k, steps in enumerate(sorted(makers), 1):
            if steps in known:
                continue
            label = f"{path.name}: agent {k} of {len(makers)}, after {steps:,} steps"
            say(label)
            # A snapshot that is damaged, or thinned out by training while this looks, is left out.
            with contextlib.suppress(*([] if steps == newest.steps else [RecollectError])):
                learner = makers[steps]()
                known[steps] = episodes.play(learner, shown, seed, limit, functools.partial(_tell, say, label))
                if learner is not newest:
                    learner.close()
    finally:
        shown.close()
        newest.close()
    plays = [known[steps] for steps in sorted(makers) if steps in known]
    return {**head, "training": training(path), "episodes": plays}


def _tell(say: Say, label: str, steps: int) -> None:
    if steps % 200 == 0:
        say(f"{label}: step {steps:,}")


def _newest(path: Path, env: Any) -> Learner:
    """The agent of the newest checkpoint; before the first, the one that training begins with."""
    if checkpoints.listing(path / "checkpoints" / GROUP):
        return Learner.load(path, env, fallback=True)
    return Learner.described_by(files.read_json(path / "config.json"), path / "config.json", env)


def _earlier(path: Path, env: Any, before: int) -> dict[int, Callable[[], Learner]]:
    """What makes the agent before any training, and those of the snapshots before ``before`` steps, by their steps."""
    config = path / "config.json"
    found: dict[int, Callable[[], Learner]] = {}
    if before > 0:
        found[0] = lambda: Learner.described_by(files.read_json(config), config, env, check=False)
    for each in checkpoints.listing(path / SNAPSHOTS):
        with contextlib.suppress(RecollectError, KeyError):
            steps = checkpoints.verify(each).meta["steps"]
            if 0 < steps < before:
                found[steps] = lambda each=each: Learner.restore(checkpoints.read(each), env, check=False)
    return found


def training(path: Path) -> dict[str, Any]:
    """What a run folder says of its training: status, and the metrics of its first agent by column."""
    status = files.read_json(path / "status.json")
    rows = read_rows(path)
    first = min((row["seed"] for row in rows), default=0)
    own = [row for row in rows if row["seed"] == first]
    shown = ("steps", "return", "length", "write_weight", "query_entropy", "evaluation")
    names = [name for name in shown if any(name in row for row in own)]
    columns = {name: [_finite(row.get(name)) for row in own] for name in names}
    found: dict[str, Any] = {"status": str(status.get("status", "")), "columns": columns}
    if own:
        found["steps"] = own[-1]["steps"]
    if isinstance(status.get("wanted"), int):
        found["goal"] = status["wanted"]
    return found


def _finite(value: Any) -> float | int | None:
    return value if isinstance(value, (int, float)) and math.isfinite(value) else None


def stamp(path: Path) -> str:
    """Text that changes when what a path shows may have changed; cheap, so that it can be asked for again and again."""
    if not path.is_dir():
        return _stamp_of(path)
    watched = [path / "status.json", path / "metrics.jsonl"]
    watched += checkpoints.listing(path / "checkpoints" / GROUP) + checkpoints.listing(path / SNAPSHOTS)
    return " ".join(_stamp_of(each) for each in watched)


def _stamp_of(path: Path) -> str:
    try:
        found = path.stat()
    except OSError:
        return "-"
    return f"{path.name}:{found.st_mtime_ns}:{found.st_size}"
