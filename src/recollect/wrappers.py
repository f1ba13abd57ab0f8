"""A memory for agents that have none: a Gymnasium wrapper that learns by itself what to keep and what to recall.

``Recall`` puts one recalled state beside each observation. Whatever library's agent plays the environment then sees
both, and a policy without any recurrence can act on what lies far back. The memory, its query, its write network and
their learning are those of ``EpisodicActorCritic``: the wrapper is that agent with one action to choose from, while
somebody else chooses what is done. No parameter of the memory is in the policy's score, so that nothing else changes.
It needs neither PyTorch nor the other agent's cooperation, only the rewards.
"""

from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import numpy as np

from recollect.agents import named
from recollect.agents.base import check_flag
from recollect.agents.episodic import EpisodicActorCritic
from recollect.engines import compiled_host
from recollect.engines.host import REWARD, TERMINATED, TRUNCATED, blank_rows
from recollect.envs import register, spaces
from recollect.errors import FileError
from recollect.store import checkpoints
from recollect.training.normalization import Normalizer

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


SHARED = (".agent.params", ".agent.squares")
"""What the environments of one learner have in common: the parameters, and RMSProp's mean squares."""


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
        self.vector = spaces.observations(observation_space)
        self.agent = EpisodicActorCritic(**{**DEFAULTS, "memory_size": memory_size, **options})
        if self.agent.encoder != "raw":
            raise ValueError(f"encoder={self.agent.encoder!r}: the wrapper recalls observations as they came, 'raw'")
        if (reason := compiled_host.CompiledHost.why_not(self.agent, self.vector.size, 1)) is not None:
            raise ValueError(f"these options have no compiled step, which the wrapper needs: {reason}")
        self.seed, self.learning = int(seed), True
        self.normalizer = Normalizer(self.vector.size, 1, False, normalize_rewards, float(self.agent.discount))
        self.host = compiled_host.host(self.agent, self.vector.size, 1, 1, False)
        self._held = self.host.start(np.uint32(self.seed))
        names = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(self.host.like())]
        self._shared = [k for k, name in enumerate(names) if name.startswith(SHARED)]
        self._own = [k for k in range(len(names)) if k not in self._shared]
        self._place = names.index(".agent.decision.recalled")
        self._user: Memory | None = None
        self._memories, self.not_finite = 0, 0
        """Updates that were not made because they were not finite."""

    def _views(self) -> list[np.ndarray]:
        return self._held.fleet.blocks[0].views()

    @property
    def parameters(self) -> np.ndarray:
        """Every parameter of the critic, the query and the write network, and what their steps are scaled by."""
        views = self._views()
        return np.concatenate([views[k].ravel() for k in self._shared])

    def empty_memory(self, seed: int | None = None) -> "Memory":
        """A memory of its own for one environment, on the parameters that all share; None for a seed of its own."""
        if seed is None:
            self._memories += 1
            seed = self.seed + self._memories
        fresh = self.host.start(np.uint32(seed % 2**32)).fleet.blocks[0].views()
        return Memory([fresh[k].copy() for k in self._own])

    def use(self, memory: "Memory") -> None:
        """Bring a memory to where the compiled step finds it, and keep the one that was there."""
        if memory is self._user:
            return
        if self._user is not None:
            self._user.arrays = self.snapshot()
        self._user = memory
        self.put_back(memory.arrays)

    def snapshot(self) -> list[np.ndarray]:
        """A copy of the memory in use."""
        views = self._views()
        return [views[k].copy() for k in self._own]

    def put_back(self, arrays: list[np.ndarray]) -> None:
        """Make the memory in use what ``snapshot`` copied."""
        views = self._views()
        for k, array in zip(self._own, arrays, strict=True):
            views[k][...] = array

    def begin(self, x: np.ndarray) -> np.ndarray:
        """What the first observation of an episode recalls."""
        self.host.begin(self._held, x[None])
        return self.recalled()

    def take_in(self, row: np.ndarray) -> None:
        """One time step, learned from or not."""
        if self.learning:
            _, _, bad = self.host.step(self._held, row)
            self.not_finite += bad >= 0
        else:
            self.host.watch(self._held, row)

    def forget(self) -> None:
        """Empty the memory in use."""
        self.host.forget(self._held)

    def recalled(self) -> np.ndarray:
        """What was recalled last."""
        return self._views()[self._place].reshape(-1).copy()

    def save(self, folder: Path | str) -> Path:
        """Add a checkpoint of what has been learned to a folder."""
        return checkpoints.save(folder, self._arrays(), self._meta())

    def load(self, folder: Path | str, *, fallback: bool = False) -> "RecallLearner":
        """Take over what ``save`` put there, from a learner of the same options; returns this one.

        ``fallback``: where the newest checkpoint is damaged, take the one before it.
        """
        own = {name: (array.shape, array.dtype.name) for name, array in self._arrays().items()}
        found = checkpoints.load(folder, like=own, fallback=fallback)
        if found.meta != self._meta():
            raise FileError(f"{found.path} was saved with other options: {found.meta}, not {self._meta()}")
        views = self._views()
        for k in self._shared:
            views[k][...] = found.arrays[f"learned.{k}"]
        self.normalizer.restore({k[11:]: v for k, v in found.arrays.items() if k.startswith("normalizer.")})
        return self

    def _arrays(self) -> dict[str, np.ndarray]:
        statistics = {f"normalizer.{name}": array for name, array in self.normalizer.state().items()}
        views = self._views()
        return {**{f"learned.{k}": views[k].copy() for k in self._shared}, **statistics}

    def _meta(self) -> dict[str, Any]:
        return {"kind": "recall", "agent": named.describe(self.agent), "size": self.vector.size}


