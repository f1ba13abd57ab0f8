"""How far the write-gradient estimators are from the gradient, exactly: ``recollect lab estimators``.

Two tiny problems with tabular agents, every number exact to rounding: the expected return and its derivative by each
write weight, and the expectation of both of the paper's estimators with a perfect critic. Then the same expectations
by Monte Carlo, from what the agent's own ``begin`` and ``learn`` do.

An episode shows three cues in random order (sign 1 and sign 2, which say the right action of one decision each, and a
decoy), then the two decisions. In ``SEPARATE`` each decision pays ½ if right, so that no action changes which states
follow. In ``PATH`` the last step pays 1 if both were right and the second decision shows whether the first was: the
secret informant problem in small, where the states seen say something about the memory that led to them.
"""

import dataclasses
import itertools
import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from recollect import prng
from recollect.agents.base import register
from recollect.agents.episodic import EpisodicActorCritic, Parameters
from recollect.agents.networks import Layer
from recollect.envs.base import TimeStep

SYMBOLS = ("sign 1: 0", "sign 1: 1", "sign 2: 0", "sign 2: 1", "decoy", "decision 1", "decision 2", "off the path")
DECOY, FIRST, SECOND, OFF = 4, 5, 6, 7
NOTHING, END = len(SYMBOLS), -1  # what is recalled from an empty memory, and what follows the last decision
WEIGHTS = (0.6, 0.5, 0.4, 0.3, 0.7, 0.2, 0.5, 0.5)


class Problem(NamedTuple):
    """A problem of three cues and two decisions; a fact is what chance decides: the cues in order, the right actions.

    Attributes:
        shows_path: whether the second decision shows if the first was right, and the reward needs both to be.
    """

    shows_path: bool

    def facts(self) -> list[tuple[tuple[int, ...], tuple[int, int]]]:
        """All that can be the case, equally likely."""
        rights = itertools.product((0, 1), repeat=2)
        return [(p, (a, b)) for a, b in rights for p in itertools.permutations((a, 2 + b, DECOY))]

    def step(self, fact: tuple, history: tuple[int, ...], action: int) -> tuple[int, float]:
        """The next state (``END`` after the last) and the reward."""
        cues, (right_1, right_2) = fact
        if len(history) < 3:
            return cues[len(history)], 0.0
        if len(history) == 3:
            return FIRST, 0.0
        if self.shows_path:
            if len(history) == 4:
                return (SECOND if action == right_1 else OFF), 0.0
            return END, float(history[-1] == SECOND and action == right_2)
        return (SECOND, 0.5 * (action == right_1)) if len(history) == 4 else (END, 0.5 * (action == right_2))


SEPARATE, PATH = Problem(shows_path=False), Problem(shows_path=True)


class Tables(NamedTuple):
    """A tabular agent; all arrays may have further axes, over agents.

    Attributes:
        weights: [symbol], w.
        policy: [symbol, recalled symbol, action], π; the last recalled symbol is ``NOTHING``.
        odds: [symbol, stored symbol], exp(⟨q(S_t), S_i⟩/τ).
    """

    weights: np.ndarray
    policy: np.ndarray
    odds: np.ndarray


def make_tables(follow: Any = (0.9, 0.9), lean: Any = 0.6, odds: Any = 3.0, weights: Any = WEIGHTS) -> Tables:
    """An agent that knows its signs.

    Args:
        follow: chance to do what the sign says at the first and at the second decision, when it is recalled.
        lean: chance of action 0 at a decision when something else is recalled.
        odds: of recalling the decision's sign against any other stored state.
        weights: w by symbol.
    """
    w = np.asarray(weights, dtype=float)
    follow, lean, odds = (np.asarray(x, dtype=float) for x in (follow, lean, odds))
    agents = w.shape[1:]
    policy = np.full((NOTHING, NOTHING + 1, 2, *agents), 0.5)
    ask = np.ones((NOTHING, NOTHING, *agents))
    for state, which in ((FIRST, 0), (SECOND, 1), (OFF, 1)):
        policy[state, :, 0], policy[state, :, 1] = lean, 1 - lean
        for says in (0, 1):
            sign = 2 * which + says
            policy[state, sign, says], policy[state, sign, 1 - says] = follow[which], 1 - follow[which]
            ask[state, sign] = odds
    return Tables(w, policy, ask)


