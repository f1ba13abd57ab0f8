"""examples/torch_ppo_memory.py: what is evaluated is what was done, with each kind of memory, and training runs."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0")
pytest.importorskip("recollect.torch")

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("torch_ppo_memory", EXAMPLES / "torch_ppo_memory.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["torch_ppo_memory"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("memory", ["reservoir", "lstm", "none"])
def test_before_any_update_every_ratio_is_one(example, memory):
    """For some of the environments of a rollout, ends of episodes among it."""
    torch.manual_seed(0)
    agent = example.AGENTS[memory](3, 2, example.Args(memory_size=4, hidden=8))
    start = state = agent.initial_state(5)
    done, taken = torch.ones(5, dtype=torch.bool), []
    with torch.no_grad():
        for _ in range(20):
            x = torch.randint(3, (5, 3)).float()
            action, log_prob, value, state, known = agent.step(x, state, done)
            taken.append((x, done, action, log_prob, value, known))
            done = torch.rand(5) < 0.2
    xs, dones, actions, log_probs, values = (torch.stack(part) for part in list(zip(*taken, strict=True))[:5])
    known = tuple(torch.stack(part) for part in zip(*(step[5] for step in taken), strict=True))
    some = np.array([3, 0])
    parts = [part[:, some] for part in (xs, dones, actions)]
    log_prob, entropy, value, credit = agent.evaluate(*parts, agent.rows(start, some), tuple(k[:, some] for k in known))
    torch.testing.assert_close(log_prob, log_probs[:, some])
    torch.testing.assert_close(value, values[:, some])
    assert entropy.shape == credit.shape == (20, 2)
    if memory == "reservoir":
        held = known[4].any(-1)[:, some].float()  # whether anything was in memory
        torch.testing.assert_close(credit, held, msg="w/w_i is 1 while the parameters are those it was stored with")


def test_advantages_by_hand(example):
    rewards, values = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[0.5], [1.0], [2.0]])
    begins, after = torch.tensor([[True], [False], [True]]), torch.tensor([False])
    found = example.generalised_advantages(rewards, values, torch.tensor([4.0]), begins, after, 0.5, 0.5)
    last = 3.0 + 0.5 * 4.0 - 2.0
    middle = 2.0 - 1.0  # its episode ends: nothing of what follows
    first = 1.0 + 0.5 * 1.0 - 0.5 + 0.25 * middle
    assert found[:, 0].tolist() == [first, middle, last]


@pytest.mark.slow
@pytest.mark.parametrize("memory", ["reservoir", "lstm", "none"])
def test_it_trains(example, memory):
    args = example.Args(memory=memory, length=1, envs=4, rollout=8, steps=64, epochs=1, hidden=8)
    lines = []
    found = example.train(args, report=lines.append)
    assert found["steps"] == 64 and len(lines) >= 1
    assert np.isfinite(found["return"])


def test_it_is_under_300_lines():
    assert len((EXAMPLES / "torch_ppo_memory.py").read_text().splitlines()) < 300
