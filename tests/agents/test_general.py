"""The general agent: what it learns on probes, what it does not touch, and that its parts can be exchanged."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from recollect.agents import named, scaling
from recollect.agents.distributions import Gaussian, MultiCategorical
from recollect.agents.episode_memory import EpisodeMemory
from recollect.agents.general import GeneralActorCritic
from recollect.agents.networks import Layer, NormedNetwork, affine
from recollect.agents.optimizers import BoundedRMS, Optax
from recollect.agents.trace_units import TraceUnits
from recollect.envs.base import TimeStep

SMALL = GeneralActorCritic(
    memory_size=3,
    units=TraceUnits(units=3),
    network=NormedNetwork((8,)),
    query_network=NormedNetwork((4,)),
    write_network=NormedNetwork((4,)),
)
OBSERVATIONS, ACTIONS = 3, 2


def told(observation, reward=0.0, terminated=False, truncated=False):
    return TimeStep(
        jnp.asarray(observation, jnp.float32), jnp.asarray(reward), jnp.asarray(terminated), jnp.asarray(truncated)
    )


@functools.cache
def compiled(agent):
    """``init``, ``begin`` and ``update``, each one program per agent."""
    return (
        jax.jit(lambda key: agent.init(key, OBSERVATIONS, ACTIONS)),
        jax.jit(agent.begin),
        jax.jit(agent.update),
    )


def walk(agent, episodes, seed=0, learn=True):
    """Play scripted episodes, each a list of (observation, reward after it); returns the state after the last."""
    init, begin, update = compiled(agent)
    state, key = init(jax.random.key(seed)), jax.random.key(seed + 1)
    for episode in episodes:
        for t, (observation, reward) in enumerate(episode):
            key, key_begin, key_learn = jax.random.split(key, 3)
            state, _ = begin(state, jnp.asarray(observation, jnp.float32), key_begin)
            last = t == len(episode) - 1
            following = observation if last else episode[t + 1][0]
            if learn:
                state, finite = update(state, told(following, reward, terminated=last), key_learn)
                assert bool(finite)
            else:
                state = agent.watch(state, told(following, reward, terminated=last), key_learn)
    return state


FIRST, SECOND = [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]
TWO_STEPS = [(FIRST, 0.0), (SECOND, 4.0)]


@pytest.mark.slow
def test_values_of_every_horizon():
    """Two states, a reward of 4 after the second: V_k is 4 there and 4 γ_k before, in units of the returns' spread."""
    agent = dataclasses.replace(SMALL, critic_optimizer=BoundedRMS(0.01))
    state = walk(agent, [TWO_STEPS] * 400)
    _, begin, _ = compiled(agent)
    spread = scaling.deviation(state.scales.returns)
    np.testing.assert_allclose(spread, 2.0, rtol=0.05)  # of 0 and 4, alternating
    state, _ = begin(state, jnp.asarray(FIRST), jax.random.key(7))
    before = (
        agent.values(state.params.critic, state.decision.inputs, state.decision.reward, state.units.critic) * spread
    )
    np.testing.assert_allclose(before, 4 * np.array(agent.discounts), atol=0.5)


def test_a_mistake_that_is_repeated_surprises_once():
    """Episodes of the same observations that are rewarded or punished throughout: the first reward tells which."""
    agent = dataclasses.replace(SMALL, critic_optimizer=BoundedRMS(0.01), discounts=(0.5,))
    good, bad = ([(FIRST, reward)] * 4 for reward in (1.0, -1.0))
    state = walk(agent, [good if k % 3 else bad for k in range(150)])
    _, begin, update = compiled(agent)

    @jax.jit
    def error(state, timestep):
        v = agent.values(state.params.critic, state.decision.inputs, state.decision.reward, state.units.critic)
        return agent.td_errors(state, timestep, v, state.scales)[0]

    errors = []
    for _ in bad:
        state, _ = begin(state, jnp.asarray(FIRST), jax.random.key(1))
        timestep = told(FIRST, -1.0)
        errors.append(abs(float(error(state, timestep))))
        state, _ = update(state, timestep, jax.random.key(2), False)
    assert max(errors[1:]) < errors[0] / 3, errors


