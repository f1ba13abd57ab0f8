"""The paper's agent on the secret informant as one compiled scalar loop, with switches that cut one thing each.

``EpisodicActorCritic`` with the preset "paper" is the definition; this is the same learner for a CPU, some times
faster, and written out so that an experiment can reach into an update. A test holds one update here equal to one update
there. Everything is float64. States are rows of ``SecretInformant.states``; row 0, all zeros, is also what is recalled
from an empty memory.
"""

from typing import NamedTuple

import jax
import numpy as np
from numba import njit

from recollect.agents.episodic import EpisodicActorCritic
from recollect.agents.episodic import Parameters as AgentParameters
from recollect.envs.secret_informant import FORWARD, SecretInformant
from recollect.reservoir.random import seeded, uniform

FORGETTING = 0.01  # weight of a new return in the exact critic's mean
FAST = {"contract", "reassoc", "nsz"}
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

    discount: float = 1.0
    learning_rate: float = 0.005
    entropy: float = 0.0
    exact: int = 0
    most: float = 1.0
    divided: bool = False
    frozen: bool = False
    divided_critic: bool = False


class Parameters(NamedTuple):
    """Weights and biases layer by layer; the policy's have a leading axis: 0 acts in the chain, 1 at decisions."""

    value: tuple[np.ndarray, ...]
    policy: tuple[np.ndarray, ...]
    query: tuple[np.ndarray, ...]
    write: tuple[np.ndarray, ...]
    log_tau: np.ndarray
    critic: tuple[np.ndarray, ...]  # V at decision states, where it is divided


class Memory(NamedTuple):
    """The reservoir: rows of the states kept, their weights, the sampler's ratios, and how many (see ``law``)."""

    rows: np.ndarray
    weights: np.ndarray
    ratios: np.ndarray
    kept: np.ndarray


def parameters(params: AgentParameters) -> Parameters:
    """From one agent's parameters; the policy is there twice."""

    def flat(network):
        return tuple(np.array(x, np.float64) for layer in network for x in layer)

    policy = tuple(np.stack([x, x]) for x in flat(params.policy))
    theta = np.array([params.temperature], np.float64)
    return Parameters(flat(params.value), policy, flat(params.query), flat(params.write), theta, flat(params.value))


def start(agent: EpisodicActorCritic, env: SecretInformant, seed: int) -> Parameters:
    """The parameters that ``agent`` starts from."""
    state = agent.init(jax.random.key(seed), env.observation_size, env.num_actions)
    return parameters(state.params)


@njit(cache=True, error_model="numpy", fastmath=FAST)
def _layer(W, b, x, y, squash):
    for i in range(W.shape[0]):
        total = b[i]
        for j in range(W.shape[1]):
            total += W[i, j] * x[j]
        y[i] = np.tanh(total) if squash else total


@njit(cache=True, error_model="numpy", fastmath=FAST)
def _two(net, x, h, y):
    _layer(net[0], net[1], x, h, True)
    _layer(net[2], net[3], h, y, False)


@njit(cache=True, error_model="numpy", fastmath=FAST)
def _ascend_two(net, x, h, d_y, rate):
    """Gradient ascent on a network of one hidden layer; ``d_y``: by its outputs."""
    W1, b1, W2, b2 = net
    for i in range(W1.shape[0]):
        d = 0.0
        for k in range(W2.shape[0]):
            d += W2[k, i] * d_y[k]
        d *= rate * (1 - h[i] * h[i])
        b1[i] += d
        for j in range(W1.shape[1]):
            W1[i, j] += d * x[j]
    for k in range(W2.shape[0]):
        b2[k] += rate * d_y[k]
        for i in range(W2.shape[1]):
            W2[k, i] += rate * d_y[k] * h[i]


@njit(cache=True, error_model="numpy", fastmath=FAST)
def probabilities(policy, which, s, m, h1, h2, p):
    """Write π(· | s, m) to ``p`` and the hidden layers to ``h1``, ``h2``."""
    W1, b1, W2, b2, W3, b3 = policy
    n = len(s)
    for i in range(len(h1)):
        total = b1[which, i]
        for j in range(n):
            total += W1[which, i, j] * s[j] + W1[which, i, n + j] * m[j]
        h1[i] = np.tanh(total)
    _layer(W2[which], b2[which], h1, h2, True)
    _layer(W3[which], b3[which], h2, p, False)
    p -= p.max()
    for a in range(len(p)):
        p[a] = np.exp(p[a])
    p /= p.sum()


