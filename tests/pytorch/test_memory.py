"""ReservoirMemory against the JAX definition on the same random numbers, and what it refuses."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pytorch.trained import drawn_from
from recollect import EpisodicActorCritic, prng
from recollect.agents import memory as reading
from recollect.reservoir import kernel as definition

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0")
from_torch = pytest.importorskip("recollect.torch")
ReservoirMemory = from_torch.ReservoirMemory

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}
NAMES = {"product": "reservoir", "uniform": "uniform", "fifo": "fifo"}

# law, memory size, features, distinct, forgetting, estimator, credit cap, floor of log w, temperature
SETTINGS = [
    ("product", 3, 4, False, 0.0, "queried", 2.0, -np.inf, 1.0),
    ("product", 5, 3, True, 0.1, "every", 1.1, -0.9, 0.3),
    ("product", 1, 2, False, 0.5, "every", np.inf, -np.inf, 2.0),
    ("uniform", 4, 3, True, 0.0, "queried", np.inf, -2.0, 0.1),
    ("fifo", 2, 5, False, 0.0, "every", 1.5, -np.inf, 0.7),
]


def drawn(seed):
    """A setting at random."""
    rng = np.random.default_rng(seed)
    law, n, features = str(rng.choice(list(NAMES))), int(rng.integers(1, 9)), int(rng.integers(1, 7))
    forgetting = float(rng.choice([0.0, rng.exponential(0.3)])) if law == "product" else 0.0
    estimator, cap = str(rng.choice(["queried", "every"])), float(rng.choice([1.0 + rng.random(), np.inf]))
    floor, temperature = float(rng.choice([-np.inf, -3 * rng.random()])), float(np.exp(rng.normal()))
    return law, n, features, bool(rng.integers(2)), forgetting, estimator, cap, floor, temperature


def jax_parameters(memory):
    """The module's parameters as the JAX agent has them."""

    def layer(linear):
        return {
            "weight": jnp.asarray(linear.weight.detach().numpy()),
            "bias": jnp.asarray(linear.bias.detach().numpy()),
        }

    from recollect.agents.networks import Layer

    def network(module):
        return tuple(Layer(**layer(part)) for part in module if isinstance(part, torch.nn.Linear))

    return {
        "query": network(memory.query),
        "write": network(memory.write),
        "temperature": jnp.asarray(memory.log_temperature.detach().numpy()),
    }


def definition_step(agent, params, stored, x, over, keys, u_read, delta, openness):
    """One row by the functions of the JAX agent; also the gradient of what it climbs."""
    from recollect.agents.episodic import Parameters
    from recollect.agents.episodic import State as AgentState

    stored = definition.clear(stored, over)
    as_agent = functools.partial(Parameters, value=(), policy=())
    logits = agent._query_logits(as_agent(**params), x, stored)
    slot, recalled = reading.recall(logits, stored.items, u_read)

    def objective(parameters):
        parameters = as_agent(**parameters)
        logits = agent._query_logits(parameters, x, stored)
        if agent.estimator == "queried":
            log_w = agent.log_write_weight(parameters, stored.items[slot])
            given, counts = stored.log_weights[slot], stored.filled[slot]
        else:
            log_w = jax.vmap(agent.log_write_weight, (None, 0))(parameters, stored.items)
            given, counts = stored.log_weights, stored.filled
        credit = jnp.sum(
            jnp.where(counts, reading.credit(log_w, jnp.where(counts, given, log_w), agent.credit_cap), 0.0)
        )
        score = reading.log_query_probability(logits, slot) + credit
        return delta * score + openness * reading.query_entropy(logits), score

    (_, score), gradient = jax.value_and_grad(objective, has_aux=True)(params)
    state = AgentState(as_agent(**params), (), stored, (), (), None)
    return agent._write(state, x, keys), recalled, score, gradient


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_any_setting_is_step_for_step_as_in_jax(seed):
    follow_jax(drawn(seed), torch.float64)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TOLERANCE, ids=["float64", "float32"])
