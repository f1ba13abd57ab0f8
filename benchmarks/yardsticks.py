"""What the online loop is measured beside: a scalar C loop, eager JAX, and PyTorch and Stable-Baselines3 if there."""

import importlib.util
import itertools
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from recollect.agents.episodic import EpisodicActorCritic
from recollect.engines import loop
from recollect.envs.secret_informant import SecretInformant


def c_loop(steps: int = 300_000, repeats: int = 3) -> dict[str, Any] | None:
    """The same agent as one plain scalar C loop on one core, the best of some runs; None without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    path = Path(__file__).parent / "online_loop.c"
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/online_loop"
        command = [compiler, "-O3", "-march=native", "-ffast-math", "-o", program, str(path), "-lm"]
        subprocess.run(command, check=True, capture_output=True)
        seconds = []
        for seed in range(repeats):
            arguments = [program, str(steps), "10", "2", "3", "10", str(seed)]
            done = subprocess.run(arguments, check=True, capture_output=True, text=True)
            seconds.append(float(done.stdout.split()[1]))
    best = min(seconds) / steps
    return {"engine": "C, one core", "runs": 1, "microseconds_a_step": best * 1e6, "steps_per_second": 1 / best}


def pytorch(steps: int = 200) -> dict[str, Any] | None:
    """The same update written plainly in PyTorch, one run; None where PyTorch is not installed."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch  # pyright: ignore[reportMissingImports]

    torch.manual_seed(0)
    env, n, h = SecretInformant(10, 2), 3, 10
    s, a = env.observation_size, env.num_actions

    def net(*sizes):
        layers = [[torch.nn.Linear(i, o), torch.nn.Tanh()] for i, o in itertools.pairwise(sizes)]
        return torch.nn.Sequential(*itertools.chain(*layers))[:-1]

    value, policy, query, write = net(s, h, 1), net(2 * s, h, h, a), net(s, h, s), net(s, h, 1)
    networks = torch.nn.ModuleList([value, policy, query, write])
    rows = torch.tensor(env.states)
    stored, log_weights = rows[1 : 1 + n].clone(), torch.full((n,), -0.7)
    begun = time.perf_counter()
    for t in range(steps):
        x, x_next = rows[t % len(rows)], rows[(t + 1) % len(rows)]
        reading = torch.distributions.Categorical(logits=stored @ torch.tanh(query(x)))
        slot = reading.sample()
        acting = torch.distributions.Categorical(logits=policy(torch.cat([x, stored[slot]])))
        action = acting.sample()
        v, v_next = torch.tanh(value(x))[0], torch.tanh(value(x_next))[0].detach()
        delta = float(t % 13 == 0) + 0.99 * v_next - v.detach()
        quotient = torch.exp(torch.nn.functional.logsigmoid(write(stored[slot]))[0] - log_weights[slot])
        score = v + reading.log_prob(slot) + acting.log_prob(action) + quotient
        networks.zero_grad()
        (delta * score).backward()
        with torch.no_grad():
            for p in networks.parameters():
                p += 0.005 * p.grad
            if t % 3 == 0:
                stored[t % n], log_weights[t % n] = x, torch.nn.functional.logsigmoid(write(x))[0]
    passed = (time.perf_counter() - begun) / steps
    return {"engine": "eager PyTorch", "runs": 1, "microseconds_a_step": passed * 1e6, "steps_per_second": 1 / passed}


def eager(steps: int = 10) -> dict[str, Any]:
    """The same step in JAX, one run, each operation dispatched by itself: not compiled as a whole."""
    agent, env = EpisodicActorCritic(), SecretInformant(10, 2)
    run = loop.start_run(agent, env, jnp.uint32(0), 10)
    limits = tuple(map(jnp.int32, (2**30, 2**30, 2**31 - 1, 2**31 - 1)))  # more than is played here
    run = loop.step_run(agent, env, run, *limits)  # the operations themselves are compiled here
    begun = time.perf_counter()
    for _ in range(steps):
        run = loop.step_run(agent, env, run, *limits)
    jax.block_until_ready(run.agent.params.temperature)
    passed = (time.perf_counter() - begun) / steps
    return {"engine": "eager JAX", "runs": 1, "microseconds_a_step": passed * 1e6, "steps_per_second": 1 / passed}


def a2c(env: str, hidden: int) -> Any:
    """Stable-Baselines3's A2C with two layers of ``hidden`` units, or None where it is not installed."""
    try:
        from stable_baselines3 import A2C  # type: ignore[import-not-found]
    except ImportError:
        return None
    return A2C("MlpPolicy", env, policy_kwargs={"net_arch": [hidden, hidden]}, device="cpu")
