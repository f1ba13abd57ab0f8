"""Going on with a learner's run folder, to the same bits as if it had never stopped."""

from pathlib import Path
from typing import Any

from recollect.errors import FileError
from recollect.store import checkpoints, files, run_folders
from recollect.store.run_folders import RunFolder
from recollect.training import callbacks as known_callbacks
from recollect.training.online import Callback, Learner
from recollect.training.recording import GROUP, Recorder, read_rows

_DESCRIBING = ("agent", "environment", "spaces", "seed", "copies", "learners", "pictures", "normalize")


def resume(
    path: Path | str,
    env: Any = None,
    *,
    callbacks: list[Callback] | None = None,
    progress: bool = False,
    fallback: bool = False,
    allow_inexact: bool = False,
    break_lock: bool = False,
    checkpoint_every: float | None = None,
) -> Learner:
    """Go on with a learner's run from its newest checkpoint to where it was to end, bit for bit.

    What cannot be is refused before anything in the folder changes. One that is finished is left as it is.

    Args:
        path: the run folder.
        env: as for ``Learner`` (default: the id that the run was begun with).
        callbacks: those of before, if there were any that the folder cannot describe; they are told of earlier rows.
        progress: show how it goes.
        fallback: where the newest checkpoint is damaged, go back to the one before it, and log that.
        allow_inexact: go on under other versions than before, or in a new episode where the environment does not give
            the same one again, and mark the run.
        break_lock: take over a lock whose holder may live elsewhere.
        checkpoint_every: seconds between checkpoints; default: as before.
    """
    path = Path(path)
    with RunFolder.reopen(path, break_lock=break_lock) as folder:
        learning = _learning_of(path, folder.config)
        watch = known_callbacks.restore(learning["callbacks"]) if callbacks is None else list(callbacks)
        every = checkpoint_every or _every_of(path, folder.config)
        place = path / "checkpoints" / GROUP
        if place.is_symlink() or place.parent.is_symlink():
            raise FileError(f"{place} cannot be read: it is a link")
        found = checkpoints.load(place, fallback=fallback) if checkpoints.listing(place) else None
        learner, inexact = _restored(folder, found, learning, env, allow_inexact)
        if found is not None and found.meta.get("finished") is True:
            return _as_finished(folder, learner)
        kept = {} if found is None else {GROUP: found}
        folder.cut_metrics(kept)
        folder.log_resumed(kept, inexact)
        rows = read_rows(path)
        for callback in watch:
            for row in rows:
                getattr(callback, "recall", lambda row: None)(row)
        learner.go_on(Recorder(folder, rows), watch, learning, every, progress)
    return learner


def _restored(
    folder: RunFolder, found: checkpoints.Checkpoint | None, learning: dict[str, Any], env: Any, allow_inexact: bool
) -> tuple[Learner, list[str]]:
    """The learner in the middle of its episode, and what was not as it should be but allowed."""
    path, config = folder.path, folder.config
    if found is None:
        if learning["start"]:
            raise FileError(f"{path} holds no checkpoint, and began from step {learning['start']:,} of another run")
        inexact = folder.refuse_other_versions([], allow_inexact)
        learner = Learner.described_by(config, path / "config.json", env, check=False)
        learner.goal = learning["steps"]
    else:
        now = {name: value for name, value in config.items() if name != "versions"}
        run_folders.refuse_changes(found.meta.get("config"), now, str(path))
        inexact = folder.refuse_other_versions([found], allow_inexact)
        learner = Learner.restore(found, env, check=False, allow_inexact=allow_inexact)
    was = {name: config.get(name) for name in _DESCRIBING}
    run_folders.refuse_changes(was, {name: learner.description()[name] for name in _DESCRIBING}, str(path), ())
    if found is None or found.meta.get("finished") is not True:
        learner.exact = folder.exact
        inexact += learner.take_up()
        folder.exact = learner.exact
    return learner, inexact


def _as_finished(folder: RunFolder, learner: Learner) -> Learner:
    status = files.read_json(folder.path / "status.json")
    if status.get("status") != "finished":  # it ended between its last checkpoint and saying so
        folder.set_status("finished", wanted=learner.goal, steps=learner.steps, episodes=sum(learner.episodes))
        folder.log("finished", steps=learner.steps)
    return learner


def _learning_of(path: Path, config: dict[str, Any]) -> dict[str, Any]:
    """How the run was to learn, from its config."""
    if config.get("kind") != "learner":
        raise FileError(f"{path} is not the run of a learner")
    found = config.get("learning")
    kinds = {"start": int, "steps": int, "log_every": int, "callbacks": list, "strict": bool}
    if not isinstance(found, dict) or any(type(found.get(name)) is not kind for name, kind in kinds.items()):
        raise FileError(f"{path / 'config.json'} does not say how the learner was to learn")
    if (
        found["start"] < 0
        or found["steps"] < 1
        or found["log_every"] < 1
        or found.get("log") not in (None, "tensorboard")
    ):
        raise FileError(f"{path / 'config.json'}: learning is not sound: {found}")
    return {"log": None, **found}


def _every_of(path: Path, config: dict[str, Any]) -> float:
    found = config.get("checkpoints")
    every = found.get("every") if isinstance(found, dict) else None
    every = float("inf") if every == "inf" else every
    if not isinstance(every, (int, float)) or not every > 0:
        raise FileError(f"{path / 'config.json'}: checkpoints.every is {every!r} and should be a number of seconds")
    return every
