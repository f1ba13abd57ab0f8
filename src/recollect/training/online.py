"""An agent and the environment it learns in: what has state, where the agent itself is only a definition."""

import contextlib
import dataclasses
import functools
import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import numpy as np

from recollect.agents import named
from recollect.agents.base import Agent, check_choice, check_count
from recollect.agents.convolution import Convolution
from recollect.agents.general import GeneralActorCritic
from recollect.engines.choice import for_learner, host_for
from recollect.engines.host import Live, blank_rows
from recollect.envs import making, spaces
from recollect.errors import FileError, RecollectError
from recollect.store import checkpoints, trees
from recollect.store.interrupts import Interrupted, Interrupts
from recollect.store.provenance import BITS_DEPEND_ON
from recollect.store.run_folders import versions
from recollect.training import callbacks as known_callbacks
from recollect.training.env_pool import Copies, EnvironmentFault, Fleet, NotRepeatableError, Vector
from recollect.training.normalization import Normalizer
from recollect.training.player import Evaluation, Player, play
from recollect.training.progress import showing
from recollect.training.recording import GROUP, Recorder, free_folder

RECENT = 64  # observations over which the mean write weight is taken
EVERY = 60.0
"""Seconds between two checkpoints of a run."""

PAUSE = 0.1  # seconds after which training looks up, to see whether it is time to save or to end
Callback = Callable[["Learner", dict[str, Any]], Any]


