"""Variants of the general agent's numbers on small copies of tasks, thousands of runs at once on one accelerator.

    python benchmarks/general_search.py plan.json --steps 300000 --out found.json

The plan names the variants, the tasks, the first seed and how many there are, or {"cartpole": 16, "others": 2}:

    {"variants": {"base": {}, "slow": {"actor_optimizer.rate": 0.00025}},
     "tasks": ["cartpole"], "seeds": 8, "first_seed": 0}

"agent" may name another of the board's agents, and "base" what is set in all variants.

Copies are not the originals: observations and actions of all tasks are padded to one size so that one program runs them
all. What is found here is a reason to try it with ``recollect benchmark memory``, which runs the originals.

``--one-by-one`` is for processors: each variant on each task by the step compiler, in the task's own sizes.
``--random 0,0.9`` plays instead: actions at random, by numbers that are kept with these chances.
"""

import argparse
import dataclasses
import itertools
import json
import math
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from recollect.agents import named
from recollect.agents.distributions import Categorical
from recollect.engines import loop
from recollect.envs.base import TimeStep

OBSERVED, ACTIONS, HELD = 10, 27, 14  # sizes that every task is padded to: observation, actions, state
NO = jnp.zeros((), bool)


def padded(size, *numbers):
    """Numbers and truth values as a vector of this size."""
    given = [jnp.asarray(x, jnp.float32) for x in numbers]
    return jnp.stack(given + [jnp.zeros(())] * (size - len(given)))


def state(*numbers):
    """What a task holds between steps."""
    return padded(HELD, *numbers)


def seen(*numbers):
    """What an agent observes of a task."""
    return padded(OBSERVED, *numbers)


def bits(k, n):
    """Whether ``k`` is 0, 1, … n − 1."""
    return [k == i for i in range(n)]


def gauss(u, v):
    """A standard normal number of two uniform ones."""
    return jnp.sqrt(-2 * jnp.log(jnp.maximum(u, 1e-7))) * jnp.cos(2 * jnp.pi * v)


def t_maze(length):
    """A cue, a corridor, a junction."""

    def look(cue, place):
        return seen(*((place == 0) & b for b in bits(cue, 2)), (place > 0) & (place <= length), place > length)

    def reset(u):
        cue = jnp.floor(2 * u[0])
        return state(cue, 0), look(cue, 0.0)

    def step(s, a, u):
        cue, place = s[0], s[1]
        over = place > length
        return state(cue, place + 1), look(cue, place + 1), jnp.where(over, 2.0 * (a == cue) - 1, 0.0), over, NO

    return reset, step


def noisy_recall(length, anywhere=False):
    """The signal counts once, at the first step or at any; everything else is noise."""

    def look(time, at, answer, u):
        marked = time == at
        return seen(jnp.where(marked, 2 * answer - 1, gauss(u[1], u[2])), marked, time == length, gauss(u[2], u[3]))

    def reset(u):
        answer, at = jnp.floor(2 * u[0]), jnp.floor(length * u[1]) * anywhere
        return state(answer, 0, at), look(0.0, at, answer, u)

    def step(s, a, u):
        answer, time, at = s[0], s[1], s[2]
        over = time == length
        reward = jnp.where(over, 2.0 * (a == answer) - 1, 0.0)
        return state(answer, time + 1, at), look(time + 1, at, answer, u), reward, over, NO

    return reset, step


def drawn(left, u):
    """One of the kinds of card, by how many of each are left, and how many are left then."""
    ends = jnp.cumsum(left)
    kind = jnp.minimum(jnp.sum(u * ends[-1] >= ends), len(left) - 1).astype(jnp.float32)
    return kind, left - jnp.stack([b.astype(jnp.float32) for b in bits(kind, len(left))])


def repeat_first(decks):
    """The suit of the first card, at every card."""

    def reset(u):
        suit, left = drawn(jnp.full(4, 13.0 * decks), u[0])
        return state(suit, 1, *left), seen(*bits(suit, 4))

    def step(s, a, u):
        suit, left = drawn(s[2:6], u[0])
        reward = (2.0 * (a == s[0]) - 1) / (52 * decks - 1)
        return state(s[0], s[1] + 1, *left), seen(*bits(suit, 4)), reward, s[1] >= 52 * decks - 1, NO

    return reset, step


