"""PPO with a memory, in one file: `recollect.torch.ReservoirMemory` beside `nn.LSTM`, all else the same.

    python examples/torch_ppo_memory.py --memory reservoir                       # a T-maze with a corridor of 40
    python examples/torch_ppo_memory.py --memory lstm
    python examples/torch_ppo_memory.py --memory reservoir --env popgym-RepeatFirstEasy-v0
    python examples/torch_ppo_memory.py --memory none                            # for comparison

With the reservoir, what is recalled is part of the action: the ratio that PPO clips is that of π(a | x, m) Q(m | x),
and the write network gets the advantage times w/w_i. Its minibatches need no order in time; those of the LSTM are whole
rollouts of some environments, through which gradients are carried. Needs `pip install 'recollect[torch]'`.
"""

import argparse
import dataclasses
import time
from collections import deque
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from recollect.envs.making import make
from recollect.torch import Info, ReservoirMemory


@dataclasses.dataclass
class Args:
    """Every field is an option of the command line."""

    env: str = "recollect/TMaze-v0"
    """an id that `recollect envs` lists, with discrete actions"""
    length: int = 40
    """of the corridor or chain, for the environments of recollect"""
    memory: str = "reservoir"
    """reservoir, lstm or none"""
    memory_size: int = 16
    hidden: int = 64
    steps: int = 500_000
    """time steps at most, all environments together"""
    solved: float = 0.95
    """mean return of the last 100 episodes at which training ends"""
    envs: int = 16
    rollout: int = 128
    epochs: int = 4
    minibatches: int = 4
    learning_rate: float = 0.003
    discount: float = 0.99
    gae: float = 0.99
    clip: float = 0.2
    entropy: float = 0.003
    value_weight: float = 0.5
    max_gradient: float = 0.5
    seed: int = 0


def head(inputs: int, hidden: int, outputs: int, gain: float) -> nn.Sequential:
    """A network of one hidden layer, orthogonal at the start as in PPO everywhere."""
    layers = nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, outputs)
    for layer, scale in ((layers[0], 2**0.5), (layers[2], gain)):
        nn.init.orthogonal_(layer.weight, scale)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)


