"""The paper's agent: an online actor-critic with a reservoir of past states, one of which it recalls at each step."""

import dataclasses
import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from recollect.agents import base, explanation, memory, td
from recollect.agents.base import Agent, TimeStep, check_choice, check_count, choice, count, flag, number, register
from recollect.agents.convolution import Convolution
from recollect.agents.distributions import CATEGORICAL, Distribution
from recollect.agents.encoders import ENCODERS, Encoder, encode, forget, init_encoder
from recollect.agents.networks import ACTIVATIONS, INITIALIZERS, Network, affine, apply_network, init_network, scaled
from recollect.reservoir import kernel

NETWORKS = ("value", "policy", "query", "write")

ONLY_AT_START = (
    "initializer",
    "critic_start",
    "value_gain",
    "policy_gain",
    "query_gain",
    "write_gain",
    "temperature_start",
)
"""Options that ``init`` alone reads."""

PARTS_OF_OTHERS = ("reward_rate_step", "encoding_size", "square_decay", "epsilon")
"""Options without a say while ``objective``, ``encoder`` and ``optimizer`` are at their defaults."""

PRESETS: dict[str, dict[str, Any]] = {
    # Nothing the paper does not say; what it leaves open is at its plainest.
    "paper": {
        "learning_rate": 0.005,
        "discount": 1.0,
        "entropy": 0.0,
        "surprise": 0.0,
        "trace_decay": 0.0,
        "value_rate": 1.0,
        "query_rate": 1.0,
        "query_gain": 1.0,
        "write_gain": 1.0,
        "credit_cap": math.inf,
    },
    # Found by search, see docs/atlas.md; these are the defaults below.
    "robust": {
        "learning_rate": 0.02,
        "discount": 0.99,  # an end that is worth reaching soon: nothing is gained by looping
        "entropy": 0.0003,
        "surprise": 0.03,  # the policy stays open where outcomes still surprise, and settles where they do not
        "trace_decay": 0.3,
        "value_rate": 2.0,
        "query_rate": 0.5,
        "query_gain": 0.1,  # every stored state is recalled alike, and kept alike, until there is a reason
        "write_gain": 0.3,
        "credit_cap": 2.0,
    },
}


class Parameters(NamedTuple):
    """The four networks and the temperature, in the parametrisation that ``temperature`` names."""

    value: Network
    policy: Network
    query: Network
    write: Network
    temperature: Array
    pictures: Any = ()  # of an agent that sees pictures
    products: Any = ()  # of a policy that multiplies: the factor from S_t, that from m_t


class Decision(NamedTuple):
    """What the agent did in one state (an observation, or its encoding), kept until the consequence is known."""

    observation: Array
    recalled: Array
    slot: Array
    action: Array


class State(NamedTuple):
    """Everything that changes."""

    params: Parameters
    traces: Parameters  # of the gradients of the scores; back to 0 when an episode ends
    memory: kernel.State
    decision: Decision
    reward_rate: Array  # r̄, 0 unless the objective is "average"
    encoder: Encoder | None
    squares: Any = ()  # RMSProp's mean squares of every parameter's direction