# -- enumeration; a situation is (fact, states so far, places in them of the stored ones from oldest to newest)

Situation = tuple[tuple, tuple[int, ...], tuple[int, ...]]


def _symmetric(weights: list, n: int) -> list:
    """e_0 … e_n, the elementary symmetric polynomials."""
    e = [1.0] + [0.0] * n
    for w in weights:
        for k in range(n, 0, -1):
            e[k] = e[k] + w * e[k - 1]
    return e


def _memory_moves(agent: Tables, history: tuple[int, ...], kept: tuple[int, ...], n: int) -> list[tuple[Any, tuple]]:
    """(chance, stored after) when the newest state is shown to the memory: the sampler's chances, in closed form."""
    t = len(history) - 1
    if len(kept) < n:
        return [(1.0, (*kept, t))]
    w = [agent.weights[s] for s in history]
    e = _symmetric(w[:t], n)
    accept = w[t] * e[n - 1] / (e[n] + w[t] * e[n - 1])
    moves, left = [(1 - accept, kept)], accept
    for k in range(n, 0, -1):
        e = _symmetric(w[: kept[k - 1]], k)
        # (g_{k−1} − g_k)/(g_{k−1} + w), g_k = e_k/e_{k−1} over the states before this one; g_0 is infinite.
        drop = 1.0 if k == 1 else (1 - e[k] * e[k - 2] / e[k - 1] ** 2) / (1 + w[kept[k - 1]] * e[k - 2] / e[k - 1])
        moves.append((left * drop, (*kept[: k - 1], *kept[k:], t)))
        left = left * (1 - drop)
    return moves


def _choices(agent: Tables, history: tuple[int, ...], kept: tuple[int, ...]) -> Iterator[tuple[Any, int | None, int]]:
    """(chance, place of the recalled state, action); where no action matters there is one."""
    s = history[-1]
    odds = [agent.odds[s, history[i]] for i in kept]
    reads = [(q / sum(odds), i) for q, i in zip(odds, kept, strict=True)] or [(1.0, None)]
    for chance, i in reads:
        m = NOTHING if i is None else history[i]
        if s < FIRST:
            yield chance, i, 0
        else:
            yield from ((chance * agent.policy[s, m, a], i, a) for a in (0, 1))


def _walk(problem: Problem, agent: Tables, n: int) -> list[dict[Situation, Any]]:
    """Every situation that can arise and its probability, by time step."""
    facts = problem.facts()
    now: dict[Situation, Any] = {(fact, (problem.step(fact, (), 0)[0],), ()): 1 / len(facts) for fact in facts}
    layers = []
    while now:
        layers.append(now)
        later: dict[Situation, Any] = defaultdict(float)
        for (fact, history, kept), p in now.items():
            moves = _memory_moves(agent, history, kept, n)
            for chance, _, action in _choices(agent, history, kept):
                state, _ = problem.step(fact, history, action)
                for chance_kept, kept_next in moves if state != END else ():
                    later[fact, (*history, state), kept_next] += p * chance * chance_kept
        now = later
    return layers


def _returns(problem: Problem, agent: Tables, n: int, layers: list[dict]) -> dict[Situation, Any]:
    """E[R_t] in each situation."""
    ahead: dict[Situation, Any] = {}
    for layer in reversed(layers):
        for fact, history, kept in layer:
            moves, total = _memory_moves(agent, history, kept, n), 0.0
            for chance, _, action in _choices(agent, history, kept):
                state, reward = problem.step(fact, history, action)
                after = 0.0 if state == END else sum(c * ahead[fact, (*history, state), k] for c, k in moves)
                total = total + chance * (reward + after)
            ahead[fact, history, kept] = total
    return ahead


