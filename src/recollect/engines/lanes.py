"""Vectors for Numba: code written once for one number works on W of them, one a lane, in vector registers.

LLVM vectorises innermost loops only, and this code's innermost loops are sums; so vectors are made explicit. A *width*
is a tuple of W zeros, whose type tells the compiler W. ``load(x, k, width)`` gives entries kW..kW+W-1 of an array as
one value, for which the operators and the functions below work lane by lane; with W = 1 it is a plain number. Nothing
is reordered and nothing fused but by ``fma``, so a lane's result does not depend on W.

Constants must be ``np.float32``: Numba takes a bare Python float for a float64.
"""

import operator
from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending, njit, types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin, lower_cast, models, register_model

# Functions that only compiled code calls need no way in from Python, which takes a quarter of their compile time.
INNER = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_njit: Any = njit
inner = _njit(**INNER)
inlined = _njit(**INNER, forceinline=True)

intrinsic: Any = extending.intrinsic  # whose functions lose their first argument, which a type checker cannot know

FloatLike = Any  # float32 or a vector of them
IntLike = Any  # int32 or a vector of them


class Lanes(types.Type):
    """W numbers of one kind: float32, int32 or boolean."""

    def __init__(self, kind: types.Type, width: int):
        self.kind, self.width = kind, width
        super().__init__(name=f"Lanes({kind}, {width})")


_IR = {types.float32: ir.FloatType(), types.int32: ir.IntType(32), types.boolean: ir.IntType(1)}


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, dmm, fe_type):
        super().__init__(dmm, fe_type, ir.VectorType(_IR[fe_type.kind], fe_type.width))


def _of(kind: types.Type, width: int) -> types.Type:
    return kind if width == 1 else Lanes(kind, width)


def _width(*args: types.Type) -> int:
    return max(arg.width if isinstance(arg, Lanes) else 1 for arg in args)


def _splat(builder, value, width: int):
    vector = ir.VectorType(value.type, width)
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), width), None)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), zeros)


@lower_cast(types.Number, Lanes)
@lower_cast(types.Boolean, Lanes)
def _number_to_lanes(context, builder, fromty, toty, val):
    val = context.cast(builder, val, fromty, toty.kind)
    if toty.kind == types.boolean:
        val = builder.trunc(val, ir.IntType(1)) if val.type != ir.IntType(1) else val
    return _splat(builder, val, toty.width)


def _call(builder, name: str, *values):
    kind = values[0].type
    suffix = f"v{kind.count}f32" if isinstance(kind, ir.VectorType) else "f32"
    function_type = ir.FunctionType(kind, [kind] * len(values))
    name = f"llvm.{name}.{suffix}"
    function = builder.module.globals.get(name) or ir.Function(builder.module, function_type, name)
    return builder.call(function, values)


def _numbers(vector):
    """The type of one entry of an LLVM value."""
    return vector.type.element if isinstance(vector.type, ir.VectorType) else vector.type


def _like(value, element):
    return ir.VectorType(element, value.type.count) if isinstance(value.type, ir.VectorType) else element


# -- operators


def _register(op, result, emit, kinds, operands=2):
    infer: Any = infer_global(op)

    @infer
    class Typing(AbstractTemplate):
        def generic(self, args, kws):
            vectors = [arg for arg in args if isinstance(arg, Lanes)]
            if (
                len(args) == operands
                and vectors
                and all(v.kind in kinds and v.width == vectors[0].width for v in vectors)
            ):
                return signature(_of(result or vectors[0].kind, vectors[0].width), *[vectors[0]] * len(args))
            return None

    @lower_builtin(op, *[Lanes] * operands)
    def _lower(context, builder, sig, args):
        return emit(builder, sig.args[0].kind == types.float32, *args)


def _arithmetic(of_floats: str, of_integers: str):
    return lambda builder, floats, a, b: getattr(builder, of_floats if floats else of_integers)(a, b)


def _comparison(sign: str):
    def emit(builder, floats, a, b):
        ordered = builder.fcmp_unordered if sign == "!=" else builder.fcmp_ordered
        return ordered(sign, a, b) if floats else builder.icmp_signed(sign, a, b)

    return emit


