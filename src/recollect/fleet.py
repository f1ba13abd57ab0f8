"""The environments that are played at once, watched: what is not sound in them stops before an agent learns from it."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from recollect import host
from recollect.errors import RecollectError
from recollect.normalization import Normalizer
from recollect.spaces import Actions, NotInSpaceError, Observations


class EnvironmentFault(RecollectError):  # noqa: N818
    """An environment did what none should: which, with which seed, at which step, and where the state is saved."""

    def __init__(self, environment: str, seed: int, step: int, what: str, saved: str = ""):
        self.environment, self.seed, self.step, self.what, self.saved = environment, seed, step, what, saved
        tail = f"; the state before it is saved in {saved}" if saved else ""
        super().__init__(f"{environment}, seed {seed}, step {step:,}: {what}{tail}")


class Episode(NamedTuple):
    """A finished episode, in the environment's own rewards."""

    copy: int
    score: float
    length: int


class Fleet:
    """Environments side by side: rows in, rows out, as ``recollect.host`` takes them.

    ``finished`` gathers episodes until whoever reads it clears it. A copy's episode k is always the same for the same
    seed: every reset is seeded from (seed, copy, k).
    """

    def __init__(
        self,
        name: str,
        copies: int,
        observations: Observations,
        actions: Actions,
        normalizer: Normalizer,
        seeds: Sequence[tuple[int, int]],
    ):
        self.name, self.copies, self.vector, self.actions = name, copies, observations, actions
        self.normalizer, self.seeds = normalizer, list(seeds)
        self.steps = 0  # of each copy
        self.episodes = [0] * copies
        self.scores, self.lengths = [0.0] * copies, [0] * copies
        self.finished: list[Episode] = []

    def reset(self, rows: np.ndarray) -> None:
        """Begin an episode everywhere; first observations go where the rows have those of the next episode."""
        raise NotImplementedError

    def step(self, drawn: np.ndarray, rows: np.ndarray) -> None:
        """Take the drawn actions; fills the rows, and begins the next episode where one ended."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of what the environments hold."""
        raise NotImplementedError

    def fault(self, copy: int, what: str) -> EnvironmentFault:
        """The error for something wrong in a copy at the step under way."""
        return EnvironmentFault(self.name, self.seeds[copy][0], self.steps + 1, what)

    def raised(self, copy: int, call: str, error: Exception) -> EnvironmentFault:
        """The error for an environment that raised."""
        return self.fault(copy, f"{call} raised {type(error).__name__}: {error}")

    def reset_seed(self, copy: int) -> int:
        """Of a copy's next episode."""
        return int(np.random.SeedSequence([*self.seeds[copy], self.episodes[copy]]).generate_state(1)[0] >> 1)

    def _take(self, copy: int, observation: Any, out: np.ndarray) -> None:
        try:
            self.vector.write(observation, out)
        except NotInSpaceError as error:
            raise self.fault(copy, f"an observation is not in the declared space: {error}") from error
        self.normalizer.observe(out)

    def _note(self, copy: int, row: np.ndarray, reward: Any, terminated: Any, truncated: Any) -> bool:
        """Write down what came of a step; returns whether the episode is over."""
        try:
            reward = float(reward)
        except (TypeError, ValueError) as error:
            raise self.fault(copy, f"the reward is no number: {reward!r}") from error
        if not math.isfinite(reward):
            raise self.fault(copy, f"the reward is {reward}")
        over = bool(terminated or truncated)
        at = 2 * self.vector.size
        row[at + host.REWARD] = self.normalizer.reward(reward, copy, over)
        row[at + host.TERMINATED] = bool(terminated)
        # An episode that ends on its own at the very step of a time limit has ended: nothing follows.
        row[at + host.TRUNCATED] = bool(truncated) and not terminated
        self.scores[copy] += reward
        self.lengths[copy] += 1
        if over:
            self.finished.append(Episode(copy, self.scores[copy], self.lengths[copy]))
            self.scores[copy], self.lengths[copy] = 0.0, 0
            self.episodes[copy] += 1
        return over


