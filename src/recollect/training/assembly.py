"""What a learner is made of: an agent that fits the environment's spaces, the environments, and the compiled calls.

What cannot be is refused here, before anything is compiled or any memory is asked for.
"""

from typing import Any, NamedTuple

import gymnasium as gym
import jax
import numpy as np

from recollect import prng
from recollect.agents.base import Agent, check_choice
from recollect.agents.convolution import Convolution
from recollect.engines import forking
from recollect.engines.choice import for_learner, host_for
from recollect.engines.host import RECENT
from recollect.envs import making, spaces
from recollect.errors import RecollectError
from recollect.store import trees
from recollect.store.provenance import encode, native, plain
from recollect.training import arguments, refusing
from recollect.training.env_pool import Copies, Fleet, Vector
from recollect.training.normalization import Normalizer


class Parts(NamedTuple):
    """The parts, fitted to each other."""

    source: making.Source
    made: dict[str, Any] | None  # id and options, where the environment was named by an id
    observation_space: gym.Space
    action_space: gym.Space
    vector: spaces.Observations
    actions: spaces.Actions
    agent: Any
    normalizer: Normalizer
    fleet: Fleet
    choice: Any  # which engine serves the agent, and why no faster one does
    host: Any
    seed: int
    copies: int
    shared: bool


def assemble(
    agent: Agent,
    env: Any,
    *,
    seed: Any,
    copies: Any,
    learners: str,
    env_options: dict[str, Any] | None,
    normalize: tuple[bool, bool],
    pictures: str,
    engine: str,
    check: bool,
) -> Parts:
    """Make the parts of a learner from its arguments, or refuse them."""
    forking.refuse()
    check_choice("pictures", pictures, ("auto", "agent"))
    check_choice("learners", learners, ("one", "each"))
    copies = arguments.count("copies", copies)
    seed = arguments.seed("seed", seed, 2**31 - 1)
    if seed >= 2**31 - copies:
        raise ValueError(f"seed={seed} must be a whole number between 0 and 2^31 - 1, for all of copies={copies}")
    source, made = _source(env, env_options)
    first = source.first
    vector = isinstance(first, gym.vector.VectorEnv)
    if vector:
        if copies not in (1, first.num_envs):
            raise ValueError(f"copies={copies}, but the vector environment has {first.num_envs}")
        copies = int(first.num_envs)
    elif copies > 1 and source.make is None:
        raise ValueError(f"copies={copies} needs an id or a function that makes environments, got one environment")
    observed: gym.Space = first.single_observation_space if vector else first.observation_space
    acted: gym.Space = first.single_action_space if vector else first.action_space
    seen, actions = spaces.observations(observed), spaces.actions(acted)
    fitted: Any = agent.replace(actions=actions.distribution)
    if pictures == "auto" and seen.shape is not None and getattr(agent, "pictures", source) is None:
        fitted = fitted.replace(pictures=Convolution(seen.shape))
    _refuse_too_large(fitted, seen.size, actions.outputs, copies)
    if check and not vector:
        making.check(first, source.name)
    shared = learners == "one" and copies > 1
    discount = float(getattr(agent, "discount", 0.99))
    normalizer = Normalizer(seen.size, copies, *normalize, discount, alone=not shared)
    seeds = [(seed, k) if shared or copies == 1 else (seed + k, 0) for k in range(copies)]
    known = (source.name, copies, seen, actions, normalizer, seeds)
    if vector:
        fleet: Fleet = Vector(first, *known)
    else:
        fleet = Copies(_one_each(source, copies), *known)
    chosen = for_learner(fitted, seen.size, actions.outputs, copies, shared, engine=engine)
    host = host_for(fitted, seen.size, actions.outputs, copies, shared, engine=chosen.engine)
    return Parts(
        source, made, observed, acted, seen, actions, fitted, normalizer, fleet, chosen, host, seed, copies, shared
    )


def _one_each(source: making.Source, copies: int) -> list[Any]:
    """An environment for each copy, the first among them; refused where a function gives the same one again."""
    envs, known = [source.first], {id(making.innermost(source.first))}
    while source.make is not None and len(envs) < copies:
        envs.append(source.make())
        known.add(id(making.innermost(envs[-1])))
        if len(known) < len(envs):
            raise RecollectError(
                f"{source.name}: the function returned the same environment twice, and each of copies={copies} needs "
                "one of its own: make the environment within the function"
            )
    return envs


def _source(env: Any, options: dict[str, Any] | None) -> tuple[making.Source, dict[str, Any] | None]:
    """Where environments come from, and the id and options that a run folder describes them by."""
    options = {name: native(value) if np.ndim(value) == 0 else value for name, value in (options or {}).items()}
    if not isinstance(env, str):
        if options:
            raise ValueError("env_options go with an id; give a function that makes the environment instead")
        return making.source(env), None
    try:
        encode(options, "env_options")
    except TypeError as error:
        raise ValueError(f"{error}; give a function that makes the environment instead") from error
    made = {"id": env, "options": plain(options)}
    if not options:
        return making.source(env), made
    return making.Source(env, making.make(env, **options), lambda: making.make(env, **options)), made


def _refuse_too_large(agent: Any, size: int, outputs: int, copies: int) -> None:
    """Refuse what cannot fit, before anything is made that holds it."""
    fix = "a smaller memory_size, hidden or width, smaller observations, or fewer copies"
    rows = copies * (2 + RECENT + 4) * size * 4  # observations as they come, recent ones, statistics
    refusing.too_large(rows, f"copies={copies}: observations of {size:,} numbers", fix)
    try:
        state = jax.eval_shape(lambda: agent.init(prng.key(0), size, outputs))
        each = trees.size(state)
    except OverflowError:  # sizes that JAX cannot even write down
        each = 2**63
    refusing.too_large(rows + copies * each, f"copies={copies}: the agent's state and observations", fix)
