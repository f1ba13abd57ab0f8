"""The environments that are played at once, watched: what is wrong in them stops before an agent learns from it."""

import abc
import contextlib
import functools
import types
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from zlib import crc32

import gymnasium as gym
import numpy as np

from recollect.engines import host
from recollect.envs.spaces import Actions, NotInSpaceError, Observations
from recollect.errors import FileError, RecollectError
from recollect.training import returned
from recollect.training.normalization import Normalizer
from recollect.training.returned import EnvironmentFault

RECORDED = 2**24
"""Most bytes of actions that are kept of a copy's episode: two million choices among a few actions, or a quarter of a
million actions of 17 numbers. A longer episode cannot be taken up again in its middle."""


class NotRepeatableError(RecollectError):
    """An episode that was under way cannot be repeated, so that training would not continue bit for bit."""


class Guard:
    """Stands before a method of an environment that is learned in: a call from outside of training is noticed.

    Training itself calls the method behind it. Copied or pickled with its environment, it is that method again.
    """

    def __init__(self, pool: "Fleet", env: Any, name: str):
        self._pool, self._env, self._name, self.method = weakref.ref(pool), env, name, getattr(env, name)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Let the call through."""
        if (pool := self._pool()) is not None:
            pool.touched = True
        return self.method(*arguments, **options)

    def __reduce__(self) -> tuple[Any, ...]:
        return _method, (self._env, self._name)


def _method(env: Any, name: str) -> Any:
    return types.MethodType(getattr(type(env), name), env)


class Episode(NamedTuple):
    """A finished episode, in the environment's own rewards."""

    copy: int
    score: float
    length: int


