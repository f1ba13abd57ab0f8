"""Networks against numbers worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recollect.agents.networks import (
    ACTIVATIONS,
    GRU,
    INITIALIZERS,
    Layer,
    NormedNetwork,
    affine,
    apply_gru,
    apply_network,
    init_gru,
    init_network,
)


def test_affine():
    layer = Layer(jnp.array([[1.0, 2.0], [3.0, -4.0], [0.0, 0.5]]), jnp.array([0.5, 0.0, -1.0]))
    assert affine(layer, jnp.array([2.0, -1.0])).tolist() == [0.5, 10.0, -1.5]


@pytest.mark.parametrize("activation, hidden", [("tanh", np.tanh), ("relu", lambda x: np.maximum(x, 0))])
def test_apply_network(activation, hidden):
    """Hidden layers are activated, the output is not."""
    network = (
        Layer(jnp.array([[1.0, -1.0], [2.0, 0.0]]), jnp.array([0.0, 1.0])),
        Layer(jnp.array([[10.0, 100.0]]), jnp.array([-7.0])),
    )
    # x = (1, 2): hidden inputs are −1 and 3.
    expected = 10 * hidden(-1.0) + 100 * hidden(3.0) - 7
    np.testing.assert_allclose(apply_network(network, jnp.array([1.0, 2.0]), activation), [expected], rtol=1e-6)


def test_sigmoid_hidden_layers():
    network = (Layer(jnp.zeros((1, 1)), jnp.zeros(1)), Layer(jnp.array([[4.0]]), jnp.zeros(1)))
    assert apply_network(network, jnp.ones(1), "sigmoid").tolist() == [2.0]
    assert set(ACTIVATIONS) == {"tanh", "relu", "sigmoid"}


@pytest.mark.parametrize("initializer", INITIALIZERS)
def test_initializers(initializer):
    """Spread and range of the weights, with 90 inputs and 60 outputs."""
    layer = INITIALIZERS[initializer](jax.random.key(0), 60, 90)
    weight, bias = np.asarray(layer.weight), np.asarray(layer.bias)
    assert weight.shape == (60, 90) and bias.shape == (60,)
    deviation = {"normal": 90**-0.5, "glorot": (2 / 150) ** 0.5, "uniform": (1 / 270) ** 0.5}[initializer]
    assert weight.std() == pytest.approx(deviation, rel=0.04)
    assert abs(weight.mean()) < 4 * deviation / np.sqrt(weight.size)
    if initializer == "normal":
        assert np.abs(weight).max() > 3 * deviation
    else:
        limit = deviation * 3**0.5
        assert 0.95 * limit < np.abs(weight).max() <= limit * (1 + 1e-6)
    assert np.any(bias != 0) == (initializer == "uniform")


def test_layers_differ_from_one_another():
    network = init_network(jax.random.key(0), (4, 4, 4, 4), "normal")
    assert [layer.weight.shape for layer in network] == [(4, 4)] * 3
    assert len({float(layer.weight[0, 0]) for layer in network}) == 3
    other = init_network(jax.random.key(1), (4, 4, 4, 4), "normal")
    assert not np.array_equal(other[0].weight, network[0].weight)


def test_gru_by_hand():
    """One unit, one input x = 2, h = 0.5, and the three gates by hand."""
    gru = GRU(
        update=Layer(jnp.array([[0.5, 1.0]]), jnp.array([-1.0])),
        reset=Layer(jnp.array([[-1.0, 2.0]]), jnp.array([0.5])),
        candidate=Layer(jnp.array([[1.0, -2.0]]), jnp.array([0.25])),
    )
    z = 1 / (1 + np.exp(-(0.5 * 2 + 1.0 * 0.5 - 1.0)))  # σ(0.5)
    r = 1 / (1 + np.exp(-(-1.0 * 2 + 2.0 * 0.5 + 0.5)))  # σ(−0.5)
    h_tilde = np.tanh(1.0 * 2 - 2.0 * (r * 0.5) + 0.25)
    expected = (1 - z) * 0.5 + z * h_tilde
    np.testing.assert_allclose(apply_gru(gru, jnp.array([0.5]), jnp.array([2.0])), [expected], rtol=1e-6)


def test_gru_gates_keep_and_replace():
    """An update gate shut keeps the state as it is; open, with the reset gate shut, it forgets it."""
    gru = init_gru(jax.random.key(0), 3, 2, "normal")
    x, h = jnp.array([1.0, -1.0, 0.5]), jnp.array([0.3, -0.7])
    shut = gru._replace(update=gru.update._replace(bias=jnp.full(2, -1e3)))
    assert np.array_equal(apply_gru(shut, h, x), h)
    through = gru._replace(
        update=gru.update._replace(bias=jnp.full(2, 1e3)), reset=gru.reset._replace(bias=jnp.full(2, -1e3))
    )
    np.testing.assert_allclose(apply_gru(through, h, x), apply_gru(through, -h, x), rtol=1e-6)
    assert gru.update.weight.shape == (2, 5)


def test_hidden_layers_are_a_tuple_of_whole_numbers():
    assert {NormedNetwork(hidden) for hidden in ([8, 4], (8, 4), np.array([8, 4]))} == {NormedNetwork((8, 4))}  # type: ignore[arg-type]
    for wrong in (64, (), (1,), (2.5,), ("8",), None, "64"):
        with pytest.raises(ValueError, match=r"^hidden="):
            NormedNetwork(wrong)  # type: ignore[arg-type]
