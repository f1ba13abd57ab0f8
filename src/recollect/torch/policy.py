"""A trained agent as a PyTorch module: one step of acting, all that it remembers explicit.

``Policy.from_learner`` and ``from_agent`` make the module of whichever agent it is: ``GeneralPolicy`` of recollect's
default agent, ``EpisodicPolicy`` of the paper's. They act and do not learn.
"""

import abc
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn

from recollect.agents.base import Agent
from recollect.agents.distributions import Categorical, Distribution, MultiCategorical
from recollect.torch import checks, kernel
from recollect.torch.weights import from_torch, to_torch
from recollect.training.normalization import LIMIT

LAWS = {"reservoir": "product", "uniform": "uniform", "fifo": "fifo"}
"""The laws that a memory has here, by their names in the agents."""


class Step(NamedTuple):
    """What one step gives.

    Attributes:
        action: [batch] int64, drawn from the policy; [batch, choices] where an action is several choices at once.
        logits: [batch, outputs].
        value: what the critic says, [batch] or [batch, horizons].
        recalled: [batch, features], the recalled state as the policy saw it.
        state: what is remembered after it, to be given to the next step.
    """

    action: Tensor
    logits: Tensor
    value: Tensor
    recalled: Tensor
    state: Any


class Policy(nn.Module, abc.ABC):
    """What the modules of all agents have in common.

    >>> import recollect
    >>> from recollect import prng
    >>> agent = recollect.GeneralActorCritic()
    >>> policy = Policy.from_agent(agent, agent.init(prng.key(0), 4, 3))
    >>> step = policy(torch.zeros(5, 4), policy.initial_state(5), torch.ones(5, dtype=torch.bool))
    >>> type(policy).__name__, step.logits.shape, step.action.shape
    ('GeneralPolicy', torch.Size([5, 3]), torch.Size([5]))
    """

    forms: ClassVar[dict[type, type["Policy"]]] = {}
    """The module of each agent that has one."""

    sees_rewards: ClassVar[bool] = False
    """Whether the critic sees the last reward."""

    agent: Any
    features: int
    mean: Tensor
    deviation: Tensor

    def __init_subclass__(cls, agent: type, **arguments: Any):
        super().__init_subclass__(**arguments)
        Policy.forms[agent] = cls

    def __init__(self, agent: Any, features: int):
        super().__init__()
        if not isinstance(agent.actions, (Categorical, MultiCategorical)):
            raise ValueError(f"the actions are {agent.actions}; Discrete and MultiDiscrete ones have a PyTorch form")
        self.agent, self.features = agent, features
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("deviation", torch.ones(features))
        self.normalizes = False

    @classmethod
    def from_agent(cls, agent: Agent, agent_state: Any) -> Self:
        """The module of an agent and its state, ``agent.init``'s or one after training."""
        form = Policy.forms.get(type(agent))
        if form is None or not issubclass(form, cls):
            known = ", ".join(sorted(kind.__name__ for kind, its in Policy.forms.items() if issubclass(its, cls)))
            raise TypeError(f"{type(agent).__name__} has no {cls.__name__}; agents that have: {known}")
        made: Any = form
        return made(agent, to_torch(agent_state))

    @classmethod
    def from_learner(cls, learner: Any, copy: int = 0) -> Self:
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
        """How many uniform numbers a step takes per row: to recall, to store, to act."""
        return 1 + self.agent.memory_size + kernel.EXTRA_DRAWS + self.agent.actions.draws

    @abc.abstractmethod
    def initial_state(self, batch: int) -> Any:
        """Nothing remembered, for ``batch`` environments, on the module's device."""

    @abc.abstractmethod
    def weights(self) -> dict[str, Tensor]:
        """The parameters by their names in JAX, for ``from_torch`` and ``save_weights``."""

    def into(self, agent_state: Any) -> Any:
        """The agent's state with this module's parameters."""
        return from_torch(self.weights(), agent_state)

    def forward(
        self,
        observation: Tensor,
        state: Any,
        done: Tensor | None = None,
        *,
        reward: Tensor | None = None,
        generator: torch.Generator | None = None,
        uniforms: Tensor | None = None,
    ) -> Step:
        """Recall, act, store.

        Args:
            observation: [batch, features], as the environments give them.
            state: what is remembered, from ``initial_state`` or the step before.
            done: [batch], true where the observation begins an episode. None for nowhere.
            reward: [batch], what came of the action before, for an agent whose critic sees it (``sees_rewards``): the
                ``value`` is then what the agent's is. Without it the critic takes rewards for what they are on average.
            generator: of the uniform numbers (default: PyTorch's own).
            uniforms: [batch, draws] numbers in [0, 1) to use instead.
        """
        like, of = self.mean, "the module"
        batch = checks.rows("observation", observation, self.features, like, of=of)
        if uniforms is None:
            uniforms = torch.rand((batch, self.draws), generator=generator, dtype=like.dtype, device=like.device)
        checks.tensor("uniforms", uniforms, (batch, self.draws), like, of=of)
        if reward is not None:
            if not self.sees_rewards:
                raise ValueError(f"reward: the critic of {type(self).__name__} does not see rewards; leave it out")
            checks.tensor("reward", reward, (batch,), like, of=of)
        if self.normalizes:
            observation = ((observation - self.mean) / self.deviation).clamp(-LIMIT, LIMIT)
        own = self.draws - self.agent.actions.draws
        return self._step(observation, state, done, reward, uniforms[:, :own], uniforms[:, own:])

    @abc.abstractmethod
    def _step(
        self, x: Tensor, state: Any, done: Tensor | None, reward: Tensor | None, to_remember: Tensor, to_act: Tensor
    ) -> Step:
        """``forward`` on inputs that are known to fit, and the uniform numbers for the memory and for the action."""


