"""The online loop on an NVIDIA GPU: one persistent kernel, parameters in registers, built by CuPy."""

import functools
import importlib.util
from importlib import resources
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from recollect.agents.episodic import EpisodicActorCritic
from recollect.engines import packing
from recollect.envs.secret_informant import SecretInformant

_MEMORIES = {"reservoir": 0, "uniform": 1, "fifo": 2, "none": 3}


def lanes(agent: EpisodicActorCritic, env: SecretInformant) -> int:
    """Lanes that live one run: enough for the widest of its vectors."""
    n = agent.memory_size
    return max(agent.hidden, env.observation_size, env.num_actions, n, (n + 6) // 4 + 1)


def why_not(agent: Any, env: Any) -> str | None:
    """Why the kernel cannot run this pair here, or None if it can."""
    if (why := packing.why_not(agent, env)) is not None:
        return why
    if (needed := lanes(agent, env)) > 32:
        return f"memory_size, hidden or the environment take {needed} lanes of a GPU, and there are 32"
    if jax.default_backend() != "gpu":
        return "JAX finds no GPU here"
    if importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed: pip install 'recollect[cuda]'"
    return None


@functools.cache
def _module(options: tuple[tuple[str, int], ...]):
    import cupy  # pyright: ignore[reportMissingImports]

    source = (resources.files("recollect.engines") / "step.cu").read_text(encoding="utf-8")
    flags = ("-std=c++17", *(f"-D{name}={value}" for name, value in options))
    return cupy.RawModule(code=source, options=flags)


def advance(
    agents: EpisodicActorCritic,
    env: SecretInformant,
    packed: packing.Packed,
    limits: tuple[int, int, int, int],
    records: int,
    record: int,
) -> tuple[Array, Array]:
    """Go on for ``records`` times ``record`` steps, in place; gives snapshots [record, P, run], marks [record, 2, run].

    A snapshot is every parameter from the query network on, a mark the episodes and steps done.
    """
    import cupy  # pyright: ignore[reportMissingImports]

    g = lanes(agents, env)
    runs = packed.ints.shape[1]
    traces = bool(np.any(np.asarray(agents.trace_decay) > 0))
    sizes = {"S": env.observation_size, "H": agents.hidden, "A": env.num_actions, "N": agents.memory_size}
    sizes |= {"L": env.length, "D": env.decisions, "G": g, "WARPS": 1, "TRACES": int(traces)}
    sizes |= {"EVERY": int(agents.estimator == "every"), "MEMORY": _MEMORIES[agents.memory]}
    sizes |= {"ORACLE": -1 if agents.oracle_bit is None else agents.oracle_bit, "RECORD": record}
    kernel = _module(tuple(sizes.items())).get_function("advance")
    parameters = packing.query_and_write_parameters(agents, env)
    snapshots = cupy.empty((records, parameters, runs), cupy.float32)
    marks = cupy.empty((records, 2, runs), cupy.int32)
    hyper = cupy.from_dlpack(jax.block_until_ready(packing.hyperparameters(agents)))
    floats, ints, sums = (cupy.from_dlpack(jax.block_until_ready(x)) for x in packed[:3])
    episodes, bin_size, cap, max_steps = limits
    numbers = [runs, records, episodes, bin_size, sums.shape[1], cap, max_steps]
    kernel(
        (-(-runs // (32 // g)),),
        (32,),
        (floats, ints, hyper, sums, snapshots, marks, cupy.asarray(env.states), *map(cupy.int32, numbers)),
    )
    cupy.cuda.get_current_stream().synchronize()
    return jnp.from_dlpack(snapshots), jnp.from_dlpack(marks)
