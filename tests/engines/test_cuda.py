"""The GPU kernel against the definition; needs a GPU and CuPy, and is skipped without."""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recollect import EpisodicActorCritic, SecretInformant
from recollect.engines import loop

if jax.default_backend() != "gpu" or importlib.util.find_spec("cupy") is None:
    pytest.skip("no GPU with CuPy here", allow_module_level=True)

pytestmark = pytest.mark.gpu

CASES = [
    ({}, {}),
    ({"trace_decay": 0.7, "estimator": "every", "bias_rate": 0.5, "policy_rate": 0.8}, {}),
    ({"estimator": "every", "memory_size": 1, "trace_decay": 0.0}, {"decisions": 1}),
    ({"memory": "uniform", "memory_size": 4}, {"length": 7, "decisions": 3, "actions": 4}),
    ({"memory": "fifo", "hidden": 14}, {"length": 20, "correct_path_bit": False}),
    ({"memory": "none"}, {}),
    ({"oracle_bit": 3, "credit_cap": 5.0}, {}),
    ({"memory_size": 32, "hidden": 12}, {"length": 40}),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_the_kernel_follows_the_definition(case):
    options, world = CASES[case]
    env = SecretInformant(**{"length": 10, "decisions": 2, **world})
    agents = loop.broadcast(EpisodicActorCritic(**options), 48)
    limits = (1000, 100, 10**9, 10**9)
    runs = loop.start(agents, env, jnp.arange(48, dtype=jnp.uint32), 10)
    copy = jax.tree.map(jnp.copy, runs)
    found, records = loop.advance("cuda", agents, env, runs, limits, 1)
    expected, expected_records = loop.advance("jax", agents, env, copy, limits, 1)
    for name in ("steps", "episode", "length", "faults", "sums", "env"):
        jax.tree.map(np.testing.assert_array_equal, getattr(found, name), getattr(expected, name))
    for name in ("items", "ranks", "seen"):
        np.testing.assert_array_equal(getattr(found.agent.memory, name), getattr(expected.agent.memory, name))
    close = {"rtol": 1e-4, "atol": 2e-5}
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **close), found.agent.params, expected.agent.params)
    if options.get("trace_decay") != 0.0:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **close), found.agent.traces, expected.agent.traces)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **close), records, expected_records)
