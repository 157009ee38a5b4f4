"""Mathematical functions on scalars and vectors.

float32 has polynomials of its own, of a few units in the last place, that work in vectors; the
narrower types go through float32.  float64, `pow`, `log2`, `tan` and the like call the C library lane by lane.

Polynomials carry only the flag ``contract``: reassociation would undo the rounding steps.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...ir import dtypes
from ...ir.functions import LIBRARY_CALLS
from ..errors import CodegenError
from ..exponential import COEFFICIENTS, LEAST, LN2_HIGH, LN2_LOW, ROUND
from .arith import cast
from .types import literal, suffix, value_type, vector_literal

if TYPE_CHECKING:
    from .builder import Builder

# Minimax coefficients, ascending; the error of each polynomial is below a tenth of 2**-24.
_EXP_OF_AN_EIGHTH = (0.500064492225647, 0.1666685789823532)  # for |r| <= ln 2 / 16; its error is below 0.44 * 2**-24
_EIGHTHS = tuple(struct.unpack("<I", struct.pack("<f", 2 ** (k / 8)))[0] - (k << 20) for k in range(8))
_LOG = (
    0.3333331346511841, -0.25000008940696716, 0.2000211924314499, -0.1666799634695053, 0.14219549298286438,
    -0.1240558847784996, 0.11888181418180466, -0.11675664037466049, 0.067466139793396,
)  # fmt: skip
_TANH = (
    -0.3333333134651184, 0.1333320587873459, -0.05394676327705383, 0.021700702607631683,
    -0.008177395910024643, 0.0021429595071822405,
)  # fmt: skip
_ERF = (
    0.12837916612625122, -0.37612631916999817, 0.11283664405345917, -0.026857705786824226,
    0.005196955054998398, -0.0008097727550193667, 8.185173646779731e-05,
)  # fmt: skip
_ERFC_LOG = (
    -0.0001773340190993622, 1.1295276880264282, 0.6333212852478027, 0.10830826312303543,
    -0.02513761632144451, 0.004177960567176342, -0.00043588440166786313, 2.1217896573944017e-05,
)  # fmt: skip

_HALF_PI = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
"""pi / 2 as a sum of float32, to 75 bits."""
_REDUCED = 65536.0
"""Up to here a multiple of pi / 2 is taken from an angle exactly, but for one rounding of what is left."""
_SIN = (-0.16666654611, 0.0083321608736, -0.00019515295891)
_COS = (0.041666645683, -0.0013887316255, 0.000024433157118)
_ATAN = (
    -0.33333101868629456, 0.19992695748805999, -0.14202736318111419, 0.10634793341159821, -0.07489009201526642,
    0.04250498861074448, -0.015956902876496315, 0.0028236389625817537,
)  # fmt: skip

_LIBM = ("exp", "log", "tanh", "erf", "pow", "fmod", "sin", "cos", "atan", *LIBRARY_CALLS)

_EXACT = ("abs", "floor", "ceil", "nearbyint", "round", "trunc", "copysign")
"""What float16 computes without float32: nothing is rounded."""


def call_math(out: Builder, name: str, args: list[str], dtype: str) -> str:
    """The value of the call `name` of operands `args`, all of type `dtype`."""
    base = dtypes.element(dtype)
    if name == "abs" and dtypes.is_int(base):
        return _int_abs(out, args[0], dtype)
    if not dtypes.is_float(base):
        raise CodegenError(f"`{name}` is defined for floats, but got {dtype}; cast the argument first")
    if (base in ("float16", "bfloat16") and name not in _EXACT) or base == "bfloat16":
        wide = dtypes.with_lanes("float32", dtypes.lanes(dtype))
        widened = [cast(out, a, dtype, wide) for a in args]
        return cast(out, call_math(out, name, widened, wide), wide, dtype)
    if name in _SIMPLE:
        return _SIMPLE[name](_Float(out, dtype), *args)
    if name in _LIBM:
        if base == "float32" and name in _POLYNOMIALS:
            return _POLYNOMIALS[name](_Float(out, dtype), *args)
        return _libm(out, name, args, dtype)
    raise CodegenError(f"no code for the function `{name}`")


def _int_abs(out: Builder, value: str, dtype: str) -> str:
    if dtype.startswith("u"):
        return value
    function = out.module.declare(f"llvm.abs.{suffix(dtype)}", value_type(dtype), value_type(dtype), "i1")
    return out.emit(f"call {value_type(dtype)} {function}({value_type(dtype)} {value}, i1 false)")


def _libm(out: Builder, name: str, args: list[str], dtype: str) -> str:
    """The C library's function on each lane."""
    base, count = dtypes.split_dtype(dtype)
    scalar, kind = value_type(base), value_type(dtype)
    function = out.module.declare(name + ("f" if base == "float32" else ""), scalar, *([scalar] * len(args)))
    if count == 1:
        return out.emit(f"call {scalar} {function}({', '.join(f'{scalar} {a}' for a in args)})")
    result = "poison"
    for lane in range(count):
        lanes = [out.emit(f"extractelement {kind} {a}, i64 {lane}") for a in args]
        one = out.emit(f"call {scalar} {function}({', '.join(f'{scalar} {a}' for a in lanes)})")
        result = out.emit(f"insertelement {kind} {result}, {scalar} {one}, i64 {lane}")
    return result


