r"""The memory of `recollect.reservoir.kernel` on batches of PyTorch tensors: one independent memory per row.

The definition is that module's; here it is the same arithmetic with a leading batch dimension, and the uniform numbers
it draws from are an argument, so that both can be fed the same ones. Laws:

- ``"product"``: each n-subset of the items seen with probability proportional to the product of its weights;
- ``"uniform"``: each n-subset with equal probability;
- ``"fifo"``: the last n.

>>> state = init("product", batch=1, capacity=2, features=1)
>>> for t in range(5):
...     state = add("product", state, torch.full((1, 1), float(t)), torch.zeros(1), torch.rand(1, 2 + EXTRA_DRAWS))
>>> state.items.shape, state.count.tolist(), state.seen.tolist()
(torch.Size([1, 2, 1]), [2], [5])
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from recollect.torch import checks

LAWS = ("product", "uniform", "fifo")
EXTRA_DRAWS = 3
"""Uniform numbers that one ``add`` takes, beyond one per slot."""

DTYPES = {torch.float32: 23, torch.float64: 52}
"""The floats a memory can be held in, and the bits of their mantissas."""

# The finite substitutes of `recollect.reservoir.kernel`, for the logs of infinity and 0.
_LARGEST_LOG_WEIGHT = 1e30
_LOG_INFINITY = 1e36
_LOG_ZERO_RATIO = -_LOG_INFINITY
_LOG_ZERO_WEIGHT = -2 * _LOG_INFINITY
_MOST_SEEN = 2**31 - 1


class State(NamedTuple):
    """The memories of a batch. Items stay in their slots; only ``ranks`` tells their order of arrival.

    Attributes:
        items: [batch, n, features].
        log_weights: [batch, n], as given when the item was added; -inf where the slot is empty.
        ranks: [batch, n] int64, 1 for the oldest item kept, 0 where the slot is empty.
        seen: [batch] int64, items seen, those of weight 0 left out; stays at the largest int32 once there.
        high: [batch, n + 1], logs of the product law's ratios g_k; [batch, 0] for the other laws, as the next two.
        low: [batch, n + 1], what rounding cut off ``high``.
        drop: [batch, n, n], chance of each slot's item to be dropped at each rank, fixed when it was added.
    """

    items: Tensor
    log_weights: Tensor
    ranks: Tensor
    seen: Tensor
    high: Tensor
    low: Tensor
    drop: Tensor

    @property
    def capacity(self) -> int:
        """The number of slots, n."""
        return self.ranks.shape[-1]

    @property
    def filled(self) -> Tensor:
        """[batch, n] bool: which slots hold an item."""
        return self.ranks > 0

    @property
    def count(self) -> Tensor:
        """[batch] int64: how many slots hold an item."""
        return self.filled.sum(-1)

    def detach(self) -> "State":
        """The same memories apart from any graph; what ``ReservoirMemory`` returns has none."""
        return State(*(part.detach() for part in self))

    def to(self, device: torch.device | str) -> "State":
        """The same memories on another device."""
        return State(*(part.to(device) for part in self))

    def state_dict(self) -> dict[str, Tensor]:
        """The tensors by name, for ``torch.save`` or ``safetensors``."""
        return dict(zip(self._fields, self, strict=True))

    @classmethod
    def from_state_dict(cls, tensors: Mapping[str, Tensor]) -> "State":
        """The memories that ``state_dict`` gave."""
        if set(tensors) != set(cls._fields):
            raise ValueError(f"a memory has the tensors {sorted(cls._fields)}, got {sorted(tensors)}")
        return cls(**{name: tensors[name] for name in cls._fields})


def init(
    law: str,
    batch: int,
    capacity: int,
    features: int,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> State:
    """Empty memories."""
    if law not in LAWS:
        raise ValueError(f"law={law!r}: choose one of {', '.join(map(repr, LAWS))}")
    for name, value in (("batch", batch), ("capacity", capacity), ("features", features)):
        checks.count(name, value)
    if dtype not in DTYPES:
        raise ValueError(f"dtype={dtype} must be torch.float32 or torch.float64: weights need their range")
    ratios = capacity + 1 if law == "product" else 0
    n = capacity if ratios else 0
    whole: dict[str, Any] = {"dtype": torch.int64, "device": device}
    real: dict[str, Any] = {"dtype": dtype, "device": device}
    empty = State(
        items=torch.zeros(batch, capacity, features, **real),
        log_weights=torch.full((batch, capacity), -torch.inf, **real),
        ranks=torch.zeros(batch, capacity, **whole),
        seen=torch.zeros(batch, **whole),
        high=torch.zeros(batch, ratios, **real),
        low=torch.zeros(batch, ratios, **real),
        drop=torch.zeros(batch, n, n, **real),
    )
    return clear(empty, torch.ones(batch, dtype=torch.bool, device=device))


def check(law: str, state: Any, batch: int, capacity: int, features: int, like: Tensor) -> None:
    """Refuse what is not the state of so many memories of this law, in the dtype and on the device of ``like``."""
    if not isinstance(state, State):
        raise TypeError(f"the state must be a State, initial_state's or a step's, got a {type(state).__name__}")
    if (state.high.shape[-1:] != (0,)) != (law == "product"):
        raise ValueError(f"the state is one of another law than {law!r}: take initial_state of this module")
    ratios, n = (capacity + 1, capacity) if law == "product" else (0, 0)
    shapes = ((batch, capacity, features), (batch, capacity), (batch, capacity), (batch,))
    shapes += ((batch, ratios), (batch, ratios), (batch, n, n))
    for name, part, shape in zip(State._fields, state, shapes, strict=True):
        dtype = torch.int64 if name in ("ranks", "seen") else None
        checks.tensor(f"the state's {name}", part, shape, like, of="the module", dtype=dtype)


def probabilities(law: str, state: State, log_weight: Tensor) -> tuple[Tensor, Tensor]:
    """The chances that ``add`` draws with; see `recollect.reservoir.kernel.probabilities`.

    Returns:
        accept: [batch], chance that the item is kept.
        drop: [batch, n], for a full memory that accepts: going from the newest item to the oldest, the chance to drop
            this one having spared all newer ones.
    """
    log_weight = _usable(log_weight)
    full = state.filled.all(-1, keepdim=True)
    dtype = state.log_weights.dtype
    if law == "product":
        own_rank = (state.ranks - 1).clamp(min=0)[..., None]
        drop = state.drop.gather(-1, own_rank)[..., 0]
        return torch.sigmoid(_margin(state, log_weight)[:, -1]), torch.where(full, drop, 0.0)
    counts = log_weight != _LOG_ZERO_WEIGHT
    if law == "uniform":
        accept = (state.capacity / (state.seen.to(dtype) + 1)).clamp(max=1.0)
        return torch.where(counts, accept, 0.0), torch.where(full, 1 / state.ranks.clamp(min=1).to(dtype), 0.0)
    return counts.to(dtype), ((state.ranks == 1) & full).to(dtype)


def add(law: str, state: State, item: Tensor, log_weight: Tensor, uniforms: Tensor) -> State:
    """Show each memory one item, which it may or may not keep.

    Args:
        law: which items are kept.
        state: the memories.
        item: [batch, features].
        log_weight: [batch], log of the item's weight; -inf, NaN, +inf and anything beyond ±1e30 count as weight 0.
        uniforms: [batch, n + 3] numbers in [0, 1), of the memory's dtype.
    """
    log_weight = _usable(log_weight)
    accept, drop = probabilities(law, state, log_weight)
    n, count, full = state.capacity, state.count, state.filled.all(-1)
    accepted = _happens(uniforms[:, :2], accept[:, None])[:, 0]
    replaced = torch.where(_happens(uniforms[:, 2:], drop), state.ranks, 0).argmax(-1)
    replaces = accepted & full
    slot = torch.where(replaces, replaced, torch.where(accepted, count, n))
    here = slot[:, None] == torch.arange(n, device=slot.device)  # nowhere for slot n, an item that is not kept
    dropped = torch.where(replaces, torch.where(here, state.ranks, 0).sum(-1), n)
    ranks = torch.where(state.ranks > dropped[:, None], state.ranks - 1, state.ranks)
    counted = (log_weight != _LOG_ZERO_WEIGHT) & (state.seen < _MOST_SEEN)
    high, low, by_rank = state.high, state.low, state.drop
    if law == "product":
        by_rank = torch.where(here[..., None], _drop_by_rank(state, log_weight)[:, None], by_rank)
        high, low = _grow(state, log_weight)
    return State(
        items=torch.where(here[..., None], item[:, None], state.items),
        log_weights=torch.where(here, log_weight[:, None], state.log_weights),
        ranks=torch.where(here, (count + 1).clamp(max=n)[:, None], ranks),
        seen=state.seen + counted,
        high=high,
        low=low,
        drop=by_rank,
    )


def clear(state: State, when: Tensor) -> State:
    """Empty the memories where ``when`` [batch] is true; rows of empty slots are left as they are."""
    when = when[:, None]
    first = torch.arange(state.high.shape[-1], device=state.high.device) == 0
    # As tensors: two bare numbers in `where` make float32, whatever the memory is held in.
    empty = torch.where(first, torch.full_like(state.high, _LOG_INFINITY), _LOG_ZERO_RATIO)
    return state._replace(
        log_weights=torch.where(when, -torch.inf, state.log_weights),
        ranks=torch.where(when, 0, state.ranks),
        seen=torch.where(when[:, 0], 0, state.seen),
        high=torch.where(when, empty, state.high),
        low=torch.where(when, 0.0, state.low),
    )


def age(state: State, by: float) -> State:
    """Divide the weight of every item seen so far by e^by, against those still to come, as the JAX kernel does."""
    first = torch.arange(state.high.shape[-1], device=state.high.device) == 0
    high, low = _two_sum(state.high, state.low - torch.where(first, torch.zeros_like(state.low), by))
    return state._replace(high=high, low=low)


def holds(state: State, item: Tensor) -> Tensor:
    """[batch] bool: whether an item equal to this one is in memory."""
    return (state.filled & (state.items == item[:, None]).all(-1)).any(-1)


def draw(logits: Tensor, u: Tensor) -> Tensor:
    """[batch] int64: the index that uniform numbers draw from the softmax of each row of ``logits``, by inversion."""
    shares = torch.exp(logits - logits.amax(-1, keepdim=True)).cumsum(-1)
    return (u[:, None] * shares[:, -1:] >= shares[:, :-1]).sum(-1)


def row(items: Tensor, slot: Tensor) -> Tensor:
    """[batch, features]: the item in each memory's slot."""
    return items.gather(1, slot[:, None, None].expand(-1, 1, items.shape[-1]))[:, 0]