def flagged(task, at):
    """With a flag at element ``at`` of an episode's first observation, as popgym's ``Antialias`` has it."""
    reset, step = task

    def first(u):
        held, observation = reset(u)
        return held, observation.at[at].set(1.0)

    return first, step


def repeat_previous(k):
    """The suit of ``k`` cards before."""

    def reset(u):
        suit, left = drawn(jnp.full(4, 13.0), u[0])
        return state(1, *left, suit, *[-1] * (k - 1)), seen(*bits(suit, 4))

    def step(s, a, u):
        suit, left = drawn(s[1:5], u[0])
        asked = s[4 + k]
        reward = jnp.where(asked < 0, 0.0, (2.0 * (a == asked) - 1) / (52 - k))
        return state(s[0] + 1, *left, suit, *s[5 : 4 + k]), seen(*bits(suit, 4)), reward, s[0] >= 51, NO

    return reset, step


def count_recall():
    """How many cards of the colour that is asked for have been seen."""

    def reset(u):
        (value, values), (query, queries) = drawn(jnp.full(2, 26.0), u[0]), drawn(jnp.full(2, 26.0), u[1])
        return state(1, *values, *queries, *bits(value, 2), query), seen(*bits(value, 2), *bits(query, 2))

    def step(s, a, u):
        right = jnp.where(s[7] == 0, s[5], s[6])
        (value, values), (query, queries) = drawn(s[1:3], u[0]), drawn(s[3:5], u[1])
        counts = [s[5] + (value == 0), s[6] + (value == 1)]
        reward = (2.0 * (a == right) - 1) / 51
        after = state(s[0] + 1, *values, *queries, *counts, query)
        return after, seen(*bits(value, 2), *bits(query, 2)), reward, s[0] >= 51, NO

    return reset, step


def cart_pole(shown, most, noise=0.0):
    """``shown``: which of position, velocity, angle and its velocity; ``most``: steps of an episode."""

    def look(s, u):
        return seen(*(s[i] + noise * gauss(u[k % 2], u[2 + k % 2]) for k, i in enumerate(shown)))

    def reset(u):
        s = state(*(0.1 * u - 0.05))
        return s, look(s, u)

    def step(s, a, u):
        x, v, angle, spin, n = (s[i] for i in range(5))
        sine, cosine = jnp.sin(angle), jnp.cos(angle)
        push = (jnp.where(a == 1, 10.0, -10.0) + 0.05 * spin**2 * sine) / 1.1
        turn = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        pull = push - 0.05 * turn * cosine / 1.1
        after = state(x + 0.02 * v, v + 0.02 * pull, angle + 0.02 * spin, spin + 0.02 * turn, n + 1)
        fallen = (jnp.abs(after[0]) > 2.4) | (jnp.abs(after[2]) > 12 * math.pi / 180)
        reward = 1.0 if len(shown) == 4 else 1 / most
        return after, look(after, u), jnp.float32(reward), fallen, (n + 1 >= most) & ~fallen

    return reset, step


def memory_len(length):
    """A bit at the first step, asked for at the last."""

    def look(time, bit):
        return seen(1 - time / length, 0, jnp.where(time == 0, 2 * bit - 1, 0.0))

    def reset(u):
        bit = jnp.floor(2 * u[0])
        return state(bit, 0), look(0.0, bit)

    def step(s, a, u):
        over = s[1] >= length
        return state(s[0], s[1] + 1), look(s[1] + 1, s[0]), jnp.where(over, 2.0 * (a == s[0]) - 1, 0.0), over, NO

    return reset, step


