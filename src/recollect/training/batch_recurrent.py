"""The recurrent baseline on the secret informant problem, in vector lanes of the CPU: full backpropagation, affordable.

``RecurrentActorCritic`` is the definition; `recollect.engines.recurrent` is the same learner as one compiled loop. As
`recollect.training.batch` for every other pair, this iterates over it, reports, and goes on from a snapshot.
"""

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from recollect.agents.base import differs_only_in, first_parameters
from recollect.agents.gated import Parameters
from recollect.agents.networks import GRU, Layer
from recollect.agents.recurrent import RecurrentActorCritic
from recollect.engines import recurrent
from recollect.envs.secret_informant import SecretInformant
from recollect.errors import RecollectError
from recollect.store import trees
from recollect.training.batch import Progress, Result

SECONDS = 0.5
"""About how long it is from one report to the next."""

KNOWN = {*recurrent.SETTINGS, "width", "window", "initializer", "critic_start"}
"""What is known of the agent; all else must be its default."""

FIRST_STEPS = 200  # of the first call, while it is not known how long a step takes


def flatten(params: Parameters) -> np.ndarray:
    """θ, the parameters as one float32 vector; with leading axes over runs, one a run."""
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
    """The form of what ``Progress.snapshot`` returns here."""
    return recurrent.runs_like(agent, env, seeds, bins)._asdict()


def _settings(agent: RecurrentActorCritic, seeds: int) -> np.ndarray:
    """[seed, setting]; a hyperparameter is one number or an array with one entry a seed."""
    found = [np.asarray(getattr(agent, name), np.float64) for name in recurrent.SETTINGS]
    return np.stack([np.broadcast_to(x, (seeds,)) for x in found], axis=1)


def train_iter(
    agent: RecurrentActorCritic,
    env: SecretInformant,
    episodes: int,
    seeds: Sequence[int],
    *,
    max_steps: int,
    bins: int,
    state: Mapping[str, np.ndarray] | None = None,
) -> Iterator[Progress | Result]:
    """Train one run a seed, reporting about twice a second; the last thing yielded is the ``Result``.

    As ``recollect.training.batch.train_iter`` for this agent, ``state`` included; the agent's learning rate, discount,
    entropy, decay and epsilon may be arrays with one entry a seed. The first parameters are those of ``agent.init``.
    Runs do not depend on each other: a seed's results are the same bits whatever the other seeds are.
    """
    if not differs_only_in(agent, KNOWN, {}):
        raise ValueError(f"the compiled baseline knows these options: {', '.join(sorted(KNOWN))}; got {agent}")
    if episodes < 1 or bins < 1 or episodes % bins:
        raise ValueError(f"episodes={episodes} must be a positive multiple of bins={bins}")
    seeds = tuple(operator.index(seed) for seed in seeds)
    if not seeds:
        raise ValueError("seeds must hold at least one")
    size = episodes // bins
    if state is None:
        sizes = env.observation_size, env.num_actions
        theta = np.stack([flatten(first_parameters(agent, jax.random.key(seed), *sizes)) for seed in seeds])
        runs = recurrent.start(agent, env, seeds, theta, bins)
    else:
        saved = trees.restore(state, state_like(agent, env, len(seeds), bins))
        runs = recurrent.Runs(**{name: array.copy() for name, array in saved.items()})
    engine = recurrent.Engine(agent, env, (episodes, size, max_steps), _settings(agent, len(seeds)))
    nothing = np.full((len(seeds), bins, 1, env.observation_size), np.nan)

    def curves() -> tuple[np.ndarray, np.ndarray]:
        complete = np.arange(1, bins + 1) * size <= runs.ints[:, recurrent.EPISODE, None]
        means = np.where(complete[..., None], runs.sums / size, np.nan)
        return means[..., 0], means[..., 1]

    def snapshot() -> dict[str, np.ndarray]:
        return {name: array.copy() for name, array in runs._asdict().items()}

    recent = np.ones(len(seeds))  # steps an episode
    steps = FIRST_STEPS
    while (going := engine.going(runs)).any():
        # Runs with episodes of about one length share a block, whose loops are as long as the longest.
        columns = np.flatnonzero(going)
        before = runs.ints[:, [recurrent.STEPS, recurrent.EPISODE]].copy()
        engine.advance(runs, columns[np.argsort(recent[columns], kind="stable")], steps)
        steps = min(max(int(SECONDS / engine.pace), steps // 4, 1), 4 * steps)
        _refuse_faults(env, seeds, runs.ints[:, recurrent.FAULT])
        done = runs.ints[:, recurrent.EPISODE].copy()
        taken, more = (runs.ints[:, [recurrent.STEPS, recurrent.EPISODE]] - before).T
        recent = taken / (more + 1)
        returns, lengths = curves()
        new = [
            {
                "seed": seed,
                "episodes": (b + 1) * size,
                "return": returns[run, b].item(),
                "length": lengths[run, b].item(),
                "write_weights": [math.nan] * 2,
                "query_vectors": nothing[run, b].tolist(),
            }
            for run, seed in enumerate(seeds)
            for b in range(before[run, 1] // size, done[run] // size)
        ]
        last = [returns[run, k - 1] for run, k in enumerate(done // size) if k]
        total = runs.ints[:, recurrent.STEPS]
        recent_return = float(np.mean(last)) if last else math.nan
        yield Progress(int(total.max()), int(total.sum()), done, new, recent_return, snapshot)
    returns, lengths = curves()
    yield Result(
        seeds=seeds,
        episodes=size * np.arange(1, bins + 1),
        returns=returns,
        lengths=lengths,
        write_weights=np.full((len(seeds), bins, 2), np.nan),
        query_vectors=nothing,
        steps=runs.ints[:, recurrent.STEPS].copy(),
        finished=runs.ints[:, recurrent.EPISODE] >= episodes,
        agent_states=unflatten(runs.theta, env.observation_size, agent.width, env.num_actions),
    )


def train(
    agent: RecurrentActorCritic, env: SecretInformant, episodes: int, seeds: Sequence[int], **options: Any
) -> Result:
    """As ``train_iter``, to the end."""
    *_, result = train_iter(agent, env, episodes, seeds, **options)
    assert isinstance(result, Result)
    return result


def _refuse_faults(env: SecretInformant, seeds: Sequence[int], faults: np.ndarray) -> None:
    if faults.any():
        at = int(np.argmax(faults != 0))
        raise RecollectError(f"seed {seeds[at]}: the update was not finite at step {faults[at]:,} of {env!r}")
