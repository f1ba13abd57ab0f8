"""The reservoir memory as a PyTorch module: recall one past state per step, learn what to keep and what to recall."""

import math
import sys
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from recollect.torch import checks, kernel
from recollect.torch.kernel import State


class Info(NamedTuple):
    """What one step of recall was made of; ``ReservoirMemory.loss`` needs nothing else, now or epochs later.

    Every tensor has the batch first, so that a rollout of these can be stacked, shuffled and cut into minibatches.

    Attributes:
        x: [batch, features], the state that recalled, with its graph where it has one.
        items: [batch, n, features], the stored states there were to recall.
        log_weights: [batch, n], logs of the weights they were stored with.
        filled: [batch, n] bool, which slots hold a state.
        slot: [batch] int64, which one was recalled; without meaning where none is filled.
        log_weight: [batch], log of the weight that ``x`` was shown to the memory with; -inf for one left out.
    """

    x: Tensor
    items: Tensor
    log_weights: Tensor
    filled: Tensor
    slot: Tensor
    log_weight: Tensor


class Scores(NamedTuple):
    """What is differentiated, per row.

    Attributes:
        log_query: log Q(S_i | M_t) of the state that was recalled; 0 while the memory is empty.
        credit: w(S_i; θ)/w_i, whose gradient times δ is δ/w_i ∂w(S_i)/∂θ; 0 while the memory is empty.
        entropy: of Q, in nats; 0 while the memory is empty.
    """

    log_query: Tensor
    credit: Tensor
    entropy: Tensor


