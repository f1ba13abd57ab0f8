"""A memory for agents that have none: a Gymnasium wrapper that learns by itself what to keep and what to recall.

``Recall`` puts one recalled state beside each observation. Whatever library's agent plays the environment then sees
both, and a policy without any recurrence can act on what lies far back. The memory, its query and its write network are
those of ``EpisodicActorCritic``, and so is their learning: the wrapper is that agent with its choices of actions left
to somebody else. It needs neither PyTorch nor the agent's cooperation, only the rewards.
"""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from recollect import checkpoints, prng, spaces, trees
from recollect.actions import Distribution
from recollect.agents import named
from recollect.agents.base import check_flag
from recollect.agents.episodic import EpisodicActorCritic, Parameters
from recollect.agents.episodic import State as AgentState
from recollect.errors import FileError
from recollect.host import TimeStep
from recollect.normalization import Normalizer
from recollect.reservoir import kernel

DEFAULTS: dict[str, Any] = {
    "memory_size": 8,
    "hidden": 16,
    "optimizer": "rmsprop",
    "square_decay": 0.99,
    "epsilon": 1e-6,
    "learning_rate": 0.003,
    "discount": 0.95,
    "entropy": 0.0003,
    "surprise": 0.03,
    "query_openness": 1.0,
    "trace_decay": 0.5,
    "value_rate": 1.0,
    "query_rate": 1.0,
    "write_rate": 1.0,
    "distinct": True,
    "critic_output": "linear",
}
"""Options of ``EpisodicActorCritic`` that a ``RecallLearner`` has unless told otherwise."""


@dataclasses.dataclass(frozen=True)
class _ChosenElsewhere(Distribution):
    """Actions that somebody else draws: nothing to draw, nothing to learn."""

    @property
    def draws(self) -> int:
        return 0

    def nothing(self) -> Array:
        return jnp.zeros((), jnp.int32)

    def draw(self, outputs: Array, u: Array) -> Array:
        return self.nothing()

    def log_probability(self, outputs: Array, action: Array) -> Array:
        return jnp.zeros(())

    def entropy(self, outputs: Array) -> Array:
        return jnp.zeros(())


class RecallLearner:
    """What the wrappers of several environments may share: the query, the write network, the critic behind δ.

    >>> import gymnasium as gym
    >>> shared = RecallLearner(gym.spaces.Box(0.0, 1.0, (4,)), memory_size=8)
    >>> envs = [Recall(gym.make("recollect:recollect/TMaze-v0"), learner=shared) for _ in range(2)]
    >>> envs[0].reset(seed=0)[0].shape
    (8,)

    Args:
        observation_space: of the environments.
        memory_size: n, the states kept per environment.
        seed: of the first parameters.
        normalize_rewards: divide rewards by the running deviation of the discounted return before learning from them;
            whoever plays the environment gets them as they are.
        options: of ``EpisodicActorCritic``, over ``DEFAULTS``; those of its policy have no effect.
    """

    def __init__(
        self,
        observation_space: gym.Space,
        memory_size: int = 8,
        *,
        seed: int = 0,
        normalize_rewards: bool = True,
        **options: Any,
    ):
        check_flag("normalize_rewards", normalize_rewards)
        for name in ("actions", "pictures", "encoder", "oracle_bit", "write", "reset_memory"):
            if name in options:
                raise ValueError(f"{name} is not an option here: the wrapper sets it")
        self.vector = spaces.observations(observation_space)
        self.agent = EpisodicActorCritic(
            **{**DEFAULTS, "memory_size": memory_size, **options}, actions=_ChosenElsewhere(), reset_memory=False
        )
        self.seed, self.learning = int(seed), True
        self.normalizer = Normalizer(self.vector.size, 1, False, normalize_rewards, float(self.agent.discount))
        self.blank: AgentState = jax.jit(self.agent.init, static_argnums=(1, 2))(
            prng.key(self.seed), self.vector.size, 1
        )
        self.params: Parameters = self.blank.params
        self.squares: Any = self.blank.squares
        self.not_finite = 0
        """Updates that were not made because they were not finite."""

    def save(self, folder: Path | str) -> Path:
        """Add a checkpoint of what has been learned to a folder."""
        arrays = trees.flatten({"params": self.params, "squares": self.squares, "normalizer": self.normalizer.state()})
        return checkpoints.save(folder, arrays, self._meta())

    def load(self, folder: Path | str) -> "RecallLearner":
        """Take over what ``save`` put there, from a learner of the same options; returns this one."""
        like = {"params": self.params, "squares": self.squares, "normalizer": self.normalizer.state()}
        found = checkpoints.load(folder, like=trees.shapes(like))
        if found.meta != self._meta():
            raise FileError(f"{found.path} was saved with other options: {found.meta}, not {self._meta()}")
        state = trees.restore(found.arrays, like)
        self.params, self.squares = jax.tree.map(jnp.asarray, (state["params"], state["squares"]))
        self.normalizer.restore(state["normalizer"])
        return self

    def _meta(self) -> dict[str, Any]:
        return {"kind": "recall", "agent": named.describe(self.agent), "size": self.vector.size}