_NUMBERS, _BITS = (types.float32, types.int32), (types.int32, types.boolean)
_register(operator.add, None, _arithmetic("fadd", "add"), _NUMBERS)
_register(operator.sub, None, _arithmetic("fsub", "sub"), _NUMBERS)
_register(operator.mul, None, _arithmetic("fmul", "mul"), _NUMBERS)
_register(operator.neg, None, lambda builder, floats, a: builder.fneg(a), (types.float32,), operands=1)
_register(operator.truediv, None, _arithmetic("fdiv", "fdiv"), (types.float32,))
_register(operator.and_, None, _arithmetic("and_", "and_"), _BITS)
_register(operator.or_, None, _arithmetic("or_", "or_"), _BITS)
for _op, _sign in {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}.items():
    _register(getattr(operator, _op), types.boolean, _comparison(_sign), _NUMBERS)


# -- memory


@intrinsic
def load_at(typingctx, array, at, width):
    """Entries ``at``, ``at`` + 1, … of a flat array, as many as ``width`` is long."""
    result = _of(array.dtype, len(width))

    def codegen(context, builder, sig, args):
        pointer = _pointer(context, builder, sig.args[0], args[0], args[1])
        if isinstance(result, Lanes):
            pointer = builder.bitcast(pointer, context.get_value_type(result).as_pointer())
        value = builder.load(pointer)
        value.align = 4
        return value

    return result(array, types.int64, width), codegen


@intrinsic
def store_at(typingctx, array, at, value):
    """Put a value where ``load_at`` finds it."""
    value = _of(array.dtype, _width(value))

    def codegen(context, builder, sig, args):
        pointer = _pointer(context, builder, sig.args[0], args[0], args[1])
        pointer = builder.bitcast(pointer, args[2].type.as_pointer())
        builder.store(args[2], pointer).align = 4
        return context.get_dummy_value()

    return types.void(array, types.int64, value), codegen


def _pointer(context, builder, array_type, array, at):
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [at], inbounds=True)


@intrinsic
def width_of(typingctx, value):
    """W of a value, known to the compiler."""
    width = _width(value)
    return types.int64(value), lambda context, builder, sig, args: ir.Constant(ir.IntType(64), width)


@inlined
def load(array, k, width):
    """Field k of an array of fields of W entries: entries kW..kW+W-1."""
    return load_at(array, k * len(width), width)


@inlined
def store(array, k, value):
    """Put a value where ``load`` finds it."""
    store_at(array, k * width_of(value), value)


@intrinsic
def splat(typingctx, value, width):
    """One number in every lane."""
    kind = types.float32 if isinstance(value, types.Float) else types.int32
    return _of(kind, len(width))(_of(kind, len(width)), width), lambda context, builder, sig, args: args[0]


# -- functions of one value


def _lanewise(kinds, result, emit):
    """The typing and code of a function of numbers of ``kinds``; where one argument is a vector, all become one."""

    def build(*args):
        width = _width(*args)
        wanted = [_of(kind, width) for kind in kinds]
        return _of(result, width)(*wanted), lambda context, builder, sig, values: emit(builder, *values)

    return build


_FLOAT, _INT, _BOOL = types.float32, types.int32, types.boolean


@intrinsic
def fma(typingctx, a, b, c):
    """A b + c, rounded once where the machine can."""
    return _lanewise([_FLOAT] * 3, _FLOAT, lambda builder, *v: _call(builder, "fmuladd", *v))(a, b, c)


@intrinsic
def floor(typingctx, x):
    """The largest whole number up to x."""
    return _lanewise([_FLOAT], _FLOAT, lambda builder, x: _call(builder, "floor", x))(x)


@intrinsic
def absolute(typingctx, x):
    """|x|."""
    return _lanewise([_FLOAT], _FLOAT, lambda builder, x: _call(builder, "fabs", x))(x)


@intrinsic
def least(typingctx, a, b):
    """The smaller; b where one is NaN."""

    def emit(builder, a, b):
        return builder.select(builder.fcmp_ordered("<", a, b), a, b)

    return _lanewise([_FLOAT] * 2, _FLOAT, emit)(a, b)


@intrinsic
def most(typingctx, a, b):
    """The larger; b where one is NaN."""

    def emit(builder, a, b):
        return builder.select(builder.fcmp_ordered(">", a, b), a, b)

    return _lanewise([_FLOAT] * 2, _FLOAT, emit)(a, b)


