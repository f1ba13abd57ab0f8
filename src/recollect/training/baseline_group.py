"""Runs of the recurrent baseline on the secret informant problem, in vector lanes of the CPU.

``RecurrentActorCritic`` is the definition; `recollect.engines.recurrent` is the same learner as one compiled loop,
which makes backpropagation through whole episodes affordable.
"""

import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from recollect import prng
from recollect.agents.base import first_parameters
from recollect.agents.gated import Parameters
from recollect.agents.networks import GRU, Layer
from recollect.agents.recurrent import RecurrentActorCritic
from recollect.engines import recurrent
from recollect.engines.loop import RECORD
from recollect.envs.secret_informant import SecretInformant
from recollect.store import trees
from recollect.training.group import Group, Limits
from recollect.training.reports import Result

SECONDS = 0.5
"""About how long it is from one report to the next."""

FIRST_STEPS = 200  # of the first call, while it is not known how long a step takes


def flatten(params: Parameters) -> np.ndarray:
    """θ, the parameters as one float32 vector; with leading axes over runs, one per run."""
    z, r, candidate = params.gru
    both = [np.concatenate([np.asarray(a), np.asarray(b)], axis=-k) for k, a, b in zip((2, 1), z, r, strict=True)]
    parts = []
    for weight, bias in (*params.value, *params.policy, both, candidate):
        w = np.asarray(weight, np.float32)
        parts += [w.reshape(*w.shape[:-2], -1), np.asarray(bias, np.float32)]
    return np.concatenate(parts, axis=-1)


def unflatten(theta: np.ndarray, s: int, h: int, a: int) -> Parameters:
    """The agent's parameters from θ, for s inputs, h units and a actions."""
    layers: list[Any] = []
    at = 0
    for out, into in [(h, s), (1, h), (h, s + h), (h, h), (a, h), (2 * h, s + h), (h, s + h)]:
        weight: Any = theta[..., at : at + out * into].reshape(*theta.shape[:-1], out, into)
        at += out * into
        layers.append(Layer(weight, theta[..., at : at + out]))  # type: ignore[arg-type]
        at += out
    both, candidate = layers[5:]
    z, r = (Layer(both.weight[..., k : k + h, :], both.bias[..., k : k + h]) for k in (0, h))
    return Parameters(tuple(layers[:2]), tuple(layers[2:5]), GRU(z, r, candidate))


def state_like(agent: RecurrentActorCritic, env: SecretInformant, seeds: int, bins: int) -> dict[str, np.ndarray]:
    """The form of the snapshots."""
    return recurrent.runs_like(agent, env, seeds, bins)._asdict()


def settings_of(agent: RecurrentActorCritic, seeds: int) -> np.ndarray:
    """[seed, setting]; a hyperparameter is one number or an array with one entry per seed."""
    found = [np.asarray(getattr(agent, name), np.float64) for name in recurrent.SETTINGS]
    for x in found:
        if x.ndim > 1 or (x.ndim == 1 and len(x) != seeds):
            raise ValueError(f"a hyperparameter must be one number or one per run ({seeds}), got shape {x.shape}")
    return np.stack([np.broadcast_to(x, (seeds,)) for x in found], axis=1)