def test_the_memory_and_the_units_end_with_the_episode():
    agent = SMALL
    inside = walk(agent, [[(FIRST, 0.0), (SECOND, 0.0)], [(FIRST, 0.0)]][:1] * 2)
    assert int(inside.memory.count) == 0 and int(inside.time) == 0
    ended = (inside.units, inside.traces, inside.previous, inside.reward)
    assert not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(ended))
    init, begin, update = compiled(agent)
    state = init(jax.random.key(0))
    state, action = begin(state, jnp.asarray(FIRST), jax.random.key(1))
    state, _ = update(state, told(SECOND), jax.random.key(2))
    assert int(state.memory.count) == 1
    np.testing.assert_array_equal(state.memory.items.observation[0], FIRST)
    np.testing.assert_array_equal(state.previous, np.eye(ACTIONS)[int(action)])


@pytest.mark.slow
def test_watching_learns_nothing_and_remembers_the_same():
    agent = SMALL
    init, begin, update = compiled(agent)
    state, _ = begin(init(jax.random.key(0)), jnp.asarray(FIRST), jax.random.key(1))
    timestep, key = told(SECOND, 1.0), jax.random.key(2)
    watched = jax.jit(agent.watch)(state, timestep, key)
    learnt, _ = update(state, timestep, key)
    idle, _ = update(state, timestep, key, False)
    for name in ("params", "optimizers", "scales"):
        for before, after, still in zip(
            *(jax.tree.leaves(getattr(s, name)) for s in (state, watched, idle)), strict=True
        ):
            np.testing.assert_array_equal(before, after)
            np.testing.assert_array_equal(before, still)
    for a, b in zip(jax.tree.leaves(watched.memory), jax.tree.leaves(learnt.memory), strict=True):
        np.testing.assert_array_equal(a, b)


REWARDS = {"reward": np.nan, "a reward whose square is too large": 1e25}


@pytest.mark.parametrize("fault", ["reward", "observation", "next", "a reward whose square is too large"])
def test_nothing_that_is_not_finite_reaches_the_parameters(fault):
    agent = SMALL
    init, begin, update = compiled(agent)
    seen = [np.nan, 0.0, 0.0] if fault == "observation" else FIRST
    state, _ = begin(init(jax.random.key(0)), jnp.asarray(seen, jnp.float32), jax.random.key(1))
    following = [np.inf, 0.0, 0.0] if fault == "next" else SECOND
    after, finite = update(state, told(following, REWARDS.get(fault, 1.0)), jax.random.key(2))
    if fault != "next":  # a value at infinity is that of the farthest observation; the state after it is refused
        assert not bool(finite)
    for leaf in jax.tree.leaves(
        (after.params, after.optimizers, after.scales, after.traces, after.returns, after.reward)
    ):
        assert np.isfinite(np.asarray(leaf)).all()
    assert np.isfinite(np.asarray(after.memory.items.observation)).all()


class Line:
    """A network of the user's own: one affine layer."""

    def init(self, key, inputs, outputs, gain=1.0):
        return Layer(gain * jax.random.normal(key, (outputs, inputs)), jnp.zeros(outputs))

    def apply(self, layer, x):
        return affine(layer, x)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"network": Line(), "query_network": Line(), "write_network": Line(), "discounts": (0.9,)},
        {
            "critic_optimizer": Optax(optax.rmsprop(1e-3)),
            "actor_optimizer": Optax(optax.sgd(1e-3)),
            "memory": EpisodeMemory("fifo", None),
        },
        {"units": TraceUnits(units=0)},
        {"units": TraceUnits(units=0), "memory": EpisodeMemory("none")},
    ],
    ids=["networks, one horizon", "optax, fifo", "no units", "memoryless"],
)
def test_parts_can_be_exchanged(changes):
    agent = dataclasses.replace(SMALL, **changes)
    before = compiled(agent)[0](jax.random.key(0)).params
    after = walk(agent, [TWO_STEPS] * 2).params
    for part in (lambda p: p.critic.network, lambda p: p.actor.policy):
        leaves = zip(jax.tree.leaves(part(before)), jax.tree.leaves(part(after)), strict=True)
        assert any(bool((a != b).any()) for a, b in leaves)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("actions", "outputs", "features"), [(MultiCategorical((2, 3)), 5, 5), (Gaussian(2), 4, 2)], ids=["multi", "box"]
)
def test_other_actions(actions, outputs, features):
    agent = dataclasses.replace(SMALL, actions=actions)
    state = agent.init(jax.random.key(0), OBSERVATIONS, outputs)
    state, action = jax.jit(agent.begin)(state, jnp.asarray(FIRST), jax.random.key(1))
    state, finite = jax.jit(agent.update)(state, told(SECOND, 1.0), jax.random.key(2))
    assert bool(finite) and state.previous.shape == (features,)
    assert action.shape == actions.nothing().shape


