"""The paper's agent in PyTorch, in one file: an online actor-critic with `recollect.torch.ReservoirMemory`.

    python examples/torch_actor_critic.py                                   # a T-maze with a corridor of 10
    python examples/torch_actor_critic.py --length 40
    python examples/torch_actor_critic.py --env recollect/SecretInformant-v0

One update per step of all environments, no replay, no gradient through time. Needs `pip install 'recollect[torch]'`.
"""

import argparse
import dataclasses
import time
from collections import deque

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from recollect.envs.making import make
from recollect.torch import Info, ReservoirMemory, State


@dataclasses.dataclass
class Args:
    """Every field is an option of the command line."""

    env: str = "recollect/TMaze-v0"
    """an id that `recollect envs` lists, with discrete actions"""
    length: int = 10
    """of the corridor or chain, for the environments of recollect"""
    envs: int = 32
    """environments played at once; each has a memory of its own"""
    steps: int = 500_000
    """time steps at most, all environments together"""
    solved: float = 0.95
    """mean return of the last 200 episodes at which training ends"""
    memory_size: int = 8
    hidden: int = 32
    learning_rate: float = 0.003
    discount: float = 0.97
    entropy: float = 0.0003
    """weight of the policy's and of the query's entropy"""
    surprise: float = 0.1
    """weight of these entropies per unit of |δ|, on top: what still surprises is left open"""
    seed: int = 0
    device: str = "cpu"
    compile: bool = False
    """compile the step and the loss: slow to start, quick to run"""


class EpisodicActorCritic(nn.Module):
    """Critic V(x), policy π(a | x, m) and memory; m is the recalled state. The critic does not see m.

    Were the value to depend on what was recalled, δ could not tell a good recall from a bad one.
    """

    def __init__(self, observation_size: int, num_actions: int, hidden: int, memory: ReservoirMemory):
        super().__init__()
        s, h = observation_size, hidden
        self.value = nn.Sequential(nn.Linear(s, h), nn.Tanh(), nn.Linear(h, 1))
        self.policy = nn.Sequential(
            nn.Linear(2 * s, h), nn.Tanh(), nn.Linear(h, h), nn.Tanh(), nn.Linear(h, num_actions)
        )
        nn.init.zeros_(self.value[-1].weight)
        nn.init.zeros_(self.value[-1].bias)
        self.memory = memory

    def act(
        self, x: Tensor, state: State, done: Tensor, uniforms: Tensor | None = None
    ) -> tuple[Tensor, Tensor, State, Info]:
        """Recall, then draw actions; ``done``: where ``x`` begins an episode."""
        recalled, state, info = self.memory(x, state, done, uniforms=uniforms)
        with torch.no_grad():
            logits = self.policy(torch.cat([x, recalled], -1))
            action = torch.multinomial(logits.softmax(-1), 1)[:, 0]
        return action, recalled, state, info

    def loss(
        self,
        x: Tensor,
        recalled: Tensor,
        info: Info,
        action: Tensor,
        reward: Tensor,
        x_next: Tensor,
        terminated: Tensor,
        discount: float,
        entropy: float,
        surprise: float,
    ) -> Tensor:
        """The scores V, log π, log Q and w/w_i, each times δ; gradients of these are the paper's updates."""
        v = torch.tanh(self.value(x)[:, 0])
        with torch.no_grad():
            v_next = torch.where(terminated, 0.0, torch.tanh(self.value(x_next)[:, 0]))
            delta = reward + discount * v_next - v
            openness = entropy + surprise * delta.abs()
        log_pi = torch.log_softmax(self.policy(torch.cat([x, recalled], -1)), -1)
        log_action = log_pi.gather(-1, action[:, None])[:, 0]
        policy_entropy = -(log_pi.exp() * log_pi).sum(-1)
        own = -(delta * (v + log_action) + openness * policy_entropy).mean()
        return own + self.memory.loss(delta, info, entropy=openness)


def make_envs(args: Args) -> gym.vector.VectorEnv:
    """Environments whose observation after an end is the first of the next episode."""
    options = {"length": args.length} if args.env.startswith("recollect/") else {}
    makers = [lambda: gym.wrappers.FlattenObservation(make(args.env, **options)) for _ in range(args.envs)]
    return gym.vector.SyncVectorEnv(makers, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)


def train(args: Args, report=print) -> dict:
    """Train until solved or out of steps; returns steps, seconds and the last mean return."""
    torch.manual_seed(args.seed)
    envs = make_envs(args)
    size, actions = envs.single_observation_space.shape[0], int(envs.single_action_space.n)
    memory = ReservoirMemory(size, args.memory_size, hidden=args.hidden, distinct=True)
    agent = EpisodicActorCritic(size, actions, args.hidden, memory).to(args.device)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate)
    act, loss_of = (torch.compile(agent.act), torch.compile(agent.loss)) if args.compile else (agent.act, agent.loss)

    def tensor(array: np.ndarray) -> Tensor:
        return torch.as_tensor(array, device=args.device, dtype=torch.float32)

    x, state = tensor(envs.reset(seed=args.seed)[0]), memory.initial_state(args.envs)
    done = torch.ones(args.envs, dtype=torch.bool, device=args.device)
    returns, finished = np.zeros(args.envs), deque(maxlen=200)
    begun = told = time.perf_counter()
    steps, solved, mean = 0, False, float("nan")
    while steps < args.steps and not solved:
        action, recalled, state, info = act(x, state, done)
        x_next, reward, terminated, truncated, extra = envs.step(action.cpu().numpy())
        steps += args.envs
        over = terminated | truncated
        # Where an episode was cut short, the value of the state it was cut at counts, not that of the next's first.
        after = x_next.copy()
        for k in np.flatnonzero(truncated):
            after[k] = extra["final_obs"][k]
        ended = torch.as_tensor(terminated, device=args.device)
        loss = loss_of(
            x,
            recalled,
            info,
            action,
            tensor(reward),
            tensor(after),
            ended,
            args.discount,
            args.entropy,
            args.surprise,
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        x, done = tensor(x_next), torch.as_tensor(over, device=args.device)

        returns += reward
        finished.extend(returns[over])
        returns[over] = 0.0
        if finished:
            mean = float(np.mean(finished))
        solved = len(finished) == finished.maxlen and mean >= args.solved
        if solved or time.perf_counter() - told > 2 or steps >= args.steps:
            told = time.perf_counter()
            report(f"{steps:>9,} steps  mean return {mean:6.3f}  {steps / (told - begun):8,.0f} steps/s")
    envs.close()
    return {"steps": steps, "seconds": time.perf_counter() - begun, "return": mean, "solved": solved, "agent": agent}


def parse() -> Args:
    """The options as `Args`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for field in dataclasses.fields(Args):
        name = f"--{field.name.replace('_', '-')}"
        if field.type is bool:
            parser.add_argument(name, action=argparse.BooleanOptionalAction, default=field.default)
        else:
            parser.add_argument(name, type=field.type, default=field.default, help=f"(default {field.default})")
    return Args(**vars(parser.parse_args()))


if __name__ == "__main__":
    torch.set_num_threads(1)  # tensors as small as these are slower on several, by far where others use the cores
    found = train(parse())
    verdict = "solved" if found["solved"] else "not solved"
    print(f"{verdict} after {found['steps']:,} steps, {found['seconds']:.0f} s; mean return {found['return']:.3f}")
