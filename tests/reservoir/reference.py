"""The sampler step by step in any number type, from the Python source of the very functions that are compiled."""

import math

from recollect.reservoir.ratios import accept_probability, drop_probability, grown, keep_probability


class Plain:
    """Form in arrival order: list of (position, weight, ratios before it), and the ratios now."""

    def __init__(self, n, zero):
        self.n, self.kept, self.g = n, [], [None] + [zero] * n
        self.seen = 0

    def add(self, w, flip):
        full = len(self.kept) == self.n
        if not full or flip(accept_probability.py_func(self.g[self.n], w)):
            if full:
                k = self.n
                while k > 1:
                    _, w_s, G = self.kept[k - 1]
                    if flip(drop_probability.py_func(G[k - 1], G[k], w_s)):
                        break
                    k -= 1
                del self.kept[k - 1]
            self.kept.append((self.seen, w, list(self.g)))
        later = [grown.py_func(self.g[k - 1], self.g[k], w) for k in range(2, self.n + 1)]
        self.g = [None, self.g[1] + w, *later]
        self.seen += 1

    def downsampled(self, need, flip):
        stay = []
        for rank in range(len(self.kept), 0, -1):
            if need == 0:
                break
            item = self.kept[rank - 1]
            if need == rank or flip(keep_probability.py_func(item[2][rank], item[2][need], item[1])):
                stay.append(item)
                need -= 1
        return stay[::-1]

    def positions(self):
        return tuple(sorted(p for p, _, _ in self.kept))


def polynomial(g, size):
    e = [g[1] * 0 + 1]
    for k in range(1, size + 1):
        e.append(e[-1] * g[k])
    return e


def ratios_of_union(a, b, n):
    ea, eb = polynomial(a, n), polynomial(b, n)
    e = [sum(ea[j] * eb[m - j] for j in range(m + 1)) for m in range(n + 1)]
    return [None] + [e[m] / e[m - 1] if e[m - 1] else e[m] for m in range(1, n + 1)]


def pick(weights, flip):
    """One of the positions with probability ∝ weights, by two-way flips."""
    left = sum(weights)
    for k, w in enumerate(weights):
        if w and flip(w / left):
            return k
        left -= w
    raise AssertionError


def merged(a, b, flip):
    n = a.n
    size = min(n, len(a.kept) + len(b.kept))
    ea, eb = polynomial(a.g, size), polynomial(b.g, size)
    from_a = pick([ea[k] * eb[size - k] for k in range(size + 1)], flip)
    c = Plain(n, a.g[1] * 0)
    c.kept = a.downsampled(from_a, flip)
    for position, w, G in b.downsampled(size - from_a, flip):
        c.kept.append((a.seen + position, w, ratios_of_union(a.g, G, n)))
    c.g = ratios_of_union(a.g, b.g, n)
    c.seen = a.seen + b.seen
    return c


def log_of(g):
    return [math.log(x) if x > 0 else -math.inf for x in g[1:]]
