"""A learner as a checkpoint's named arrays and JSON, and back; what does not fit together is refused."""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from recollect.agents import named
from recollect.agents.base import Agent
from recollect.engines.host import Live
from recollect.envs import making, spaces
from recollect.errors import FileError, RecollectError
from recollect.store import checkpoints, files, trees
from recollect.store.lock import holder
from recollect.store.provenance import BITS_DEPEND_ON, differences, versions
from recollect.store.run_reading import group_folder, seconds_between_checkpoints
from recollect.training.arguments import MOST_STEPS
from recollect.training.recording import GROUP


def place_of(path: Path) -> Path:
    """Where the checkpoints of a learner are that was saved to ``path``: there, or if it is a run folder, inside it."""
    return group_folder(path, GROUP) if is_run_folder(path) else path


def is_run_folder(path: Path) -> bool:
    """Whether a folder is a run's, by what it holds: a config alone may be anybody's."""
    place = path / "checkpoints" / GROUP
    named = all((path / name).exists() for name in ("config.json", "metrics.jsonl"))
    return named or place.is_dir() or place.is_symlink() or place.parent.is_symlink()


# -- to a checkpoint


def arrays_of(learner: Any) -> dict[str, np.ndarray]:
    """All that training depends on, the episodes under way among it."""
    state = {"live": learner.host.unpack(learner._packed), "normalizer": learner.normalizer.state()}
    arrays = trees.flatten(state) | {f"fleet.{name}": array for name, array in learner.fleet.state().items()}
    arrays |= {"rows": learner._rows, "recent": learner._recent, "entropies": learner._entropies}
    return arrays if learner._drawn is None else arrays | {"drawn": np.asarray(learner._drawn)}


def meta_of(learner: Any, finished: bool) -> dict[str, Any]:
    """What the learner is, how far it has come and how it was asked to learn."""
    counts = {"steps": learner.steps, "logged": learner._logged, "goal": learner.goal}
    counts |= {"seconds": round(learner._seconds, 3)}
    meta = {"kind": "learner", **description(learner), **counts, "finished": finished, "exact": learner.exact}
    if learner._learning is not None:
        meta["learning"] = learner._learning
    return meta


def description(learner: Any) -> dict[str, Any]:
    """What a config and a checkpoint say of a learner."""
    described = {"observation": learner.observation_space, "action": learner.action_space}
    return {
        "agent": learner.described,
        "environment": {"name": learner.source.name, "made": learner._made},
        "spaces": {name: spaces.describe(space) for name, space in described.items()},
        "seed": learner.seed,
        "copies": learner.copies,
        "learners": "one" if learner.shared or learner.copies == 1 else "each",
        "pictures": learner._pictures,
        "engine": learner._asked_engine,
        "normalize": [learner.normalizer.observations is not None, learner.normalizer.rewards is not None],
        "versions": versions(),
    }


# -- and back


def arguments_of(
    meta: dict[str, Any], where: Path, env: Any, agent: Any, check: bool
) -> tuple[Any, Any, dict[str, Any]]:
    """The agent, the environment and the options of ``Learner`` that a config or a checkpoint describes.

    ``where``: what to name in errors.
    """
    given = None if agent is None else _described(agent)
    try:
        agent = _made(meta["agent"], where) if given is None else as_saved(agent, given, meta["agent"], where)
        made = meta["environment"]["made"]
        options = {name: meta[name] for name in ("seed", "copies", "learners", "pictures")}
        options |= {"normalize_observations": bool(meta["normalize"][0]), "check": check}
        options |= {"normalize_rewards": bool(meta["normalize"][1]), "engine": meta.get("engine", "auto")}
        if made is not None and (env is None or env == made["id"]):
            if not isinstance(made["id"], str) or not all(isinstance(name, str) for name in made["options"]):
                raise TypeError("the environment's id or options are no text")
            if env is None and ":" in made["id"] and not making.is_foreign(made["id"]):
                # Gymnasium imports what stands before the colon: not because a file says so.
                raise FileError(f"{where} names a module to import, {made['id']!r}: give it as env (--env)")
            env = made["id"]
            options |= {"env_options": made["options"]} if made["options"] else {}
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise FileError(f"{where} is not a saved learner: {type(error).__name__}: {error}") from error
    if env is None:
        raise ValueError(
            f"{where} was saved with an environment of its own: give it as env, "
            "in Python: Learner.load(FOLDER, env) or recollect.training.resuming.resume(FOLDER, env)"
        )
    return agent, env, options


def _made(described: Any, where: Path) -> Any:
    try:
        return named.restore(described)
    except FileError as error:
        raise FileError(f"{where}: {error}") from error


def _described(agent: Any) -> dict[str, Any]:
    if not isinstance(agent, Agent):
        raise TypeError(f"agent={agent!r} is no agent: give the one that the learner was made with")
    return named.describe(agent)


def as_saved(agent: Any, given: dict[str, Any], described: dict[str, Any], where: Path) -> Any:
    """The agent whose description is ``given``, if the one that was saved fits it."""
    saved = {"class": described["class"], **described["options"]}
    now = {"class": given["class"], **{name: given["options"].get(name) for name in described["options"]}}
    if wrong := differences(saved, now, ()):
        raise RecollectError(f"{where}: the agent is not the one that was saved: {'; '.join(wrong)}")
    return agent