class _Float:
    """Operations on one float type, for writing polynomials down."""

    def __init__(self, out: Builder, dtype: str) -> None:
        self.out, self.dtype, self.kind = out, dtype, value_type(dtype)
        self.ints = dtypes.with_lanes("int32", dtypes.lanes(dtype))
        self.int_kind = value_type(self.ints)
        self.flags = value_type(dtypes.with_lanes("bool", dtypes.lanes(dtype)))

    def const(self, value: float) -> str:
        return literal(value, self.dtype)

    def op(self, operation: str, a: str, b: str | float, flags: str = "") -> str:
        other = b if isinstance(b, str) else self.const(b)
        return self.out.emit(f"{operation} {flags}{self.kind} {a}, {other}")

    def int_op(self, operation: str, a: str, b: str | int) -> str:
        other = b if isinstance(b, str) else literal(b, self.ints)
        return self.out.emit(f"{operation} {self.int_kind} {a}, {other}")

    def call(self, name: str, *args: str) -> str:
        function = self.out.module.intrinsic(name, self.dtype, len(args))
        return self.out.emit(f"call {self.kind} {function}({', '.join(f'{self.kind} {a}' for a in args)})")

    def fma(self, a: str, b: str | float, c: str | float) -> str:
        b, c = (v if isinstance(v, str) else self.const(v) for v in (b, c))
        return self.call("fma", a, b, c)

    def larger(self, bound: float, a: str) -> str:
        """The larger of both; NaN where `a` is NaN."""
        return self.select(self.compare("olt", a, bound), bound, a)

    def smaller(self, bound: float, a: str) -> str:
        """The smaller of both; NaN where `a` is NaN."""
        return self.select(self.compare("ogt", a, bound), bound, a)

    def horner(self, x: str, coefficients: Sequence[float]) -> str:
        """The sum of ``c_k x**k`` with the fewest operations."""
        result: str = self.const(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            result = self.fma(result, x, coefficient)
        return result

    def estrin(self, x: str, coefficients: Sequence[float]) -> str:
        """The sum of ``c_k x**k`` in pairs, pairs of pairs and so on (Estrin's scheme).

        A few more products than by Horner's rule, but a short chain: of a function that fills a processor's window of
        instructions with two or three vectors, the chain is what is waited for.  Measured on Zen 3 it makes `log` and
        `erf` a tenth to a fifth faster, and `exp`, whose chain is short, a fifth slower.
        """
        terms: list[str | float] = list(coefficients)
        power = x
        while len(terms) > 1:
            pairs = zip(terms[::2], terms[1::2], strict=False)
            last = terms[-1:] if len(terms) % 2 else []
            terms = [*(self.fma(power, high, low) for low, high in pairs), *last]
            power = self.op("fmul", power, power) if len(terms) > 1 else power
        return terms[0] if isinstance(terms[0], str) else self.const(terms[0])

    def select(self, cond: str, a: str | float, b: str | float) -> str:
        a, b = (v if isinstance(v, str) else self.const(v) for v in (a, b))
        return self.out.emit(f"select {self.flags} {cond}, {self.kind} {a}, {self.kind} {b}")

    def compare(self, predicate: str, a: str, b: float) -> str:
        return self.out.emit(f"fcmp {predicate} {self.kind} {a}, {self.const(b)}")

    def bits(self, a: str) -> str:
        return self.out.emit(f"bitcast {self.kind} {a} to {self.int_kind}")

    def from_bits(self, a: str) -> str:
        return self.out.emit(f"bitcast {self.int_kind} {a} to {self.kind}")


def _exp(f: _Float, x: str) -> str:
    """``e**x = 2**n * e**r`` with n the integer nearest to x / ln 2, which the low bits of `shifted` hold as n + 127.

    Shifted by 23 these bits are 2**n for n from -126, or 0 for n = -127, where the ends of x begin to give 0.  Above,
    n stops at 127, and r is up to ln 2 before the product is infinite.  NaN stays NaN: its low bits are 0.
    """
    if f.dtype == "float32x8" and "avx2" in f.out.module.features:
        return _exp_by_table(f, x)
    bounded = f.larger(LEAST, x)
    shifted = f.smaller(ROUND + 127 + 127, f.fma(bounded, 1.0 / math.log(2.0), ROUND + 127))
    n = f.op("fsub", shifted, ROUND + 127)
    r = f.fma(n, -LN2_LOW, f.fma(n, -LN2_HIGH, bounded))
    value = f.horner(r, (1.0, 1.0, *COEFFICIENTS))
    return f.op("fmul", value, f.from_bits(f.int_op("shl", f.bits(shifted), 23)))


def _exp_by_table(f: _Float, x: str) -> str:
    """``e**x = 2**(n / 8) * e**r`` with n the integer nearest to 8 x / ln 2, and 2**(n / 8) from a table of eight.

    The entry of the lowest three bits of n plus n shifted by 20 bits has the bits of 2**(n / 8); see P. T. P. Tang,
    Table-driven implementation of the exponential function in IEEE floating-point arithmetic, ACM TOMS 15 (1989).
    For n = -127 * 8, where x ends below, it is 0; the few subnormal results above are less accurate.  Above, n stops at
    the largest with finite 2**(n / 8): results beyond 3.2e38 have r up to ln 2 / 8 and an error of up to 16 units in
    the last place, until the product is infinite.  NaN stays NaN.
    """
    bounded = f.larger(-127 * math.log(2.0), x)
    shifted = f.smaller(ROUND + 127 * 8 + 7, f.fma(bounded, 8.0 / math.log(2.0), ROUND))
    n = f.op("fsub", shifted, ROUND)
    r = f.fma(n, -LN2_LOW / 8, f.fma(n, -LN2_HIGH / 8, bounded))
    value = f.horner(r, (1.0, 1.0, *_EXP_OF_AN_EIGHTH))
    function = f.out.module.declare("llvm.x86.avx2.permd", f.int_kind, f.int_kind, f.int_kind)
    table = vector_literal(tuple(map(str, _EIGHTHS)), "int32")
    entry = f.out.emit(f"call {f.int_kind} {function}({f.int_kind} {table}, {f.int_kind} {f.bits(shifted)})")
    return f.op("fmul", value, f.from_bits(f.int_op("add", entry, f.int_op("shl", f.bits(shifted), 20))))


def _log(f: _Float, x: str) -> str:
    """``log x = n ln 2 + log m`` with m in [sqrt 1/2, sqrt 2)."""
    tiny = f.compare("olt", x, 2.0**-126)
    scaled = f.select(tiny, f.op("fmul", x, 2.0**23), x)
    offset = f.int_op("sub", f.bits(scaled), 0x3F3504F3)  # the bits of sqrt 1/2
    exponent = f.int_op("ashr", offset, 23)
    m = f.from_bits(f.int_op("sub", f.bits(scaled), f.int_op("shl", exponent, 23)))
    n = f.out.emit(f"sitofp {f.int_kind} {exponent} to {f.kind}")
    n = f.select(tiny, f.op("fsub", n, 23.0), n)
    r = f.op("fsub", m, 1.0)
    square = f.op("fmul", r, r)
    tail = f.op("fmul", f.op("fmul", square, r), f.estrin(r, _LOG))
    tail = f.fma(n, LN2_LOW, f.fma(square, -0.5, tail))
    value = f.fma(n, LN2_HIGH, f.op("fadd", r, tail))
    value = f.select(f.compare("olt", x, math.inf), value, x)
    value = f.select(f.compare("oeq", x, 0.0), -math.inf, value)
    return f.select(f.compare("olt", x, 0.0), math.nan, value)


def _tanh(f: _Float, x: str) -> str:
    """An odd polynomial near 0; beyond, ``1 - 2 / (e**(2|x|) + 1)`` with the sign of x."""
    size = f.call("fabs", x)
    square = f.op("fmul", x, x)
    near = f.fma(f.op("fmul", square, x), f.estrin(square, _TANH), x)
    grown = _exp(f, f.op("fadd", size, size))
    far = f.op("fsub", f.const(1.0), f.op("fdiv", f.const(2.0), f.op("fadd", grown, 1.0)))
    return f.select(f.compare("olt", size, 0.625), near, f.call("copysign", far, x))


def _sigmoid(f: _Float, x: str) -> str:
    """``1 / (1 + e**-x)``."""
    negative = f.out.emit(f"fneg {f.kind} {x}")
    base = dtypes.element(f.dtype)
    grown = _exp(f, negative) if base == "float32" else _libm(f.out, "exp", [negative], f.dtype)
    return f.op("fdiv", f.const(1.0), f.op("fadd", grown, 1.0))


def _erf(f: _Float, x: str) -> str:
    """An odd polynomial near 0; beyond, ``1 - e**-p(|x|)`` with the sign of x."""
    size = f.call("fabs", x)
    square = f.op("fmul", x, x)
    near = f.fma(x, f.estrin(square, _ERF), x)
    power = f.estrin(f.smaller(4.0, size), _ERFC_LOG)
    decayed = _exp(f, f.out.emit(f"fneg {f.kind} {power}"))
    far = f.op("fsub", f.const(1.0), decayed)
    return f.select(f.compare("olt", size, 0.93), near, f.call("copysign", far, x))


def _sin(f: _Float, x: str) -> str:
    """The sine of what is left of x without multiples of pi / 2, or its cosine, with the sign of the quarter."""
    return _of_angles(f, x, "sin", 0)


def _cos(f: _Float, x: str) -> str:
    """The sine one quarter on."""
    return _of_angles(f, x, "cos", 1)


def _of_angles(f: _Float, x: str, name: str, quarters: int) -> str:
    """``sin(x + quarters pi / 2)``; where a lane is too large for that, all by the function `name` of the C library.

    ``x = n pi / 2 + r`` with r between -0.8 and 0.8: the product with the first part of pi / 2 is taken from x exactly,
    as the difference is a multiple of 2**-24 below 1 (W. J. Cody and W. Waite, Software manual for the elementary
    functions, 1980).
    """
    size = f.call("fabs", x)
    small = f.out.emit(f"fcmp ole {f.kind} {size}, {f.const(_REDUCED)}")
    count = dtypes.lanes(f.dtype)
    if count > 1:
        function = f.out.module.declare(f"llvm.vector.reduce.and.v{count}i1", "i1", f.flags)
        small = f.out.emit(f"call i1 {function}({f.flags} {small})")

    def near() -> str:
        n = f.call("nearbyint", f.op("fmul", x, 2 / math.pi))
        r = x
        for part in _HALF_PI:
            r = f.fma(n, -part, r)
        quarter = f.out.emit(f"fptosi {f.kind} {n} to {f.int_kind}")
        quarter = f.int_op("add", quarter, quarters) if quarters else quarter
        square = f.op("fmul", r, r)
        sine = f.fma(f.op("fmul", square, r), f.horner(square, _SIN), r)
        cosine = f.fma(f.op("fmul", square, square), f.horner(square, _COS), f.fma(square, -0.5, 1.0))
        odd = f.out.emit(f"icmp ne {f.int_kind} {f.int_op('and', quarter, 1)}, {literal(0, f.ints)}")
        value = f.select(odd, cosine, sine)
        sign = f.int_op("shl", f.int_op("and", quarter, 2), 30)
        return f.from_bits(f.int_op("xor", f.bits(value), sign))

    return f.out.choose(small, near, lambda: _libm(f.out, name, [x], f.dtype), f.kind)


def _atan(f: _Float, x: str) -> str:
    """An odd polynomial of the smaller of ``|x|`` and ``1 / |x|``, from pi / 2 for the second, with the sign of x."""
    size = f.call("fabs", x)
    is_large = f.compare("ogt", size, 1.0)
    t = f.select(is_large, f.op("fdiv", f.const(1.0), size), size)
    square = f.op("fmul", t, t)
    value = f.fma(f.op("fmul", square, t), f.estrin(square, _ATAN), t)
    rest = f.op("fsub", f.const(_HALF_PI[0]), f.op("fsub", value, _HALF_PI[1]))
    return f.call("copysign", f.select(is_large, rest, value), x)


def _rsqrt(f: _Float, x: str) -> str:
    return f.op("fdiv", f.const(1.0), f.call("sqrt", x))


_POLYNOMIALS: dict[str, Callable[..., str]] = {
    "exp": _exp, "log": _log, "tanh": _tanh, "erf": _erf, "sin": _sin, "cos": _cos, "atan": _atan,
}  # fmt: skip
_SIMPLE: dict[str, Callable[..., str]] = {
    "sqrt": lambda f, x: f.call("sqrt", x),
    "rsqrt": _rsqrt,
    "abs": lambda f, x: f.call("fabs", x),
    "floor": lambda f, x: f.call("floor", x),
    "nearbyint": lambda f, x: f.call("nearbyint", x),
    "ceil": lambda f, x: f.call("ceil", x),
    "round": lambda f, x: f.call("round", x),
    "trunc": lambda f, x: f.call("trunc", x),
    "copysign": lambda f, a, b: f.call("copysign", a, b),
    "fma": lambda f, a, b, c: f.call("fma", a, b, c),
    "sigmoid": _sigmoid,
}
