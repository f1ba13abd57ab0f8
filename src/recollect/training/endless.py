"""Training without episode ends: in environments that never end an episode (`recollect.envs.continuing`)."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from recollect import prng
from recollect.agents.base import Agent
from recollect.engines.loop import broadcast, start_run
from recollect.envs.base import Environment
from recollect.training.batch import check


@functools.partial(jax.jit, static_argnames=("env", "blocks", "block"))
def _live(agents: Agent, env: Environment, seeds: Array, blocks: int, block: int) -> tuple[Array, Any]:
    def one_life(agent, seed):
        start = start_run(agent, env, seed, 1)

        def one_step(carry, _):
            t, agent_state, env_state, total = carry
            key_env, _, key_learn, key_begin = (prng.at(start.key, t, purpose) for purpose in range(4))
            env_state, timestep = env.step(env_state, agent_state.decision.action, key_env)
            agent_state = agent.learn(agent_state, timestep, key_learn)
            agent_state, _ = agent.begin(agent_state, timestep.observation, key_begin)
            return (t + 1, agent_state, env_state, total + timestep.reward), None

        def one_block(carry, _):
            (t, agent_state, env_state, total), _ = jax.lax.scan(one_step, (*carry, jnp.zeros(())), length=block)
            return (t, agent_state, env_state), total / block

        first = (jnp.zeros((), jnp.int32), start.agent, start.env)
        (_, agent_state, _), rates = jax.lax.scan(one_block, first, length=blocks)
        return rates, agent_state

    return jax.vmap(one_life)(agents, seeds)


def live(
    agent: Agent, env: Environment, steps: int, seeds: Sequence[int], *, blocks: int = 20
) -> tuple[np.ndarray, Any]:
    """Endless runs, one per seed: reward per step [seed, block], over equal blocks, and the agents' last states.

    For environments that never end an episode (``recollect.envs.continuing``): nothing is ever reset.
    """
    check(seeds, steps, blocks)
    rates, states = _live(broadcast(agent, len(seeds)), env, jnp.array(seeds, jnp.uint32), blocks, steps // blocks)
    return np.asarray(rates), states
