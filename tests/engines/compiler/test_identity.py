"""What is kept on disk of a step: found by what it was made from, never by less."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recollect import EpisodicActorCritic, SecretInformant
from recollect.agents.base import register
from recollect.agents.trace_units import TraceUnits
from recollect.engines import compiled, loop
from recollect.engines.compiled_host import CompiledHost
from recollect.engines.compiler import identity
from recollect.engines.compiler.program import Program, Step
from recollect.engines.host import RECENT, Host
from recollect.envs.continuing import Continuing
from recollect.envs.t_maze import TMaze

AGENT, ENV = EpisodicActorCritic(memory_size=2, hidden=4), TMaze(length=2)


@dataclasses.dataclass(frozen=True)
class Longer(TMaze):
    """A class that is not the library's own."""


def test_words_are_those_of_equal_definitions_and_of_no_others():
    same = EpisodicActorCritic(memory_size=2, hidden=4), TMaze(length=2)
    assert identity.words(*same) == identity.words(AGENT, ENV)
    others = [
        identity.words(AGENT.replace(hidden=5), ENV),
        identity.words(AGENT.replace(discount=0.5), ENV),
        identity.words(AGENT, TMaze(length=3)),
        identity.words(AGENT, SecretInformant(2, 2)),
        identity.words(AGENT, Continuing(ENV)),
        identity.words(AGENT, ENV, 1),
        identity.words(AGENT, ENV, 1.0),
        identity.words(AGENT, ENV, np.float32(1.0)),
        identity.words(AGENT, ENV, (TraceUnits(), "a")),
        identity.words(AGENT, ENV, (TraceUnits(), "b")),
    ]
    assert None not in others and len({identity.words(AGENT, ENV), *others}) == 11


def test_words_depend_on_the_settings_of_jax():
    with jax.default_matmul_precision("highest"):
        there = identity.words(AGENT)
    assert there != identity.words(AGENT)


@pytest.mark.parametrize("other", [Longer(length=2), object(), len, Continuing(Longer()), np.array([None])])
def test_what_is_not_the_librarys_own_has_no_words(other):
    assert identity.words(AGENT, other) is None


def test_words_are_of_every_source_of_the_library(monkeypatch):
    before = identity.sources()
    identity.sources.cache_clear()
    modules = identity._modules
    monkeypatch.setattr(identity, "_modules", lambda *a: [*modules(*a), ("agents/new.py", b"")])
    changed = identity.sources()
    identity.sources.cache_clear()
    assert changed != before
    found = {name for name, _ in modules(identity.resources.files("recollect"), "")}
    assert {"prng.py", "agents/td.py", "engines/compiler/plan.py", "engines/loop.py", "envs/t_maze.py"} <= found


def _untraced(state, x):
    raise AssertionError("traced")


def _step(state, x):
    return state + x, (state * 2, x > 0)


def test_a_step_with_words_is_not_traced_again(tmp_path, monkeypatch):
    monkeypatch.setenv("RECOLLECT_CACHE", str(tmp_path))
    like = np.float32(0)
    first = Program(Step(_step, like, (like,), "words"), 4)
    again = Program(Step(_untraced, like, (like,), "words"), 4)
    assert again.scratch == first.scratch and again.outputs.described() == first.outputs.described()
    assert again.outputs.described() == [("float32", ()), ("bool", ())]
    with pytest.raises(AssertionError, match="traced"):
        Program(Step(_untraced, like, (like,), "words"), 8)
    for file in tmp_path.iterdir():
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    with pytest.raises(AssertionError, match="traced"):
        Program(Step(_untraced, like, (like,), "words"), 4)


def test_what_cannot_be_compiled_is_not_remembered_as_if_it_could(tmp_path, monkeypatch):
    monkeypatch.setenv("RECOLLECT_CACHE", str(tmp_path))

    def step(state, x):
        return state + x * jnp.fft.fft(state).real, ()

    for _ in range(2):
        assert Step(step, np.zeros(4, np.float32), (np.float32(0),), "words").against


def test_runs_begin_alike_alone_and_in_company_and_as_xla_begins_them():
    seeds = np.arange(5, dtype=np.uint32)
    together = compiled.start(loop.rows(AGENT, 5), ENV, seeds, 3)
    alone = compiled.start(loop.rows(AGENT, 1), ENV, seeds[2:3], 3)
    wanted = loop.start(loop.broadcast(AGENT, 5), ENV, seeds, 3)
    for one, five, want in zip(*map(_numbers, (alone, together, wanted)), strict=True):
        assert one[0].tobytes() == five[2].tobytes()
        np.testing.assert_allclose(five, want, rtol=1e-6, atol=1e-7)


def _numbers(runs):
    return [np.asarray(x) for x in jax.tree.leaves(runs._replace(key=jax.random.key_data(runs.key)))]


@register
@dataclasses.dataclass(frozen=True)
class Odd(EpisodicActorCritic):
    """Begins, and is looked at, with what the compiler does not know."""

    def init(self, key, observation_size, num_actions):
        state = super().init(key, observation_size, num_actions)
        return state._replace(params=jax.tree.map(lambda x: x + _odd(), state.params))

    def write_weights(self, state, observations):
        return super().write_weights(state, observations) + _odd()


def _odd():
    return jnp.fft.fft(jnp.ones(2)).real.sum() - 2.0


def test_what_is_done_now_and_then_is_left_to_xla_where_it_cannot_be_compiled():
    agent, seeds = Odd(memory_size=2, hidden=4), np.arange(3, dtype=np.uint32)
    assert compiled.why_not(agent, ENV) is None and CompiledHost.why_not(agent, 4, 3) is None
    found, wanted = (
        compiled.start(loop.rows(agent, 3), ENV, seeds, 3),
        loop.start(loop.broadcast(agent, 3), ENV, seeds, 3),
    )
    for got, want in zip(_numbers(found), _numbers(wanted), strict=True):
        np.testing.assert_array_equal(got, want)
    hosts = Host(agent, 4, 3), CompiledHost(agent, 4, 3)
    rows = np.ones((1, RECENT, 4), np.float32)
    weights = [host.write_weights(host.start(np.uint32(1)), rows) for host in hosts]
    np.testing.assert_allclose(*weights, rtol=1e-5)