class Learner:
    """One agent (or several) learning online in a Gymnasium environment.

    >>> import recollect, tempfile
    >>> learner = recollect.Learner(recollect.EpisodicActorCritic(memory_size=2), "CartPole-v1", seed=0)
    >>> with tempfile.TemporaryDirectory() as here:
    ...     learner = learner.learn(steps=50, folder=f"{here}/run")
    >>> learner.steps, learner.predict(learner.env.reset(seed=0)[0]) in (0, 1)
    (50, True)

    Args:
        agent: the definition, as ``recollect.train`` takes it; by default ``recollect.GeneralActorCritic()``.
        env: an id, an environment (also one of Gymnasium's vector environments) or a function that makes one.
        seed: of the agent's parameters and choices, and of every episode's reset.
        copies: how many environments are played at once; for more than one, ``env`` must be an id or a function.
        learners: "one" agent with a memory for each copy, whose parameters move by the mean over copies, or "each" copy
            its own agent, with seeds from ``seed`` on.
        env_options: for an id, what ``gymnasium.make`` takes besides.
        normalize_observations: show the agent observations minus their running mean over their deviation.
        normalize_rewards: show it rewards over the running deviation of the discounted return.
        pictures: "auto" gives an agent that sees pictures (boxes of height, width and channels) a small convolutional
            encoder, unless it has one of its own; "agent" leaves it as it is.
        engine: what makes the agent's time step one call: "cpu" is compiled for some agents and options, "jax" serves
            all and is slower; "auto" takes the first that can serve, and says at the start of training, once, when and
            why that is the slower one. Asking for one that cannot is refused with the reason.
        check: run Gymnasium's ``check_env`` first.
    """

    def __init__(
        self,
        agent: Agent | None = None,
        env: Any = None,
        *,
        seed: int = 0,
        copies: int = 1,
        learners: str = "one",
        env_options: dict[str, Any] | None = None,
        normalize_observations: bool = False,
        normalize_rewards: bool = False,
        pictures: str = "auto",
        engine: str = "auto",
        check: bool = True,
    ):
        agent = GeneralActorCritic() if agent is None else agent
        if not isinstance(agent, Agent) or env is None:
            raise TypeError(
                f"Learner takes an agent and an environment, got agent={agent!r} and env={env!r}: "
                "name them, as in Learner(env='CartPole-v1')"
            )
        check_choice("pictures", pictures, ("auto", "agent"))
        check_count("copies", copies)
        check_choice("learners", learners, ("one", "each"))
        if not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**31 - copies:
            raise ValueError(f"seed={seed!r} must be a whole number between 0 and 2^31 - 1")
        self.described, self._pictures = named.describe(agent), pictures
        self._id = {"id": env, "options": env_options or {}} if isinstance(env, str) else None
        if self._id is not None and env_options:
            self.source = making.Source(env, making.make(env, **env_options), lambda: making.make(env, **env_options))
        elif env_options:
            raise ValueError("env_options go with an id; give a function that makes the environment instead")
        else:
            self.source = making.source(env)
        first = self.source.first
        vector = isinstance(first, gym.vector.VectorEnv)
        if vector:
            if copies not in (1, first.num_envs):
                raise ValueError(f"copies={copies}, but the vector environment has {first.num_envs}")
            copies = first.num_envs
        elif copies > 1 and self.source.make is None:
            raise ValueError(f"copies={copies} needs an id or a function that makes environments, got one environment")
        self.observation_space: gym.Space = first.single_observation_space if vector else first.observation_space
        self.action_space: gym.Space = first.single_action_space if vector else first.action_space
        self.vector, self.actions = spaces.observations(self.observation_space), spaces.actions(self.action_space)
        if check and not vector:
            making.check(first, self.source.name)
        self.agent: Any = agent.replace(actions=self.actions.distribution)
        if pictures == "auto" and self.vector.shape is not None and getattr(agent, "pictures", self) is None:
            self.agent = self.agent.replace(pictures=Convolution(self.vector.shape))
        self.seed, self.copies, self.shared = int(seed), copies, learners == "one" and copies > 1
        discount = float(getattr(agent, "discount", 0.99))
        options = (normalize_observations, normalize_rewards, discount)
        self.normalizer = Normalizer(self.vector.size, copies, *options, alone=not self.shared)
        seeds = [(self.seed, k) if self.shared or copies == 1 else (self.seed + k, 0) for k in range(copies)]
        arguments = (self.source.name, copies, self.vector, self.actions, self.normalizer, seeds)
        if vector:
            self.fleet: Fleet = Vector(first, *arguments)
        else:
            assert copies == 1 or self.source.make is not None
            more = [self.source.make() for _ in range(copies - 1)] if self.source.make else []
            self.fleet = Copies([first, *more], *arguments)
        self._asked_engine, self.choice = engine, for_learner(self.agent, copies, self.shared, engine)
        sizes = self.vector.size, self.actions.outputs
        self.host: Any = host_for(self.agent, *sizes, copies, self.shared, engine=self.choice.engine)
        self._refuse_too_large()
        self._state: Any = None  # of all copies, as the host has it; made when it is first asked for
        self._drawn: Any = None  # actions chosen and not yet taken; None between episodes
        self._away = False  # whether the environments are still to be brought to where the agent is, after ``load``
        self._allow_inexact, self._strict = False, True
        self._rows = blank_rows(copies, self.vector.size)
        self._recent = np.zeros((copies, RECENT, self.vector.size), np.float32)
        self._player: Player | None = None
        self._recorder: Recorder | None = None
        self._logged, self._seconds = 0, 0.0  # steps at the last row of metrics; time taken
        self.steps, self.goal, self.exact = 0, 0, True

    @property
    def _packed(self) -> Any:
        if self._state is None:
            self._state = self.host.start(np.uint32(self.seed))
        return self._state

    @_packed.setter
    def _packed(self, state: Any) -> None:
        self._state = state

    @property
    def episodes(self) -> list[int]:
        """How many episodes each copy has ended."""
        return list(self.fleet.episodes)

    def _refuse_too_large(self) -> None:
        """Refuse what cannot fit, by its bytes, before any of them is asked for."""
        needed = sum(
            math.prod(shape) * np.dtype(kind).itemsize for shape, kind in trees.shapes(self.host.like()).values()
        )
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else needed
        if needed > there:
            raise ValueError(
                f"copies={self.copies}: their state takes {needed:,} bytes, this machine has {there:,}: "
                "take a smaller memory_size, or fewer copies"
            )

    @property
    def env(self) -> Any:
        """The environment that is learned in (the first, if there are several)."""
        return self.source.first

    @property
    def folder(self) -> Path | None:
        """Where metrics go; None before the first call of ``learn``."""
        return self._recorder.path if self._recorder else None

    def state(self, copy: int = 0) -> Any:
        """The agent's state, as its own ``init`` and ``step`` return it."""
        live = jax.tree.map(lambda leaf: leaf[copy], self.host.unpack(self._packed))
        return live.agent

    # -- learning

    def learn(
        self,
        steps: int,
        *,
        progress: bool = False,
        callbacks: Iterable[Callback] = (),
        log: str | None = None,
        log_every: int = 1000,
        folder: Path | str | None = None,
        checkpoint_every: float = EVERY,
        strict: bool = True,
    ) -> "Learner":
        """Go on learning.

        Ctrl-C or SIGTERM, in the main thread, saves a checkpoint and raises ``Interrupted``, a ``KeyboardInterrupt``;
        a second one raises ``KeyboardInterrupt`` at once and leaves the checkpoint before. ``recollect resume`` goes on
        with the folder, to the same bits as if nothing had happened; so does ``load`` and ``learn``.

        Args:
            steps: time steps of each agent; those of copies that share one are counted together.
            progress: show return, episode length, steps/s and mean write weight as it goes.
            callbacks: called with the learner and each row of metrics; see ``recollect.training.callbacks``.
            log: "tensorboard" to write for TensorBoard besides ``metrics.jsonl`` and ``metrics.csv``.
            log_every: steps between two rows of metrics.
            folder: the run folder to make at the first call (default: ``runs/ENVIRONMENT-AGENT-seedS``).
            checkpoint_every: seconds between two checkpoints; there is one at the end, too. The last three are kept.
            strict: stop at an update that is not finite. Otherwise it is left out, as it is in any case, and training
                goes on, of an agent that has most likely lost itself.

        Raises:
            EnvironmentFault: the environment raised, or gave a reward or an observation that is not sound, or an update
                was not finite. What the agent had learned up to then is saved in the run folder and still in this
                learner.
            NotRepeatableError: after ``load``, the environment did not come to where it was.
        """
        check_count("steps", steps)
        check_count("log_every", log_every)
        if not checkpoint_every > 0:
            raise ValueError(f"checkpoint_every={checkpoint_every!r} must be a number of seconds greater than 0")
        if log not in (None, "tensorboard"):
            raise ValueError(f"log={log!r}: choose 'tensorboard' or None; JSON lines and CSV are always written")
        self.take_up()
        callbacks, start = list(callbacks), self.steps
        learning: dict[str, Any] = {
            "start": start,
            "steps": steps,
            "log_every": log_every,
            "log": log,
            "strict": strict,
        }
        learning["callbacks"] = known_callbacks.describe(callbacks)
        recorder = self._open(folder, {"learning": learning, "checkpoints": _schedule(checkpoint_every)})
        self.goal = start + steps
        if start:  # the folder's config tells how to begin; where this goes on from something, that is kept
            recorder.begin(self.goal)
            self._checkpoint()
        self.go_on(recorder, callbacks, learning, checkpoint_every, progress)
        return self

    def go_on(
        self,
        recorder: Recorder,
        callbacks: Sequence[Callback],
        learning: dict[str, Any],
        checkpoint_every: float,
        progress: bool,
    ) -> None:
        """Learn up to ``goal``, writing to a folder that is there: the second half of ``learn``.

        ``learning``: as a run's config has it.
        """
        self._recorder, self._strict = recorder, learning["strict"]
        recorder.begin(self.goal)
        recorder.folder.log("engine", engine=self.choice.engine, **self.choice.reasons())
        for why in self.choice.passed_over.values():
            _say_slow(why)
        with self._recording(recorder):
            if learning["log"] == "tensorboard":
                recorder.use_tensorboard()
            label = f"{self.source.name} {named.name_of(self.agent)}"
            with showing(label, self.steps, self.goal, progress) as show, Interrupts(exits=False) as interrupts:
                self._learn(recorder, callbacks, learning["log_every"], checkpoint_every, show, interrupts)
            self._checkpoint(finished=True)
            recorder.finish("finished", steps=self.steps, episodes=sum(self.episodes))

    @contextlib.contextmanager
    def _recording(self, recorder: Recorder) -> Iterator[None]:
        """Whatever ends training, the folder says so and is free for others."""
        recorder.folder.exact = self.exact
        try:
            yield
        except EnvironmentFault as fault:
            saved = self._checkpoint()
            full = EnvironmentFault(fault.environment, fault.seed, fault.step, fault.what, str(saved))
            recorder.finish("failed", steps=self.steps, error=str(full))
            raise full from fault.__cause__
        except Interrupted:
            recorder.finish("interrupted", steps=self.steps)
            raise
        except Exception as error:
            # A status that cannot be written, on a full disk, must not hide why.
            with contextlib.suppress(RecollectError):
                what = "" if isinstance(error, RecollectError) else f"{type(error).__name__}: "
                recorder.finish("failed", steps=self.steps, error=f"{what}{' '.join(str(error).split())}")
            raise
        finally:
            recorder.release()

    def _learn(
        self,
        recorder: Recorder,
        callbacks: Sequence[Callback],
        log_every: int,
        checkpoint_every: float,
        show: Callable[[int, list[dict[str, Any]]], None],
        interrupts: Interrupts,
    ) -> None:
        """Up to the goal: steps in portions of about ``PAUSE``, rows of metrics, checkpoints.

        No number depends on where a portion or a checkpoint ends: rows come at the same steps wherever training was
        interrupted, and the episodes of a row count as unrecorded until it is written.
        """
        each = self.copies if self.shared else 1
        portion, saved = 1, time.monotonic()
        row_since, row_from = time.monotonic(), self.steps
        rows: list[dict[str, Any]] = []

        def pace() -> float:
            return (self.steps - row_from) * (self.copies // each) / max(time.monotonic() - row_since, 1e-9)

        while self.steps < self.goal or self._logged < self.steps:
            due = min(self._logged + log_every, self.goal)
            if self.steps < due:
                before, since = self.steps, time.monotonic()
                self._advance(min(due, before + portion * each), each)
                took = max(time.monotonic() - since, 1e-9)
                self._seconds += took
                portion = max(1, min(10 * portion, int((self.steps - before) / each * PAUSE / took)))
            if self.steps >= due:
                rows = self._rows_of_metrics(pace())
                stop = [bool(callback(self, row)) for row in rows for callback in callbacks]
                recorder.add(named.name_of(self.agent), rows)
                self.fleet.finished, self._logged = [], self.steps
                show(self.steps, rows)
                row_since, row_from = time.monotonic(), self.steps
                if any(stop):
                    return
            else:  # rows can be minutes apart
                show(self.steps, [{**row, "steps_per_second": pace()} for row in rows])
            if interrupts.asked.is_set() and self.steps < self.goal:
                self._checkpoint()
                raise Interrupted
            if time.monotonic() - saved >= checkpoint_every:
                self._checkpoint()
                saved = time.monotonic()

    def advance(self, steps: int) -> None:
        """Go on learning without writing anything down: the loop alone, for measuring it and for loops of your own."""
        check_count("steps", steps)
        self.take_up()
        self._advance(self.steps + steps, self.copies if self.shared else 1)

    def take_up(self) -> list[str]:
        """Bring the environments of a loaded learner to where they were; ``learn`` and ``advance`` do so by themselves.

        Each is reset with the seed of the episode that was under way and given the actions that were taken in it.
        Returns why a new episode begins instead, if that was allowed.
        """
        if not self._away:
            return []
        try:
            if (why := self.fleet.not_repeatable()) is not None:
                raise NotRepeatableError(f"{self.source.name}: {why}")
            self.fleet.replay(np.asarray(self._drawn))
        except NotRepeatableError as error:
            if not self._allow_inexact:
                raise NotRepeatableError(
                    f"{error}; training would not go on bit for bit: --allow-inexact (in Python allow_inexact=True) "
                    "goes on in a new episode and marks the run as not exact"
                ) from error
            self._drawn, self._away, self.exact = None, False, False
            return [str(error)]
        self._away = False
        return []

    def _begin_episodes(self) -> None:
        size = self.vector.size
        self.fleet.reset(self._rows)
        self._packed, self._drawn = self.host.begin(self.host.forget(self._packed), self._rows[:, size : 2 * size])

    def _advance(self, until: int, each: int) -> None:
        """The loop itself: nothing in it but the environments' step and the agent's."""
        if self._drawn is None:
            self._begin_episodes()
        fleet, rows, step, packed, drawn = self.fleet, self._rows, self.host.step, self._packed, self._drawn
        size, recent, at, bad, strict = self.vector.size, self._recent, self.steps, -1, self._strict
        try:
            while at < until and bad < 0:
                fleet.step(np.asarray(drawn), rows)
                packed, drawn, bad = step(packed, rows)
                recent[:, at // each % RECENT] = rows[:, :size]
                at += each
                bad = int(bad) if strict else -1
        except BaseException as error:
            # A step that failed was taken in none of the agents, but their environments are somewhere in the middle.
            drawn = None
            self.exact = self.exact and isinstance(error, EnvironmentFault)
            raise
        finally:
            self._packed, self._drawn, self.steps = packed, drawn, at
        if bad >= 0:
            what = "the update was not finite, and nothing was learned from that step: take a smaller learning_rate"
            raise EnvironmentFault(self.source.name, fleet.seeds[bad][0], fleet.steps, what)

    def _rows_of_metrics(self, pace: float) -> list[dict[str, Any]]:
        finished, known = self.fleet.finished, min(RECENT, self.fleet.steps)
        weights = np.asarray(self.host.write_weights(self._packed, self._recent))[:, :known]
        groups = [range(self.copies)] if self.shared else [range(k, k + 1) for k in range(self.copies)]
        rows = []
        for k, group in enumerate(groups):
            own = [episode for episode in finished if episode.copy in group]
            rows.append(
                {
                    "seed": self.seed + k,
                    "steps": self.steps,
                    "episodes": sum(self.fleet.episodes[copy] for copy in group),
                    "return": float(np.mean([e.score for e in own])) if own else float("nan"),
                    "length": float(np.mean([e.length for e in own])) if own else float("nan"),
                    "write_weight": float(np.mean(weights[list(group)])),
                    "seconds": round(self._seconds, 3),
                    "steps_per_second": round(pace, 1),
                }
            )
        return rows

    def _open(self, folder: Path | str | None, how: dict[str, Any]) -> Recorder:
        if self._recorder is None:
            name = f"{self.source.name.replace('/', '-')}-{named.name_of(self.agent)}-seed{self.seed}"
            path = Path(folder) if folder is not None else free_folder(name)
            self._recorder = Recorder.create(path, {**self.description(), **how})
        elif folder is not None and Path(folder) != self._recorder.path:
            raise ValueError(f"this learner writes to {self._recorder.path} already; folder is for the first call")
        return self._recorder

    def _checkpoint(self, finished: bool = False) -> Path:
        assert self._recorder is not None
        self._recorder.folder.exact = self.exact
        return self._save(self._recorder.path / "checkpoints" / GROUP, finished)

    # -- acting

    def reset(self, copy: int = 0) -> None:
        """Begin an episode for ``predict``, with what has been learned by now; ``copy``: whose."""
        self._player = self.player(self.seed, copy)

    def predict(self, observation: Any) -> Any:
        """The action at an observation, drawn from the policy, which remembers the episode since ``reset``."""
        if self._player is None:
            self.reset()
        assert self._player is not None
        return self._player.act(observation)

    def player(self, seed: int, copy: int = 0) -> Player:
        """What has been learned by now, ready to play episodes apart from training."""
        normalize = functools.partial(self.normalizer.observe, copy=copy, learn=False)
        return Player(self.agent, self.state(copy), self.vector, self.actions, normalize, seed)

    def evaluate(self, episodes: int = 100, *, seed: int | None = None, copy: int = 0) -> Evaluation:
        """Play episodes without learning.

        Args:
            episodes: how many.
            seed: of the episodes and of the agent's choices (default: one beside the learner's own).
            copy: which of several independent agents plays.
        """
        check_count("episodes", episodes)
        if isinstance(self.source.first, gym.vector.VectorEnv):
            raise RecollectError("a vector environment cannot be evaluated in: load the learner with a single one")
        env = self.source.make() if self.source.make is not None else self.source.first
        player = self.player(self.seed + 2**31 if seed is None else seed, copy)
        if env is self.source.first:
            self._drawn, self._away = None, False  # the episode that was under way is lost
        evaluation = play(player, env, episodes, self.source.name, (2**31 + self.seed) if seed is None else seed)
        if env is not self.source.first:
            env.close()
        return evaluation

    def view(self, *, seed: int = 0, limit: int = 1000) -> Any:
        """An episode of what has been learned by now as a page: what is seen, remembered, recalled and done, and why.

        Args:
            seed: of the episode and of the agent's choices.
            limit: most steps to play.

        Returns:
            What a notebook shows inline; ``.save(FILE)`` writes the page and ``.open()`` shows it in a browser.
        """
        from recollect.view import episodes, inline

        return inline.View([episodes.record(self, seed, limit)])

    # -- saving

    def description(self) -> dict[str, Any]:
        """What a config and a checkpoint say of this learner."""
        return {
            "agent": self.described,
            "environment": {"name": self.source.name, "made": self._id},
            "spaces": {"observation": repr(self.observation_space), "action": repr(self.action_space)},
            "seed": self.seed,
            "copies": self.copies,
            "learners": "one" if self.shared or self.copies == 1 else "each",
            "pictures": self._pictures,
            "engine": self._asked_engine,
            "normalize": [self.normalizer.observations is not None, self.normalizer.rewards is not None],
            "versions": versions(),
        }

    def save(self, path: Path | str, keep: int = checkpoints.KEEP) -> Path:
        """Add a checkpoint to the folder ``path``: all there is, the episodes under way among it.

        The newest ``keep`` checkpoints stay there.
        """
        return self._save(path, keep=keep)

    def _save(self, path: Path | str, finished: bool = False, keep: int = checkpoints.KEEP) -> Path:
        arrays = trees.flatten({"live": self.host.unpack(self._packed), "normalizer": self.normalizer.state()})
        arrays |= {f"fleet.{name}": array for name, array in self.fleet.state().items()}
        arrays |= {"rows": self._rows, "recent": self._recent}
        if self._drawn is not None:
            arrays["drawn"] = np.asarray(self._drawn)
        counts = {"steps": self.steps, "logged": self._logged, "goal": self.goal, "seconds": round(self._seconds, 3)}
        meta = {"kind": "learner", **self.description(), **counts, "finished": finished, "exact": self.exact}
        if self._recorder is not None:
            seeds = [self.seed] if self.shared else list(range(self.seed, self.seed + self.copies))
            folder = self._recorder.folder
            meta["metrics"] = folder.metrics_so_far(GROUP, named.name_of(self.agent), seeds)
            meta["config"] = {name: value for name, value in folder.config.items() if name != "versions"}
        return checkpoints.save(path, arrays, meta, keep)

    @classmethod
    def load(
        cls,
        path: Path | str,
        env: Any = None,
        *,
        check: bool = True,
        fallback: bool = False,
        allow_inexact: bool = False,
    ) -> "Learner":
        """The learner saved in a folder, by ``save`` or by a run.

        Training goes on where it was, in the middle of an episode if need be, bit for bit. That takes environments that
        do the same again for the same seed and actions; ``learn`` refuses others.

        Args:
            path: the folder that was saved to, or a run folder.
            env: as for ``Learner`` (default: the id it was saved with).
            check: run ``check_env`` on it.
            fallback: where the newest checkpoint is damaged, take the one before it.
            allow_inexact: begin a new episode where the one under way does not come again.
        """
        path = Path(path)
        folder = path / "checkpoints" / GROUP if (path / "checkpoints").is_dir() else path
        if folder.is_symlink() or folder.parent.is_symlink():
            raise FileError(f"{folder} cannot be read: it is a link")
        return cls.restore(checkpoints.load(folder, fallback=fallback), env, check=check, allow_inexact=allow_inexact)

    @classmethod
    def restore(
        cls, found: checkpoints.Checkpoint, env: Any = None, *, check: bool = True, allow_inexact: bool = False
    ) -> "Learner":
        """As ``load``, from a checkpoint that has been read."""
        meta, arrays = found.meta, found.arrays
        if meta.get("kind") != "learner":
            raise FileError(f"{found.path} is a checkpoint of something else: {meta.get('kind')}")
        counts = {"steps": int, "logged": int, "goal": int, "exact": bool, "spaces": dict}
        if any(type(meta.get(name)) is not kind for name, kind in counts.items()):
            raise FileError(f"{found.path} is not a saved learner: {', '.join(counts)} are missing or no numbers")
        if np.shape(arrays.get("fleet.lengths", 0)) != (meta.get("copies"),):
            raise FileError(f"{found.path} is not a saved learner of {meta.get('copies')} copies")
        learner = cls.described_by(meta, found.path, env, check=check)
        like = {"live": learner.host.like(), "normalizer": learner.normalizer.state()}
        parts = {"drawn", "rows", "recent", *(name for name in arrays if name.startswith("fleet."))}
        try:
            state = trees.restore({name: array for name, array in arrays.items() if name not in parts}, like)
            learner.fleet.restore({name[6:]: array for name, array in arrays.items() if name.startswith("fleet.")})
            blank = {"rows": learner._rows, "recent": learner._recent}
            if "drawn" in arrays:
                action = jax.eval_shape(learner.agent.actions.nothing)
                kind = np.int64 if arrays["drawn"].dtype == np.int64 and action.dtype == np.int32 else action.dtype
                blank["drawn"] = np.zeros((learner.copies, *action.shape), kind)
            kept = trees.restore({name: arrays[name] for name in blank if name in arrays}, blank)
        except FileError as error:
            raise FileError(f"{found.path}: {error}") from error
        learner._packed = learner.host.pack(Live(*state["live"]))
        learner.normalizer.restore(state["normalizer"])
        learner._rows, learner._recent, learner._drawn = kept["rows"], kept["recent"], kept.get("drawn")
        learner.steps, learner._logged, learner.goal = meta["steps"], meta["logged"], meta["goal"]
        learner._seconds = float(meta["seconds"]) if isinstance(meta.get("seconds"), (int, float)) else 0.0
        learner._away, learner._allow_inexact = learner._drawn is not None, allow_inexact
        was, now = meta.get("versions"), versions()
        same = isinstance(was, dict) and all(was.get(name) == now[name] for name in BITS_DEPEND_ON)
        learner.exact = meta["exact"] and same
        return learner

    @classmethod
    def described_by(cls, meta: dict[str, Any], where: Path, env: Any = None, *, check: bool = True) -> "Learner":
        """A fresh learner as a config or a checkpoint describes it; ``where``: what to name in errors."""
        try:
            agent, made = named.restore(meta["agent"]), meta["environment"]["made"]
            options = {name: meta[name] for name in ("seed", "copies", "learners", "pictures")}
            options |= {"normalize_observations": bool(meta["normalize"][0]), "check": check}
            options |= {"normalize_rewards": bool(meta["normalize"][1]), "engine": meta.get("engine", "auto")}
            expected = {name: str(meta["spaces"][name]) for name in ("observation", "action")}
            if made is not None and (env is None or env == made["id"]):
                if not isinstance(made["id"], str) or not all(isinstance(name, str) for name in made["options"]):
                    raise TypeError("the environment's id or options are no text")
                if env is None and ":" in made["id"]:
                    # Gymnasium imports what stands before the colon: not because a file says so.
                    raise FileError(f"{where} names a module to import, {made['id']!r}: give it as env (--env)")
                env = made["id"]
                options |= {"env_options": made["options"]} if made["options"] else {}
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise FileError(f"{where} is not a saved learner: {type(error).__name__}: {error}") from error
        if env is None:
            raise ValueError(
                f"{where} was saved with an environment of its own: give it as env, "
                "in Python: Learner.load(FOLDER, env) or recollect.training.resuming.resume(FOLDER, env)"
            )
        try:
            learner = cls(agent, env, **options)
        except (ValueError, TypeError, OverflowError) as error:
            raise RecollectError(f"{where}: {error}") from error
        for name, space in (("observation", learner.observation_space), ("action", learner.action_space)):
            if repr(space) != expected[name]:
                raise RecollectError(
                    f"{learner.source.name} has the {name} space {space}, the learner was saved with {expected[name]}"
                )
        return learner

    def close(self) -> None:
        """Close the environments."""
        self.fleet.close()

    def __repr__(self) -> str:
        options = {f.name: getattr(self.agent, f.name) for f in dataclasses.fields(self.agent)}
        changed = [
            f"{k}={v!r}"
            for k, v in options.items()
            if k not in ("actions", "pictures") and v != getattr(type(self.agent), k, v)
        ]
        agent = f"{type(self.agent).__name__}({', '.join(changed)})"
        return f"Learner({agent}, {self.source.name!r}, seed={self.seed}, steps={self.steps:,})"


@functools.cache
def _say_slow(why: str) -> None:
    """Once per reason and process, by Python's logging: on stderr, unless the program that uses this says otherwise."""
    logging.getLogger("recollect").warning("this agent runs on the general engine 'jax', the slower one: %s", why)


def _schedule(every: float) -> dict[str, Any]:
    """What a config says about checkpoints."""
    return {"every": every, "keep": checkpoints.KEEP}
