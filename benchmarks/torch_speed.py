"""Steps per second in PyTorch on one task, the T-maze of 10, all in one run; ratios are what counts.

    python benchmarks/torch_speed.py                     # a few minutes; compiling takes most of them
    python benchmarks/torch_speed.py --device cuda --out benchmarks/torch-speed-gpu.json

The actor-critic of examples/torch_actor_critic.py, eager and compiled, at batches of 1, 64 and 1,024 environments (a
batched T-maze in NumPy, so that the agent is what is measured; its own cost is in the table too); Stable-Baselines3's
A2C and sb3-contrib's RecurrentPPO with their defaults on the Gymnasium environment, with 1 and 64 of them; recollect's
Learner; and what `recollect.wrappers.Recall` costs. Compiled and eager steps must give the same numbers, or this ends
with an error. On the CPU seconds are those of the process, which with one thread do not depend on what else the machine
does.
"""

import argparse
import importlib.util
import json
import platform
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import recollect
from recollect.envs.t_maze import CORRIDOR, JUNCTION, TMazeEnv
from recollect.torch import ReservoirMemory
from recollect.wrappers import Recall

LENGTH = 10


class BatchedMaze:
    """So many T-mazes in NumPy; ends are followed at once by the next episode's first observation."""

    def __init__(self, batch: int):
        self.rng, self.rows = np.random.default_rng(0), np.arange(batch)
        self.position, self.cue = np.zeros(batch, int), self.rng.integers(2, size=batch)

    def observe(self) -> np.ndarray:
        """[batch, 4] float32."""
        place = np.where(self.position == 0, self.cue, np.where(self.position <= LENGTH, CORRIDOR, JUNCTION))
        seen = np.zeros((len(place), 4), np.float32)
        seen[self.rows, place] = 1.0
        return seen

    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Observation, reward, whether the episode ended."""
        over = self.position == LENGTH + 1
        reward = np.where(over, np.where(action == self.cue, 1.0, -1.0), 0.0).astype(np.float32)
        self.position = np.where(over, 0, self.position + 1)
        self.cue = np.where(over, self.rng.integers(2, size=len(over)), self.cue)
        return self.observe(), reward, over


def example() -> Any:
    """examples/torch_actor_critic.py as a module."""
    path = Path(__file__).parents[1] / "examples" / "torch_actor_critic.py"
    spec = importlib.util.spec_from_file_location("torch_actor_critic", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["torch_actor_critic"] = module
    spec.loader.exec_module(module)
    return module


def seconds_on(device: str) -> float:
    """A clock: of the process where it does the work itself, of the wall where a GPU does."""
    if device == "cuda":
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


def pace(step: Callable[[], Any], each: int, seconds: float, device: str) -> float:
    """Steps per second of all environments: the best of three stretches."""

    def stretch(count: int) -> float:
        begun = seconds_on(device)
        for _ in range(count):
            step()
        return seconds_on(device) - begun

    stretch(3)
    count = max(1, int(seconds / max(stretch(3) / 3, 1e-5)))
    return each * count / min(stretch(count) for _ in range(3))


def actor_critic(batch: int, compiled: bool, device: str, seconds: float) -> dict[str, Any]:
    """The example's whole step: act, environment, loss, backward, Adam."""
    torch.manual_seed(0)
    memory = ReservoirMemory(4, 8, hidden=32, distinct=True)
    agent = example().EpisodicActorCritic(4, 2, 32, memory).to(device)
    optimizer = torch.optim.Adam(agent.parameters(), lr=0.003)
    torch.compiler.reset()
    act, loss_of = (torch.compile(agent.act), torch.compile(agent.loss)) if compiled else (agent.act, agent.loss)
    maze = BatchedMaze(batch)
    begun = time.perf_counter()
    current = {
        "x": torch.from_numpy(maze.observe()).to(device),
        "state": memory.initial_state(batch),
        "done": torch.ones(batch, dtype=torch.bool, device=device),
    }

    def step() -> None:
        x = current["x"]
        action, recalled, state, info = act(x, current["state"], current["done"])
        seen, reward, over = maze.step(action.cpu().numpy())
        x_next, ended = torch.from_numpy(seen).to(device), torch.from_numpy(over).to(device)
        paid = torch.from_numpy(reward).to(device)
        loss = loss_of(x, recalled, info, action, paid, x_next, ended, 0.97, 0.0003, 0.03)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        current.update(x=x_next, state=state, done=ended)

    step()
    compile_seconds = time.perf_counter() - begun
    found = pace(step, batch, seconds, device)
    return {
        "agent": f"actor-critic, {'compiled' if compiled else 'eager'}",
        "batch": batch,
        "steps_per_second": found,
    } | ({"first_step_seconds": round(compile_seconds, 1)} if compiled else {})


def check_compiled(device: str) -> None:
    """Compiled as the benchmark compiles it, the memory does what it does eager; the reservoir's sums among it."""
    torch.manual_seed(0)
    memory = ReservoirMemory(4, 8, distinct=True, forgetting=0.01).to(device)
    compiled = torch.compile(lambda x, state, done, u: memory(x, state, done, uniforms=u))
    state = other = memory.initial_state(64)
    for _ in range(200):
        x, u = torch.randn(64, 4, device=device).round(), torch.rand(64, memory.draws, device=device)
        done = torch.rand(64, device=device) < 0.02
        recalled, state, _ = memory(x, state, done, uniforms=u)
        again, other, _ = compiled(x, other, done, u)
        torch.testing.assert_close(again, recalled)
        torch.testing.assert_close(list(other), list(state), rtol=1e-5, atol=1e-5)


