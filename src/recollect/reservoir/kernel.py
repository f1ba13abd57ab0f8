r"""A memory of fixed size for agents: pure functions on a frozen state, for `jit`, `vmap` and `scan`.

Four kernels share one `State` and one interface, and differ only in which n items they keep of those seen:

- `PRODUCT`: each n-subset with probability proportional to the product of its weights (also `init`, `add` and
  `probabilities` of this module);
- `UNIFORM`: each n-subset with equal probability;
- `FIFO`: the last n;
- `NONE`: nothing, for comparison.

They store the weights they were given, and pass over an item of weight 0.

>>> import jax, jax.numpy as jnp
>>> state = init(2, jnp.zeros(()))
>>> for t, key in enumerate(jax.random.split(jax.random.key(0), 5)):
...     state = add(state, jnp.float32(t), jnp.log(1.0 + t), key)
>>> state.items.shape, int(state.count), int(state.seen)
((2,), 2, 5)
"""

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

# Finite stand-ins for the logs of infinity and 0: differences of infinities would be NaN, differences of these are
# merely huge, so that the recursion needs no special case for the first item, a slot still empty or a weight of 0.
_LARGEST_LOG_WEIGHT = 1e30
_LOG_INFINITY = 1e36
_LOG_ZERO_RATIO = -_LOG_INFINITY
_LOG_ZERO_WEIGHT = -2 * _LOG_INFINITY


class Ratios(NamedTuple):
    r"""What the product law remembers of all items seen, T.

    symbols: :math:`\log g_k` ↔ `high[k] + low[k]`, with :math:`g_k = e_k(T) / e_{k-1}(T)` the ratio of elementary
    symmetric polynomials of the weights and :math:`g_0 = \infty`.

    Attributes:
        high: [n+1].
        low: [n+1], what rounding cut off `high`; without it float32 stands still once items add less than one ulp.
        drop: [n, n], chance of each slot's item to be dropped at rank k (column k-1), fixed when it was added.
    """

    high: Array
    low: Array
    drop: Array


class State(NamedTuple):
    """The memory. Items stay in their slots; only `ranks` tells their order of arrival.

    Attributes:
        items: pytree, each leaf [n, ...].
        log_weights: [n], as given when the item was added; -inf where the slot is empty.
        ranks: [n] int32, 1 for the oldest item kept, `count` for the newest, 0 where the slot is empty.
        seen: [] int32, items seen, those of weight 0 left out; stays at the largest int32 once there.
        law: what the law remembers besides, `Ratios` for `PRODUCT`, `()` for the others.
    """

    items: Any
    log_weights: Array
    ranks: Array
    seen: Array
    law: Any

    @property
    def capacity(self) -> int:
        """The number of slots, n."""
        return self.ranks.shape[-1]

    @property
    def filled(self) -> Array:
        """[n] bool: which slots hold an item."""
        return self.ranks > 0

    @property
    def count(self) -> Array:
        """[] int32: how many slots hold an item."""
        return jnp.sum(self.filled, axis=-1, dtype=jnp.int32)


class Kernel(NamedTuple):
    """One law as four functions; `init`, `probabilities`, `add` and `place` of this module say what each does."""

    init: Callable[[int, Any], State]
    probabilities: Callable[[State, ArrayLike], tuple[Array, Array]]
    add: Callable[[State, Any, ArrayLike, Array], State]
    place: Callable[[State, Any, ArrayLike, Array], tuple[State, Array]]


def init(capacity: int, item: Any) -> State:
    """Make an empty memory.

    Args:
        capacity: number of slots, n.
        item: an example of the items to come, a pytree of arrays; only shapes and dtypes are used.

    Returns:
        The empty memory. Weights are held in JAX's default float: float32, or float64 under `jax_enable_x64`.

    Raises:
        ValueError: if `capacity` is below 1 or `item` holds no array.
    """
    state = _init_plain(capacity, item)
    n, dtype = state.capacity, state.log_weights.dtype
    high = jnp.full(n + 1, _LOG_ZERO_RATIO, dtype).at[0].set(_LOG_INFINITY)
    return state._replace(law=Ratios(high, jnp.zeros_like(high), jnp.zeros((n, n), dtype)))