@register
@dataclasses.dataclass(frozen=True)
class EpisodicActorCritic(Agent):
    """Online actor-critic with episodic memory; a definition, all state is in what ``init`` and ``step`` return.

    At each step: recall one stored state m_t by the query, act by π(a | S_t, m_t), see the consequence, and move every
    network along δ_t times the gradient of its score: V(S_t), log π, log Q, and w(S_i; θ)/w_i for the recalled state
    (see ``recollect.agents.memory.credit``); then show S_t to the memory. One update per step, no replay, n states.

    >>> agent = EpisodicActorCritic.preset("paper", memory_size=3)
    >>> agent.learning_rate, agent.discount, agent.entropy
    (0.005, 1.0, 0.0)

    Args:
        memory_size: n, the states kept; the reservoir takes 4 n² bytes per run.
        hidden: units in each hidden layer (1 layer for value, query and write, 2 for the policy).
        products: units beside the policy's first hidden layer that are tanh(A S_t) · B m_t, so that the state can say
            which part of what was recalled counts; 0, the paper's choice, for none.
        learning_rate: step size.
        optimizer: "sgd", the paper's plain steps, or "rmsprop": each parameter's step over the root of its own mean
            square, so that the weights of what is seldom recalled move as far as the rest.
        square_decay: of RMSProp's mean squares.
        epsilon: added to them. The larger, the smaller the steps where there is little left to learn: with next to
            nothing, whatever is left is brought to full size, and what has been learned is shaken by it.
        value_rate, policy_rate, query_rate, write_rate: factors on it for each network (τ goes with the query). For V,
            1 is a step along δ ∇V and 2 the literal gradient of δ²; the paper can be read both ways.
        objective: "discounted" (the paper's, γ = 1 included) or "average", for tasks without ends:
            δ = r − r̄ + V(S') − V(S), with r̄ learned along δ; ``discount`` has no say then.
        reward_rate_step: step size of r̄.
        discount: γ.
        entropy: weight of the policy's entropy in its objective; 0 for none.
        surprise: weight of that entropy for each unit of |δ|, on top.
        query_openness: weight of the query's entropy, for each unit of the policy's; 0, the paper's choice, for none.
            Which state to recall is a choice, too: without this it can settle before any has been seen to help.
        trace_decay: λ of the eligibility traces that all networks learn through; 0, the paper's choice, for none.
        estimator: who gets write credit: "queried", the recalled state alone (Eq. 10), or "every", all stored states
            (Eq. 9).
        credit_cap: bound on the quotient of a state's weight now and its weight when it was stored; inf for none.
        memory: which states are kept: "reservoir" (by learned weight), "uniform", "fifo" (the last n), "none".
        distinct: whether a state that is in memory already is left out when it recurs, so that what is seen over
            and over has one place, and one share in the query; False, the paper's choice, keeps each visit. The law is
            then that of the states that were not there when they came.
        forgetting: ρ: a stored state's weight falls by e^−ρ a step against those still to come; 0, the paper's choice,
            for never. A memory that is not emptied needs it: without, ever fewer of the new states come in.
        encoder: what the agent takes for its state, stores and queries: the "raw" observation, a fixed random
            "projection" of it, or the observation beside a fixed random "recurrent" state; see
            ``recollect.agents.encoders``.
        encoding_size: units of the encoder.
        oracle_bit: for comparison: write with weight 1 where this element of the observation is positive and with
            weight 0 elsewhere, instead of by the write network; None to learn.
        activation: of hidden layers: "tanh", "relu", "sigmoid". The paper does not say.
        initializer: of weights and biases, see ``recollect.agents.networks.INITIALIZERS``. The paper does not say.
        critic_start: "zero" (last layer of V starts at 0) or "random" (like every other layer). The paper does not say.
        bias_rate: step size of biases relative to weights; 0 gives networks without biases (with zero-bias starts).
        value_gain, policy_gain, query_gain, write_gain: factors on the initial weights of each network.
        temperature: "exp" (τ = e^θ) or "softplus" (τ = log(1 + e^θ)). The paper says positive and learnable.
        temperature_start: τ at the start. The paper does not say.
        empty_read: what is recalled from an empty memory: "zeros" or "current" (S_t itself). The paper does not say.
        partial_read: while the memory fills, recall among the "filled" slots, or among "all" (empty ones hold zeros).
        write: S_t joins the memory "after" the read at t (as the equations have it) or "before" it.
        reset_memory: whether the memory is emptied at the end of an episode.
        terminal_value: V of the state after the end.
        log_weight_floor: lower bound on log w when a state is written; −inf for none (logs do not underflow).
        critic_output: "tanh", as in the paper (returns between −1 and 1), or "linear" for returns of any size.
        pictures: makes states of pictures, see ``recollect.agents.convolution``; networks and memory work on its
            output, and it learns from the value, the policy and the query. None where observations are states.
        actions: how actions are drawn; ``recollect.Learner`` sets it from the action space.

    Paper: section 2, section 3
    """

    learned: ClassVar[tuple[str, ...]] = ("params", "reward_rate", "squares")

    memory_size: int = 3
    hidden: int = count(10)
    products: int = 0
    objective: str = choice("discounted", ("discounted", "average"))
    reward_rate_step: float = number(0.002, 0.0, 1.0)
    learning_rate: float = number(0.02, 0.0, 10.0, low_open=True)
    optimizer: str = choice("sgd", ("sgd", "rmsprop"))
    square_decay: float = number(0.99, 0.0, 1.0)
    epsilon: float = number(1e-8, 0.0, math.inf, low_open=True)
    discount: float = number(0.99, 0.0, 1.0)
    entropy: float = number(0.0003, 0.0, 10.0)
    surprise: float = number(0.03, 0.0, 10.0)
    query_openness: float = number(0.0, 0.0, 100.0)
    trace_decay: float = number(0.3, 0.0, 1.0)
    value_rate: float = number(2.0, 0.0, math.inf)
    policy_rate: float = number(1.0, 0.0, math.inf)
    query_rate: float = number(0.5, 0.0, math.inf)
    write_rate: float = number(1.0, 0.0, math.inf)
    estimator: str = choice("queried", ("queried", "every"))
    credit_cap: float = number(2.0, 0.0, math.inf, low_open=True)
    memory: str = choice("reservoir", memory.LAWS)
    distinct: bool = flag(False)
    forgetting: float = number(0.0, 0.0, math.inf)
    encoder: str = choice("raw", ENCODERS)
    encoding_size: int = count(16)
    oracle_bit: int | None = None
    activation: str = choice("tanh", ACTIVATIONS)
    initializer: str = choice("normal", INITIALIZERS)
    critic_start: str = choice("zero", ("zero", "random"))
    bias_rate: float = number(1.0, 0.0, math.inf)
    value_gain: float = number(1.0, 0.0, math.inf)
    policy_gain: float = number(1.0, 0.0, math.inf)
    query_gain: float = number(0.1, 0.0, math.inf)
    write_gain: float = number(0.3, 0.0, math.inf)
    temperature: str = choice("exp", ("exp", "softplus"))
    temperature_start: float = number(1.0, 0.0, math.inf, low_open=True)
    empty_read: str = choice("zeros", ("zeros", "current"))
    partial_read: str = choice("filled", ("filled", "all"))
    write: str = choice("after", ("after", "before"))
    reset_memory: bool = flag(True)
    terminal_value: float = number(0.0, -math.inf, math.inf)
    log_weight_floor: float = number(-math.inf, -math.inf, 0.0)
    critic_output: str = choice("tanh", ("tanh", "linear"))
    pictures: Convolution | None = None
    actions: Distribution = CATEGORICAL

    def __post_init__(self) -> None:
        super().__post_init__()
        memory.check_size(self.memory_size, self.memory)
        if self.products != 0:
            check_count("products", self.products)
        if self.oracle_bit is not None and (type(self.oracle_bit) is not int or self.oracle_bit < 0):
            raise ValueError(
                f"oracle_bit={self.oracle_bit!r} must be None or the place of an element of the observation"
            )
        if self.pictures is not None and self.encoder != "raw":
            raise ValueError(f"pictures are seen by their own network: encoder={self.encoder!r} must be 'raw' then")

    @classmethod
    def preset(cls, name: str, **changes: Any) -> "EpisodicActorCritic":
        """The agent named ``name``: "paper" or "robust", with hyperparameters of your own on top."""
        check_choice("preset", name, PRESETS)
        return cls(**{**PRESETS[name], **changes})

    # -- the networks, at one state

    def see(self, params: Parameters, observation: Array) -> Array:
        """The state that an observation is seen as: itself, or what the encoder makes of it."""
        return observation if self.pictures is None else self.pictures.apply(params.pictures, observation)

    def _net(self, network: Network, x: Array) -> Array:
        return apply_network(network, x, self.activation)

    def value(self, params: Parameters, s: Array) -> Array:
        """V(S_t), with the output that ``critic_output`` names; the critic sees the current state only."""
        v = self._net(params.value, s)[0]
        return jnp.tanh(v) if self.critic_output == "tanh" else v

    def policy_logits(self, params: Parameters, s: Array, m: Array) -> Array:
        """The logits of π(a | S_t, m_t)."""
        first, *rest = params.policy
        units = ACTIVATIONS[self.activation](affine(first, jnp.concatenate([s, m])))
        if self.products:
            from_state, from_memory = params.products
            units = jnp.concatenate([units, jnp.tanh(affine(from_state, s)) * affine(from_memory, m)])
        return self._net(tuple(rest), units)

    def query(self, params: Parameters, s: Array) -> Array:
        """The query vector q(S_t), with tanh outputs."""
        return jnp.tanh(self._net(params.query, s))

    def log_write_weight(self, params: Parameters, s: Array) -> Array:
        """Log w(S_t), w with a sigmoid output."""
        return memory.log_write_weight(self._net(params.write, s)[0])

    def write_weights(self, state: State, observations: Array) -> Array:
        """The write weight of each observation; NaN where states are more than an observation."""
        if self.encoder != "raw":
            return super().write_weights(state, observations)
        weigh = jax.vmap(lambda s: self.log_write_weight(state.params, self.see(state.params, s)))
        return jnp.exp(weigh(observations))

    def tau(self, params: Parameters) -> Array:
        """The positive temperature τ."""
        return jnp.exp(params.temperature) if self.temperature == "exp" else jax.nn.softplus(params.temperature)

    def _query_logits(self, params: Parameters, s: Array, stored: kernel.State) -> Array:
        readable = stored.filled if self.partial_read == "filled" else jnp.full_like(stored.filled, stored.count > 0)
        return memory.query_logits(self.query(params, s), stored.items, readable, self.tau(params))

    def query_probabilities(self, params: Parameters, s: Array, stored: kernel.State) -> Array:
        """Q(S_i | M_t) of every slot; 0 where it is empty.

        Paper: Eq. (1)
        """
        return memory.query_probabilities(self._query_logits(params, s, stored))

    def query_entropy(self, state: State) -> Array:
        """Of the query at the decision under way; NaN where there was nothing to recall."""
        s = self.see(state.params, state.decision.observation)
        return memory.measured_entropy(self._query_logits(state.params, s, state.memory))

    # -- the loop's three functions

    def init(self, key: Array, observation_size: int, num_actions: int) -> State:
        """Fresh parameters and an empty memory."""
        encoder = init_encoder(self.encoder, jax.random.fold_in(key, 0), observation_size, self.encoding_size)
        observation = jnp.zeros_like(encode(encoder, jnp.zeros(observation_size))[1])
        size = self.pictures.features if self.pictures else observation.size
        s, a, h = size, num_actions, self.hidden
        sizes = {"value": (s, h, 1), "policy": (2 * s, h, h, a), "query": (s, h, s), "write": (s, h, 1)}
        networks = {}
        for (name, size), k in zip(sizes.items(), jax.random.split(key, 4), strict=True):
            drawn = init_network(k, size, self.initializer)
            if name == "policy" and self.products:
                key_first, key_second, key_last = jax.random.split(jax.random.fold_in(key, 5), 3)
                factors = [INITIALIZERS[self.initializer](k, self.products, s) for k in (key_first, key_second)]
                second = INITIALIZERS[self.initializer](key_last, h, h + self.products)
                drawn = (drawn[0], second, drawn[2])
                networks["products"] = scaled(factors, self.policy_gain)
            networks[name] = scaled(drawn, getattr(self, f"{name}_gain"))
        if self.critic_start == "zero":
            networks["value"] = (*networks["value"][:-1], jax.tree.map(jnp.zeros_like, networks["value"][-1]))
        start = jnp.asarray(self.temperature_start, jnp.float32)
        theta = jnp.log(start) if self.temperature == "exp" else start + jnp.log(-jnp.expm1(-start))
        stored = memory.LAWS[self.memory].init(self.memory_size, jnp.zeros(s))
        zero = jnp.zeros((), jnp.int32)
        pictures = self.pictures.init(jax.random.fold_in(key, 4)) if self.pictures else ()
        params = Parameters(**networks, temperature=theta, pictures=pictures)
        traces = jax.tree.map(jnp.zeros_like, params)
        decision = Decision(observation, jnp.zeros(s), zero, self.actions.nothing())
        squares = traces if self.optimizer == "rmsprop" else ()
        return State(params, traces, stored, decision, jnp.zeros(()), encoder, squares)

    def _given_weight(self, state: State, s: Array) -> Array:
        """The log of the weight that S_t is shown to the memory with."""
        if self.oracle_bit is None:
            log_w = jnp.maximum(self.log_write_weight(state.params, s), self.log_weight_floor)
        else:
            log_w = jnp.where(s[self.oracle_bit] > 0, 0.0, -jnp.inf)
        if self.distinct:
            log_w = jnp.where(kernel.holds(state.memory, s), -jnp.inf, log_w)
        # A state that is not finite gets weight 0: its row, even emptied, would turn later gradients into NaN.
        return jnp.where(jnp.all(jnp.isfinite(s)), log_w, -jnp.inf)

    def shown(self, state: State, s: Array) -> tuple[kernel.State, Array]:
        """The memory that S_t is shown to, and the log of the weight it is shown with."""
        return kernel.age(state.memory, self.forgetting), self._given_weight(state, s)

    def _write(self, state: State, s: Array, key: Array) -> kernel.State:
        aged, log_weight = self.shown(state, s)
        return memory.LAWS[self.memory].add(aged, s, log_weight, key)

    def begin(self, state: State, observation: Array, key: Array) -> tuple[State, Array]:
        """Recall a state, choose an action.

        Paper: Eq. (1)
        """
        encoder, observation = encode(state.encoder, observation)
        state = state._replace(encoder=encoder)
        u = jax.random.uniform(key, (1 + self.actions.draws,))
        s = self.see(state.params, observation)
        if self.write == "before":
            state = state._replace(memory=self._write(state, s, memory.early_key(key)))
        logits = self._query_logits(state.params, s, state.memory)
        slot, recalled = memory.recall(logits, state.memory.items, u[0])
        if self.empty_read == "current":
            recalled = jnp.where(state.memory.count > 0, recalled, s)
        action = self.actions.draw(self.policy_logits(state.params, s, recalled), u[1:])
        return state._replace(decision=Decision(observation, recalled, slot, action)), action

    def scores(self, params: Parameters, decision: Decision, stored: kernel.State) -> tuple[Array, Array]:
        """What is differentiated: the sum of the four scores that δ multiplies, and the entropy that is wanted.

        The value's score is V, so that δ ∇V is the (semi-)gradient step on δ²/2; the policy's and the query's are
        the log-probabilities of what was drawn; the write network's is w(S_i; θ)/w_i, so that δ times its gradient is
        G ∂w/∂θ. No parameter is in two scores, so the gradient of the sum is each network's own.

        Paper: Eq. (6), Eq. (9), Eq. (10), section 3
        """
        observation, m, slot, action = decision
        s = self.see(params, observation)
        logits = self.policy_logits(params, s, m)
        log_pi = self.actions.log_probability(logits, action)
        query_logits = self._query_logits(params, s, stored)
        log_q = memory.log_query_probability(query_logits, slot)
        entropy = self.actions.entropy(logits) + self.query_openness * memory.query_entropy(query_logits)
        if self.estimator == "queried":
            log_w = self.log_write_weight(params, stored.items[slot])
            given, counts = stored.log_weights[slot], stored.filled[slot]
        else:
            log_w = jax.vmap(self.log_write_weight, (None, 0))(params, stored.items)
            given, counts = stored.log_weights, stored.filled
        # An empty slot's −inf must not meet the quotient, whose gradient would be NaN even where it is not used.
        quotients = memory.credit(log_w, jnp.where(counts, given, log_w), self.credit_cap)
        credit = jnp.sum(jnp.where(counts, quotients, 0.0)) if self.oracle_bit is None else 0.0
        return self.value(params, s) + log_pi + log_q + credit, entropy

    def _discount(self) -> Any:
        return self.discount if self.objective == "discounted" else 1.0

    def td_error(self, state: State, timestep: TimeStep) -> Array:
        """δ of the step that ``timestep`` came of.

        Paper: section 3, the TD error δ_t
        """
        params = state.params
        _, s_next = encode(state.encoder, timestep.observation)
        v_next = jnp.where(timestep.terminated, self.terminal_value, self.value(params, self.see(params, s_next)))
        v = self.value(params, self.see(params, state.decision.observation))
        return td.td_error(timestep.reward - state.reward_rate, self._discount(), v_next, v)

    def explain(self, state: State, timestep: TimeStep, turn: base.Turn | None = None) -> dict[str, Any]:
        """The memory, the query and the decision; see ``recollect.agents.explanation``."""
        return explanation.of_memory(self, state, timestep, turn)

    def learn(self, state: State, timestep: TimeStep, key: Array, active: Array | bool = True) -> State:
        """One update from one time step, then show S_t to the memory (or empty it at the end of the episode).

        An update that is not finite is not made, and what would have been added to the traces is left out.

        Paper: section 3, the TD error δ_t and the losses of the three networks
        """
        return self.update(state, timestep, key, active)[0]

    def update(self, state: State, timestep: TimeStep, key: Array, active: Array | bool = True) -> tuple[State, Array]:
        """As ``learn``, and whether the update was finite."""
        params, traces, stored, decision, reward_rate, encoder, squares = state
        over = jnp.logical_or(timestep.terminated, timestep.truncated)
        discount = self._discount()
        s = self.see(params, decision.observation)
        delta = self.td_error(state, timestep)
        _, pull = jax.vjp(lambda p: self.scores(p, decision, stored), params)
        one, none = jnp.ones_like(delta), jnp.zeros_like(delta)
        (gradient,), (entropy_grads,) = pull((one, none)), pull((none, one))
        decay = jnp.asarray(discount * self.trace_decay, delta.dtype)
        new_traces = jax.tree.map(lambda z, g: td.trace(z, g, decay), traces, gradient)
        openness = self.entropy + self.surprise * jnp.abs(delta)
        direction = jax.tree.map(lambda z, h: delta * z + openness * h, new_traces, entropy_grads)
        mean = squares
        if self.optimizer == "rmsprop":
            import optax  # takes longer than the rest of the agent, and most have no use for it

            rms: Any = optax.scale_by_rms(decay=self.square_decay, eps=self.epsilon)
            direction, (mean,) = rms.update(direction, optax.ScaleByRmsState(squares))
        moved = self._move(params, direction)
        # Of what came out, not of the gradient: a finite step can still lead out of the range of float32.
        finite = td.all_finite((moved, mean))
        applied = jnp.logical_and(finite, active)
        params = jax.tree.map(lambda new, old: jnp.where(applied, new, old), moved, params)
        squares = jax.tree.map(lambda new, old: jnp.where(applied, new, old), mean, squares)
        traces = jax.tree.map(lambda new, old: jnp.where(over, 0.0, jnp.where(applied, new, old)), new_traces, traces)
        if self.write == "after":
            stored = self._write(state, s, key)
        if self.reset_memory:
            stored, encoder = kernel.clear(stored, over), forget(encoder, over)
        if self.objective == "average":
            reward_rate = reward_rate + jnp.where(applied, self.reward_rate_step * delta, 0.0)
        return State(params, traces, stored, decision, reward_rate, encoder, squares), finite

    def _move(self, params: Parameters, direction: Parameters) -> Parameters:
        def moved(p, d, rate):
            return p + self.learning_rate * rate * d

        def network(name, of=None):
            rate = getattr(self, f"{of or name}_rate")
            pairs = zip(getattr(params, name), getattr(direction, name), strict=True)
            return tuple(
                p._replace(weight=moved(p.weight, d.weight, rate), bias=moved(p.bias, d.bias, rate * self.bias_rate))
                for p, d in pairs
            )

        theta = moved(params.temperature, direction.temperature, self.query_rate)
        pictures = jax.tree.map(lambda p, d: moved(p, d, 1.0), params.pictures, direction.pictures)
        networks = {**{name: network(name) for name in NETWORKS}, "products": network("products", of="policy")}
        return Parameters(**networks, temperature=theta, pictures=pictures)