@pytest.mark.parametrize("setting", SETTINGS, ids=[f"{s[0]}-{s[1]}" for s in SETTINGS])
def test_step_for_step_as_in_jax(setting, dtype):
    follow_jax(setting, dtype)


def follow_jax(setting, dtype):
    law, n, features, distinct, forgetting, estimator, cap, floor, temperature = setting
    rng, batch, steps = np.random.default_rng(n), 4, 25
    real = np.float64 if dtype == torch.float64 else np.float32
    close = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
    torch.manual_seed(n)
    memory = ReservoirMemory(
        features,
        n,
        law=law,
        distinct=distinct,
        forgetting=forgetting,
        estimator=estimator,
        credit_cap=cap,
        log_weight_floor=floor,
        temperature=temperature,
        query_gain=2.0,
        write_gain=3.0,
        dtype=dtype,
    )
    agent = EpisodicActorCritic(
        memory_size=n,
        memory=NAMES[law],
        distinct=distinct,
        forgetting=forgetting,
        estimator=estimator,
        credit_cap=cap,
        log_weight_floor=floor,
    )
    optimizer = torch.optim.SGD(memory.parameters(), lr=0.05)
    # From few points, so that some come again and `distinct` has a say.
    points = rng.normal(size=(6, features)).astype(real)
    with jax.enable_x64(dtype == torch.float64):
        advance = jax.jit(jax.vmap(functools.partial(definition_step, agent), in_axes=(None, 0, 0, 0, 0, 0, 0, 0)))
        first = (
            definition.init(n, jnp.zeros(features, real))
            if law == "product"
            else definition.UNIFORM.init(n, jnp.zeros(features, real))
        )
        theirs = jax.tree.map(lambda leaf: jnp.stack([leaf] * batch), first)
        ours = memory.initial_state(batch)
        for step in range(steps):
            x = points[rng.integers(6, size=batch)]
            over, delta = rng.random(batch) < 0.1, rng.normal(size=batch).astype(real)
            openness = rng.random(batch).astype(real)
            keys = jax.random.split(prng.key(step), batch)
            u_read = rng.random(batch).astype(real)
            u_write = np.array(drawn_from(keys, n + 3, real))
            params = jax_parameters(memory)
            theirs, recalled, score, gradient = advance(params, theirs, x, over, keys, u_read, delta, openness)

            uniforms = torch.tensor(np.concatenate([u_read[:, None], u_write], axis=1))
            got, ours, info = memory(torch.tensor(x), ours, torch.tensor(over), uniforms=uniforms)
            np.testing.assert_allclose(got, recalled, **close)
            np.testing.assert_array_equal(ours.ranks, theirs.ranks)
            np.testing.assert_array_equal(ours.items, theirs.items)
            np.testing.assert_allclose(ours.log_weights, theirs.log_weights, **close)
            scores = memory.scores(info)
            np.testing.assert_allclose((scores.log_query + scores.credit).detach(), score, **close)
            optimizer.zero_grad()
            loss = memory.loss(torch.tensor(delta), info, entropy=torch.tensor(openness), reduction="sum")
            loss.backward()
            summed = jax.tree.map(lambda leaf: -np.asarray(leaf).sum(0), gradient)
            linears = [part for name in ("query", "write") for part in getattr(memory, name)]
            linears = [part for part in linears if isinstance(part, torch.nn.Linear)]
            for linear, layer in zip(linears, (*summed["query"], *summed["write"]), strict=True):
                np.testing.assert_allclose(linear.weight.grad, layer.weight, **close)
                np.testing.assert_allclose(linear.bias.grad, layer.bias, **close)
            np.testing.assert_allclose(memory.log_temperature.grad, summed["temperature"], **close)
            optimizer.step()  # stored weights are then those of older parameters


