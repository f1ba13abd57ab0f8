"""Which agents the compiled code knows: what it was told of, and nothing that came later."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from recollect.agents.base import register, traced, why_unknown
from recollect.agents.distributions import Gaussian
from recollect.agents.episodic import EpisodicActorCritic
from recollect.agents.recurrent import RecurrentActorCritic
from recollect.engines import packing
from recollect.envs.secret_informant import SecretInformant

FIELDS = [field.name for field in dataclasses.fields(EpisodicActorCritic)]

# Values other than the default for all that is not known in any value; a new field has to go here or to ``KNOWN``.
OTHER = {
    "objective": "average",
    "optimizer": "rmsprop",
    "forgetting": 0.1,
    "query_openness": 0.5,
    "distinct": True,
    "encoder": "projection",
    "activation": "relu",
    "temperature": "softplus",
    "empty_read": "current",
    "partial_read": "all",
    "write": "before",
    "reset_memory": False,
    "critic_output": "linear",
    "pictures": "any",
    "products": 4,
    "actions": Gaussian(2),
    "oracle_bit": 1,
    "memory": "fifo",
    "estimator": "every",
}


def in_tables(agent):
    return packing.why_not(agent, SecretInformant(4)) is None


ENGINES = pytest.mark.parametrize(("module", "supported"), [(packing, in_tables)], ids=["tables"])


@register
@dataclasses.dataclass(frozen=True)
class Newer(EpisodicActorCritic):
    """The agent as a later release may have it."""

    novelty: float = dataclasses.field(default=0.0, metadata=traced())
    kind: str = "plain"
    parts: list = dataclasses.field(default_factory=list)


@ENGINES
def test_an_option_that_is_new_is_declined(module, supported, monkeypatch):
    assert not supported(Newer()) and not supported(RecurrentActorCritic())
    monkeypatch.setattr(module, "EpisodicActorCritic", Newer)
    assert not supported(Newer()), "an option without a plain default has to be listed"
    monkeypatch.setattr(module, "KNOWN", {*module.KNOWN, "parts"})
    assert supported(Newer()) and supported(Newer(learning_rate=0.1, memory="uniform", estimator="every"))
    for changes in ({"novelty": 0.1}, {"kind": "other"}, {"novelty": np.array([0.0, 0.1])}):
        assert not supported(Newer(**changes)), changes
    assert supported(Newer(novelty=jnp.zeros(3)))


@ENGINES
def test_every_option_is_known_or_must_be_the_default(module, supported):
    assert set(FIELDS) >= module.KNOWN | set(module.CHOICES) and not module.KNOWN & set(module.CHOICES)
    assert {*FIELDS} == {*OTHER, *module.KNOWN}, "name the new option in OTHER, or in KNOWN once it is followed"
    assert supported(EpisodicActorCritic())
    for name in set(FIELDS) - module.KNOWN:
        agent = EpisodicActorCritic()
        object.__setattr__(agent, name, OTHER[name])
        assert supported(agent) == (OTHER[name] in module.CHOICES.get(name, ())), name
    for name in module.CHOICES:
        agent = EpisodicActorCritic()
        object.__setattr__(agent, name, "another")
        assert not supported(agent), name


def test_values_that_differ_from_run_to_run():
    agent = EpisodicActorCritic(forgetting=jnp.array([0.0, 0.1]))
    assert why_unknown(agent, EpisodicActorCritic, {"forgetting"}, {}) is None
    assert why_unknown(agent, EpisodicActorCritic, (), {"forgetting": tuple(np.float32([0.1, 0.0]))}) is None
    assert why_unknown(agent, EpisodicActorCritic, (), {"forgetting": (0.0, 0.2)}) is not None
    assert why_unknown(EpisodicActorCritic(forgetting=jnp.zeros(2)), EpisodicActorCritic, (), {}) is None
