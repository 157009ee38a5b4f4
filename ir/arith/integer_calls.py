"""Shifts, bits, and quotients rounded towards 0, of integers: as arithmetic, of constants, and their intervals.

::

    shift_left(a, k)          ->  a * 2**k          0 <= k, and the type has 2**k
    shift_right(a, k)         ->  a // 2**k
    bitwise_and(a, 2**k - 1)  ->  a % 2**k
    truncdiv(a, b)            ->  a // b            0 <= a and 0 < b
    truncmod(a, b)            ->  a % b
    truncdiv(a, k)            ->  a // k + select(a < 0 and a % k != 0, 1, 0)     0 < k
    truncmod(a, k)            ->  a % k - select(a < 0 and a % k != 0, k, 0)
"""

from __future__ import annotations

from typing import TypeAlias

from .. import dtypes
from ..expr import Binary, Call, Const, Expr, Select
from ..functions import BIT_CALLS, SHIFT_CALLS, TRUNCATED_CALLS

Interval: TypeAlias = tuple[int, int]

_BITS = {"bitwise_and": int.__and__, "bitwise_or": int.__or__, "bitwise_xor": int.__xor__}


def as_arithmetic(call: Call) -> Expr | None:
    """What a call of scalars is in quotients, products and remainders, where its second operand is a constant."""
    if call.name not in (*SHIFT_CALLS, "bitwise_and", *TRUNCATED_CALLS) or dtypes.lanes(call.dtype) > 1:
        return None
    a, b = call.args
    if not isinstance(b, Const):
        return None
    most, number = dtypes.int_range(call.dtype)[1], int(b.value)
    if call.name in TRUNCATED_CALLS:
        floor, rest, zero = Binary(TRUNCATED_CALLS[call.name], a, b), Binary("%", a, b), Const(0, b.dtype)
        is_off = Binary("and", Binary("<", a, zero), Binary("!=", rest, zero))
        is_quotient = call.name == "truncdiv"
        step = Select(is_off, Const(1, b.dtype) if is_quotient else b, zero)
        return Binary("+" if is_quotient else "-", floor, step) if number > 0 else None
    if call.name == "bitwise_and":
        is_mask = 0 <= number < most and number & (number + 1) == 0
        return Binary("%", a, Const(number + 1, call.dtype)) if is_mask else None
    if not 0 <= number < dtypes.bits(call.dtype) or 1 << number > most:
        return None
    return Binary("*" if call.name == "shift_left" else "//", a, Const(1 << number, call.dtype))


def floored(call: Call, a: Interval, b: Interval) -> Expr | None:
    """A quotient or remainder that is rounded towards 0 as one that is rounded down, where its operands allow it."""
    if call.name not in TRUNCATED_CALLS or a[0] < 0 or b[0] <= 0:
        return None
    return Binary(TRUNCATED_CALLS[call.name], *call.args)


def fold(call: Call) -> Const | None:
    """The value of a call of constants; None of others, and of a division by 0."""
    if call.name not in (*BIT_CALLS, *SHIFT_CALLS, *TRUNCATED_CALLS) or dtypes.lanes(call.dtype) > 1:
        return None
    if not all(isinstance(arg, Const) for arg in call.args):
        return None
    a, b = (int(arg.value) for arg in call.args if isinstance(arg, Const))
    if call.name in BIT_CALLS:
        return Const(dtypes.wrap(_BITS[call.name](a, b), call.dtype), call.dtype)
    if call.name in SHIFT_CALLS:
        width = dtypes.bits(call.dtype)
        by = b % (1 << width)
        if call.name == "shift_right":
            return Const(a >> min(by, width), call.dtype)
        return Const(dtypes.wrap(a << by, call.dtype) if by < width else 0, call.dtype)
    if b == 0:
        return None
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    value = quotient if call.name == "truncdiv" else a - quotient * b
    return Const(dtypes.wrap(value, call.dtype), call.dtype)


def interval(name: str, a: Interval, b: Interval, own: Interval, width: int) -> Interval:
    """What a call lies between, of operands in intervals and of a type with the range `own` and so many bits.

    Intervals without a number are those of a place that is never reached.
    """
    if a[0] > a[1] or b[0] > b[1]:
        return own
    if name in BIT_CALLS:
        positive = [side[1] for side in (a, b) if side[0] >= 0]
        if name == "bitwise_and":
            return (0, min(positive)) if positive else own
        return (0, (1 << max(positive).bit_length()) - 1) if len(positive) == 2 else own
    if name in SHIFT_CALLS:
        if b[0] < 0 or b[1] >= width:
            return own
        corners = [x << n if name == "shift_left" else x >> n for x in a for n in b]
        low, high = min(corners), max(corners)
        return (low, high) if own[0] <= low and high <= own[1] else own
    if name == "truncdiv":
        size = max(abs(a[0]), abs(a[1]))
        if b[0] > 0:
            corners = [abs(x) // y * (-1 if x < 0 else 1) for x in a for y in b]
            return min(0, *corners), max(0, *corners)
        return (-size, size) if own[0] <= -size and size <= own[1] else own
    most = min(max(abs(b[0]), abs(b[1]), 1) - 1, max(abs(a[0]), abs(a[1])))
    return (0 if a[0] >= 0 else -most), (0 if a[1] <= 0 else most)