def small(**options):
    torch.manual_seed(0)
    return ReservoirMemory(2, 3, **options)


def test_scores_of_an_empty_memory_are_zero_and_their_gradients_finite():
    memory = small(estimator="every")
    recalled, _, info = memory(torch.randn(5, 2), memory.initial_state(5))
    assert recalled.tolist() == [[0.0, 0.0]] * 5
    scores = memory.scores(info)
    assert all(part.tolist() == [0.0] * 5 for part in scores)
    memory.loss(torch.ones(5), info, entropy=0.1).backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in memory.parameters())


def test_rows_do_not_touch_each_other():
    memory = small()
    rng = torch.Generator().manual_seed(0)
    x, uniforms = torch.randn(8, 3, 2, generator=rng), torch.rand(8, 3, memory.draws, generator=rng)
    done = torch.rand(8, 3, generator=rng) < 0.2
    together, alone = memory.initial_state(3), memory.initial_state(1)
    for t in range(8):
        many, together, _ = memory(x[t], together, done[t], uniforms=uniforms[t])
        one, alone, _ = memory(x[t, 1:2], alone, done[t, 1:2], uniforms=uniforms[t, 1:2])
        torch.testing.assert_close(many[1:2], one)
    torch.testing.assert_close([part[1:2] for part in together], list(alone))


def test_a_generator_makes_it_reproducible():
    memory = small()

    def run(seed):
        generator, state, recalled = torch.Generator().manual_seed(seed), memory.initial_state(2), []
        for t in range(20):
            got, state, _ = memory(torch.full((2, 2), float(t)), state, generator=generator)
            recalled.append(got)
        return torch.stack(recalled)

    assert torch.equal(run(1), run(1))
    assert not torch.equal(run(1), run(2))


def test_networks_of_ones_own_and_an_encoder_before_them():
    """The query's gradient reaches what made the state; nothing runs through what is stored."""
    encoder = torch.nn.Linear(5, 2)
    memory = ReservoirMemory(2, 3, query=torch.nn.Linear(2, 2), write=torch.nn.Linear(2, 1))
    state = memory.initial_state(4)
    for _ in range(3):
        recalled, state, info = memory(encoder(torch.randn(4, 5)), state)
    assert not recalled.requires_grad and not any(part.requires_grad for part in state)
    memory.loss(torch.ones(4), info).backward()
    for module in (encoder, memory.query, memory.write):
        assert float(module.weight.grad.abs().sum()) > 0


def test_a_state_that_is_not_finite_is_never_stored():
    memory = small()
    state = memory.initial_state(2)
    x = torch.tensor([[1.0, float("nan")], [1.0, 2.0]])
    _, state, info = memory(x, state)
    assert state.count.tolist() == [0, 1]
    assert info.log_weight[0] == -torch.inf


def test_parameters_and_memory_survive_a_state_dict(tmp_path):
    memory, other = small(), ReservoirMemory(2, 3)
    state = memory.initial_state(2)
    for _ in range(4):
        _, state, _ = memory(torch.randn(2, 2), state)
    torch.save({"memory": memory.state_dict(), "state": state.state_dict()}, tmp_path / "all.pt")
    found = torch.load(tmp_path / "all.pt", weights_only=True)
    other.load_state_dict(found["memory"])
    again = from_torch.State.from_state_dict(found["state"])
    x, uniforms = torch.randn(2, 2), torch.rand(2, memory.draws)
    torch.testing.assert_close(other(x, again, uniforms=uniforms), memory(x, state, uniforms=uniforms))


