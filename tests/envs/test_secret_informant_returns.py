"""What policies with and without memory earn on the secret informant problem, by enumeration."""

import collections
import itertools

import numpy as np
import pytest

from recollect.envs import FORWARD, SecretInformant
from recollect.envs.gymnasium import SecretInformantEnv

pytestmark = pytest.mark.slow


def all_instances(env):
    """Every instance of a small problem; all are equally likely."""
    A, D, L = env.actions, env.decisions, env.length
    hints = list(itertools.product(range(A), range(D)))
    for places in itertools.permutations(range(L), D):
        rest = [i for i in range(L) if i not in places]
        for right, others in itertools.product(
            itertools.product(range(A), repeat=D), itertools.product(hints, repeat=L - D)
        ):
            chain = dict(zip(rest, ((False, *hint) for hint in others), strict=True))
            chain |= {place: (True, right[d], d) for d, place in enumerate(places)}
            yield env.make_instance([chain[i] for i in range(L)])


def straight_paths(game, instances):
    """What can be seen on the way through each instance: tuples of observations, by the decisions taken."""
    for instance in instances:
        for choice in itertools.product(range(game.rules.actions), repeat=game.rules.decisions):
            observation, _ = game.reset(options={"instance": instance})
            seen, reward = [], 0.0
            for action in [FORWARD] * (1 + game.rules.length) + list(choice):
                seen.append((observation.tobytes(), action))
                observation, reward, terminated, _, _ = game.step(action)
            assert terminated
            yield seen, reward


@pytest.mark.parametrize("correct_path_bit", [True, False])
@pytest.mark.parametrize("length, decisions, actions", [(1, 1, 3), (2, 1, 2), (2, 1, 3), (2, 2, 2)])
def test_memoryless_return_over_all_policies(length, decisions, actions, correct_path_bit):
    """A deterministic policy earns what it earns on the paths that it takes itself; on any other it stays for ever."""
    game = SecretInformantEnv(length, decisions, actions, correct_path_bit)
    instances = list(all_instances(game.rules))
    paths = [(seen, reward) for seen, reward in straight_paths(game, instances) if reward]
    states = sorted({state for seen, _ in paths for state, _ in seen})
    returns = []
    for choice in itertools.product(range(actions), repeat=len(states)):
        policy = dict(zip(states, choice, strict=True))
        earned = sum(reward for seen, reward in paths if all(policy[state] == action for state, action in seen))
        returns.append(earned / len(instances))
    assert max(returns) == pytest.approx(game.rules.memoryless_return())
    assert game.rules.memoryless_return() == pytest.approx(actions**-decisions)

    # A stochastic policy that has any chance of going forward passes each chain state; it too earns no more.
    rng = np.random.default_rng(0)
    for _ in range(20):
        policy = {state: rng.dirichlet(np.ones(actions)) for state in states}
        policy[states[rng.integers(len(states))]] = np.eye(actions)[rng.integers(actions)]
        value = 0.0
        for seen, reward in paths:
            chain, choices = seen[: 1 + length], seen[1 + length :]
            passes = all(policy[state][FORWARD] > 0 for state, _ in chain)
            value += passes * reward * np.prod([policy[state][action] for state, action in choices])
        assert value / len(instances) <= game.rules.memoryless_return() + 1e-12


def test_random_return_by_play():
    game = SecretInformantEnv(length=2, decisions=2, actions=2)
    rng = np.random.default_rng(1)
    game.reset(seed=2)
    total, episodes = 0.0, 4000
    for _ in range(episodes):
        game.reset()
        terminated = False
        while not terminated:
            _, reward, terminated, _, _ = game.step(rng.integers(2))
            total += reward
    p = game.rules.random_return()
    assert p == 0.25
    assert abs(total / episodes - p) < 4 * np.sqrt(p * (1 - p) / episodes)


def placements(env):
    """For each placement of the informants: the states before each decision, named, informants by their decision."""
    for places in itertools.permutations(range(env.length), env.decisions):
        chain = [places.index(i) if i in places else f"other {i}" for i in range(env.length)]
        yield ["start", *chain, *(f"decision {d}" for d in range(env.decisions))]


SETTINGS = [(4, 1, 3), (4, 2, 3), (5, 3, 2), (3, 3, 2)]


@pytest.mark.parametrize("length, decisions, actions", SETTINGS)
@pytest.mark.parametrize("n", range(10))
def test_fifo_return_by_enumeration(length, decisions, actions, n):
    env = SecretInformant(length, decisions, actions)
    values = []
    for path in placements(env):
        memory = collections.deque(maxlen=n)
        value = 1.0
        for t, state in enumerate(path):
            d = t - 1 - length
            if d >= 0:
                value *= 1 if d in memory else 1 / actions
            memory.append(state)
        values.append(value)
    assert env.fifo_return(n) == pytest.approx(np.mean(values), rel=1e-12)


@pytest.mark.parametrize("length, decisions, actions", SETTINGS)
@pytest.mark.parametrize("n", range(8))
def test_uniform_return_by_enumeration(length, decisions, actions, n):
    """Every way the uniform reservoir can go, with its probability, for one placement: they are all alike."""
    env = SecretInformant(length, decisions, actions)
    expected = []
    for path in itertools.islice(placements(env), 2):
        values = {(): 1.0}  # memory -> probability of it, times the value so far
        for t, state in enumerate(path, start=1):
            d = t - 2 - length
            following = collections.defaultdict(float)
            for memory, value in values.items():
                if d >= 0:
                    value *= 1 if d in memory else 1 / actions
                if len(memory) < n:
                    following[(*memory, state)] += value
                    continue
                following[memory] += value * (1 - n / t)
                for slot in range(n):
                    following[(*memory[:slot], state, *memory[slot + 1 :])] += value / t
            values = following
        expected.append(sum(values.values()))
    assert env.uniform_return(n) == pytest.approx(expected[0], rel=1e-12)
    assert env.uniform_return(n) == pytest.approx(expected[1], rel=1e-12)


def test_returns_of_the_papers_problem_by_hand():
    env = SecretInformant(length=10, decisions=1, actions=3)
    assert env.fifo_return(3) == pytest.approx(1 / 3 + 2 / 3 * 3 / 10)
    assert env.uniform_return(3) == pytest.approx(1 / 3 + 2 / 3 * 3 / 11)
    env = SecretInformant(length=10, decisions=2, actions=3)
    assert env.fifo_return(0) == env.uniform_return(0) == pytest.approx(1 / 9)
    assert env.fifo_return(11) == env.uniform_return(12) == pytest.approx(1)
    assert env.random_return() == env.memoryless_return() == pytest.approx(1 / 9)