@njit(cache=True, error_model="numpy", fastmath=FAST)
def _ascend_policy(policy, which, s, m, h1, h2, d_y, rate):
    W1, b1, W2, b2, W3, b3 = policy
    n, units = len(s), len(h1)
    d2 = np.zeros(units)
    for i in range(units):
        for a in range(len(d_y)):
            d2[i] += W3[which, a, i] * d_y[a]
        d2[i] *= 1 - h2[i] * h2[i]
    for i in range(units):
        d = 0.0
        for k in range(units):
            d += W2[which, k, i] * d2[k]
        d *= rate * (1 - h1[i] * h1[i])
        b1[which, i] += d
        for j in range(n):
            W1[which, i, j] += d * s[j]
            W1[which, i, n + j] += d * m[j]
    for k in range(units):
        b2[which, k] += rate * d2[k]
        for i in range(units):
            W2[which, k, i] += rate * d2[k] * h1[i]
    for a in range(len(d_y)):
        b3[which, a] += rate * d_y[a]
        for i in range(units):
            W3[which, a, i] += rate * d_y[a] * h2[i]


@njit(cache=True, error_model="numpy", fastmath=FAST)
def value(net, s):
    """V(s)."""
    h, y = np.empty(len(net[1])), np.empty(1)
    _two(net, s, h, y)
    return np.tanh(y[0])


@njit(cache=True, error_model="numpy", fastmath=FAST)
def write_weight(net, s):
    """The weight that a state is written with."""
    h, y = np.empty(len(net[1])), np.empty(1)
    _two(net, s, h, y)
    return 1 / (1 + np.exp(-y[0]))


@njit(cache=True, error_model="numpy", fastmath=FAST)
def recall_probabilities(params, states, s, memory, q, h):
    """The probability of each stored state to be recalled, Eq. (1); the query vector goes to ``q``."""
    _two(params.query, s, h, q)
    for b in range(len(q)):
        q[b] = np.tanh(q[b])
    p = np.zeros(memory.kept[0])
    for i in range(len(p)):
        for b in range(len(q)):
            p[i] += q[b] * states[memory.rows[i], b]
        p[i] /= np.exp(params.log_tau[0])
    if len(p):
        p -= p.max()
        for i in range(len(p)):
            p[i] = np.exp(p[i])
        p /= p.sum()
    return p


@njit(cache=True, error_model="numpy", fastmath=FAST)
def draw(p, rng):
    """An index with the probabilities ``p``."""
    u = uniform(rng)
    i = 0
    while i < len(p) - 1 and u >= p[i]:
        u -= p[i]
        i += 1
    return i


@njit(cache=True, error_model="numpy", fastmath=FAST)
def learn(params, states, row, recalled, slot, action, memory, delta, delta_critic, deciding, switches):
    """One update: V along ``delta_critic``, policy, query, τ and write network along ``delta``.

    ``row``, ``recalled``: the state and the recalled state. ``slot``: where that lies in memory, −1 while it is empty.
    """
    s, m = states[row], states[recalled]
    rate, units = switches.learning_rate, len(params.value[1])
    h1, h2 = np.empty(units), np.empty(units)
    y = np.empty(1)
    critic = params.critic if switches.divided_critic and deciding else params.value
    _two(critic, s, h1, y)
    v = np.tanh(y[0])
    y[0] = delta_critic * (1 - v * v)
    _ascend_two(critic, s, h1, y, rate)

    which = 1 if switches.divided and deciding else 0
    p = np.empty(params.policy[5].shape[1])
    probabilities(params.policy, which, s, m, h1, h2, p)
    if deciding or not switches.frozen:
        entropy = 0.0
        for a in range(len(p)):
            entropy -= p[a] * np.log(p[a]) if p[a] > 0 else 0.0
        d_y = np.empty(len(p))
        for a in range(len(p)):
            d_y[a] = delta * ((a == action) - p[a])
            if switches.entropy > 0 and p[a] > 0:
                d_y[a] -= switches.entropy * p[a] * (np.log(p[a]) + entropy)
        if deciding and switches.most < 1.0:
            before = p.max()
            W1, b1, W2, b2, W3, b3 = params.policy
            kept = (W1[which].copy(), b1[which].copy(), W2[which].copy(), b2[which].copy(), W3[which].copy())
            kept_b3 = b3[which].copy()
            _ascend_policy(params.policy, which, s, m, h1, h2, d_y, rate)
            probabilities(params.policy, which, s, m, h1, h2, p)
            if p.max() > switches.most and p.max() > before:
                W1[which], b1[which], W2[which], b2[which], W3[which] = kept
                b3[which] = kept_b3
        else:
            _ascend_policy(params.policy, which, s, m, h1, h2, d_y, rate)

    if slot >= 0:
        q = np.empty(states.shape[1])
        chances = recall_probabilities(params, states, s, memory, q, h1)
        tau, by_log_tau = np.exp(params.log_tau[0]), 0.0
        d_q = np.empty(len(q))
        for b in range(len(q)):
            mean = 0.0
            for i in range(len(chances)):
                mean += chances[i] * states[memory.rows[i], b]
            d_q[b] = delta * (m[b] - mean) / tau * (1 - q[b] * q[b])
            by_log_tau -= q[b] * (m[b] - mean) / tau
        _ascend_two(params.query, s, h1, d_q, rate)
        params.log_tau[0] += rate * delta * by_log_tau
        _two(params.write, m, h1, y)
        now = 1 / (1 + np.exp(-y[0]))
        y[0] = delta * now / memory.weights[slot] * (1 - now)
        _ascend_two(params.write, m, h1, y, rate)


