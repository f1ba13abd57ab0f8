"""The memory of an episode: which states count as the same, what a query sees, what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recollect.agents.episode_memory import AGES, EpisodeMemory, Stored, age_features


def filled(part, observations, size=4, weights=None):
    stored = part.init(size, len(observations[0]))
    for t, x in enumerate(observations):
        item = Stored(jnp.asarray(x), jnp.asarray(t, jnp.int32))
        weight = jnp.asarray(0.0 if weights is None else weights[t])
        states = jnp.where(stored.filled[:, None], stored.items.observation, 0.0)
        stored = part.write(stored, states, item.observation, item, weight, jax.random.key(t))
    return stored


NEAR = [[0.0, 0.0], [0.5, 0.5], [3.0, 0.0], [0.0, 0.0], [3.0, 0.9]]


@pytest.mark.parametrize(("radius", "times"), [(None, [0, 1, 2, 3, 4]), (0.0, [0, 1, 2, 4]), (1.0, [0, 2])])
def test_what_counts_as_the_same_state(radius, times):
    stored = filled(EpisodeMemory(radius=radius), NEAR, size=5)
    assert sorted(np.asarray(stored.items.time)[np.asarray(stored.filled)].tolist()) == times


def test_a_state_that_is_not_finite_is_not_stored():
    stored = filled(EpisodeMemory(radius=None), [[1.0, jnp.nan], [1.0, 2.0]])
    assert int(stored.count) == 1
    assert np.isfinite(np.asarray(stored.items.observation)).all()


def test_keys_are_states_beside_their_age():
    part = EpisodeMemory()
    stored = filled(part, [[1.0, 2.0], [5.0, 6.0]])
    keys = part.keys(stored, stored.items.observation, jnp.asarray(3, jnp.int32))
    assert keys.shape == (4, 2 + len(AGES))
    np.testing.assert_allclose(keys[:2, :2], [[1.0, 2.0], [5.0, 6.0]])
    np.testing.assert_allclose(keys[:2, 2:], age_features(jnp.array([3, 2])))


def test_age_features():
    features = np.asarray(age_features(jnp.arange(1, 500)))
    np.testing.assert_allclose(features.sum(1), 1.0, rtol=1e-5)
    for k, age in enumerate(AGES):
        assert features[age - 1, k] == pytest.approx(1.0, abs=1e-5)
    assert features[-1].argmax() == len(AGES) - 1


@pytest.mark.parametrize(
    "options",
    [{"law": wrong} for wrong in ("lifo", None, ["fifo"], 3)]
    + [{"radius": wrong} for wrong in (-1.0, float("nan"), "none", True, [1.0])],
)
def test_options_are_checked(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        EpisodeMemory(**options)


def test_an_array_of_one_number_is_a_number():
    memories = [EpisodeMemory(radius=radius) for radius in (0.5, np.array(0.5), jnp.array(0.5), np.float32(0.5))]
    assert len(set(memories)) == 1 and type(memories[1].radius) is float
