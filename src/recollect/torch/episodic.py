"""The paper's agent, ``EpisodicActorCritic``, as a PyTorch module."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from recollect.agents.episodic import EpisodicActorCritic
from recollect.torch.kernel import State
from recollect.torch.memory import ReservoirMemory
from recollect.torch.policy import LAWS, Network, Policy, Step, draw_action, refuse, sizes

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
            refuse(name, getattr(agent, name), choices)
        own = {name: sizes(weights, name) for name in ("value", "policy", "query", "write", "products")}
        features = own["query"][0][1]
        super().__init__(agent, features)
        activation = ACTIVATIONS[agent.activation]
        self.value = Network(own["value"], activation, torch.tanh if agent.critic_output == "tanh" else None)
        self.policy = Network(own["policy"], activation)
        self.products = Network(own["products"], activation)
        self.memory = ReservoirMemory(
            features,
            agent.memory_size,
            law=LAWS[agent.memory],
            query=Network(own["query"], activation, torch.tanh),
            write=Network(own["write"], activation),
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

    def _step(
        self, x: Tensor, state: State, done: Tensor | None, reward: Tensor | None, to_remember: Tensor, to_act: Tensor
    ) -> Step:
        del reward  # None: this critic sees none
        recalled, state, _ = self.memory(x, state, done, uniforms=to_remember)
        logits = self.policy_logits(x, recalled)
        return Step(draw_action(self.agent.actions, logits, to_act), logits, self.value(x)[:, 0], recalled, state)

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
        log_tau = torch.log(functional.softplus(theta)) if self.agent.temperature == "softplus" else theta
        own: dict[str, Any] = {"mean": self.mean, "deviation": self.deviation, "memory.log_temperature": log_tau}
        for name, tensor in weights.items():
            if name != "temperature":
                own[f"memory.{name}" if name.startswith(("query.", "write.")) else name] = tensor
        self.load_state_dict(own)
