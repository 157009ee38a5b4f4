"""Conversions of constants, as the interpreter makes them, where they are exact."""

from __future__ import annotations

from .. import dtypes
from ..expr import Const, Expr, const

# Integers up to 2 to this power are exact.
_EXACT_BITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}


def fold_cast(value: Const, dtype: str) -> Expr | None:
    """``cast(dtype, value)`` of an integer or bool constant, where the result is exact; None otherwise."""
    if dtypes.is_float(value.dtype) or dtypes.lanes(dtype) > 1 or dtypes.lanes(value.dtype) > 1:
        return None
    number = int(value.value)
    if dtypes.is_bool(dtype):
        return const(number != 0)
    if dtypes.is_int(dtype):
        return Const(dtypes.wrap(number, dtype), dtype)
    return Const(float(number), dtype) if abs(number) <= 1 << _EXACT_BITS[dtype] else None