@njit(cache=True, error_model="numpy", fastmath=FAST)
def write(memory, row, w, rng):
    """Show a state to the reservoir: Algorithm 1, in ratios."""
    n = len(memory.rows)
    rows, W, X = memory.rows, memory.weights, memory.ratios
    if memory.kept[0] < n:
        rows[memory.kept[0]], W[memory.kept[0]] = row, w
        memory.kept[0] += 1
        if memory.kept[0] == n:
            for i in range(n - 1, 0, -1):
                k = int(uniform(rng) * (i + 1))
                rows[i], rows[k] = rows[k], rows[i]
                W[i], W[k] = W[k], W[i]
            X[:] = 0.0
        return
    q = np.zeros(n + 1)
    for i in range(n - 1, -1, -1):
        q[i] = (1 + W[i] * q[i + 1]) / (X[i] + W[i])
    for i in range(n):
        chance = w * (1 - X[i] * q[i + 1]) / (X[i] + W[i] + w * (1 + W[i] * q[i + 1]))
        if uniform(rng) < chance:
            rows[i], row = row, rows[i]
            W[i], w = w, W[i]
        X[i] = (X[i] + w) / (1 + w * q[i + 1])


@njit(cache=True, error_model="numpy", fastmath=FAST)
def _draw_chain(chain, right, length, decisions, actions, rng):
    informative = decisions * actions
    for i in range(length):
        chain[i] = 1 + informative + int(uniform(rng) * informative)
    free = np.arange(length)
    for d in range(decisions):
        k = d + int(uniform(rng) * (length - d))
        free[d], free[k] = free[k], free[d]
        right[d] = int(uniform(rng) * actions)
        chain[free[d]] = 1 + d * actions + right[d]


@njit(cache=True, error_model="numpy", nogil=True, fastmath=FAST)
def _train(params, states, sizes, switches, windows, steps, by_row, by_source, totals, policies, forward, rng):
    length, decisions, actions, n = sizes
    first = 1 + 2 * decisions * actions  # row of the first decision state
    last = first + 2 * (decisions - 1)
    memory = Memory(np.zeros(n, np.int64), np.zeros(n), np.zeros(n), np.zeros(1, np.int64))
    chain, right = np.empty(length, np.int64), np.empty(decisions, np.int64)
    units = len(params.value[1])
    h1, h2, q, p = np.empty(units), np.empty(units), np.empty(states.shape[1]), np.empty(actions)
    exact = np.empty(decisions)
    for d in range(decisions):
        exact[d] = float(actions) ** -(decisions - d)
    reached = np.zeros(decisions, np.bool_)
    opening = switches.entropy > 0
    # A plain 0 for the row would be a type of its own, and all that is called with it compiled for it, too.
    position, row, correct = 0, np.int64(0), True
    _draw_chain(chain, right, length, decisions, actions, rng)
    for window in range(windows):
        for _ in range(steps):
            s = states[row]
            deciding = position > length
            chances = recall_probabilities(params, states, s, memory, q, h1)
            slot = draw(chances, rng) if len(chances) else -1
            recalled = memory.rows[slot] if slot >= 0 else 0
            probabilities(params.policy, 1 if switches.divided and deciding else 0, s, states[recalled], h1, h2, p)
            action = draw(p, rng)

            ahead, still = position, correct
            if deciding:
                reached[position - length - 1] = correct
                still = correct and action == right[position - length - 1]
                ahead += 1
            elif action == FORWARD:
                ahead += 1
            over = ahead > length + decisions
            reward = 1.0 if over and still else 0.0
            row_next = 0
            if 0 < ahead <= length:
                row_next = chain[ahead - 1]
            elif not over and ahead > length:
                row_next = first + 2 * (ahead - length - 1) + still
            v, v_next = value(params.critic if switches.divided_critic and deciding else params.value, s), 0.0
            if row_next == row and not over:
                v_next = v
            elif not over:
                critic = params.critic if switches.divided_critic and ahead > length else params.value
                v_next = value(critic, states[row_next])
            by_row[window, row, 1] += v
            delta_critic = reward + switches.discount * v_next - v
            delta = delta_critic
            if switches.exact > 0:
                if deciding:
                    v = exact[position - length - 1] if correct else 0.0
                elif switches.exact > 1:
                    v = exact[0]
                if not over and ahead > length:
                    v_next = exact[ahead - length - 1] if still else 0.0
                elif not over and switches.exact > 1:
                    v_next = exact[0]
                delta = reward + switches.discount * v_next - v
            by_row[window, row, 0] += 1
            by_row[window, row, 2] += delta_critic

            w = write_weight(params.write, s)
            if delta != 0 or delta_critic != 0 or opening:  # standing still mostly changes nothing
                # One random pair of states an update stands for all of them: its mean change is theirs.
                probe, probed = int(uniform(rng) * first), int(uniform(rng) * first)
                probabilities(params.policy, 0, states[probe], states[probed], h1, h2, p)
                before = np.log(p[FORWARD])
                learn(params, states, row, recalled, slot, action, memory, delta, delta_critic, deciding, switches)
                probabilities(params.policy, 0, states[probe], states[probed], h1, h2, p)
                source = 0 if row < first else (1 if row < last else (2 if correct else 3))
                by_source[window, source] += np.log(p[FORWARD]) - before
            write(memory, row, w, rng)
            position, row, correct = ahead, row_next, still
            if over:
                totals[window, 0] += 1
                totals[window, 1] += reward
                for d in range(decisions):
                    if reached[d]:
                        exact[d] += FORGETTING * (reward - exact[d])
                reached[:] = False
                memory.kept[0] = 0
                position, row, correct = 0, 0, True
                _draw_chain(chain, right, length, decisions, actions, rng)
        summarise(params.policy, switches.divided, states, first, policies[window], forward[window])


