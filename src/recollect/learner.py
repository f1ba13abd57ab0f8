"""An agent and the environment it learns in: what has state, where the agent itself is only a definition."""

import dataclasses
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import numpy as np

from recollect import checkpoints, spaces, trees
from recollect.agents import named
from recollect.agents.base import Agent, check_choice, check_count
from recollect.envs import making
from recollect.errors import FileError, RecollectError
from recollect.fleet import Copies, EnvironmentFault, Fleet, Vector
from recollect.host import Live, blank_rows
from recollect.hosting import host_for
from recollect.normalization import Normalizer
from recollect.pictures import Convolution
from recollect.player import Evaluation, Player, play
from recollect.progress import showing
from recollect.recording import GROUP, Recorder, free_folder
from recollect.runs import versions

RECENT = 64  # observations over which the mean write weight is taken
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
        agent: the definition, as ``recollect.train`` takes it.
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
        check: run Gymnasium's ``check_env`` first.
    """

    def __init__(
        self,
        agent: Agent,
        env: Any,
        *,
        seed: int = 0,
        copies: int = 1,
        learners: str = "one",
        env_options: dict[str, Any] | None = None,
        normalize_observations: bool = False,
        normalize_rewards: bool = False,
        pictures: str = "auto",
        check: bool = True,
    ):
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
        self.host: Any = host_for(self.agent, self.vector.size, self.actions.outputs, copies, self.shared)
        self._packed = self.host.start(np.uint32(self.seed))
        self._drawn: Any = None  # actions chosen and not yet taken; None between episodes
        self._rows = blank_rows(copies, self.vector.size)
        self._recent = np.zeros((copies, RECENT, self.vector.size), np.float32)
        self._player: Player | None = None
        self._recorder: Recorder | None = None
        self.steps, self.episodes = 0, [0] * copies

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
    ) -> "Learner":
        """Go on learning.

        Args:
            steps: time steps of each agent; those of copies that share one are counted together.
            progress: show return, episode length, steps/s and mean write weight as it goes.
            callbacks: called with the learner and each row of metrics; see ``recollect.callbacks``.
            log: "tensorboard" to write for TensorBoard besides ``metrics.jsonl`` and ``metrics.csv``.
            log_every: steps between two rows of metrics.
            folder: the run folder to make at the first call (default: ``runs/ENVIRONMENT-AGENT-seedS``).

        Raises:
            EnvironmentFault: the environment raised, or gave a reward or an observation that is not sound. What the
                agent had learned up to then is saved in the run folder and still in this learner.
        """
        check_count("steps", steps)
        check_count("log_every", log_every)
        if log not in (None, "tensorboard"):
            raise ValueError(f"log={log!r}: choose 'tensorboard' or None; JSON lines and CSV are always written")
        recorder = self._open(folder)
        if log == "tensorboard":
            recorder.use_tensorboard()
        each = self.copies if self.shared else 1
        start, goal, clock = self.steps, self.steps + steps, time.monotonic()
        recorder.begin(goal)
        try:
            with showing(f"{self.source.name} {named.name_of(self.agent)}", start, goal, progress) as show:
                if self._drawn is None:
                    self._begin_episodes()
                while self.steps < goal:
                    before, since = self.steps, time.monotonic()
                    self._advance(min(before + log_every, goal), each)
                    pace = (self.steps - before) * (self.copies // each) / max(time.monotonic() - since, 1e-9)
                    rows = self._rows_of_metrics(time.monotonic() - clock, pace)
                    stop = [bool(callback(self, row)) for row in rows for callback in callbacks]
                    recorder.add(named.name_of(self.agent), rows)
                    show(self.steps, rows)
                    if any(stop):
                        break
        except EnvironmentFault as fault:
            raise self._stopped(fault) from fault.__cause__
        except KeyboardInterrupt:
            self.save(recorder.path / "checkpoints" / GROUP)
            recorder.finish("interrupted", steps=self.steps)
            raise
        self.save(recorder.path / "checkpoints" / GROUP)
        recorder.finish("finished", steps=self.steps, episodes=sum(self.episodes))
        return self

    def advance(self, steps: int) -> None:
        """Go on learning without writing anything down: the loop alone, for measuring it and for loops of your own."""
        check_count("steps", steps)
        if self._drawn is None:
            self._begin_episodes()
        self._advance(self.steps + steps, self.copies if self.shared else 1)

    def _begin_episodes(self) -> None:
        size = self.vector.size
        self.fleet.reset(self._rows)
        self._packed, self._drawn = self.host.begin(self.host.forget(self._packed), self._rows[:, size : 2 * size])

    def _advance(self, until: int, each: int) -> None:
        """The loop itself: nothing in it but the environments' step and the agent's."""
        fleet, rows, step, packed, drawn = self.fleet, self._rows, self.host.step, self._packed, self._drawn
        size, recent, at = self.vector.size, self._recent, self.steps
        try:
            while at < until:
                fleet.step(np.asarray(drawn), rows)
                packed, drawn = step(packed, rows)
                recent[:, at // each % RECENT] = rows[:, :size]
                at += each
        except EnvironmentFault:
            # A step that failed was taken in none of the agents, but their environments are somewhere in the middle.
            drawn = None
            raise
        finally:
            self._packed, self._drawn, self.steps = packed, drawn, at

    def _rows_of_metrics(self, seconds: float, pace: float) -> list[dict[str, Any]]:
        finished, self.fleet.finished = self.fleet.finished, []
        known = min(RECENT, self.fleet.steps)
        weights = np.asarray(self.host.write_weights(self._packed, self._recent))[:, :known]
        groups = [range(self.copies)] if self.shared else [range(k, k + 1) for k in range(self.copies)]
        rows = []
        for k, group in enumerate(groups):
            own = [episode for episode in finished if episode.copy in group]
            for episode in own:
                self.episodes[episode.copy] += 1
            rows.append(
                {
                    "seed": self.seed + k,
                    "steps": self.steps,
                    "episodes": sum(self.episodes[copy] for copy in group),
                    "return": float(np.mean([e.score for e in own])) if own else float("nan"),
                    "length": float(np.mean([e.length for e in own])) if own else float("nan"),
                    "write_weight": float(np.mean(weights[list(group)])),
                    "seconds": round(seconds, 3),
                    "steps_per_second": round(pace, 1),
                }
            )
        return rows

    def _open(self, folder: Path | str | None) -> Recorder:
        if self._recorder is None:
            name = f"{self.source.name.replace('/', '-')}-{named.name_of(self.agent)}-seed{self.seed}"
            path = Path(folder) if folder is not None else free_folder(name)
            self._recorder = Recorder(path, self._meta())
        elif folder is not None and Path(folder) != self._recorder.path:
            raise ValueError(f"this learner writes to {self._recorder.path} already; folder is for the first call")
        return self._recorder

    def _stopped(self, fault: EnvironmentFault) -> EnvironmentFault:
        assert self._recorder is not None
        saved = self.save(self._recorder.path / "checkpoints" / GROUP)
        full = EnvironmentFault(fault.environment, fault.seed, fault.step, fault.what, str(saved))
        self._recorder.finish("failed", steps=self.steps, reason=str(full))
        return full

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
        return Player(self.agent, self.state(copy), self.vector, self.actions, self.normalizer, seed)

    def evaluate(self, episodes: int = 100, *, seed: int | None = None, copy: int = 0) -> Evaluation:
        """Play episodes without learning.

        Args:
            episodes: how many.
            seed: of the episodes and of the agent's choices (default: one beside the learner's own).
            copy: which of several independent agents plays.
        """
        check_count("episodes", episodes)
        env = self.source.make() if self.source.make is not None else self.source.first
        if isinstance(env, gym.vector.VectorEnv):
            raise RecollectError("a vector environment cannot be evaluated in: load the learner with a single one")
        player = self.player(self.seed + 2**31 if seed is None else seed, copy)
        if env is self.source.first:
            self._drawn = None  # the episode that was under way is lost
        evaluation = play(player, env, episodes, self.source.name, (2**31 + self.seed) if seed is None else seed)
        if env is not self.source.first:
            env.close()
        return evaluation

    # -- saving

    def _meta(self) -> dict[str, Any]:
        return {
            "agent": self.described,
            "environment": {"name": self.source.name, "made": self._id},
            "spaces": {"observation": repr(self.observation_space), "action": repr(self.action_space)},
            "seed": self.seed,
            "copies": self.copies,
            "learners": "one" if self.shared or self.copies == 1 else "each",
            "pictures": self._pictures,
            "normalize": [self.normalizer.observations is not None, self.normalizer.rewards is not None],
            "versions": versions(),
        }

    def save(self, path: Path | str) -> Path:
        """Add a checkpoint to the folder ``path``: parameters, memories, running statistics, the agent's definition."""
        arrays = trees.flatten({"live": self.host.unpack(self._packed), "normalizer": self.normalizer.state()})
        counts = {"steps": self.steps, "episodes": self.episodes, "begun": self.fleet.episodes}
        meta = {"kind": "learner", **self._meta(), **counts}
        if self._recorder is not None:
            seeds = [self.seed] if self.shared else list(range(self.seed, self.seed + self.copies))
            name = named.name_of(self.agent)
            meta["metrics"] = self._recorder.folder.metrics_so_far(GROUP, name, seeds)
        return checkpoints.save(path, arrays, meta)

    @classmethod
    def load(cls, path: Path | str, env: Any = None, *, check: bool = True) -> "Learner":
        """The learner saved in a folder, by ``save`` or by a run.

        Args:
            path: the folder that was saved to, or a run folder.
            env: as for ``Learner`` (default: the id it was saved with). Training goes on in a new episode.
            check: run ``check_env`` on it.
        """
        path = Path(path)
        folder = path / "checkpoints" / GROUP if (path / "checkpoints").is_dir() else path
        found = checkpoints.load(folder)
        meta = found.meta
        try:
            if meta["kind"] != "learner":
                raise FileError(f"{found.path} is a checkpoint of something else: {meta['kind']}")
            made = meta["environment"]["made"]
            if env is None and made is None:
                raise ValueError(f"{found.path} was saved with an environment of its own: give it as env")
            options = {"env_options": made["options"]} if env is None and made["options"] else {}
            learner = cls(
                named.restore(meta["agent"]),
                made["id"] if env is None else env,
                seed=meta["seed"],
                copies=meta["copies"],
                learners=meta["learners"],
                pictures=meta["pictures"],
                normalize_observations=meta["normalize"][0],
                normalize_rewards=meta["normalize"][1],
                check=check,
                **options,
            )
            steps, episodes, begun = meta["steps"], meta["episodes"], meta["begun"]
        except (KeyError, TypeError, IndexError) as error:
            raise FileError(f"{found.path} is not a saved learner: {type(error).__name__}: {error}") from error
        for name, space in (("observation", learner.observation_space), ("action", learner.action_space)):
            if repr(space) != meta["spaces"][name]:
                raise ValueError(
                    f"{learner.source.name} has the {name} space {space}, "
                    f"the learner was saved with {meta['spaces'][name]}"
                )
        like = {"live": learner.host.unpack(learner._packed), "normalizer": learner.normalizer.state()}
        restored = trees.restore(found.arrays, like)
        learner._packed = learner.host.pack(Live(*restored["live"]))
        learner.normalizer.restore(restored["normalizer"])
        learner.steps, learner.episodes = int(steps), [int(n) for n in episodes]
        learner.fleet.episodes = [int(n) for n in begun]
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