class ReservoirMemory(nn.Module):
    """An episodic memory of fixed size per environment, after the same definition as ``EpisodicActorCritic``'s.

    At each step one stored state is recalled, S_i with probability softmax(⟨q(x), S_i⟩/τ), and then the current state
    is shown to the reservoir with weight w(x). No gradient runs through time: the state holds no graph, and the credit
    for what was stored long ago comes through δ/w_i.

    >>> memory = ReservoirMemory(3, memory_size=2)
    >>> state = memory.initial_state(batch=4)
    >>> x, done = torch.randn(4, 3), torch.ones(4, dtype=torch.bool)
    >>> recalled, state, info = memory(x, state, done)
    >>> recalled, state, info = memory(torch.randn(4, 3), state, ~done)
    >>> bool((recalled == x).all()), state.count.tolist()
    (True, [2, 2, 2, 2])
    >>> memory.loss(torch.ones(4), info).backward()

    Args:
        features: length of the state vectors that are stored and recalled.
        memory_size: n, the states kept per environment.
        law: which are kept: "product" (by learned weight), "uniform" or "fifo" (the last n).
        query: module from states [rows, features] to query vectors of the same shape (default: one hidden layer of
            ``hidden`` tanh units, tanh outputs).
        write: module from states [rows, features] to one number per row, the logit of the weight w (default: one hidden
            layer of ``hidden`` tanh units).
        hidden: units of the default networks.
        query_gain, write_gain: factors on the default networks' initial weights: small ones keep and recall all alike
            until there is a reason.
        temperature: τ at the start; it is learned.
        distinct: leave out a state that is in memory already.
        forgetting: ρ: a stored state's weight falls by e^-ρ a step against those still to come.
        estimator: who gets write credit: the "queried" state alone, or "every" stored state.
        credit_cap: bound on the quotient of a state's weight now and its weight when it was stored.
        log_weight_floor: lower bound on log w when a state is stored.
        device, dtype: of the parameters; float32 or float64.
    """

    def __init__(
        self,
        features: int,
        memory_size: int = 8,
        *,
        law: str = "product",
        query: nn.Module | None = None,
        write: nn.Module | None = None,
        hidden: int = 16,
        query_gain: float = 0.1,
        write_gain: float = 0.3,
        temperature: float = 1.0,
        distinct: bool = False,
        forgetting: float = 0.0,
        estimator: str = "queried",
        credit_cap: float = 2.0,
        log_weight_floor: float = -math.inf,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float32,
    ):
        super().__init__()
        for name, value in (("features", features), ("memory_size", memory_size), ("hidden", hidden)):
            checks.count(name, value)
        kernel.init(law, 1, memory_size, features, dtype=dtype)  # refuses what else no memory can be made of
        checks.number("temperature", temperature, 0.0, sys.float_info.max, open_low=True)
        checks.number("forgetting", forgetting, 0.0, sys.float_info.max)
        checks.number("query_gain", query_gain, 0.0, sys.float_info.max)
        checks.number("write_gain", write_gain, 0.0, sys.float_info.max)
        checks.number("credit_cap", credit_cap, 0.0, math.inf, open_low=True, hint="; math.inf for no bound")
        checks.number("log_weight_floor", log_weight_floor, -math.inf, 0.0, hint="; -math.inf for no bound")
        if estimator not in ("queried", "every"):
            raise ValueError(f"estimator={estimator!r}: choose one of 'queried', 'every'")
        self.features, self.memory_size, self.law = features, memory_size, law
        self.distinct, self.forgetting, self.estimator = bool(distinct), float(forgetting), estimator
        self.credit_cap, self.log_weight_floor = float(credit_cap), float(log_weight_floor)
        if query is None:
            layers = (nn.Linear(features, hidden), nn.Tanh(), nn.Linear(hidden, features), nn.Tanh())
            query = _scaled(nn.Sequential(*layers), query_gain).to(device=device, dtype=dtype)
        if write is None:
            layers = (nn.Linear(features, hidden), nn.Tanh(), nn.Linear(hidden, 1))
            write = _scaled(nn.Sequential(*layers), write_gain).to(device=device, dtype=dtype)
        checks.module("query", query, dtype)
        checks.module("write", write, dtype)
        self.query, self.write = query, write
        self.log_temperature = nn.Parameter(torch.full((), math.log(temperature), device=device, dtype=dtype))

    @property
    def draws(self) -> int:
        """How many uniform numbers a step takes per row: one to recall, the rest to store."""
        return 1 + self.memory_size + kernel.EXTRA_DRAWS

    def initial_state(self, batch: int) -> State:
        """Empty memories for ``batch`` environments, on the module's device and in its dtype."""
        like = self.log_temperature
        return kernel.init(self.law, batch, self.memory_size, self.features, dtype=like.dtype, device=like.device)

    def forward(
        self,
        x: Tensor,
        state: State,
        done: Tensor | None = None,
        *,
        generator: torch.Generator | None = None,
        uniforms: Tensor | None = None,
    ) -> tuple[Tensor, State, Info]:
        """One step: recall a stored state, then show the memory the current one.

        Args:
            x: [batch, features], the current states.
            state: the memories, from ``initial_state`` or the step before.
            done: [batch], true where ``x`` begins a new episode: those memories are emptied first. None for nowhere.
            generator: of the uniform numbers (default: PyTorch's own).
            uniforms: [batch, draws] numbers in [0, 1) to use instead, of the module's dtype.

        Returns:
            recalled: [batch, features], the recalled states; zeros where the memory is empty.
            state: the memories after the step, without a graph.
            info: what ``loss`` needs.
        """
        self._check(x, state, done, uniforms)
        with torch.no_grad():
            if done is not None:
                state = kernel.clear(state, done.to(torch.bool))
            if uniforms is None:
                size = (x.shape[0], self.draws)
                uniforms = torch.rand(size, generator=generator, dtype=x.dtype, device=x.device)
            logits, empty = self._logits(x, state.items, state.filled)
            slot = kernel.draw(torch.where(empty[:, None], 0.0, logits), uniforms[:, 0])
            recalled = torch.where(empty[:, None], 0.0, kernel.row(state.items, slot))
            log_weight = self.log_write_weight(x).clamp(min=self.log_weight_floor)
            if self.distinct:
                log_weight = torch.where(kernel.holds(state, x), -torch.inf, log_weight)
            # A state that is not finite gets weight 0: its row, even emptied, would turn later gradients into NaN.
            log_weight = torch.where(x.isfinite().all(-1), log_weight, -torch.inf)
            aged = kernel.age(state, self.forgetting) if self.forgetting else state
            after = kernel.add(self.law, aged, x.detach(), log_weight, uniforms[:, 1:])
        return recalled, after, Info(x, state.items, state.log_weights, state.filled, slot, log_weight)

    def log_write_weight(self, x: Tensor) -> Tensor:
        """[rows]: log w of states [rows, features]."""
        output, rows = self.write(x), x.shape[0]  # not len(x), which would fix the number of rows in an export
        if output.numel() != rows:
            raise ValueError(f"write must give one number per row, [{rows}] or [{rows}, 1], got {_shape(output)}")
        return functional.logsigmoid(output.reshape(rows))

    def query_probabilities(self, x: Tensor, state: State) -> Tensor:
        """[batch, n]: Q(S_i | M_t) of every slot at states ``x``; 0 where it is empty.

        Paper: Eq. (1)
        """
        logits, empty = self._logits(x, state.items, state.filled)
        return torch.where(state.filled, torch.softmax(torch.where(empty[:, None], 0.0, logits), -1), 0.0)

    def scores(self, info: Info) -> Scores:
        """What δ multiplies, under the parameters as they are now, for steps that were taken under these or others.

        Paper: Eq. (6), Eq. (9), Eq. (10), section 3
        """
        logits, empty = self._logits(info.x, info.items, info.filled)
        # -inf would make gradients NaN even where they are not used.
        finite = torch.where(info.filled, logits, -1e30)
        log_q = torch.log_softmax(torch.where(empty[:, None], 0.0, finite), -1)
        log_query = torch.where(empty, 0.0, log_q.gather(-1, info.slot[:, None])[:, 0])
        entropy = -torch.where(info.filled, log_q.exp() * log_q, 0.0).sum(-1)
        if self.estimator == "queried":
            log_w = self.log_write_weight(kernel.row(info.items, info.slot))
            given, counts = info.log_weights.gather(-1, info.slot[:, None])[:, 0], ~empty
            return Scores(log_query, self._credit(log_w, given, counts), entropy)
        log_w = self.log_write_weight(info.items.flatten(0, 1)).reshape(info.filled.shape)
        return Scores(log_query, self._credit(log_w, info.log_weights, info.filled).sum(-1), entropy)

    def loss(self, delta: Tensor, info: Info, *, entropy: Tensor | float = 0.0, reduction: str = "mean") -> Tensor:
        """Minus δ times the scores of the query and of the write network; minimise it with the rest of your loss.

        Args:
            delta: [batch], TD errors or advantages of the steps; no gradient goes into them.
            info: those steps, from ``forward``.
            entropy: weight of the query's entropy, one number or one per row.
            reduction: "mean", "sum" or "none".
        """
        if not isinstance(info, Info):
            raise TypeError(f"info must be the Info that forward returned, got a {type(info).__name__}")
        rows = tuple(info.slot.shape)
        checks.tensor("info.x", info.x, (*rows, self.features), self.log_temperature, of="the module")
        for name, values in (("delta", delta), ("entropy", entropy)):
            if name == "delta" or isinstance(values, Tensor):
                checks.tensor(name, values, rows, info.x, of="info.x")
                checks.finite(name, values)  # type: ignore[arg-type]
            else:
                checks.number(name, values, -sys.float_info.max, sys.float_info.max)
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f"reduction={reduction!r}: choose one of 'mean', 'sum', 'none'")
        found = self.scores(info)
        loss = -(delta.detach() * (found.log_query + found.credit) + entropy * found.entropy)
        return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()

    def extra_repr(self) -> str:
        """What ``print`` says of the module."""
        return f"{self.features}, memory_size={self.memory_size}, law={self.law!r}, distinct={self.distinct}"

    def _logits(self, x: Tensor, items: Tensor, filled: Tensor) -> tuple[Tensor, Tensor]:
        """⟨q(x), S_i⟩/τ of each slot, -inf for empty ones; and which rows have none filled."""
        q = self.query(x)
        if q.shape != x.shape:
            raise ValueError(f"query must give vectors like the states, {_shape(x)}, got {_shape(q)}")
        logits = (items * q[:, None]).sum(-1) / self.log_temperature.exp()
        return torch.where(filled, logits, -torch.inf), ~filled.any(-1)

    def _credit(self, log_weight_now: Tensor, log_weight_stored: Tensor, counts: Tensor) -> Tensor:
        stored = torch.where(counts, log_weight_stored, log_weight_now.detach())
        quotient = torch.exp(log_weight_now.detach() - stored).clamp(max=self.credit_cap)
        return torch.where(counts, quotient * (1.0 + log_weight_now - log_weight_now.detach()), 0.0)

    def _check(self, x: Any, state: Any, done: Any, uniforms: Any) -> None:
        like, of = self.log_temperature, "the module"
        batch = checks.rows("x", x, self.features, like, of=of)
        kernel.check(self.law, state, batch, self.memory_size, self.features, like)
        if done is not None:
            checks.tensor("done", done, (batch,), like, of=of, dtype="any")
        if uniforms is not None:
            checks.tensor("uniforms", uniforms, (batch, self.draws), like, of=of)


def _shape(tensor: Tensor) -> list[int]:
    return list(tensor.shape)


def _scaled(network: nn.Sequential, gain: float) -> nn.Sequential:
    with torch.no_grad():
        for layer in network:
            if isinstance(layer, nn.Linear):
                layer.weight *= gain
    return network