class ReservoirAgent(nn.Module):
    """Acts on the state and a recalled one. The critic sees the state alone, so that δ tells good recalls from bad."""

    def __init__(self, size: int, actions: int, args: Args):
        super().__init__()
        self.memory = ReservoirMemory(size, args.memory_size, hidden=args.hidden, distinct=True)
        self.policy = head(2 * size, args.hidden, actions, 0.01)
        self.value = head(size, args.hidden, 1, 1.0)

    def initial_state(self, batch: int) -> Any:
        """Empty memories."""
        return self.memory.initial_state(batch)

    def rows(self, state: Any, which: np.ndarray) -> Any:
        """Nothing: what was in memory at a step is in what ``step`` noted down."""
        return None

    def step(self, x: Tensor, state: Any, done: Tensor) -> tuple[Tensor, Tensor, Tensor, Any, tuple[Tensor, ...]]:
        """Action, its log-probability, value, next state, and what ``evaluate`` will want to know."""
        recalled, state, info = self.memory(x, state, done)
        pi = torch.distributions.Categorical(logits=self.policy(torch.cat([x, recalled], -1)))
        action = pi.sample()
        log_prob = pi.log_prob(action) + self.memory.scores(info).log_query
        return action, log_prob, self.value(x)[:, 0], state, (recalled, *info)

    def evaluate(
        self, x: Tensor, done: Tensor, action: Tensor, start: Any, known: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Log-probability, entropy, value and write credit of steps taken before; tensors are [time, env, ...]."""
        flat = [part.flatten(0, 1) for part in known]
        scores = self.memory.scores(Info(*flat[1:]))
        pi = torch.distributions.Categorical(logits=self.policy(torch.cat([x, known[0]], -1)))
        shape = action.shape
        log_prob = pi.log_prob(action) + scores.log_query.reshape(shape)
        entropy = pi.entropy() + scores.entropy.reshape(shape)
        return log_prob, entropy, self.value(x)[..., 0], scores.credit.reshape(shape)


class LSTMAgent(nn.Module):
    """Policy and critic on the output of an LSTM."""

    def __init__(self, size: int, actions: int, args: Args):
        super().__init__()
        self.hidden = args.hidden
        self.lstm = nn.LSTM(size, args.hidden)
        for name, parameter in self.lstm.named_parameters():
            nn.init.zeros_(parameter) if "bias" in name else nn.init.orthogonal_(parameter, 1.0)
        self.policy = head(args.hidden, args.hidden, actions, 0.01)
        self.value = head(args.hidden, args.hidden, 1, 1.0)

    def initial_state(self, batch: int) -> Any:
        """Zeros."""
        return torch.zeros(1, batch, self.hidden), torch.zeros(1, batch, self.hidden)

    def rows(self, state: Any, which: np.ndarray) -> Any:
        """The state of some environments."""
        return tuple(part[:, which] for part in state)

    def _run(self, x: Tensor, done: Tensor, state: Any) -> tuple[Tensor, Any]:
        """In as few stretches as the ends of episodes leave, each begun with what is carried into it."""
        begins = [t for t in range(len(x)) if t == 0 or done[t].any()]
        outputs = []
        for t, end in zip(begins, [*begins[1:], len(x)], strict=True):
            keep = (~done[t]).to(x.dtype)[None, :, None]
            output, state = self.lstm(x[t:end], (keep * state[0], keep * state[1]))
            outputs.append(output)
        return torch.cat(outputs), state

    def step(self, x: Tensor, state: Any, done: Tensor) -> tuple[Tensor, Tensor, Tensor, Any, tuple[Tensor, ...]]:
        """As ``ReservoirAgent.step``."""
        output, state = self._run(x[None], done[None], state)
        pi = torch.distributions.Categorical(logits=self.policy(output[0]))
        action = pi.sample()
        return action, pi.log_prob(action), self.value(output[0])[:, 0], state, ()

    def evaluate(
        self, x: Tensor, done: Tensor, action: Tensor, start: Any, known: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """As ``ReservoirAgent.evaluate``, through time from the rollout's first state."""
        output, _ = self._run(x, done, start)
        pi = torch.distributions.Categorical(logits=self.policy(output))
        return pi.log_prob(action), pi.entropy(), self.value(output)[..., 0], torch.zeros_like(pi.entropy())


class Memoryless(LSTMAgent):
    """The same networks on the state alone."""

    def __init__(self, size: int, actions: int, args: Args):
        super().__init__(size, actions, args)
        self.lstm, self.embed = nn.Identity(), nn.Sequential(nn.Linear(size, args.hidden), nn.Tanh())

    def _run(self, x: Tensor, done: Tensor, state: Any) -> tuple[Tensor, Any]:
        return self.embed(x), state


AGENTS = {"reservoir": ReservoirAgent, "lstm": LSTMAgent, "none": Memoryless}


def train(args: Args, report=print) -> dict:
    """Train until solved or out of steps; returns steps, seconds and the last mean return."""
    if args.memory not in AGENTS:
        raise SystemExit(f"--memory {args.memory}: choose one of {', '.join(AGENTS)}")
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    options = {"length": args.length} if args.env.startswith("recollect/") else {}
    makers = [lambda: gym.wrappers.FlattenObservation(make(args.env, **options)) for _ in range(args.envs)]
    envs = gym.vector.SyncVectorEnv(makers, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)
    agent = AGENTS[args.memory](envs.single_observation_space.shape[0], int(envs.single_action_space.n), args)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)

    x, state = torch.as_tensor(envs.reset(seed=args.seed)[0], dtype=torch.float32), agent.initial_state(args.envs)
    done = torch.ones(args.envs, dtype=torch.bool)
    returns, finished, steps, mean, solved = np.zeros(args.envs), deque(maxlen=100), 0, float("nan"), False
    begun = told = time.perf_counter()
    while steps < args.steps and not solved:
        start, steps_taken = state, []
        with torch.no_grad():
            for _ in range(args.rollout):
                action, log_prob, value, state, known = agent.step(x, state, done)
                x_next, reward, terminated, truncated, _ = envs.step(action.numpy())
                over = terminated | truncated
                steps_taken.append((x, done, action, log_prob, value, torch.as_tensor(reward).float(), known))
                x, done = torch.as_tensor(x_next, dtype=torch.float32), torch.as_tensor(over)
                steps += args.envs
                returns += reward
                finished.extend(returns[over])
                returns[over] = 0.0
            *_, last_value, _, _ = agent.step(x, state, done)
        xs, dones, actions, log_probs, values, rewards, knowns = zip(*steps_taken, strict=True)
        xs, dones, actions, log_probs, values, rewards = map(
            torch.stack, (xs, dones, actions, log_probs, values, rewards)
        )
        known = tuple(torch.stack(part) for part in zip(*knowns, strict=True))
        advantages = generalised_advantages(rewards, values, last_value, dones, done, args.discount, args.gae)
        targets = advantages + values

        for _ in range(args.epochs):
            for some in np.array_split(rng.permutation(args.envs), args.minibatches):
                log_prob, entropy, value, credit = agent.evaluate(
                    xs[:, some],
                    dones[:, some],
                    actions[:, some],
                    agent.rows(start, some),
                    tuple(p[:, some] for p in known),
                )
                advantage = advantages[:, some]
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                ratio = (log_prob - log_probs[:, some]).exp()
                clipped = ratio.clamp(1 - args.clip, 1 + args.clip)
                policy_loss = -torch.min(advantage * ratio, advantage * clipped).mean() - (advantage * credit).mean()
                value_loss = 0.5 * (value - targets[:, some]).pow(2).mean()
                loss = policy_loss + args.value_weight * value_loss - args.entropy * entropy.mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), args.max_gradient)
                optimizer.step()

        mean = float(np.mean(finished)) if finished else mean
        solved = len(finished) == finished.maxlen and mean >= args.solved
        if solved or time.perf_counter() - told > 2 or steps >= args.steps:
            told = time.perf_counter()
            report(f"{steps:>9,} steps  mean return {mean:6.3f}  {steps / (told - begun):8,.0f} steps/s")
    envs.close()
    return {"steps": steps, "seconds": time.perf_counter() - begun, "return": mean, "solved": solved}