def probabilities(state: State, log_weight: ArrayLike) -> tuple[Array, Array]:
    r"""Give the chances that `add` draws with.

    .. math::
        \text{accept} = \frac{w}{g_n + w}, \qquad
        \text{drop}_s = \frac{G_s[k-1] - G_s[k]}{G_s[k-1] + w_s}

    symbols: w ↔ `exp(log_weight)`; k ↔ the rank of slot s; :math:`G_s` ↔ g just before the item in s was added.

    Args:
        state: the memory before the item.
        log_weight: log of the item's weight.

    Returns:
        accept: [], chance that the item is kept; 1 while there is room, 0 for a weight of 0.
        drop: [n], for a full memory that accepts: going from the newest item to the oldest, the chance to drop this
            one having spared all newer ones; always 1 for the oldest. All 0 while there is room.
    """
    margin = _margin(state.law, _usable(state, log_weight))
    own_rank = jnp.maximum(state.ranks - 1, 0)[:, None]
    drop = jnp.take_along_axis(state.law.drop, own_rank, axis=1)[:, 0]
    return jax.nn.sigmoid(margin[-1]), jnp.where(jnp.all(state.filled), drop, 0)


# Compiled here so that a call outside `jit` is quick as well; inside `jit` it costs nothing.
@jax.jit
def add(state: State, item: Any, log_weight: ArrayLike, key: Array) -> State:
    """Show the memory one item, which it may or may not keep.

    Args:
        state: the memory.
        item: pytree of the structure, shapes and dtypes given to `init`.
        log_weight: log of the item's weight. -inf is weight 0: the item is never kept. NaN, +inf and anything beyond
            ±1e30 count as weight 0 too, as compiled code cannot raise and one NaN would spoil the memory for good.
        key: random key, used up by this call.

    Returns:
        The memory after the item.

    Raises:
        ValueError: if `item` differs from the example given to `init`.
    """
    return place(state, item, log_weight, key)[0]


def place(state: State, item: Any, log_weight: ArrayLike, key: Array) -> tuple[State, Array]:
    """As `add`, and what was decided: the slot that the item was put in, n where it was not kept.

    Who shows a memory's changes needs it: an item that takes the place of its equal leaves no other trace.
    """
    log_weight = _usable(state, log_weight)
    law = state.law
    state, slot = _place(state, item, log_weight, *probabilities(state, log_weight), key)
    drop = law.drop.at[slot].set(_drop_by_rank(law, log_weight), mode="drop")
    return state._replace(law=Ratios(*_grow(law, log_weight), drop)), slot


def holds(state: State, item: Any) -> Array:
    """Whether an item equal to this one is in memory."""
    same = jax.tree.map(lambda rows, leaf: jnp.all((rows == leaf).reshape(len(rows), -1), axis=1), state.items, item)
    return jnp.any(state.filled & jnp.all(jnp.stack(jax.tree.leaves(same)), axis=0))


def clear(state: State, when: ArrayLike = True) -> State:
    """Empty the memory where ``when`` is true; rows that only filled slots are read from are left as they are."""
    law = state.law
    if isinstance(law, Ratios):
        first = jnp.arange(law.high.shape[-1]) == 0
        empty = jnp.where(first, _LOG_INFINITY, _LOG_ZERO_RATIO).astype(law.high.dtype)
        law = law._replace(high=jnp.where(when, empty, law.high), low=jnp.where(when, 0, law.low))
    return state._replace(
        log_weights=jnp.where(when, -jnp.inf, state.log_weights),
        ranks=jnp.where(when, 0, state.ranks),
        seen=jnp.where(when, 0, state.seen),
        law=law,
    )


