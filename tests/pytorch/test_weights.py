"""Weights between JAX, PyTorch, safetensors and ONNX."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import recollect
from recollect import EpisodicActorCritic, prng
from recollect.agents import named
from recollect.engines.host import TimeStep
from recollect.errors import FileError

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0")
rt = pytest.importorskip("recollect.torch")

AGENTS = {
    "plain": EpisodicActorCritic(memory_size=3),
    "all": EpisodicActorCritic(
        memory_size=4, products=5, distinct=True, critic_output="linear", activation="relu", temperature="softplus"
    ),
    "uniform": EpisodicActorCritic(memory_size=2, memory="uniform", activation="sigmoid", forgetting=0.1),
}


def started(agent, size=4, actions=3):
    state = agent.init(prng.key(1), size, actions)
    # Away from the start, where the critic's last layer is 0.
    noisy = jax.tree.map(lambda p: p + 0.3 * jax.random.normal(prng.key(2), p.shape), state.params)
    return state._replace(params=noisy)


@pytest.mark.parametrize("agent", AGENTS.values(), ids=AGENTS)
def test_the_module_acts_as_the_agent_does(agent):
    """Step for step on the same numbers, without learning: recalled states, logits, values, actions."""
    copies, n, rng = 5, agent.memory_size, np.random.default_rng(0)
    state = started(agent)
    policy = rt.EpisodicPolicy.from_agent(agent, state)
    states = jax.tree.map(lambda x: jnp.stack([x] * copies), state)
    begin, watch = jax.jit(jax.vmap(agent.begin)), jax.jit(jax.vmap(agent.watch))
    logits_of = jax.jit(jax.vmap(agent.policy_logits))
    value_of = jax.jit(jax.vmap(agent.value))
    points = rng.normal(size=(6, 4)).astype(np.float32)
    x, done, ours = points[:copies], np.ones(copies, bool), policy.memory.initial_state(copies)
    for t in range(40):
        keys = jax.random.split(prng.key(t), (2, copies))
        states, action = begin(states, x, keys[0])
        u = np.array(jax.vmap(lambda key: jax.random.uniform(key, (2,)))(keys[0]))
        v = np.array(jax.vmap(lambda key: jax.random.uniform(key, (n + 3,)))(keys[1]))
        uniforms = torch.tensor(np.concatenate([u[:, :1], v, u[:, 1:]], 1))
        step = policy(torch.tensor(x), ours, torch.tensor(done), uniforms=uniforms)
        np.testing.assert_allclose(step.recalled, states.decision.recalled, atol=1e-6)
        np.testing.assert_allclose(
            step.logits.detach(), logits_of(states.params, x, states.decision.recalled), atol=1e-5
        )
        np.testing.assert_allclose(step.value.detach(), value_of(states.params, x), atol=1e-5)
        np.testing.assert_array_equal(step.action, action)
        x_next, done = points[rng.integers(6, size=copies)], rng.random(copies) < 0.1
        timestep = TimeStep(x_next, np.zeros(copies, np.float32), done, np.zeros(copies, bool))
        states, ours, x = watch(states, timestep, keys[1]), step.state, x_next


@pytest.mark.parametrize("agent", AGENTS.values(), ids=AGENTS)
def test_out_and_in_again(agent, tmp_path):
    state = started(agent)
    policy = rt.EpisodicPolicy.from_agent(agent, state)
    path = rt.save_weights(tmp_path / "agent.safetensors", policy.weights(), note="a test")
    loaded = rt.load_weights(path)
    back = rt.from_torch(loaded, agent.init(prng.key(9), 4, 3))
    for a, b in zip(jax.tree.leaves(back.params), jax.tree.leaves(state.params), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    exact = rt.from_torch(rt.to_torch(state), agent.init(prng.key(9), 4, 3))
    for a, b in zip(jax.tree.leaves(exact.params), jax.tree.leaves(state.params), strict=True):
        np.testing.assert_array_equal(a, b)
    with torch.no_grad():
        policy.value[0].weight += 1.0
    moved = policy.into(state)
    np.testing.assert_allclose(moved.params.value[0].weight, np.asarray(state.params.value[0].weight) + 1, atol=1e-6)


@pytest.mark.parametrize("agent", [cls() for cls in named.CLASSES.values()], ids=named.CLASSES)
def test_weights_of_every_agent_go_out_and_in(agent):
    state, other = (agent.init(prng.key(seed), 3, 2) for seed in (0, 1))
    again = rt.from_torch(rt.to_torch(state), other)
    for a, b in zip(jax.tree.leaves(again.params), jax.tree.leaves(state.params), strict=True):
        np.testing.assert_array_equal(a, b)
    if not isinstance(agent, EpisodicActorCritic):
        with pytest.raises(TypeError, match=f"{type(agent).__name__} has none"):
            rt.EpisodicPolicy.from_agent(agent, state)


def test_what_does_not_fit_is_refused():
    agent = AGENTS["plain"]
    state = started(agent)
    weights = rt.to_torch(state)
    for change, message in (
        ({"value.0.weight": torch.zeros(2, 2)}, r"value.0.weight: expected float32\[10, 4\], got float32\[2, 2\]"),
        ({"value.0.weight": weights["value.0.weight"].double()}, "got float64"),
        ({"more": torch.zeros(1)}, "more: expected nothing"),
        ({"value.0.bias": torch.full((10,), float("nan"))}, "value.0.bias are not finite"),
    ):
        with pytest.raises(FileError, match=message):
            rt.from_torch({**weights, **change}, state)
    for option, message in (({"encoder": "projection"}, "encoder='projection'"), ({"memory": "none"}, "memory='none'")):
        other = agent.replace(**option)
        with pytest.raises(ValueError, match=f"{message} has no PyTorch form"):
            rt.EpisodicPolicy.from_agent(other, other.init(prng.key(0), 4, 3))


def test_a_damaged_file_is_refused(tmp_path):
    path = rt.save_weights(tmp_path / "w.safetensors", {"a": torch.arange(6.0).reshape(2, 3)})
    torch.testing.assert_close(rt.load_weights(path)["a"], torch.arange(6.0).reshape(2, 3))
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(FileError, match="damaged"):
        rt.load_weights(path)
    path.write_bytes(whole[:20])
    with pytest.raises(FileError, match="not a safetensors file"):
        rt.load_weights(path)
    with pytest.raises(FileError, match="is missing"):
        rt.load_weights(tmp_path / "none.safetensors")


def test_a_learners_normalisation_comes_along(tmp_path):
    learner = recollect.Learner(AGENTS["plain"], "CartPole-v1", seed=0, normalize_observations=True)
    learner.learn(steps=200, folder=tmp_path / "run", progress=False)
    policy = rt.EpisodicPolicy.from_learner(learner)
    x = np.array([1.0, -2.0, 0.1, 3.0], np.float32)
    normal = x.copy()
    learner.normalizer.observe(normal, 0, learn=False)
    step = policy(torch.tensor(x)[None], policy.memory.initial_state(1))
    params = learner.state().params
    np.testing.assert_allclose(step.value.item(), agent_value(learner.agent, params, normal), atol=1e-5)


def agent_value(agent, params, x):
    return float(agent.value(jax.tree.map(jnp.asarray, params), jnp.asarray(x)))


@pytest.mark.slow
def test_onnx_steps_as_the_module_does(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install recollect[onnx]")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed: pip install recollect[onnx]")
    agent = AGENTS["all"]
    policy = rt.EpisodicPolicy.from_agent(agent, started(agent))
    path = rt.export_onnx(policy, tmp_path / "agent.onnx")
    session = onnxruntime.InferenceSession(str(path))
    names = [output.name for output in session.get_outputs()]
    rng = torch.Generator().manual_seed(0)
    for batch in (1, 6):
        state = policy.memory.initial_state(batch)
        theirs = {name: np.zeros_like(part.numpy()) for name, part in state.state_dict().items()}
        for t in range(40):
            x = torch.randint(3, (batch, 4), generator=rng).float()
            done = torch.rand(batch, generator=rng) < (1.1 if t == 0 else 0.1)
            uniforms = torch.rand(batch, policy.draws, generator=rng)
            step = policy(x, state, done, uniforms=uniforms)
            state = step.state
            given = {"observation": x.numpy(), "done": done.numpy(), "uniforms": uniforms.numpy(), **theirs}
            out = dict(zip(names, session.run(None, given), strict=True))
            theirs = {name: out[f"next_{name}"] for name in theirs}
            np.testing.assert_array_equal(out["action"], step.action)
            np.testing.assert_array_equal(out["recalled"], step.recalled)
            np.testing.assert_array_equal(theirs["ranks"], state.ranks)
            np.testing.assert_allclose(out["logits"], step.logits.detach(), atol=1e-5)
            np.testing.assert_allclose(out["value"], step.value.detach(), atol=1e-5)


def test_the_page_runs(tmp_path, monkeypatch):
    """Every block of Python in docs/torch.md, in order."""
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "torch.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    assert len(blocks) == 3
    names: dict = {}
    for block in blocks:
        exec(block, names)
    assert names["step"].logits.shape == (1, 2)
    assert names["observation"].shape == (8,)
