"""A trained ``EpisodicActorCritic`` as a PyTorch module: one step of acting, its memory's state explicit."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from recollect.agents.distributions import Categorical
from recollect.agents.episodic import EpisodicActorCritic
from recollect.torch import kernel
from recollect.torch.kernel import State
from recollect.torch.memory import ReservoirMemory
from recollect.torch.weights import from_torch, to_torch
from recollect.training.normalization import LIMIT

ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid}
LAWS = {"reservoir": "product", "uniform": "uniform", "fifo": "fifo"}
ONLY = {
    "encoder": ("raw",),
    "pictures": (None,),
    "oracle_bit": (None,),
    "write": ("after",),
    "partial_read": ("filled",),
    "empty_read": ("zeros",),
    "reset_memory": (True,),
    "memory": tuple(LAWS),
}
"""Options of the agent that the module has only in these choices."""


class Network(nn.ModuleList):
    """Affine layers with an activation between them, named as in JAX: ``0.weight``, ``0.bias``, ``1.weight``, ...."""

    def __init__(self, sizes: list[tuple[int, int]], activation: str, output: str | None = None):
        super().__init__(nn.Linear(into, out) for out, into in sizes)
        self.activation, self.output = activation, output

    def forward(self, x: Tensor) -> Tensor:
        """The outputs."""
        for k, layer in enumerate(self):
            x = layer(x) if k == 0 else layer(ACTIVATIONS[self.activation](x))
        return x if self.output is None else ACTIVATIONS[self.output](x)


class Step(NamedTuple):
    """What one step gives.

    Attributes:
        action: [batch] int64, drawn from the policy.
        logits: [batch, actions].
        value: [batch], V(x).
        recalled: [batch, features].
        state: the memories after it.
    """

    action: Tensor
    logits: Tensor
    value: Tensor
    recalled: Tensor
    state: State


class EpisodicPolicy(nn.Module):
    """``EpisodicActorCritic`` without its learning; ``from_agent`` and ``from_learner`` make it.

    >>> import jax, recollect
    >>> from recollect import prng
    >>> agent = recollect.EpisodicActorCritic(memory_size=2)
    >>> policy = EpisodicPolicy.from_agent(agent, agent.init(prng.key(0), 4, 3))
    >>> step = policy(torch.zeros(5, 4), policy.memory.initial_state(5), torch.ones(5, dtype=torch.bool))
    >>> step.logits.shape, step.action.shape
    (torch.Size([5, 3]), torch.Size([5]))
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, agent: EpisodicActorCritic, weights: Mapping[str, Tensor]):
        super().__init__()
        for name, choices in ONLY.items():
            if getattr(agent, name) not in choices:
                raise ValueError(
                    f"{name}={getattr(agent, name)!r} has no PyTorch form; choices that have: "
                    f"{', '.join(map(repr, choices))}"
                )
        if not isinstance(agent.actions, Categorical):
            raise ValueError(f"the actions are {agent.actions}; only one choice among several has a PyTorch form")
        self.agent = agent

        def sizes(name: str) -> list[tuple[int, int]]:
            shapes = []
            while (weight := weights.get(f"{name}.{len(shapes)}.weight")) is not None:
                shapes.append((weight.shape[0], weight.shape[1]))
            return shapes

        own = {name: sizes(name) for name in ("value", "policy", "query", "write", "products")}
        features = own["query"][0][1]
        output = "tanh" if agent.critic_output == "tanh" else None
        self.value = Network(own["value"], agent.activation, output)
        self.policy = Network(own["policy"], agent.activation)
        self.products = Network(own["products"], agent.activation)
        self.memory = ReservoirMemory(
            features,
            agent.memory_size,
            law=LAWS[agent.memory],
            query=Network(own["query"], agent.activation, "tanh"),
            write=Network(own["write"], agent.activation),
            distinct=agent.distinct,
            forgetting=float(agent.forgetting),
            estimator=agent.estimator,
            credit_cap=float(agent.credit_cap),
            log_weight_floor=float(agent.log_weight_floor),
        )
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("deviation", torch.ones(features))
        self.normalizes = False
        self._load(weights)

    @classmethod
    def from_agent(cls, agent: EpisodicActorCritic, agent_state: Any) -> "EpisodicPolicy":
        """The module of an agent and its state, ``agent.init``'s or one after training."""
        if type(agent) is not EpisodicActorCritic:
            raise TypeError(f"EpisodicActorCritic has a PyTorch form, {type(agent).__name__} has none")
        return cls(agent, to_torch(agent_state))

    @classmethod
    def from_learner(cls, learner: Any, copy: int = 0) -> "EpisodicPolicy":
        """The module of what a ``recollect.Learner`` has learned, its normalisation of observations included."""
        policy = cls.from_agent(learner.agent, learner.state(copy))
        moments = learner.normalizer.observations
        if moments is not None:
            own = moments[copy % len(moments)]
            policy.mean.copy_(torch.from_numpy(own.mean))
            policy.deviation.copy_(torch.from_numpy(own.deviation()))
            policy.normalizes = True
        return policy

    @property
    def draws(self) -> int:
        """How many uniform numbers a step takes per row: the memory's, and one for the action."""
        return self.memory.draws + 1

    def forward(
        self,
        observation: Tensor,
        state: State,
        done: Tensor | None = None,
        *,
        generator: torch.Generator | None = None,
        uniforms: Tensor | None = None,
    ) -> Step:
        """Recall, act, store; ``done``: [batch], where the observation begins an episode."""
        if uniforms is None:
            size = (observation.shape[0], self.draws)
            uniforms = torch.rand(size, generator=generator, dtype=observation.dtype, device=observation.device)
        elif uniforms.shape != (observation.shape[0], self.draws):
            raise ValueError(f"uniforms must be [{observation.shape[0]}, {self.draws}], got {list(uniforms.shape)}")
        x = observation
        if self.normalizes:
            x = ((x - self.mean) / self.deviation).clamp(-LIMIT, LIMIT)
        recalled, state, _ = self.memory(x, state, done, uniforms=uniforms[:, :-1])
        logits = self.policy_logits(x, recalled)
        return Step(kernel.draw(logits, uniforms[:, -1]), logits, self.value(x)[:, 0], recalled, state)

    def policy_logits(self, x: Tensor, recalled: Tensor) -> Tensor:
        """The logits of π(a | x, m)."""
        activation = ACTIVATIONS[self.agent.activation]
        units = activation(self.policy[0](torch.cat([x, recalled], -1)))
        if len(self.products):
            from_state, from_memory = self.products
            units = torch.cat([units, torch.tanh(from_state(x)) * from_memory(recalled)], -1)
        for k, layer in enumerate(self.policy):
            if k > 0:
                units = layer(units if k == 1 else activation(units))
        return units

    def weights(self) -> dict[str, Tensor]:
        """The parameters by their names in JAX, for ``from_torch`` and ``save_weights``."""
        parts = {"value": self.value, "policy": self.policy, "products": self.products}
        parts |= {"query": self.memory.query, "write": self.memory.write}
        found = {f"{part}.{k}": v.detach().clone() for part, net in parts.items() for k, v in net.state_dict().items()}
        theta = self.memory.log_temperature.detach()
        if self.agent.temperature == "softplus":
            tau = theta.exp()
            theta = tau + torch.log(-torch.expm1(-tau))
        return {**found, "temperature": theta.clone()}

    def into(self, agent_state: Any) -> Any:
        """The agent's state with this module's parameters."""
        return from_torch(self.weights(), agent_state)

    def _load(self, weights: Mapping[str, Tensor]) -> None:
        theta = weights["temperature"]
        log_tau = torch.log(nn.functional.softplus(theta)) if self.agent.temperature == "softplus" else theta
        own = {"mean": self.mean, "deviation": self.deviation, "memory.log_temperature": log_tau}
        for name, tensor in weights.items():
            if name != "temperature":
                own[f"memory.{name}" if name.startswith(("query.", "write.")) else name] = tensor
        self.load_state_dict(own)