@intrinsic
def select(typingctx, mask, a, b):
    """A where the mask is true, b elsewhere."""
    kinds = [arg.kind if isinstance(arg, Lanes) else arg for arg in (a, b)]
    kind = _FLOAT if any(isinstance(k, types.Float) for k in kinds) else _INT

    def emit(builder, mask, a, b):
        if not isinstance(mask.type, ir.VectorType):
            mask = builder.icmp_unsigned("!=", mask, ir.Constant(mask.type, 0))
        return builder.select(mask, a, b)

    return _lanewise([_BOOL, kind, kind], kind, emit)(mask, a, b)


@intrinsic
def any_(typingctx, mask):
    """Whether a mask is true in any lane."""

    def codegen(context, builder, sig, args):
        if not isinstance(mask, Lanes):
            return args[0]
        bits = builder.bitcast(args[0], ir.IntType(mask.width))
        return builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0))

    return types.boolean(mask), codegen


@intrinsic
def to_float(typingctx, x):
    """Whole numbers, or truth values as 0 and 1, as float32."""
    if isinstance(x, types.Boolean) or (isinstance(x, Lanes) and x.kind == _BOOL):
        return _lanewise([_BOOL], _FLOAT, lambda b, x: b.uitofp(x, _like(x, ir.FloatType())))(x)
    return _lanewise([_INT], _FLOAT, lambda b, x: b.sitofp(x, _like(x, ir.FloatType())))(x)


@intrinsic
def to_int(typingctx, x):
    """Truth values as 0 and 1."""
    return _lanewise([_BOOL], _INT, lambda b, x: b.zext(x, _like(x, ir.IntType(32))))(x)


@intrinsic
def bits_of(typingctx, x):
    """The bits of a float32 as an int32."""
    return _lanewise([_FLOAT], _INT, lambda b, x: b.bitcast(x, _like(x, ir.IntType(32))))(x)


@intrinsic
def from_bits(typingctx, x):
    """The float32 with these bits."""
    return _lanewise([_INT], _FLOAT, lambda b, x: b.bitcast(x, _like(x, ir.FloatType())))(x)


@intrinsic
def power_of_two(typingctx, n):
    """2ⁿ for a whole n from -126 to 127, given as float32."""

    def emit(builder, n):
        exponent = builder.fptosi(n, _like(n, ir.IntType(32)))
        bits = builder.shl(builder.add(exponent, _constant(exponent, 127)), _constant(exponent, 23))
        return builder.bitcast(bits, n.type)

    return _lanewise([_FLOAT], _FLOAT, emit)(n)


def _constant(like, value: float):
    one = ir.Constant(_numbers(like), value)
    return ir.Constant(like.type, [one] * like.type.count) if isinstance(like.type, ir.VectorType) else one


@intrinsic
def uniform(typingctx, word):
    """The float32 in [0, 1) that ``jax.random.uniform`` makes of a random word."""

    def emit(builder, word):
        leading = builder.lshr(word, _constant(word, 9))
        spacing = builder.uitofp(leading, _like(word, ir.FloatType()))
        return builder.fmul(spacing, _constant(spacing, 2.0**-23))

    return _lanewise([_INT], _FLOAT, emit)(word)


@intrinsic
def philox(typingctx, k0, k1, a, b, c, d):
    """Philox4x32-10: four random words from a key and a counter; ``recollect.prng`` defines it."""
    kind = _of(_INT, _width(k0, k1, a, b, c, d))

    def codegen(context, builder, sig, args):
        k0, k1, a, b, c, d = args
        double = _like(k0, ir.IntType(64))

        def product(x, factor):
            wide = builder.mul(builder.zext(x, double), builder.zext(_constant(x, factor), double))
            return builder.trunc(wide, x.type), builder.trunc(builder.lshr(wide, _constant(wide, 32)), x.type)

        for _ in range(10):
            low_a, high_a = product(a, 0xD2511F53)
            low_c, high_c = product(c, 0xCD9E8D57)
            a, b, c, d = builder.xor(builder.xor(high_c, b), k0), low_c, builder.xor(builder.xor(high_a, d), k1), low_a
            k0, k1 = builder.add(k0, _constant(k0, 0x9E3779B9)), builder.add(k1, _constant(k1, 0xBB67AE85))
        return context.make_tuple(builder, sig.return_type, (a, b, c, d))

    return types.UniTuple(kind, 4)(*[kind] * 6), codegen


# -- elementary functions: branch-free, to a few units in the last place