def environment_alone(batch: int, seconds: float) -> dict[str, Any]:
    """What the batched maze costs by itself."""
    maze, action = BatchedMaze(batch), np.zeros(batch, int)
    return {
        "agent": "(the batched maze alone)",
        "batch": batch,
        "steps_per_second": pace(lambda: maze.step(action), batch, seconds, "cpu"),
    }


def wrapper(seconds: float) -> list[dict[str, Any]]:
    """The Gymnasium maze by itself and in `Recall`, which learns: what the wrapper costs."""
    rows = []
    for name, env in (
        ("(the Gymnasium maze alone)", TMazeEnv(LENGTH)),
        ("maze in Recall", Recall(TMazeEnv(LENGTH), 8)),
    ):
        env.reset(seed=0)

        def step(env: Any = env) -> None:
            if env.step(0)[2]:
                env.reset()

        rows.append({"agent": name, "batch": 1, "steps_per_second": pace(step, 1, seconds, "cpu")})
    return rows


def rivals(envs: int, steps: int) -> list[dict[str, Any]]:
    """Stable-Baselines3's A2C and sb3-contrib's RecurrentPPO; nothing where they are not installed."""
    try:
        from sb3_contrib import RecurrentPPO
        from stable_baselines3 import A2C
        from stable_baselines3.common.vec_env import DummyVecEnv
    except ImportError:
        print("stable-baselines3 and sb3-contrib are not installed: left out", flush=True)
        return []
    rows = []
    for name, kind, policy in (("SB3 A2C", A2C, "MlpPolicy"), ("RecurrentPPO", RecurrentPPO, "MlpLstmPolicy")):
        venv = DummyVecEnv([lambda: TMazeEnv(LENGTH)] * envs)
        options = {"n_steps": 128} if name == "RecurrentPPO" and envs > 1 else {}
        agent = kind(policy, venv, device="cpu", seed=0, **options)
        agent.learn(envs * agent.n_steps)  # once through, so that nothing is made for the first time
        begun, before = seconds_on("cpu"), agent.num_timesteps
        agent.learn(max(steps, envs * agent.n_steps), reset_num_timesteps=False)
        found = (agent.num_timesteps - before) / (seconds_on("cpu") - begun)
        rows.append({"agent": name, "batch": envs, "steps_per_second": found})
    return rows


def learner(steps: int) -> dict[str, Any]:
    """The loop of recollect itself on the same environment, one agent, one core."""
    found = recollect.Learner(recollect.EpisodicActorCritic(memory_size=8), lambda: TMazeEnv(LENGTH), seed=0)
    with tempfile.TemporaryDirectory() as folder:
        found.learn(2000, folder=f"{folder}/run")
        begun = seconds_on("cpu")
        found.learn(steps)
        took = seconds_on("cpu") - begun
    return {"agent": "recollect.Learner, episodic", "batch": 1, "steps_per_second": steps / took}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 64, 1024])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--seconds", type=float, default=1.0, help="of a stretch; three of them per row")
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch on the CPU (default 1)")
    parser.add_argument("--skip-compiled", action="store_true", help="leave out what is compiled")
    parser.add_argument("--rival-envs", nargs="+", type=int, default=[1, 64], help="their environments (default 1 64)")
    parser.add_argument("--skip-rivals", action="store_true", help="leave out Stable-Baselines3 and Learner")
    parser.add_argument("--out", type=Path, help="write the rows as JSON")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(args.threads)
    rows: list[dict[str, Any]] = []
    about = {"device": args.device, "threads": args.threads, "torch": torch.__version__}
    about |= {"machine": platform.machine(), "python": platform.python_version(), "rows": rows}

    def add(*more: dict[str, Any]) -> None:
        for row in more:
            rows.append(row)
            print(f"{row['agent']:>28}  batch {row['batch']:>5}  {row['steps_per_second']:>12,.0f} steps/s", flush=True)
        if args.out is not None:  # after every row: what is cut short keeps what it has
            args.out.write_text(json.dumps(about, indent=1) + "\n")

    if not args.skip_compiled:
        print("compiled against eager ...", flush=True)
        check_compiled(args.device)
    for batch in args.batches:
        add(environment_alone(batch, args.seconds))
        add(actor_critic(batch, False, args.device, args.seconds))
        if not args.skip_compiled:
            add(actor_critic(batch, True, args.device, args.seconds))
    add(*wrapper(args.seconds))
    if not args.skip_rivals:
        for envs in args.rival_envs:
            add(*rivals(envs, int(4000 * args.seconds)))
        add(learner(int(20_000 * args.seconds)))
    base = next(row["steps_per_second"] for row in rows if row["agent"] == "actor-critic, eager")
    print(f"\n| agent | environments at once | steps/s | times eager at {args.batches[0]} |\n|---|--:|--:|--:|")
    for row in rows:
        ratio = row["steps_per_second"] / base
        print(f"| {row['agent']} | {row['batch']:,} | {row['steps_per_second']:,.0f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
