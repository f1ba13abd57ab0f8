"""Playing without learning: one agent that carries its memory through an episode."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np

from recollect import prng
from recollect.agents.base import Agent
from recollect.engines.choice import host_for
from recollect.engines.host import Live, blank_rows
from recollect.envs.spaces import Actions, NotInSpaceError, Observations
from recollect.training.env_pool import EnvironmentFault


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
    """An agent's state, apart from training, that sees one episode after another."""

    def __init__(
        self,
        agent: Agent,
        state: Any,
        vector: Observations,
        actions: Actions,
        normalize: Callable[[np.ndarray], None],
        seed: int,
    ):
        self.vector, self.actions, self.normalize = vector, actions, normalize
        self.host = host_for(agent, vector.size, actions.outputs)
        key = jax.random.key_data(prng.key(np.uint32(seed % 2**32)))
        live = Live(key, jnp.zeros((), jnp.int32), state)
        self.packed = self.host.pack(jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], live))
        self.rows = blank_rows(1, vector.size)
        self.begin()

    def begin(self) -> None:
        """Forget the episode so far, as the agent does at the end of one."""
        self.packed, self.first = self.host.forget(self.packed), True

    def act(self, observation: Any) -> Any:
        """Take in an observation, and draw an action."""
        size = self.vector.size
        row = self.rows[:, :size]
        self.vector.write(observation, row[0])
        self.normalize(row[0])
        self.packed, drawn = (
            self.host.begin(self.packed, row) if self.first else self.host.watch(self.packed, self.rows)
        )
        self.first = False
        return self.actions.decode(np.asarray(drawn)[0])

    def state(self) -> Any:
        """The agent's state, with its memory as it is now."""
        return jax.tree.map(lambda leaf: leaf[0], self.host.unpack(self.packed)).agent


def play(player: Player, env: gym.Env, episodes: int, name: str, seed: int) -> Evaluation:
    """So many episodes, seeded one by one from ``seed``."""
    returns, lengths = np.zeros(episodes), np.zeros(episodes, int)
    for k in range(episodes):
        player.begin()
        try:
            observation, _ = env.reset(seed=int(np.random.SeedSequence([seed, k]).generate_state(1)[0] >> 1))
            over = False
            while not over:
                observation, reward, terminated, truncated, _ = env.step(player.act(observation))
                returns[k] += float(reward)
                lengths[k] += 1
                over = bool(terminated or truncated)
        except NotInSpaceError as error:
            what = f"an observation is not in the declared space: {error}"
            raise EnvironmentFault(name, seed, int(lengths[k]), f"evaluation episode {k}: {what}") from error
        except Exception as error:
            what = f"evaluation episode {k} raised {type(error).__name__}: {error}"
            raise EnvironmentFault(name, seed, int(lengths[k]), what) from error
        if not math.isfinite(returns[k]):
            raise EnvironmentFault(name, seed, int(lengths[k]), f"evaluation episode {k}: a reward is not finite")
    return Evaluation(returns, lengths)