def informant(length, decisions=1):
    """One state of the chain tells the truth, the others anything; the first action alone leads on."""

    def look(place, told, shown):
        chain = (place >= 1) & (place <= length)
        asked = place > length
        cells = [chain & b for b in bits(shown, 3)]
        return seen(*cells, chain & told, chain & ~told, ~asked, asked, place - length == 1)

    def reset(u):
        right, at = jnp.floor(3 * u[0]), 1 + jnp.floor(length * u[1])
        return state(right, at, 0, 0), look(0.0, NO, 0.0)

    def step(s, a, u):
        right, at, place = s[0], s[1], s[2]
        deciding = place > length
        on = deciding | (a == 1)
        place = place + on
        told = place == at
        shown = jnp.where(on, jnp.where(told, right, jnp.floor(3 * u[0])), s[3])
        wrong = deciding & (a != right)
        last = deciding & (place - length > decisions)
        return (
            state(right, at, place, shown),
            look(place, told, shown),
            jnp.where(last & ~wrong, 1.0, 0.0),
            wrong | last,
            NO,
        )

    return reset, step


def corridor(length, most):
    """As far as the end, each step at a cost; either way is open."""

    def look(place):
        return seen(place / length, 1)

    def reset(u):
        return state(0, 0), look(0.0)

    def step(s, a, u):
        place, n = jnp.clip(s[0] + jnp.where(a == 1, 1.0, -1.0), 0, length), s[1] + 1
        there = place >= length
        return state(place, n), look(place), jnp.where(there, 0.0, -1.0), there, (n >= most) & ~there

    return reset, step


def mountain_car(most, force=0.001):
    """Gymnasium's, with ``most`` steps an episode and an engine of this ``force``."""

    def reset(u):
        held = state(0.2 * u[0] - 0.6, 0, 0)
        return held, seen(held[0], held[1])

    def step(s, a, u):
        n = s[2] + 1
        speed = jnp.clip(s[1] + (a - 1) * force - 0.0025 * jnp.cos(3 * s[0]), -0.07, 0.07)
        place = jnp.clip(s[0] + speed, -1.2, 0.6)
        speed = jnp.where((place <= -1.2) & (speed < 0), 0.0, speed)
        there = place >= 0.5
        return state(place, speed, n), seen(place, speed), jnp.float32(-1.0), there, (n >= most) & ~there

    return reset, step


def swing_up(torque, most):
    """A hanging pendulum, to be swung up by a motor too weak to lift it; each step has its cost."""

    def look(s):
        return seen(jnp.cos(s[0]), jnp.sin(s[0]), s[1])

    def reset(u):
        held = state(math.pi + 0.2 * u[0] - 0.1, 0.2 * u[1] - 0.1, 0)
        return held, look(held)

    def step(s, a, u):
        angle, spin, n = s[0], s[1], s[2] + 1
        for _ in range(2):
            pull = 15 * jnp.sin(angle) - 0.1 * spin + 3 * torque * (a - 1)
            spin = jnp.clip(spin + 0.05 * pull, -8, 8)
            angle = angle + 0.05 * spin
        up, held = jnp.cos(angle) > 0.95, state(angle, spin, n)
        return held, look(held), jnp.where(up, 0.0, -1.0), up, (n >= most) & ~up

    return reset, step


