"""examples/torch_actor_critic.py: its updates are those of the JAX agent, and it learns."""

import importlib.util
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pytorch.trained import drawn_from
from recollect import EpisodicActorCritic, prng
from recollect.engines.host import TimeStep

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0")
from_torch = pytest.importorskip("recollect.torch")

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def example():
    return load("torch_actor_critic")


def layers_of(module):
    return [part for part in module.modules() if isinstance(part, torch.nn.Linear)]


def put(module, layers, dtype):
    for linear, layer in zip(layers_of(module), layers, strict=True):
        linear.weight.data = torch.tensor(np.array(layer.weight), dtype=dtype)
        linear.bias.data = torch.tensor(np.array(layer.bias), dtype=dtype)


@jax.jit
def averaged(tree):
    """Every copy's leaf replaced by the mean over the copies."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf.mean(0), leaf.shape), tree)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "law", "estimator", "distinct", "surprise", "discount", "dtype"),
    [
        (3, "reservoir", "queried", False, 0.03, 0.99, torch.float64),
        (3, "reservoir", "queried", False, 0.03, 0.99, torch.float32),
        (2, "reservoir", "every", True, 0.3, 0.5, torch.float64),
        (4, "uniform", "queried", True, 0.0, 1.0, torch.float64),
    ],
)
def test_update_for_update_as_in_jax(example, n, law, estimator, distinct, surprise, discount, dtype):
    real = np.float64 if dtype == torch.float64 else np.float32
    close = {"rtol": 0, "atol": 1e-10 if dtype == torch.float64 else 1e-5}
    size, actions, copies, hidden, rate, entropy, steps = 4, 3, 3, 6, 0.05, 0.01, 40
    rng = np.random.default_rng(n)
    agent = EpisodicActorCritic(
        memory_size=n,
        hidden=hidden,
        memory=law,
        estimator=estimator,
        distinct=distinct,
        surprise=surprise,
        discount=discount,
        entropy=entropy,
        query_openness=1.0,
        learning_rate=rate,
        trace_decay=0.0,
        value_rate=1.0,
        query_rate=1.0,
        query_gain=2.0,
        write_gain=2.0,
        critic_start="random",
    )
    with jax.enable_x64(dtype == torch.float64):
        one = jax.tree.map(np.asarray, jax.jit(lambda: agent.init(prng.key(n), size, actions))())
        one = jax.tree.map(lambda x: x.astype(real) if x.dtype.kind == "f" else x, one)
        states = jax.tree.map(lambda x: np.stack([x] * copies), one)
        begin = jax.jit(jax.vmap(agent.begin))
        update = jax.jit(jax.vmap(agent.update))

        memory = from_torch.ReservoirMemory(
            size,
            n,
            hidden=hidden,
            law={"reservoir": "product"}.get(law, law),
            estimator=estimator,
            distinct=distinct,
            dtype=dtype,
        )
        ours = example.EpisodicActorCritic(size, actions, hidden, memory).to(dtype)
        for name, module in (("value", ours.value), ("policy", ours.policy)):
            put(module, getattr(one.params, name), dtype)
        put(memory.query, one.params.query, dtype)
        put(memory.write, one.params.write, dtype)
        memory.log_temperature.data = torch.tensor(np.array(one.params.temperature), dtype=dtype)
        optimizer = torch.optim.SGD(ours.parameters(), lr=rate)

        points = rng.normal(size=(6, size)).astype(real)
        x, state = points[rng.integers(6, size=copies)], memory.initial_state(copies)
        done = np.ones(copies, bool)
        for step in range(steps):
            keys = jax.random.split(prng.key(step), (2, copies))
            states, chosen = begin(states, x, keys[0])
            u = np.array(drawn_from(keys[0], 2))[:, :1]
            v = np.array(drawn_from(keys[1], n + 3, real))
            uniforms = torch.tensor(np.concatenate([u, v], 1), dtype=dtype)
            _, recalled, state, info = ours.act(torch.tensor(x), state, torch.tensor(done), uniforms)
            np.testing.assert_allclose(recalled, states.decision.recalled, **close)

            x_next, reward = points[rng.integers(6, size=copies)], rng.normal(size=copies).astype(real)
            terminated = rng.random(copies) < 0.1
            timestep = TimeStep(x_next, reward, terminated, np.zeros(copies, bool))
            states, finite = update(states, timestep, keys[1])
            assert bool(finite.all())
            states = states._replace(params=averaged(states.params))
            mean = jax.tree.map(np.asarray, states.params)

            chosen, terminated = torch.tensor(np.array(chosen)).long(), torch.tensor(terminated)
            told = (torch.tensor(reward), torch.tensor(x_next), terminated, discount, entropy, surprise)
            loss = ours.loss(torch.tensor(x), recalled, info, chosen, *told)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            x, done = x_next, terminated.numpy()

            modules = {"value": ours.value, "policy": ours.policy, "query": memory.query, "write": memory.write}
            for name, module in modules.items():
                for linear, layer in zip(layers_of(module), getattr(mean, name), strict=True):
                    np.testing.assert_allclose(linear.weight.detach(), layer.weight[0], **close)
                    np.testing.assert_allclose(linear.bias.detach(), layer.bias[0], **close)
            np.testing.assert_allclose(memory.log_temperature.detach(), mean.temperature[0], **close)


def test_it_is_under_300_lines():
    assert len((EXAMPLES / "torch_actor_critic.py").read_text().splitlines()) < 300


@pytest.mark.slow
def test_it_solves_a_short_maze(example):
    found = example.train(example.Args(length=3, envs=16, steps=60_000), report=lambda line: None)
    assert found["solved"], found