def generalised_advantages(
    rewards: Tensor, values: Tensor, last_value: Tensor, dones: Tensor, done: Tensor, discount: float, gae: float
) -> Tensor:
    """[time, env]; ``dones[t]``: whether the state at t began an episode, ``done`` that after the last.

    An episode that was cut short counts as one that ended: those of the tasks above all end by themselves.
    """
    after = torch.cat([dones[1:], done[None]])
    next_values = torch.cat([values[1:], last_value[None]])
    going_on = (~after).float()
    deltas = rewards + discount * next_values * going_on - values
    found, running = torch.zeros_like(deltas), torch.zeros_like(last_value)
    for t in reversed(range(len(deltas))):
        running = deltas[t] + discount * gae * going_on[t] * running
        found[t] = running
    return found


def parse() -> Args:
    """The options as `Args`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for field in dataclasses.fields(Args):
        name = f"--{field.name.replace('_', '-')}"
        parser.add_argument(name, type=field.type, default=field.default, help=f"(default {field.default})")
    return Args(**vars(parser.parse_args()))


if __name__ == "__main__":
    torch.set_num_threads(1)  # tensors as small as these are slower on several, by far where others use the cores
    found = train(parse())
    verdict = "solved" if found["solved"] else "not solved"
    print(f"{verdict} after {found['steps']:,} steps, {found['seconds']:.0f} s; mean return {found['return']:.3f}")
