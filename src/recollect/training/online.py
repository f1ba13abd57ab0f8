"""An agent and the environment it learns in: what has state, where the agent itself is only a definition.

``assembly`` makes the parts, ``stepping`` moves them, ``recording`` writes down what comes of it and ``saving`` turns
all of it into a checkpoint and back; here is what a user calls.
"""

import contextlib
import dataclasses
import functools
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import jax
import numpy as np

from recollect.agents import named
from recollect.agents.base import Agent
from recollect.agents.general import GeneralActorCritic
from recollect.errors import RecollectError
from recollect.store import checkpoints
from recollect.store.interrupts import Interrupted, Interrupts
from recollect.store.provenance import native, plain, without_versions
from recollect.training import arguments, player, saving
from recollect.training import callbacks as known_callbacks
from recollect.training.assembly import assemble
from recollect.training.player import Evaluation, Player
from recollect.training.progress import counting, showing
from recollect.training.recording import GROUP, Recorder, put_back
from recollect.training.returned import EnvironmentFault
from recollect.training.stepping import Stepping

EVERY = 60.0
"""Seconds between two checkpoints of a run."""

PAUSE = 0.1  # seconds after which training looks up, to see whether it is time to save or to show how it goes
Callback = Callable[["Learner", dict[str, Any]], Any]


