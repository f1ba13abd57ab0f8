"""The paper's agent, ``EpisodicActorCritic``, as a PyTorch module."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from recollect.agents.episodic import EpisodicActorCritic
from recollect.torch.kernel import State
from recollect.torch.memory import ReservoirMemory
from recollect.torch.policy import LAWS, Policy, Step, draw_action, sizes

ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid}
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


class EpisodicPolicy(Policy, agent=EpisodicActorCritic):
    """``EpisodicActorCritic`` without its learning; ``from_agent`` and ``from_learner`` make it.

    >>> import recollect
    >>> from recollect import prng
    >>> agent = recollect.EpisodicActorCritic(memory_size=2)
    >>> policy = EpisodicPolicy.from_agent(agent, agent.init(prng.key(0), 4, 3))
    >>> step = policy(torch.zeros(5, 4), policy.initial_state(5), torch.ones(5, dtype=torch.bool))
    >>> step.logits.shape, step.action.shape
    (torch.Size([5, 3]), torch.Size([5]))
    """

    def __init__(self, agent: EpisodicActorCritic, weights: Mapping[str, Tensor]):
        for name, choices in ONLY.items():
            if getattr(agent, name) not in choices:
                raise ValueError(
                    f"{name}={getattr(agent, name)!r} has no PyTorch form; choices that have: "
                    f"{', '.join(map(repr, choices))}"
                )
        own = {name: sizes(weights, name) for name in ("value", "policy", "query", "write", "products")}
        features = own["query"][0][1]
        super().__init__(agent, features)
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
        self._load(weights)

    def initial_state(self, batch: int) -> State:
        """Empty memories for ``batch`` environments, on the module's device."""
        return self.memory.initial_state(batch)

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
        x, u = self.inputs(observation, generator, uniforms)
        last = self.memory.draws
        recalled, state, _ = self.memory(x, state, done, uniforms=u[:, :last])
        logits = self.policy_logits(x, recalled)
        return Step(draw_action(self.agent.actions, logits, u[:, last:]), logits, self.value(x)[:, 0], recalled, state)

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

    def _load(self, weights: Mapping[str, Tensor]) -> None:
        theta = weights["temperature"]
        log_tau = torch.log(nn.functional.softplus(theta)) if self.agent.temperature == "softplus" else theta
        own: dict[str, Any] = {"mean": self.mean, "deviation": self.deviation, "memory.log_temperature": log_tau}
        for name, tensor in weights.items():
            if name != "temperature":
                own[f"memory.{name}" if name.startswith(("query.", "write.")) else name] = tensor
        self.load_state_dict(own)
