"""The paper's Algorithm 1, line for line: the reading beside the page that everything else is tested against.

It is exact in exact arithmetic (give it ``fractions.Fraction`` weights) and the plainest statement of the sampler.
In floating point it fails silently for large memories or long streams, because Ω holds sums over all subsets and
leaves the range of the type; ``docs/reservoir.md`` has the table. Use ``recollect.Reservoir`` for real streams.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


class Algorithm1:
    """Keep ``n`` of the items seen, each n-subset with probability proportional to the product of its weights.

    Symbols: Ω ↔ ``Omega``, Ω̃ ↔ ``Omega_tilde``, W ↔ ``W``, T̂ ↔ ``T_hat``, as on the page.

    Args:
        first_weights: the weights of items 0 … n−1; their number is n.
        permutation: the random order line 10 puts them in (a permutation of 0 … n−1).

    Paper: Algorithm 1, lines 1-18
    """

    def __init__(self, first_weights: Sequence[Any], permutation: Sequence[int]):
        n = len(first_weights)
        one = first_weights[0] / first_weights[0]
        self.n = n
        self.Omega = [0 * one] * (n + 1)
        self.Omega_tilde = [0 * one] * n
        self.W = [first_weights[t] for t in permutation]
        self.T_hat = list(permutation)
        self.Omega[n] = one
        self.Omega_tilde[n - 1] = one
        for i in range(n - 1, -1, -1):
            self.Omega[i] = self.W[i] * self.Omega[i + 1]
        self._refresh_omega_tilde()

    def _refresh_omega_tilde(self) -> None:
        for i in range(self.n - 2, -1, -1):
            self.Omega_tilde[i] = self.Omega[i + 1] + self.W[i] * self.Omega_tilde[i + 1]

    def update(self, w: Any, t: int, flip: Callable[[Any], bool]) -> None:
        """Show item ``t`` of weight ``w``; ``flip(P)`` says whether an event of probability P happens.

        Paper: Algorithm 1, UPDATE, lines 1-18
        """
        Omega, Omega_tilde = self.Omega, self.Omega_tilde
        omega, tau = w, t
        for i in range(self.n):
            Omega_1 = Omega[i] + omega * Omega_tilde[i]
            Omega_2 = Omega[i + 1] if i == self.n - 1 else Omega[i + 1] + omega * Omega_tilde[i + 1]
            P = 1 - (Omega_2 * Omega[i]) / (Omega_1 * Omega[i + 1])
            if flip(P):
                omega, self.W[i] = self.W[i], omega
                tau, self.T_hat[i] = self.T_hat[i], tau
            Omega[i] = Omega_1
        self._refresh_omega_tilde()


def sample(weights: Sequence[float], n: int, seed: int | None = None) -> list[int]:
    """Run Algorithm 1 in float64 over a whole stream and return the kept positions, in slot order.

    >>> sorted(sample([1.0, 1.0, 1.0], 3))
    [0, 1, 2]

    Paper: Algorithm 1, lines 19-22
    """
    if not 1 <= n <= len(weights):
        raise ValueError(f"n must be between 1 and the number of weights ({len(weights)}), got {n}")
    rng = np.random.default_rng(seed)
    weights = [float(w) for w in weights]
    reservoir = Algorithm1(weights[:n], rng.permutation(n).tolist())
    for t in range(n, len(weights)):
        reservoir.update(weights[t], t, lambda P: bool(rng.random() < P))
    return reservoir.T_hat
