"""The secret informant problem as a Gymnasium environment: the same dynamics in NumPy, with pictures."""

from typing import Any

import gymnasium as gym
import numpy as np

from recollect.envs import register
from recollect.envs.secret_informant import FORWARD, Instance, SecretInformant

__all__ = ["SecretInformantEnv", "register"]

# The colours of the paper's figure 2.
START, INFORMATIVE, UNINFORMATIVE, DECISION = (
    (0x38, 0x6C, 0xB0),
    (0x66, 0xA6, 0x1E),
    (0xD9, 0x5F, 0x02),
    (0x1B, 0x9E, 0x77),
)
END, AGENT, ONE, ZERO, PAPER = (0xC8,) * 3, (0x11,) * 3, (0x33,) * 3, (0xE4,) * 3, (0xFF,) * 3

CELL, GAP, BIT = 18, 4, 8  # pixels


class SecretInformantEnv(gym.Env[np.ndarray, np.int64]):
    """`recollect.envs.SecretInformant` for Gymnasium; see there for the problem.

    Observations are a float32 ``Box`` between 0 and 1 rather than ``MultiBinary``, whose int8 vectors would have to
    be converted before every network, and so are the same arrays as those of the JAX environment.

    ``reset(options={"instance": instance})`` begins an episode on a given instance, from
    `SecretInformant.make_instance` or from the state of a JAX episode.

    Example:
        >>> import gymnasium as gym
        >>> env = gym.make("recollect.envs.gymnasium:recollect/SecretInformant-v0", length=4, render_mode="ansi")
        >>> rules = env.unwrapped.rules
        >>> chain = [(False, 2, 0), (False, 1, 0), (True, 0, 0), (False, 0, 0)]
        >>> _ = env.reset(seed=0, options={"instance": rules.make_instance(chain)})
        >>> for _ in range(3):
        ...     observation, reward, terminated, truncated, info = env.step(1)
        >>> print(env.render())
        S u1:2 u1:1 I1:0 u1:0 D1 end
                    ^
        >>> observation.astype(int)
        array([1, 0, 0, 1, 0, 1, 0, 0])

    Args:
        length: Number of chain states, informative and uninformative together.
        decisions: Number of decision states, and of informative states.
        actions: Number of actions.
        correct_path_bit: Whether the state has its last bit.
        render_mode: ``"ansi"`` for text, ``"rgb_array"`` for a picture, or None.
    """

    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # noqa: RUF012 (Gymnasium's own attribute)

    def __init__(
        self,
        length: int = 10,
        decisions: int = 1,
        actions: int = 3,
        correct_path_bit: bool = True,
        path_bit_at_first: bool = True,
        path_bit_in_chain: bool = False,
        render_mode: str | None = None,
    ) -> None:
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ValueError(f"render_mode={render_mode!r} must be None or one of {self.metadata['render_modes']}")
        self.rules = SecretInformant(length, decisions, actions, correct_path_bit, path_bit_at_first, path_bit_in_chain)
        self.render_mode = render_mode
        self.observation_space = gym.spaces.Box(0.0, 1.0, (self.rules.observation_size,), np.float32)
        self.action_space = gym.spaces.Discrete(actions)
        self.observation_names = self.rules.observation_names
        self.action_names = ("up", "forward", "down") if actions == 3 else tuple(f"action {k}" for k in range(actions))
        self.instance: Instance | None = None
        self.position = 0
        self.correct = True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Begin an episode, on a new random instance or on ``options["instance"]``."""
        super().reset(seed=seed)
        given = (options or {}).get("instance")
        self.instance = self._sample() if given is None else self._check(given)
        self.position, self.correct = 0, True
        return self._observe(0), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Take one action."""
        decision = self.position - self.rules.length - 1
        if self.instance is None or decision >= self.rules.decisions:
            raise gym.error.ResetNeeded("no episode is under way: call reset() first")
        if not 0 <= action < self.rules.actions:
            raise ValueError(f"action={action} must be at least 0 and below actions={self.rules.actions}")
        if decision >= 0:
            self.correct = self.correct and bool(action == self.instance.right_actions[decision])
            self.position += 1
        elif action == FORWARD:
            self.position += 1
        terminated = self.position == self.rules.shortest_episode
        return self._observe(self.position), float(terminated and self.correct), terminated, False, {}

    def render(self) -> str | np.ndarray | None:
        """The chain with the agent in it: two lines of text, or a uint8 picture [height, width, 3]."""
        if self.render_mode is None:
            gym.logger.warn("render() shows nothing without a render_mode: make the environment with one")
            return None
        if self.instance is None:
            raise gym.error.ResetNeeded("no episode is under way: call reset() first")
        return self._text() if self.render_mode == "ansi" else self._picture()

    def _sample(self) -> Instance:
        L, D, A = self.rules.length, self.rules.decisions, self.rules.actions
        right_actions = self.np_random.integers(A, size=D, dtype=np.int32)
        chain = self.rules.chain_row(0, self.np_random.integers(A, size=L), self.np_random.integers(D, size=L))
        places = self.np_random.choice(L, D, replace=False)
        chain[places] = self.rules.chain_row(1, right_actions, np.arange(D))
        return Instance(right_actions, chain.astype(np.int32))

    def _check(self, instance: Instance) -> Instance:
        given = Instance(*(np.asarray(part) for part in instance))
        known = self.rules.make_instance(self._chain(given))
        if not all(np.array_equal(a, b) for a, b in zip(given, known, strict=True)):
            raise ValueError(f"instance {given} is none of {self.rules}: its states should be those of {known}")
        return known

    def _chain(self, instance: Instance) -> list[tuple[bool, int, int]]:
        """The chain as `SecretInformant.make_instance` takes it: (informative, action, decision) for each state."""
        A, D = self.rules.actions, self.rules.decisions
        return [(row < D * A, row % A, row // A % D) for row in (np.asarray(instance.chain) - 1).tolist()]

    def _observe(self, position: int) -> np.ndarray:
        """What the agent sees at a position; at a decision to come, what it would see on its present path."""
        assert self.instance is not None
        row, decision = 0, position - self.rules.length - 1
        if 0 < position <= self.rules.length:
            row = self.instance.chain[position - 1]
        elif 0 <= decision < self.rules.decisions:
            row = self.rules.decision_row(decision, self.correct)
        return self.rules.states[row].copy()

    def _text(self) -> str:
        """Each state as its kind, decision and action, decisions from 1 and actions from 0; the agent below."""
        assert self.instance is not None
        chain = [
            f"{'I' if told else 'u'}{decision + 1}:{action}" for told, action, decision in self._chain(self.instance)
        ]
        cells = ["S", *chain, *(f"D{d + 1}" for d in range(self.rules.decisions)), "end"]
        indent = sum(len(cell) + 1 for cell in cells[: self.position])
        return f"{' '.join(cells)}\n{' ' * indent}^"

    def _picture(self) -> np.ndarray:
        """A column for each state: a square for its kind, its bits below, dark for 1; a pointer at the agent."""
        assert self.instance is not None
        kinds = [INFORMATIVE if told else UNINFORMATIVE for told, _, _ in self._chain(self.instance)]
        kinds = [START, *kinds, *[DECISION] * self.rules.decisions, END]
        A, D = self.rules.actions, self.rules.decisions
        # The bits stand in groups: actions, informative or not, decision identifiers, flags.
        rows = [
            GAP * ((i >= A) + (i >= A + 2) + (i >= A + 2 + D)) + BIT * i for i in range(self.rules.observation_size)
        ]
        pointer = CELL // 2
        top = GAP + pointer + GAP
        bits = top + CELL + GAP
        picture = np.full((bits + rows[-1] + BIT + GAP, GAP + len(kinds) * (CELL + GAP), 3), PAPER, np.uint8)
        for position, kind in enumerate(kinds):
            left = GAP + position * (CELL + GAP)
            column = picture[:, left : left + CELL]
            column[top : top + CELL] = kind
            if position < self.rules.shortest_episode:
                for row, bit in zip(rows, self._observe(position), strict=True):
                    column[bits + row : bits + row + BIT - 1] = ONE if bit else ZERO
            if position == self.position:
                for y in range(pointer):
                    column[GAP + y, y : CELL - y] = AGENT
        return picture


register()
