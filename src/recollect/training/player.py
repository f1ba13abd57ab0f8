"""Playing without learning: one agent that carries its memory through an episode, in an environment of its own."""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import jax
import numpy as np

from recollect import prng
from recollect.agents.base import Agent
from recollect.engines.choice import host_for
from recollect.engines.host import REWARD, Live, blank_rows
from recollect.envs import making, spaces
from recollect.envs.spaces import Actions, NotInSpaceError, Observations
from recollect.errors import RecollectError
from recollect.store.interrupts import Interrupted
from recollect.training import returned
from recollect.training.normalization import Normalizer
from recollect.training.returned import EnvironmentFault


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Episodes played: their ``returns`` and ``lengths``."""

    returns: np.ndarray
    lengths: np.ndarray

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(self.returns.mean())

    @property
    def standard_error(self) -> float:
        """Of the mean; NaN for a single episode."""
        n = len(self.returns)
        return float(self.returns.std(ddof=1) / math.sqrt(n)) if n > 1 else math.nan

    def __str__(self) -> str:
        return (
            f"return {self.mean:.3f} ± {self.standard_error:.3f}, length {self.lengths.mean():.1f}, "
            f"{len(self.returns)} episodes"
        )


class Player:
    """An agent's state, apart from training, that sees one episode after another.

    ``normalizer`` brings observations and rewards to the scale of the learner's copy of that number; it learns nothing.
    """

    def __init__(
        self,
        agent: Agent,
        state: Any,
        vector: Observations,
        actions: Actions,
        normalizer: Normalizer,
        copy: int,
        seed: int,
    ):
        self.vector, self.actions, self.normalizer, self.copy = vector, actions, normalizer, copy
        self.host = host_for(agent, vector.size, actions.outputs)
        live: Any = (prng.key_words(seed % 2**32), np.int32(0), state)
        self.packed = self.host.pack(Live(*jax.tree.map(lambda leaf: np.asarray(leaf)[None], live)))
        self.rows = blank_rows(1, vector.size)
        self.begin()

    def begin(self) -> None:
        """Forget the episode so far, as the agent does at the end of one."""
        self.packed, self.first = self.host.forget(self.packed), True

    def act(self, observation: Any, reward: float = 0.0) -> Any:
        """Take in an observation, and the reward that came with it as the environment gave it; draw an action.

        Nothing comes before an episode's first observation: its reward is not looked at.
        """
        size = self.vector.size
        row = self.rows[:, :size]
        self.vector.write(observation, row[0])
        self.normalizer.observe(row[0], self.copy, learn=False)
        self.rows[0, 2 * size + REWARD] = self.normalizer.scaled(reward, self.copy)
        self.packed, drawn = (
            self.host.begin(self.packed, row) if self.first else self.host.watch(self.packed, self.rows)
        )
        self.first = False
        return self.actions.decode(np.asarray(drawn)[0])

    def live(self) -> Live:
        """The agent's state with its memory as it is now, and where its random numbers are."""
        return jax.tree.map(lambda leaf: leaf[0], self.host.unpack(self.packed))

    def state(self) -> Any:
        """The agent's state, with its memory as it is now."""
        return self.live().agent


def check_can_play(learner: Any) -> None:
    """Refuse to play where there is no environment to play in besides the one that is learned in."""
    check_single(learner.source.first)
    if learner.source.make is not None:
        return
    raise RecollectError(
        f"the learner was given one {learner.source.name} and is learning in it: playing there would take it out of "
        "its episode. Give another one (env=), or make the learner with an id or a function that makes environments"
    )


def check_single(env: Any) -> None:
    """Refuse a vector environment: one episode is played after another."""
    if isinstance(env, gym.vector.VectorEnv):
        raise RecollectError(
            "a vector environment cannot be evaluated in or viewed: load the learner with a single one, or give one to "
            "evaluate as env="
        )


def check_other(env: Any, learner: Any) -> None:
    """Refuse the environment that is learned in, also within other wrappers."""
    if making.innermost(env) is making.innermost(learner.source.first):
        raise RecollectError(f"{learner.source.name}: this is the environment that is learned in; give another one")


@contextlib.contextmanager
def environment(learner: Any, env: Any = None) -> Iterator[gym.Env]:
    """An environment to play in that is not the one that is learned in; closed afterwards, unless it was given."""
    if env is None:
        check_can_play(learner)
        made, own = learner.source.make(), True
    else:
        found = making.source(env)
        made, own = found.first, env is not found.first
    check_other(made, learner)  # which must not be closed, whoever gave it
    try:
        check_single(made)
        for name in ("observation_space", "action_space"):
            mine, other = getattr(learner, name), getattr(made, name)
            if spaces.describe(mine) != spaces.describe(other):
                raise RecollectError(
                    f"env has the {name.replace('_', ' ')} {spaces.describe(other)}, "
                    f"the learner's is {spaces.describe(mine)}"
                )
        yield made
    finally:
        if own:
            made.close()


def play_episode(
    player: Player, env: gym.Env, seed: int, fault: Callable[[int, str], EnvironmentFault]
) -> Iterator[tuple[Any, float, bool]]:
    """An episode from its seed: action, reward and whether it is over, step by step; ``fault`` is told the step."""
    steps = 0

    def wrong(what: str) -> EnvironmentFault:
        return fault(steps, what)

    player.begin()
    observation, reward, over = returned.reset(env.reset, wrong, seed=seed), 0.0, False
    while not over:
        try:
            action = player.act(observation, reward)
        except NotInSpaceError as error:
            raise wrong(f"an observation is not in the declared space: {error}") from error
        steps += 1
        observation, reward, terminated, truncated = returned.step(env.step, action, wrong)
        over = terminated or truncated
        yield action, reward, over


def play(
    player: Player,
    env: gym.Env,
    episodes: int,
    name: str,
    seed: int,
    asked: Callable[[], bool] = lambda: False,
    tell: Callable[[int], None] = lambda done: None,
) -> Evaluation:
    """So many episodes, seeded one by one from ``seed``.

    ``asked``: whether to end with ``Interrupted``. ``tell`` is told after each how many are done.
    """
    returns: list[float] = []
    lengths: list[int] = []
    for k in range(episodes):

        def fault(step: int, what: str, k: int = k) -> EnvironmentFault:
            return EnvironmentFault(name, seed, step, f"evaluation episode {k}: {what}")

        own = int(np.random.SeedSequence([seed, k]).generate_state(1)[0] >> 1)
        returns.append(0.0)
        lengths.append(0)
        for _, reward, _ in play_episode(player, env, own, fault):
            returns[-1] += reward
            lengths[-1] += 1
            if asked():
                raise Interrupted
        tell(k + 1)
    return Evaluation(np.array(returns), np.array(lengths))
