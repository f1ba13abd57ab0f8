"""A process that was forked after JAX had begun is told so; one that was forked before is not."""

import pytest

from recollect import RecollectError
from recollect.engines import forking


def test_only_a_fork_after_jax_had_begun_counts(monkeypatch):
    monkeypatch.setattr(forking, "_at_fork", {"running": False, "forked": False})
    forking.refuse()
    forking._in_child()
    forking.refuse()
    import jax.numpy as jnp

    jnp.zeros(1).block_until_ready()
    forking._before()
    forking.refuse()
    forking._in_child()
    with pytest.raises(RecollectError, match=r'get_context\("spawn"\)'):
        forking.refuse()
