"""What turns a direction into a step: parts that an agent is given.

An optimizer here is told, besides the direction in which to go, the traces that the direction is made of and the errors
that multiplied them: how far the last step would have gone is what the bound below is about.
"""

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from recollect.agents.base import check_fields, check_number, number, register, traced

if TYPE_CHECKING:  # at run time the user brings it, with the transformation
    import optax


class Optimizer(Protocol):
    """What an agent asks of an optimizer; ``params`` and ``direction`` are pytrees of the same form."""

    def init(self, params: Any) -> Any:
        """Its state at the start."""
        ...

    def update(self, direction: Any, traces: Any, errors: Array, state: Any, params: Any) -> tuple[Any, Any]:
        """What to add to the parameters, and the state after it."""
        ...


LONGEST = 1e5
"""Steps after which the long-run mean follows what comes rather than all that came."""

LONGEST_DECAY = 1 - 2.0**-24
"""Largest float32 below 1: mean squares that nothing moves are 0, and cannot be divided by."""

LEAST_EPSILON = 1e-30
"""Smaller numbers are taken for 0 on the way, and a step of nothing over nothing is not a number."""


class Squares(NamedTuple):
    """Mean squares of every parameter's direction, of late and in the long run, and the number of steps."""

    mean: Any
    lasting: Any  # None without ``floor``
    count: Array


@register
@dataclasses.dataclass(frozen=True)
class BoundedRMS:
    r"""RMSProp whose step is cut back where it would overshoot.

    .. math::
        v \leftarrow \beta v + (1 - \beta) d^2, \qquad u \leftarrow u + (d^2 - u) / \min(t, 10^5), \qquad
        p = \frac{1}{\sqrt{\max(\hat v, \phi u)} + \epsilon}, \\
        M = \eta \kappa \max_k \max(|\delta_k|, 1) \textstyle\sum |p z_k|, \qquad
        \Delta = \frac{\eta}{\max(1, M)} \, p \, d

    symbols: d ↔ ``direction``, z_k ↔ ``traces``, δ_k ↔ ``errors``, η ↔ ``rate``, κ ↔ ``overshoot``, β ↔ ``decay``,
    φ ↔ ``floor``.

    RMSProp divides by what directions have been of late. Once a task is solved that is next to nothing, and one unlucky
    episode makes steps tens of times as long as any before: what was learned is gone. With φ the mean square of late
    counts as no less than this share of that in the long run, which remembers what directions are when there is
    something to learn.

    The bound is that of Elsayed et al. (*Streaming deep reinforcement learning finally works*, 2024), in the
    metric of RMSProp: M is how far one more step would change what was just predicted, κ times over. Where it is large
    (many parameters pull the same way, as they do when inputs repeat) the step is divided by it.

    Args:
        rate: step size of each parameter while the bound does not hold it back.
        overshoot: how early the bound sets in; 0 for plain RMSProp.
        decay: of the mean squares.
        epsilon: added to their root.
        floor: share of their long-run mean that they count as at least; None: it is not kept, and p is 1/(√v̂ + ε).
    """

    rate: float = number(0.001, 0.0, 10.0)
    overshoot: float = number(0.05, 0.0, 1e6)
    decay: float = number(0.999, 0.0, LONGEST_DECAY)
    epsilon: float = number(1e-8, LEAST_EPSILON, 1.0)
    floor: float | None = dataclasses.field(default=None, metadata=traced())

    def __post_init__(self) -> None:
        check_fields(self)
        if self.floor is not None:
            check_number("floor", self.floor, 0.0, 1.0)

    def init(self, params: Any) -> Squares:
        """No steps yet."""
        mean, lasting = (jax.tree.map(jnp.zeros_like, params) for _ in range(2))
        return Squares(mean, None if self.floor is None else lasting, jnp.zeros(()))

    def update(self, direction: Any, traces: Any, errors: Array, state: Squares, params: Any) -> tuple[Any, Squares]:
        """See the class; the leaves of ``traces`` have a leading axis as long as ``errors``."""
        del params
        count = state.count + 1
        mean = jax.tree.map(lambda v, d: v + (1 - self.decay) * (d * d - v), state.mean, direction)
        correction = 1 / (1 - jnp.asarray(self.decay, jnp.float32) ** count)
        lasting, squares = None, jax.tree.map(lambda v: correction * v, mean)
        if self.floor is not None:
            share = 1 / jnp.minimum(count, LONGEST)
            lasting = jax.tree.map(lambda u, d: u + share * (d * d - u), state.lasting, direction)
            squares = jax.tree.map(lambda v, u: jnp.maximum(v, self.floor * u), squares, lasting)
        scale = jax.tree.map(lambda v: 1 / (jnp.sqrt(v) + self.epsilon), squares)
        far = self.rate * self.overshoot * jnp.minimum(reach(scale, traces, errors), jnp.finfo(jnp.float32).max)
        rate = self.rate / jnp.maximum(1.0, far)
        return jax.tree.map(lambda p, d: rate * (p * d), scale, direction), Squares(mean, lasting, count)


def reach(scale: Any, traces: Any, errors: Array) -> Array:
    """max_k max(|δ_k|, 1) Σ |p z_k|, with p ↔ ``scale``, z_k ↔ ``traces``, δ_k ↔ ``errors``."""
    pairs = list(zip(jax.tree.leaves(scale), jax.tree.leaves(traces), strict=True))
    sums = jnp.stack([sum(jnp.sum(p * jnp.abs(z[k])) for p, z in pairs) for k in range(len(errors))])
    return jnp.max(jnp.maximum(jnp.abs(errors), 1.0) * sums)


def moved_by(steps: Any, state: Any) -> Array:
    """A number that is finite only if the steps and the optimizer's state after them are.

    Of `BoundedRMS` the sum of the mean squares: where they are finite, so are d², thus d, z and u. p is at most 1/ε,
    and p d no more than some thousands, as the mean squares have d² in them.
    """
    leaves = jax.tree.leaves(state.mean if isinstance(state, Squares) else (steps, state))
    floats = [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return sum((jnp.sum(jnp.abs(leaf)) for leaf in floats), jnp.zeros(()))


_MORE = "this transformation of optax takes more than gradients and parameters"


@register
@dataclasses.dataclass(frozen=True)
class Optax:
    """A transformation of optax as an optimizer: it is given the direction, as what to go along, and the parameters.

    Those that ask for more, such as a loss to search along a line, are refused.

    >>> import optax
    >>> optimizer = Optax(optax.adam(1e-3))
    """

    transformation: "optax.GradientTransformation"

    def init(self, params: Any) -> Any:
        """The transformation's own state."""
        state = self.transformation.init(params)
        try:
            _, after = jax.eval_shape(self._moved, params, state, params)
        except Exception as error:
            raise ValueError(f"{_MORE}: {error}") from error
        if jax.tree.structure(after) != jax.tree.structure(state):
            raise ValueError(f"{_MORE}: its state changes its form without")
        return state

    def update(self, direction: Any, traces: Any, errors: Array, state: Any, params: Any) -> tuple[Any, Any]:
        """The transformation's update along ``direction``; optax goes down a gradient, so its sign is turned."""
        del traces, errors
        return self._moved(jax.tree.map(jnp.negative, direction), state, params)

    def _moved(self, *given: Any) -> tuple[Any, Any]:
        with jax.numpy_dtype_promotion("standard"):  # as optax expects, whatever the program around it has
            return self.transformation.update(*given)
