"""The T-maze: a cue at the start, a corridor, and a junction where the cue says which way to turn.

Twice: `TMaze` in pure JAX, for loops that are compiled whole, and `TMazeEnv` in NumPy for Gymnasium, where a call into
JAX at every step would cost more than the step.
"""

import dataclasses
from typing import Any, NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np

from recollect.envs.base import TimeStep, check_sizes

UP, DOWN, CORRIDOR, JUNCTION = range(4)  # what the four elements of an observation say; the cue is UP or DOWN
FORWARD = 2  # 0 and 1 turn as the cue of that number says
RIGHT, WRONG, STAYED = 1.0, -1.0, -0.1  # rewards


class State(NamedTuple):
    """An episode under way."""

    cue: jax.Array  # int32 []
    position: jax.Array  # int32 []: 0 is the cue, then the corridor, then the junction, then the end


@dataclasses.dataclass(frozen=True)
class TMaze:
    """A T-maze of adjustable length, after Bakker (2002), as a pure-JAX environment.

    The first state shows the cue, up or down; then come ``length`` states of corridor, all alike, and the junction. The
    episode ends there, with reward 1 for turning as the cue said and −1 otherwise. Without memory the return is 0 on
    average; the best is 1.

    In the passive maze (Ni et al. 2023) every action leads on until the junction, so that only memory is asked for, and
    there are two actions. In the active one there is a third, forward, the only one that leads on; any other costs
    0.1 and stays, and so does forward at the junction.

    Example:
        >>> env = TMaze(length=1)
        >>> state, observation = env.start(DOWN)
        >>> for _ in range(3):
        ...     print(*observation.astype(int), sep="")
        ...     state, (observation, reward, terminated, truncated) = env.step(state, DOWN)
        0100
        0010
        0001
        >>> print(reward, terminated)
        1.0 True

    Args:
        length: states of corridor between the cue and the junction.
        passive: whether every action leads on.
        oracle: whether the junction shows the cue as well: the control for which no memory is needed.
    """

    length: int = 10
    passive: bool = True
    oracle: bool = False

    def __post_init__(self) -> None:
        check_sizes(self, length=0)

    @property
    def observation_size(self) -> int:
        """Up, down, corridor, junction."""
        return 4

    @property
    def num_actions(self) -> int:
        """Two turns, and in the active maze forward."""
        return 2 if self.passive else 3

    @property
    def shortest_episode(self) -> int:
        """Fewest steps an episode can take: one for each state; in the passive maze every episode takes so many."""
        return self.length + 2

    def start(self, cue: jax.Array | int) -> tuple[State, jax.Array]:
        """Begin an episode with a given cue; returns the state and the first observation."""
        state = State(jnp.asarray(cue, jnp.int32), jnp.zeros((), jnp.int32))
        return state, self.observe(state)

    def reset(self, key: jax.Array) -> tuple[State, jax.Array]:
        """Begin an episode with a fair cue; returns the state and the first observation."""
        return self.start(jax.random.bits(key, (), jnp.uint32) >> 31)

    def observe(self, state: State) -> jax.Array:
        """What the agent sees, float32 [4]; nothing after the end."""
        cue, position = state
        place = jnp.where(position == 0, cue, jnp.where(position <= self.length, CORRIDOR, JUNCTION))
        seen = (jnp.arange(4) == place) & (position <= self.length + 1)
        if self.oracle:
            seen |= (jnp.arange(4) == cue) & (position == self.length + 1)
        return seen.astype(jnp.float32)

    def step(self, state: State, action: jax.Array | int, key: jax.Array | None = None) -> tuple[State, TimeStep]:
        """Take one action, without chance: ``key`` is unused. Steps past the end stay there and pay nothing."""
        forward = jnp.asarray(action) == FORWARD
        turns = (state.position == self.length + 1) & ~forward
        moves = turns | ((state.position <= self.length) & (forward | self.passive))
        paid = jnp.where(turns, jnp.where(action == state.cue, RIGHT, WRONG), jnp.where(moves, 0.0, STAYED))
        reward = jnp.where(state.position > self.length + 1, 0.0, paid).astype(jnp.float32)
        state = state._replace(position=state.position + moves.astype(jnp.int32))
        terminated = state.position > self.length + 1
        return state, TimeStep(self.observe(state), reward, terminated, jnp.zeros((), bool))


class TMazeEnv(gym.Env[np.ndarray, np.int64]):
    """`TMaze` for Gymnasium; see there for the maze and its arguments.

    Example:
        >>> env = TMazeEnv(length=1)
        >>> observation, _ = env.reset(seed=0)
        >>> for _ in range(3):
        ...     print(*observation.astype(int), sep="")
        ...     observation, reward, terminated, truncated, _ = env.step(int(env.cue))
        0100
        0010
        0001
        >>> reward, terminated
        (1.0, True)

    Args:
        length: states of corridor between the cue and the junction.
        passive: whether every action leads on.
        oracle: whether the junction shows the cue as well.
        render_mode: ``"ansi"`` for a line of text, or None.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012 (Gymnasium's own attribute)
    observation_names = ("up", "down", "corridor", "junction")

    def __init__(self, length: int = 10, passive: bool = True, oracle: bool = False, render_mode: str | None = None):
        rules = TMaze(length, passive, oracle)
        if render_mode not in (None, "ansi"):
            raise ValueError(f"render_mode={render_mode!r} must be None or 'ansi'")
        self.length, self.passive, self.oracle, self.render_mode = length, passive, oracle, render_mode
        self.observation_space = gym.spaces.Box(0.0, 1.0, (rules.observation_size,), np.float32)
        self.action_space = gym.spaces.Discrete(rules.num_actions)
        self.action_names = ("turn up", "turn down", "forward")[: rules.num_actions]
        self.cue, self.position = 0, -1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Begin an episode with a fair cue."""
        super().reset(seed=seed)
        self.cue, self.position = int(self.np_random.integers(2)), 0
        return self._observe(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Take one action."""
        if not 0 <= self.position <= self.length + 1:
            raise gym.error.ResetNeeded("no episode is under way: call reset() first")
        if not 0 <= action < self.action_space.n:  # type: ignore[attr-defined]
            raise ValueError(f"action={action} must be at least 0 and below {self.action_space}")
        at_junction = self.position == self.length + 1
        if at_junction and action != FORWARD:
            self.position += 1
            return self._observe(), RIGHT if action == self.cue else WRONG, True, False, {}
        if at_junction or (not self.passive and action != FORWARD):
            return self._observe(), STAYED, False, False, {}
        self.position += 1
        return self._observe(), 0.0, False, False, {}

    def render(self) -> str | None:
        """The maze as a line: the cue, the corridor, the junction; the agent's place in brackets."""
        if self.render_mode is None:
            return None
        cells = ["^v"[self.cue], *"." * self.length, "T"]
        return "".join(f"[{c}]" if k == self.position else c for k, c in enumerate(cells))

    def _observe(self) -> np.ndarray:
        observation = np.zeros(4, np.float32)
        if self.position == 0:
            observation[self.cue] = 1.0
        elif self.position <= self.length:
            observation[CORRIDOR] = 1.0
        elif self.position == self.length + 1:
            observation[JUNCTION] = 1.0
            if self.oracle:
                observation[self.cue] = 1.0
        return observation