def expected_return(problem: Problem, agent: Tables, n: int) -> Any:
    """E[R] of an episode, by enumeration.

    >>> round(float(expected_return(SEPARATE, make_tables(follow=(0.5, 0.5), lean=0.5), 1)), 12)
    0.5
    """
    layers = _walk(problem, agent, n)
    ahead = _returns(problem, agent, n, layers)
    return sum(p * ahead[situation] for situation, p in layers[0].items())


def gradient(problem: Problem, agent: Tables, n: int) -> np.ndarray:
    """∂E[R]/∂w, [symbol], by the complex step: exact to rounding, as E[R] is a rational function of the weights."""
    K, h = NOTHING, 1e-30
    w = agent.weights[:, None] + 1j * h * np.eye(K).reshape(K, K, *[1] * (agent.weights.ndim - 1))
    slope = np.imag(expected_return(problem, agent._replace(weights=w), n)) / h
    return np.broadcast_to(slope, agent.weights.shape)


def critic_values(problem: Problem, agent: Tables, n: int, sees: str = "history") -> dict[tuple[int, ...], Any]:
    """A perfect critic's value after each history: E[R_t | S_0 … S_t], or E[R_t | S_t] if it sees the "state" alone."""
    layers = _walk(problem, agent, n)
    ahead = _returns(problem, agent, n, layers)
    totals: dict = defaultdict(lambda: (0.0, 0.0))
    seen = {h: h if sees == "history" else h[-1] for layer in layers for _, h, _ in layer}
    for situation, p in itertools.chain.from_iterable(layer.items() for layer in layers):
        mass, total = totals[seen[situation[1]]]
        totals[seen[situation[1]]] = mass + p, total + p * ahead[situation]
    return {h: totals[what][1] / totals[what][0] for h, what in seen.items()}


def expected_estimates(problem: Problem, agent: Tables, n: int, sees: str = "history") -> dict[str, np.ndarray]:
    """E[Σ_t G_{i,t}] by symbol of both estimators, as the agent computes them, for a perfect critic.

    Symbols: δ_t ↔ r + V(S_0 … S_{t+1}) − V(S_0 … S_t) with V from ``critic_values``.

    Paper: Eq. (6), Eq. (9), Eq. (10)
    """
    V = critic_values(problem, agent, n, sees)
    estimates = {name: np.zeros_like(agent.weights) for name in ("every", "queried")}
    for (fact, history, kept), p in itertools.chain.from_iterable(x.items() for x in _walk(problem, agent, n)):
        for chance, read, action in _choices(agent, history, kept):
            state, reward = problem.step(fact, history, action)
            delta = reward + (0.0 if state == END else V[(*history, state)]) - V[history]
            for i in kept:
                estimates["every"][history[i]] += p * chance * delta / agent.weights[history[i]]
                if i == read:
                    estimates["queried"][history[i]] += p * chance * delta / agent.weights[history[i]]
    return estimates