def refuse_other_spaces(learner: Any, meta: dict[str, Any], where: Path) -> None:
    """Refuse a learner whose environment has other spaces than it was saved with."""
    found = meta.get("spaces")
    for name, space in (("observation", learner.observation_space), ("action", learner.action_space)):
        expected = found.get(name) if isinstance(found, dict) else None
        if not isinstance(expected, str):
            raise FileError(f"{where} is not a saved learner: it does not say what its {name} space was")
        if not spaces.is_described_by(space, expected):
            raise RecollectError(
                f"{learner.source.name} has the {name} space {spaces.describe(space)}, "
                f"the learner was saved with {expected}"
            )


def check_counts(found: checkpoints.Checkpoint) -> None:
    """Refuse a checkpoint that is not a learner's, or whose numbers no learner has."""
    meta = found.meta
    if meta.get("kind") != "learner":
        raise FileError(f"{found.path} is a checkpoint of something else: {meta.get('kind')}")
    kinds = {"steps": int, "logged": int, "goal": int, "exact": bool, "spaces": dict}
    if any(type(meta.get(name)) is not kind for name, kind in kinds.items()):
        raise FileError(f"{found.path} is not a saved learner: {', '.join(kinds)} are missing or no numbers")
    if not 0 <= meta["logged"] <= meta["steps"] < MOST_STEPS or not 0 <= meta["goal"] < MOST_STEPS:
        raise FileError(f"{found.path} is not a saved learner: steps, logged or goal are outside what they can be")
    seconds = meta.get("seconds", 0.0)
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < 1e12:
        raise FileError(f"{found.path} is not a saved learner: it took {seconds!r} seconds")
    if np.shape(found.arrays.get("fleet.lengths", 0)) != (meta.get("copies"),):
        raise FileError(f"{found.path} is not a saved learner of {meta.get('copies')} copies")


def refuse_forged_indices(agent: Any, outputs: int) -> None:
    """Refuse a state that points outside of its own memory or actions, whoever runs it."""
    stored, decision = getattr(agent, "memory", None), getattr(agent, "decision", None)
    bounds: list[tuple[str, Any, int]] = []
    if stored is not None and decision is not None:
        slots = np.shape(stored.ranks)[-1]
        bounds = [("ranks", stored.ranks, slots), ("slots", decision.slot, slots - 1)]
    action = np.asarray(getattr(decision, "action", 0.0))
    if action.dtype.kind in "iu":
        bounds.append(("actions", action, outputs - 1))
    for name, found, most in bounds:
        if ((np.asarray(found) < 0) | (np.asarray(found) > most)).any():
            raise FileError(f"the state is not valid: {name} are outside 0 to {most}")


def restore(learner: Any, found: checkpoints.Checkpoint, allow_inexact: bool) -> None:
    """Put a fresh learner where the checkpoint was made."""
    meta, arrays = found.meta, found.arrays
    like = {"live": learner.host.like(), "normalizer": learner.normalizer.state()}
    parts = {"drawn", "rows", "recent", "entropies", *(name for name in arrays if name.startswith("fleet."))}
    try:
        state = trees.restore({name: array for name, array in arrays.items() if name not in parts}, like)
        learner.fleet.restore({name[6:]: array for name, array in arrays.items() if name.startswith("fleet.")})
        blank = {"rows": learner._rows, "recent": learner._recent}
        if "entropies" in arrays:  # releases before 0.2 took none down
            blank["entropies"] = learner._entropies
        if "drawn" in arrays:
            action = jax.eval_shape(learner.agent.actions.nothing)
            kind = np.int64 if arrays["drawn"].dtype == np.int64 and action.dtype == np.int32 else action.dtype
            blank["drawn"] = np.zeros((learner.copies, *action.shape), kind)
        kept = trees.restore({name: arrays[name] for name in blank if name in arrays}, blank)
        live = Live(*state["live"])
        refuse_forged_indices(live.agent, learner.actions.outputs)
        learner._packed = learner.host.pack(live)
        learner.normalizer.restore(state["normalizer"])
    except FileError as error:
        raise FileError(f"{found.path}: {error}") from error
    learner._rows, learner._recent, learner._drawn = kept["rows"], kept["recent"], kept.get("drawn")
    learner._entropies = kept.get("entropies", learner._entropies)
    learner.steps, learner._logged, learner.goal = meta["steps"], meta["logged"], meta["goal"]
    learner._seconds = float(meta.get("seconds", 0.0))
    learner._away, learner._allow_inexact = learner._drawn is not None, allow_inexact
    was, now = meta.get("versions"), versions()
    same = isinstance(was, dict) and all(was.get(name) == now[name] for name in BITS_DEPEND_ON)
    learner.exact = meta["exact"] and same


def load(path: Path, fallback: bool) -> checkpoints.Checkpoint:
    """The newest checkpoint of what was saved to ``path``."""
    place = place_of(path)
    files.refuse_links(place)
    if place != path and not checkpoints.listing(place) and (at_work := holder(path)) is not None:
        every = seconds_between_checkpoints(path, files.read_json(path / "config.json"))
        raise FileError(
            f"{path} holds no checkpoint yet, and is being written by {at_work}: the first one comes {every:g} s after "
            "the start of the run, or when it is interrupted"
        )
    return checkpoints.load(place, fallback=fallback)
