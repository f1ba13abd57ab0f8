"""A recorded episode against the agent that played it."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recollect import EpisodicActorCritic, Learner
from recollect.agents import memory as agents_memory
from recollect.agents.episode_memory import EpisodeMemory
from recollect.agents.general import GeneralActorCritic
from recollect.agents.realtime import RealTimeActorCritic
from recollect.agents.recurrent import RecurrentActorCritic
from recollect.engines.host import keys_of
from recollect.envs.t_maze import TMazeEnv
from recollect.training import inspection
from recollect.training.player import Player
from recollect.view import episodes, stays
from recollect.view import format as recording
from training.probes import GENERAL, Const


def recorded(agent, monkeypatch=None, env="recollect/TMaze-v0", steps=300, **options):
    learner = Learner(agent, env, seed=3, env_options={"length": 12}, **options)
    learner.advance(steps)
    held = []
    if monkeypatch is not None:
        add = stays.Stays.add
        monkeypatch.setattr(stays.Stays, "add", lambda self, told: (held.append(told), add(self, told)))
    document = recording.check(episodes.record(learner, seed=5), "here")
    return learner, document, document["episodes"][0], held


class Last:
    """A memory of one's own, with what the agent asks of it and no more: the last states."""

    init, keys, write = EpisodeMemory("fifo", None).init, EpisodeMemory.keys, EpisodeMemory("fifo", None).write


def test_a_memory_of_ones_own_is_shown_without_what_it_cannot_say():
    agent = GeneralActorCritic(memory_size=2, memory=Last())
    learner, _, episode, _ = recorded(agent, steps=30, check=False)
    assert "write_chance" not in episode["memory"] and episode["memory"]["slots"] == 2
    assert inspection.play(learner, limit=3)[-1].items.shape[0] == 2


AGENTS = {
    "reservoir": {},
    "one slot": {"memory_size": 1},
    "fifo": {"memory": "fifo"},
    "written before reading": {"write": "before"},
    "distinct, forgetting": {"distinct": True, "forgetting": 0.1},
    "every state gets credit": {"estimator": "every"},
}


@pytest.mark.parametrize("name", ["reservoir", *(pytest.param(k, marks=pytest.mark.slow) for k in list(AGENTS)[1:])])
def test_stays_are_what_the_memory_held(monkeypatch, name):
    agent = EpisodicActorCritic(**{"memory_size": 3, **AGENTS[name]})
    _, _, episode, held = recorded(agent, monkeypatch)
    seen = recording.decode(episode["observation"])
    found = {k: recording.decode(v) for k, v in episode["memory"]["stays"].items()}
    assert episode["steps"] == len(held) == 14 and len(found["slot"]) >= (1 if name == "one slot" else 2)
    for t, told in enumerate(held):
        filled = np.asarray(told["filled"])
        here = (found["from"] <= t) & (t < found["until"])
        assert sorted(found["slot"][here]) == np.flatnonzero(filled).tolist()
        for at in np.flatnonzero(here):
            slot = found["slot"][at]
            np.testing.assert_array_equal(told["keys"][slot], seen[found["seen"][at]])
            assert told["log_weights"][slot] == np.float32(found["log_weight"][at])
            assert found["seen"][at] < t + (name == "written before reading")
        order = [found["seen"][here][np.argwhere(found["slot"][here] == s)[0, 0]] for s in np.argsort(told["order"])
                 if filled[s]]  # fmt: skip
        assert order == sorted(order) and len(set(order)) == len(order)


@pytest.mark.slow
def test_what_was_stored_before_the_episode_is_shown_by_its_key(monkeypatch):
    _, _, episode, held = recorded(EpisodicActorCritic(memory_size=3, reset_memory=False), monkeypatch)
    found = {k: recording.decode(v) for k, v in episode["memory"]["stays"].items()}
    before = np.flatnonzero(found["seen"] < 0)
    assert found["slot"][before].tolist() == [0, 1, 2] and not found["from"][before].any()
    np.testing.assert_array_equal(recording.decode(episode["memory"]["keys"])[before], held[0]["keys"])