def stated_expectations(problem: Problem, agent: Tables, n: int) -> dict[str, np.ndarray]:
    """What the paper states for the two expectations, from its formulas and the product law alone.

    "every" is the first term of the gradient (Eq. 8), "queried" its approximation above Eq. (10), both summed over
    the visited states. The memory's law is taken from the weights (Eq. 7) as if it did not depend on the history;
    E_t[R_t | A_t = a] is read as E_t[r_{t+1} + E_{t+1}[R_{t+1}] | A_t = a].

    Paper: Eq. (7), Eq. (8)
    """
    V = critic_values(problem, agent, n)
    chances: dict = defaultdict(lambda: defaultdict(float))
    for (fact, history, _), p in itertools.chain.from_iterable(x.items() for x in _walk(problem, agent, n)):
        chances[history][fact] = chances[history][fact] + p
    stated = {name: np.zeros_like(agent.weights) for name in ("every", "queried")}
    for history, facts in chances.items():
        t, mass = len(history) - 1, sum(facts.values())

        def advantage(action, history=history, facts=facts, mass=mass):
            total = 0.0
            for fact, p in facts.items():
                state, reward = problem.step(fact, history, action)
                total = total + p / mass * (reward + (0.0 if state == END else V[(*history, state)]))
            return total - V[history]

        gain = (advantage(0), advantage(1))
        products = {
            T: math.prod(agent.weights[history[i]] for i in T) for T in itertools.combinations(range(t), min(n, t))
        }
        normalizer = sum(products.values())
        for T, product in products.items():
            reads = [(chance, read, gain[action]) for chance, read, action in _choices(agent, history, T)]
            for i in T:
                share = mass * product / normalizer / agent.weights[history[i]]
                stated["every"][history[i]] += share * sum(chance * g for chance, _, g in reads)
                stated["queried"][history[i]] += share * sum(chance * g for chance, read, g in reads if read == i)
    return stated


# -- the same by Monte Carlo, with the agent's own code


@register
@dataclasses.dataclass(frozen=True)
class TabularActorCritic(EpisodicActorCritic):
    """The episodic agent with tables for networks and a critic that is told the value.

    An observation is the symbol, one-hot, and then the value of the history; parameters are the logs of ``Tables``.
    """

    def value(self, params: Parameters, s: jax.Array) -> jax.Array:
        """What the observation says."""
        return s[-1]

    def policy_logits(self, params: Parameters, s: jax.Array, m: jax.Array) -> jax.Array:
        """Log π(a | S_t, m_t)."""
        recalled = jnp.where(jnp.any(m[:-1] > 0), jnp.argmax(m[:-1]), NOTHING)
        return params.policy[0].weight[jnp.argmax(s[:-1]), recalled]

    def query(self, params: Parameters, s: jax.Array) -> jax.Array:
        """q(S_t), the log odds of each stored state."""
        return jnp.append(params.query[0].weight[jnp.argmax(s[:-1])], 0.0)

    def log_write_weight(self, params: Parameters, s: jax.Array) -> jax.Array:
        """Log w(S_t)."""
        return jnp.sum(params.write[0].weight * s[:-1])

    def from_tables(self, tables: Tables) -> Parameters:
        """The tables as parameters."""
        logs = (jnp.log(jnp.asarray(table, jnp.float32)) for table in (tables.policy, tables.odds, tables.weights))
        policy, query, write = ((Layer(table, jnp.zeros(())),) for table in logs)
        return Parameters((), policy, query, write, temperature=jnp.zeros(()))


class World(NamedTuple):
    """A problem and a critic as tables over histories, the last of which is the end."""

    first: jax.Array  # [fact]
    leads: jax.Array  # [fact, history, action]
    pays: jax.Array  # [fact, history, action]
    shows: jax.Array  # [history], symbol
    values: jax.Array  # [history]


def _tabulate(problem: Problem, values: dict[tuple[int, ...], Any]) -> World:
    facts, number = problem.facts(), {history: k for k, history in enumerate(values)}
    end = 127  # a place no history has; all problems the same size, so that they share a compiled loop
    leads, pays = np.full((len(facts), end + 1, 2), end), np.zeros((len(facts), end + 1, 2))
    shows, critic = np.zeros(end + 1), np.zeros(end + 1)
    for history, k in number.items():
        shows[k], critic[k] = history[-1], values[history]
        for (f, fact), action in itertools.product(enumerate(facts), (0, 1)):
            if history[:3] == fact[0][: len(history)]:
                state, pays[f, k, action] = problem.step(fact, history, action)
                leads[f, k, action] = end if state == END else number[(*history, state)]
    first = np.array([number[fact[0][:1]] for fact in facts])
    whole, real = (lambda x: jnp.asarray(x, jnp.int32)), (lambda x: jnp.asarray(x, jnp.float32))
    return World(whole(first), whole(leads), real(pays), whole(shows), real(critic))