class BaselineGroup(Group):
    """Runs as ``recollect.engines.recurrent`` has them.

    The first parameters are those of ``agent.init``. Runs do not depend on each other: a seed's results are the same
    bits whatever the other seeds are.
    """

    def __init__(
        self,
        agent: RecurrentActorCritic,
        env: SecretInformant,
        seeds: tuple[int, ...],
        limits: Limits,
        records_per_call: int | None,
        state: Mapping[str, np.ndarray] | None,
    ):
        self._agent, self._env, self._seeds, self._limits = agent, env, seeds, limits
        self._bins = limits.episodes // limits.bin_size
        settings = settings_of(agent, len(seeds))
        if state is None:
            sizes = env.observation_size, env.num_actions
            # Plain JAX keys, as ever: a seed stays the run that it was.
            theta = np.stack([flatten(first_parameters(agent, jax.random.key(seed), *sizes)) for seed in seeds])
            self._runs = recurrent.start(agent, env, seeds, theta, self._bins)
        else:
            saved = trees.restore(state, state_like(agent, env, len(seeds), self._bins))
            self._runs = recurrent.Runs(**{name: array.copy() for name, array in saved.items()})
        self._engine = recurrent.Engine(agent, env, (limits.episodes, limits.bin_size, limits.max_steps), settings)
        self._steps_of_blocks = records_per_call * RECORD if records_per_call else None
        self._next = self._steps_of_blocks or FIRST_STEPS
        self._recent = np.ones(len(seeds))  # steps per episode

    @property
    def steps(self) -> np.ndarray:
        """[seed]: steps taken."""
        return self._runs.ints[:, recurrent.STEPS].copy()

    @property
    def episodes(self) -> np.ndarray:
        """[seed]: episodes finished."""
        return self._runs.ints[:, recurrent.EPISODE].copy()

    @property
    def faults(self) -> np.ndarray:
        """[seed]: minus the first step whose update was not finite."""
        return -self._runs.ints[:, recurrent.FAULT]

    @property
    def taken(self) -> int:
        """Steps of the longest run."""
        return int(self.steps.max())

    @property
    def over(self) -> bool:
        """Whether every run has its episodes or its steps."""
        return not self._engine.going(self._runs).any()

    def advance(self) -> list[dict[str, Any]]:
        """One compiled call, of about ``SECONDS`` unless its length was asked for; gives the bins that it completed."""
        # Runs with episodes of about one length share a block, whose loops are as long as the longest.
        columns = np.flatnonzero(self._engine.going(self._runs))
        steps, episodes = self.steps, self.episodes
        self._engine.advance(self._runs, columns[np.argsort(self._recent[columns], kind="stable")], self._next)
        if self._steps_of_blocks is None:
            self._next = min(max(int(SECONDS / self._engine.pace), self._next // 4, 1), 4 * self._next)
        done, size = self.episodes, self._limits.bin_size
        self._recent = (self.steps - steps) / (done - episodes + 1)
        returns, lengths = self._curves()
        nothing = np.full((1, self._env.observation_size), np.nan).tolist()
        return [
            {
                "seed": seed,
                "episodes": (b + 1) * size,
                "return": returns[run, b].item(),
                "length": lengths[run, b].item(),
                "write_weights": [math.nan] * 2,
                "query_vectors": nothing,
            }
            for run, seed in enumerate(self._seeds)
            for b in range(episodes[run] // size, done[run] // size)
        ]

    def _curves(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean return and length, [seed, bin]; NaN for bins that are not complete."""
        size = self._limits.bin_size
        complete = np.arange(1, self._bins + 1) * size <= self.episodes[:, None]
        means = np.where(complete[..., None], self._runs.sums / size, np.nan)
        return means[..., 0], means[..., 1]

    def recent_return(self) -> float:
        """Mean over runs of their last complete bin; NaN before the first."""
        returns, complete = self._curves()[0], self.episodes // self._limits.bin_size
        last = [returns[run, k - 1] for run, k in enumerate(complete) if k]
        return float(np.mean(last)) if last else math.nan

    def snapshot(self) -> dict[str, np.ndarray]:
        """All that is needed to continue, by name."""
        return {name: array.copy() for name, array in self._runs._asdict().items()}

    def _agent_states(self) -> Any:
        """The trained agents between two episodes: parameters and the optimizer's squares, nothing remembered."""
        s, h, a = self._env.observation_size, self._agent.width, self._env.num_actions
        like = jax.eval_shape(lambda: self._agent.init(prng.key(0), s, a))
        blank = jax.tree.map(lambda leaf: np.zeros((len(self._seeds), *leaf.shape), leaf.dtype), like)
        params, squares = (unflatten(x, s, h, a) for x in (self._runs.theta, self._runs.squares))
        return blank._replace(params=params, optimizer=blank.optimizer._replace(nu=squares))

    def result(self) -> Result:
        """What came of it."""
        returns, lengths = self._curves()
        shape = (len(self._seeds), self._bins)
        return Result(
            seeds=self._seeds,
            episodes=self._limits.bin_size * np.arange(1, self._bins + 1),
            returns=returns,
            lengths=lengths,
            write_weights=np.full((*shape, 2), np.nan),
            query_vectors=np.full((*shape, 1, self._env.observation_size), np.nan),
            steps=self.steps,
            finished=self.episodes >= self._limits.episodes,
            agent_states=self._agent_states(),
        )