def test_agents_are_described_and_made_again():
    for name in ("general", "trace-units", "reservoir", "memoryless"):
        agent = named.make(name, memory_size=5, **{"actor_optimizer.rate": 0.25, "units.slowest": 99.0})
        assert agent.actor_optimizer.rate == 0.25 and agent.units.slowest == 99.0
        assert named.restore(named.describe(agent)) == agent
        assert named.name_of(agent) == name


def test_an_agent_with_memory_and_units_of_ones_own_has_a_name():
    class Units:
        """What is asked for, and no number of units."""

        init = start = see = advance = outputs = features = None

    class Memory:
        init = keys = write = None

    assert named.name_of(GeneralActorCritic(units=Units(), memory=Memory())) == "general"


def test_unknown_options_are_named():
    with pytest.raises(ValueError, match="general has no option 'hidden'; there are memory_size"):
        named.make("general", hidden=3)
    with pytest.raises(ValueError, match="memory of general has no option 'size'; there are law, radius"):
        named.make("general", **{"memory.size": 3})
    with pytest.raises(
        ValueError, match=r"memory=5: that is a part with options of its own, memory\.law, memory\.radius"
    ):
        named.make("general", memory=5)
    with pytest.raises(ValueError, match=r"general has no option 'memories\.law'"):
        named.make("general", **{"memories.law": "fifo"})


def test_a_part_of_ones_own_need_not_be_a_dataclass():
    class Still:
        def init(self, params):
            return ()

        def update(self, direction, traces, errors, state, params):
            return jax.tree.map(jnp.zeros_like, direction), state

    assert isinstance(named.make("general", actor_optimizer=Still()).actor_optimizer, Still)
    with pytest.raises(ValueError, match=r"part with options of its own, actor_optimizer\.rate"):
        named.make("general", actor_optimizer=0.1)


def test_a_part_of_ones_own_is_refused_by_name_when_it_is_to_be_made_again():
    described = named.describe(dataclasses.replace(SMALL, network=Line()))
    with pytest.raises(named.FileError, match="'Line' is none of this release's"):
        named.restore(described)


@pytest.mark.parametrize(
    "options",
    [
        {"memory_size": 0},
        {"memory_size": 10**6},
        *({"discounts": wrong} for wrong in ((), (1.5,), (None,), None, 0.9)),
        *(
            {"surprise": wrong}
            for wrong in (-1.0, None, "much", [0.1], {}, 1j, 10**400, np.array("much"), np.array(None))
        ),
        {"credit_cap": None},
        {"trace_decay": None},
    ],
)
def test_options_are_checked(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        GeneralActorCritic(**options)


class Unsteady:
    """A persistence of one's own that lacks a part."""

    def init(self): ...

    def observe(self, tried, kept, total): ...

    def chance(self, tried): ...


class Net:
    """What a network and an optimizer of one's own have."""

    def init(self, *given): ...

    def apply(self, params, x): ...

    def update(self, *given): ...


@dataclasses.dataclass
class Loose(Net):
    """Not frozen, and so not hashable."""


@dataclasses.dataclass(frozen=True)
class Sized(Net):
    """Hashable as what it holds is."""

    sizes: list


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"units": 3},
            r"^units=3 cannot .* has no init, .*; give TraceUnits\(units=16\), or an object of your own with",
        ),
        ({"memory": "fifo"}, r"^memory='fifo' .* give EpisodeMemory\(law='fifo'\)"),
        ({"memory": None}, "^memory=None"),
        ({"network": NormedNetwork}, "^network=.* it is a class, not an object; give NormedNetwork"),
        ({"actor_optimizer": 0.1}, r"^actor_optimizer=0.1 .* give BoundedRMS\(0.001\)"),
        ({"persistence": 0.0}, "^persistence="),
        ({"persistence": Unsteady()}, "^persistence=.* it has no share; give"),
        (
            {"network": Loose()},
            r"^network=.* must be hashable \(unhashable type: 'Loose'\): .*dataclass\(frozen=True\)",
        ),
        ({"network": Sized([8])}, r"^network=.* must be hashable \(unhashable type: 'list'\)"),
        ({"actor_optimizer": Loose()}, "^actor_optimizer=.* must be hashable"),
    ],
)
def test_what_is_no_part_is_refused(options, message):
    with pytest.raises(TypeError, match=message):
        GeneralActorCritic(**options)
