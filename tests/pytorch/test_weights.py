"""Weights between JAX, PyTorch and safetensors."""

import re
from pathlib import Path

import jax
import numpy as np
import pytest

from pytorch.trained import EPISODIC, started
from recollect import GeneralActorCritic, prng
from recollect.agents import named
from recollect.errors import FileError

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0")
rt = pytest.importorskip("recollect.torch")


@pytest.mark.parametrize("agent", EPISODIC.values(), ids=EPISODIC)
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


@pytest.mark.slow
@pytest.mark.parametrize("agent", [cls() for cls in named.CLASSES.values()], ids=named.CLASSES)
def test_weights_of_every_agent_go_out_and_in(agent):
    state, other = (agent.init(prng.key(seed), 3, 2) for seed in (0, 1))
    again = rt.from_torch(rt.to_torch(state), other)
    for a, b in zip(jax.tree.leaves(again.params), jax.tree.leaves(state.params), strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_does_not_fit_is_refused():
    agent = EPISODIC["plain"]
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


def test_weights_of_the_default_agent_come_with_its_scales():
    """Without them another state would see all observations in units of its own."""
    agent = GeneralActorCritic()
    init = jax.jit(lambda key: agent.init(key, 3, 2))
    state = init(prng.key(0))
    seen = state.scales.observation._replace(mean=np.full(3, 7.0, np.float32), count=np.float32(5))
    state = state._replace(scales=state.scales._replace(observation=seen))
    weights = rt.to_torch(state)
    assert weights["scales.observation.mean"].tolist() == [7.0] * 3
    again = rt.from_torch(weights, init(prng.key(1)))
    assert np.array_equal(again.scales.observation.mean, seen.mean) and again.scales.observation.count == 5
    del weights["scales.observation.mean"]
    with pytest.raises(FileError, match=r"scales.observation.mean: expected float32\[3\], got nothing"):
        rt.from_torch(weights, state)


def test_what_are_no_weights_is_refused(tmp_path):
    with pytest.raises(TypeError, match=r"agent_state must be what agent\.init .* got a NoneType"):
        rt.to_torch(None)
    with pytest.raises(TypeError, match="a must be a tensor, got a list"):
        rt.from_torch({"a": [1.0]}, started(EPISODIC["plain"]))
    with pytest.raises(TypeError, match="a must be a tensor, got a list"):
        rt.save_weights(tmp_path / "w.safetensors", {"a": [1.0]})


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


@pytest.mark.slow
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