class Network(nn.ModuleList):
    """Affine layers, named as in JAX: ``0.weight``, ``0.bias``, ``1.weight``, ....

    Args:
        sizes: outputs and inputs of each layer, as ``sizes`` finds them.
        between: what goes between two layers.
        after: what follows the last.
    """

    def __init__(
        self,
        sizes: Iterable[tuple[int, int]],
        between: Callable[[Tensor], Tensor],
        after: Callable[[Tensor], Tensor] | None = None,
    ):
        super().__init__(nn.Linear(into, out) for out, into in sizes)
        self.between, self.after = between, after

    def forward(self, x: Tensor) -> Tensor:
        """The outputs."""
        for k, layer in enumerate(self):
            x = layer(x if k == 0 else self.between(x))
        return x if self.after is None else self.after(x)


def refuse(name: str, value: Any, choices: Iterable[Any]) -> None:
    """Refuse an agent's option that is none of those that the module knows."""
    choices = tuple(choices)
    if value not in choices:
        have = ", ".join(map(repr, choices))
        raise ValueError(f"{name}={value!r} has no PyTorch form; choices that have: {have}")


def sizes(weights: Mapping[str, Tensor], name: str) -> list[tuple[int, int]]:
    """Outputs and inputs of each layer of a network."""
    shapes = []
    while (weight := weights.get(f"{name}.{len(shapes)}.weight")) is not None:
        shapes.append((weight.shape[0], weight.shape[1]))
    return shapes


def draw_action(actions: Distribution, logits: Tensor, u: Tensor) -> Tensor:
    """The actions that uniform numbers draw, by inversion."""
    if isinstance(actions, MultiCategorical):
        parts = logits.split(list(actions.sizes), -1)
        return torch.stack([kernel.draw(part, u[:, k]) for k, part in enumerate(parts)], -1)
    return kernel.draw(logits, u[:, 0])


def action_features(actions: Distribution, action: Tensor, outputs: int) -> Tensor:
    """[batch, outputs] bool: one-hot, each choice by itself."""
    if isinstance(actions, MultiCategorical):
        parts = [action_features(Categorical(), action[:, k], size) for k, size in enumerate(actions.sizes)]
        return torch.cat(parts, -1)
    return action[:, None] == torch.arange(outputs, device=action.device)
