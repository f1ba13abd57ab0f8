"""recollect's default agent, ``GeneralActorCritic``, as a PyTorch module."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from recollect.agents.episode_memory import AGES, EpisodeMemory
from recollect.agents.general import FARTHEST, GeneralActorCritic
from recollect.agents.networks import NormedNetwork
from recollect.agents.persistence import Persistence, Tried
from recollect.agents.scaling import RESOLUTION
from recollect.agents.trace_units import TraceUnits
from recollect.torch import checks, kernel
from recollect.torch.policy import LAWS, Network, Policy, Step, action_features, draw_action, refuse, sizes

PARTS = {
    "memory": EpisodeMemory,
    "persistence": Persistence,
    "units": TraceUnits,
    "network": NormedNetwork,
    "query_network": NormedNetwork,
    "write_network": NormedNetwork,
}
"""The agent's parts that the module knows; one of your own has to be written in PyTorch by you."""


class GeneralState(NamedTuple):
    """What the agent carries through an episode, for a batch of environments.

    Attributes:
        memory: the reservoirs; their items are observations as they came, and beside them the time step of each.
        units: [batch, 4, units], the trace units: the critic's real and imaginary parts, the actor's.
        previous: [batch, outputs], the action before as the networks see it; zeros where an episode begins.
        time: [batch] int64, steps of the episode so far.
        numbers: [batch, choices], the uniform numbers that the last action was drawn with.
        kept: [batch] bool, whether they are kept for a while in this episode.
    """

    memory: kernel.State
    units: Tensor
    previous: Tensor
    time: Tensor
    numbers: Tensor
    kept: Tensor

    def to(self, device: torch.device | str) -> "GeneralState":
        """The same on another device."""
        return GeneralState(self.memory.to(device), *(part.to(device) for part in self[1:]))

    def state_dict(self) -> dict[str, Tensor]:
        """The tensors by name, for ``torch.save`` or ``safetensors``."""
        return {**self.memory.state_dict(), **{name: getattr(self, name) for name in self._fields[1:]}}

    @classmethod
    def from_state_dict(cls, tensors: Mapping[str, Tensor]) -> "GeneralState":
        """What ``state_dict`` gave."""
        rest = cls._fields[1:]
        if missing := [name for name in rest if name not in tensors]:
            raise ValueError(f"the tensors {', '.join(missing)} are missing; there are {sorted(tensors)}")
        own = {name: tensor for name, tensor in tensors.items() if name not in rest}
        return cls(kernel.State.from_state_dict(own), *(tensors[name] for name in rest))


def normed(x: Tensor) -> Tensor:
    """What `recollect.agents.networks.NormedNetwork` has between its layers: normalised, then leaky-rectified."""
    return functional.leaky_relu(functional.layer_norm(x, x.shape[-1:]), 0.01)


