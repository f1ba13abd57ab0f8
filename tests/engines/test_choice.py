"""The engine of an agent: the fastest that can serve, and why another cannot."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from recollect import EpisodicActorCritic, RecurrentActorCritic, SecretInformant
from recollect.agents import named
from recollect.agents.base import register
from recollect.agents.realtime import RealTimeActorCritic
from recollect.engines import choice, compiled_gpu
from recollect.engines.compiled_host import CompiledHost
from recollect.engines.compiler import cuda_driver
from recollect.envs.signed_informant import SignedInformant
from recollect.training.batch import train
from tiers import first_quick, slow

ENV = SecretInformant(length=2, actions=2)


@register
@dataclasses.dataclass(frozen=True)
class Own(EpisodicActorCritic):
    """An agent that somebody else wrote."""


@register
@dataclasses.dataclass(frozen=True)
class Spectral(EpisodicActorCritic):
    """One that does what the step compiler does not know."""

    def value(self, params, s):
        return super().value(params, s) + 0 * jnp.real(jnp.fft.fft(s))[0]


@register
@dataclasses.dataclass(frozen=True)
class Turning(EpisodicActorCritic):
    """One that calls the C library."""

    def value(self, params, s):
        return super().value(params, s) + 0 * jnp.arctan2(s[0], 1 + s[0])


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="with a GPU others are chosen")
@pytest.mark.parametrize(
    ("agent", "env", "options", "engine", "why"),
    [
        (EpisodicActorCritic(), ENV, {}, "cpu", "JAX finds no GPU here"),
        (RecurrentActorCritic(), ENV, {}, "cpu", "written for EpisodicActorCritic, not for RecurrentActorCritic"),
        (EpisodicActorCritic(), SignedInformant(2), {}, "cpu", "for SecretInformant, not for SignedInformant"),
        (
            RecurrentActorCritic(),
            ENV,
            {"max_episode_length": 9},
            "cpu",
            "EpisodicActorCritic, not for RecurrentActorCritic",
        ),
        (RealTimeActorCritic(), ENV, {}, "cpu", "for EpisodicActorCritic, not for RealTimeActorCritic"),
        (Own(), ENV, {}, "cpu", "for EpisodicActorCritic, not for Own"),
        (Spectral(), ENV, {}, "jax", "the step compiler does not know arrays of complex64"),
    ],
)
def test_training_takes_the_fastest_and_says_why_not_another(agent, env, options, engine, why):
    found = choice.for_training(agent, env, **options)
    assert found.engine == engine
    faster = {"cpu": "cuda", "jax": "cpu"}[engine]
    assert list(found.passed_over) == list(choice.NAMES[: choice.NAMES.index(engine)])
    assert why in found.passed_over[faster] and why in str(found)
    with pytest.raises(ValueError) as refused:
        choice.for_training(agent, env, engine=faster, **options)
    assert f"engine='{faster}' cannot serve here: " in str(refused.value) and why in str(refused.value)
    assert choice.for_training(agent, env, engine="jax") == choice.Choice("jax")


@pytest.mark.parametrize(
    ("agent", "copies", "shared", "engine", "why"),
    [
        (EpisodicActorCritic(), 1, False, "cpu", None),
        (Spectral(), 1, False, "jax", "the step compiler does not know arrays of complex64"),
        *slow(
            [
                (RecurrentActorCritic(), 3, False, "cpu", None),
                (EpisodicActorCritic(activation="relu", forgetting=0.1), 3, True, "cpu", None),
                (Own(), 1, False, "cpu", None),
                (named.make("reservoir"), 1, False, "cpu", None),
                (named.make("memoryless"), 2, True, "cpu", None),
            ]
        ),
    ],
)
def test_a_learner_likewise(agent, copies, shared, engine, why):
    found = choice.for_learner(agent, 5, 2, copies, shared)
    assert found.engine == engine
    host = choice.host_for(agent, 5, 2, copies, shared)
    assert isinstance(host, CompiledHost) == (engine == "cpu")
    assert not isinstance(choice.host_for(agent, 5, 2, copies, shared, engine="jax"), CompiledHost)
    if why is not None:
        assert why in found.passed_over["cpu"]
        with pytest.raises(ValueError, match="engine='cpu' cannot serve here"):
            choice.host_for(agent, 5, 2, copies, shared, engine="cpu")


@pytest.mark.skipif(cuda_driver.why_none() is None, reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused_and_passed_over():
    assert "NVIDIA driver" in choice.for_training(EpisodicActorCritic(), ENV).passed_over["compiled-gpu"]
    with pytest.raises(ValueError, match=r"engine='compiled-gpu' cannot serve here: .*NVIDIA driver"):
        train(EpisodicActorCritic(), ENV, 10, engine="compiled-gpu")


@pytest.mark.slow
def test_a_gpu_is_taken_for_many_runs_of_what_it_knows(monkeypatch):
    monkeypatch.setattr(cuda_driver, "why_none", lambda: None)
    agent, env = EpisodicActorCritic(memory_size=2, hidden=4), SignedInformant(2)
    assert choice.for_training(agent, env, runs=compiled_gpu.FEWEST).engine == "compiled-gpu"
    few = choice.for_training(agent, env, runs=3)
    assert few.engine == "cpu" and "3 runs are too few" in few.passed_over["compiled-gpu"]
    assert choice.for_training(agent, env, "compiled-gpu", runs=3).engine == "compiled-gpu"
    for cls, what in ((Spectral, "complex64"), (Turning, "the function 'atan2'")):
        with pytest.raises(ValueError, match=f"engine='compiled-gpu' cannot serve here: .*{what}"):
            choice.for_training(cls(memory_size=2, hidden=4), env, "compiled-gpu")


def test_an_engine_that_is_none_is_refused():
    with pytest.raises(ValueError, match="engine='gpu': choose one of 'auto', 'cuda', 'compiled-gpu', 'cpu', 'jax'"):
        choice.for_training(EpisodicActorCritic(), ENV, engine="gpu")
    with pytest.raises(ValueError, match="engine='cuda': choose one of 'auto', 'cpu', 'jax'"):
        choice.for_learner(EpisodicActorCritic(), 5, 2, engine="cuda")


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="with a GPU others are chosen")
@pytest.mark.parametrize(
    "agent", first_quick([EpisodicActorCritic(memory_size=2, hidden=4), RecurrentActorCritic(width=4)])
)
def test_the_public_function_takes_the_compiled_loop_and_says_so(agent):
    result = train(agent, ENV, 20, (0, 1), bins=2)
    assert result.engine == "cpu" and result.finished.all() and "cuda" in result.passed_over
    assert jax.tree.structure(result.agent_states) == jax.tree.structure(
        jax.eval_shape(lambda: agent.init(jax.random.key(0), ENV.observation_size, ENV.num_actions))
    )
    assert {leaf.shape[0] for leaf in jax.tree.leaves(result.agent_states)} == {2}
