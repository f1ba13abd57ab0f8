"""The signed informant problem: which of many messages is true is told by the state before it."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from recollect.envs.base import TimeStep, check_sizes


class State(NamedTuple):
    """An episode under way."""

    messages: jax.Array  # int32 [actions · copies]: the action that each message names
    true: jax.Array  # int32 []: the place of the true message
    position: jax.Array  # int32 []


@dataclasses.dataclass(frozen=True)
class SignedInformant:
    """A sign, a message, a sign, a message, …, a decision: one message is true, and only the sign before it says so.

    Every action is named by ``copies`` messages, in random order, and a uniformly drawn one is true. The decision pays
    1 if its action is the one the true message named, and ends the episode. All actions lead on everywhere, so what is
    seen does not depend on what is done.

    A state is a vector of bits: A = ``actions`` action indicators (a message), sign of truth, sign of falsehood,
    decision state.

    **A memory of raw states that keeps by weight cannot solve it**: see `raw_return`.

    >>> env = SignedInformant(actions=3, copies=1)
    >>> env.shortest_episode, env.observation_size, round(env.raw_return(), 3)
    (7, 6, 0.333)
    """

    actions: int = 3
    copies: int = 1

    def __post_init__(self) -> None:
        check_sizes(self, actions=2, copies=1)

    @property
    def observation_size(self) -> int:
        """Number of bits of a state."""
        return self.actions + 3

    @property
    def num_actions(self) -> int:
        """Number of actions."""
        return self.actions

    @property
    def shortest_episode(self) -> int:
        """Steps of every episode."""
        return 2 * self.actions * self.copies + 1

    def reset(self, key: jax.Array) -> tuple[State, jax.Array]:
        """Begin an episode."""
        key_order, key_true = jax.random.split(key)
        named = jnp.tile(jnp.arange(self.actions, dtype=jnp.int32), self.copies)
        # By sorting random words: jax.random.permutation would loop.
        order = jnp.argsort(jax.random.bits(key_order, named.shape))
        true = jax.random.randint(key_true, (), 0, named.size, jnp.int32)
        state = State(named[order], true, jnp.zeros((), jnp.int32))
        return state, self.observe(state)

    def observe(self, state: State) -> jax.Array:
        """The bits the agent sees, float32 [observation_size]; all 0 after the end."""
        A, last = self.actions, 2 * self.actions * self.copies
        which = jnp.clip(state.position // 2, 0, last // 2 - 1)
        sign = jnp.where(which == state.true, A, A + 1)
        bit = jnp.where(state.position % 2 == 0, sign, state.messages[which])
        bit = jnp.where(state.position == last, A + 2, bit)
        return jnp.where(state.position > last, 0.0, jax.nn.one_hot(bit, self.observation_size))

    def step(self, state: State, action: jax.Array, key: jax.Array | None = None) -> tuple[State, TimeStep]:
        """Take one action, without chance: ``key`` is unused."""
        last = 2 * self.actions * self.copies
        right = (state.position == last) & (action == state.messages[state.true])
        state = state._replace(position=state.position + 1)
        over = state.position > last
        return state, TimeStep(self.observe(state), right.astype(jnp.float32), over, jnp.zeros((), bool))

    def optimal_return(self) -> float:
        """Return of an agent that knows which message was true: 1."""
        return 1.0

    def raw_return(self) -> float:
        """Return of any agent that keeps raw states by weight and acts on them and the current one: 1/A, by chance.

        Parameters held fixed, which n states such a memory holds has a law that depends on the states seen, not on
        their order (the product law), and no action changes what is seen. Every episode shows the same states (each
        action named as often as any other, one true sign), so at the decision the memory's content is independent of
        which message was true.
        """
        return 1 / self.actions