def standardized(x: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """`recollect.agents.scaling.standardize`."""
    return ((x - mean) / deviation).clamp(-FARTHEST, FARTHEST)


class Units(nn.Module):
    """`recollect.agents.trace_units.TraceUnits`: h ← λ h + W x in complex numbers, as pairs of real ones."""

    nu: Tensor
    theta: Tensor
    weight_re: Tensor
    weight_im: Tensor
    pace: Tensor

    def __init__(self, units: TraceUnits, inputs: int):
        super().__init__()
        self.sluggishness = units.sluggishness
        for name in ("nu", "theta"):
            self.register_parameter(name, nn.Parameter(torch.zeros(units.units)))
        for name in ("weight_re", "weight_im"):
            self.register_parameter(name, nn.Parameter(torch.zeros(units.units, inputs)))
        pace = torch.from_numpy(units.sluggishness * units.time_constants())
        self.register_buffer("pace", pace, persistent=False)

    def forward(self, x: Tensor, held: Tensor) -> tuple[Tensor, Tensor]:
        """What the units hold after one more input, [batch, 2, units], and the features [batch, 2 · units] of it."""
        size = torch.exp(-torch.exp(self.nu / self.sluggishness))
        re, im = size * torch.cos(self.theta / self.pace), size * torch.sin(self.theta / self.pace)
        h_re, h_im = held[:, 0], held[:, 1]
        h_re, h_im = (
            re * h_re - im * h_im + functional.linear(x, self.weight_re),
            re * h_im + im * h_re + functional.linear(x, self.weight_im),
        )
        scale = torch.sqrt(1 - size * size)
        return torch.stack([h_re, h_im], 1), torch.cat([scale * h_re, scale * h_im], -1)


class GeneralPolicy(Policy, agent=GeneralActorCritic):
    """``GeneralActorCritic`` without its learning; ``from_agent`` and ``from_learner`` make it.

    A step's ``value`` is [batch, horizons], each in units of its horizon's returns; ``recalled`` is in standard units.
    What the agent has seen observations and rewards to be like is part of the module: ``observed_mean``,
    ``observed_deviation``, ``rewarded_mean``, ``rewarded_deviation``; so is ``keeping``, the chance that an episode's
    actions are drawn with numbers that are kept for a while.
    """

    sees_rewards = True

    outputs: int
    observed_mean: Tensor
    observed_deviation: Tensor
    rewarded_mean: Tensor
    rewarded_deviation: Tensor
    keeping: Tensor
    peaks: Tensor

    def __init__(self, agent: GeneralActorCritic, weights: Mapping[str, Tensor]):
        for name, part in PARTS.items():
            if type(getattr(agent, name)) is not part:
                raise ValueError(f"{name}={getattr(agent, name)!r} has no PyTorch form; a {part.__name__} has")
        refuse("memory.law", agent.memory.law, LAWS)
        super().__init__(agent, sizes(weights, "write")[0][1])
        names = ("critic.network", "actor.policy", "actor.query", "write")
        own = {name: Network(sizes(weights, name), normed) for name in names}
        inputs = weights["actor.units.weight_re"].shape[1]
        self.outputs = sizes(weights, "actor.policy")[-1][0]
        critic_units, actor_units = Units(agent.units, inputs + 1), Units(agent.units, inputs)
        self.critic = nn.ModuleDict({"units": critic_units, "network": own["critic.network"]})
        self.actor = nn.ModuleDict({"units": actor_units, "policy": own["actor.policy"], "query": own["actor.query"]})
        self.write = own["write"]
        for buffer, scale in (("observed", "observation"), ("rewarded", "reward")):
            mean, variance = weights[f"scales.{scale}.mean"], weights[f"scales.{scale}.variance"]
            deviation = variance.clamp(min=0.0).sqrt()
            deviation = torch.where(deviation > RESOLUTION * mean.abs(), deviation, 1.0)
            self.register_buffer(f"{buffer}_mean", mean.clone())
            self.register_buffer(f"{buffer}_deviation", deviation)
        self.register_buffer("peaks", torch.from_numpy(np.log(np.asarray(AGES, np.float32))), persistent=False)
        tried = Tried(*(jnp.asarray(weights[f"tried.{name}"].numpy()) for name in Tried._fields))
        self.register_buffer("keeping", torch.tensor(float(agent.persistence.chance(tried))))
        self.beside = {
            name: tensor for name, tensor in weights.items() if name.startswith(("scales.", "tried.", "reached."))
        }
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                parameter.copy_(weights[name])

    @property
    def draws(self) -> int:
        """How many uniform numbers a step takes per row: to recall, to store, to keep the last ones, to act."""
        return super().draws + 1

    def initial_state(self, batch: int) -> GeneralState:
        """Nothing remembered, for ``batch`` environments, on the module's device."""
        agent, device = self.agent, self.mean.device
        return GeneralState(
            kernel.init(LAWS[agent.memory.law], batch, agent.memory_size, self.features + 1, device=device),
            torch.zeros(batch, 4, agent.units.units, device=device),
            torch.zeros(batch, self.outputs, device=device),
            torch.zeros(batch, dtype=torch.int64, device=device),
            torch.zeros(batch, agent.actions.draws, device=device),
            torch.zeros(batch, dtype=torch.bool, device=device),
        )

    def _step(
        self,
        x: Tensor,
        state: GeneralState,
        done: Tensor | None,
        reward: Tensor | None,
        to_remember: Tensor,
        to_act: Tensor,
    ) -> Step:
        self._check(x.shape[0], state, done)
        if done is not None:
            state = _begun(state, done.to(torch.bool))
        stored, here = state.memory, self.standard(x)
        inputs = torch.cat([here, state.previous], -1)
        watched = torch.cat([inputs, self.standard_reward(reward, state.time)], -1)
        critic_held, seen = self.critic["units"](watched, state.units[:, :2])
        value = self.critic["network"](torch.cat([watched, seen], -1))
        actor_held, features = self.actor["units"](inputs, state.units[:, 2:])
        there = torch.where(stored.filled[..., None], self.standard(stored.items[..., :-1]), 0.0)
        keys = torch.cat([there, self.age_features(state.time[:, None] - stored.items[..., -1])], -1)
        q = self.actor["query"](torch.cat([inputs, features], -1))
        matches = torch.where(stored.filled, (keys * q[:, None]).sum(-1), -torch.inf)
        empty = ~stored.filled.any(-1, keepdim=True)
        slot = kernel.draw(torch.where(empty, 0.0, matches), to_remember[:, 0])
        recalled = kernel.row(there, slot)  # zeros in an empty slot
        logits = self.actor["policy"](torch.cat([inputs, features, recalled], -1))
        begins, u = state.time == 0, to_remember[:, -1]
        kept = (begins & (u < self.keeping)) | (~begins & state.kept)
        again = kept & ~begins & (u < self.agent.persistence.share)
        numbers = torch.where(again[:, None], state.numbers, to_act)
        action = draw_action(self.agent.actions, logits, numbers)
        after = GeneralState(
            self._store(state, x, here, there, to_remember[:, 1:-1]),
            torch.cat([critic_held, actor_held], 1).detach(),
            action_features(self.agent.actions, action, self.outputs).to(logits.dtype),
            state.time + 1,
            numbers,
            kept,
        )
        return Step(action, logits, value, recalled, after)

    def standard(self, observation: Tensor) -> Tensor:
        """Observations in standard units."""
        return standardized(observation, self.observed_mean, self.observed_deviation)

    def standard_reward(self, reward: Tensor | None, time: Tensor) -> Tensor:
        """[batch, 1]: rewards in standard units; 0 where none is known or an episode begins."""
        if reward is None:
            return torch.zeros_like(time, dtype=self.mean.dtype)[:, None]
        known = (time[:, None] > 0) & reward.isfinite()[:, None]
        return torch.where(known, standardized(reward[:, None], self.rewarded_mean, self.rewarded_deviation), 0.0)

    def age_features(self, age: Tensor) -> Tensor:
        """`recollect.agents.episode_memory.age_features`: how near an age is to each of ``AGES``."""
        peaks, place = self.peaks, age.clamp(min=1.0).log()[..., None]
        gaps = torch.cat([peaks[:1] + 1.0, peaks[1:] - peaks[:-1], torch.ones_like(peaks[:1])])
        before, after = torch.cat([-torch.ones_like(peaks[:1]), peaks[:-1]]), torch.cat([peaks[1:], peaks[-1:]])
        rising, falling = (place - before) / gaps[:-1], (after - place) / gaps[1:]
        # Beyond the last peak there is nothing to fall to.
        last = torch.arange(len(AGES), device=peaks.device) == len(AGES) - 1
        return torch.where(last, rising, torch.minimum(rising, falling)).clamp(0.0, 1.0)

    def weights(self) -> dict[str, Tensor]:
        """The parameters by their names in JAX, for ``from_torch`` and ``save_weights``."""
        learned = {name: parameter.detach().clone() for name, parameter in self.named_parameters()}
        return learned | {name: tensor.clone() for name, tensor in self.beside.items()}

    @torch.no_grad()
    def _store(self, state: GeneralState, x: Tensor, here: Tensor, there: Tensor, u: Tensor) -> kernel.State:
        memory, stored = self.agent.memory, state.memory
        log_weight = functional.logsigmoid(self.write(here)[:, 0])
        if memory.radius is not None:
            near = (there - here[:, None]).square().sum(-1) <= memory.radius**2
            log_weight = torch.where((stored.filled & near).any(-1), -torch.inf, log_weight)
        log_weight = torch.where(x.isfinite().all(-1), log_weight, -torch.inf)
        item = torch.cat([x, state.time[:, None].to(x.dtype)], -1)
        return kernel.add(LAWS[memory.law], stored, item, log_weight, u)

    def _check(self, batch: int, state: Any, done: Tensor | None) -> None:
        if not isinstance(state, GeneralState):
            raise TypeError(f"the state must be a GeneralState, initial_state's, got a {type(state).__name__}")
        like, of = self.mean, "the module"
        kernel.check(LAWS[self.agent.memory.law], state.memory, batch, self.agent.memory_size, self.features + 1, like)
        checks.tensor("the state's units", state.units, (batch, 4, self.agent.units.units), like, of=of)
        checks.tensor("the state's previous", state.previous, (batch, self.outputs), like, of=of)
        checks.tensor("the state's time", state.time, (batch,), like, of=of, dtype=torch.int64)
        checks.tensor("the state's numbers", state.numbers, (batch, self.agent.actions.draws), like, of=of)
        checks.tensor("the state's kept", state.kept, (batch,), like, of=of, dtype=torch.bool)
        if done is not None:
            checks.tensor("done", done, (batch,), like, of=of, dtype="any")


def _begun(state: GeneralState, when: Tensor) -> GeneralState:
    """Nothing remembered where ``when`` is true."""
    return GeneralState(
        kernel.clear(state.memory, when),
        torch.where(when[:, None, None], 0.0, state.units),
        torch.where(when[:, None], 0.0, state.previous),
        torch.where(when, 0, state.time),
        state.numbers,
        state.kept,
    )
