r"""The agent that takes no settings: trace units for what is recent, a reservoir for what is far back.

An online actor-critic. The actor and the critic each see the observation, the agent's own last action, and trace units
(``recollect.agents.trace_units``) that have watched the whole episode; the critic sees the last reward as well. The
actor also recalls one stored state by a query, as in the paper; which states are stored is drawn by learned weights,
credited with δ/w. Nothing is propagated back through time: a step costs as much as there are parameters. docs/agent.md
says what each part gives.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from recollect.agents import explanation, memory, scaling, td, trace_units
from recollect.agents.base import Agent, TimeStep, Turn, check_number, check_part, number, register, traced
from recollect.agents.distributions import CATEGORICAL, Distribution
from recollect.agents.episode_memory import AGES, EpisodeMemory, Stored
from recollect.agents.networks import NormedNetwork
from recollect.agents.optimizers import BoundedRMS, Optimizer, moved_by
from recollect.agents.persistence import Persistence, Tried
from recollect.agents.reopening import Reached, Reopening
from recollect.agents.scaling import Moments
from recollect.agents.settling import Settling
from recollect.agents.trace_units import TraceUnits
from recollect.reservoir import kernel

MEMORY, UNITS = EpisodeMemory(), TraceUnits()
NETWORK, QUERY_NETWORK, WRITE_NETWORK = NormedNetwork((64, 32)), NormedNetwork((32,)), NormedNetwork((16,))

_NETWORK, _OPTIMIZER = ("NormedNetwork((64, 32))", ("init", "apply")), ("BoundedRMS(0.001)", ("init", "update"))
PARTS = {
    "memory": ("EpisodeMemory(law='fifo')", ("init", "keys", "write")),
    "units": ("TraceUnits(units=16)", ("init", "start", "see", "advance", "outputs", "features")),
    **dict.fromkeys(("network", "query_network", "write_network"), _NETWORK),
    **dict.fromkeys(("critic_optimizer", "actor_optimizer", "write_optimizer"), _OPTIMIZER),
    "reopening": ("Reopening()", ("init", "observe", "openness")),
    "settling": ("Settling()", ("pace",)),
    "persistence": ("Persistence()", ("init", "observe", "chance", "share")),
    "actions": ("CATEGORICAL", ("draw", "log_probability", "entropy", "features", "nothing")),
}
"""What can be exchanged in the agent: an example of each part, and what one of your own must have: methods, and of
``persistence`` the number ``share``. Where ``memory`` has ``chance`` and ``placed`` besides, as ``EpisodeMemory`` does,
what they say is shown."""

FARTHEST = 5.0
"""Standardized observations stay within this many deviations."""


class Critic(NamedTuple):
    """V of every horizon: the trace units it watches through, and a network with an output per horizon."""

    units: trace_units.Parameters
    network: Any


class Actor(NamedTuple):
    """The policy, the query and the trace units that both watch through."""

    units: trace_units.Parameters
    policy: Any
    query: Any


class Parameters(NamedTuple):
    """The three parts that learn, each with an optimizer of its own."""

    critic: Critic
    actor: Actor
    write: Any


class Units(NamedTuple):
    """What the critic's and the actor's trace units hold."""

    critic: trace_units.State
    actor: trace_units.State


class Scales(NamedTuple):
    """In what units observations, rewards [1] and, per horizon, discounted rewards come."""

    observation: Moments
    reward: Moments
    returns: Moments


class Decision(NamedTuple):
    """What the agent did at the newest observation, kept until the consequence is known."""

    observation: Array  # as it came
    inputs: Array  # what the networks saw: the observation in standard units, the action before
    recalled: Array  # in standard units
    slot: Array
    action: Array
    reward: Array  # [1], the one before, in standard units: the critic saw it, too


class Chance(NamedTuple):
    """The uniform numbers that the newest action was drawn with, and whether they are kept in this episode."""

    numbers: Array
    kept: Array


class State(NamedTuple):
    """Everything that changes."""

    params: Parameters
    traces: Parameters  # of the gradients of the scores; the critic's with a leading axis of horizons
    optimizers: Parameters
    scales: Scales
    units: Units
    memory: kernel.State
    returns: Array  # [horizons], the discounted sum of the episode's rewards so far, as each horizon has it
    previous: Array  # the last action as features; zeros at the start of an episode
    reward: Array  # [1], the last reward in standard units; 0 at the start of an episode
    time: Array  # steps in this episode
    total: Array  # the sum of the episode's rewards so far
    tried: Tried
    reached: Reached
    chance: Chance
    decision: Decision


@register
@dataclasses.dataclass(frozen=True)
class GeneralActorCritic(Agent):
    r"""The default agent; a definition, all state is in what ``init``, ``begin`` and ``learn`` return.

    At each step, with x̂ the observation in standard units beside the last action (for V the last reward as well), f
    the features of trace units that watched the episode, and m the recalled state:

    .. math::
        \delta_k &= r / \sigma_k + \gamma_k V_k(\hat x', f') - V_k(\hat x, f), \qquad
            \bar\delta = \tfrac1K \textstyle\sum_k \delta_k \\
        z &\leftarrow \gamma \lambda z + \nabla (V_k + \log \pi(a | \hat x, f, m) + \log Q(m | \hat x, f) + w/w_i) \\
        d &= \delta z + \text{surprise} \, (|\bar\delta| + l) \, \nabla (H_\pi + H_Q)

    and each of critic, actor and write network takes a bounded step along its d, the actor a shorter one where returns
    no longer vary (``recollect.agents.settling``). The critic learns every horizon γ_k, each in units of its own
    returns, and the actor follows their mean, so that no horizon has to be chosen. l is 0 unless returns have lost what
    they had gained (``recollect.agents.reopening``).

    >>> agent = GeneralActorCritic()
    >>> agent.memory_size, agent.discounts
    (16, (0.8, 0.95, 0.99))

    Args:
        memory_size: n, the states kept; the reservoir takes 4 n² bytes besides them.
        memory: by which law they are kept, and which count as the same.
        units: the recurrent trace units of the actor and, as many again, of the critic.
        network: of critic and policy: anything with ``init(key, inputs, outputs, gain)`` and ``apply(params, x)``.
        query_network, write_network: likewise, of the query and of the write weight.
        critic_optimizer, actor_optimizer, write_optimizer: ``BoundedRMS``, ``Optax(...)``, or one of your own with
            ``init(params)`` and ``update(direction, traces, errors, state, params)``.
        discounts: γ of each horizon.
        trace_decay: λ of the eligibility traces.
        surprise: weight of the entropy of policy and query for each unit of \|δ\|: choices stay open where outcomes
            still surprise, and settle where they do not.
        reopening: how open choices become again once returns have lost what they had gained.
        settling: how much slower the policy moves once returns no longer vary.
        persistence: whether the numbers that draw actions are fresh at every step or kept for a while.
        credit_cap: bound on the quotient of a state's weight now and its weight when it was stored.
        actions: how actions are drawn, set from the environment.
    """

    learned: ClassVar[tuple[str, ...]] = ("params", "optimizers", "scales")

    memory_size: int = 16
    memory: EpisodeMemory = MEMORY
    units: TraceUnits = UNITS
    network: Any = NETWORK
    query_network: Any = QUERY_NETWORK
    write_network: Any = WRITE_NETWORK
    critic_optimizer: Optimizer = dataclasses.field(default=BoundedRMS(0.001, overshoot=0.1), metadata=traced())
    actor_optimizer: Optimizer = dataclasses.field(default=BoundedRMS(0.0005, floor=0.03), metadata=traced())
    write_optimizer: Optimizer = dataclasses.field(default=BoundedRMS(0.001), metadata=traced())
    discounts: tuple[float, ...] = dataclasses.field(default=(0.8, 0.95, 0.99), metadata=traced())
    trace_decay: float = number(0.25, 0.0, 1.0)
    surprise: float = number(0.1, 0.0, 10.0)
    reopening: Reopening = dataclasses.field(default=Reopening(), metadata=traced())
    settling: Settling = dataclasses.field(default=Settling(), metadata=traced())
    persistence: Persistence = dataclasses.field(default=Persistence(), metadata=traced())
    credit_cap: float = number(2.0, 0.0, float("inf"), low_open=True)
    actions: Distribution = CATEGORICAL

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, (example, methods) in PARTS.items():
            check_part(name, getattr(self, name), example, methods)
            if getattr(self, name).__class__.__module__.startswith("optax."):
                raise TypeError(f"{name}={getattr(self, name)!r}: a transformation of optax is wrapped, Optax(...)")
        memory.check_size(self.memory_size, getattr(self.memory, "law", ""))
        if not isinstance(self.discounts, tuple) or not self.discounts:
            raise ValueError(f"discounts={self.discounts!r} must be a tuple of at least one number")
        for discount in self.discounts:
            check_number("discounts", discount, 0.0, 1.0)

    # -- the networks, at one state

    def values(self, critic: Critic, inputs: Array, reward: Array, units: trace_units.State) -> Array:
        """[horizons]: V_k, in units of that horizon's returns; ``reward``: the one before, in standard units.

        A mistake that is repeated costs one error and not one at every step, as the critic expects the second of them.
        """
        features = self.units.outputs(critic.units, units)
        return self.network.apply(critic.network, jnp.concatenate([inputs, reward, features]))

    def query_logits(self, actor: Actor, inputs: Array, features: Array, keys: Array, filled: Array) -> Array:
        """⟨q, [x̂_i, age_i]⟩ of every slot, −inf where it is empty; no temperature, as q is not bounded.

        Paper: Eq. (1)
        """
        q = self.query_network.apply(actor.query, jnp.concatenate([inputs, features]))
        return memory.query_logits(q, keys, filled, jnp.ones(()))

    def policy_outputs(self, actor: Actor, inputs: Array, features: Array, recalled: Array) -> Array:
        """What the distribution of actions is made from."""
        return self.network.apply(actor.policy, jnp.concatenate([inputs, features, recalled]))

    def log_write_weight(self, write: Any, state: Array) -> Array:
        """Log w of a state in standard units."""
        return memory.log_write_weight(self.write_network.apply(write, state)[0])

    def standard(self, scales: Scales, observation: Array) -> Array:
        """An observation in standard units."""
        return scaling.standardize(scales.observation, observation, FARTHEST)

    def write_weights(self, state: State, observations: Array) -> Array:
        """The write weight of each observation."""
        weigh = jax.vmap(lambda x: self.log_write_weight(state.params.write, self.standard(state.scales, x)))
        return jnp.exp(weigh(observations))

    # -- the loop's three functions

    def init(self, key: Array, observation_size: int, num_actions: int) -> State:
        """Fresh parameters and an empty memory."""
        action = self.actions.features(self.actions.nothing(), num_actions)
        s, horizons = observation_size, len(self.discounts)
        inputs, features = s + action.size, self.units.features
        keys = jax.random.split(key, 6)
        critic = Critic(
            self.units.init(keys[0], inputs + 1), self.network.init(keys[1], inputs + 1 + features, horizons, 0.0)
        )
        actor = Actor(
            self.units.init(keys[2], inputs),
            self.network.init(keys[3], inputs + features + s, num_actions, 0.1),
            self.query_network.init(keys[4], inputs + features, s + len(AGES), 0.0),
        )
        params = Parameters(critic, actor, self.write_network.init(keys[5], s, 1, 0.0))
        zeros = jax.tree.map(jnp.zeros_like, params)
        per_horizon = jax.tree.map(lambda leaf: jnp.zeros((horizons, *leaf.shape)), critic)
        optimizers = Parameters(
            self.critic_optimizer.init(params.critic),
            self.actor_optimizer.init(params.actor),
            self.write_optimizer.init(params.write),
        )
        nothing = jnp.zeros((), jnp.int32)
        return State(
            params=params,
            traces=zeros._replace(critic=per_horizon),
            optimizers=optimizers,
            scales=Scales(*(scaling.nothing_seen((n,)) for n in (s, 1, horizons))),
            units=Units(self.units.start(inputs + 1), self.units.start(inputs)),
            memory=self.memory.init(self.memory_size, s),
            returns=jnp.zeros(horizons),
            previous=jnp.zeros_like(action),
            reward=jnp.zeros(1),
            time=nothing,
            total=jnp.zeros(()),
            tried=self.persistence.init(),
            reached=self.reopening.init(),
            chance=Chance(jnp.zeros(self.actions.draws), jnp.zeros((), bool)),
            decision=Decision(
                jnp.zeros(s), jnp.zeros(inputs), jnp.zeros(s), nothing, self.actions.nothing(), jnp.zeros(1)
            ),
        )

    def begin(self, state: State, observation: Array, key: Array) -> tuple[State, Array]:
        """Let the trace units see the observation, recall a state, choose an action.

        Paper: Eq. (1)
        """
        u = jax.random.uniform(key, (2 + self.actions.draws,))
        chance = self._chance(state, u[1], u[2:])
        actor = state.params.actor
        inputs = jnp.concatenate([self.standard(state.scales, observation), state.previous])
        units = Units(
            self.units.advance(state.params.critic.units, state.units.critic, jnp.concatenate([inputs, state.reward])),
            self.units.advance(actor.units, state.units.actor, inputs),
        )
        features = self.units.outputs(actor.units, units.actor)
        states, keys = self.stored(state)
        logits = self.query_logits(actor, inputs, features, keys, state.memory.filled)
        slot, recalled = memory.recall(logits, states, u[0])
        action = self.actions.draw(self.policy_outputs(actor, inputs, features, recalled), chance.numbers)
        decision = Decision(observation, inputs, recalled, slot, action, state.reward)
        return state._replace(units=units, chance=chance, decision=decision), action

    def _chance(self, state: State, u: Array, fresh: Array) -> Chance:
        """Whether numbers are kept is drawn as an episode begins."""
        begins = state.time == 0
        kept = jnp.where(begins, u < self.persistence.chance(state.tried), state.chance.kept)
        again = kept & ~begins & (u < self.persistence.share)
        return Chance(jnp.where(again, state.chance.numbers, fresh), kept)

    def stored(self, state: State) -> tuple[Array, Array]:
        """The stored states in standard units, and what the query is compared with."""
        states = jnp.where(
            state.memory.filled[:, None], self.standard(state.scales, state.memory.items.observation), 0.0
        )
        return states, self.memory.keys(state.memory, states, state.time)

    def query_entropy(self, state: State) -> Array:
        """Of the query at the decision under way; NaN where there was nothing to recall."""
        actor, (_, keys) = state.params.actor, self.stored(state)
        features = self.units.outputs(actor.units, state.units.actor)
        return memory.measured_entropy(
            self.query_logits(actor, state.decision.inputs, features, keys, state.memory.filled)
        )

    def learn(self, state: State, timestep: TimeStep, key: Array, active: Array | bool = True) -> State:
        """One update from one time step, then show the state to the memory (or empty it at the end of the episode)."""
        return self.update(state, timestep, key, active)[0]

    def update(self, state: State, timestep: TimeStep, key: Array, active: Array | bool = True) -> tuple[State, Array]:
        """As ``learn``, and whether the update was finite; one that is not is not made.

        Paper: section 3, the TD error δ_t and the losses; Eq. (6), Eq. (10)
        """
        params, decision = state.params, state.decision
        discounts = jnp.stack([jnp.asarray(d, jnp.float32) for d in self.discounts])
        states, keys = self.stored(state)
        returns, total = discounts * state.returns + timestep.reward, state.total + timestep.reward
        scales = Scales(
            scaling.observe(state.scales.observation, decision.observation),
            scaling.observe(state.scales.reward, jnp.reshape(timestep.reward, 1)),
            scaling.observe(state.scales.returns, returns),
        )

        v, gradient, entropy_gradient = self._gradients(state, states, keys)
        errors = self.td_errors(state, timestep, v, scales)
        error = jnp.mean(errors)
        traces = self._lengthened(state.traces, gradient, discounts)
        openness = self.surprise * (jnp.abs(error) + self.reopening.openness(state.reached, state.tried.usual))
        directions = Parameters(
            jax.tree.map(lambda z: jnp.tensordot(errors, z, axes=1), traces.critic),
            jax.tree.map(lambda z, h: error * z + openness * h, traces.actor, entropy_gradient),
            jax.tree.map(lambda z: error * z, traces.write),
        )
        steps, optimizers = self._steps(directions, traces, errors, error, state)
        pace = self.settling.pace(state.reached, state.tried)
        steps = steps._replace(actor=jax.tree.map(lambda step: pace * step, steps.actor))
        finite = jnp.isfinite(sum(map(moved_by, steps, optimizers))) & td.all_finite(scales)  # so are returns and x
        moves = jnp.logical_and(finite, active)
        over = jnp.logical_or(timestep.terminated, timestep.truncated)

        def kept(new, old, moves=moves):
            return jax.tree.map(lambda a, b: jnp.where(moves, a, b), new, old)

        tried = self.persistence.observe(state.tried, state.chance.kept, total)
        reached = self.reopening.observe(state.reached, tried.usual, tried.episodes)

        moved = state._replace(
            params=jax.tree.map(lambda p, step: p + jnp.where(moves, step, 0.0), params, steps),
            traces=jax.tree.map(
                lambda new, old: jnp.where(over, 0.0, jnp.where(moves, new, old)), traces, state.traces
            ),
            optimizers=kept(optimizers, state.optimizers),
            scales=kept(scales, state.scales),
            returns=jnp.where(over, 0.0, jnp.where(finite, returns, state.returns)),
            total=jnp.where(over, 0.0, jnp.where(finite, total, state.total)),
            tried=kept(tried, state.tried, moves & over),
            reached=kept(reached, state.reached, moves & over),
        )
        return self._after(moved, state, timestep, states, key), finite

    def _gradients(self, state: State, states: Array, keys: Array) -> tuple[Array, Parameters, Any]:
        """V_k of the decision's state, the gradients of all scores, and that of the entropy by the actor."""
        params, decision, stored = state.params, state.decision, state.memory

        def value_scores(critic):
            return self.values(critic, decision.inputs, decision.reward, state.units.critic)

        def choice_scores(actor):
            features = self.units.outputs(actor.units, state.units.actor)
            outputs = self.policy_outputs(actor, decision.inputs, features, decision.recalled)
            logits = self.query_logits(actor, decision.inputs, features, keys, stored.filled)
            score = self.actions.log_probability(outputs, decision.action)
            score += memory.log_query_probability(logits, decision.slot)
            return score, self.actions.entropy(outputs) + memory.query_entropy(logits)

        def write_score(write):
            log_w, recalled = self.log_write_weight(write, states[decision.slot]), stored.filled[decision.slot]
            # An empty slot's −inf must not meet the quotient, whose gradient would be NaN even where it is not used.
            quotient = memory.credit(
                log_w, jnp.where(recalled, stored.log_weights[decision.slot], log_w), self.credit_cap
            )
            return jnp.where(recalled, quotient, 0.0)

        v, pull_values = jax.vjp(value_scores, params.critic)
        choice, pull_choice = jax.vjp(choice_scores, params.actor)
        one, none = jnp.ones_like(choice[0]), jnp.zeros_like(choice[0])
        gradient = Parameters(
            jax.vmap(pull_values)(jnp.eye(len(self.discounts)))[0],
            pull_choice((one, none))[0],
            jax.grad(write_score)(params.write),
        )
        return v, gradient, pull_choice((none, one))[0]

    def td_errors(self, state: State, timestep: TimeStep, v: Array, scales: Scales) -> Array:
        """[horizons]: δ_k of the step that ``timestep`` came of, with ``v`` the V_k before it."""
        discounts = jnp.stack([jnp.asarray(d, jnp.float32) for d in self.discounts])
        v_next = jnp.where(timestep.terminated, 0.0, self._next_values(state, timestep))
        return td.td_error(timestep.reward / scaling.deviation(scales.returns), discounts, v_next, v)

    def key_names(self, observed: Sequence[str]) -> list[str]:
        """What the elements of a key are called, those of the observation having the names ``observed``."""
        return [*observed, *(f"about {age} steps ago" if age > 1 else "1 step ago" for age in AGES)]

    def explain(self, state: State, timestep: TimeStep, turn: Turn | None = None) -> dict[str, Any]:
        """The memory, the query, the trace units and the decision; see ``recollect.agents.explanation``."""
        return explanation.of_general(self, state, timestep, turn)

    def _next_values(self, state: State, timestep: TimeStep) -> Array:
        """V_k of the state that came, as the critic will see it if the episode continues."""
        critic, action = state.params.critic, self.actions.features(state.decision.action, len(state.previous))
        inputs = jnp.concatenate([self.standard(state.scales, timestep.observation), action])
        reward = self._standard_reward(state, timestep)
        units = self.units.see(critic.units, state.units.critic, jnp.concatenate([inputs, reward]))
        return self.values(critic, inputs, reward, units)

    def _standard_reward(self, state: State, timestep: TimeStep) -> Array:
        """[1]: the reward that came, in standard units."""
        return scaling.standardize(state.scales.reward, jnp.reshape(timestep.reward, 1), FARTHEST)

    def _lengthened(self, traces: Parameters, gradient: Parameters, discounts: Array) -> Parameters:
        """The traces after one more step; the actor's and the writer's fade as the mean horizon does."""
        decays = discounts * self.trace_decay

        def per_horizon(z, g):
            return td.trace(z, g, decays.reshape(-1, *[1] * (z.ndim - 1)))

        def plain(z, g):
            return td.trace(z, g, jnp.mean(decays))

        return Parameters(
            jax.tree.map(per_horizon, traces.critic, gradient.critic),
            jax.tree.map(plain, traces.actor, gradient.actor),
            jax.tree.map(plain, traces.write, gradient.write),
        )

    def _steps(
        self, directions: Parameters, traces: Parameters, errors: Array, error: Array, state: State
    ) -> tuple[Parameters, Parameters]:
        """What each optimizer makes of its direction, and their states after it."""
        optimizers, params = state.optimizers, state.params
        single = jax.tree.map(lambda z: z[None], (traces.actor, traces.write))
        pairs = (
            self.critic_optimizer.update(directions.critic, traces.critic, errors, optimizers.critic, params.critic),
            self.actor_optimizer.update(directions.actor, single[0], error[None], optimizers.actor, params.actor),
            self.write_optimizer.update(directions.write, single[1], error[None], optimizers.write, params.write),
        )
        return Parameters(*(step for step, _ in pairs)), Parameters(*(after for _, after in pairs))

    def _after(self, moved: State, before: State, timestep: TimeStep, states: Array, key: Array) -> State:
        """The state that was decided in goes to the memory; everything of the episode ends with it."""
        decision, over = before.decision, jnp.logical_or(timestep.terminated, timestep.truncated)
        reward = self._standard_reward(before, timestep)
        state = self.standard(before.scales, decision.observation)
        weight = self.log_write_weight(before.params.write, state)
        item = Stored(decision.observation, before.time)
        stored = self.memory.write(before.memory, states, state, item, weight, key)
        action = self.actions.features(decision.action, len(before.previous))
        return moved._replace(
            memory=kernel.clear(stored, over),
            units=trace_units.forget(moved.units, over),  # type: ignore[arg-type]
            previous=jnp.where(over, 0.0, action),
            reward=jnp.where(over | ~jnp.isfinite(reward), 0.0, reward),
            time=jnp.where(over, 0, before.time + 1),
        )

    def watch(self, state: State, timestep: TimeStep, key: Array) -> State:
        """Take in what came of the last action without learning from it."""
        over = jnp.logical_or(timestep.terminated, timestep.truncated)
        moved = state._replace(
            traces=jax.tree.map(lambda z: jnp.where(over, 0.0, z), state.traces),
            returns=jnp.where(over, 0.0, state.returns),
            total=jnp.where(over, 0.0, state.total),
        )
        return self._after(moved, state, timestep, self.stored(state)[0], key)
