"""Trained agents as PyTorch modules, and as ONNX files, beside the agents themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import recollect
from pytorch.trained import EPISODIC, drawn_from, started
from recollect import EpisodicActorCritic, GeneralActorCritic, prng
from recollect.agents import named
from recollect.agents.distributions import Gaussian, MultiCategorical
from recollect.agents.episode_memory import EpisodeMemory
from recollect.agents.networks import NormedNetwork
from recollect.agents.trace_units import TraceUnits
from recollect.engines.host import TimeStep

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0")
rt = pytest.importorskip("recollect.torch")

AGENTS = {
    **EPISODIC,
    "default": GeneralActorCritic(),
    "general": GeneralActorCritic(
        memory_size=3,
        memory=EpisodeMemory("uniform", None),
        units=TraceUnits(5, slowest=20.0),
        network=NormedNetwork((8,)),
        discounts=(0.9,),
    ),
    "choices": GeneralActorCritic(memory_size=4, memory=EpisodeMemory("fifo"), actions=MultiCategorical((2, 3))),
}


def of_definition(agent, states):
    """Logits and values of the decision in each state, by the agent's own functions."""
    d = states.decision
    if isinstance(agent, EpisodicActorCritic):
        logits = jax.vmap(agent.policy_logits)(states.params, d.observation, d.recalled)
        return logits, jax.vmap(agent.value)(states.params, d.observation)

    def one(state):
        actor, units, own = state.params.actor, state.units, state.decision
        features = agent.units.outputs(actor.units, units.actor)
        logits = agent.policy_outputs(actor, own.inputs, features, own.recalled)
        return logits, agent.values(state.params.critic, own.inputs, own.reward, units.critic)

    return jax.vmap(one)(states)


QUICK = ("plain",)
CASES = [k if k in QUICK else pytest.param(k, marks=pytest.mark.slow) for k in AGENTS]


@pytest.mark.parametrize("name", CASES)
def test_the_module_acts_as_the_agent_does(name):
    """Step for step on the same numbers, without learning: recalled states, logits, values, actions."""
    agent = AGENTS[name]
    copies, n, rng = 5, agent.memory_size, np.random.default_rng(0)
    state = started(agent)
    policy = rt.Policy.from_agent(agent, state)
    states = jax.tree.map(lambda x: np.stack([x] * copies), state)
    begin, watch = jax.jit(jax.vmap(agent.begin)), jax.jit(jax.vmap(agent.watch))
    outputs_of = jax.jit(lambda states: of_definition(agent, states))
    points = rng.normal(size=(6, 4)).astype(np.float32)
    x, done, ours = points[:copies], np.ones(copies, bool), policy.initial_state(copies)
    reward = rng.normal(size=copies).astype(np.float32)
    for t in range(40):
        keys = jax.random.split(prng.key(t), (2, copies))
        states, action = begin(states, x, keys[0])
        keeps = isinstance(agent, GeneralActorCritic)  # the numbers that an action was drawn with
        u = np.array(drawn_from(keys[0], 1 + keeps + agent.actions.draws))
        v = np.array(drawn_from(keys[1], n + 3))
        uniforms = torch.tensor(np.concatenate([u[:, :1], v, u[:, 1:]], 1))
        seen = {"reward": torch.tensor(reward)} if policy.sees_rewards else {}
        step = policy(torch.tensor(x), ours, torch.tensor(done), uniforms=uniforms, **seen)
        np.testing.assert_allclose(step.recalled, states.decision.recalled, atol=1e-6)
        logits, value = outputs_of(states)
        np.testing.assert_allclose(step.logits.detach(), logits, atol=2e-5)
        np.testing.assert_allclose(step.value.detach(), value, atol=2e-5)
        np.testing.assert_array_equal(step.action, action)
        x_next, done = points[rng.integers(6, size=copies)], rng.random(copies) < 0.1
        reward = rng.normal(size=copies).astype(np.float32)
        timestep = TimeStep(x_next, reward, done, np.zeros(copies, bool))
        states, ours, x = watch(states, timestep, keys[1]), step.state, x_next
    assert all(not tensor.requires_grad for tensor in ours.state_dict().values())


