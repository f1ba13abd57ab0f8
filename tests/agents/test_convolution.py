"""The convolutional encoder, by itself and inside an agent."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recollect import prng
from recollect.agents.convolution import Convolution
from recollect.agents.episodic import EpisodicActorCritic
from recollect.engines.host import TimeStep

SHAPE = (4, 4, 2)


def test_features_follow_the_picture():
    encoder = Convolution((20, 9, 3), features=5, channels=4)
    layers = encoder.init(prng.key(0))
    assert encoder.strides == (2, 2, 1) and layers[-1].weight.shape == (5 * 3 * 4, 5)
    picture = np.random.default_rng(0).uniform(size=20 * 9 * 3).astype(np.float32)
    first, other = encoder.apply(layers, jnp.asarray(picture)), encoder.apply(layers, jnp.asarray(picture[::-1].copy()))
    assert first.shape == (5,) and np.abs(first).max() < 1 and not np.allclose(first, other)


def test_a_convolution_by_hand():
    """One weight at the centre of the kernel: the layer multiplies, and nothing moves."""
    encoder = Convolution((2, 3, 1), features=6, channels=1)
    kernel, last = encoder.init(prng.key(0))
    kernel = kernel._replace(weight=jnp.zeros_like(kernel.weight).at[1, 1, 0, 0].set(2.0))
    last = last._replace(weight=jnp.eye(6))
    x = jnp.arange(6.0) / 10
    np.testing.assert_allclose(encoder.apply((kernel, last), x), np.tanh(2 * x), rtol=1e-6)


@pytest.mark.slow
def test_the_agent_learns_through_it_and_remembers_features():
    agent = EpisodicActorCritic(memory_size=2, hidden=4, pictures=Convolution(SHAPE, features=3, channels=2))
    rng = np.random.default_rng(0)
    pictures = [jnp.asarray(rng.uniform(size=32), jnp.float32) for _ in range(4)]
    start = jax.jit(lambda x: agent.begin(agent.init(prng.key(0), 32, 2), x, prng.key(1))[0])
    step, see = jax.jit(agent.step), jax.jit(agent.see)
    first = state = start(pictures[0])
    for k, picture in enumerate(pictures[1:]):
        timestep = TimeStep(picture, jnp.float32(1.0), jnp.array(False), jnp.array(False))
        before, (state, _) = state, step(state, timestep, prng.key(2 + k))
    assert state.memory.items.shape == (2, 3)
    kept = [see(before.params, p) for p in pictures[:3]]
    assert all(min(np.abs(item - k).max() for k in kept) < 0.2 for item in state.memory.items)
    moved = jax.tree.map(lambda a, b: float(np.abs(a - b).max()), state.params.pictures, first.params.pictures)
    assert min(jax.tree.leaves(moved)) > 0


@pytest.mark.slow
def test_the_encoders_gradient_is_that_of_the_scores():
    """One step without traces: the encoder moves by the rate times δ times the gradient of the sum of scores."""
    agent = EpisodicActorCritic(
        memory_size=1, hidden=3, trace_decay=0.0, entropy=0.0, surprise=0.0, pictures=Convolution(SHAPE, 3, 2)
    )
    x = jnp.asarray(np.random.default_rng(1).uniform(size=32), jnp.float32)
    state = jax.jit(lambda x: agent.begin(agent.init(prng.key(0), 32, 2), x, prng.key(1))[0])(x)
    end = TimeStep(x, jnp.float32(1.0), jnp.array(True), jnp.array(False))
    after = jax.jit(agent.learn)(state, end, prng.key(2))
    delta = 1.0 - jax.jit(lambda params: agent.value(params, agent.see(params, x)))(state.params)
    slope = jax.jit(jax.grad(lambda p: agent.scores(p, state.decision, state.memory)[0]))(state.params).pictures
    expected = jax.tree.map(lambda p, g: p + agent.learning_rate * delta * g, state.params.pictures, slope)
    for a, b in zip(jax.tree.leaves(after.params.pictures), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("shape", [(4, 4), (0, 4, 1)])
def test_wrong_shapes(shape):
    with pytest.raises(ValueError, match="height, width, channels"):
        Convolution(shape)