class Copies(Fleet):
    """Environments one by one."""

    def __init__(self, envs: Sequence[gym.Env], *arguments: Any):
        super().__init__(*arguments)
        self.envs = list(envs)

    def reset(self, rows: np.ndarray) -> None:
        """Begin an episode everywhere."""
        for copy, row in enumerate(rows):
            self.scores[copy], self.lengths[copy] = 0.0, 0
            self._begin(copy, row)

    def _begin(self, copy: int, row: np.ndarray) -> None:
        seed = self.reset_seed(copy)
        try:
            observation, _ = self.envs[copy].reset(seed=seed)
        except Exception as error:
            raise self.raised(copy, f"reset(seed={seed})", error) from error
        self._take(copy, observation, row[self.vector.size : 2 * self.vector.size])

    def step(self, drawn: np.ndarray, rows: np.ndarray) -> None:
        """One step in each."""
        decode, size = self.actions.decode, self.vector.size
        for copy, env in enumerate(self.envs):
            row, action = rows[copy], decode(drawn[copy])
            try:
                observation, reward, terminated, truncated, _ = env.step(action)
            except Exception as error:
                raise self.raised(copy, f"step({action!r})", error) from error
            self._take(copy, observation, row[:size])
            if self._note(copy, row, reward, terminated, truncated):
                self._begin(copy, row)
        self.steps += 1

    def close(self) -> None:
        """Close each."""
        for env in self.envs:
            env.close()


class Vector(Fleet):
    """One of Gymnasium's vector environments, in any of its ways to restart.

    Where it restarts at the step after an episode's end, that copy's agent waits for the first observation: its row is
    idle at the end of the episode, and given with the step after it. Resets are seeded once, by the environment's own
    rules.
    """

    def __init__(self, env: gym.vector.VectorEnv, *arguments: Any):
        super().__init__(*arguments)
        self.env = env
        self.mode = env.metadata.get("autoreset_mode", gym.vector.AutoresetMode.NEXT_STEP)
        self.waiting = np.zeros(self.copies, bool)
        self.held = host.blank_rows(self.copies, self.vector.size)

    def _each(self, observations: Any) -> list[Any]:
        return list(gym.vector.utils.iterate(self.env.observation_space, observations))

    def _batch(self, drawn: np.ndarray) -> Any:
        space = self.env.single_action_space
        out = gym.vector.utils.create_empty_array(space, self.copies)
        return gym.vector.utils.concatenate(space, [self.actions.decode(x) for x in drawn], out)

    def reset(self, rows: np.ndarray) -> None:
        """Begin an episode everywhere."""
        self.scores, self.lengths = [0.0] * self.copies, [0] * self.copies
        self.waiting[:] = False
        try:
            seeds: Any = [self.reset_seed(copy) for copy in range(self.copies)]
            observations, _ = self.env.reset(seed=seeds)
        except Exception as error:
            raise self.raised(0, "reset()", error) from error
        for copy, observation in enumerate(self._each(observations)):
            self._take(copy, observation, rows[copy, self.vector.size : 2 * self.vector.size])

    def step(self, drawn: np.ndarray, rows: np.ndarray) -> None:
        """One step in all."""
        size, idle = self.vector.size, 2 * self.vector.size + host.IDLE
        try:
            observations, rewards, terminated, truncated, info = self.env.step(self._batch(drawn))
        except Exception as error:
            raise self.raised(0, "step()", error) from error
        seen, ends = self._each(observations), []
        for copy, row in enumerate(rows):
            row[idle] = 0.0
            if self.waiting[copy]:
                row[:] = self.held[copy]
                self._take(copy, seen[copy], row[size : 2 * size])
                self.waiting[copy] = False
                continue
            over = bool(terminated[copy] or truncated[copy])
            same = over and self.mode == gym.vector.AutoresetMode.SAME_STEP
            self._take(copy, info["final_obs"][copy] if same else seen[copy], row[:size])
            self._note(copy, row, rewards[copy], terminated[copy], truncated[copy])
            if same:
                self._take(copy, seen[copy], row[size : 2 * size])
            elif over:
                ends.append(copy)
        if ends and self.mode == gym.vector.AutoresetMode.NEXT_STEP:
            self.held[ends] = rows[ends]
            rows[ends, idle] = 1.0
            self.waiting[ends] = True
        elif ends:
            mask = np.zeros(self.copies, bool)
            mask[ends] = True
            fresh = self._each(self.env.reset(options={"reset_mask": mask})[0])
            for copy in ends:
                self._take(copy, fresh[copy], rows[copy, size : 2 * size])
        self.steps += 1

    def close(self) -> None:
        """Close it."""
        self.env.close()
