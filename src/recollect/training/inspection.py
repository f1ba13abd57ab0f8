"""Looking inside: one episode of a trained agent, step by step, with what it held in memory and what it made of it."""

import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from recollect.agents.episodic import EpisodicActorCritic
from recollect.agents.general import GeneralActorCritic
from recollect.envs.base import TimeStep
from recollect.errors import RecollectError
from recollect.training import arguments
from recollect.training.online import Learner
from recollect.training.player import Player, environment, play_episode
from recollect.training.progress import counting
from recollect.training.returned import EnvironmentFault


class Moment(NamedTuple):
    """One time step. Arrays over slots have NaN where a slot is empty."""

    observation: np.ndarray  # the state that the agent saw: the vector, or the features of a picture
    items: np.ndarray  # [n, s] stored states
    weights: np.ndarray  # [n] the write weight each was stored with
    since: np.ndarray  # [n] the time step it was seen at, the latest that fits
    probabilities: np.ndarray  # [n] the query's
    slot: int  # recalled; −1 from an empty memory
    recalled: np.ndarray
    action: Any
    reward: float


def play(
    learner: Learner, seed: int = 0, limit: int = 1000, *, env: Any = None, progress: bool = False
) -> list[Moment]:
    """An episode of at most ``limit`` steps, without learning, in an environment of its own.

    ``env``: as for ``Learner``, where that was given one environment and cannot make another. ``progress``: say on
    stderr how many steps are done, where it takes a while.
    """
    agent = learner.agent
    if not isinstance(agent, (EpisodicActorCritic, GeneralActorCritic)):
        raise RecollectError(f"{type(agent).__name__} has no episodic memory to look into")
    seed, limit = arguments.seed("seed", seed), arguments.count("limit", limit)
    nothing = TimeStep(jnp.zeros(learner.vector.size), jnp.zeros(()), jnp.zeros((), bool), jnp.zeros((), bool))
    look = jax.jit(lambda state: agent.explain(state, nothing)["memory"])
    see = jax.jit(getattr(agent, "see", lambda params, observation: observation))
    moments: list[Moment] = []

    def moment(player: Player, action: Any, reward: float) -> Moment:
        state = player.state()
        held = look(state)
        filled, slot = np.asarray(held["filled"]), int(held["recalled"])
        stored = state.memory.items
        items, times = np.asarray(getattr(stored, "observation", stored)), getattr(stored, "time", None)
        since = np.full(len(filled), np.nan) if times is None else np.where(filled, np.asarray(times), np.nan)
        for k in np.flatnonzero(filled) if times is None else ():
            found = [t for t, m in enumerate(moments) if np.allclose(m.observation, items[k], atol=1e-6)]
            since[k] = found[-1] if found else np.nan
        weights = np.where(filled, np.exp(np.asarray(state.memory.log_weights)), np.nan)
        probabilities = np.where(filled, np.asarray(held["probabilities"]), np.nan)
        here = np.asarray(see(state.params, state.decision.observation))
        recalled = items[slot] if slot >= 0 else np.zeros_like(here)
        return Moment(here, items, weights, since, probabilities, slot, recalled, action, reward)

    def fault(step: int, what: str) -> EnvironmentFault:
        return EnvironmentFault(learner.source.name, seed, step, what)

    told = counting(f"playing {learner.source.name}", limit, "steps at most", progress)
    with environment(learner, env) as other, told as tell:
        player = learner.player(seed)
        for action, reward, _ in itertools.islice(play_episode(player, other, seed, fault), limit):
            moments.append(moment(player, action, reward))
            tell(len(moments))
    return moments


def text_of(vector: np.ndarray) -> str:
    """A state in few characters: bits as bits, else numbers; long ones by their largest elements.

    >>> text_of(np.array([0.0, 1.0, 1.0])), text_of(np.array([0.25, -1.0]))
    ('011', '0.25 -1')
    >>> text_of(np.eye(20)[3] * 0.5)
    '[3]=0.5'
    """
    if np.isin(vector, (0.0, 1.0)).all() and len(vector) <= 40:
        return "".join("01"[int(x)] for x in vector)
    if len(vector) <= 10:
        return " ".join(f"{x:.2g}" for x in vector)
    largest = sorted(np.argsort(-np.abs(vector), kind="stable")[:5])
    return " ".join(f"[{k}]={vector[k]:.2g}" for k in largest if vector[k])


def lines(moments: list[Moment]) -> tuple[list[str], list[list[str]]]:
    """The episode as a table: one column per slot, with the step it holds, its weight and the query's probability."""
    n = len(moments[0].weights)
    columns = ["t", "state", *(f"slot {k}: t, weight, query" for k in range(n)), "recalled", "action", "reward"]
    rows = []
    for t, m in enumerate(moments):
        slots = []
        for k in range(n):
            if np.isnan(m.weights[k]):
                slots.append("")
                continue
            when = "?" if np.isnan(m.since[k]) else f"{int(m.since[k])}"
            slots.append(f"{'▸' if k == m.slot else ' '}{when}, {m.weights[k]:.2f}, {m.probabilities[k]:.2f}")
        recalled = text_of(m.recalled) if m.slot >= 0 else "nothing"
        rows.append([str(t), text_of(m.observation), *slots, recalled, str(m.action), f"{m.reward:g}"])
    return columns, rows
