"""Recordings made by hand, with numbers that tests know."""

import numpy as np

from recollect.view import format as recording

NAMES = ["up", "down", "corridor", "junction"]


def memory(rng, steps, slots, observations):
    """A memory that stores most steps over the oldest slot, and a query over what it holds."""
    slot, seen, begin, until, weight = [], [], [], [], []
    occupant, now = np.full((steps, slots), -1), [-1] * slots
    for t in range(steps):
        if t and rng.random() < 0.7:
            at = t % slots if -1 not in now else now.index(-1)
            if now[at] >= 0:
                until[now[at]] = t
            now[at] = len(slot)
            for column, value in ((slot, at), (seen, t - 1), (begin, t), (until, steps), (weight, -rng.random())):
                column.append(value)
        occupant[t] = now
    filled = occupant >= 0
    query = rng.normal(size=(steps, observations.shape[1])).astype(np.float32)
    items = observations[np.array(seen, int)[np.maximum(occupant, 0)]] if seen else np.zeros((steps, slots, 1))
    scores = np.where(filled, np.einsum("tns,ts->tn", items, query) / 0.5, -np.inf)
    shares = np.exp(scores - np.where(filled.any(1), scores.max(1), 0)[:, None])
    shares = np.where(filled, shares / np.maximum(shares.sum(1), 1e-9)[:, None], 0.0)
    recalled = np.where(filled.any(1), shares.argmax(1), -1)
    return {
        "slots": slots,
        "stays": {
            "slot": recording.encode(np.array(slot, int)),
            "seen": recording.encode(np.array(seen, int)),
            "from": recording.encode(np.array(begin, int)),
            "until": recording.encode(np.array(until, int)),
            "log_weight": recording.encode(np.array(weight, np.float32)),
        },
        "recalled": recording.encode(recalled),
        "probability": recording.encode_shares(shares),
        "query": recording.encode(query),
        "temperature": recording.encode(np.full(steps, 0.5, np.float32)),
        "log_write_weight": recording.encode(-rng.random(steps).astype(np.float32)),
        "credit": recording.encode(np.where(recalled >= 0, rng.normal(size=steps), 0.0).astype(np.float32)),
    }


def episode(steps=12, slots=3, size=4, seed=0, trained=1000):
    rng = np.random.default_rng(seed)
    observations = np.eye(size, dtype=np.float32)[rng.integers(size, size=steps)]
    policy = rng.dirichlet(np.ones(3), size=steps).astype(np.float32)
    reward = np.where(rng.random(steps) < 0.2, rng.choice([-1.0, 1.0], steps), 0.0).astype(np.float32)
    reward[-1] = 1.0
    return {
        "trained": trained,
        "seed": 0,
        "steps": steps,
        "return": float(reward.sum()),
        "ended": "terminated",
        "observation": recording.encode_values(observations),
        "action": recording.encode(policy.argmax(1)),
        "reward": recording.encode(reward),
        "policy": recording.encode(policy),
        "value": recording.encode(rng.normal(size=steps).astype(np.float32)),
        "delta": recording.encode(rng.normal(size=steps).astype(np.float32)),
        "memory": memory(rng, steps, slots, observations),
    }


def document(steps=12, slots=3, size=4, title="a sample", episodes=1, names=None):
    return {
        "format": recording.FORMAT,
        "version": recording.VERSION,
        "title": title,
        "environment": {"name": "test/Maze-v0", "options": {"length": 10}},
        "agent": {"name": "episodic"},
        "observation": {"names": names or (NAMES if size == 4 else [f"x{k}" for k in range(size)]), "shape": None},
        "actions": {"names": ["left", "right", "stay"], "kind": "categorical", "sizes": [3]},
        "episodes": [episode(steps, slots, size, seed=k, trained=1000 * k) for k in range(episodes)],
    }
