"""A JAX environment of your own, and a thousand agents trained in it at once, each with its own seed."""

import dataclasses
import sys
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp

import recollect
from recollect.envs.base import TimeStep


class Place(NamedTuple):
    symbol: jax.Array
    t: jax.Array


@dataclasses.dataclass(frozen=True)
class Echo:
    """A symbol is shown; after ``wait`` blank steps, name it."""

    symbols: int = 2
    wait: int = 2

    @property
    def observation_size(self):
        return self.symbols + 1

    @property
    def num_actions(self):
        return self.symbols

    def reset(self, key):
        symbol = jax.random.randint(key, (), 0, self.symbols)
        return Place(symbol, jnp.int32(0)), jax.nn.one_hot(symbol, self.symbols + 1)

    def step(self, state, action, key):
        over = state.t == self.wait
        reward = jnp.where(over & (action == state.symbol), 1.0, 0.0)
        blank = jax.nn.one_hot(self.symbols, self.symbols + 1)
        return Place(state.symbol, state.t + 1), TimeStep(blank, reward, over, jnp.array(False))


def main(agents, episodes=2000):
    agent = recollect.EpisodicActorCritic(memory_size=2, hidden=8, learning_rate=0.02)
    begun = time.perf_counter()
    result = recollect.train(agent, Echo(), episodes, range(agents), bins=10, records_per_call=4)
    seconds = time.perf_counter() - begun
    solved = int((result.returns[:, -1] > 0.9).sum())
    print(f"{solved} of {agents} agents solved it; guessing gives .5, the mean is {result.returns[:, -1].mean():.3f}")
    steps = int(result.steps.sum())
    print(f"{steps:,} steps in {seconds:.1f} s with compiling: {steps / seconds:,.0f} a second ({result.engine})")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
