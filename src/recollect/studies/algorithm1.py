"""The paper's Algorithm 1 as printed, beside the reservoir: ``recollect lab algorithm1``."""

import math

import numpy as np
from numba import njit

from recollect import Reservoir
from recollect.reservoir.random import seeded, uniform


@njit(cache=True, error_model="numpy")
def algorithm1(w, n, rng):
    """The paper's Algorithm 1 as printed, in float64; returns kept positions and the first item whose P was NaN."""
    W = w[:n].copy()
    T = np.arange(n)
    for i in range(n - 1, 0, -1):
        k = int(uniform(rng) * (i + 1))
        W[i], W[k] = W[k], W[i]
        T[i], T[k] = T[k], T[i]
    Omega = np.ones(n + 1)
    tilde = np.ones(n)
    for i in range(n - 1, -1, -1):
        Omega[i] = W[i] * Omega[i + 1]
    for i in range(n - 2, -1, -1):
        tilde[i] = Omega[i + 1] + W[i] * tilde[i + 1]
    first_nan = -1
    for t in range(n, len(w)):
        omega, tau = w[t], t
        for i in range(n):
            one = Omega[i] + omega * tilde[i]
            two = Omega[i + 1] if i == n - 1 else Omega[i + 1] + omega * tilde[i + 1]
            above, below = two * Omega[i], one * Omega[i + 1]
            P = 1.0 - above / below if below != 0.0 else math.nan
            if first_nan < 0 and math.isnan(P):
                first_nan = t
            if uniform(rng) < P:
                omega, W[i] = W[i], omega
                tau, T[i] = T[i], tau
            Omega[i] = one
        for i in range(n - 2, -1, -1):
            tilde[i] = Omega[i + 1] + W[i] * tilde[i + 1]
    return T, first_nan


def shares(repeats: int = 8) -> list[dict]:
    """Share of the sample that comes from the last half of a uniform stream (it should be .50)."""
    rows = []
    for n, length in ((3, 200_000), (16, 200_000), (64, 200_000), (256, 20_000), (1024, 10_000)):
        w = 1 - np.random.default_rng(n).random(length)
        printed, shipped, first_nan = [], [], -1
        for seed in range(repeats):
            kept, first_nan = algorithm1(w, n, seeded(seed))
            printed.append(np.mean(kept >= length // 2))
            r = Reservoir(n, seed=seed)
            r.extend(range(length), w)
            shipped.append(np.mean(r.indices >= length // 2))
        rows.append(
            {
                "n": n,
                "items": length,
                "algorithm1": float(np.mean(printed)),
                "reservoir": float(np.mean(shipped)),
                "standard_error": 0.5 / float(np.sqrt(repeats * n)),
                "first_nan": None if first_nan < 0 else int(first_nan),
            }
        )
    return rows
