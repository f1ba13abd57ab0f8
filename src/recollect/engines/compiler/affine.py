"""Places in arrays as sums of constants and loop variables, so that strides are known while code is written.

An index is a pair: a whole number, and the loop variables with their factors, sorted by name.
"""

from collections.abc import Sequence

Index = tuple[int, tuple[tuple[str, int], ...]]

ZERO: Index = (0, ())


def number(k: int) -> Index:
    """A constant place."""
    return (int(k), ())


def variable(name: str) -> Index:
    """A loop variable."""
    return (0, ((name, 1),))


def add(a: Index, b: Index) -> Index:
    """A + b."""
    if not a[1]:
        return (a[0] + b[0], b[1])
    if not b[1]:
        return (a[0] + b[0], a[1])
    factors = dict(a[1])
    for name, k in b[1]:
        factors[name] = factors.get(name, 0) + k
    return (a[0] + b[0], tuple(sorted((n, k) for n, k in factors.items() if k)))


def scale(a: Index, k: int) -> Index:
    """K · a."""
    if k == 1:
        return a
    if k == 0:
        return ZERO
    return (a[0] * k, tuple((name, factor * k) for name, factor in a[1]))


def factor(a: Index, name: str) -> int:
    """How far ``a`` moves when a variable moves by one."""
    return dict(a[1]).get(name, 0)


def linear(shape: Sequence[int], index: Sequence[Index]) -> Index:
    """The place in row-major order."""
    place = ZERO
    for size, i in zip(shape, index, strict=True):
        place = scale(place, size)
        if size > 1:
            place = add(place, i)
    return place
