"""The secret informant problem: walk a chain, remember what the informative states said, act on it at the end."""

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from recollect.agents.base import check_flag
from recollect.envs.base import TimeStep, check_sizes

FORWARD = 1  # the one action that leads on in the start state and in the chain; of 3 actions 0 is up and 2 is down


class Instance(NamedTuple):
    """One random draw of the problem, fixed for an episode: see `SecretInformant.make_instance`."""

    right_actions: jax.Array | np.ndarray  # int32 [decisions]: the action that each decision asks for
    chain: jax.Array | np.ndarray  # int32 [length]: each chain state, as its row in SecretInformant.states


class State(NamedTuple):
    """An episode under way."""

    instance: Instance
    position: jax.Array  # int32 []: 0 is the start, then the chain, then the decisions, then the end
    correct: jax.Array  # bool []: every decision so far was right


@dataclasses.dataclass(frozen=True)
class SecretInformant:
    """The secret informant problem, as a pure-JAX environment.

    An episode is a start state, ``length`` chain states and D = ``decisions`` decision states. In the start state
    and in the chain only `FORWARD` leads on, every other action stays; at a decision every action leads on. D of
    the chain states are informative, at random places: each names one decision and the right action there. The
    other chain states look alike but name a random decision and a random action. After the last decision the
    episode ends, with reward 1 if every decision was right and 0 otherwise; no other step is rewarded.

    A state is a vector of bits, for A = ``actions``: A action indicators, informative, uninformative, D decision
    identifiers, decision state, correct path ("every decision so far was right", 1 at the first decision and 0
    outside the decisions). The start state is all zeros, and so is what is observed after the end.

    Example:
        >>> env = SecretInformant(length=2)
        >>> instance = env.make_instance([(False, 2, 0), (True, 0, 0)])  # (informative, action, decision)
        >>> state, observation = env.start(instance)
        >>> for action in (FORWARD, FORWARD, FORWARD, 0):
        ...     state, timestep = env.step(state, action)
        ...     print(timestep.observation.astype(int), timestep.reward, timestep.terminated)
        [0 0 1 0 1 1 0 0] 0.0 False
        [1 0 0 1 0 1 0 0] 0.0 False
        [0 0 0 0 0 1 1 1] 0.0 False
        [0 0 0 0 0 0 0 0] 1.0 True

    Args:
        length: Number of chain states, informative and uninformative together.
        decisions: Number of decision states, and of informative states.
        actions: Number of actions.
        correct_path_bit: Whether the last bit is there. Without it one-step learning cannot credit the first decisions.
        path_bit_at_first: Its value at the first decision, where "all decisions so far" is an empty statement.
        path_bit_in_chain: Its value in chain states. The paper speaks of decision states only.

    Paper: section "Experiments and Results", figure 2.
    """

    length: int = 10
    decisions: int = 1
    actions: int = 3
    correct_path_bit: bool = True
    path_bit_at_first: bool = True
    path_bit_in_chain: bool = False

    def __post_init__(self) -> None:
        check_sizes(self, length=1, decisions=1, actions=2)
        for name in ("correct_path_bit", "path_bit_at_first", "path_bit_in_chain"):
            check_flag(name, getattr(self, name))
        if self.decisions > self.length:
            raise ValueError(f"decisions={self.decisions} exceeds length={self.length}: each needs its own chain state")

    @property
    def observation_size(self) -> int:
        """Number of bits of a state."""
        return self.actions + 2 + self.decisions + 1 + self.correct_path_bit

    @property
    def observation_names(self) -> tuple[str, ...]:
        """What each bit of a state says."""
        says = ("up", "forward", "down") if self.actions == 3 else tuple(map(str, range(self.actions)))
        decisions = [f"of decision {d + 1}" for d in range(self.decisions)]
        names = [*(f"says {name}" for name in says), "informative", "uninformative", *decisions, "decide"]
        return (*names, *["on the correct path"][: self.correct_path_bit])

    @property
    def num_actions(self) -> int:
        """Number of actions."""
        return self.actions

    @property
    def shortest_episode(self) -> int:
        """Fewest steps an episode can take: one for each state."""
        return 1 + self.length + self.decisions

    @property
    def informative_bit(self) -> int:
        """Place of the bit that marks informative states; the one after it marks uninformative states."""
        return self.actions

    @property
    def identifier_bits(self) -> slice:
        """Places of the decision identifiers; the bit after them marks decision states."""
        return slice(self.actions + 2, self.actions + 2 + self.decisions)

    @functools.cached_property
    def states(self) -> np.ndarray:
        """Every state there is, one per row, float32 [1 + 2DA + 2D, observation_size], read-only.

        Row 0 is the start; then the informative states, by decision and then by action; then the uninformative
        states in the same order; then each decision state off the correct path and on it.
        """
        A, D = self.actions, self.decisions
        rows = np.zeros((1 + 2 * D * A + 2 * D, self.observation_size), np.float32)
        told = [-1] * self.correct_path_bit  # the place of the correct-path bit, if it is there
        for informative, identifier, action in itertools.product((True, False), range(D), range(A)):
            bits = [action, A + 1 - informative, A + 2 + identifier]
            rows[self.chain_row(informative, action, identifier), bits + told * self.path_bit_in_chain] = 1
        for decision, correct in itertools.product(range(D), (False, True)):
            shown = correct and (decision > 0 or self.path_bit_at_first)
            rows[self.decision_row(decision, correct), [A + 2 + decision, A + 2 + D] + told * shown] = 1
        rows.flags.writeable = False
        return rows

    def chain_row(self, informative, action, identifier):
        """Row of `states` that holds a chain state, for numbers and arrays alike."""
        return 1 + (1 - informative) * self.decisions * self.actions + identifier * self.actions + action

    def decision_row(self, decision, correct):
        """Row of `states` that holds a decision state, for numbers and arrays alike."""
        return 1 + 2 * self.decisions * self.actions + 2 * decision + correct

    def informative_states(self) -> np.ndarray:
        """All informative states, float32 [decisions, actions, observation_size]."""
        return self.states[self.chain_row(1, np.arange(self.actions), np.arange(self.decisions)[:, None])]

    def uninformative_states(self) -> np.ndarray:
        """All uninformative states, float32 [decisions, actions, observation_size]."""
        return self.states[self.chain_row(0, np.arange(self.actions), np.arange(self.decisions)[:, None])]

    def decision_states(self) -> np.ndarray:
        """The decision states on the correct path, float32 [decisions, observation_size]."""
        return self.states[self.decision_row(np.arange(self.decisions), 1)]

    def make_instance(self, chain: Sequence[tuple[bool, int, int]]) -> Instance:
        """Write down an instance by hand, as NumPy arrays.

        Args:
            chain: (informative, action, decision) for each chain state in order, actions and decisions from 0.
        """
        A, D = self.actions, self.decisions
        told = sorted((decision, action) for informative, action, decision in chain if informative)
        if len(chain) != self.length or [decision for decision, _ in told] != list(range(D)):
            raise ValueError(f"chain must have length={self.length} states, one informative for each of {D} decisions")
        if not all(0 <= action < A and 0 <= decision < D for _, action, decision in chain):
            raise ValueError(f"chain must name actions below {A} and decisions below {D}")
        rows = [self.chain_row(*state) for state in chain]
        return Instance(np.array([action for _, action in told], np.int32), np.array(rows, np.int32))

    def sample(self, key: jax.Array) -> Instance:
        """Draw an instance, all of it uniform: every integer from 32 random bits, so to within 2⁻³²."""
        L, D, A = self.length, self.decisions, self.actions
        spans = np.array([A] * D + [L - d for d in range(D)] + [D * A] * L, np.uint32)
        # One draw for everything, and no rejection: a loop mapped over runs pays for a reset at every step.
        bits = jax.random.bits(key, spans.shape, jnp.uint32)
        draws = jax.lax.mulhi(bits, jnp.asarray(spans)).astype(jnp.int32)
        right_actions, places, others = draws[:D], draws[D : 2 * D], draws[2 * D :]
        # places[d] counts only the places that decisions before d left free; put the taken ones back in.
        for d in reversed(range(D - 1)):
            places += ((np.arange(D) > d) & (places >= places[d])).astype(jnp.int32)
        rows = self.chain_row(1, right_actions, np.arange(D, dtype=np.int32))
        return Instance(right_actions, (1 + D * A + others).at[places].set(rows, unique_indices=True))

    def start(self, instance: Instance) -> tuple[State, jax.Array]:
        """Begin an episode on a given instance; returns the state and the first observation."""
        instance = Instance(*(jnp.asarray(part, jnp.int32) for part in instance))
        state = State(instance, jnp.zeros((), jnp.int32), jnp.ones((), bool))
        return state, self.observe(state)

    def reset(self, key: jax.Array) -> tuple[State, jax.Array]:
        """Begin an episode on a new random instance; returns the state and the first observation."""
        return self.start(self.sample(key))

    def observe(self, state: State) -> jax.Array:
        """The bits the agent sees, float32 [observation_size]."""
        L, D = self.length, self.decisions
        in_chain = state.instance.chain[jnp.clip(state.position - 1, 0, L - 1)]
        at_decision = self.decision_row(state.position - L - 1, state.correct.astype(jnp.int32))
        row = jnp.where(state.position <= L, in_chain, at_decision)
        row = jnp.where((state.position == 0) | (state.position > L + D), 0, row)
        return jnp.asarray(self.states)[row]

    def step(self, state: State, action: jax.Array, key: jax.Array | None = None) -> tuple[State, TimeStep]:
        """Take one action, without chance: ``key`` is unused. Steps past the end stay there and pay nothing."""
        L, D = self.length, self.decisions
        deciding = (state.position > L) & (state.position <= L + D)
        right = state.instance.right_actions[jnp.clip(state.position - L - 1, 0, D - 1)]
        moves = deciding | ((state.position <= L) & (action == FORWARD))
        correct = state.correct & (~deciding | (action == right))
        state = State(state.instance, state.position + moves.astype(jnp.int32), correct)
        terminated = state.position > L + D
        reward = (moves & terminated & correct).astype(jnp.float32)
        return state, TimeStep(self.observe(state), reward, terminated, jnp.zeros((), bool))

    def optimal_return(self) -> float:
        """Return of the best policy with memory: 1, as every right action is told before it is needed."""
        return 1.0

    def random_return(self) -> float:
        """Return of uniformly random actions, A⁻ᴰ: they leave every chain state sooner or later, then guess."""
        return float(self.actions) ** -self.decisions

    def memoryless_return(self) -> float:
        """Return of the best policy that sees the current state alone, A⁻ᴰ: no better than guessing.

        A reward needs the decisions reached and the right action a_d at each, whose state s_d is then the one on the
        correct path, the same in every instance: at most E ∏_d π(a_d | s_d) = ∏_d Σ_a π(a | s_d)/A = A⁻ᴰ, as the
        right actions are uniform and independent. Always going forward in the chain attains it.
        """
        return self.random_return()

    def fifo_return(self, n: int) -> float:
        """Return with the last n states in memory, going straight through and guessing what is missing.

        At decision d, counted from 0, the memory holds the d decision states before it and the last c_d = n - d
        chain states (none if n ≤ d, all if n - d ≥ L). With h_d = "informative state d is among them", the return
        is E ∏_d (1/A + (1 - 1/A) h_d). Expand the product and take the decisions from the last, whose window is the
        narrowest: k states placed in narrower windows leave c_d - k of L - k places for the next.
        """
        L, guess, terms = self.length, 1 / self.actions, np.ones(1)  # terms[k]: those in which k states are held
        for d in reversed(range(self.decisions)):
            k = np.arange(len(terms))
            held = (1 - guess) * terms * np.maximum(min(n - d, L) - k, 0) / (L - k)
            terms = np.append(guess * terms, 0) + np.append(0, held)
        return float(terms.sum())

    def uniform_return(self, n: int) -> float:
        """Return with a uniform sample of n states in memory, going straight through and guessing what is missing.

        Expand the product as in `fifo_return`. At decision d the memory is a uniform n-subset of the T + d states
        before it, T = L + 1, kept by uniform reservoir sampling. k given states are all in memory at the first
        decision with probability ∏_{i<k} (n - i)/(T - i). Once the memory is full the t-th state is written with
        probability n/t over a random one of the n, so k states in memory all survive it with probability 1 - k/t.
        """
        T, guess, terms = self.length + 1, 1 / self.actions, np.ones(1)
        for d in reversed(range(self.decisions)):
            k, t = np.arange(len(terms)), T + d + 1  # decision state d is the t-th state
            terms = terms * (1 - k / t) if t > n else terms
            held = (1 - guess) * terms * np.maximum(min(n, T) - k, 0) / (T - k)
            terms = np.append(guess * terms, 0) + np.append(0, held)
        return float(terms.sum())