def test_half_a_rollout_scored_later_is_the_same():
    """As PPO does: infos stacked, shuffled, cut; the scores are those of each step."""
    memory = small()
    state, infos = memory.initial_state(4), []
    for _ in range(6):
        _, state, info = memory(torch.randn(4, 2), state)
        infos.append(info)
    flat = from_torch.Info(*(torch.cat(parts) for parts in zip(*infos, strict=True)))
    rows = torch.randperm(24)[:11]
    got = memory.scores(from_torch.Info(*(part[rows] for part in flat)))
    single = [memory.scores(info) for info in infos]
    for k, part in enumerate(got):
        torch.testing.assert_close(part, torch.cat([scores[k] for scores in single])[rows])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"law": "none"}, "choose one of 'product'"),
        ({"memory_size": 0}, "memory_size=0 must be"),
        ({"temperature": 0.0}, "temperature=0.0 must be"),
        ({"forgetting": -1.0}, "forgetting=-1.0 must be"),
        ({"estimator": "all"}, "choose one of 'queried', 'every'"),
        ({"credit_cap": 0.0}, "credit_cap=0.0 must be"),
        ({"log_weight_floor": 1.0}, "log_weight_floor=1.0 must be"),
        ({"hidden": 0}, "hidden=0 must be"),
        ({"query_gain": float("nan")}, "finite and at least 0"),
        ({"dtype": torch.bfloat16}, "float32 or torch.float64"),
    ],
)
def test_options_that_make_no_memory(options, message):
    with pytest.raises(ValueError, match=message):
        ReservoirMemory(2, **options)


def test_wrong_inputs_say_what_was_expected():
    memory = small()
    state, x = memory.initial_state(4), torch.zeros(4, 2)
    with pytest.raises(ValueError, match=r"x must be \[batch, 2\], got \[4, 3\]"):
        memory(torch.zeros(4, 3), state)
    with pytest.raises(ValueError, match=r"x must be \[batch, 2\], got \[2\]"):
        memory(torch.zeros(2), state)
    with pytest.raises(TypeError, match=r"x must be torch.float32.*got torch.float64"):
        memory(x.double(), state)
    with pytest.raises(ValueError, match=r"the state's items must be \[4, 3, 2\], got \[1, 3, 2\]"):
        memory(x, memory.initial_state(1))
    with pytest.raises(ValueError, match="one of another law than 'product'"):
        memory(x, small(law="fifo").initial_state(4))
    with pytest.raises(ValueError, match=r"done must be \[4\]"):
        memory(x, state, torch.zeros(4, 1))
    with pytest.raises(ValueError, match=r"uniforms must be \[4, 7\], got \[4, 6\]"):
        memory(x, state, uniforms=torch.rand(4, 6))
    with pytest.raises(ValueError, match="x is on meta but the module on cpu"):
        memory(x.to("meta"), state)
    _, _, info = memory(x, state)
    with pytest.raises(ValueError, match=r"delta must be \[4\]"):
        memory.loss(torch.zeros(4, 1), info)
    with pytest.raises(TypeError, match=r"delta must be torch\.float32 as info\.x is, got torch\.float64"):
        memory.loss(torch.zeros(4, dtype=torch.float64), info)
    with pytest.raises(ValueError, match=r"delta must be finite, but is not in rows \[1, 3\]"):
        memory.loss(torch.tensor([0.0, float("nan"), 1.0, float("inf")]), info)
    with pytest.raises(ValueError, match="choose one of 'mean'"):
        memory.loss(torch.zeros(4), info, reduction="max")
    with pytest.raises(ValueError, match=r"write must give one number per row.*got \[4, 2\]"):
        ReservoirMemory(2, 3, write=torch.nn.Linear(2, 2))(x, state)
    with pytest.raises(ValueError, match=r"query must give vectors like the states, \[4, 2\], got \[4, 3\]"):
        ReservoirMemory(2, 3, query=torch.nn.Linear(2, 3))(x, state)
    with pytest.raises(TypeError, match=r"query has parameters of torch\.float64, the memory is made with dtype=torch"):
        ReservoirMemory(2, 3, query=torch.nn.Linear(2, 2).double())
    with pytest.raises(TypeError, match=r"write must be an nn\.Module, got a function"):
        ReservoirMemory(2, 3, write=lambda x: x)


