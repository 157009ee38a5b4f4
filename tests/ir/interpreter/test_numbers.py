"""What numbers become when they are converted, by exact arithmetic: what docs/numerics.md says of each type."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stridesmith.ir import dtypes
from stridesmith.ir.numbers import BITS, boundary_dtype, convert, from_storage, numpy_dtype

FLOATS = {
    "float8_e4m3fn": (3, -6), "float8_e5m2": (2, -14), "float16": (10, -14), "bfloat16": (7, -126),
    "float32": (23, -126), "float64": (52, -1022),
}  # fmt: skip
"""Bits of the fraction, and the least exponent of a normal number."""


def nearest(value: Fraction, dtype: str) -> float:
    """The float of a type that is nearest to a number, of two the even one; infinite or NaN where it is too large."""
    digits, least = FLOATS[dtype]
    size = abs(value)
    exponent = math.frexp(float(size))[1] - 1 if size else least
    step = Fraction(2) ** (max(exponent, least) - digits)
    rounded = round(size / step) * step  # of two the even one
    if rounded > Fraction(dtypes.LARGEST[dtype]):
        return math.nan if dtype == "float8_e4m3fn" else math.copysign(math.inf, value)
    return math.copysign(float(rounded), value)


def becomes(value: Any, source: str, target: str) -> Any:
    """What the page says that a number becomes."""
    if target == "bool":
        return value != 0
    if dtypes.is_int(target):
        low, high = dtypes.int_range(target)
        if not isinstance(value, float):
            return dtypes.wrap(value, target)
        if not math.isfinite(value):
            return 0 if math.isnan(value) else high if value > 0 else low
        return min(max(math.trunc(value), low), high)
    if isinstance(value, float) and (value == 0 or not math.isfinite(value)):
        return math.nan if target == "float8_e4m3fn" and value != 0 else value
    by_way = target == "bfloat16" and dtypes.is_int(source)
    return nearest(Fraction(nearest(Fraction(value), "float32")) if by_way else Fraction(value), target)


def examples(dtype: str) -> NDArray[Any]:
    """Numbers of a type: all of 8 bits; zeros, ends of all types, and what lies in the middle of two numbers of one."""
    rng = np.random.default_rng(0)
    if dtype in BITS and dtypes.bits(dtype) == 8:
        return np.asarray(from_storage(dtype, np.arange(256, dtype=np.uint8)))
    if not dtypes.is_float(dtype):
        low, high = (0, 1) if dtype == "bool" else dtypes.int_range(dtype)
        drawn = rng.integers((200, 0, -1), (600, 55, 2), (60, 3)).tolist()
        odd = [some * 2**bits + more for some, bits, more in drawn]
        whole = [low, low + 1, high, high - 1, 0, 1, 7, 8, 15, 65504, 65520, 257 * 2**16 + 1, 257 * 2**24 + 1, *odd]
        whole += [-n for n in whole]
        return np.array(sorted({n for n in whole if low <= n <= high}), boundary_dtype(dtype))
    found = [0.0, -0.0, math.inf, math.nan, *rng.normal(0, 1, 20) * 10.0 ** rng.integers(-42, 38, 20)]
    for kind, (digits, least) in FLOATS.items():
        for start in (1.0, 2.0**least, 2.0**least * 2.0**-digits, dtypes.LARGEST[kind]):
            for middle in (
                start,
                start * (1 + 2.0 ** -(digits + 1)),
                start * (1 + 3 * 2.0 ** -(digits + 1)),
                start / 2,
            ):
                found += [middle, middle * (1 + 2.0**-40), middle * (1 - 2.0**-40)]
    for kind in filter(dtypes.is_int, dtypes.SCALAR_TYPES):
        found += [float(end) + step for end in dtypes.int_range(kind) for step in (-1, -0.5, 0, 0.5, 1)]
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(convert("float64", dtype, np.array([*found, *(-x for x in found)])))


@pytest.mark.parametrize("source", dtypes.SCALAR_TYPES)
def test_every_number_becomes_what_the_page_says(source: str) -> None:
    """Rounded once, to the nearest and of two the even one; towards zero and to the nearest end; modulo 2**bits.

    An integer becomes a bfloat16 by way of float32, as in ml_dtypes.
    """
    values = examples(source)
    for target in dtypes.SCALAR_TYPES:
        with np.errstate(over="ignore", invalid="ignore"):
            found = convert(source, target, values)
        assert found.dtype == numpy_dtype(target)
        expected = np.array([becomes(value, source, target) for value in values.tolist()], found.dtype)
        np.testing.assert_array_equal(found, expected, err_msg=f"{source} to {target}")
        if dtypes.is_float(target):
            number = ~np.isnan(found)
            np.testing.assert_array_equal(np.signbit(found[number]), np.signbit(expected[number]))
