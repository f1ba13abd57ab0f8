"""Reading and crediting the memory, against numbers worked out by hand."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recollect.agents import memory

ITEMS = jnp.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
FULL = jnp.array([True, True, True])


def test_query_logits():
    """⟨q, S⟩/τ for q = (2, −1), τ = 0.5."""
    logits = memory.query_logits(jnp.array([2.0, -1.0]), ITEMS, FULL, jnp.float32(0.5))
    assert logits.tolist() == [4.0, -2.0, 2.0]


def test_empty_slots_are_never_recalled():
    logits = memory.query_logits(jnp.array([9.0, 9.0]), ITEMS, jnp.array([True, False, True]), jnp.float32(1.0))
    assert logits.tolist() == [9.0, -np.inf, 18.0]
    slots, states = jax.vmap(lambda u: memory.recall(logits / 9, ITEMS, u))(jnp.linspace(0.0, 1.0, 500, endpoint=False))
    assert set(slots.tolist()) == {0, 2}
    assert np.array_equal(states, ITEMS[slots])


def test_query_probability():
    """Logits log 1, log 2, log 5: probabilities 1/8, 2/8, 5/8, drawn and reported alike."""
    logits = jnp.log(jnp.array([1.0, 2.0, 5.0]))
    log_p = [memory.log_query_probability(logits, jnp.int32(i)) for i in range(3)]
    np.testing.assert_allclose(np.exp(log_p), [1 / 8, 2 / 8, 5 / 8], rtol=1e-6)
    slots, _ = jax.vmap(lambda u: memory.recall(logits, ITEMS, u))(
        jnp.asarray((np.arange(8000) + 0.5) / 8000, jnp.float32)
    )
    assert np.bincount(slots).tolist() == [1000, 2000, 5000]


def test_query_entropy():
    """Of 1/4, 1/4, 1/2 it is 1.5 log 2; a slot that is empty has no part in it, nor in the gradient."""
    logits = jnp.array([0.0, 0.0, math.log(2.0), -jnp.inf])
    value, slope = jax.value_and_grad(memory.query_entropy)(logits)
    assert float(value) == pytest.approx(1.5 * math.log(2))
    np.testing.assert_allclose(slope, [math.log(2) / 8, math.log(2) / 8, -math.log(2) / 4, 0.0], atol=1e-6)
    nothing = jnp.full(3, -jnp.inf)
    value, slope = jax.value_and_grad(memory.query_entropy)(nothing)
    assert float(value) == 0.0 and slope.tolist() == [0.0, 0.0, 0.0]


def test_temperature():
    """A low temperature recalls the best match, a high one any."""
    q = jnp.array([1.0, 0.5])
    for tau, best in ((1e-3, 1.0), (1e3, 1 / 3)):
        logits = memory.query_logits(q, ITEMS, FULL, jnp.float32(tau))
        assert float(jnp.exp(memory.log_query_probability(logits, jnp.int32(2)))) == pytest.approx(best, abs=1e-3)


def test_empty_memory():
    """Reads zeros, says log 1, and sends no gradient and no NaN to query and temperature."""
    nothing = jnp.array([False, False, False])

    def log_q(q, tau):
        return memory.log_query_probability(memory.query_logits(q, ITEMS, nothing, tau), jnp.int32(1))

    q, tau = jnp.array([1.0, -1.0]), jnp.float32(1.0)
    slot, state = memory.recall(memory.query_logits(q, ITEMS, nothing, tau), ITEMS, jnp.float32(0.9))
    assert state.tolist() == [0.0, 0.0] and slot.dtype == jnp.int32
    assert float(log_q(q, tau)) == 0.0
    d_q, d_tau = jax.grad(log_q, (0, 1))(q, tau)
    assert d_q.tolist() == [0.0, 0.0] and float(d_tau) == 0.0


def test_partly_filled_memory_has_finite_gradients():
    filled = jnp.array([True, False, True])
    d_q, d_tau = jax.grad(
        lambda q, tau: memory.log_query_probability(memory.query_logits(q, ITEMS, filled, tau), jnp.int32(0)), (0, 1)
    )(jnp.array([1.0, 0.0]), jnp.float32(1.0))
    # Both filled slots match q equally: Q = ½, ∂log Q/∂q = S_0 − ½(S_0 + S_2) = (0, −½), and logits equal: ∂τ is 0.
    assert d_q.tolist() == [0.0, -0.5] and float(d_tau) == 0.0


@pytest.mark.parametrize("output, weight", [(0.0, 0.5), (np.log(3.0), 0.75), (-np.log(9.0), 0.1)])
def test_write_weight(output, weight):
    assert float(jnp.exp(memory.log_write_weight(jnp.float32(output)))) == pytest.approx(weight, rel=1e-6)


def test_write_weight_far_down():
    """Σ(−1000) is 0 in any float; its log, and the log's gradient, are not lost."""
    log_w, slope = jax.value_and_grad(memory.log_write_weight)(jnp.float32(-1000.0))
    assert float(log_w) == -1000.0 and float(slope) == 1.0


def test_credit():
    """W now 0.2 with slope 3, stored 0.4, δ = 0.5: G = 1.25 and the step is 3.75."""
    value, slope = jax.value_and_grad(lambda x: memory.credit(jnp.log(0.2 + 3.0 * x), jnp.log(jnp.float32(0.4))))(0.0)
    assert float(value) == pytest.approx(0.5)
    assert 0.5 * float(slope) == pytest.approx(0.5 / 0.4 * 3.0)


def test_credit_where_the_weight_does_not_fit_float32():
    """Log w = −200: δ/w is infinite in float32 and ∂w/∂θ is 0, their product is what credit gives."""
    assert not np.isfinite(jnp.float32(0.5) / jnp.exp(jnp.float32(-200.0)))
    stored = memory.log_write_weight(jnp.float32(-200.0))
    slope = jax.grad(lambda out: memory.credit(memory.log_write_weight(out), stored))(jnp.float32(-199.0))
    # w = e^out here, so G ∂w/∂out = δ w_now/w_stored = δ e.
    assert float(slope) == pytest.approx(np.e, rel=1e-5)


@pytest.mark.parametrize("most, quotient", [(np.inf, 3.0), (2.0, 2.0), (3.5, 3.0)])
def test_credit_is_bounded_in_value_and_gradient(most, quotient):
    """W now 0.6 with slope 3, stored 0.2: the quotient is 3, and its gradient 3 · 3/0.6; both cut by the same share."""
    value, slope = jax.value_and_grad(lambda x: memory.credit(jnp.log(0.6 + 3.0 * x), jnp.log(jnp.float32(0.2)), most))(
        0.0
    )
    assert float(value) == pytest.approx(quotient)
    assert float(slope) == pytest.approx(quotient * 3.0 / 0.6)


def test_the_bound_keeps_credit_finite_where_the_quotient_is_not():
    slope = jax.grad(lambda x: memory.credit(x, jnp.float32(-500.0), 2.0))(jnp.float32(-1.0))
    assert float(slope) == 2.0