def test_what_is_no_tensor_no_state_or_a_damaged_one_is_refused():
    memory = small()
    state, x = memory.initial_state(4), torch.zeros(4, 2)
    _, _, info = memory(x, state)
    for error, message, call in (
        (TypeError, "x must be a tensor, got a ndarray", lambda: memory(x.numpy(), state)),
        (TypeError, "the state must be a State.*got a NoneType", lambda: memory(x, None)),
        (TypeError, "the state must be a State.*got a dict", lambda: memory(x, state.state_dict())),
        (TypeError, "done must be a tensor, got a list", lambda: memory(x, state, [True] * 4)),
        (ValueError, r"ranks must be \[4, 3\]", lambda: memory(x, state._replace(ranks=state.ranks[:, :1]))),
        (TypeError, r"ranks must be torch.int64", lambda: memory(x, state._replace(ranks=state.ranks.float()))),
        (TypeError, r"high must be torch.float32", lambda: memory(x, state._replace(high=state.high.double()))),
        (ValueError, "items is on meta but the module on cpu", lambda: memory(x, state.to("meta"))),
        (TypeError, "delta must be a tensor, got a float", lambda: memory.loss(1.0, info)),
        (ValueError, "delta is on meta but info.x on cpu", lambda: memory.loss(torch.zeros(4, device="meta"), info)),
        (ValueError, r"entropy must be \[4\]", lambda: memory.loss(torch.zeros(4), info, entropy=torch.ones(4, 1))),
        (ValueError, "entropy=nan must be a number, finite", lambda: memory.loss(x[:, 0], info, entropy=float("nan"))),
        (TypeError, "info must be the Info that forward returned", lambda: memory.loss(torch.zeros(4), None)),
        (ValueError, r"info.x must be \[4, 5\], got", lambda: ReservoirMemory(5).loss(torch.zeros(4), info)),
    ):
        with pytest.raises(error, match=message):
            call()


@pytest.mark.slow
def test_compiles_as_one_graph_and_equals_eager():
    """Without a break in the graph; by the backend that writes no code, which takes a minute. See `torch_speed.py`."""
    memory = small(distinct=True, forgetting=0.1)

    def step(x, state, done, uniforms, delta):
        recalled, state, info = memory(x, state, done, uniforms=uniforms)
        return recalled, state, memory.loss(delta, info, entropy=0.01)

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    rng = torch.Generator().manual_seed(0)
    state = other = memory.initial_state(16)
    for _ in range(12):
        x = torch.randint(3, (16, 2), generator=rng).float()
        done, delta = torch.rand(16, generator=rng) < 0.1, torch.randn(16, generator=rng)
        uniforms = torch.rand(16, memory.draws, generator=rng)
        recalled, state, loss = step(x, state, done, uniforms, delta)
        got, other, same = compiled(x, other, done, uniforms, delta)
        torch.testing.assert_close(got, recalled)
        torch.testing.assert_close(list(other), list(state))
        torch.testing.assert_close(same, loss)
        gradients = [torch.autograd.grad(part, list(memory.parameters())) for part in (loss, same)]
        torch.testing.assert_close(*gradients)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_cuda_as_on_the_cpu():
    memory = small(distinct=True)
    there = small(distinct=True).to("cuda")
    state, other = memory.initial_state(8), there.initial_state(8)
    for _ in range(20):
        x, uniforms = torch.randint(4, (8, 2)).float(), torch.rand(8, memory.draws)
        recalled, state, info = memory(x, state, uniforms=uniforms)
        got, other, far = there(x.cuda(), other, uniforms=uniforms.cuda())
        torch.testing.assert_close(got.cpu(), recalled)
        delta = torch.randn(8)
        torch.testing.assert_close(there.loss(delta.cuda(), far).cpu(), memory.loss(delta, info))
