"""The step compiler on a real GPU: the processor's bits, and training through it; skipped without a GPU."""

import jax
import numpy as np
import pytest

from engines.compiler.compared import in_lanes, inputs_of, recommended
from recollect import EpisodicActorCritic, SecretInformant, train
from recollect.agents.recurrent import RecurrentActorCritic
from recollect.engines import choice, compiled_gpu, loop
from recollect.engines.compiler import cuda_driver
from recollect.envs.t_maze import TMaze

if cuda_driver.why_none() is not None:
    pytest.skip(f"no GPU here: {cuda_driver.why_none()}", allow_module_level=True)

pytestmark = pytest.mark.gpu

RUNS = 70
LIMITS = (10**6, 10**4, 200, 10**6)
PAIRS = {
    "paper": (EpisodicActorCritic(memory_size=3), SecretInformant(length=10, decisions=2)),
    "T-maze": (EpisodicActorCritic(memory_size=4, hidden=6), TMaze(length=5)),
    "recommended": (recommended(memory_size=4, hidden=6), SecretInformant(length=4)),
    "backpropagation": (RecurrentActorCritic(width=5), TMaze(length=4)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_gpu_has_the_bits_of_the_processor(name):
    agent, env = PAIRS[name]
    runs = compiled_gpu.Runs(loop.rows(agent, RUNS), env, LIMITS)
    runs.begin(range(RUNS))
    step = compiled_gpu._traced(jax.tree.structure(agent), env, 128)[1]
    ended = in_lanes(step, runs._grid.unload(), inputs_of(agent, LIMITS), 1003)
    for count in (1, 502, 500):
        runs._grid.advance(runs._step, count)
    wanted, found = (step.state.numbers(tree) for tree in (ended, runs._grid.unload()))
    assert [k for k, (a, b) in enumerate(zip(wanted, found, strict=True)) if a.tobytes() != b.tobytes()] == []
    assert runs.counters()[0].tolist() == [1003] * RUNS


def test_training_takes_a_gpu_for_many_runs_and_when_it_is_asked_for():
    agent, env = PAIRS["T-maze"]
    assert choice.for_training(agent, env, runs=4096).engine == "compiled-gpu"
    found = choice.for_training(agent, env, runs=2)
    assert found.engine != "compiled-gpu" and "too few" in found.passed_over["compiled-gpu"]
    result = train(agent, env, 40, range(50), bins=4, engine="compiled-gpu", max_episode_length=100)
    assert result.engine == "compiled-gpu" and result.finished.all() and not np.isnan(result.returns).any()
    again = train(agent, env, 40, range(40, 50), bins=4, engine="compiled-gpu", max_episode_length=100)
    np.testing.assert_array_equal(again.returns, result.returns[40:])
    np.testing.assert_array_equal(again.steps, result.steps[40:])
