"""What training refuses, said in one place: what is no agent or JAX environment, does not fit, or is not finite."""

import os
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np

from recollect import prng
from recollect.agents.base import Agent, check_count
from recollect.envs.base import TimeStep
from recollect.errors import RecollectError, printable


def no_pair(agent: Any, env: Any) -> None:
    """Refuse what is no agent and no JAX environment, naming the argument; one of the user's own is tried in form."""
    _no_agent(agent, env)
    _no_environment(env)
    for name in ("observation_size", "num_actions"):
        check_count(f"env.{name}", getattr(env, name))
    if not type(env).__module__.startswith("recollect."):
        jax.eval_shape(lambda: _try(env))


def _no_agent(agent: Any, env: Any) -> None:
    if isinstance(agent, Agent):
        for path, leaf in jax.tree_util.tree_leaves_with_path(agent):
            if not isinstance(leaf, (int, float)) and not hasattr(leaf, "dtype"):
                raise TypeError(
                    f"agent{jax.tree_util.keystr(path)}={_short(leaf)}: JAX does not know what it holds: make its "
                    "class a dataclass(frozen=True), and put @recollect.agents.base.register before that"
                )
        return
    if isinstance(env, Agent):
        what = "and env are swapped: train(agent, env, episodes)"
    elif isinstance(agent, type):
        what = f"is a class: give an object of it, as in {agent.__name__}()"
    else:
        what = "must be an agent, such as recollect.GeneralActorCritic()"
    raise TypeError(f"agent={_short(agent)} {what}")


def _no_environment(env: Any) -> None:
    lacks = [name for name in ("observation_size", "num_actions", "reset", "step") if not hasattr(env, name)]
    if isinstance(env, (str, gym.Env, gym.vector.VectorEnv)):
        what = (
            "is not a JAX environment, such as recollect.envs.TMaze(): recollect.Learner takes Gymnasium's, as in "
            "Learner(env='CartPole-v1')"
        )
    elif isinstance(env, type):
        what = f"is a class: give an object of it, as in {env.__name__}()"
    elif lacks:
        what = f"is not a JAX environment: it has no {', '.join(lacks)}; recollect.envs.base says what one is"
    elif type(env).__hash__ is None:
        what = "must be hashable: make its class a dataclass(frozen=True), or give it __hash__"
    else:
        return
    raise TypeError(f"env={_short(env)} {what}")


def _try(env: Any) -> None:
    """Reset and step once, in form only."""
    begun = env.reset(prng.key(0))
    if not isinstance(begun, tuple) or len(begun) != 2:
        raise TypeError(f"env.reset must return (state, observation), got {_form(begun)}")
    state, observation = begun
    _check_shape("env.reset: the observation", observation, (env.observation_size,))
    stepped = env.step(state, jnp.zeros((), jnp.int32), prng.key(0))
    fields = TimeStep._fields
    if not isinstance(stepped, tuple) or len(stepped) != 2 or not all(hasattr(stepped[1], name) for name in fields):
        raise TypeError(
            f"env.step must return (state, TimeStep), with recollect.envs.TimeStep({', '.join(fields)}), got "
            f"{_form(stepped)}"
        )
    after, timestep = stepped
    for name in fields:
        shape = (env.observation_size,) if name == "observation" else ()
        _check_shape(f"env.step: {name}", getattr(timestep, name), shape)
    forms = [jax.tree.map(jnp.shape, tree) for tree in (state, after)]
    if jax.tree.structure(state) != jax.tree.structure(after) or forms[0] != forms[1]:
        raise TypeError(
            f"env.step must return a state of the form that env.reset returns: shapes {_short(forms[0])}, got "
            f"{_short(forms[1])}"
        )


def _check_shape(what: str, value: Any, shape: tuple[int, ...]) -> None:
    if jnp.shape(value) != shape:
        wanted = f"(observation_size,) = {shape}" if shape else "(), one number"
        raise ValueError(f"{what} has the shape {jnp.shape(value)}; it must be {wanted}")


def _form(value: Any) -> str:
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else f"a {type(value).__name__}"


def _short(value: Any) -> str:
    return printable(repr(value), 200)


def too_large(needed: int, whose: str, fix: str, there: int | None = None) -> None:
    """Refuse what cannot fit, by its bytes, before any of them is asked for.

    Args:
        needed: how many bytes it would take.
        whose: what would take them.
        fix: what to take less of.
        there: how many there are (default: this machine's memory).
    """
    if there is None and hasattr(os, "sysconf"):
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if there is not None and needed > there:
        raise ValueError(f"{whose} need {needed:,} bytes, this machine has {there:,}: take {fix}")


def not_finite(env: Any, seeds: Sequence[int], faults: np.ndarray) -> None:
    """Refuse to continue after a step that was not finite: its number, negative if it was the update that was not."""
    if faults.any():
        at = int(np.argmax(faults != 0))
        what = "the environment gave a reward or an observation that is" if faults[at] > 0 else "the update was"
        raise RecollectError(
            f"seed {seeds[at]}: {what} not finite at step {abs(int(faults[at])):,} of {env!r}; "
            "nothing was learned from that step"
        )