def age(state: State, by: ArrayLike) -> State:
    r"""Divide the weight of every item seen so far by e^by, against those still to come.

    With one call before each `add`, an item's weight is :math:`w e^{-\rho \cdot \text{age}}`, ρ ↔ `by`, and the law is
    the product law of these weights, exactly: each ratio g_k scales like a weight, and the chances to be dropped, fixed
    at arrival, are quotients in which the scale cancels. `log_weights` stay as given. Laws without weights stay too.
    """
    law = state.law
    if not isinstance(law, Ratios):
        return state
    # The first ratio stands for infinity and stays; so, by rounding, do those that stand for 0.
    shift = jnp.where(jnp.arange(law.high.shape[-1]) == 0, 0, jnp.asarray(by, law.high.dtype))
    high, low = _two_sum(law.high, law.low - shift)
    return state._replace(law=law._replace(high=high, low=low))


def _grow(law: Ratios, log_weight: Array) -> tuple[Array, Array]:
    """Let the ratios see one more weight: g_k <- g_{k-1} (g_k + w) / (g_{k-1} + w).

    In logs that is the median of g_k, w and g_{k-1} plus two terms within ±log 2, whatever the sizes: each step then
    rounds at the scale of 1, not of the logs, and the pair (high, low) keeps it.
    """
    margin = _margin(law, log_weight)
    excess = jnp.log1p(jnp.exp(-jnp.abs(margin)))
    above, between = margin[:-1] > 0, margin[1:] > 0
    high = jnp.where(above, law.high[:-1], jnp.where(between, log_weight, law.high[1:]))
    low = jnp.where(above, law.low[:-1], jnp.where(between, 0, law.low[1:]))
    low = low + (excess[1:] - excess[:-1])

    total, error = _two_sum(high, low)
    return law.high.at[1:].set(total), law.low.at[1:].set(error)


def _two_sum(high: Array, low: Array) -> tuple[Array, Array]:
    """Knuth's two-sum: `total + error` is `high + low` exactly."""
    total = high + low
    part = total - high
    return total, (high - (total - part)) + (low - part)


def _drop_by_rank(law: Ratios, log_weight: Array) -> Array:
    """[n]: the chance of an item added now to be dropped at rank 1..n, (g_{k-1} - g_k) / (g_{k-1} + w)."""
    gap = (law.high[:-1] - law.high[1:]) + (law.low[:-1] - law.low[1:])
    return -jnp.expm1(-jnp.maximum(gap, 0)) * jax.nn.sigmoid(-_margin(law, log_weight)[:-1])


def _margin(law: Ratios, log_weight: Array) -> Array:
    """[n+1]: log(w / g_k)."""
    return (log_weight - law.high) - law.low


def _probabilities_uniform(state: State, log_weight: ArrayLike) -> tuple[Array, Array]:
    usable = _usable(state, log_weight)
    seen = state.seen.astype(usable.dtype) + 1
    accept = jnp.where(usable == _LOG_ZERO_WEIGHT, 0, jnp.minimum(1, state.capacity / seen))
    return accept, jnp.where(jnp.all(state.filled), 1 / jnp.maximum(state.ranks, 1).astype(usable.dtype), 0)


def _probabilities_fifo(state: State, log_weight: ArrayLike) -> tuple[Array, Array]:
    usable = _usable(state, log_weight)
    accept = (usable != _LOG_ZERO_WEIGHT).astype(usable.dtype)
    return accept, ((state.ranks == 1) & jnp.all(state.filled)).astype(usable.dtype)


def _kernel(probabilities: Callable[[State, ArrayLike], tuple[Array, Array]]) -> Kernel:
    """The kernel of a law that keeps nothing besides its items."""

    def place(state: State, item: Any, log_weight: ArrayLike, key: Array) -> tuple[State, Array]:
        log_weight = _usable(state, log_weight)
        return _place(state, item, log_weight, *probabilities(state, log_weight), key)

    @jax.jit
    def add(state: State, item: Any, log_weight: ArrayLike, key: Array) -> State:
        return place(state, item, log_weight, key)[0]

    return Kernel(_init_plain, probabilities, add, place)


def _probabilities_none(state: State, log_weight: ArrayLike) -> tuple[Array, Array]:
    never = jnp.zeros_like(_usable(state, log_weight))
    return never, jnp.zeros_like(state.log_weights)


def _add_none(state: State, item: Any, log_weight: ArrayLike, key: Array) -> State:
    del item, log_weight, key
    return state


