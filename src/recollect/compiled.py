"""The recurrent baseline on the secret informant problem as one compiled scalar loop: full backpropagation, affordable.

``RecurrentActorCritic`` is the definition; this is the same learner for a CPU, some ten times faster, since its work is
a few thousand multiplications in loops of changing length, all overhead to an array compiler. A test over random
settings holds one update here equal to one update there. All numbers are float64.

Parameters lie in one vector θ, in the order of ``Layout``; so do their gradients and RMSProp's mean squares.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from numba import njit

from recollect import trees
from recollect.agents.recurrent import Parameters, RecurrentActorCritic
from recollect.envs.secret_informant import FORWARD, SecretInformant
from recollect.errors import RecollectError
from recollect.networks import GRU, Layer
from recollect.reservoir.random import seeded, uniform
from recollect.training import Progress, Result


class Layout(NamedTuple):
    """Sizes: s inputs, h units, a actions."""

    s: int
    h: int
    a: int

    def blocks(self) -> list[tuple[int, int]]:
        """Shape of every weight matrix, in θ transposed and with its biases behind it: value, policy, GRU."""
        s, h, a = self
        return [(h, s), (1, h), (h, s + h), (h, h), (a, h), (h, s + h), (h, s + h), (h, s + h)]


def flatten(params: Parameters) -> np.ndarray:
    """θ from the agent's parameters."""
    layers = [*params.value, *params.policy, *params.gru]
    parts = [np.concatenate([np.asarray(w, np.float64).T.ravel(), np.asarray(b, np.float64)]) for w, b in layers]
    return np.concatenate(parts)


def unflatten(theta: np.ndarray, layout: Layout) -> Parameters:
    """The agent's parameters from θ."""
    layers: list[Any] = []
    at = 0
    for out, into in layout.blocks():
        weight: Any = theta[at : at + out * into].reshape(into, out).T
        at += out * into
        bias: Any = theta[at : at + out]
        layers.append(Layer(weight, bias))
        at += out
    return Parameters(tuple(layers[:2]), tuple(layers[2:5]), GRU(*layers[5:]))


