"""Arithmetic: floor division and modulo, minimum and maximum, comparison, conversion.

Integers divide towards minus infinity: ``a // b = floor(a / b)`` and ``a % b = a - b * (a // b)``,
which has the sign of b.  Division by 0, an error in the language, gives some number instead of a trap, so
that lanes which are not chosen do no harm.  The hardware truncates, so that a quotient is corrected by one where the
remainder is not zero and differs from b in sign; no correction is made where the interval of the
operands proves that they are not negative.  Minimum and maximum of floats propagate NaN.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ...ir import dtypes
from ...ir.arith.compare import decide_zero
from ...ir.numbers import BITS, HALF_BYTES
from ..errors import CodegenError
from .index import INLINE, INT64_MAX, INT64_MIN, Linear, combined, difference, held, wrapped
from .narrow_floats import from_bits, to_bits, to_odd_float32
from .types import FAST, STRICT, literal, suffix, value_type

if TYPE_CHECKING:
    from .builder import Builder

MOST_PRODUCTS = 6  # of atoms that a product of sums is written as, a choice
_FLOAT_OPS = {"+": "fadd", "-": "fsub", "*": "fmul", "/": "fdiv"}
_INT_OPS = {"+": "add", "-": "sub", "*": "mul"}
_ORDERS = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


# --- linear forms -----------------------------------------------------------------------------


def multiply(out: Builder, a: Linear, b: Linear) -> Linear:
    """``a * b``; linear where one side is constant.

    Else each atom of one is multiplied by each of the other, unless they are many: ``(i + 3) * w = i*w + 3*w``, so that
    rows of a tile have the same products, and differ by a multiple of the stride.
    """
    if b.is_const:
        return a * b.const
    if a.is_const:
        return b * a.const
    left, right = Linear(0, a.terms), Linear(0, b.terms)
    constants = left * b.const + right * a.const + Linear(wrapped(a.const * b.const))
    if len(a.terms) * len(b.terms) > MOST_PRODUCTS:
        return constants + _product(out, left, right)
    parts = [(_product(out, Linear(0, ((x, 1),)), Linear(0, ((y, 1),))), j * k) for x, j in a.terms for y, k in b.terms]
    return combined(0, [(constants, 1), *parts])


def _product(out: Builder, a: Linear, b: Linear) -> Linear:
    """The atom ``a * b``."""
    left, right = out.scalar(a), out.scalar(b)
    corners = [x * y for x in a.bounds() for y in b.bounds()]
    return out.atom(("*", a, b), max(a.depth, b.depth), held(min(corners), max(corners)), f"mul i64 {left}, {right}")


def floor_div(out: Builder, a: Linear, b: Linear) -> Linear:
    """``a // b``; what divides evenly stays linear: ``(6*i + j) // 6 = i + j // 6``."""
    if b.is_const and b.const > 0 and a.bounded:
        quotient, rest = a.split(b.const)
        if not rest.bounded:
            return _divide(out, a, b)
        shared = _shared_factor(rest, b.const)
        return quotient + _divide(out, _whole(rest, shared), Linear(b.const // shared))
    return _divide(out, a, b)


def floor_mod(out: Builder, a: Linear, b: Linear) -> Linear:
    """``a % b``; what divides evenly vanishes: ``(6*i + j) % 6 = j % 6``."""
    if b.is_const and b.const > 0 and a.bounded:
        rest = a.split(b.const)[1]
        if not rest.bounded:
            return _modulo(out, a, b)
        lo, hi = rest.bounds()
        if lo >= 0 and hi < b.const:
            return rest
        shared = _shared_factor(rest, b.const)
        small = _modulo(out, _whole(rest, shared), Linear(b.const // shared))
        return small * shared + Linear(rest.const % shared)
    return _modulo(out, a, b)


def _shared_factor(value: Linear, divisor: int) -> int:
    """What divides the divisor and all factors of the terms."""
    return math.gcd(divisor, *(factor for _, factor in value.terms))


def _whole(value: Linear, divisor: int) -> Linear:
    """``value // divisor`` for a divisor of all terms: ``(28*i + 5) // 14 = 2*i``."""
    return Linear(value.const // divisor, tuple((atom, factor // divisor) for atom, factor in value.terms))


def _divide(out: Builder, a: Linear, b: Linear) -> Linear:
    if b.is_const and b.const:
        lo, hi = a.bounds()
        ends = (lo // b.const, hi // b.const)
        if ends[0] == ends[1]:
            return Linear(ends[0])
        bounds = held(min(ends), max(ends))
    else:
        bounds = INT64_MIN, INT64_MAX
    left, right = out.scalar(a), out.scalar(b)
    depth = _division_depth(a, b)
    if a.bounds()[0] >= 0 and b.bounds()[0] > 0:
        return out.atom(("//", a, b), depth, bounds, f"udiv i64 {left}, {right}")
    return out.atom(("//", a, b), depth, bounds, *_floor_div_texts("i64", left, right))


def _modulo(out: Builder, a: Linear, b: Linear) -> Linear:
    left, right = out.scalar(a), out.scalar(b)
    depth = _division_depth(a, b)
    blo, bhi = b.bounds()
    if a.bounds()[0] >= 0 and blo > 0:
        return out.atom(("%", a, b), depth, (0, max(bhi - 1, 0)), f"urem i64 {left}, {right}")
    bounds = (0, bhi - 1) if blo > 0 else (min(blo + 1, 0), max(bhi - 1, 0))
    return out.atom(("%", a, b), depth, bounds, *_floor_mod_texts("i64", left, right))


def _division_depth(a: Linear, b: Linear) -> int:
    """A division that could be by 0 stays inside of the condition that guards it."""
    return max(a.depth, b.depth) if b.is_const and b.const else INLINE


class _Texts(list[str]):
    """Instructions, each of which may name the result of an earlier one."""

    def add(self, text: str) -> str:
        """The place that stands for the result of `text`."""
        self.append(text)
        return f"{{{len(self) - 1}}}"

    def divisor(self, kind: str, b: str) -> tuple[str, str]:
        """`b`, but 1 where it is 0 or -1, on which the hardware may trap; and a flag that says where that is."""
        if _divides_safely(b):
            return b, ""
        above = self.add(f"add {kind} {b}, {_ones(kind)}")
        special = self.add(f"icmp ult {kind} {above}, {_splat(kind, '2')}")
        return self.add(f"select {_bool_like(kind)} {special}, {kind} {_ones(kind)}, {kind} {b}"), special


def _divides_safely(b: str) -> bool:
    """Whether `b` is a constant other than 0 and -1, in every lane."""
    numbers = [part.split()[-1] for part in b.strip("<>").split(",")]
    return not b.startswith("%") and all(n.lstrip("-").isdigit() and int(n) not in (0, -1) for n in numbers)


def _floor_div_texts(kind: str, a: str, b: str) -> tuple[str, ...]:
    """The quotient; ``a // -1`` wraps around, and ``a // 0`` is some number."""
    texts, flag = _Texts(), _bool_like(kind)
    divisor, special = texts.divisor(kind, b)
    quotient = texts.add(f"sdiv {kind} {a}, {divisor}")
    rest = texts.add(f"srem {kind} {a}, {divisor}")
    inexact = texts.add(f"icmp ne {kind} {rest}, {_zero(kind)}")
    signs = texts.add(f"xor {kind} {rest}, {divisor}")
    apart = texts.add(f"icmp slt {kind} {signs}, {_zero(kind)}")
    wrong = texts.add(f"and {flag} {inexact}, {apart}")
    floor = texts.add(f"add {kind} {quotient}, {texts.add(f'sext {flag} {wrong} to {kind}')}")
    if special:
        negated = texts.add(f"sub {kind} {_zero(kind)}, {a}")
        texts.add(f"select {flag} {special}, {kind} {negated}, {kind} {floor}")
    return tuple(texts)


def _floor_mod_texts(kind: str, a: str, b: str) -> tuple[str, ...]:
    """The remainder, with the sign of `b`; ``a % 0`` is 0."""
    texts, flag = _Texts(), _bool_like(kind)
    divisor, _ = texts.divisor(kind, b)
    rest = texts.add(f"srem {kind} {a}, {divisor}")
    inexact = texts.add(f"icmp ne {kind} {rest}, {_zero(kind)}")
    signs = texts.add(f"xor {kind} {rest}, {divisor}")
    apart = texts.add(f"icmp slt {kind} {signs}, {_zero(kind)}")
    wrong = texts.add(f"and {flag} {inexact}, {apart}")
    correction = texts.add(f"select {flag} {wrong}, {kind} {divisor}, {kind} {_zero(kind)}")
    texts.add(f"add {kind} {rest}, {correction}")
    return tuple(texts)


def _splat(kind: str, number: str) -> str:
    if not kind.startswith("<"):
        return number
    count, one = kind.strip("<>").split(" x ")
    return f"<{', '.join([f'{one} {number}'] * int(count))}>"


def _ones(kind: str) -> str:
    return _splat(kind, "1")


def _zero(kind: str) -> str:
    return "zeroinitializer" if kind.startswith("<") else "0"


def _bool_like(kind: str) -> str:
    return f"<{kind[1:].split(' ')[0]} x i1>" if kind.startswith("<") else "i1"


def extremum(out: Builder, op: str, a: Linear, b: Linear) -> Linear:
    """``min`` or ``max`` of linear forms, decided where their intervals allow it."""
    apart = difference(a, b)
    if apart is not None:
        below = decide_zero("<=", *apart.bounds())
        if below is not None:
            return a if below == (op == "min") else b
    choose = min if op == "min" else max
    bounds = choose(a.bounds()[0], b.bounds()[0]), choose(a.bounds()[1], b.bounds()[1])
    function = out.module.intrinsic("smin" if op == "min" else "smax", "int64", 2)
    text = f"call i64 {function}(i64 {out.scalar(a)}, i64 {out.scalar(b)})"
    return out.atom((op, a, b), max(a.depth, b.depth), bounds, text)


# --- values -----------------------------------------------------------------------------------


def binary(out: Builder, op: str, a: str, b: str, dtype: str, exact: bool = False) -> str:
    """``a op b`` of one element type, lane by lane; `exact` floats are rounded once, by this operation."""
    base = dtypes.element(dtype)
    if base == "bfloat16":
        wide = dtypes.with_lanes("float32", dtypes.lanes(dtype))
        left, right = cast(out, a, dtype, wide), cast(out, b, dtype, wide)
        return cast(out, binary(out, op, left, right, wide, exact), wide, dtype)
    if dtypes.is_float(base):
        return _float_binary(out, op, a, b, dtype, exact)
    if base == "bool":
        if op in ("min", "max", "*", "+"):
            return out.emit(f"{'and' if op in ('min', '*') else 'or'} {value_type(dtype)} {a}, {b}")
        raise CodegenError(f"`{op}` of bool is not defined")
    return _int_binary(out, op, a, b, dtype)


def _float_binary(out: Builder, op: str, a: str, b: str, dtype: str, exact: bool) -> str:
    kind = value_type(dtype)
    if op in _FLOAT_OPS:
        flags = "" if exact else f"{STRICT if out.module.strict else FAST} "
        return out.emit(f"{_FLOAT_OPS[op]} {flags}{kind} {a}, {b}")
    if op in ("min", "max"):
        function = out.module.intrinsic("minimum" if op == "min" else "maximum", dtype, 2)
        return out.emit(f"call {'' if out.module.strict else 'nsz '}{kind} {function}({kind} {a}, {kind} {b})")
    if op in ("//", "%"):
        return _float_division(out, op, a, b, dtype)
    raise CodegenError(f"`{op}` of {dtype} is not defined")


def _float_division(out: Builder, op: str, a: str, b: str, dtype: str) -> str:
    """NumPy's ``//`` or ``%``: the remainder is exact and has the sign of `b`, and the quotient is what belongs to it.

    A quotient that is rounded first may be too large by one: 1 / 0.1 is 10, but 0.1 is a little more than a tenth.
    """
    if dtypes.element(dtype) == "float16":
        wide = dtypes.with_lanes("float32", dtypes.lanes(dtype))
        left, right = cast(out, a, dtype, wide), cast(out, b, dtype, wide)
        return cast(out, _float_division(out, op, left, right, wide), wide, dtype)
    kind, flag, zero = value_type(dtype), _bool_like(value_type(dtype)), literal(0.0, dtype)
    rest = out.emit(f"frem {kind} {a}, {b}")
    inexact = out.emit(f"fcmp une {kind} {rest}, {zero}")
    signs = [out.emit(f"fcmp olt {kind} {value}, {zero}") for value in (b, rest)]
    wrong = out.emit(f"and {flag} {inexact}, {out.emit(f'xor {flag} {signs[0]}, {signs[1]}')}")
    copysign = out.module.intrinsic("copysign", dtype, 2)
    if op == "%":
        corrected = out.emit(f"fadd {kind} {rest}, {b}")
        whole = out.emit(f"call {kind} {copysign}({kind} {zero}, {kind} {b})")
        nearest = out.emit(f"select {flag} {inexact}, {kind} {rest}, {kind} {whole}")
        return out.emit(f"select {flag} {wrong}, {kind} {corrected}, {kind} {nearest}")
    divided = out.emit(f"fdiv {kind} {a}, {b}")
    exact = out.emit(f"fdiv {kind} {out.emit(f'fsub {kind} {a}, {rest}')}, {b}")
    below = out.emit(f"fsub {kind} {exact}, {literal(1.0, dtype)}")
    quotient = out.emit(f"select {flag} {wrong}, {kind} {below}, {kind} {exact}")
    # It is a whole number but for rounding; the sign of a quotient of 0 is that of the division.
    floor = out.emit(f"call {kind} {out.module.intrinsic('floor', dtype, 1)}({kind} {quotient})")
    apart = out.emit(f"fcmp ogt {kind} {out.emit(f'fsub {kind} {quotient}, {floor}')}, {literal(0.5, dtype)}")
    above = out.emit(f"fadd {kind} {floor}, {literal(1.0, dtype)}")
    rounded = out.emit(f"select {flag} {apart}, {kind} {above}, {kind} {floor}")
    signed = out.emit(f"call {kind} {copysign}({kind} {zero}, {kind} {divided})")
    is_zero = out.emit(f"fcmp oeq {kind} {quotient}, {zero}")
    chosen = out.emit(f"select {flag} {is_zero}, {kind} {signed}, {kind} {rounded}")
    by_zero = out.emit(f"fcmp oeq {kind} {b}, {zero}")
    return out.emit(f"select {flag} {by_zero}, {kind} {divided}, {kind} {chosen}")


def _int_binary(out: Builder, op: str, a: str, b: str, dtype: str) -> str:
    kind, unsigned = value_type(dtype), dtype.startswith("u")
    if op in _INT_OPS:
        return out.emit(f"{_INT_OPS[op]} {kind} {a}, {b}")
    if op in ("min", "max"):
        function = out.module.intrinsic(("u" if unsigned else "s") + op, dtype, 2)
        return out.emit(f"call {kind} {function}({kind} {a}, {kind} {b})")
    if op not in ("//", "%"):
        raise CodegenError(f"`{op}` of {dtype} is not defined; use `//` for the quotient")
    if unsigned:
        zero = out.emit(f"icmp eq {kind} {b}, {_zero(kind)}")
        divisor = out.emit(f"select {_bool_like(kind)} {zero}, {kind} {_ones(kind)}, {kind} {b}")
        return out.emit(f"{'udiv' if op == '//' else 'urem'} {kind} {a}, {divisor}")
    texts = _floor_div_texts(kind, a, b) if op == "//" else _floor_mod_texts(kind, a, b)
    names: list[str] = []
    for text in texts:
        names.append(out.emit(text.format(*names)))
    return names[-1]


def compare(out: Builder, op: str, a: str, b: str, dtype: str) -> str:
    """``a op b`` lane by lane; with a NaN only ``!=`` holds."""
    base = dtypes.element(dtype)
    if base in BITS:
        wide = dtypes.with_lanes("float32", dtypes.lanes(dtype))
        return compare(out, op, cast(out, a, dtype, wide), cast(out, b, dtype, wide), wide)
    kind, order = value_type(dtype), _ORDERS[op]
    if dtypes.is_float(base):
        if op == "==" and a == b:  # a number
            return out.emit(f"fcmp ord {kind} {a}, {literal(0.0, dtype)}")
        return out.emit(f"fcmp {'une' if op == '!=' else 'o' + order} {kind} {a}, {b}")
    if op not in ("==", "!="):
        order = ("u" if dtypes.is_unsigned(base) else "s") + order
    return out.emit(f"icmp {order} {kind} {a}, {b}")


def cast(out: Builder, value: str, source: str, target: str) -> str:
    """`value` converted from `source` to `target`, of equally many lanes.

    A float becomes an integer by truncation, saturating where it does not fit, NaN giving 0.
    """
    if source == target:
        return value
    source_base, target_base = dtypes.element(source), dtypes.element(target)
    wide = dtypes.with_lanes("float32", dtypes.lanes(source))
    if source_base in BITS:
        return cast(out, from_bits(out, value, source_base, wide), wide, target)
    if source_base == "float64" and target_base in ("float16", *BITS):
        return cast(out, to_odd_float32(out, value, wide), wide, target)
    if target_base in BITS:
        return to_bits(out, cast(out, value, source, wide), target_base, wide)
    if target_base in HALF_BYTES and not dtypes.is_float(source_base):
        return in_four_bits(out, cast(out, value, source, target.replace("int4", "int8")), target)
    kind, result = value_type(source), value_type(target)
    if target_base == "bool":
        zero = literal(0, source)
        return out.emit(f"{'fcmp une' if dtypes.is_float(source) else 'icmp ne'} {kind} {value}, {zero}")
    unsigned = dtypes.is_unsigned(source_base)
    if dtypes.is_float(source_base) and dtypes.is_float(target_base):
        widening = dtypes.bits(target) > dtypes.bits(source)
        return out.emit(f"{'fpext' if widening else 'fptrunc'} {kind} {value} to {result}")
    if dtypes.is_float(source_base):
        return _float_to_int(out, value, source, target)
    if dtypes.is_float(target_base):
        return out.emit(f"{'uitofp' if unsigned else 'sitofp'} {kind} {value} to {result}")
    # Integers of 4 bits are held in 8.
    narrow, wider = (1 if source_base == "bool" else max(dtypes.bits(source), 8)), dtypes.bits(target)
    if narrow == wider:
        return value
    operation = "trunc" if narrow > wider else "zext" if unsigned else "sext"
    return out.emit(f"{operation} {kind} {value} to {result}")


def _float_to_int(out: Builder, value: str, source: str, target: str) -> str:
    sign, width, count = "u" if target.startswith("u") else "s", dtypes.bits(target), dtypes.lanes(target)
    kind, tag = (f"i{width}", f"i{width}") if count == 1 else (f"<{count} x i{width}>", f"v{count}i{width}")
    function = out.module.declare(f"llvm.fpto{sign}i.sat.{tag}.{suffix(source)}", kind, value_type(source))
    found = out.emit(f"call {kind} {function}({value_type(source)} {value})")
    if width >= 8:
        return found
    return out.emit(f"{'zext' if sign == 'u' else 'sext'} {kind} {found} to {value_type(target)}")


def in_four_bits(out: Builder, value: str, dtype: str) -> str:
    """Bytes as the numbers of 4 bits that their lower halves are."""
    kind = value_type(dtype)
    if dtypes.is_unsigned(dtype):
        return out.emit(f"and {kind} {value}, {literal(15, dtype)}")
    raised = out.emit(f"shl {kind} {value}, {literal(4, dtype)}")
    return out.emit(f"ashr {kind} {raised}, {literal(4, dtype)}")


def shift(out: Builder, name: str, a: str, b: str, dtype: str) -> str:
    """``shift_left`` or ``shift_right``; of as many bits as there are, or more, nothing but the sign is left."""
    kind, width, unsigned = value_type(dtype), dtypes.bits(dtype), dtypes.is_unsigned(dtype)
    operation = "shl" if name == "shift_left" else "lshr" if unsigned else "ashr"
    numbers = {part.split()[-1] for part in b.strip("<>").split(",")}
    if all(number.isdigit() and int(number) < width for number in numbers):
        return out.emit(f"{operation} {kind} {a}, {b}")
    most = literal(width - 1, dtype)
    by = out.emit(f"call {kind} {out.module.intrinsic('umin', dtype, 2)}({kind} {b}, {kind} {most})")
    found = out.emit(f"{operation} {kind} {a}, {by}")
    if operation == "ashr":
        return found
    inside = out.emit(f"icmp ule {kind} {b}, {most}")
    return out.emit(f"select {_bool_like(kind)} {inside}, {kind} {found}, {kind} {_zero(kind)}")


def truncated(out: Builder, name: str, a: str, b: str, dtype: str) -> str:
    """``truncdiv`` or ``truncmod``; ``truncdiv(a, -1)`` wraps around, and a division by 0 gives some number."""
    if dtypes.is_unsigned(dtype):
        return _int_binary(out, "//" if name == "truncdiv" else "%", a, b, dtype)
    kind, texts = value_type(dtype), _Texts()
    divisor, special = texts.divisor(kind, b)
    quotient = texts.add(f"{'sdiv' if name == 'truncdiv' else 'srem'} {kind} {a}, {divisor}")
    if special and name == "truncdiv":
        negated = texts.add(f"sub {kind} {_zero(kind)}, {a}")
        texts.add(f"select {_bool_like(kind)} {special}, {kind} {negated}, {kind} {quotient}")
    names: list[str] = []
    for text in texts:
        names.append(out.emit(text.format(*names)))
    return names[-1]


def reinterpret(out: Builder, value: str, source: str, target: str) -> str:
    """The number of another type with the same bits."""
    kind, wanted = value_type(source), value_type(target)
    if dtypes.element(target) in HALF_BYTES:
        return in_four_bits(out, value, target)
    return value if kind == wanted else out.emit(f"bitcast {kind} {value} to {wanted}")