def _usable(log_weight: Tensor) -> Tensor:
    return torch.where(log_weight.abs() <= _LARGEST_LOG_WEIGHT, log_weight, _LOG_ZERO_WEIGHT)


def _margin(state: State, log_weight: Tensor) -> Tensor:
    """[batch, n + 1]: log(w / g_k)."""
    return (log_weight[:, None] - state.high) - state.low


def _grow(state: State, log_weight: Tensor) -> tuple[Tensor, Tensor]:
    """Let the ratios see one more weight: g_k <- g_{k-1} (g_k + w) / (g_{k-1} + w), in logs."""
    margin = _margin(state, log_weight)
    excess = torch.log1p(torch.exp(-margin.abs()))
    above, between = margin[:, :-1] > 0, margin[:, 1:] > 0
    high = torch.where(above, state.high[:, :-1], torch.where(between, log_weight[:, None], state.high[:, 1:]))
    low = torch.where(above, state.low[:, :-1], torch.where(between, 0.0, state.low[:, 1:]))
    total, error = _two_sum(high, low + (excess[:, 1:] - excess[:, :-1]))
    return torch.cat([state.high[:, :1], total], -1), torch.cat([state.low[:, :1], error], -1)


def _two_sum(high: Tensor, low: Tensor) -> tuple[Tensor, Tensor]:
    """Knuth's two-sum: ``total + error`` is ``high + low`` exactly."""
    total = high + low
    part = total - high
    return total, (high - (total - part)) + (low - part)


def _drop_by_rank(state: State, log_weight: Tensor) -> Tensor:
    """[batch, n]: the chance of an item added now to be dropped at rank 1..n, (g_{k-1} - g_k) / (g_{k-1} + w)."""
    gap = (state.high[:, :-1] - state.high[:, 1:]) + (state.low[:, :-1] - state.low[:, 1:])
    return -torch.expm1(-functional.relu(gap)) * torch.sigmoid(-_margin(state, log_weight)[:, :-1])


def _happens(uniforms: Tensor, probability: Tensor) -> Tensor:
    """[batch, m]: decide m events by m + 1 uniform numbers, without rounding chances below their spacing away."""
    spacing = 2.0 ** DTYPES[probability.dtype]
    drawn, leading = torch.floor(uniforms[:, :-1] * spacing), torch.floor(probability * spacing)
    return (drawn < leading) | ((drawn == leading) & (uniforms[:, -1:] < probability * spacing - leading))