class Learner(Stepping):
    """One agent (or several) learning online in a Gymnasium environment.

    >>> import gymnasium, recollect, tempfile
    >>> learner = recollect.Learner(recollect.EpisodicActorCritic(memory_size=2), "CartPole-v1", seed=0)
    >>> with tempfile.TemporaryDirectory() as here:
    ...     learner = learner.learn(steps=50, folder=f"{here}/run")
    >>> observation, _ = gymnasium.make("CartPole-v1").reset(seed=0)  # one of its own: the learner's is in an episode
    >>> learner.steps, learner.predict(observation) in (0, 1)
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
        pictures: "auto" gives agents with a field ``pictures``, such as ``EpisodicActorCritic``, a small convolutional
            encoder for boxes of height, width and channels, unless they have one; "agent" leaves them as they are.
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
        self.described, self._pictures = named.describe(agent), pictures
        parts = assemble(
            jax.tree.map(native, agent),  # which must be hashable: arrays of one number are not
            env,
            seed=seed,
            copies=copies,
            learners=learners,
            env_options=env_options,
            normalize=(normalize_observations, normalize_rewards),
            pictures=pictures,
            engine=engine,
            check=check,
        )
        super().__init__(parts)
        self._asked_engine = engine
        self._made = parts.made
        self._player: Player | None = None
        self._resets = 0  # episodes begun for ``predict``
        self._recorder: Recorder | None = None
        self._learning: dict[str, Any] | None = None  # how the newest call of ``learn`` was asked to learn
        self._asked: Callable[[], bool] | None = None  # whether to end; None unless ``learn`` is at work
        self._logged, self._seconds = 0, 0.0  # steps at the last row of metrics; time taken
        self.goal = 0

    @property
    def folder(self) -> Path | None:
        """Where metrics go; None before the first call of ``learn``."""
        return self._recorder.path if self._recorder else None

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
        """Learn for so many steps more.

        Ctrl-C or SIGTERM, in the main thread, saves a checkpoint and raises ``Interrupted``, a ``KeyboardInterrupt``;
        a second one raises ``KeyboardInterrupt`` at once and leaves the checkpoint before. ``recollect resume``
        continues the run, to the same bits as if nothing had happened; so do ``load`` and ``learn``.

        Args:
            steps: time steps of each agent; those of copies that share one are counted together.
            progress: show return, episode length, steps/s and mean write weight as it goes.
            callbacks: called with the learner and each row of metrics; see ``recollect.training.callbacks``.
            log: "tensorboard" to write for TensorBoard besides ``metrics.jsonl`` and ``metrics.csv``.
            log_every: steps between two rows of metrics.
            folder: the run folder to make at the first call (default: ``runs/ENVIRONMENT-AGENT-seedS``).
            checkpoint_every: seconds between two checkpoints; there is one at the end, too. The last three are kept.
            strict: stop at an update that is not finite. Otherwise it is left out, as it is in any case, and training
                continues, with an agent that has most likely diverged.

        Raises:
            EnvironmentFault: the environment raised, or gave a reward or an observation that is not valid, or an update
                was not finite. What the agent had learned up to then is saved in the run folder and still in this
                learner.
            NotRepeatableError: after ``load``, the environment did not come to where it was.
        """
        if self._asked is not None:
            raise RecollectError("learn was called while it is at work, by one of its callbacks: return from it first")
        callbacks = known_callbacks.checked(callbacks)
        learning: dict[str, Any] = {
            "start": self.steps,
            "steps": arguments.count("steps", steps),
            "log_every": arguments.count("log_every", log_every),
            "log": log,
            "strict": bool(strict),
            "checkpoint_every": arguments.seconds("checkpoint_every", checkpoint_every),
            "callbacks": known_callbacks.describe(callbacks),
        }
        if self.steps + learning["steps"] >= arguments.MOST_STEPS:
            raise ValueError(f"steps={steps}: a run has fewer than 2^63 in all")
        if log not in (None, "tensorboard"):
            raise ValueError(f"log={log!r}: choose 'tensorboard' or None; JSON lines and CSV are always written")
        for callback in callbacks:
            getattr(callback, "check", lambda learner: None)(self)
        self.take_up()
        every = {"every": learning["checkpoint_every"], "keep": checkpoints.KEEP}
        recorder = self._open(folder, {"learning": learning, "checkpoints": every})
        self.goal = self.steps + learning["steps"]
        self.learn_to_goal(recorder, callbacks, learning, progress=bool(progress))
        return self

    def learn_to_goal(
        self, recorder: Recorder, callbacks: Sequence[Callback], learning: dict[str, Any], *, progress: bool
    ) -> None:
        """Learn up to ``goal``, writing to a folder that is there: the second half of ``learn``.

        ``learning``: as a run's config has it.
        """
        self._recorder, self._strict, self._learning = recorder, learning["strict"], learning
        recorder.begin(self.goal)
        recorder.folder.log("engine", engine=self.choice.engine, **self.choice.reasons())
        for why in self.choice.passed_over.values():
            _say_slow(why)
        with Interrupts(exits=False) as interrupts, self._recording(recorder):
            self._asked = interrupts.asked.is_set
            if self.steps == learning["start"] > 0:
                # The folder's config tells how the run began; how it continues from here is kept with where it is.
                self._checkpoint()
            recorder.use_tensorboard(learning["log"] == "tensorboard")
            label = f"{self.source.name} {named.name_of(self.agent)}"
            with showing(label, self.steps, self.goal, progress) as show:
                self._learn(recorder, callbacks, show)
            self._checkpoint(finished=True)
            recorder.finish("finished", steps=self.steps, episodes=sum(self.episodes))

    @contextlib.contextmanager
    def _recording(self, recorder: Recorder) -> Iterator[None]:
        """Whatever ends training: all of it is in a checkpoint, the folder says how it ended and is free for others."""
        recorder.folder.exact = self.exact
        try:
            yield
        except EnvironmentFault as fault:
            saved = self._checkpoint()
            full = EnvironmentFault(fault.environment, fault.seed, fault.step, fault.what, str(saved))
            recorder.finish("failed", steps=self.steps, error=str(full))
            raise full from fault.__cause__
        except Interrupted:
            self._checkpoint()
            recorder.finish("interrupted", steps=self.steps)
            raise
        except Exception as error:
            # What cannot be written, on a full disk, must not hide why.
            with contextlib.suppress(RecollectError):
                self._checkpoint()
            with contextlib.suppress(RecollectError):
                what = "" if isinstance(error, RecollectError) else f"{type(error).__name__}: "
                recorder.finish("failed", steps=self.steps, error=f"{what}{' '.join(str(error).split())}")
            raise
        finally:
            self._asked = None
            recorder.release()

    def _learn(
        self,
        recorder: Recorder,
        callbacks: Sequence[Callback],
        show: Callable[[int, list[dict[str, Any]]], None],
    ) -> None:
        """Up to the goal: steps for about ``PAUSE`` at a time, rows of metrics, checkpoints.

        No number depends on where a portion or a checkpoint ends: rows come at the same steps wherever training was
        interrupted, and the episodes of a row count as unrecorded until it is written.
        """
        assert self._learning is not None and self._asked is not None
        asked, learning, saved = self._asked, self._learning, time.monotonic()
        row_since, row_from = time.monotonic(), self.steps
        rows: list[dict[str, Any]] = []

        def pace() -> float:
            each = self.copies if self.shared else 1
            return (self.steps - row_from) * (self.copies // each) / max(time.monotonic() - row_since, 1e-9)

        while self.steps < self.goal or self._logged < self.steps:
            due = min(self._logged + learning["log_every"], self.goal)
            if self.steps < due:
                since = time.monotonic()
                self._advance(due, since + min(PAUSE, learning["checkpoint_every"]), asked)
                self._seconds += time.monotonic() - since
            if self.steps >= due:
                rows = self._rows_of_metrics(pace())
                stop = self._call(callbacks, rows)
                recorder.add(named.name_of(self.agent), rows)
                self.fleet.finished, self._logged, self._entropies = [], self.steps, np.zeros_like(self._entropies)
                recorder.tell(rows)
                show(self.steps, rows)
                row_since, row_from = time.monotonic(), self.steps
                if stop:
                    return
            else:  # rows can be minutes apart
                show(self.steps, [{**row, "steps_per_second": pace()} for row in rows])
            if asked() and self.steps < self.goal:
                raise Interrupted
            if time.monotonic() - saved >= learning["checkpoint_every"]:
                self._checkpoint()
                saved = time.monotonic()

    def _call(self, callbacks: Sequence[Callback], rows: list[dict[str, Any]]) -> bool:
        """Show each row to each callback; whether one wants to stop. What they add to a row becomes a column."""
        stop = False
        for row in rows:
            measured = dict(row)
            for callback in callbacks:
                stop = bool(callback(self, row)) or stop
                put_back(row, measured)
            row |= {name: native(value) for name, value in row.items()}
        return stop

    def _rows_of_metrics(self, pace: float) -> list[dict[str, Any]]:
        finished, known = self.fleet.finished, min(self._recent.shape[1], self.fleet.steps)
        weights = np.asarray(self.host.write_weights(self._packed, self._recent))[:, :known]
        groups = [range(self.copies)] if self.shared else [range(k, k + 1) for k in range(self.copies)]
        rows = []
        for seed, group in zip(self.seeds, groups, strict=True):
            own = [episode for episode in finished if episode.copy in group]
            entropy, samples = self._entropies[list(group)].sum(axis=0)
            rows.append(
                {
                    "seed": seed,
                    "steps": self.steps,
                    "episodes": sum(self.fleet.episodes[copy] for copy in group),
                    "return": float(np.mean([e.score for e in own])) if own else float("nan"),
                    "length": float(np.mean([e.length for e in own])) if own else float("nan"),
                    "write_weight": float(np.mean(weights[list(group)])),
                    "query_entropy": entropy / samples if samples else float("nan"),
                    "seconds": round(self._seconds, 3),
                    "steps_per_second": round(pace, 1),
                }
            )
        return rows

    def _open(self, folder: Path | str | None, how: dict[str, Any]) -> Recorder:
        if self._recorder is None:
            env = self.source.name.replace("/", "-").replace(":", "-")  # no file system minds "-"
            name = f"{env}-{named.name_of(self.agent)}-seed{self.seed}"
            path = Path("runs", name) if folder is None else Path(folder)
            config = {**self.description(), **how}
            self._recorder = Recorder.create(path, config, numbered=folder is None)
        elif folder is not None and Path(folder).absolute() != self._recorder.path:
            raise ValueError(f"this learner writes to {self._recorder.path} already; folder is for the first call")
        return self._recorder

    def _checkpoint(self, finished: bool = False) -> Path:
        assert self._recorder is not None
        folder = self._recorder.folder
        folder.exact = self.exact
        meta = saving.meta_of(self, finished)
        meta["metrics"] = folder.metrics_so_far(GROUP, named.name_of(self.agent), self.seeds)
        meta["config"] = without_versions(folder.config)
        return folder.save_checkpoint(GROUP, saving.arrays_of(self), meta)

    # -- acting

    def reset(self, copy: int = 0) -> None:
        """Begin an episode for ``predict``, with what has been learned by now; ``copy``: whose.

        Each episode draws numbers of its own, after ``load`` from the first episode's on.
        """
        seed = (self.seed + 0x9E3779B9 * self._resets) % 2**32  # by an odd number: no two of 2^32 episodes are equal
        self._player = self.player(seed, copy)
        self._resets += 1

    def predict(self, observation: Any, *, reward: float = 0.0) -> Any:
        """The action at an observation and the reward that came with it; remembers the episode since ``reset``."""
        if self._player is None:
            self.reset()
        assert self._player is not None
        return self._player.act(observation, arguments.reward("reward", reward))

    def player(self, seed: int, copy: int = 0) -> Player:
        """What has been learned by now, ready to play episodes apart from training."""
        seed, copy = arguments.seed("seed", seed), arguments.copy(copy, self.copies)
        return Player(self.agent, self.state(copy), self.vector, self.actions, self.normalizer, copy, seed)

    def check_can_play(self) -> None:
        """Refuse where there is no environment to play in besides the one that is learned in."""
        player.check_can_play(self)

    def evaluate(
        self,
        episodes: int = 100,
        *,
        seed: int | None = None,
        copy: int = 0,
        env: Any = None,
        progress: bool = False,
    ) -> Evaluation:
        """Play episodes without learning, in an environment of their own.

        Args:
            episodes: how many.
            seed: of the episodes and of the agent's choices (default: one beside the learner's own).
            copy: which of several independent agents plays.
            env: as for ``Learner``, where the learner was given one environment and cannot make another.
            progress: say on stderr how many episodes are done, where it takes a while.
        """
        episodes, copy = arguments.count("episodes", episodes), arguments.copy(copy, self.copies)
        default = 2**31 + self.seed + (0 if self.shared else copy)
        seed = default if seed is None else arguments.seed("seed", seed)
        told = counting(f"playing {self.source.name}", episodes, "episodes", progress)
        with player.environment(self, env) as other, told as tell:
            asked = self._asked or (lambda: False)
            return player.play(self.player(seed, copy), other, episodes, self.source.name, seed, asked, tell)

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
        return saving.description(self)

    def save(self, path: Path | str, keep: int = checkpoints.KEEP) -> Path:
        """Add a checkpoint to the folder ``path``: all there is, the episodes under way among it.

        In a run folder, which can only be this learner's own, it joins those of the run, so that ``load`` reads what
        was saved. Elsewhere the newest ``keep`` checkpoints stay. Nothing else in the folder is touched.
        """
        if str(path) == "":
            raise ValueError("path='' must name a folder to save to; '.' is the current one")
        keep = arguments.count("keep", keep)
        path = Path(path).absolute()
        if self._recorder is not None and path.resolve() == self._recorder.path.resolve():
            with self._recorder.held():
                return self._checkpoint(finished=self._asked is None and self._logged == self.steps >= self.goal)
        if saving.is_run_folder(path):
            raise RecollectError(f"{path} is the run folder of another learner: save to a folder of its own")
        return checkpoints.save(path, saving.arrays_of(self), plain(saving.meta_of(self, finished=False)), keep)

    @classmethod
    def load(
        cls,
        path: Path | str,
        env: Any = None,
        *,
        agent: Agent | None = None,
        check: bool = True,
        fallback: bool = False,
        allow_inexact: bool = False,
    ) -> "Learner":
        """The learner saved in a folder, by ``save`` or by a run.

        Training continues where it was, bit for bit, also in the middle of an episode. That takes environments that
        do the same again for the same seed and actions; ``learn`` refuses others. The episodes of ``predict`` are not
        part of what is saved: they draw again what the first of them drew.

        Args:
            path: the folder that was saved to, or a run folder.
            env: as for ``Learner`` (default: the id it was saved with).
            agent: as it was made, where it has parts of your own, which no file can describe.
            check: run ``check_env`` on it.
            fallback: where the newest checkpoint is damaged, take the one before it.
            allow_inexact: begin a new episode where the one under way cannot be repeated.
        """
        found = saving.load(Path(path), fallback)
        return cls.restore(found, env, agent, check=check, allow_inexact=allow_inexact)

    @classmethod
    def restore(
        cls,
        found: checkpoints.Checkpoint,
        env: Any = None,
        agent: Agent | None = None,
        *,
        check: bool = True,
        allow_inexact: bool = False,
    ) -> "Learner":
        """As ``load``, from a checkpoint that has been read."""
        saving.check_counts(found)
        learner = cls.described_by(found.meta, found.path, env, agent, check=check)
        saving.restore(learner, found, allow_inexact)
        return learner

    @classmethod
    def described_by(
        cls, meta: dict[str, Any], where: Path, env: Any = None, agent: Agent | None = None, *, check: bool = True
    ) -> "Learner":
        """A fresh learner as a config or a checkpoint describes it; ``where``: what to name in errors."""
        agent, env, options = saving.arguments_of(meta, where, env, agent, check)
        try:
            learner = cls(agent, env, **options)
        except (ValueError, TypeError, OverflowError) as error:
            raise RecollectError(f"{where}: {error}") from error
        saving.refuse_other_spaces(learner, meta, where)
        return learner

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Learner is not pickled or copied: it holds environments and compiled calls. save(folder) and "
            "Learner.load(folder, env) do what pickling would"
        )

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