@njit(cache=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz"})
def _affine(theta, at, out, into, x, y):
    """Write W x + b to y, Wᵀ and b at θ[at:]; most inputs are 0 here, and those are passed over."""
    bias = at + out * into
    for i in range(out):
        y[i] = theta[bias + i]
    for j in range(into):
        if x[j] != 0.0:
            column = theta[at + j * out : at + (j + 1) * out]
            for i in range(out):
                y[i] += column[i] * x[j]
    return bias + out


@njit(cache=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz"})
def _affine_back(theta, grad, at, out, into, x, d_y, d_x, skip):
    """Add the gradient by W, b to ``grad`` and that by x to ``d_x``, but for the first ``skip`` inputs."""
    d_bias = grad[at + out * into : at + out * into + out]
    for i in range(out):
        d_bias[i] += d_y[i]
    for j in range(into):
        if x[j] != 0.0:
            d_column = grad[at + j * out : at + (j + 1) * out]
            for i in range(out):
                d_column[i] += d_y[i] * x[j]
    for j in range(skip, into):
        column = theta[at + j * out : at + (j + 1) * out]
        total = 0.0
        for i in range(out):
            total += column[i] * d_y[i]
        d_x[j] += total


@njit(cache=True, error_model="numpy")
def value(theta, s, h, x, hidden):
    """V(x) with its hidden layer left in ``hidden``."""
    out = np.empty(1)
    at = _affine(theta, 0, h, s, x, hidden)
    for i in range(h):
        hidden[i] = math.tanh(hidden[i])
    _affine(theta, at, 1, h, hidden, out)
    return math.tanh(out[0])


@njit(cache=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz"})
def gru_step(theta, at, s, h, x, before, gates, after):
    """One step of the GRU; gates = (z, r, h̃)."""
    xh = np.empty(s + h)
    xh[:s] = x
    xh[s:] = before
    at = _affine(theta, at, h, s + h, xh, gates[:h])
    at = _affine(theta, at, h, s + h, xh, gates[h : 2 * h])
    for i in range(2 * h):
        gates[i] = 1.0 / (1.0 + math.exp(-gates[i]))
    for i in range(h):
        xh[s + i] = gates[h + i] * before[i]
    _affine(theta, at, h, s + h, xh, gates[2 * h :])
    for i in range(h):
        gates[2 * h + i] = math.tanh(gates[2 * h + i])
        after[i] = (1.0 - gates[i]) * before[i] + gates[i] * gates[2 * h + i]


@njit(cache=True, error_model="numpy")
def unroll(theta, at, s, h, observations, length, states, gates):
    """Run the GRU over ``length`` observations from states[0]; states[k] is the hidden state before step k."""
    for k in range(length):
        gru_step(theta, at, s, h, observations[k], states[k], gates[k], states[k + 1])


@njit(cache=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz"})
def _gru_back(theta, grad, at, s, h, observations, length, states, gates, d_h):
    """Backpropagation through time of ``unroll``; ``d_h`` is the gradient by the last state, used up here."""
    size = h * (s + h) + h
    xh, d_xh = np.empty(s + h), np.empty(s + h)
    d_gate = np.empty(h)
    for k in range(length - 1, -1, -1):
        before, here = states[k], gates[k]
        z, r, candidate = here[:h], here[h : 2 * h], here[2 * h :]
        d_before = np.empty(h)
        xh[:s] = observations[k]
        for i in range(h):
            xh[s + i] = r[i] * before[i]
            d_gate[i] = d_h[i] * z[i] * (1.0 - candidate[i] * candidate[i])
            d_before[i] = d_h[i] * (1.0 - z[i])
        d_xh[:] = 0.0
        _affine_back(theta, grad, at + 2 * size, h, s + h, xh, d_gate, d_xh, s)
        for i in range(h):
            d_seen = d_xh[s + i]
            d_before[i] += d_seen * r[i]
            d_gate[i] = d_seen * before[i] * r[i] * (1.0 - r[i])
            xh[s + i] = before[i]
        d_xh[:] = 0.0
        _affine_back(theta, grad, at + size, h, s + h, xh, d_gate, d_xh, s)
        for i in range(h):
            d_gate[i] = d_h[i] * (candidate[i] - before[i]) * z[i] * (1.0 - z[i])
        _affine_back(theta, grad, at, h, s + h, xh, d_gate, d_xh, s)
        for i in range(h):
            d_h[i] = d_before[i] + d_xh[s + i]


@njit(cache=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz"})
def _policy(theta, at, s, h, a, x, state, first, second, p):
    """The policy's probabilities, with its hidden layers left in ``first`` and ``second``."""
    xh = np.empty(s + h)
    xh[:s] = x
    xh[s:] = state
    at = _affine(theta, at, h, s + h, xh, first)
    for i in range(h):
        first[i] = math.tanh(first[i])
    at = _affine(theta, at, h, h, first, second)
    for i in range(h):
        second[i] = math.tanh(second[i])
    _affine(theta, at, a, h, second, p)
    top = p[0]
    for i in range(a):
        top = max(top, p[i])
    total = 0.0
    for i in range(a):
        p[i] = math.exp(p[i] - top)
        total += p[i]
    for i in range(a):
        p[i] /= total


@njit(cache=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz"})
def learn(theta, squares, grad, sizes, observations, length, states, gates, action, r, x_next, over, settings):
    """One update from one time step, as ``RecurrentActorCritic.learn``; settings = rate, γ, entropy, decay, ε.

    Returns whether the update was finite; one that is not is not made.
    """
    s, h, a = sizes
    rate, discount, entropy, decay, epsilon = settings
    at_policy = h * s + h + h + 1
    at_gru = at_policy + h * (s + h) + h + h * h + h + a * h + a
    x, state = observations[length - 1], states[length]
    hidden, first, second, p = np.empty(h), np.empty(h), np.empty(h), np.empty(a)
    v_next = 0.0 if over else value(theta, s, h, x_next, hidden)
    v = value(theta, s, h, x, hidden)
    delta = r + discount * v_next - v
    _policy(theta, at_policy, s, h, a, x, state, first, second, p)
    grad[:] = 0.0

    d_out, d_hidden, d_x = np.empty(1), np.zeros(h), np.zeros(s)
    d_out[0] = delta * (1.0 - v * v)
    _affine_back(theta, grad, h * s + h, 1, h, hidden, d_out, d_hidden, 0)
    for i in range(h):
        d_hidden[i] *= 1.0 - hidden[i] * hidden[i]
    _affine_back(theta, grad, 0, h, s, x, d_hidden, d_x, s)

    mean = 0.0
    for i in range(a):
        mean += p[i] * math.log(p[i]) if p[i] > 0.0 else 0.0
    d_logits = np.empty(a)
    for i in range(a):
        log_p = math.log(p[i]) if p[i] > 0.0 else 0.0
        d_logits[i] = delta * ((i == action) - p[i]) - entropy * p[i] * (log_p - mean)
    d_second, d_first, d_xh = np.zeros(h), np.zeros(h), np.zeros(s + h)
    at_2 = at_policy + h * (s + h) + h
    _affine_back(theta, grad, at_2 + h * h + h, a, h, second, d_logits, d_second, 0)
    for i in range(h):
        d_second[i] *= 1.0 - second[i] * second[i]
    _affine_back(theta, grad, at_2, h, h, first, d_second, d_first, 0)
    for i in range(h):
        d_first[i] *= 1.0 - first[i] * first[i]
    xh = np.empty(s + h)
    xh[:s] = x
    xh[s:] = state
    _affine_back(theta, grad, at_policy, h, s + h, xh, d_first, d_xh, s)
    _gru_back(theta, grad, at_gru, s, h, observations, length, states, gates, d_xh[s:].copy())

    size = 0.0
    for k in range(len(grad)):
        size += grad[k] * grad[k]
    sound = size < math.inf  # false for NaN too
    if sound:
        for k in range(len(theta)):
            squares[k] = decay * squares[k] + (1.0 - decay) * grad[k] * grad[k]
            theta[k] += rate * grad[k] / math.sqrt(squares[k] + epsilon)
    return sound


@njit(cache=True, error_model="numpy")
def _draw_chain(chain, right, length, decisions, actions, rng):
    """A random instance: rows of the table of states, as ``SecretInformant.states`` orders them."""
    informative = decisions * actions
    for i in range(length):
        chain[i] = 1 + informative + int(uniform(rng) * informative)
    free = np.arange(length)
    for d in range(decisions):
        k = d + int(uniform(rng) * (length - d))
        free[d], free[k] = free[k], free[d]
        right[d] = int(uniform(rng) * actions)
        chain[free[d]] = 1 + d * actions + right[d]


@njit(cache=True, error_model="numpy", nogil=True)
def _train(theta, squares, table, sizes, length, decisions, window, episodes, max_steps, settings, rng):
    """Go on for so many episodes or steps; returns the episodes done, their returns and steps, and the steps taken.

    The last thing returned is whether every update was finite; the first that is not ends the loop.
    """
    s, h, a = sizes
    grad = np.zeros_like(theta)
    total_return, total_length = 0.0, 0
    at_policy = h * s + h + h + 1
    at_gru = at_policy + h * (s + h) + h + h * h + h + a * h + a
    observations, states, gates = np.zeros((window, s)), np.zeros((window + 1, h)), np.zeros((window, 3 * h))
    chain, right = np.zeros(length, np.int64), np.zeros(decisions, np.int64)
    first, second, p = np.empty(h), np.empty(h), np.empty(a)
    steps, episode = 0, 0
    while episode < episodes and steps < max_steps:
        _draw_chain(chain, right, length, decisions, a, rng)
        position, correct, row, past, taken, over = 0, 1, 0, 0, 0, False
        states[0] = 0.0
        while not over and steps < max_steps:
            if past == window:  # the oldest step moves into the state before the stretch, under today's parameters
                gru_step(theta, at_gru, s, h, observations[0], states[0].copy(), gates[0], states[0])
                observations[:-1] = observations[1:].copy()
                past -= 1
            observations[past] = table[row]
            past += 1
            unroll(theta, at_gru, s, h, observations, past, states, gates)
            _policy(theta, at_policy, s, h, a, table[row], states[past], first, second, p)
            u, action = uniform(rng), 0
            while action < a - 1 and u >= p[action]:
                u -= p[action]
                action += 1
            if position > length:
                correct &= action == right[position - length - 1]
                position += 1
            elif action == FORWARD:
                position += 1
            over = position > length + decisions
            row = 0
            if not over and position > length:
                row = 1 + 2 * decisions * a + 2 * (position - length - 1) + correct
            elif not over and position > 0:
                row = chain[position - 1]
            reward = 1.0 if over and correct else 0.0
            sound = learn(
                theta,
                squares,
                grad,
                sizes,
                observations,
                past,
                states,
                gates,
                action,
                reward,
                table[row],
                over,
                settings,
            )
            steps += 1
            taken += 1
            if not sound:
                return episode, total_return, total_length, steps, False
        if over:
            total_return += reward
            total_length += taken
            episode += 1
    return episode, total_return, total_length, steps, True


def state_like(agent: RecurrentActorCritic, env: SecretInformant, bins: int) -> dict[str, np.ndarray]:
    """The form of what ``Progress.snapshot`` returns here."""
    blocks = Layout(env.observation_size, agent.width, env.num_actions).blocks()
    theta = np.zeros(sum(out * into + out for out, into in blocks))
    curves = {name: np.full((1, bins), np.nan) for name in ("returns", "lengths")}
    counts = {name: np.zeros((), np.int64) for name in ("bin", "steps", "done")}
    return {"theta": theta, "squares": np.zeros_like(theta), "rng": np.zeros(4, np.uint64), **curves, **counts}


def train_iter(
    agent: RecurrentActorCritic,
    env: SecretInformant,
    episodes: int,
    seed: int,
    *,
    max_steps: int,
    bins: int,
    state: Mapping[str, np.ndarray] | None = None,
) -> Iterator[Progress | Result]:
    """Train one run, reporting after every bin of episodes; the last thing yielded is the ``Result``.

    As ``recollect.training.train_iter`` for one seed of this agent, ``state`` included. The first parameters are those
    of ``agent.init``.
    """
    if agent.activation != "tanh":
        raise ValueError(f"the compiled baseline has tanh hidden layers, got activation={agent.activation!r}")
    if episodes < 1 or bins < 1 or episodes % bins:
        raise ValueError(f"episodes={episodes} must be a positive multiple of bins={bins}")
    layout = Layout(env.observation_size, agent.width, env.num_actions)
    if state is None:
        saved = state_like(agent, env, bins)
        saved["theta"], saved["rng"] = (
            flatten(agent.init(jax.random.key(seed), layout.s, layout.a).params),
            seeded([seed, 1]),
        )
    else:
        saved = {k: array.copy() for k, array in trees.restore(state, state_like(agent, env, bins)).items()}
    theta, squares, rng, returns, lengths = (saved[name] for name in ("theta", "squares", "rng", "returns", "lengths"))
    settings = tuple(float(x) for x in (agent.learning_rate, agent.discount, agent.entropy, agent.decay, agent.epsilon))
    task = (env.states.astype(np.float64), tuple(layout), env.length, env.decisions, agent.window)
    size, (at, steps, done) = episodes // bins, (int(saved[name]) for name in ("bin", "steps", "done"))
    nothing = np.full((1, bins, 1, layout.s), np.nan)

    def snapshot() -> dict[str, np.ndarray]:
        now = {"bin": np.int64(at), "steps": np.int64(steps), "done": np.int64(done)}
        return {name: np.array(array) for name, array in {**saved, **now}.items()}

    while at < bins and steps < max_steps:
        b, at = at, at + 1
        more, score, length, taken, sound = _train(theta, squares, *task, size, max_steps - steps, settings, rng)
        done, steps = done + more, steps + taken
        if not sound:
            raise RecollectError(
                f"seed {seed}: the update was not finite at step {steps:,} of {env!r}; "
                "nothing was learned from that step"
            )
        new = []
        if more == size:
            returns[0, b], lengths[0, b] = score / size, length / size
            new = [{"seed": seed, "episodes": done, "return": returns[0, b].item(), "length": lengths[0, b].item()}]
            new[0] |= {"write_weights": [math.nan] * 2, "query_vectors": nothing[0, b].tolist()}
        yield Progress(steps, steps, np.array([done]), new, float(returns[0, b]), snapshot)
    yield Result(
        seeds=(seed,),
        episodes=size * np.arange(1, bins + 1),
        returns=returns,
        lengths=lengths,
        write_weights=np.full((1, bins, 2), np.nan),
        query_vectors=nothing,
        steps=np.array([steps]),
        finished=np.array([done >= episodes]),
        agent_states=unflatten(theta, layout),
    )
