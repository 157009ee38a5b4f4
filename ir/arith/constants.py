"""Constants of every type, computed as the interpreter does: integers narrower than the index type wrap around.

Floating-point operations are not folded, since each type rounds in its own way; a
conversion is where it is exact.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from .. import dtypes
from ..expr import COMPARISONS, LOGIC, Const, Expr, const

_OPERATIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
    "min": min, "max": max, "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge, "and": lambda a, b: a and b, "or": lambda a, b: a or b,
}  # fmt: skip

# Integers up to 2 to this power are exact.
_EXACT_BITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}


def wrap(value: int, dtype: str) -> int:
    """The value that an integer type holds of `value`: the one that is equal modulo ``2**bits``."""
    low, high = dtypes.int_range(dtype)
    return (value - low) % (high - low + 1) + low


def fold(op: str, a: Const, b: Const) -> Expr | None:
    """``a op b`` of integers or bools; None for floats, ``/`` and division by zero."""
    function = _OPERATIONS.get(op)
    if function is None or dtypes.is_float(a.dtype) or dtypes.lanes(a.dtype) > 1:
        return None
    if op in ("//", "%") and b.value == 0:
        return None
    value = function(a.value, b.value)
    if op in COMPARISONS or op in LOGIC or dtypes.is_bool(a.dtype):
        return const(bool(value))
    return Const(wrap(int(value), a.dtype), a.dtype)


def fold_cast(value: Const, dtype: str) -> Expr | None:
    """``cast(dtype, value)`` of an integer or bool constant, where the result is exact; None otherwise."""
    if dtypes.is_float(value.dtype) or dtypes.lanes(dtype) > 1 or dtypes.lanes(value.dtype) > 1:
        return None
    number = int(value.value)
    if dtypes.is_bool(dtype):
        return const(number != 0)
    if dtypes.is_int(dtype):
        return Const(wrap(number, dtype), dtype)
    return Const(float(number), dtype) if abs(number) <= 1 << _EXACT_BITS[dtype] else None