CARD = (-0.5, 1.0)
# Name: (the task, elements observed, actions, return of random actions, the best, the mark).
TASKS = {
    "cartpole": (cart_pole((0, 1, 2, 3), 500), 4, 2, 22.0, 500.0, 475.0),
    "position-cartpole": (cart_pole((0, 2), 200), 2, 2, 0.11, 1.0, 0.9),
    "velocity-cartpole": (cart_pole((1, 3), 200), 2, 2, 0.11, 1.0, 0.95),
    "noisy-cartpole": (cart_pole((0, 2), 200, 0.1), 2, 2, 0.11, 1.0, 0.58),
    "t-maze-40": (t_maze(40), 4, 2, 0.0, 1.0, 0.95),
    "t-maze-160": (t_maze(160), 4, 2, 0.0, 1.0, 0.98),
    "noisy-recall-20": (noisy_recall(20), 4, 2, 0.0, 1.0, 0.95),
    "noisy-recall-60": (noisy_recall(60), 4, 2, 0.0, 1.0, 0.95),
    "noisy-recall-200": (noisy_recall(200), 4, 2, 0.0, 1.0, 0.95),
    "noisy-recall-anywhere-60": (noisy_recall(60, True), 4, 2, 0.0, 1.0, 0.95),
    "repeat-first-1": (repeat_first(1), 4, 4, *CARD, 0.95),
    "repeat-first-16": (repeat_first(16), 4, 4, *CARD, 0.95),
    "repeat-first-1-flagged": (flagged(repeat_first(1), 4), 5, 4, *CARD, 0.95),
    "repeat-first-16-flagged": (flagged(repeat_first(16), 4), 5, 4, *CARD, 0.95),
    "repeat-previous-4": (repeat_previous(4), 4, 4, *CARD, 0.9),
    "count-recall": (count_recall(), 4, 27, -0.93, 1.0, 0.2),
    "count-recall-flagged": (flagged(count_recall(), 4), 5, 27, -0.93, 1.0, 0.2),
    "memory-len-30": (memory_len(30), 3, 2, 0.0, 1.0, 0.95),
    "memory-len-100": (memory_len(100), 3, 2, 0.0, 1.0, 0.95),
    "informant-10": (informant(10), 8, 3, 1 / 3, 1.0, 0.95),
    "informant-40": (informant(40), 8, 3, 1 / 3, 1.0, 0.95),
    "informant-10-2": (informant(10, 2), 8, 3, 1 / 9, 1.0, 0.95),
    "corridor-30": (corridor(30, 300), 2, 2, -300.0, -29.0, -40.0),
    "swing-up-300": (swing_up(1.5, 300), 3, 3, -300.0, -34.0, -80.0),
    "swing-up-500": (swing_up(1.2, 500), 3, 3, -500.0, -44.0, -100.0),
    "mountain-car-200": (mountain_car(200), 2, 3, -200.0, -105.0, -130.0),
    "mountain-car-1000": (mountain_car(1000, 0.0015), 2, 3, -1000.0, -75.0, -150.0),
}


class Masked(Categorical):
    """The first few of the actions: the others have probability 0."""

    def __init__(self, count):
        object.__setattr__(self, "there", jnp.arange(ACTIONS) < count)

    def _shown(self, outputs):
        return jnp.where(self.there, outputs, -1e9)  # type: ignore[attr-defined]

    def draw(self, outputs, u):
        """As the base class, among those that are there."""
        return super().draw(self._shown(outputs), u)

    def log_probability(self, outputs, action):
        """As the base class, among those that are there."""
        return super().log_probability(self._shown(outputs), action)

    def entropy(self, outputs):
        """As the base class, among those that are there."""
        return super().entropy(self._shown(outputs))


def build(names):
    """The start and one step of a run: of the agent ``numbers`` on the task ``task``."""
    tasks = [TASKS[name][0] for name in names]
    counts = jnp.array([TASKS[name][2] for name in names])

    def pick(task, options):
        found = [jnp.stack(jnp.broadcast_arrays(*parts)) for parts in zip(*options, strict=True)]
        return [part[task] for part in found]

    def reset(task, u):
        return pick(task, [t[0](u) for t in tasks])

    def start(agent, task, key):
        agent = agent.replace(actions=Masked(counts[task]))
        one, two, three, four = jax.random.split(key, 4)
        held, observation = reset(task, jax.random.uniform(one, (4,)))
        learner, action = agent.begin(agent.init(two, OBSERVED, ACTIONS), observation, three)
        return learner, held, action, jnp.zeros(()), four

    def step(agent, task, run, t):
        agent = agent.replace(actions=Masked(counts[task]))
        learner, held, action, total, key = run
        one, two, three, four = jax.random.split(jax.random.fold_in(key, t), 4)
        outcomes = [s(held, action.astype(jnp.float32), jax.random.uniform(one, (4,))) for _, s in tasks]
        held, observation, reward, ended, cut = pick(task, [[jnp.asarray(x) for x in o] for o in outcomes])
        learner = agent.learn(learner, TimeStep(observation, reward, ended, cut), two)
        over, total = ended | cut, total + reward
        fresh, first = reset(task, jax.random.uniform(four, (4,)))
        held, observation = jnp.where(over, fresh, held), jnp.where(over, first, observation)
        learner, action = agent.begin(learner, observation, three)
        done = jnp.stack([jnp.where(over, total, 0.0), over.astype(jnp.float32)])
        return (learner, held, action, jnp.where(over, 0.0, total), key), done

    return start, step