class Still(gymnasium.Env):
    """Nothing ever changes: whatever is stored equals whatever it displaces."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 40
        return np.ones(2, np.float32), {}

    def step(self, action):
        self.left -= 1
        return np.ones(2, np.float32), 0.0, self.left == 0, False, {}


LAWS = [
    {"memory_size": 2, "memory": "uniform"},
    *({"memory_size": 1, **more} for more in ({}, {"memory": "fifo"}, {"write": "before"})),
]


@pytest.mark.slow
@pytest.mark.parametrize("options", LAWS)
def test_what_gives_way_to_its_equal_is_recorded_as_the_law_decided(monkeypatch, options):
    """A twin of the memory, shown the same weights under the same keys, whose items carry the step they came at."""
    agent = EpisodicActorCritic(**options)
    learner = Learner(agent, Still, seed=3)
    lives, live = [], Player.live
    monkeypatch.setattr(Player, "live", lambda self: lives.append(live(self)) or lives[-1])
    episode = episodes.record(learner, seed=5)["episodes"][0]
    found = {k: recording.decode(v) for k, v in episode["memory"]["stays"].items()}
    law, delay = agents_memory.LAWS[agent.memory], int(agent.write == "after")
    state = law.init(agent.memory_size, {"seen": jnp.zeros(2), "step": jnp.zeros((), jnp.int32)})
    weight = agent.log_write_weight(learner.state().params, jnp.ones(2))
    for t, now in enumerate(lives[1:]):  # the first is from before the episode
        if not delay:
            state = law.add(state, {"seen": jnp.ones(2), "step": jnp.int32(t)}, weight,
                            agents_memory.early_key(keys_of(now, now.time - 1)[1]))  # fmt: skip
        here = (found["from"] <= t) & (t < found["until"])
        held = dict(zip(found["slot"][here].tolist(), found["seen"][here].tolist(), strict=True))
        steps = np.asarray(state.items["step"]).tolist()
        assert held == {slot: steps[slot] for slot in np.flatnonzero(state.filled).tolist()}, t
        if delay:
            state = law.add(state, {"seen": jnp.ones(2), "step": jnp.int32(t)}, weight, keys_of(now, now.time)[0])
    assert len(found["slot"]) > agent.memory_size  # something did give way


def test_values_are_those_that_training_has():
    """The critic sees the last reward: δ is of the V that the next step shows."""
    learner = Learner(GENERAL, Const, check=False)
    learner.advance(300)
    episode = episodes.record(learner)["episodes"][0]
    value, delta = (recording.decode(episode[name]) for name in ("value", "delta"))
    assert np.ptp(value) > 0.01 and (recording.decode(episode["reward"]) == 1.0).all()
    np.testing.assert_allclose(delta, 1.0 + np.float32(0.99) * np.append(value[1:], 0.0) - value, atol=1e-4)


@pytest.mark.slow
def test_numbers_are_the_agents_own(monkeypatch):
    learner, _, episode, held = recorded(EpisodicActorCritic(memory_size=3, discount=0.9), monkeypatch)
    value, delta, reward = (recording.decode(episode[name]) for name in ("value", "delta", "reward"))
    following = np.append(value[1:], 0.0)
    np.testing.assert_allclose(delta, reward + np.float32(0.9) * following - value, atol=1e-6)
    memory = episode["memory"]
    shares, recalled = recording.decode(memory["probability"]), recording.decode(memory["recalled"])
    query, tau = recording.decode(memory["query"]), recording.decode(memory["temperature"])
    for t, told in enumerate(held):
        if not told["filled"].any():
            assert recalled[t] == -1 and shares[t].sum() == 0
            continue
        scores = np.where(told["filled"], told["keys"] @ query[t] / tau[t], -np.inf)
        np.testing.assert_allclose(shares[t], np.asarray(jax.nn.softmax(scores)), atol=1e-6)
        credit = recording.decode(memory["credit"])[t]
        quotient = np.exp(told["log_weights_now"][recalled[t]] - told["log_weights"][recalled[t]])
        np.testing.assert_allclose(credit, delta[t] * min(quotient, 2.0), rtol=1e-4, atol=1e-7)
        policies = recording.decode(memory["policies"])[t, recalled[t]]
        np.testing.assert_allclose(policies, recording.decode(episode["policy"])[t], atol=1e-6)
    assert learner.steps == episode["trained"] == 300


@pytest.mark.slow
def test_the_general_agent_shows_slots_ages_and_trace_units(monkeypatch):
    _, _, episode, held = recorded(GeneralActorCritic(memory_size=4), monkeypatch, steps=100)
    memory = episode["memory"]
    hidden = {part["name"]: recording.decode(part["values"]) for part in episode["hidden"]}
    assert set(hidden) == {"trace units", "V by horizon"}
    # In the rewards' own units, whatever those are that the agent learns in: what is expected can be seen to come.
    value, delta, reward = (recording.decode(episode[name]) for name in ("value", "delta", "reward"))
    following = np.append(value[1:], 0.0)
    longest = np.float32(GeneralActorCritic().discounts[-1])
    np.testing.assert_allclose(delta, reward + longest * following - value, atol=1e-5)
    np.testing.assert_array_equal(value, hidden["V by horizon"][:, 2])
    found = {k: recording.decode(v) for k, v in memory["stays"].items()}
    assert memory["key_names"][:4] == ["up", "down", "corridor", "junction"] and len(memory["key_names"]) == 13
    keys, now = recording.decode(memory["keys"]), recording.decode(memory["keys_changing"]["now"])
    elements = recording.decode(memory["keys_changing"]["elements"])
    shares, query = recording.decode(memory["probability"]), recording.decode(memory["query"])
    for t, told in enumerate(held):
        here = np.flatnonzero((found["from"] <= t) & (t < found["until"]))
        assert sorted(found["slot"][here]) == np.flatnonzero(told["filled"]).tolist()
        scores = np.full(4, -np.inf)
        for at in here:
            key = keys[at].copy()
            key[elements] = now[t, found["slot"][at]]
            np.testing.assert_allclose(key, told["keys"][found["slot"][at]], atol=1e-6)
            scores[found["slot"][at]] = key @ query[t]
        if len(here):  # so the page's q·S/τ by element adds up to what was drawn from
            np.testing.assert_allclose(shares[t], np.asarray(jax.nn.softmax(scores)), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("agent", [RecurrentActorCritic(width=6), RealTimeActorCritic(width=6)])
def test_agents_with_a_gru_show_their_hidden_state(agent):
    _, _, episode, _ = recorded(agent, steps=50)
    (hidden,) = episode["hidden"]
    values = recording.decode(hidden["values"])
    assert hidden["name"] == "GRU" and values.shape == (14, 6) and np.abs(values).max() <= 1
    assert np.unique(values.round(6), axis=0).shape[0] > 3 and "memory" not in episode


@pytest.mark.slow
def test_recording_leaves_the_learner_alone():
    one = Learner(EpisodicActorCritic(memory_size=2), "recollect/TMaze-v0", seed=1)
    two = Learner(EpisodicActorCritic(memory_size=2), "recollect/TMaze-v0", seed=1)
    for learner in (one, two):
        learner.advance(37)
        if learner is one:
            learner.view(seed=4)
        learner.advance(50)
    for a, b in zip(jax.tree.leaves(one.state()), jax.tree.leaves(two.state()), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_names_and_pictures_come_from_the_environment():
    _, document, episode, _ = recorded(EpisodicActorCritic(memory_size=2), steps=10)
    assert document["observation"]["names"] == ["up", "down", "corridor", "junction"]
    assert document["actions"]["names"] == ["turn up", "turn down"]
    assert episode["texts"][0].startswith(("[^]", "[v]")) and episode["texts"][-1].endswith("[T]")


@pytest.mark.slow
def test_a_factory_is_played_in_an_environment_of_its_own():
    made = []

    def make():
        made.append(TMazeEnv(length=2))
        return made[-1]

    learner = Learner(EpisodicActorCritic(memory_size=2), make)
    assert episodes.record(learner)["episodes"][0]["steps"] == 4
    assert len(made) >= 2


@pytest.mark.slow
def test_the_limit_cuts_the_episode():
    learner = Learner(EpisodicActorCritic(memory_size=2), "CartPole-v1")
    episode = episodes.record(learner, limit=5)["episodes"][0]
    assert episode["steps"] == 5 and episode["ended"] == "cut"
