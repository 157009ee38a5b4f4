"""Mathematical functions on scalars and vectors.

float32 has polynomials of its own, of a few units in the last place, that work in vectors; the
narrower types go through float32.  float64, and `pow`, call the C library lane by lane.

Polynomials carry only the flag ``contract``: reassociation would undo the rounding steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...ir import dtypes
from .arith import cast
from .types import CodegenError, literal, suffix, value_type

if TYPE_CHECKING:
    from .builder import Builder

# Minimax coefficients, ascending; the error of each polynomial is below a tenth of 2**-24.
_EXP = (0.4999999403953552, 0.16666515171527863, 0.04166845604777336, 0.00836941972374916, 0.0013813142431899905)
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
_EXP_ENDS = (-87.33654022216797, 88.72283172607422)  # the ends of the normal results: 2**-126 and the largest
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4  # their sum is ln 2; the first has 9 bits
_ROUND = 12582912.0  # 1.5 * 2**23: adding it rounds to an integer, which the low bits then hold

_LIBM = ("exp", "log", "tanh", "erf", "pow")


def call_math(out: Builder, name: str, args: list[str], dtype: str) -> str:
    """The value of the call `name` of operands `args`, all of type `dtype`."""
    base = dtypes.element(dtype)
    if name == "abs" and dtypes.is_int(base):
        return _int_abs(out, args[0], dtype)
    if not dtypes.is_float(base):
        raise CodegenError(f"`{name}` is defined for floats, but got {dtype}; cast the argument first")
    if (base in ("float16", "bfloat16") and name not in ("abs", "floor", "ceil")) or base == "bfloat16":
        wide = dtypes.with_lanes("float32", dtypes.lanes(dtype))
        widened = [cast(out, a, dtype, wide) for a in args]
        return cast(out, call_math(out, name, widened, wide), wide, dtype)
    if name in _SIMPLE:
        return _SIMPLE[name](_Float(out, dtype), *args)
    if name in _LIBM:
        if base == "float32" and name != "pow":
            return _POLYNOMIALS[name](_Float(out, dtype), *args)
        return _libm(out, name, args, dtype)
    raise CodegenError(f"no code for the function `{name}`")


def _int_abs(out: Builder, value: str, dtype: str) -> str:
    if dtype.startswith("u"):
        return value
    function = out.module.declare(
        f"llvm.abs.{suffix(dtype)}", value_type(dtype), value_type(dtype), "i1"
    )
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

    def clamp(self, a: str, lo: float, hi: float) -> str:
        """NaN stays NaN."""
        function_lo, function_hi = (self.out.module.intrinsic(n, self.dtype, 2) for n in ("maximum", "minimum"))
        above = self.out.emit(f"call nsz {self.kind} {function_lo}({self.kind} {a}, {self.kind} {self.const(lo)})")
        return self.out.emit(f"call nsz {self.kind} {function_hi}({self.kind} {above}, {self.kind} {self.const(hi)})")

    def horner(self, x: str, coefficients: tuple[float, ...]) -> str:
        result: str = self.const(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            result = self.fma(result, x, coefficient)
        return result

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
    """``e**x = 2**n * e**r`` with n the integer nearest to x / ln 2, added to the exponent's bits.

    Infinity above the largest float, and 0 where the result would be subnormal.  NaN stays NaN: its low bits are 0.
    """
    shifted = f.fma(x, 1.0 / math.log(2.0), _ROUND)
    n = f.op("fsub", shifted, _ROUND)
    r = f.fma(n, -_LN2_LOW, f.fma(n, -_LN2_HIGH, x))
    value = f.op("fadd", f.fma(f.op("fmul", r, r), f.horner(r, _EXP), r), 1.0)
    scaled = f.from_bits(f.int_op("add", f.bits(value), f.int_op("shl", f.bits(shifted), 23)))
    above = f.select(f.compare("ogt", x, _EXP_ENDS[1]), math.inf, scaled)
    return f.select(f.compare("olt", x, _EXP_ENDS[0]), 0.0, above)


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
    tail = f.op("fmul", f.op("fmul", square, r), f.horner(r, _LOG))
    tail = f.fma(n, _LN2_LOW, f.fma(square, -0.5, tail))
    value = f.fma(n, _LN2_HIGH, f.op("fadd", r, tail))
    value = f.select(f.compare("olt", x, math.inf), value, x)
    value = f.select(f.compare("oeq", x, 0.0), -math.inf, value)
    return f.select(f.compare("olt", x, 0.0), math.nan, value)


def _tanh(f: _Float, x: str) -> str:
    """An odd polynomial near 0; beyond, ``1 - 2 / (e**(2|x|) + 1)`` with the sign of x."""
    size = f.call("fabs", x)
    square = f.op("fmul", x, x)
    near = f.fma(f.op("fmul", square, x), f.horner(square, _TANH), x)
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
    near = f.fma(x, f.horner(square, _ERF), x)
    power = f.horner(f.clamp(size, 0.0, 4.0), _ERFC_LOG)
    decayed = _exp(f, f.out.emit(f"fneg {f.kind} {power}"))
    far = f.op("fsub", f.const(1.0), decayed)
    return f.select(f.compare("olt", size, 0.93), near, f.call("copysign", far, x))


def _rsqrt(f: _Float, x: str) -> str:
    return f.op("fdiv", f.const(1.0), f.call("sqrt", x))


_POLYNOMIALS: dict[str, Callable[..., str]] = {"exp": _exp, "log": _log, "tanh": _tanh, "erf": _erf}
_SIMPLE: dict[str, Callable[..., str]] = {
    "sqrt": lambda f, x: f.call("sqrt", x),
    "rsqrt": _rsqrt,
    "abs": lambda f, x: f.call("fabs", x),
    "floor": lambda f, x: f.call("floor", x),
    "ceil": lambda f, x: f.call("ceil", x),
    "fma": lambda f, a, b, c: f.call("fma", a, b, c),
    "sigmoid": _sigmoid,
}

