"""Conversions of constants, as the interpreter makes them."""

from __future__ import annotations

import math

import numpy as np

from .. import dtypes
from ..expr import Const, Expr, const
from ..functions import BIT_CALLS
from ..numbers import convert

# Integers up to 2 to this power are exact.
_EXACT_BITS = {"float8_e4m3fn": 4, "float8_e5m2": 3, "float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}


def rounded(value: float, dtype: str) -> float:
    """What a float type holds of a number: infinite where that is too large for it."""
    with np.errstate(over="ignore"):
        return float(convert("float64", dtype, float(value)))


def neutral(op: str, dtype: str) -> Const:
    """The element that ``op`` leaves everything with.

    That is 0 for +, bitwise or and bitwise xor, 1 for *, all bits for bitwise and, the end of the type for min and max.
    """
    if op in BIT_CALLS:
        return const(dtypes.wrap(-1, dtype) if op == "bitwise_and" else 0, dtype)
    if op in ("+", "*"):
        return const(0 if op == "+" else 1, dtype)
    if dtypes.is_float(dtype):
        return const(math.inf if op == "min" else -math.inf, dtype)
    low, high = dtypes.int_range(dtype)
    return const(high if op == "min" else low, dtype)


def is_finite_constant(value: Const) -> bool:
    """Whether a constant is a finite number in its own type."""
    return not dtypes.is_float(value.dtype) or math.isfinite(rounded(float(value.value), value.dtype))


def fold_floats(op: str, a: Const, b: Const) -> Const | None:
    """``a op b`` of floats that NumPy has, rounded as the interpreter does; None where the result is not finite."""
    if a.dtype not in ("float32", "float64") or op not in ("+", "-", "*", "/"):
        return None
    kind = np.dtype(a.dtype).type
    ufunc = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}[op]
    with np.errstate(all="ignore"):
        result = float(ufunc(kind(a.value), kind(b.value)))
    return const(result, a.dtype) if math.isfinite(result) else None


def fold_cast(value: Const, dtype: str) -> Expr | None:
    """``cast(dtype, value)`` of an integer or bool constant where the result is exact, else None."""
    if dtypes.is_float(value.dtype) or dtypes.lanes(dtype) > 1 or dtypes.lanes(value.dtype) > 1:
        return None
    number = int(value.value)
    if dtypes.is_bool(dtype):
        return const(number != 0)
    if dtypes.is_int(dtype):
        return Const(dtypes.wrap(number, dtype), dtype)
    return Const(float(number), dtype) if abs(number) <= 1 << _EXACT_BITS[dtype] else None