_F = np.float32
_ZERO, _HALF, _ONE, _TWO, _INF = _F(0), _F(0.5), _F(1), _F(2), _F(np.inf)
_LOG2E, _LN2_HIGH, _LN2_LOW = _F(1.4426950408889634), _F(0.693359375), _F(-2.12194440e-4)
_LARGEST, _SMALLEST = _F(88.72283), _F(-87.33654)
_E2, _E3, _E4, _E5 = _F(5.0000001201e-1), _F(1.6666665459e-1), _F(4.1665795894e-2), _F(8.3334519073e-3)
_E6, _E7 = _F(1.3981999507e-3), _F(1.9875691500e-4)
_A1, _A3, _A5, _A7 = _F(4.89352455891786e-3), _F(6.37261928875436e-4), _F(1.48572235717979e-5), _F(5.12229709037114e-8)
_A9, _A11, _A13 = _F(-8.60467152213735e-11), _F(2.00018790482477e-13), _F(-2.76076847742355e-16)
_B0, _B2, _B4, _B6 = _F(4.89352518554385e-3), _F(2.26843463243900e-3), _F(1.18534705686654e-4), _F(1.19825839466702e-6)
_EDGE = _F(7.90531110763549805)
_S3, _S5, _S7, _S9, _S11, _S13, _S15 = (_F(2 / k) for k in (3, 5, 7, 9, 11, 13, 15))
_LN2, _ROOT_HALF_BITS, _MANTISSA, _ONE_BITS = _F(np.log(2)), 0x3F3504F3, 0x007FFFFF, 0x3F800000
_T3, _T4, _T5, _T6, _T7 = (_F(1 / k) for k in (6, 24, 120, 720, 5040))


@inlined
def exp(x: FloatLike) -> FloatLike:
    """E to the x: inf above 88.7, 0 below -87.3 (no denormals)."""
    bounded = most(least(x, _LARGEST), _SMALLEST)
    n = least(floor(fma(bounded, _LOG2E, _HALF)), _F(127))
    r = fma(n, -_LN2_LOW, fma(n, -_LN2_HIGH, bounded))
    p = fma(fma(fma(fma(fma(_E7, r, _E6), r, _E5), r, _E4), r, _E3), r, _E2)
    y = (fma(p * r, r, r) + _ONE) * power_of_two(n)
    return select(x > _LARGEST, _INF, select(x < _SMALLEST, _ZERO, select(x == x, y, x)))


@inlined
def expm1(x: FloatLike) -> FloatLike:
    """E to the x less 1, exact to rounding near 0."""
    p = fma(fma(fma(fma(fma(_T7, x, _T6), x, _T5), x, _T4), x, _T3), x, _HALF)
    return select(absolute(x) < _HALF, fma(p * x, x, x), exp(x) - _ONE)


@inlined
def tanh(x: FloatLike) -> FloatLike:
    """The rational function that XLA takes for tanh, so that both round nearly alike."""
    x = most(-_EDGE, least(_EDGE, x))
    y = x * x
    p = fma(fma(fma(fma(fma(fma(_A13, y, _A11), y, _A9), y, _A7), y, _A5), y, _A3), y, _A1)
    q = fma(fma(fma(_B6, y, _B4), y, _B2), y, _B0)
    return x * p / q


@inlined
def sigmoid(x: FloatLike) -> FloatLike:
    """1/(1 + e^-x)."""
    return _ONE / (_ONE + exp(-x))


@inlined
def log1p(x: FloatLike) -> FloatLike:
    """Log(1 + x) for x from 0 to 1, by the series of artanh."""
    s = x / (x + _TWO)
    y = s * s
    p = fma(fma(fma(fma(fma(fma(_S15, y, _S13), y, _S11), y, _S9), y, _S7), y, _S5), y, _S3)
    return fma(p * y, s, s + s)


@inlined
def log(x: FloatLike) -> FloatLike:
    """The logarithm of a positive normal number."""
    bits = bits_of(x) + (_ONE_BITS - _ROOT_HALF_BITS)
    fraction = bits & _MANTISSA
    power = to_float(bits - fraction) * _F(2.0**-23) - _F(127)
    z = from_bits(fraction + _ROOT_HALF_BITS)
    s = (z - _ONE) / (z + _ONE)
    y = s * s
    p = fma(fma(fma(_S9, y, _S7), y, _S5), y, _S3)
    return fma(power, _LN2, fma(p * y, s, s + s))


@inlined
def log_sigmoid(x: FloatLike) -> FloatLike:
    """Log sigmoid(x), finite however far from 0."""
    return least(x, _ZERO) - log1p(exp(-absolute(x)))
