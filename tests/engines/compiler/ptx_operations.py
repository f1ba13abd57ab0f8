"""What instructions of PTX compute, on the 32 lanes of a warp at once, rounded as on a GPU, tiny numbers as 0."""

import numpy as np

LANES = np.arange(32)
NORMAL = np.float32(2.0**-126)
TYPES = {
    **{"f32": np.float32, "b32": np.uint32, "u32": np.uint32, "s32": np.int32},
    **{"b64": np.uint64, "u64": np.uint64, "s64": np.int64},
    **{"b16": np.uint16, "u16": np.uint16, "s16": np.int16, "pred": np.bool_},
}


def flushed(x):
    """Numbers too small to be normal as 0 of their sign."""
    x = np.asarray(x, np.float32)
    tiny = np.abs(x) < NORMAL
    return np.where(tiny, np.copysign(np.float32(0), x), x) if np.count_nonzero(tiny) else x


def fma(a, b, c):
    """a·b + c, rounded once: in double, and made odd where that is not exact, so that rounding it again is right."""
    a, b, c = (flushed(x).astype(np.float64) for x in (a, b, c))
    product = a * b
    total = product + c
    back = total - product
    rest = (product - (total - back)) + (c - back)
    even = (rest != 0) & np.isfinite(rest) & np.isfinite(total) & (total.view(np.uint64) & np.uint64(1) == 0)
    total = np.where(even, np.nextafter(total, np.where(rest > 0, np.inf, -np.inf)), total)
    return flushed(total.astype(np.float32))


def _float(function):
    return lambda *x: flushed(function(*map(flushed, x)))


FLOATS = {
    "fma": fma,
    "add": _float(np.add),
    "sub": _float(np.subtract),
    "mul": _float(np.multiply),
    "div": _float(np.divide),
    "rcp": _float(lambda x: np.float32(1) / x),
    "sqrt": _float(np.sqrt),
    "neg": _float(np.negative),
    "abs": _float(np.abs),
    "min": _float(np.fmin),
    "max": _float(np.fmax),
    "copysign": lambda sign, x: np.copysign(x, sign),  # PTX names the sign first, and flushes nothing
}
WITH_NAN = {"min": _float(np.minimum), "max": _float(np.maximum)}


def _quotient(a, b):
    b = np.where(b == 0, np.ones_like(b), b)
    if a.dtype.kind == "u":
        return a // b
    return (np.sign(a) * np.sign(b) * (np.abs(a.astype(np.int64)) // np.abs(b.astype(np.int64)))).astype(a.dtype)


def _bits(x, first, count):
    """So many bits of unsigned numbers."""
    assert x.dtype.kind == "u", "bits of signed numbers are not known here"
    one = np.ones_like(x)
    return (x >> first) & ((one << count) - one)


INTEGERS = {
    "bfe": _bits,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.bitwise_not,
    "neg": np.negative,
    "min": np.minimum,
    "max": np.maximum,
    "abs": np.abs,
    "div": _quotient,
    "rem": lambda a, b: a - _quotient(a, b) * b,
    "mad": lambda a, b, c: a * b + c,
    "popc": lambda a: np.bitwise_count(a).astype(np.uint32),
}

COMPARISONS = {
    **{"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater},
    **{"ge": np.greater_equal, "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal},
}


def compared(how, kind, a, b):
    """A comparison; of floats with what holds of NaN."""
    if kind != "f32":
        return COMPARISONS[how](a, b)
    a, b = flushed(a), flushed(b)
    nan = np.isnan(a) | np.isnan(b)
    if how in ("nan", "num"):
        return nan if how == "nan" else ~nan
    if how.endswith("u"):
        return COMPARISONS[how[:-1]](a, b) | nan
    return COMPARISONS[how](a, b) & ~nan


def wide_product(kind, a, b):
    """Twice as many bits."""
    long = np.uint64 if kind == "u32" else np.int64
    return a.astype(long) * b.astype(long)


def shifted(left, kind, x, by):
    """Shifts, which may be longer than a word."""
    bits = np.uint32(int(kind[1:]))
    short = np.minimum(by, bits - 1).astype(x.dtype)
    far = x >> short if not left and kind[0] == "s" else np.zeros_like(x)
    return np.where(by >= bits, far, x << short if left else x >> short)


def permuted(a, b, selector):
    """Bytes of two words, chosen by four bits each; the fourth says to repeat the sign."""
    words = a.astype(np.uint64) | (b.astype(np.uint64) << np.uint64(32))
    result = np.zeros(32, np.uint64)
    for k in range(4):
        chosen = (selector.astype(np.uint64) >> np.uint64(4 * k)) & np.uint64(15)
        octet = (words >> ((chosen & np.uint64(7)) * np.uint64(8))) & np.uint64(255)
        sign = np.where(octet >= 128, np.uint64(255), np.uint64(0))
        result |= np.where(chosen >= 8, sign, octet) << np.uint64(8 * k)
    return result.astype(np.uint32)


def funnel(direction, low, high, by):
    """One word of two that were shifted together."""
    words, by = (high.astype(np.uint64) << np.uint64(32)) | low, (by & np.uint32(31)).astype(np.uint64)
    moved = words >> by if direction == "r" else (words << by) >> np.uint64(32)
    return moved.astype(np.uint32)


ROUNDINGS = {"rmi": np.floor, "rpi": np.ceil, "rzi": np.trunc, "rni": np.rint}


def converted(parts, x):
    """A conversion as its instruction names it."""
    to, of = parts[-2:]
    if to == "f32" and of == "f32":
        return ROUNDINGS.get(parts[1], lambda v: v)(flushed(x))
    if of == "f32":
        low, high = (-(2**31), 2**31 - 1) if to == "s32" else (0, 2**32 - 1)
        whole = ROUNDINGS[parts[1]](flushed(x).astype(np.float64))
        whole = np.where(np.isnan(whole), 0, np.clip(whole, low, high))
        return whole.astype(np.int64).astype(TYPES[to])
    if to == "f32":
        return x.astype(np.float32)
    if of == "u8":
        x = x & x.dtype.type(255)
    if to == "u8":
        return (x & x.dtype.type(255)).astype(np.uint16)
    return x.astype(TYPES[to])


def neighbours(how, distance, clamp):
    """The lane that each lane reads in a shuffle."""
    distance, clamp = distance.astype(np.int64), clamp.astype(np.int64)
    fixed = (clamp >> 8) & 31
    most = (LANES & fixed) | (clamp & 31 & ~fixed)
    other = {
        "bfly": LANES ^ distance,
        "idx": (LANES & fixed) | (distance & ~fixed & 31),
        "down": LANES + distance,
    }[how]
    return np.where(other <= most, other, LANES)
