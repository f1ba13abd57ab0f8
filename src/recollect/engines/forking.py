"""JAX does not survive a fork: the child has its state and none of its threads, and waits for them for ever.

A child that was forked after JAX had begun is told so here, before it waits.
"""

import os
import sys

from recollect.errors import RecollectError

_at_fork = {"running": False, "forked": False}


def _before() -> None:
    bridge = sys.modules.get("jax._src.xla_bridge")
    try:
        _at_fork["running"] = bridge is not None and bool(bridge.backends_are_initialized())
    except AttributeError:  # another JAX: what is imported counts as begun
        _at_fork["running"] = True


def _in_child() -> None:
    _at_fork["forked"] = _at_fork["forked"] or _at_fork["running"]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_child=_in_child)


def refuse() -> None:
    """Refuse to compute in a process that was forked from one in which JAX had begun."""
    if _at_fork["forked"]:
        raise RecollectError(
            "this process was forked from one in which JAX had begun, and would wait for ever: start processes with "
            'multiprocessing.get_context("spawn"), or fork before anything is trained'
        )