def _place_none(state: State, item: Any, log_weight: ArrayLike, key: Array) -> tuple[State, Array]:
    return _add_none(state, item, log_weight, key), jnp.asarray(state.capacity, jnp.int32)


def _init_plain(capacity: int, item: Any) -> State:
    n = operator.index(capacity)
    if n < 1:
        raise ValueError(f"capacity must be at least 1, got capacity={n}")
    if not jax.tree.leaves(item):
        raise ValueError(f"item must hold at least one array, got item={item!r}")
    return State(
        items=jax.tree.map(lambda leaf: jnp.zeros((n, *jnp.shape(leaf)), jnp.asarray(leaf).dtype), item),
        log_weights=jnp.full(n, -jnp.inf, jnp.result_type(float)),
        ranks=jnp.zeros(n, jnp.int32),
        seen=jnp.zeros((), jnp.int32),
        law=(),
    )


def _usable(state: State, log_weight: ArrayLike) -> Array:
    log_weight = jnp.asarray(log_weight).astype(state.log_weights.dtype)
    return jnp.where(jnp.abs(log_weight) <= _LARGEST_LOG_WEIGHT, log_weight, _LOG_ZERO_WEIGHT)


def _place(state: State, item: Any, log_weight: Array, accept: Array, drop: Array, key: Array) -> tuple[State, Array]:
    """Draw whether and where to put the item; slot n, which every write ignores, means not at all."""
    n, count, full = state.capacity, state.count, jnp.all(state.filled)
    uniforms = jax.random.uniform(key, (n + 3,), accept.dtype)
    accepted = _happens(uniforms[:2], accept[None])[0]
    slot = jax.lax.cond(
        accepted & full,
        lambda: jnp.argmax(jnp.where(_happens(uniforms[2:], drop), state.ranks, 0)).astype(jnp.int32),
        lambda: jnp.where(accepted, count, n),
    )
    dropped = jnp.where(accepted & full, state.ranks[slot], n)
    ranks = jnp.where(state.ranks > dropped, state.ranks - 1, state.ranks)
    counted = (log_weight != _LOG_ZERO_WEIGHT) & (state.seen < jnp.iinfo(jnp.int32).max)
    placed = state._replace(
        items=jax.tree.map(lambda rows, leaf: _write(rows, leaf, slot), state.items, item),
        log_weights=_write(state.log_weights, log_weight, slot),
        ranks=_write(ranks, jnp.minimum(count + 1, n), slot),
        seen=jnp.where(counted, state.seen + 1, state.seen),
    )
    return placed, slot


def _write(rows: Array, leaf: ArrayLike, slot: Array) -> Array:
    leaf = jnp.asarray(leaf)
    same_kind = leaf.weak_type and leaf.dtype.kind == rows.dtype.kind  # a bare Python number of that kind
    if leaf.shape != rows.shape[1:] or not (same_kind or leaf.dtype == rows.dtype):
        raise ValueError(
            "item must match the example given to init: "
            f"expected {rows.dtype}{list(rows.shape[1:])}, got {leaf.dtype}{list(leaf.shape)}"
        )
    return rows.at[slot].set(leaf, mode="drop")


def _happens(uniforms: Array, probability: Array) -> Array:
    """[m]: decide independent events whose chances may lie far below the spacing of a uniform number, 2^-23 in float32.

    Takes m + 1 uniform numbers.

    An event's own uniform is compared with the leading bits of its chance; only where these tie does a second one
    decide by the bits that follow. Nothing is rounded: chance 1 always happens, chance 0 never. The second uniform
    serves all events, as any two events tie together only once in 2^46.
    """
    spacing = 2.0 ** jnp.finfo(probability.dtype).nmant
    drawn, leading = jnp.floor(uniforms[:-1] * spacing), jnp.floor(probability * spacing)
    return (drawn < leading) | ((drawn == leading) & (uniforms[-1] < probability * spacing - leading))


PRODUCT = Kernel(init, probabilities, add, place)
UNIFORM = _kernel(_probabilities_uniform)
FIFO = _kernel(_probabilities_fifo)
NONE = Kernel(_init_plain, _probabilities_none, _add_none, _place_none)