@pytest.mark.parametrize("name", CASES)
def test_its_parameters_go_back(name):
    agent = AGENTS[name]
    state = started(agent)
    policy = rt.Policy.from_agent(agent, state)
    with torch.no_grad():
        next(policy.parameters()).add_(1.0)
    moved = policy.into(state)
    both = [jax.tree.leaves((s.params, getattr(s, "scales", None))) for s in (moved, state)]
    gaps = [float(np.max(np.abs(np.asarray(a) - b))) for a, b in zip(*both, strict=True)]
    assert sorted(gaps)[-1] == pytest.approx(1.0) and sorted(gaps)[-2] < 1e-6


@pytest.mark.slow
def test_a_state_goes_out_and_in():
    policy = rt.Policy.from_agent(AGENTS["default"], started(AGENTS["default"]))
    state = policy(torch.randn(2, 4), policy.initial_state(2)).state.to("cpu")
    again = rt.GeneralState.from_state_dict(state.state_dict())
    for a, b in zip(again.state_dict().values(), state.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    with pytest.raises(ValueError, match="the tensors units are missing"):
        rt.GeneralState.from_state_dict({k: v for k, v in state.state_dict().items() if k != "units"})


@pytest.mark.slow
@pytest.mark.parametrize("agent", [cls() for cls in named.CLASSES.values()], ids=named.CLASSES)
def test_every_agent_has_a_module_or_is_told_which_have(agent):
    state = jax.jit(lambda: agent.init(prng.key(0), 3, 2))()
    if isinstance(agent, (EpisodicActorCritic, GeneralActorCritic)):
        assert isinstance(rt.Policy.from_agent(agent, state), rt.Policy)
        return
    with pytest.raises(TypeError, match=r"has no Policy; agents that have: EpisodicActorCritic, GeneralActorCritic"):
        rt.Policy.from_agent(agent, state)
    with pytest.raises(TypeError, match=r"has no EpisodicPolicy; agents that have: EpisodicActorCritic$"):
        rt.EpisodicPolicy.from_agent(agent, state)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "message"),
    [
        (AGENTS["plain"].replace(encoder="projection"), "encoder='projection' has no PyTorch form; choices.*: 'raw'"),
        (AGENTS["plain"].replace(memory="none"), "memory='none' has no PyTorch form"),
        (AGENTS["default"].replace(memory=EpisodeMemory("none")), r"memory\.law='none' has no PyTorch form"),
        (AGENTS["default"].replace(actions=Gaussian(1)), "actions are .*Discrete and MultiDiscrete ones have"),
    ],
)
def test_what_has_no_form_is_refused(agent, message):
    with pytest.raises(ValueError, match=message):
        rt.Policy.from_agent(agent, jax.jit(lambda: agent.init(prng.key(0), 4, 2))())


def test_a_part_of_ones_own_is_refused():
    class Own(NormedNetwork):
        pass

    agent = GeneralActorCritic(network=Own((4,)))
    with pytest.raises(ValueError, match=r"network=.*Own.* has no PyTorch form; a NormedNetwork has"):
        rt.Policy.from_agent(agent, jax.jit(lambda: agent.init(prng.key(0), 4, 2))())


@pytest.mark.parametrize("name", ["plain", "default"])
def test_bad_input_is_refused(name):
    policy = rt.Policy.from_agent(AGENTS[name], started(AGENTS[name]))
    x, state, many = torch.zeros(2, 4), policy.initial_state(2), torch.rand(2, policy.draws)
    for error, message, arguments, options in (
        (ValueError, r"observation must be \[batch, 4\], got \[2, 5\]", (torch.zeros(2, 5), state), {}),
        (ValueError, r"observation must be \[batch, 4\], got \[4\]", (torch.zeros(4), state), {}),
        (TypeError, "observation must be torch.float32 as the module is, got torch.float64", (x.double(), state), {}),
        (TypeError, "observation must be a tensor, got a ndarray", (x.numpy(), state), {}),
        (ValueError, "observation is on meta but the module on cpu", (x.to("meta"), state), {}),
        (ValueError, r"the state's items must be \[3, .*got \[2, ", (torch.zeros(3, 4), state), {}),
        (ValueError, r"done must be \[2\].*got \[2, 1\]", (x, state, torch.zeros(2, 1)), {}),
        (ValueError, r"uniforms must be \[2, \d+\], got \[2, 1\]", (x, state), {"uniforms": torch.zeros(2, 1)}),
        (
            TypeError,
            "uniforms must be .* got torch.float64",
            (x, state),
            {"uniforms": many.double()},
        ),
        (ValueError, "is on meta but the module on cpu", (x, state.to("meta")), {}),
    ):
        with pytest.raises(error, match=message):
            policy(*arguments, **options)
    if name == "plain":
        with pytest.raises(ValueError, match="critic of EpisodicPolicy does not see rewards; leave it out"):
            policy(x, state, reward=torch.zeros(2))
    else:
        with pytest.raises(ValueError, match=r"reward must be \[2\], got \[2, 1\]"):
            policy(x, state, reward=torch.zeros(2, 1))
        with pytest.raises(TypeError, match="must be a GeneralState, initial_state's, got a State"):
            policy(x, state.memory)
    with pytest.raises(TypeError, match=r"export_onnx takes what Policy\.from_learner"):
        rt.export_onnx(AGENTS[name], "agent.onnx")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plain", "default"])
