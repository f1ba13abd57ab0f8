"""An episode of a learner, recorded: what it saw, held in memory, recalled and did at each step, without learning."""

import functools
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import jax
import numpy as np

from recollect.agents import named
from recollect.agents.base import Turn
from recollect.engines.host import Live, TimeStep, keys_of
from recollect.envs import making
from recollect.errors import RecollectError
from recollect.training.online import Learner
from recollect.training.player import check_other, check_single
from recollect.view import format as recording
from recollect.view import names
from recollect.view.frames import Frames
from recollect.view.stays import Stays

LIMIT_STEPS = 1000
"""Most steps of an episode that are recorded, unless asked otherwise."""

Progress = Callable[[int], None]


def showing(learner: Learner) -> gym.Env:
    """An environment of the learner's kind that draws itself, where it can; never the one that is learned in."""
    made = learner.description()["environment"]["made"]
    check_single(learner.source.first)
    if made is None:
        if learner.source.make is None:
            raise RecollectError(
                "the learner was given one environment, which it learns in: give Learner an id or a function that "
                "makes environments, so that an episode can be played in one of its own"
            )
        env = learner.source.make()
        check_other(env, learner)
        return env
    env = making.make(made["id"], **made["options"])
    modes = env.metadata.get("render_modes") or ()
    mode = next((mode for mode in ("rgb_array", "ansi") if mode in modes), None)
    if mode is None or "render_mode" in made["options"]:
        return env
    try:
        return making.make(made["id"], **made["options"], render_mode=mode)
    except Exception:  # one that says it draws and cannot, for want of a library say, is played without pictures
        return env
    finally:
        env.close()


def describe(learner: Learner, env: Any, title: str) -> dict[str, Any]:
    """What a recording says besides its episodes."""
    told = learner.description()
    shape = learner.vector.shape
    actions = names.of_actions(learner.action_space)
    kind = type(learner.actions.distribution).__name__.lower()
    sizes = list(getattr(learner.actions.distribution, "sizes", [len(actions)]))
    made = told["environment"]["made"]
    return {
        "format": recording.FORMAT,
        "version": recording.VERSION,
        "title": title,
        "environment": {"name": learner.source.name, "options": made["options"] if made else {}},
        "agent": {"name": named.name_of(learner.agent), **told["agent"]},
        "observation": {"names": _seen(learner, env), "shape": list(shape) if shape else None},
        "actions": {
            "names": names.told_by(env, "action_names", len(actions)) or actions,
            "kind": kind,
            "sizes": sizes,
        },
    }


def _seen(learner: Learner, env: Any) -> list[str]:
    """What the elements of an observation are called."""
    told = names.told_by(env, "observation_names", learner.vector.size)
    return told or names.of_observations(learner.observation_space)


def play(
    learner: Learner, env: Any, seed: int = 0, limit: int = LIMIT_STEPS, progress: Progress | None = None
) -> dict[str, Any]:
    """One episode of at most ``limit`` steps, as a recording has it.

    The environment is reset with ``seed``, which also seeds the agent's choices: the same for every agent that plays.
    """
    player, size = learner.player(seed), learner.vector.size
    explain = _explainer(learner.agent)
    columns: dict[str, list[Any]] = {"observation": [], "action": [], "reward": []}
    hidden: dict[str, list[np.ndarray]] = {}
    stays, frames, reward, over, ended = Stays(), Frames(), 0.0, False, "cut"
    observation, _ = env.reset(seed=seed)
    before = player.state()
    while not over and len(columns["reward"]) < limit:
        raw = np.zeros(size, np.float32)
        learner.vector.write(observation, raw)
        frames.add(_render(env))
        action = player.act(observation, float(reward))
        live = player.live()
        observation, reward, terminated, truncated, _ = env.step(action)
        following = np.zeros(size, np.float32)
        learner.vector.write(observation, following)
        learner.normalizer.observe(following, 0, learn=False)
        came: tuple[Any, ...] = (
            following,
            np.float32(learner.normalizer.scaled(float(reward), 0)),
            bool(terminated),
            bool(truncated),
        )
        told = jax.device_get(explain(live, before, TimeStep(*came)))
        before = live.agent
        columns["observation"].append(raw)
        columns["action"].append(np.asarray(live.agent.decision.action))
        columns["reward"].append(float(reward))
        for name in ("policy", "value", "delta"):
            if name in told:
                columns.setdefault(name, []).append(told[name])
        for name, vector in told.get("hidden", {}).items():
            hidden.setdefault(name, []).append(vector)
        if "memory" in told:
            stays.add(told["memory"])
        over = bool(terminated or truncated)
        ended = "terminated" if terminated else "truncated" if truncated else "cut"
        if progress is not None:
            progress(len(columns["reward"]))
    episode: dict[str, Any] = {
        "trained": learner.steps,
        "seed": seed,
        "steps": len(columns["reward"]),
        "return": float(np.sum(columns["reward"])),
        "ended": ended,
        "observation": recording.encode_values(columns.pop("observation")),
        **{name: recording.encode(np.stack(values)) for name, values in columns.items()},
        **frames.document(),
    }
    if hidden:
        episode["hidden"] = [{"name": k, "values": recording.encode(np.stack(v))} for k, v in hidden.items()]
    if len(stays):
        seen = recording.decode(episode["observation"])
        named_keys = getattr(learner.agent, "key_names", None)
        episode["memory"] = stays.document(seen, named_keys(_seen(learner, env)) if named_keys else None)
    return episode


def record(
    learner: Learner, seed: int = 0, limit: int = LIMIT_STEPS, title: str = "", progress: Progress | None = None
) -> dict[str, Any]:
    """A recording of one episode of what the learner has learned by now."""
    env = showing(learner)
    try:
        head = describe(learner, env, title or learner.source.name)
        return {**head, "episodes": [play(learner, env, seed, limit, progress)]}
    finally:
        env.close()


@functools.lru_cache(maxsize=16)
def _explainer(agent: Any) -> Callable[..., Any]:
    """Compiled once for an agent, however many of its snapshots play."""

    def explain(live: Live, before: Any, timestep: TimeStep) -> dict[str, Any]:
        turn = Turn(before, keys_of(live, live.time - 1)[1], keys_of(live, live.time)[0])
        return agent.explain(live.agent, timestep, turn)

    return jax.jit(explain)


def _render(env: Any) -> Any:
    if getattr(env, "render_mode", None) not in ("rgb_array", "ansi"):
        return None
    try:
        return env.render()
    except Exception:  # pictures are an extra: many environments need a library for them that is not there
        return None
