"""The signed informant: what is shown when, and why a memory of raw states cannot tell."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recollect import prng
from recollect.envs.signed_informant import SignedInformant, State
from recollect.reservoir import law

ENV = SignedInformant(actions=2, copies=1)


def test_an_episode_by_hand():
    """Messages 1, 0, of which the second is true: the right action is 0."""
    for action, reward in ((0, 1.0), (1, 0.0)):
        state = State(jnp.array([1, 0], jnp.int32), jnp.int32(1), jnp.int32(0))
        seen = [np.asarray(ENV.observe(state)).astype(int).tolist()]
        for _ in range(5):
            state, timestep = ENV.step(state, jnp.int32(action))
            seen.append(np.asarray(timestep.observation).astype(int).tolist())
        false, first, true, second = [0, 0, 0, 1, 0], [0, 1, 0, 0, 0], [0, 0, 1, 0, 0], [1, 0, 0, 0, 0]
        assert seen == [false, first, true, second, [0, 0, 0, 0, 1], [0] * 5]
        assert float(timestep.reward) == reward and bool(timestep.terminated) and not bool(timestep.truncated)


@pytest.mark.slow
def test_every_action_is_named_as_often_and_any_message_may_be_true():
    env = SignedInformant(actions=3, copies=2)
    states, _ = jax.vmap(env.reset)(jax.random.split(prng.key(0), 3000))
    assert (np.sort(states.messages, axis=1) == [0, 0, 1, 1, 2, 2]).all()
    np.testing.assert_allclose(np.bincount(states.true, minlength=6) / 3000, 1 / 6, atol=0.03)
    right = np.take_along_axis(np.asarray(states.messages), np.asarray(states.true)[:, None], 1)[:, 0]
    for place in range(6):  # no place tells the right action
        agree = np.mean(np.asarray(states.messages)[:, place] == right)
        assert agree == pytest.approx(1 / 3, abs=0.04)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_what_raw_states_are_kept_does_not_depend_on_the_right_action(n):
    """The law of the memory's content, enumerated for every episode and any weights: one law for all."""
    weights = dict(zip(range(5), np.random.default_rng(0).uniform(0.1, 1, 5), strict=True))
    contents = []
    for messages, true in itertools.product(((0, 1), (1, 0)), (0, 1)):
        bits = [bit for k, message in enumerate(messages) for bit in (2 if k == true else 3, message)]
        found = {}
        for kept, p in law.enumerate_law([weights[bit] for bit in bits], n).items():
            content = tuple(sorted(bits[i] for i in kept))
            found[content] = found.get(content, 0.0) + p
        contents.append(found)
    for other in contents[1:]:
        assert other == pytest.approx(contents[0])
    assert ENV.raw_return() == 0.5 and ENV.optimal_return() == 1.0


@pytest.mark.parametrize(
    "options, message", [({"actions": 1}, "actions=1 must be"), ({"copies": 0}, "copies=0 must be")]
)
def test_bad_settings_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        SignedInformant(**options)
