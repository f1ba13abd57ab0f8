"""Every branch of a random procedure, with its exact probability."""

from collections import defaultdict
from fractions import Fraction


class _Path:
    """One way through: follows a script of outcomes, then takes 'yes' and notes the 'no' for later."""

    def __init__(self, script, weight, todo):
        self.script, self.weight, self.todo, self.decided = script, weight, todo, []

    def flip(self, p):
        assert 0 <= p <= 1
        if len(self.decided) < len(self.script):
            outcome = self.script[len(self.decided)]
        else:
            outcome = p > 0
            if 0 < p < 1:
                self.todo.append(((*self.decided, False), self.weight * (1 - p)))
                self.weight *= p
        self.decided.append(outcome)
        return outcome


def distribution(procedure):
    """The law of ``procedure(flip)``'s outcome; ``flip(p)`` is an event of probability p, tried both ways."""
    law = defaultdict(Fraction)
    todo = [((), Fraction(1))]
    while todo:
        path = _Path(*todo.pop(), todo)
        outcome = procedure(path.flip)
        law[outcome] += path.weight
    return dict(law)


def total_variation(a, b):
    return sum(abs(a.get(k, 0) - b.get(k, 0)) for k in {*a, *b}) / 2
