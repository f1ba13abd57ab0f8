"""What training refuses, with the numbers that say why."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import recollect
from recollect import EpisodicActorCritic, GeneralActorCritic, RecollectError
from recollect.agents.base import register
from recollect.envs import TimeStep
from recollect.training import refusing


def test_what_does_not_fit():
    refusing.too_large(10, "states", "fewer", there=10)
    with pytest.raises(ValueError, match=r"states need 1,000 bytes, this machine has 10: take fewer"):
        refusing.too_large(1000, "states", "fewer", there=10)
    with pytest.raises(ValueError, match="this machine has"):
        refusing.too_large(2**63, "states", "fewer")


def test_what_is_not_finite():
    refusing.not_finite("env", [4, 5], np.zeros(2, int))
    with pytest.raises(RecollectError, match=r"seed 5: the environment gave .* not finite at step 1,000 of 'env'"):
        refusing.not_finite("env", [4, 5], np.array([0, 1000]))
    with pytest.raises(RecollectError, match="seed 4: the update was not finite at step 7"):
        refusing.not_finite("env", [4, 5], np.array([-7, 0]))


@dataclasses.dataclass(frozen=True)
class Own:
    """An environment of one's own, which can be wrong in one thing."""

    wrong: str = ""
    observation_size: int = 2
    num_actions: int = 2

    def reset(self, key):
        seen = jnp.zeros((2, 1) if self.wrong == "reset observation" else 2)
        return (seen, jnp.int32(0), {}) if self.wrong == "reset" else (jnp.int32(0), seen)

    def step(self, state, action, key):
        seen, no = jnp.zeros(3 if self.wrong == "observation" else 2), jnp.array(False)
        reward = jnp.ones(1) if self.wrong == "reward" else jnp.ones(())
        if self.wrong == "step":
            return state, seen, reward, no
        return (state, state) if self.wrong == "state" else state, TimeStep(seen, reward, no, no)


class Plain:
    """An optimizer and a settling of one's own that JAX does not know."""

    def init(self, params): ...

    def update(self, direction, traces, errors, state, params): ...

    def pace(self, reached, tried): ...


@pytest.mark.parametrize("part", ["actor_optimizer", "settling"])
def test_a_part_that_is_not_registered_is_named_with_what_helps(part):
    agent = GeneralActorCritic(**{part: Plain()})
    message = rf"^agent\.{part}=.*Plain.*: JAX does not know .* @recollect\.agents\.base\.register"
    with pytest.raises(TypeError, match=message):
        recollect.train(agent, recollect.envs.TMaze(), 1)
    registered = register(dataclasses.dataclass(frozen=True)(type("Registered", (Plain,), {})))
    refusing.no_pair(agent.replace(**{part: registered()}), Own())


def test_what_is_no_environment():
    agent = EpisodicActorCritic(memory_size=2)
    refusing.no_pair(agent, Own())
    for wrong, message in {
        "reset": r"env\.reset must return \(state, observation\), got a tuple of 3",
        "reset observation": r"env\.reset: the observation has the shape \(2, 1\); it must be .*= \(2,\)",
        "step": r"env\.step must return \(state, TimeStep\), with .*truncated\), got a tuple of 4",
        "observation": r"env\.step: observation has the shape \(3,\)",
        "reward": r"env\.step: reward has the shape \(1,\); it must be \(\), one number",
        "state": r"env\.step must return a state of the form that env\.reset returns: shapes \(\), got \(\(\), \(\)\)",
    }.items():
        with pytest.raises((TypeError, ValueError), match=message):
            refusing.no_pair(agent, Own(wrong))
    for name in ("num_actions", "observation_size"):
        with pytest.raises(ValueError, match=f"env.{name}=0 must be an integer of at least 1"):
            refusing.no_pair(agent, Own(**{name: 0}))
    with pytest.raises(TypeError, match=r"env=.* must be hashable"):
        refusing.no_pair(agent, type("Loose", (Own,), {"__hash__": None})())