@njit(cache=True, error_model="numpy", fastmath=FAST)
def summarise(policy, divided, states, first, out, forward):
    """How the policy stands; over recalled states m from start and chain, each alike.

    out[0]: the probability of FORWARD, mean over start and chain states. out[1]: the same where it is least.
    out[2]: the largest probability of one action whatever is recalled, mean over the decision states on the path.
    out[3]: the mean over recalled states of the largest probability, likewise. forward: out[0], by state.
    """
    actions, units = policy[5].shape[1], policy[1].shape[1]
    h1, h2, p = np.empty(units), np.empty(units), np.empty(actions)
    out[:] = 0.0
    out[1] = 1.0
    for s in range(first):
        mean = 0.0
        for m in range(first):
            probabilities(policy, 0, states[s], states[m], h1, h2, p)
            mean += p[FORWARD] / first
        forward[s] = mean
        out[0] += mean / first
        out[1] = min(out[1], mean)
    decisions = (len(states) - first) // 2
    for d in range(decisions):
        means = np.zeros(actions)
        for m in range(first):
            probabilities(policy, 1 if divided else 0, states[first + 2 * d + 1], states[m], h1, h2, p)
            means += p / first
            out[3] += p.max() / first / decisions
        out[2] += means.max() / decisions


class Record(NamedTuple):
    """What was measured in each window; see ``summarise`` for ``policy``."""

    episodes: np.ndarray  # [window]: finished
    rewards: np.ndarray  # [window]: their sum
    rows: np.ndarray  # [window, row, 3]: visits, sum of V, sum of δ by V
    pushes: np.ndarray  # [window, SOURCES]: added by updates there to the mean log-probability of FORWARD in the chain
    policy: np.ndarray  # [window, 4], at its end
    forward: np.ndarray  # [window, row]: the probability of FORWARD in start and chain states, at its end


def train(
    agent: EpisodicActorCritic, env: SecretInformant, switches: Switches, seed: int, steps: int, windows: int
) -> Record:
    """Train one run for ``steps`` steps in ``windows`` equal windows."""
    states = np.asarray(env.states, np.float64)
    by_row, by_source = np.zeros((windows, len(states), 3)), np.zeros((windows, SOURCES))
    totals, policies = np.zeros((windows, 2)), np.zeros((windows, 4))
    forward = np.zeros((windows, env.decision_row(0, 0)))
    sizes = (env.length, env.decisions, env.actions, agent.memory_size)
    arguments = (start(agent, env, seed), states, sizes, switches, windows, steps // windows)
    _train(*arguments, by_row, by_source, totals, policies, forward, seeded([seed, 4]))
    return Record(totals[:, 0], totals[:, 1], by_row, by_source, policies, forward)