def _made(agent, options):
    return named.make(agent, **{k: tuple(x) if isinstance(x, list) else x for k, x in options.items()})


@dataclasses.dataclass(frozen=True)
class Copy:
    """One of the tasks in its own sizes, as an environment."""

    name: str

    @property
    def observation_size(self):
        """Elements observed."""
        return TASKS[self.name][1]

    @property
    def num_actions(self):
        """Actions there are."""
        return TASKS[self.name][2]

    def reset(self, key):
        """Begin an episode."""
        held, observation = TASKS[self.name][0][0](jax.random.uniform(key, (4,)))
        return held, observation[: self.observation_size]

    def step(self, state, action, key):
        """Take one action."""
        of = TASKS[self.name][0][1](state, action.astype(jnp.float32), jax.random.uniform(key, (4,)))
        held, observation, reward, ended, cut = of
        return held, TimeStep(observation[: self.observation_size], jnp.float32(reward), ended, cut)


def planned(plan):
    """The tasks' names, how many seeds each has, and the agents of the variants."""
    names, seeds = plan.get("tasks", list(TASKS)), plan["seeds"]
    count = {t: seeds.get(t, seeds["others"]) if isinstance(seeds, dict) else seeds for t in names}
    options = plan.get("base", {})
    return names, count, {v: _made(plan.get("agent", "general"), options | own) for v, own in plan["variants"].items()}


def rows_of(runs, curves):
    """A row a run, of a variant, a task and a seed: its mean return in every part."""
    return [
        {"variant": v, "task": t, "seed": s, "curve": [None if math.isnan(x) else round(float(x), 4) for x in own]}
        for (v, t, s), own in zip(runs, np.array(curves).T, strict=True)
    ]


def search_one_by_one(plan, steps, blocks, limit):
    """As `search`, by the step compiler; a part has a whole number of records."""
    names, count, made = planned(plan)
    each, rows, began = max(1, steps // blocks // loop.RECORD), [], time.monotonic()
    for name, (variant, agent) in itertools.product(names, made.items()):
        seeds, endless = range(plan["first_seed"], plan["first_seed"] + count[name]), (2**30,) * 4
        agents, env = loop.broadcast(agent, len(seeds)), Copy(name)
        state, before, curves = loop.start(agents, env, jnp.array(seeds, jnp.uint32), 1), 0.0, []
        for _ in range(blocks):
            state, _ = loop.advance("cpu", agents, env, state, endless, each)
            sums = np.asarray(state.sums, np.float64)[:, 0] - before
            before = before + sums
            curves.append(sums[:, 0] / np.where(sums[:, 2] > 0, sums[:, 2], np.nan))
        own = rows_of([(variant, name, s) for s in seeds], curves)
        rows += own
        show(own)
        if time.monotonic() - began > limit:
            print(f"--limit: stopped after {variant} on {name}", flush=True)
            break
    return rows


def search(plan, steps, blocks, limit):
    """Rows of a task and a variant: the returns of every seed over ``blocks`` parts of the run."""
    names, count, made = planned(plan)
    first = plan["first_seed"]
    runs = [(v, t, s) for v in made for t in names for s in range(first, first + count[t])]
    agents = jax.tree.map(lambda *x: jnp.array(x, jnp.float32), *(made[v] for v, _, _ in runs))
    task = jnp.array([names.index(t) for _, t, _ in runs])
    keys = jax.vmap(lambda s: jax.random.fold_in(jax.random.key(11), s))(jnp.array([s for _, _, s in runs]))
    start, step = build(names)
    state = jax.jit(jax.vmap(start))(agents, task, keys)
    each = steps // blocks

    @jax.jit
    def block(state, first):
        def one(carry, t):
            state, sums = carry
            state, done = jax.vmap(step, (0, 0, 0, None))(agents, task, state, t)
            return (state, sums + done), None

        (state, sums), _ = jax.lax.scan(one, (state, jnp.zeros((len(runs), 2))), first + jnp.arange(each))
        return state, sums

    curves, began = [], time.monotonic()
    for k in range(blocks):
        state, sums = block(state, jnp.int32(k * each))
        sums = np.asarray(sums)
        curves.append(sums[:, 0] / np.where(sums[:, 1] > 0, sums[:, 1], np.nan))
        taken = time.monotonic() - began
        print(f"{(k + 1) * each:,} steps of {len(runs)} runs: {taken:.0f} s", flush=True)
        if taken * (k + 2) / (k + 1) > limit:
            print(f"--limit: stopped after {(k + 1) * each:,} steps", flush=True)
            break
    return rows_of(runs, curves)


def played(name, share, episodes=1000, most=1000):
    """Of episodes of a random policy whose numbers are kept with this chance: the share that ended by themselves."""
    reset, step = TASKS[name][0]
    count = TASKS[name][2]

    def one(key):
        def on(carry, key):
            held, number, over, ended = carry
            u = jax.random.uniform(key, (6,))
            number = jnp.where(u[4] < share, number, u[5])
            held, _, _, end, cut = step(held, jnp.floor(count * number), u[:4])
            return (held, number, over | end | cut, ended | (end & ~over)), None

        keys = jax.random.split(key, most + 1)
        start = (reset(jax.random.uniform(keys[0], (4,)))[0], 0.5, NO, NO)
        return jax.lax.scan(on, start, keys[1:])[0][3]

    return float(jnp.mean(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), episodes))))


