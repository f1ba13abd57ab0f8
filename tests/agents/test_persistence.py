"""How steady chance is: the formula by hand, what is taken more often, and how long numbers are kept."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.agents.general import GeneralActorCritic
from recollect.agents.networks import NormedNetwork
from recollect.agents.persistence import FADING, MANY, MOST, WORSE, Persistence, Tried
from recollect.agents.trace_units import TraceUnits
from recollect.envs.base import TimeStep

DEFAULT = Persistence()
observe = jax.jit(DEFAULT.observe)
chance = jax.jit(DEFAULT.chance)


def after(episodes):
    """What is known after episodes, each (whether numbers were kept, return)."""
    tried = DEFAULT.init()
    for kept, total in episodes:
        tried = observe(tried, jnp.asarray(bool(kept)), jnp.float32(total))
    return tried


def test_the_first_episode_has_fresh_numbers_and_the_second_either():
    assert float(chance(DEFAULT.init())) == 0.0
    assert float(chance(after([(False, 3.0)]))) == pytest.approx(0.5)


def test_the_formula_by_hand():
    """Returns from what was usual before; an episode weighs FADING to the power of how many of its way came since."""
    rng = np.random.default_rng(0)
    ways, totals = rng.random(60) < 0.4, 5 + rng.normal(size=60)
    totals = totals + 0.3 * ways
    usual = [np.average(totals[:t], weights=FADING ** np.arange(t)[::-1]) for t in range(1, 61)]
    more = np.concatenate([[0.0], totals[1:] - usual[:-1]])
    n, m, s = np.zeros(2), np.zeros(2), np.zeros(2)
    for way in (0, 1):
        own = more[ways == way]
        weights = FADING ** np.arange(len(own))[::-1]
        n[way], m[way] = weights.sum(), np.average(own, weights=weights)
        s[way] = np.average((own - m[way]) ** 2, weights=weights)
    tried = after(zip(ways, totals, strict=True))
    np.testing.assert_allclose(tried.usual, usual[-1], rtol=1e-5)
    np.testing.assert_allclose(tried.count, n, rtol=1e-5)
    np.testing.assert_allclose(tried.mean, m, rtol=1e-3)
    np.testing.assert_allclose(tried.variance, s, rtol=1e-3)
    z = (m[1] - m[0]) / np.sqrt((n @ s + (m[1] - m[0]) ** 2) / n.sum() * (1 / n).sum())
    np.testing.assert_allclose(DEFAULT.advantage(tried), z, rtol=1e-2)
    np.testing.assert_allclose(chance(tried), min(MOST, 1 / (1 + np.exp(-2 * (z - n[1] / MANY)))), rtol=1e-2)


def test_the_way_that_returns_more_is_taken_and_fresh_numbers_are_not_given_up():
    rng = np.random.default_rng(1)
    tried = after((k % 2, 1.0 * (k % 2) + 0.1 * rng.normal()) for k in range(60))
    assert float(chance(tried)) == pytest.approx(MOST)


def test_kept_numbers_that_returned_less_are_given_up_for_good():
    rng = np.random.default_rng(1)
    worse = [(k % 2, -1.0 * (k % 2) + 0.1 * rng.normal()) for k in range(60)]
    better = [(k % 2, 5.0 * (k % 2)) for k in range(200)]
    assert float(DEFAULT.advantage(after(worse))) < WORSE
    assert float(chance(after(worse))) == 0.0
    assert float(chance(after(worse + better))) == 0.0
    assert float(chance(after(better))) == pytest.approx(MOST)


def test_two_episodes_prove_little():
    """However far apart: z is 1 at most."""
    assert float(DEFAULT.advantage(after([(False, 0.0), (True, -100.0)]))) == pytest.approx(-1.0)
    assert float(chance(after([(False, 0.0), (True, -100.0)]))) > 0.1


def test_where_they_make_no_difference_kept_numbers_lose_the_benefit_of_the_doubt():
    """In half of the episodes at first, in one of eight once fifty or so have had them."""
    chances = [float(chance(after((k % 2, -500.0) for k in range(episodes)))) for episodes in (1, 20, 100, 600)]
    assert chances[0] == pytest.approx(0.5)
    assert chances == sorted(chances, reverse=True)
    assert chances[-1] == pytest.approx(1 / (1 + np.exp(2)), rel=1e-2)


def test_a_way_tried_long_ago_is_not_blamed_for_what_was_learned_since():
    """Both ways returned the same while both were tried; then returns rose while one was taken."""
    rng = np.random.default_rng(2)
    both = [(k % 2, 0.1 * rng.normal()) for k in range(20)]
    risen = [(True, 5.0 + 0.1 * rng.normal()) for _ in range(300)]
    assert 0.05 < float(chance(after(both + risen))) < 0.95


def test_a_return_too_large_for_numbers_is_left_out():
    tried = after([(False, 1.0), (True, 2.0)])
    for total in (1e30, -3e38, jnp.inf, jnp.nan):
        again = observe(tried, jnp.asarray(True), jnp.float32(total))
        assert all(np.array_equal(a, b) for a, b in zip(again, tried, strict=True))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.floats(-(2.0**120), 2.0**120, width=32)), max_size=8))
def test_chances_are_chances(episodes):
    assert 0.0 <= float(chance(after(episodes))) <= 1.0


@pytest.mark.parametrize("options", [{"share": -0.1}, {"share": 1.5}, {"share": "often"}])
def test_bad_options_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Persistence(**options)


SMALL = GeneralActorCritic(memory_size=2, units=TraceUnits(units=2), network=NormedNetwork((4,)))
ALWAYS = Tried(*(jnp.array(x) for x in ([50.0, 50.0], [0.0, 9.0], [1.0, 1.0], 0.0, 50.0, False)))
NEVER = ALWAYS._replace(mean=-ALWAYS.mean)


@functools.partial(jax.jit, static_argnums=(1, 3))
def numbers_of(tried, share, seed, length=200):
    """The numbers that the actions of an episode are drawn with, and whether they are kept."""
    agent = SMALL.replace(persistence=Persistence(share=share))
    state = agent.init(jax.random.key(0), 2, 2)._replace(tried=tried)
    step = TimeStep(jnp.zeros(2), jnp.zeros(()), jnp.zeros((), bool), jnp.zeros((), bool))

    def one(state, key):
        state, _ = agent.begin(state, jnp.zeros(2), key)
        return agent.watch(state, step, key), state.chance

    found = jax.lax.scan(one, state, jax.random.split(jax.random.key(seed), length))[1]
    return found.numbers[:, 0], found.kept


def kept_shares(tried, share):
    """Of ten episodes that keep numbers if ``tried`` says so, the share of steps whose number is the one before."""
    drawn = [numbers_of(tried, share, seed) for seed in range(10)]
    assert all(len(set(np.asarray(kept).tolist())) == 1 for _, kept in drawn)  # one way for an episode
    return [float(np.mean(numbers[1:] == numbers[:-1])) for numbers, _ in drawn]


def test_numbers_are_kept_for_their_share_of_steps():
    shares = kept_shares(ALWAYS, 0.9)
    assert np.mean([s for s in shares if s > 0]) == pytest.approx(0.9, abs=0.02)
    assert sum(s > 0 for s in shares) >= 7
    assert kept_shares(ALWAYS, 0.0) == [0.0] * 10
    assert sum(s > 0 for s in kept_shares(NEVER, 0.9)) <= 1


def test_an_episode_begins_with_fresh_numbers():
    """With share 1 an episode has one number, and the next another."""
    (first, _), (second, _) = (numbers_of(ALWAYS, 1.0, seed) for seed in (0, 1))
    assert len(set(np.asarray(first).tolist())) == 1 and first[0] != second[0]


def test_an_episode_is_counted_once_and_by_its_sum():
    agent = SMALL
    begin, update = jax.jit(agent.begin), jax.jit(agent.update)
    state = jax.jit(lambda key: agent.init(key, 2, 2))(jax.random.key(0))
    for t, (reward, ended, cut) in enumerate([(1.0, False, False), (2.5, True, False), (4.0, False, True)]):
        state, _ = begin(state, jnp.zeros(2), jax.random.key(t))
        state, _ = update(
            state, TimeStep(jnp.zeros(2), jnp.float32(reward), jnp.array(ended), jnp.array(cut)), jax.random.key(9 + t)
        )
        if t == 1:
            assert float(state.tried.usual) == 3.5
    np.testing.assert_allclose(state.tried.usual, (3.5 * FADING + 4.0) / (1 + FADING), rtol=1e-6)
    assert float(state.tried.episodes) == pytest.approx(1 + FADING)
    assert float(state.total) == 0.0