@jax.jit
def _play(learner: TabularActorCritic, params: Parameters, world: World, keys: jax.Array) -> jax.Array:
    """w_i Σ_t G_{i,t} of one episode a key: by how much ``learn``, at step size 1, moves log w, all else held."""

    def see(k):
        return jnp.append(jax.nn.one_hot(world.shows[k], NOTHING), world.values[k])

    def step(carry, key):
        state, fact, k = carry
        key_begin, key_learn = jax.random.split(key)
        state, action = learner.begin(state, see(k), key_begin)
        later, reward = world.leads[fact, k, action], world.pays[fact, k, action]
        timestep = TimeStep(see(later), reward, later == world.shows.size - 1, jnp.array(False))
        state = learner.learn(state, timestep, key_learn)
        moved = state.params.write[0].weight - params.write[0].weight
        return (state._replace(params=params), fact, later), moved

    def episode(key):
        key_fact, key_steps = jax.random.split(key)
        fact = jax.random.randint(key_fact, (), 0, world.first.size)
        traces = jax.tree.map(jnp.zeros_like, params)
        start = learner.init(key_fact, NOTHING + 1, 2)._replace(params=params, traces=traces)
        return jnp.sum(jax.lax.scan(step, (start, fact, world.first[fact]), jax.random.split(key_steps, 5))[1], axis=0)

    return jax.vmap(episode)(keys)


def monte_carlo(problem: Problem, agent: Tables, n: int, estimator: str, episodes: int, seed: int = 0) -> np.ndarray:
    """Σ_t G_{i,t} of many episodes, [episode, symbol], from the agent's own recall, update and reservoir."""
    learner = TabularActorCritic.preset("paper", memory_size=n, estimator=estimator, learning_rate=1.0)
    world = _tabulate(problem, critic_values(problem, agent, n))
    keys = jax.random.split(prng.key(seed), episodes)
    return np.asarray(_play(learner, learner.from_tables(agent), world, keys), np.float64) / agent.weights


# -- the report


def compare(estimate: np.ndarray, truth: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Length of the bias relative to the gradient's, and the cosine between the two, both by log w.

    By log w (that is, w ∂/∂w), small weights do not count more than large ones.
    """
    a, b = estimate * weights, truth * weights
    length = np.linalg.norm(b, axis=0)
    return np.linalg.norm(a - b, axis=0) / length, np.sum(a * b, axis=0) / (length * np.linalg.norm(a, axis=0))


def law_error(problem: Problem, agent: Tables, n: int) -> float:
    """How far the memory's law given the history is from the product law: the largest total variation distance."""
    worst = 0.0
    for layer in _walk(problem, agent, n):
        by_history: dict = defaultdict(lambda: defaultdict(float))
        for (_, history, kept), p in layer.items():
            by_history[history][kept] += p
        for history, law in by_history.items():
            products = {kept: math.prod(agent.weights[history[i]] for i in kept) for kept in law}
            total, mass = sum(products.values()), sum(law.values())
            worst = max(worst, sum(abs(law[kept] / mass - products[kept] / total) for kept in law) / 2)
    return float(worst)


def random_agents(kind: str, count: int, seed: int = 0) -> Tables:
    """Agents drawn at random: "able" ones, from ignorant to skilled, or "any", most of them extreme in something."""
    rng = np.random.default_rng(seed)

    def log_uniform(low, high, shape):
        return np.exp(rng.uniform(np.log(low), np.log(high), shape))

    if kind == "able":
        follow, lean = rng.uniform(0.5, 1, (2, count)), rng.uniform(0.3, 0.7, count)
        return make_tables(follow, lean, log_uniform(0.3, 100, count), log_uniform(0.01, 1, (NOTHING, count)))
    follow, lean = rng.beta(0.3, 0.3, (2, count)), rng.beta(0.3, 0.3, count)
    return make_tables(follow, lean, log_uniform(0.01, 1000, count), log_uniform(1e-4, 1, (NOTHING, count)))