def show(rows):
    """A line a variant: per task the mean of the last tenth, and how many seeds are at the mark there.

    Held: of all tenths of a run that end in its last three fifths, the share whose mean is at the mark.
    """
    variants, tasks = (list(dict.fromkeys(row[kind] for row in rows)) for kind in ("variant", "task"))
    for variant in variants:
        cells, score = [], []
        for task in tasks:
            own = [r["curve"] for r in rows if (r["variant"], r["task"]) == (variant, task)]
            curve = np.array(own, float)
            last = np.nanmean(curve[:, -max(1, curve.shape[1] // 10) :], axis=1)
            _, _, _, low, best, mark = TASKS[task]
            score.append(np.nanmean((last - low) / (best - low)))
            good = curve >= mark
            since = [own[own.argmax() :] for own in good if own.any()]
            lost, all_ = sum((~own).sum() for own in since), sum(map(len, since))
            count = curve.shape[1]
            part = max(1, count // 10)
            ends = range(2 * count // 5 + part, count + 1)
            held = [np.nanmean(own[k - part : k]) >= mark for own in curve for k in ends]
            cells.append(
                f"{task} {np.nanmean(last):.3g}, least {last.min():.3g} ({(last >= mark).sum()} of {len(last)}, "
                f"ever {len(since)}; below it later in {lost} of {all_} parts; held {np.mean(held):.3f})"
            )
        print(f"{variant:24s} {np.mean(score):.3f} | " + " | ".join(cells), flush=True)


def main():
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("plan", type=Path, help="JSON file with the variants, tasks and seeds")
    arguments.add_argument("--read", action="store_true", help="PLAN is a file that --out wrote: print its lines again")
    arguments.add_argument("--random", metavar="SHARES", help="play the plan's tasks at random, with these shares")
    arguments.add_argument("--steps", type=int, default=300_000, help="of every run (default: 300,000)")
    arguments.add_argument("--blocks", type=int, default=50, help="parts over which returns are averaged (default: 50)")
    arguments.add_argument("--limit", type=float, default=math.inf, help="seconds after which no part is begun")
    arguments.add_argument("--one-by-one", action="store_true", help="by the step compiler, in the tasks' own sizes")
    arguments.add_argument("--out", type=Path, help="JSON file for the curves")
    args = arguments.parse_args()
    plan = json.loads(args.plan.read_text())
    if args.read:
        for part in plan.get("parts", [plan]):
            show(part["rows"])
        return
    if args.random is not None:
        for name, share in itertools.product(plan["tasks"], map(float, args.random.split(","))):
            print(f"{name}: numbers kept with {share}: {played(name, share):.3f} of 1,000 episodes ended by themselves")
        return
    rows = (search_one_by_one if args.one_by_one else search)(plan, args.steps, args.blocks, args.limit)
    if not args.one_by_one:
        show(rows)
    if args.out is not None:
        args.out.write_text(json.dumps({"plan": plan, "steps": args.steps, "rows": rows}))


if __name__ == "__main__":
    main()