def test_a_learners_normalisation_comes_along(name, tmp_path):
    learner = recollect.Learner(AGENTS[name], "CartPole-v1", seed=0, normalize_observations=True)
    learner.learn(steps=200, folder=tmp_path / "run", progress=False)
    policy = rt.Policy.from_learner(learner)
    x = np.array([1.0, -2.0, 0.1, 3.0], np.float32)
    normal = x.copy()
    learner.normalizer.observe(normal, 0, learn=False)
    step = policy(torch.tensor(x)[None], policy.initial_state(1))
    fresh = jax.jit(lambda: learner.agent.init(prng.key(0), 4, 2))()
    kept = {name: getattr(learner.state(), name) for name in learner.agent.learned}
    begun, _ = jax.jit(learner.agent.begin)(
        fresh._replace(**jax.tree.map(jnp.asarray, kept)), jnp.asarray(normal), prng.key(0)
    )
    one = jax.tree.map(lambda leaf: leaf[None], begun)
    _, value = jax.jit(lambda states: of_definition(learner.agent, states))(one)
    np.testing.assert_allclose(step.value.detach(), value, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["all", "default"])
def test_onnx_steps_as_the_module_does(name, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install recollect[onnx]")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed: pip install recollect[onnx]")
    policy = rt.Policy.from_agent(AGENTS[name], started(AGENTS[name]))
    path = rt.export_onnx(policy, tmp_path / "agent.onnx")
    session = onnxruntime.InferenceSession(str(path))
    names = [output.name for output in session.get_outputs()]
    rng = torch.Generator().manual_seed(0)
    for batch in (1, 6):
        state = policy.initial_state(batch)
        theirs = {name: np.zeros_like(part.numpy()) for name, part in state.state_dict().items()}
        for t in range(40):
            x = torch.randint(3, (batch, 4), generator=rng).float()
            done = torch.rand(batch, generator=rng) < (1.1 if t == 0 else 0.1)
            uniforms = torch.rand(batch, policy.draws, generator=rng)
            seen = {"reward": torch.randn(batch, generator=rng)} if policy.sees_rewards else {}
            step = policy(x, state, done, uniforms=uniforms, **seen)
            state = step.state
            theirs |= {name: tensor.numpy() for name, tensor in seen.items()}
            given = {"observation": x.numpy(), "done": done.numpy(), "uniforms": uniforms.numpy(), **theirs}
            out = dict(zip(names, session.run(None, given), strict=True))
            theirs = {name: out[f"next_{name}"] for name in state.state_dict()}
            np.testing.assert_array_equal(out["action"], step.action)
            np.testing.assert_allclose(out["recalled"], step.recalled, atol=1e-6)
            np.testing.assert_array_equal(theirs["ranks"], state.state_dict()["ranks"])
            np.testing.assert_allclose(out["logits"], step.logits.detach(), atol=2e-5)
            np.testing.assert_allclose(out["value"], step.value.detach(), atol=2e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", ["plain", "default"])
def test_on_cuda_as_on_the_cpu(name):
    here, there = (rt.Policy.from_agent(AGENTS[name], started(AGENTS[name])).to(kind) for kind in ("cpu", "cuda"))
    state, other, rng = here.initial_state(6), there.initial_state(6), torch.Generator().manual_seed(0)
    for _ in range(30):
        x, u = torch.randn(6, 4, generator=rng), torch.rand(6, here.draws, generator=rng)
        done = torch.rand(6, generator=rng) < 0.1
        step, far = here(x, state, done, uniforms=u), there(x.cuda(), other, done.cuda(), uniforms=u.cuda())
        torch.testing.assert_close(far.logits.cpu(), step.logits, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(far.recalled.cpu(), step.recalled)
        state, other = step.state, far.state
