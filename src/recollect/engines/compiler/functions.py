"""What each elementwise operation is in instructions; elementary functions as polynomials, the same for any width.

No instruction may be contracted or reordered by LLVM: every fused multiply-add is chosen here or in `plan`. Elementary
functions are within two units in the last place of the exact value (tests hold this); infinities and NaN as IEEE 754.
"""

import math
from collections.abc import Callable, Sequence
from decimal import Decimal, getcontext

import numpy as np

from recollect.engines.compiler.graph import COMPARISONS, Node, Unsupported
from recollect.engines.compiler.values import Value
from recollect.engines.compiler.writer import Writer


def _parts_of_half_pi() -> tuple[float, float, float]:
    """π/2 as the sum of three float32."""
    getcontext().prec = 50
    rest, parts = Decimal("1.57079632679489661923132169163975144209858"), []
    for _ in range(3):
        part = np.float32(float(rest))
        parts.append(float(part))
        rest -= Decimal(float(part))
    return parts[0], parts[1], parts[2]


HALF_PI = _parts_of_half_pi()

LIBM = ("tan", "atan2", "asin", "acos", "atan", "sinh", "cosh", "erf", "cbrt", "exp2")
"""Functions seldom met in a step, called in the C library, one lane at a time."""


class Functions:
    """Elementwise operations, written with a writer."""

    def __init__(self, writer: Writer):
        self.w = writer

    def f(self, x: float) -> Value:
        """A float constant."""
        return self.w.const("f", x)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """a·b + c, rounded once."""
        return self.w.call("fma", a, b, c)

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """By Horner's rule, the highest power first."""
        result = self.f(coefficients[0])
        for c in coefficients[1:]:
            result = self.fma(result, x, self.f(c))
        return result

    def less(self, a: Value, b: Value) -> Value:
        """Ordered a < b."""
        return self.w.do("fcmp olt", a, b, kind="b")

    # -- elementary functions

    def exp(self, x: Value) -> Value:
        """2^n times a polynomial in what is left of x."""
        w = self.w
        low, high = self.f(-87.33654), self.f(88.72283)
        b = w.choose(self.less(x, high), x, high)
        b = w.choose(self.less(low, b), b, low)
        n = w.call("floor", self.fma(b, self.f(math.log2(math.e)), self.f(0.5)))
        n = w.choose(self.less(n, self.f(127)), n, self.f(127))
        r = self.fma(n, self.f(2.12194440e-4), self.fma(n, self.f(-0.693359375), b))
        p = self.polynomial(
            r, (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
        )
        e = w.do("shl", w.do("add", w.cast("fptosi", n, "i"), w.const("i", 127)), w.const("i", 23))
        y = w.do("fadd", self.fma(w.do("fmul", p, r), r, r), self.f(1))
        y = w.do("fmul", y, w.cast("bitcast", e, "f"))
        y = w.choose(w.do("fcmp olt", x, low, kind="b"), self.f(0), y)
        y = w.choose(w.do("fcmp ogt", x, high, kind="b"), self.f(math.inf), y)
        return w.choose(w.do("fcmp uno", x, x, kind="b"), x, y)

    def expm1(self, x: Value) -> Value:
        """A series near 0, else by exp."""
        w = self.w
        p = self.polynomial(x, [1 / math.factorial(k) for k in range(8, 1, -1)])
        near = self.fma(w.do("fmul", p, x), x, x)
        far = w.do("fsub", self.exp(x), self.f(1))
        return w.choose(self.less(w.call("fabs", x), self.f(0.5)), near, far)

    def tanh(self, x: Value) -> Value:
        """A quotient of polynomials in x², between bounds beyond which the result is ±1 to rounding."""
        w = self.w
        most = 7.90531110763549805
        bounded = w.choose(w.do("fcmp ogt", x, self.f(most), kind="b"), self.f(most), x)
        bounded = w.choose(self.less(bounded, self.f(-most)), self.f(-most), bounded)
        y = w.do("fmul", bounded, bounded)
        p = self.polynomial(
            y,
            (
                -2.76076847742355e-16,
                2.00018790482477e-13,
                -8.60467152213735e-11,
                5.12229709037114e-8,
                1.48572235717979e-5,
                6.37261928875436e-4,
                4.89352455891786e-3,
            ),
        )
        q = self.polynomial(y, (1.19825839466702e-6, 1.18534705686654e-4, 2.26843463243900e-3, 4.89352518554385e-3))
        return w.do("fdiv", w.do("fmul", bounded, p), q)

    def logistic(self, x: Value) -> Value:
        """1 / (1 + e^-x)."""
        e = self.exp(self.w.do("fneg", x))
        return self.w.do("fdiv", self.f(1), self.w.do("fadd", self.f(1), e))

    def _exponent_and_mantissa(self, x: Value) -> tuple[Value, Value]:
        """Of a positive number; the mantissa between √½ and √2."""
        w = self.w
        root = 0x3F3504F3  # the bits of √½
        bits = w.do("add", w.cast("bitcast", x, "i"), w.const("i", 0x3F800000 - root))
        fraction = w.do("and", bits, w.const("i", 0x007FFFFF))
        whole = w.cast("sitofp", w.do("sub", bits, fraction), "f")
        exponent = self.fma(whole, self.f(2.0**-23), self.f(-127))
        return exponent, w.cast("bitcast", w.do("add", fraction, w.const("i", root)), "f")

    def log(self, x: Value) -> Value:
        """The exponent, and a series in (z - 1) / (z + 1) of the mantissa z."""
        w = self.w
        exponent, z = self._exponent_and_mantissa(x)
        s = w.do("fdiv", w.do("fsub", z, self.f(1)), w.do("fadd", z, self.f(1)))
        y = w.do("fmul", s, s)
        p = self.polynomial(y, (2 / 9, 2 / 7, 2 / 5, 2 / 3))
        r = self.fma(w.do("fmul", p, y), s, w.do("fadd", s, s))
        r = self.fma(exponent, self.f(math.log(2)), r)
        r = w.choose(w.do("fcmp oeq", x, self.f(math.inf), kind="b"), x, r)
        r = w.choose(w.do("fcmp oeq", x, self.f(0), kind="b"), self.f(-math.inf), r)
        return w.choose(w.do("fcmp ult", x, self.f(0), kind="b"), self.f(math.nan), r)

    def _log_in_two(self, x: Value) -> tuple[Value, Value]:
        """The logarithm of a positive number as the sum of two floats, to about 2^-30 of itself."""
        w = self.w
        exponent, z = self._exponent_and_mantissa(x)
        below, above = w.do("fsub", z, self.f(1)), w.do("fadd", z, self.f(1))  # the first is exact
        back = w.do("fsub", above, z)
        lost = w.do("fadd", w.do("fsub", z, w.do("fsub", above, back)), w.do("fsub", self.f(1), back))
        s = w.do("fdiv", below, above)
        minus = w.do("fneg", s)
        rest = w.do("fdiv", self.fma(minus, lost, self.fma(minus, above, below)), above)
        y = w.do("fmul", s, s)
        tail = w.do("fmul", w.do("fmul", self.polynomial(y, (2 / 13, 2 / 11, 2 / 9, 2 / 7, 2 / 5, 2 / 3)), y), s)
        whole, twice = w.do("fmul", exponent, self.f(0.693359375)), w.do("fadd", s, s)  # exact
        high = w.do("fadd", whole, twice)
        lost = w.do("fsub", twice, w.do("fsub", high, whole))
        low = self.fma(exponent, self.f(-2.12194440e-4), w.do("fadd", w.do("fadd", rest, rest), tail))
        low = w.do("fadd", lost, low)
        total = w.do("fadd", high, low)
        return total, w.do("fsub", low, w.do("fsub", total, high))

    def pow(self, x: Value, y: Value) -> Value:
        """e^(y log x), the product taken in two floats; edge cases as the C library has them."""
        w = self.w
        inf, one = self.f(math.inf), self.f(1)
        size = w.call("fabs", x)
        high, low = self._log_in_two(size)
        high = w.choose(w.do("fcmp oeq", size, inf, kind="b"), inf, high)
        high = w.choose(w.do("fcmp oeq", size, self.f(0), kind="b"), self.f(-math.inf), high)
        t = w.do("fmul", y, high)
        rest = self.fma(y, low, self.fma(y, high, w.do("fneg", t)))
        rest = w.choose(self.less(w.call("fabs", rest), inf), rest, self.f(0))
        m = self.exp(t)
        m = w.choose(self.less(m, inf), self.fma(m, rest, m), m)
        half = w.do("fmul", y, self.f(0.5))
        integer = w.do("fcmp oeq", w.call("floor", y), y, kind="b")
        even = w.do("fcmp oeq", w.call("floor", half), half, kind="b")
        odd = w.do("and", integer, w.do("xor", even, w.const("b", True)))
        m = w.choose(w.do("fcmp oeq", size, one, kind="b"), one, m)
        m = w.choose(odd, w.call("copysign", m, x), m)
        below = w.do("and", self.less(x, self.f(0)), self.less(self.f(-math.inf), x))
        m = w.choose(w.do("and", below, w.do("xor", integer, w.const("b", True))), self.f(math.nan), m)
        m = w.choose(w.do("fcmp uno", x, y, kind="b"), self.f(math.nan), m)
        always = w.do("or", w.do("fcmp oeq", x, one, kind="b"), w.do("fcmp oeq", y, self.f(0), kind="b"))
        return w.choose(always, one, m)

    def log1p(self, x: Value) -> Value:
        """log(u) with u = 1 + x rounded, plus what the rounding took."""
        w = self.w
        u = w.do("fadd", x, self.f(1))
        rest = w.do("fdiv", w.do("fsub", x, w.do("fsub", u, self.f(1))), u)
        rest = w.choose(w.do("fcmp ord", rest, rest, kind="b"), rest, self.f(0))
        r = w.do("fadd", self.log(u), rest)
        return w.choose(w.do("fcmp oeq", u, self.f(1), kind="b"), x, r)

    def _quarter(self, x: Value) -> tuple[Value, Value, Value]:
        """The quarter turn that x is in, sine and cosine of what is left."""
        w = self.w
        k = w.call("roundeven", w.do("fmul", x, self.f(2 / math.pi)))
        r = x
        for part in HALF_PI:
            r = self.fma(k, self.f(-part), r)
        y = w.do("fmul", r, r)
        sine = self.polynomial(y, (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1))
        sine = self.fma(w.do("fmul", sine, y), r, r)
        cosine = self.polynomial(y, (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2, -0.5))
        cosine = self.fma(cosine, y, self.f(1))
        return w.call("fptosi.sat", k, kind="i"), sine, cosine

    def _turn(self, quarter: Value, even: Value, odd: Value) -> Value:
        w = self.w
        swap = w.do("icmp ne", w.do("and", quarter, w.const("i", 1)), w.const("i", 0), kind="b")
        minus = w.do("icmp ne", w.do("and", quarter, w.const("i", 2)), w.const("i", 0), kind="b")
        r = w.choose(swap, odd, even)
        return w.choose(minus, w.do("fneg", r), r)

    def sin(self, x: Value) -> Value:
        """Of what is left of x after quarter turns."""
        quarter, sine, cosine = self._quarter(x)
        return self._turn(quarter, sine, cosine)

    def cos(self, x: Value) -> Value:
        """As the sine, one quarter turn ahead."""
        quarter, sine, cosine = self._quarter(x)
        return self._turn(self.w.do("add", quarter, self.w.const("i", 1)), sine, cosine)

    def erf_inv(self, x: Value) -> Value:
        """Two polynomials in log(1 - x²); M. Giles, "Approximating the erfinv function", 2010."""
        w = self.w
        d = w.do("fneg", self.log1p(w.do("fneg", w.do("fmul", x, x))))
        near = self.polynomial(
            w.do("fsub", d, self.f(2.5)),
            (
                2.81022636e-08,
                3.43273939e-07,
                -3.5233877e-06,
                -4.39150654e-06,
                0.00021858087,
                -0.00125372503,
                -0.00417768164,
                0.246640727,
                1.50140941,
            ),
        )
        far = self.polynomial(
            w.do("fsub", w.call("sqrt", d), self.f(3)),
            (
                -0.000200214257,
                0.000100950558,
                0.00134934322,
                -0.00367342844,
                0.00573950773,
                -0.0076224613,
                0.00943887047,
                1.00167406,
                2.83297682,
            ),
        )
        r = w.do("fmul", w.choose(self.less(d, self.f(5)), near, far), x)
        edge = w.do("fmul", x, self.f(math.inf))
        return w.choose(w.do("fcmp oeq", w.call("fabs", x), self.f(1), kind="b"), edge, r)

    def libm(self, name: str, *values: Value) -> Value:
        """A function of the C library, lane by lane."""
        w = self.w
        values = w.together(*values)
        symbol = f"{name}f"
        w.declared.add(f"declare float @{symbol}({', '.join(['float'] * len(values))}) #1")
        if not values[0].wide:
            return Value(w.new(f"call float @{symbol}({', '.join(w.typed(v) for v in values)})"), "f", False)
        t, result = w.type("f", True), "poison"
        for k in range(w.width):
            parts = [w.new(f"extractelement {t} {v.text}, i32 {k}") for v in values]
            one = w.new(f"call float @{symbol}({', '.join(f'float {p}' for p in parts)})")
            result = w.new(f"insertelement {t} {result}, float {one}, i32 {k}")
        return Value(result, "f", True)

    # -- arithmetic

    def integer_divide(self, op: str, a: Value, b: Value) -> Value:
        """Towards zero; by zero gives all bits set, and the remainder the dividend, as XLA has them."""
        w = self.w
        signed = a.kind == "i"
        none = w.do("icmp eq", b, w.const(a.kind, 0), kind="b")
        safe = w.choose(none, w.const(a.kind, 1), b)
        if signed:  # the smallest number by -1 does not fit: divide by 1, which gives the same bits
            lowest = w.do("icmp eq", a, w.const("i", -(2**31)), kind="b")
            over = w.do("and", lowest, w.do("icmp eq", b, w.const("i", -1), kind="b"))
            safe = w.choose(over, w.const("i", 1), safe)
        r = w.do({"div": "sdiv", "rem": "srem"}[op] if signed else {"div": "udiv", "rem": "urem"}[op], a, safe)
        return w.choose(none, w.const(a.kind, -1) if op == "div" else a, r)

    def shift(self, instruction: str, a: Value, b: Value) -> Value:
        """A shift; by the width or more, what is shifted in fills all."""
        w = self.w
        if not b.text.startswith("%") and int(b.text) < 32 and not b.wide:
            return w.do(instruction, a, b)
        inside = w.do("icmp ult", b, w.const(b.kind, 32), kind="b")
        if instruction == "ashr":
            return w.do("ashr", a, w.choose(inside, b, w.const(b.kind, 31)))
        moved = w.do(instruction, a, w.choose(inside, b, w.const(b.kind, 0)))
        return w.choose(inside, moved, w.const(a.kind, 0))

    def convert(self, x: Value, kind: str) -> Value:
        """To another kind of number; floats out of range go to the nearest whole number, NaN to 0."""
        w = self.w
        if x.kind == "b":
            return w.cast("uitofp" if kind == "f" else "zext", x, kind)
        if kind == "b":
            zero = w.const(x.kind, 0)
            return w.do("fcmp une" if x.kind == "f" else "icmp ne", x, zero, kind="b")
        if x.kind == "f":
            return w.call("fptosi.sat" if kind == "i" else "fptoui.sat", x, kind=kind)
        if kind == "f":
            return w.cast("sitofp" if x.kind == "i" else "uitofp", x, "f")
        return x._replace(kind=kind)

    def sign(self, x: Value) -> Value:
        """-1, 0 or 1; a float's zero and NaN as they are."""
        w = self.w
        if x.kind == "u":
            return w.call("umin", x, w.const("u", 1))
        if x.kind == "i":
            return w.call("smax", w.const("i", -1), w.call("smin", w.const("i", 1), x))
        one = w.call("copysign", self.f(1), x)
        plain = w.do("fcmp ueq", x, self.f(0), kind="b")
        return w.choose(plain, x, one)

    def extreme(self, op: str, a: Value, b: Value) -> Value:
        """The larger or smaller; NaN if there is one."""
        if a.kind == "f":
            return self.w.call("maximum" if op == "max" else "minimum", a, b)
        if a.kind == "b":
            return self.w.do("or" if op == "max" else "and", a, b)
        return self.w.call(("s" if a.kind == "i" else "u") + op, a, b)

    def combine(self, kind: str, a: Value, b: Value) -> Value:
        """Two elements of a reduction."""
        if kind == "sum":
            return self.w.do("fadd" if a.kind == "f" else "add", a, b)
        if kind == "prod":
            return self.w.do("fmul" if a.kind == "f" else "mul", a, b)
        if kind in ("max", "min"):
            return self.extreme(kind, a, b)
        return self.w.do(kind, a, b)

    def apply(self, node: Node, x: list[Value]) -> Value:
        """An elementwise node on its operands."""
        op, w = node.op, self.w
        special: Callable[..., Value] | None = SPECIAL.get(op)
        if special is not None:
            return special(self, *x)
        kind = x[0].kind
        if op in ("add", "sub", "mul"):
            return w.do(("f" if kind == "f" else "") + op, *x)
        if op in COMPARISONS:
            if kind == "f":
                return w.do(f"fcmp {'une' if op == 'ne' else 'o' + op}", *x, kind="b")
            sign = "" if op in ("eq", "ne") else "s" if kind == "i" else "u"
            return w.do(f"icmp {sign}{op}", *x, kind="b")
        if op == "convert":
            return self.convert(x[0], node.dtype)
        if op == "bitcast":
            return w.cast("bitcast", x[0], node.dtype)
        if op == "div":
            return w.do("fdiv", *x) if kind == "f" else self.integer_divide(op, *x)
        if op == "rem":
            return w.do("frem", *x) if kind == "f" else self.integer_divide(op, *x)
        if op == "neg":
            return w.do("fneg", x[0]) if kind == "f" else w.do("sub", w.const(kind, 0), x[0])
        if op == "abs":
            if kind == "u":
                return x[0]
            return w.call("fabs", x[0]) if kind == "f" else w.call("abs", x[0], extra=", i1 false")
        if op == "pow":
            return self.pow(x[0], x[1] if x[1].kind == "f" else self.convert(x[1], "f"))
        if op in LIBM:
            return self.libm(op, *x)
        raise Unsupported(f"the operation {op!r}")


def _mulhi(self: Functions, a: Value, b: Value) -> Value:
    w = self.w
    widen = "zext" if a.kind == "u" else "sext"
    product = w.do("mul", w.cast(widen, a, "l"), w.cast(widen, b, "l"))
    return w.cast("trunc", w.do("lshr", product, w.const("l", 32)), a.kind)


SPECIAL: dict[str, Callable[..., Value]] = {
    "select": lambda f, p, a, b: f.w.choose(p, b, a),
    "and": lambda f, a, b: f.w.do("and", a, b),
    "or": lambda f, a, b: f.w.do("or", a, b),
    "xor": lambda f, a, b: f.w.do("xor", a, b),
    "not": lambda f, a: f.w.do("xor", a, f.w.const(a.kind, 1 if a.kind == "b" else -1)),
    "max": lambda f, a, b: f.extreme("max", a, b),
    "min": lambda f, a, b: f.extreme("min", a, b),
    "shl": lambda f, a, b: f.shift("shl", a, b),
    "shr": lambda f, a, b: f.shift("lshr", a, b),
    "sar": lambda f, a, b: f.shift("ashr", a, b),
    "floor": lambda f, a: f.w.call("floor", a),
    "ceil": lambda f, a: f.w.call("ceil", a),
    "sqrt": lambda f, a: f.w.call("sqrt", a),
    "rsqrt": lambda f, a: f.w.do("fdiv", f.f(1), f.w.call("sqrt", a)),
    "round_even": lambda f, a: f.w.call("roundeven", a),
    "round_away": lambda f, a: f.w.call("round", a),
    "is_finite": lambda f, a: f.less(f.w.call("fabs", a), f.f(math.inf)),
    "popcount": lambda f, a: f.w.call("ctpop", a),
    "clz": lambda f, a: f.w.call("ctlz", a, extra=", i1 false"),
    "mulhi": _mulhi,
}
OWN = ("fma", "sign", "exp", "expm1", "log", "log1p", "tanh", "logistic", "sin", "cos", "erf_inv")
SPECIAL |= {name: getattr(Functions, name) for name in OWN}

COST = {
    "exp": 20,
    "log": 20,
    "tanh": 25,
    "expm1": 35,
    "log1p": 30,
    "logistic": 25,
    "sin": 25,
    "cos": 25,
    "erf_inv": 60,
    "div": 6,
    "sqrt": 8,
    "rsqrt": 12,
    "mulhi": 5,
    "rem": 20,
    "pow": 90,
    **dict.fromkeys(LIBM, 300),
}
"""Rough instructions of an element, where they are not one."""