class Memory:
    """All of an environment's own that the compiled step changes; held here while another environment's is in use."""

    def __init__(self, arrays: list[np.ndarray]):
        self.arrays = arrays


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
            given = [*options, *(["memory_size"] if memory_size is not None else [])]
            raise ValueError(f"{', '.join(given)}: a learner is given, which has its own; give one or the other")
        self.learner, self.vector = learner, spaces.observations(env.observation_space)
        if self.vector.size != learner.vector.size:
            raise ValueError(
                f"the learner was made for observations of {learner.vector.size} numbers, "
                f"these have {self.vector.size}: {env.observation_space}"
            )
        low, high = self._bounds().astype(np.float32)
        # Zeros, which stand for nothing recalled, must lie in the space as well.
        bounds = np.append(low, np.minimum(low, 0.0)), np.append(high, np.maximum(high, 0.0))
        self.observation_space = gym.spaces.Box(*bounds)
        self._memory = learner.empty_memory()
        self._row, self._recalled = blank_rows(1, self.vector.size), np.zeros(self.vector.size, np.float32)
        self._playing, self._return = False, 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Begin an episode with an empty memory; ``seed`` also that of what is kept and recalled."""
        observation, info = self.env.reset(seed=seed, options=options)
        x = self._vector(observation)
        if seed is not None:
            self._memory = self.learner.empty_memory(seed)
        self.learner.use(self._memory)
        if seed is None:
            self.learner.forget()
        self._recalled = self.learner.begin(x)
        self._playing, self._return = True, 0.0
        return self._joined(x), info

    def step(self, action: Any) -> tuple[np.ndarray, Any, bool, bool, dict]:
        """Take the agent's action; learn what it was worth to recall what was recalled."""
        if not self._playing:
            raise gym.error.ResetNeeded("no episode is under way: call reset() first")
        observation, reward, terminated, truncated, info = self.env.step(action)
        if not np.isfinite(float(reward)):
            raise ValueError(f"the environment's reward is {reward}, not finite: nothing was learned from this step")
        x, learner, size = self._vector(observation), self.learner, self.vector.size
        over = bool(terminated or truncated)
        row = self._row[0]
        row[:size], row[2 * size + REWARD] = x, self._scale(float(reward), over)
        row[2 * size + TERMINATED], row[2 * size + TRUNCATED] = terminated, truncated
        learner.use(self._memory)
        if over:
            # The step empties the memory: what the last observation recalls must be drawn before it.
            before = learner.snapshot()
            last = learner.begin(x)
            learner.put_back(before)
        learner.take_in(self._row)
        self._recalled, self._playing = last if over else learner.recalled(), not over
        return self._joined(x), reward, terminated, truncated, info

    @property
    def recalled(self) -> np.ndarray:
        """The recalled observation that goes with the last one."""
        return self._recalled

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
        return np.concatenate([x, self._recalled])

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


register()  # whoever wraps environments may want those of recollect
