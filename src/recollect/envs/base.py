"""What a pure-JAX environment is: two functions, two sizes, and the time step they speak in."""

from typing import Any, NamedTuple, Protocol, TypeVar

import jax

State = TypeVar("State")


def check_sizes(env: Any, **least: int) -> None:
    """Refuse options of an environment that are not whole numbers of at least so much."""
    for name, low in least.items():
        value = getattr(env, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < low:
            raise ValueError(f"{name}={value!r} must be an integer of at least {low}")


class TimeStep(NamedTuple):
    """What the agent is told after an action.

    ``terminated`` and ``truncated`` are kept apart because they mean different things to a learner: after a
    termination nothing follows and the value is 0; after a truncation the episode was merely cut, and the value
    of ``observation`` still counts.

    Attributes:
        observation: The next state, float32 [observation_size].
        reward: The reward for the action, float32 [].
        terminated: The episode is over, bool [].
        truncated: The episode was cut short, bool [].
    """

    observation: jax.Array
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array


class Environment(Protocol[State]):
    """A pure-JAX environment: what the training loop asks of anything it trains on.

    An environment holds its settings and no state, is hashable, and so can be a static argument of ``jax.jit``.
    ``reset`` and ``step`` are unbatched and pure: the caller maps them over runs. An environment does not restart
    itself at the end of an episode; the loop does, so that the agent sees the last observation.
    """

    def __hash__(self) -> int: ...

    @property
    def observation_size(self) -> int:
        """Length of the observation vector."""
        ...

    @property
    def num_actions(self) -> int:
        """Number of actions; an action is an integer in [0, num_actions)."""
        ...

    def reset(self, key: jax.Array) -> tuple[State, jax.Array]:
        """Begin an episode.

        Args:
            key: The randomness of the new episode.

        Returns:
            The first state of the environment, and what the agent observes of it.
        """
        ...

    def step(self, state: State, action: jax.Array, key: jax.Array) -> tuple[State, TimeStep]:
        """Take one action.

        Args:
            state: The state that ``reset`` or ``step`` last returned.
            action: int32 [], in [0, num_actions).
            key: The randomness of this step; a deterministic environment leaves it unused.

        Returns:
            The next state of the environment, and the time step the agent sees.
        """
        ...
