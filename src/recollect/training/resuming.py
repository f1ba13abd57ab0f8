"""Going on with a learner's run folder, to the same bits as if it had never stopped."""

from pathlib import Path
from typing import Any

from recollect.agents.base import Agent
from recollect.errors import FileError, printable
from recollect.store import checkpoints, files, provenance, run_reading
from recollect.store.run_folders import RunFolder
from recollect.training import arguments
from recollect.training import callbacks as known_callbacks
from recollect.training.online import Callback, Learner
from recollect.training.recording import GROUP, Recorder, read_rows

_DESCRIBING = ("agent", "environment", "seed", "copies", "learners", "pictures", "normalize")


def resume(
    path: Path | str,
    env: Any = None,
    *,
    agent: Agent | None = None,
    callbacks: list[Callback] | None = None,
    progress: bool = False,
    fallback: bool = False,
    allow_inexact: bool = False,
    break_lock: bool = False,
    checkpoint_every: float | None = None,
    checkpoint_folder: Path | str | None = None,
) -> Learner:
    """Go on with a learner's run from its newest checkpoint to where it was to end, bit for bit.

    What cannot be is refused before anything in the folder changes. One that is finished is left as it is. How it goes
    on is what the newest call of ``learn`` asked for. Nothing outside of the folder is written to, and no module is
    imported, because a file in it says so.

    Args:
        path: the run folder.
        env: as for ``Learner`` (default: the id that the run was begun with).
        agent: as it was made, where it has parts of your own, which no file can describe.
        callbacks: those of before, if there were any that the folder cannot describe; they are told of earlier rows.
        progress: show how it goes.
        fallback: where the newest checkpoint is damaged, go back to the one before it, and log that.
        allow_inexact: continue under other versions than before, or in a new episode where the environment does not
            give the same one again, and mark the run.
        break_lock: take over a lock whose holder may live elsewhere.
        checkpoint_every: seconds between checkpoints; default: as before.
        checkpoint_folder: where a ``Checkpoint`` callback saves that had a folder of its own, outside of the run.
    """
    path = Path(path)
    if checkpoint_every is not None:
        checkpoint_every = arguments.seconds("checkpoint_every", checkpoint_every)
    with RunFolder.reopen(path, break_lock=break_lock) as folder:
        if folder.config.get("kind") != "learner":
            raise FileError(f"{path} is not the run of a learner")
        place = run_reading.group_folder(path, GROUP)
        found = checkpoints.load(place, fallback=fallback) if checkpoints.listing(place) else None
        learning = _learning_of(path, folder.config, found)
        learning["checkpoint_every"] = checkpoint_every or learning["checkpoint_every"]
        given = callbacks is not None
        watch = list(callbacks or ()) if given else known_callbacks.restore(learning["callbacks"], checkpoint_folder)
        learner, inexact = _restored(folder, found, learning, (env, agent), allow_inexact)
        if found is not None and found.meta.get("finished") is True:
            return _as_finished(folder, learner)
        for callback in watch:
            getattr(callback, "check", lambda learner: None)(learner)
        if given:
            learning["callbacks"] = known_callbacks.describe(watch)
        kept = {} if found is None else {GROUP: found}
        folder.cut_metrics(kept)
        folder.log_resumed(kept, inexact)
        rows = read_rows(path)
        for callback in watch:
            for row in rows:
                if row["steps"] > learning["start"]:  # what came before was told to callbacks of an earlier call
                    getattr(callback, "recall", lambda row: None)(row)
        learner.learn_to_goal(Recorder(folder, rows), watch, learning, progress=progress)
    return learner


def _restored(
    folder: RunFolder,
    found: checkpoints.Checkpoint | None,
    learning: dict[str, Any],
    given: tuple[Any, Agent | None],
    allow_inexact: bool,
) -> tuple[Learner, list[str]]:
    """The learner in the middle of its episode, and what was not as it should be but allowed.

    ``given``: environment and agent, where files do not tell.
    """
    path, config = folder.path, folder.config
    if found is None:
        if learning["start"]:
            raise FileError(f"{path} holds no checkpoint, and began from step {learning['start']:,} of another run")
        inexact = folder.refuse_other_versions([], allow_inexact)
        learner = Learner.described_by(config, path / "config.json", *given, check=False)
        learner.goal = learning["steps"]
    else:
        now = provenance.without_versions(config)
        provenance.refuse_changes(found.meta.get("config"), now, str(path))
        inexact = folder.refuse_other_versions([found], allow_inexact)
        learner = Learner.restore(found, *given, check=False, allow_inexact=allow_inexact)
    was = {name: config.get(name) for name in _DESCRIBING}
    provenance.refuse_changes(was, {name: learner.description()[name] for name in _DESCRIBING}, str(path), ())
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


_KINDS = {"start": int, "steps": int, "log_every": int, "callbacks": list, "strict": bool}


def _learning_of(path: Path, config: dict[str, Any], found: checkpoints.Checkpoint | None) -> dict[str, Any]:
    """How the run was to learn: by its newest checkpoint, or where there is none, by its config.

    The config tells how the run began; a later call of ``learn`` may have asked for something else. Checkpoints of
    releases before 0.2 do not say.
    """
    said = found is not None and "learning" in found.meta
    learning = found.meta["learning"] if found is not None and said else config.get("learning")
    where = found.path / "manifest.json" if found is not None and said else path / "config.json"
    if not isinstance(learning, dict) or any(type(learning.get(name)) is not kind for name, kind in _KINDS.items()):
        raise FileError(f"{where} does not say how the learner was to learn")
    learning = {"log": None, **learning}
    was = found.meta.get("config") if found is not None and said else None
    changed = not isinstance(was, dict) or was.get("checkpoints") != config.get("checkpoints")
    if changed or "checkpoint_every" not in learning:  # how often may be changed in the config
        learning["checkpoint_every"] = run_reading.seconds_between_checkpoints(path, config)
    every = {"checkpoints": {"every": learning["checkpoint_every"]}}
    learning["checkpoint_every"] = run_reading.seconds_between_checkpoints(path, every)
    most = arguments.MOST_STEPS
    counts = 0 <= learning["start"] < most and 1 <= learning["steps"] < most and learning["log_every"] >= 1
    if not counts or learning["log"] not in (None, "tensorboard"):
        raise FileError(f"{where}: learning is not valid: {printable(learning)}")
    return learning
