"""The paper's agent on the secret informant with switches that cut one thing each, measured while it trains.

An update is `EpisodicActorCritic`'s own: its scores, its step. What the switches change is which network a state has,
which δ each network is given, and which of the new networks are kept. They are numbers, so that one compiled program
serves every intervention.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from recollect import prng
from recollect.agents import td
from recollect.agents.episodic import Decision, EpisodicActorCritic, Parameters, State
from recollect.engines.compiler.fleet import Fleet, lanes_for, over_blocks
from recollect.engines.compiler.program import Program, Step
from recollect.envs.secret_informant import FORWARD, SecretInformant
from recollect.reservoir import kernel

FORGETTING = 0.01  # weight of a new return in the exact critic's mean
SOURCES = 4  # kinds of state: start and chain, decisions before the last, the last on the path, the last off it


class Switches(NamedTuple):
    """What differs from the paper; the defaults are the paper's preset.

    ``exact``: 1, δ for policy, query and write from a critic without error at the decision states, V learns as before;
    2, in every state. The value of a decision state on the correct path is a running mean of the returns that followed
    it, from what knowing nothing gets; off the path it is 0. Start and chain, which all episodes pass, have the first
    decision's. ``most``: no policy update at a decision state that would take an action's probability up beyond it.
    ``divided``: a policy network of its own for decision states, at first the same. ``frozen``: no policy update
    in start and chain. ``divided_critic``: a value network of its own for decision states, at first the same.
    """

    discount: Any = 1.0
    learning_rate: Any = 0.005
    entropy: Any = 0.0
    exact: Any = 0
    most: Any = 1.0
    divided: Any = False
    frozen: Any = False
    divided_critic: Any = False


class Networks(NamedTuple):
    """All parameters, and the policy and value networks of decision states, where those are divided."""

    params: Parameters
    policy: Any
    value: Any


class Measures(NamedTuple):
    """What is counted in one window; see ``Record``."""

    episodes: Array
    rewards: Array
    rows: Array
    pushes: Array


class Run(NamedTuple):
    """One run under way."""

    key: Array
    step: Array
    networks: Networks
    memory: kernel.State
    env: Any
    row: Array  # of the present state
    exact: Array  # [decisions]: the exact critic's values on the path
    reached: Array  # [decisions]: whether the episode came there on the path
    measures: Measures


class Record(NamedTuple):
    """What was measured in each window; see ``summarise`` for ``policy``."""

    episodes: np.ndarray  # [run, window]: finished
    rewards: np.ndarray  # [run, window]: their sum
    rows: np.ndarray  # [run, window, row, 3]: visits, sum of V, sum of δ by V
    pushes: np.ndarray  # [run, window, SOURCES]: added there to the mean log-probability of FORWARD in the chain
    policy: np.ndarray  # [run, window, 4], at its end
    forward: np.ndarray  # [run, window, row]: the probability of FORWARD in start and chain states, at its end


def _where(condition: Any, yes: Any, no: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


def of(networks: Networks, deciding: Any, switches: Switches) -> Parameters:
    """The parameters that a state has."""
    policy = _where(jnp.logical_and(switches.divided, deciding), networks.policy, networks.params.policy)
    value = _where(jnp.logical_and(switches.divided_critic, deciding), networks.value, networks.params.value)
    return networks.params._replace(policy=policy, value=value)


def learn(
    agent: EpisodicActorCritic,
    networks: Networks,
    decision: Decision,
    stored: kernel.State,
    deltas: tuple[Array, Array],
    deciding: Any,
    switches: Switches,
) -> Networks:
    """One update: V along the second of ``deltas``; policy, query, τ and write network along the first."""
    params = of(networks, deciding, switches)
    delta, delta_critic = deltas
    _, pull = jax.vjp(lambda p: agent.scores(p, decision, stored), params)
    one, none = jnp.ones_like(delta), jnp.zeros_like(delta)
    (gradient,), (entropy_grads,) = pull((one, none)), pull((none, one))
    direction = jax.tree.map(lambda g, h: delta * g + switches.entropy * h, gradient, entropy_grads)
    direction = direction._replace(value=jax.tree.map(lambda g: delta_critic * g, gradient.value))
    moved = agent.replace(learning_rate=switches.learning_rate)._move(params, direction)
    most = [jnp.max(_chances(agent, p, decision.observation, decision.recalled)) for p in (params, moved)]
    capped = jnp.logical_and(deciding, (most[1] > switches.most) & (most[1] > most[0]))
    frozen = jnp.logical_and(switches.frozen, jnp.logical_not(deciding))
    moved = moved._replace(policy=_where(capped | frozen, params.policy, moved.policy))
    old, apart = networks.params, jnp.logical_and(switches.divided, deciding)
    apart_critic = jnp.logical_and(switches.divided_critic, deciding)
    return Networks(
        moved._replace(
            policy=_where(apart, old.policy, moved.policy), value=_where(apart_critic, old.value, moved.value)
        ),
        policy=_where(apart, moved.policy, networks.policy),
        value=_where(apart_critic, moved.value, networks.value),
    )


def _chances(agent: EpisodicActorCritic, params: Parameters, s: Array, m: Array) -> Array:
    return jax.nn.softmax(agent.policy_logits(params, s, m))


def start(agent: EpisodicActorCritic, env: SecretInformant, seed: Any) -> Run:
    """A run before its first step."""
    key_agent, key_env, key_run = jax.random.split(prng.key(seed), 3)
    state = agent.init(key_agent, env.observation_size, env.num_actions)
    world, _ = env.reset(key_env)
    guess = jnp.asarray([float(env.actions) ** -(env.decisions - d) for d in range(env.decisions)], jnp.float32)
    zero, networks = jnp.zeros((), jnp.int32), Networks(state.params, state.params.policy, state.params.value)
    counts = Measures(jnp.zeros(()), jnp.zeros(()), jnp.zeros((len(env.states), 3)), jnp.zeros(SOURCES))
    return Run(key_run, zero, networks, state.memory, world, zero, guess, jnp.zeros(env.decisions, bool), counts)


def step(agent: EpisodicActorCritic, env: SecretInformant, run: Run, switches: Switches) -> Run:
    """One time step."""
    keys = [prng.at(run.key, run.step, purpose) for purpose in range(4)]
    states, first = jnp.asarray(env.states), env.decision_row(0, 0)
    s, deciding = states[run.row], run.row >= first
    params = of(run.networks, deciding, switches)
    blank = State(params, params, run.memory, Decision(s, s, run.step, run.step), jnp.zeros(()), None)
    decision = agent.begin(blank, s, keys[0])[0].decision
    world, timestep = env.step(run.env, decision.action)
    over, reward = timestep.terminated, timestep.reward
    row_next = jnp.argmax(jnp.all(states == timestep.observation, axis=1)).astype(jnp.int32)
    deltas, v = _deltas(agent, env, run, (row_next, world.correct, over), reward, switches)

    pair = jax.lax.mulhi(jax.random.bits(keys[1], (2,), jnp.uint32), jnp.uint32(first)).astype(jnp.int32)
    probe = lambda n: jnp.log(_chances(agent, n.params, states[pair[0]], states[pair[1]])[FORWARD])  # noqa: E731
    networks = learn(agent, run.networks, decision, run.memory, deltas, deciding, switches)
    # One random pair of states an update stands for all of them: its mean change is theirs.
    pushed = probe(networks) - probe(run.networks)
    last = first + 2 * (env.decisions - 1)
    source = jnp.where(run.row < first, 0, jnp.where(run.row < last, 1, jnp.where(run.env.correct, 2, 3)))
    m, over_one = run.measures, over.astype(jnp.float32)
    measures = Measures(
        m.episodes + over_one,
        m.rewards + reward,
        m.rows.at[run.row].add(jnp.stack([jnp.ones(()), v, deltas[1]])),
        m.pushes.at[source].add(pushed),
    )

    place = jnp.arange(env.decisions) == (run.row - first) // 2
    reached = jnp.where(place & deciding, run.env.correct, run.reached)
    exact = jnp.where(over & reached, run.exact + FORGETTING * (reward - run.exact), run.exact)
    stored = agent._write(blank, s, keys[2])
    fresh, _ = env.reset(keys[3])
    return Run(
        run.key,
        run.step + 1,
        networks,
        kernel.clear(stored, over),
        _where(over, fresh, world),
        jnp.where(over, 0, row_next),
        exact,
        reached & ~over,
        measures,
    )


def _deltas(
    agent: EpisodicActorCritic, env: SecretInformant, run: Run, ahead: tuple, reward: Array, switches: Switches
) -> tuple[tuple[Array, Array], Array]:
    """δ for policy, query and write network, δ by V, and V of the present state."""
    states, first = jnp.asarray(env.states), env.decision_row(0, 0)
    row_next, still, over = ahead

    def value(row: Array) -> Array:
        return agent.value(of(run.networks, row >= first, switches), states[row])

    def exact(row: Array, correct: Array, usual: Array) -> Array:
        known = jnp.where(correct, run.exact[jnp.clip((row - first) // 2, 0, env.decisions - 1)], 0.0)
        elsewhere = jnp.where(switches.exact > 1, run.exact[0], usual)
        return jnp.where(switches.exact > 0, jnp.where(row >= first, known, elsewhere), usual)

    v, v_next = value(run.row), value(row_next)
    delta_critic = td.td_error(reward, switches.discount, jnp.where(over, 0.0, v_next), v)
    v_exact, v_next_exact = exact(run.row, run.env.correct, v), exact(row_next, still, v_next)
    delta = td.td_error(reward, switches.discount, jnp.where(over, 0.0, v_next_exact), v_exact)
    return (delta, delta_critic), v


def summarise(agent: EpisodicActorCritic, env: SecretInformant, networks: Networks, divided: Any) -> tuple[Any, Any]:
    """How the policy stands, four numbers; over recalled states m from start and chain, each alike.

    The probability of FORWARD, mean over start and chain states; the same where it is least; the largest probability
    of one action whatever is recalled, mean over the decision states on the path; the mean over recalled states of the
    largest probability, likewise. Then the first of them by state.
    """
    chain = jnp.asarray(env.states[: env.decision_row(0, 0)])
    switches = Switches(divided=divided)

    def over_recalled(params: Parameters, s: Array) -> Array:
        return jax.vmap(lambda m: _chances(agent, params, s, m))(chain)

    forward = jax.vmap(lambda s: over_recalled(of(networks, False, switches), s)[:, FORWARD].mean())(chain)
    there = jnp.asarray(env.decision_states())
    chances = jax.vmap(lambda s: over_recalled(of(networks, True, switches), s))(there)
    commitment, certainty = jnp.mean(jnp.max(chances.mean(1), -1)), jnp.mean(jnp.max(chances, -1))
    return jnp.stack([forward.mean(), forward.min(), commitment, certainty]), forward


def as_numbers(switches: Switches) -> Switches:
    """Switches as the compiled program takes them."""
    kinds = {"exact": np.int32, "divided": np.bool_, "frozen": np.bool_, "divided_critic": np.bool_}
    return Switches(*(kinds.get(name, np.float32)(x) for name, x in switches._asdict().items()))


@functools.lru_cache(maxsize=4)
def _program(agent: EpisodicActorCritic, env: SecretInformant, runs: int) -> Program:
    like = jax.eval_shape(lambda: start(agent, env, np.uint32(0)))
    traced = Step(lambda run, switches: (step(agent, env, run, switches), ()), like, (as_numbers(Switches()),))
    return Program(traced, lanes_for(runs, traced.state), [True] * len(Switches._fields))


def train(
    agent: EpisodicActorCritic,
    env: SecretInformant,
    switches: Switches,
    seeds: Sequence[int],
    steps: int,
    windows: int,
    workers: int | None = None,
) -> Record:
    """Train one run per seed for ``steps`` steps in ``windows`` equal windows, on ``workers`` threads."""
    program = _program(agent, env, len(seeds))
    fleet = Fleet(program.state, len(seeds), program.lanes)
    runs = jax.vmap(lambda seed: start(agent, env, seed))(jnp.asarray(seeds, jnp.uint32))
    empty = jax.tree.map(np.zeros_like, runs.measures)
    standing = jax.jit(jax.vmap(lambda n: summarise(agent, env, n, switches.divided)))
    found: list[tuple] = []
    for _ in range(windows):
        fleet.load(runs._replace(measures=empty))
        blocks = fleet.attach(program, list(as_numbers(switches)))
        over_blocks(lambda k, blocks=blocks: blocks[k].advance(steps // windows), len(blocks), workers)
        runs = fleet.unload()
        found.append((*runs.measures, *standing(runs.networks)))
    return Record(*(np.stack(parts, axis=1) for parts in zip(*found, strict=True)))