class Fleet(abc.ABC):
    """Environments side by side: rows in, rows out, as ``recollect.engines.host`` takes them.

    ``finished`` gathers episodes until whoever reads it clears it. A copy's episode k is always the same for the same
    seed: every reset is seeded from (seed, copy, k). The actions of the episode under way are kept, with a sum of what
    was seen in it, so that a saved learner can be brought back into its middle.
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
        self.taken = [bytearray() for _ in range(copies)]  # what was drawn since each copy's reset
        self.sums = [0] * copies  # CRC-32 of the observations since then, before they are normalised
        self.waits = False  # whether the only copy waits for its next episode: there is nothing to take in, yet
        self.touched = False  # whether someone else has reset or stepped an environment since this was last False
        self._guarded: list[Any] = []

    def _guard(self, env: Any) -> tuple[Any, Any]:
        """Notice what others do to an environment; returns its ``reset`` and ``step`` for training's own calls."""
        own = env.reset, env.step
        with contextlib.suppress(AttributeError, TypeError):  # one that takes no attributes is not watched
            env.reset, env.step = Guard(self, env, "reset"), Guard(self, env, "step")
            self._guarded.append(env)
        return own

    def _unguard(self) -> None:
        for env in self._guarded:
            for name in ("reset", "step"):
                if isinstance(vars(env).get(name), Guard):
                    delattr(env, name)
        self._guarded = []

    @abc.abstractmethod
    def reset(self, rows: np.ndarray) -> None:
        """Begin an episode everywhere; first observations go where the rows have those of the next episode."""

    @abc.abstractmethod
    def step(self, drawn: np.ndarray, rows: np.ndarray) -> None:
        """Take the drawn actions; fills the rows, and begins the next episode where one ended."""

    @abc.abstractmethod
    def replay(self, drawn: np.ndarray) -> None:
        """Bring fresh environments to where ``restore`` says that they were, without learning anything on the way.

        ``drawn``: the actions that come next, for their form. What cannot be repeated is a ``NotRepeatableError``.
        """

    @abc.abstractmethod
    def not_repeatable(self) -> str | None:
        """Why the episodes under way could not be taken up again from ``state``, or None."""

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of what the environments hold."""

    def state(self) -> dict[str, np.ndarray]:
        """Counters, the episodes under way and those that are in no row of metrics yet, as arrays."""
        sizes = [len(taken) for taken in self.taken]
        return {
            "steps": np.array(self.steps, np.int64),
            "episodes": np.array(self.episodes, np.int64),
            "scores": np.array(self.scores, np.float64),
            "lengths": np.array(self.lengths, np.int64),
            "sums": np.array(self.sums, np.uint32),
            "taken": np.frombuffer(b"".join(self.taken), np.uint8),
            "sizes": np.array(sizes, np.int64),
            "finished.copies": np.array([e.copy for e in self.finished], np.int64),
            "finished.scores": np.array([e.score for e in self.finished], np.float64),
            "finished.lengths": np.array([e.length for e in self.finished], np.int64),
        }

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go back to what ``state`` gave; the environments themselves are brought there by ``replay``."""
        k, f, t = self.copies, np.size(arrays.get("finished.copies", ())), np.size(arrays.get("taken", ()))
        sizes = {"taken": (t,)} | dict.fromkeys(("finished.copies", "finished.scores", "finished.lengths"), (f,))
        expected = {name: (sizes.get(name, now.shape), now.dtype.name) for name, now in self.state().items()}
        got = {name: (array.shape, array.dtype.name) for name, array in arrays.items()}
        if got != expected:
            wrong = sorted(name for name in {*got, *expected} if got.get(name) != expected.get(name))
            raise FileError(f"the episodes under way are not those of {k} environments: {', '.join(wrong)}")
        ends, copies = np.cumsum(arrays["sizes"]), arrays["finished.copies"]
        if (arrays["sizes"] < 0).any() or ends[-1] != t or ((copies < 0) | (copies >= k)).any():
            raise FileError("the episodes under way are not valid: their actions or their copies do not add up")
        for name in ("steps", "episodes", "lengths", "finished.lengths"):
            if (arrays[name] < 0).any():
                raise FileError(f"the episodes under way are not valid: {name} of less than 0")
        for name in ("scores", "finished.scores"):
            if not np.isfinite(arrays[name]).all():
                raise FileError(f"the episodes under way are not valid: {name} that are not finite")
        self.steps = int(arrays["steps"])
        self.episodes, self.lengths = arrays["episodes"].tolist(), arrays["lengths"].tolist()
        self.scores, self.sums = arrays["scores"].tolist(), arrays["sums"].tolist()
        self.taken = [bytearray(arrays["taken"][end - n : end]) for end, n in zip(ends, arrays["sizes"], strict=True)]
        ended = (arrays[f"finished.{name}"].tolist() for name in ("copies", "scores", "lengths"))
        self.finished = [Episode(*episode) for episode in zip(*ended, strict=True)]

    def fault(self, copy: int, what: str) -> EnvironmentFault:
        """The error for something wrong in a copy at the step under way."""
        return EnvironmentFault(self.name, self.seeds[copy][0], self.steps + 1, what)

    def reset_seed(self, copy: int) -> int:
        """Of a copy's next episode."""
        return int(np.random.SeedSequence([*self.seeds[copy], self.episodes[copy]]).generate_state(1)[0] >> 1)

    def _take(self, copy: int, observation: Any, out: np.ndarray, view: memoryview | None = None) -> None:
        """Write an observation to ``out`` as the agent is to see it; ``view``: the same place, to sum its bytes up."""
        try:
            self.vector.write(observation, out)
        except NotInSpaceError as error:
            raise self.fault(copy, f"an observation is not in the declared space: {error}") from error
        if view is not None:
            self.sums[copy] = crc32(view, self.sums[copy])
        self.normalizer.observe(out, copy)

    def _clear(self, copy: int) -> None:
        """Forget the episode under way."""
        self.scores[copy], self.lengths[copy] = 0.0, 0
        self.normalizer.returns[copy] = 0.0

    def _note(self, copy: int, row: np.ndarray, reward: float, terminated: bool, truncated: bool) -> bool:
        """Write down what came of a step; returns whether the episode is over."""
        over = terminated or truncated
        at = 2 * self.vector.size
        row[at + host.REWARD] = self.normalizer.reward(reward, copy, over)
        row[at + host.TERMINATED] = terminated
        # An episode that ends on its own at the very step of a time limit has ended: nothing follows.
        row[at + host.TRUNCATED] = truncated and not terminated
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
        own = [self._guard(env) for env in self.envs]
        self._resets, self._steps = [reset for reset, _ in own], [step for _, step in own]
        self._faults = [functools.partial(self.fault, copy) for copy in range(self.copies)]
        self._rows: Any = None
        self._views: list[tuple[memoryview, memoryview]] = []

    def _look_at(self, rows: np.ndarray) -> None:
        """Hold on to the bytes of both observations of every row: to ask for them at every step takes longer."""
        flat, row, one = rows.data.cast("B"), rows.strides[0], 4 * self.vector.size
        starts = range(0, len(flat), row)
        self._rows, self._views = rows, [(flat[k : k + one], flat[k + one : k + 2 * one]) for k in starts]

    def reset(self, rows: np.ndarray) -> None:
        """Begin an episode everywhere."""
        self._look_at(rows)
        for copy, row in enumerate(rows):
            self._clear(copy)
            self._begin(copy, row)

    def _begin(self, copy: int, row: np.ndarray) -> None:
        observation = self._first(copy)
        self.taken[copy].clear()
        self.sums[copy] = 0
        self._take(copy, observation, row[self.vector.size : 2 * self.vector.size], self._views[copy][1])

    def _first(self, copy: int) -> Any:
        return returned.reset(self._resets[copy], self._faults[copy], seed=self.reset_seed(copy))

    def step(self, drawn: np.ndarray, rows: np.ndarray) -> None:
        """One step in each."""
        if rows is not self._rows:
            self._look_at(rows)
        decode, size = self.actions.decode, self.vector.size
        for copy, step in enumerate(self._steps):
            row, choice, taken = rows[copy], drawn[copy], self.taken[copy]
            observation, reward, terminated, truncated = returned.step(step, decode(choice), self._faults[copy])
            if len(taken) < RECORDED:
                taken.extend(choice)  # its bytes
            self._take(copy, observation, row[:size], self._views[copy][0])
            if self._note(copy, row, reward, terminated, truncated):
                self._begin(copy, row)
        self.steps += 1

    def not_repeatable(self) -> str | None:
        """Only where an episode is longer than what is kept of it."""
        if max(map(len, self.taken)) < RECORDED:
            return None
        return f"an episode of {max(self.lengths):,} steps is longer than the {RECORDED:,} bytes that are kept of it"

    def replay(self, drawn: np.ndarray) -> None:
        """Play each episode again from its seed and the actions taken in it."""
        for copy in range(self.copies):
            if wrong := self._replay_one(copy, drawn):
                raise NotRepeatableError(
                    f"{self.name} does not give the same episode again for the same seed and actions: {wrong}"
                )

    def _replay_one(self, copy: int, drawn: np.ndarray) -> str | None:
        """What is not as it was, or None."""
        form, taken = drawn[copy], self.taken[copy]
        if len(taken) != self.lengths[copy] * form.nbytes:
            return f"{len(taken):,} bytes are kept of its {self.lengths[copy]:,} actions"
        choices = np.frombuffer(bytes(taken), form.dtype).reshape(-1, *form.shape)
        seen, sum_, score = np.zeros(self.vector.size, np.float32), 0, 0.0
        first = self._first(copy)
        try:
            self.vector.write(first, seen)
            sum_ = crc32(seen.data)
            for t, choice in enumerate(choices, 1):
                action = self.actions.decode(choice)
                observation, reward, terminated, truncated = returned.step(
                    self._steps[copy], action, self._faults[copy]
                )
                if terminated or truncated:
                    return f"it ended at step {t:,} of {len(choices):,}"
                self.vector.write(observation, seen)
                sum_, score = crc32(seen.data, sum_), score + reward
        except EnvironmentFault as fault:
            return fault.what
        except NotInSpaceError as error:
            return f"an observation is not in the declared space: {error}"
        if sum_ != self.sums[copy]:
            return f"the observations of its first {len(choices):,} steps are others"
        return None if score == self.scores[copy] else f"the rewards of its first {len(choices):,} steps are others"

    def close(self) -> None:
        """Close each."""
        self._unguard()
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
        self._reset_all, self._step_all = self._guard(env)
        self._one_seed = False  # whether its ``reset`` takes a number where others take one per copy
        self.mode = env.metadata.get("autoreset_mode", gym.vector.AutoresetMode.NEXT_STEP)
        self.waiting = np.zeros(self.copies, bool)
        self.held = host.blank_rows(self.copies, self.vector.size)

    def _each(self, observations: Any) -> list[Any]:
        try:
            found = list(gym.vector.utils.iterate(self.env.observation_space, observations))
        except Exception as error:
            raise self.fault(0, f"observations are not in the declared space: {error}") from error
        if len(found) != self.copies:
            raise self.fault(0, f"{len(found)} observations were returned for {self.copies} copies")
        return found

    def _batch(self, drawn: np.ndarray) -> Any:
        space = self.env.single_action_space
        out = gym.vector.utils.create_empty_array(space, self.copies)
        return gym.vector.utils.concatenate(space, [self.actions.decode(x) for x in drawn], out)

    def reset(self, rows: np.ndarray) -> None:
        """Begin an episode everywhere."""
        for copy in range(self.copies):
            self._clear(copy)
        self.waiting[:] = False
        observations = self._reset_seeded([self.reset_seed(copy) for copy in range(self.copies)])
        for copy, observation in enumerate(self._each(observations)):
            self._take(copy, observation, rows[copy, self.vector.size : 2 * self.vector.size])

    def _reset_seeded(self, seeds: list[int]) -> Any:
        """Observations of an episode that begins everywhere, from a seed for each copy or one for all of them.

        Environments that are vectorised themselves, as ``gymnasium.make_vec`` prefers them, take a single one.
        """
        fault = functools.partial(self.fault, 0)
        if not self._one_seed:
            try:
                return returned.reset(self._reset_all, fault, seed=seeds)
            except EnvironmentFault as refused:
                self._one_seed = True
                try:
                    return returned.reset(self._reset_all, fault, seed=seeds[0])
                except EnvironmentFault:
                    self._one_seed = False
                    raise refused from refused.__cause__
        return returned.reset(self._reset_all, fault, seed=seeds[0])

    def _last(self, info: Any, copy: int) -> Any:
        """The last observation of an episode whose successor has begun in the same step."""
        try:
            return info["final_obs"][copy]
        except (LookupError, TypeError) as error:
            raise self.fault(copy, "the last observation of an episode is not in info['final_obs']") from error

    def _stepped(self, drawn: np.ndarray) -> tuple[Any, ...]:
        """What the environment's step returned, of each copy: checked but for the observations."""
        fault = functools.partial(self.fault, 0)
        try:
            found = self._step_all(self._batch(drawn))
        except Exception as error:
            raise fault(f"step() raised {type(error).__name__}: {error}") from error
        try:
            observations, rewards, terminated, truncated, info = found
            sizes = [len(part) for part in (rewards, terminated, truncated)]
        except (TypeError, ValueError) as error:
            raise fault("step() returned something else than five values for all copies") from error
        if sizes != [self.copies] * 3:
            raise fault(f"step() returned {sizes} rewards, terminated and truncated for {self.copies} copies")
        return observations, rewards, terminated, truncated, info

    def step(self, drawn: np.ndarray, rows: np.ndarray) -> None:
        """One step in all."""
        size, idle = self.vector.size, 2 * self.vector.size + host.IDLE
        observations, rewards, terminated, truncated, info = self._stepped(drawn)
        seen, ends = self._each(observations), []
        for copy, row in enumerate(rows):
            row[idle] = 0.0
            if self.waiting[copy]:
                row[:] = self.held[copy]
                self._take(copy, seen[copy], row[size : 2 * size])
                self.waiting[copy] = False
                continue
            fault = functools.partial(self.fault, copy)
            ended = (
                returned.flag("terminated", terminated[copy], fault),
                returned.flag("truncated", truncated[copy], fault),
            )
            over = any(ended)
            same = over and self.mode == gym.vector.AutoresetMode.SAME_STEP
            self._take(copy, self._last(info, copy) if same else seen[copy], row[:size])
            self._note(copy, row, returned.number(rewards[copy], fault), *ended)
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
            fault = functools.partial(self.fault, ends[0])
            fresh = self._each(returned.reset(self._reset_all, fault, options={"reset_mask": mask}))
            for copy in ends:
                self._take(copy, fresh[copy], rows[copy, size : 2 * size])
        self.waits = self.copies == 1 and bool(self.waiting[0])
        self.steps += 1

    def not_repeatable(self) -> str | None:
        """Always: which seed a copy's restart uses is the vector environment's own affair."""
        return "a vector environment restarts its copies by rules of its own, not by a seed for each episode"

    def replay(self, drawn: np.ndarray) -> None:
        """Refused."""
        raise NotRepeatableError(f"{self.name}: {self.not_repeatable()}")

    def close(self) -> None:
        """Close it."""
        self._unguard()
        self.env.close()
