"""Distributions over actions: what is drawn has the probability that is differentiated."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from recollect.agents.distributions import Categorical, Gaussian, MultiCategorical

LOGITS = jnp.array([0.0, 1.0, -1.0])
U = np.linspace(0, 1, 20_001)[:-1].astype(np.float32) + np.float32(2.5e-5)


def test_categorical_draws_by_its_probabilities():
    drawn = jax.vmap(lambda u: Categorical().draw(LOGITS, u[None]))(jnp.asarray(U))
    p = np.exp([Categorical().log_probability(LOGITS, a) for a in range(3)])
    assert p.sum() == pytest.approx(1, abs=1e-6)
    np.testing.assert_allclose(np.bincount(drawn, minlength=3) / len(U), p, atol=1e-4)
    assert float(Categorical().entropy(LOGITS)) == pytest.approx(-np.sum(p * np.log(p)), abs=1e-6)


def test_multi_categorical_is_its_parts():
    d = MultiCategorical((2, 3))
    outputs = jnp.array([0.3, -0.2, *LOGITS])
    assert d.outputs == 5 and d.draws == 2 and d.nothing().shape == (2,)
    action = d.draw(outputs, jnp.array([0.9, 0.05]))
    parts = [Categorical().draw(outputs[:2], jnp.array([0.9])), Categorical().draw(outputs[2:], jnp.array([0.05]))]
    assert action.tolist() == [int(part) for part in parts] == [1, 0]
    expected = sum(Categorical().log_probability(o, a) for o, a in zip((outputs[:2], outputs[2:]), parts, strict=True))
    assert float(d.log_probability(outputs, action)) == pytest.approx(float(expected), abs=1e-6)
    both = Categorical().entropy(outputs[:2]) + Categorical().entropy(outputs[2:])
    assert float(d.entropy(outputs)) == pytest.approx(float(both), abs=1e-6)


def test_gaussian_against_scipy():
    d = Gaussian(2)
    outputs = jnp.array([1.0, -2.0, 0.5, -30.0])
    deviations = np.array([np.log1p(np.exp(0.5)) + 1e-3, 1e-3])  # the second at its least
    law = stats.norm([1.0, -2.0], deviations)
    drawn = np.asarray(jax.vmap(lambda u: d.draw(outputs, jnp.stack([u, u])))(jnp.asarray(U)))
    np.testing.assert_allclose(drawn, law.ppf(U[:, None].astype(float)), rtol=2e-3, atol=1e-3)
    assert float(d.log_probability(outputs, jnp.asarray(drawn[7]))) == pytest.approx(
        law.logpdf(drawn[7]).sum(), rel=1e-3
    )
    assert float(d.entropy(outputs)) == pytest.approx(law.entropy().sum(), rel=1e-4)
    assert np.isfinite(d.draw(outputs, jnp.array([0.0, 1.0]))).all()