@jax.jit
def _begin(
    agent: EpisodicActorCritic, params: Parameters, state: AgentState, x: Array, key: Array, time: Array
) -> AgentState:
    """An episode's first observation: nothing in memory, nothing to give credit to."""
    key = prng.at(key, time, 0)
    traces = jax.tree.map(jnp.zeros_like, state.traces)
    state = state._replace(params=params, traces=traces, memory=kernel.clear(state.memory))
    return agent.begin(state, x, key)[0]


@functools.partial(jax.jit, static_argnames="learn")
def _continue(
    agent: EpisodicActorCritic,
    params: Parameters,
    squares: Any,
    state: AgentState,
    timestep: TimeStep,
    key: Array,
    time: Array,
    learn: bool,
) -> tuple[AgentState, Array]:
    """Learn from what came of the action that somebody took, store the state it was taken in, recall at the next."""
    key_learn, key_begin = prng.at(key, time, 0), prng.at(key, time, 1)
    state, finite = agent.update(state._replace(params=params, squares=squares), timestep, key_learn, learn)
    return agent.begin(state, timestep.observation, key_begin)[0], finite


class Recall(gym.Wrapper):
    """An environment whose observations come with a recalled one: a vector of twice the length.

    >>> env = Recall(gym.make("recollect:recollect/TMaze-v0", length=2), memory_size=4)
    >>> observation, _ = env.reset(seed=0)
    >>> observation, *_ = env.step(0)
    >>> print(*observation.astype(int), sep="")  # the corridor, and the cue that came before it
    00100100

    The first half is the observation as a vector (boxes flattened, discrete ones one-hot, parts of a dict one after
    another), the second the recalled one in the same form, zeros while the memory is empty. The memory is emptied by
    ``reset``. It learns at every step; ``env.learner.learning = False`` leaves it as it is, for an evaluation.

    Args:
        env: the environment.
        memory_size: n, the states kept; with ``learner`` that of the learner.
        learner: what is learned, shared with other wrappers in this process; for several environments of one agent,
            whose policy must find one meaning in all of their recalled states. None for one of its own.
        options: of the learner that it makes for itself, see ``RecallLearner``.
    """

    def __init__(
        self, env: gym.Env, memory_size: int | None = None, *, learner: RecallLearner | None = None, **options: Any
    ):
        super().__init__(env)
        if learner is None:
            learner = RecallLearner(env.observation_space, 8 if memory_size is None else memory_size, **options)
        elif options or memory_size is not None:
            given = sorted([*options, *(["memory_size"] if memory_size is not None else [])])
            raise ValueError(f"{', '.join(given)}: a learner is given, which has its own; give one or the other")
        self.learner, self.vector = learner, spaces.observations(env.observation_space)
        if self.vector.size != learner.vector.size:
            raise ValueError(
                f"the learner was made for observations of {learner.vector.size} numbers, "
                f"these have {self.vector.size}: {env.observation_space}"
            )
        bound = np.concatenate([self._bounds(), self._bounds()], axis=1)
        # Zeros, which stand for nothing recalled, must lie in the space as well.
        bound[:, self.vector.size :] = np.array([[-1.0], [1.0]]) * np.maximum(
            np.array([[-1.0], [1.0]]) * bound[:, self.vector.size :], 0.0
        )
        self.observation_space = gym.spaces.Box(bound[0].astype(np.float32), bound[1].astype(np.float32))
        self._state: AgentState | None = None
        self._key, self._time, self._return = prng.key(learner.seed), 0, 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Begin an episode with an empty memory; ``seed`` also that of what is kept and recalled."""
        observation, info = self.env.reset(seed=seed, options=options)
        if seed is not None:
            self._key, self._time = prng.key(seed), 0
        x = self._vector(observation)
        learner = self.learner
        state = learner.blank if self._state is None else self._state
        self._time += 1
        key, time = self._key, np.uint32(self._time)
        self._state, self._return = _begin(learner.agent, learner.params, state, x, key, time), 0.0
        return self._joined(x), info

    def step(self, action: Any) -> tuple[np.ndarray, Any, bool, bool, dict]:
        """Take the agent's action; learn what it was worth to recall what was recalled."""
        if self._state is None:
            raise gym.error.ResetNeeded("no episode is under way: call reset() first")
        observation, reward, terminated, truncated, info = self.env.step(action)
        if not np.isfinite(reward):
            raise ValueError(f"the environment's reward is {reward}, not finite: nothing was learned from this step")
        x, learner = self._vector(observation), self.learner
        over = bool(terminated or truncated)
        scaled = self._scale(float(reward), over)
        timestep = TimeStep(x, np.float32(scaled), np.bool_(terminated), np.bool_(truncated))
        self._time += 1
        shared, key, time = (learner.agent, learner.params, learner.squares), self._key, np.uint32(self._time)
        self._state, finite = _continue(*shared, self._state, timestep, key, time, learner.learning)
        if learner.learning:
            learner.params, learner.squares = self._state.params, self._state.squares
            learner.not_finite += not bool(finite)
        return self._joined(x), reward, terminated, truncated, info

    @property
    def recalled(self) -> np.ndarray:
        """The recalled observation that goes with the last one."""
        if self._state is None:
            raise gym.error.ResetNeeded("no episode is under way: call reset() first")
        return np.asarray(self._state.decision.recalled)

    def _scale(self, reward: float, over: bool) -> float:
        normalizer = self.learner.normalizer
        if not self.learner.learning or normalizer.rewards is None:
            return reward
        normalizer.returns[0] = self._return  # each environment's own; the statistics are shared
        scaled = normalizer.reward(reward, 0, over)
        self._return = float(normalizer.returns[0])
        return scaled

    def _vector(self, observation: Any) -> np.ndarray:
        x = np.zeros(self.vector.size, np.float32)
        self.vector.write(observation, x)
        return x

    def _joined(self, x: np.ndarray) -> np.ndarray:
        return np.concatenate([x, self.recalled])

    def _bounds(self) -> np.ndarray:
        space = self.env.observation_space
        if isinstance(space, gym.spaces.Box) and np.issubdtype(space.dtype, np.floating):
            return np.stack([space.low.ravel(), space.high.ravel()]).astype(np.float64)
        low = np.zeros(self.vector.size)
        return np.stack([low, low + 1]) if not _has_floats(space) else np.stack([low - np.inf, low + np.inf])


def _has_floats(space: gym.Space) -> bool:
    """Whether a space has a box of floats somewhere; all others become numbers between 0 and 1."""
    if isinstance(space, gym.spaces.Dict):
        return any(map(_has_floats, space.spaces.values()))
    if isinstance(space, gym.spaces.Tuple):
        return any(map(_has_floats, space.spaces))
    return isinstance(space, gym.spaces.Box) and np.issubdtype(space.dtype, np.floating)
