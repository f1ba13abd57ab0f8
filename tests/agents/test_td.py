"""TD error, entropy and the check for finite numbers, by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recollect.agents import td


@pytest.mark.parametrize(
    "r, discount, v_next, v, delta",
    [(1.0, 0.9, 0.5, 0.25, 1.2), (0.0, 1.0, 0.75, 0.75, 0.0), (1.0, 0.0, 9.0, 0.25, 0.75), (-1.0, 1.0, 0.5, 0.5, -1.0)],
)
def test_td_error(r, discount, v_next, v, delta):
    found = td.td_error(*(jnp.float32(x) for x in (r, discount, v_next, v)))
    assert float(found) == pytest.approx(delta)


def test_entropy():
    assert float(td.entropy(jnp.zeros(4))) == pytest.approx(np.log(4))
    p = np.array([0.5, 0.25, 0.25])
    assert float(td.entropy(jnp.log(jnp.asarray(p, jnp.float32)) + 7)) == pytest.approx(1.5 * np.log(2))
    assert float(td.entropy(jnp.array([1e4, 0.0]))) == 0.0


def test_entropy_gradient():
    """∂H/∂logit_k = −p_k (log p_k + H); finite where a probability is 0."""
    p = np.array([0.7, 0.2, 0.1])
    H = -np.sum(p * np.log(p))
    slope = jax.grad(td.entropy)(jnp.log(jnp.asarray(p, jnp.float32)))
    np.testing.assert_allclose(slope, -p * (np.log(p) + H), rtol=1e-4)
    assert np.isfinite(jax.grad(td.entropy)(jnp.array([1e4, 0.0]))).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_all_finite(bad):
    tree = {"a": jnp.ones(3), "b": (jnp.zeros(()), jnp.ones((2, 2)))}
    assert bool(td.all_finite(tree))
    assert not bool(td.all_finite({**tree, "a": jnp.array([1.0, bad, 1.0])}))
    assert not bool(td.all_finite({**tree, "b": (jnp.float32(bad), jnp.ones((2, 2)))}))
