"""Numbers of every element type, in memory and in computation.

::

    type           in memory            computed as
    bool           a byte, not 0        NumPy bool
    bfloat16       uint16 of its bits   float32, rounded to nearest even after every operation
    float8_e4m3fn  uint8 of its bits    float32, as which it is only moved
    float8_e5m2    uint8 of its bits    float32, as which it is only moved
    int4, uint4    int8, uint8, whose   int8 and uint8, as which they are only moved
                   lower half counts;
                   of vectors uint8,
                   two to a byte
    others         NumPy's type         NumPy's type; an int64 that is the same everywhere, a Python int

Integers wrap around.  A float becomes an integer by truncation; what lies outside of the
integer's range becomes its nearest end, and NaN becomes 0.  Functions of the 16-bit floats
are computed in float32 and rounded once.  A number that is too large for a float becomes
infinite, and NaN where the type has no infinity, as float8_e4m3fn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import dtypes

BITS: Mapping[str, np.dtype[Any]] = {
    "bfloat16": np.dtype("uint16"), "float8_e4m3fn": np.dtype("uint8"), "float8_e5m2": np.dtype("uint8"),
}  # fmt: skip
"""Floats that NumPy has only with the package ml_dtypes, and the type of their bits, as which they are passed."""
HALF_BYTES: Mapping[str, np.dtype[Any]] = {"int4": np.dtype("int8"), "uint4": np.dtype("uint8")}
"""Integers of which one lies in the lower half of a byte, and the type in which they are passed."""


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The NumPy type in which one lane is computed."""
    base = dtypes.element(dtype)
    return np.dtype("float32") if base in BITS else HALF_BYTES.get(base) or np.dtype(base)


def storage_dtype(dtype: str) -> np.dtype[Any]:
    """The NumPy type in which one lane lies in memory."""
    return np.dtype("uint8") if dtypes.is_bool(dtype) else boundary_dtype(dtype)


def boundary_dtype(dtype: str) -> np.dtype[Any]:
    """The NumPy type of an argument array; a bfloat16 or float8 is passed as its bits, vectors of 4 bits in bytes."""
    base = dtypes.element(dtype)
    if dtypes.is_packed(dtype):
        return np.dtype("uint8")
    return BITS.get(base) or HALF_BYTES.get(base) or np.dtype(base)


def held_shape(dtype: str) -> tuple[int, ...]:
    """The last dimension of an array whose elements are vectors: lanes, or bytes that hold two of them each."""
    if dtypes.is_packed(dtype):
        return (dtypes.nbytes(dtype),)
    return () if dtypes.lanes(dtype) == 1 else (dtypes.lanes(dtype),)


def is_passed_as(dtype: str, array: np.dtype[Any]) -> bool:
    """Whether an array of NumPy's type `array`, one of ml_dtypes, holds numbers of an element type as memory does."""
    base = dtypes.element(dtype)
    return (base in BITS or base in HALF_BYTES) and array.name == base and not dtypes.is_packed(dtype)


def masked(name: str, array: object) -> str:
    """Why an array with a mask is refused, which nothing that computes here would see; empty for others."""
    if type(array) is np.ndarray or not isinstance(array, np.ma.MaskedArray):
        return ""
    return f"`{name}` is a masked array, whose mask would be lost; `filled(value)` makes an array without one of it"


def from_storage(dtype: str, data: Any) -> Any:
    """Values from what lies in memory."""
    base = dtypes.element(dtype)
    if base == "bool":
        return data != 0
    if base in HALF_BYTES:
        return _wrapped(base, data)
    if base == "bfloat16":
        return bfloat16_values(data)
    return _FLOATS8[base][np.asarray(data, np.uint8)] if base in BITS else data


def to_storage(dtype: str, data: Any) -> Any:
    """What lies in memory for values."""
    base = dtypes.element(dtype)
    if base not in BITS:
        return data
    return bfloat16_bits(data) if base == "bfloat16" else _float8_bits(base, data)


def unpacked(dtype: str, data: Any) -> Any:
    """The lanes of vectors of 4 bits, from bytes along the last axis."""
    halves = np.stack((np.asarray(data) & 15, np.asarray(data) >> 4), axis=-1)
    return _wrapped(dtypes.element(dtype), halves.reshape(*np.shape(data)[:-1], -1))


def packed(data: Any) -> NDArray[np.uint8]:
    """The bytes that hold lanes of 4 bits along the last axis."""
    low = np.asarray(data).astype(np.uint8) & np.uint8(15)
    return np.asarray(low[..., ::2] | low[..., 1::2] << np.uint8(4))


def bfloat16_values(bits: Any) -> Any:
    """The float32 of equal value; `bits` are uint16, or other whole numbers.  Raises TypeError for other types."""
    if (kind := np.asarray(bits).dtype).kind not in "ui":
        raise TypeError(f"the bits of bfloat16 numbers are uint16, but got {kind}")
    wide = np.asarray(bits, np.uint16).astype(np.uint32) << np.uint32(16)
    return wide.view(np.float32)[()] if wide.ndim else np.float32(np.atleast_1d(wide).view(np.float32)[0])


def bfloat16_bits(data: Any) -> NDArray[np.uint16]:
    """The nearest bfloat16 of float32 values, ties to even, as uint16; NaN stays NaN.

    Raises TypeError for an array whose mask would be lost.
    """
    if told := masked("data", data):
        raise TypeError(told)
    values = np.asarray(data, np.float32)
    bits = np.atleast_1d(values).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)
    result = np.where(np.isnan(bits.view(np.float32)), quiet, rounded).astype(np.uint16)
    return result.reshape(values.shape)


def numbers_of(dtype: str, array: Any) -> NDArray[Any]:
    """Numbers of a type in any form that arrays of them have: their bits, the type of ml_dtypes, or numbers already."""
    data, base = np.asarray(array), dtypes.element(dtype)
    if base not in BITS and base not in HALF_BYTES:
        return data
    held = data.view(boundary_dtype(base)) if is_passed_as(base, data.dtype) else data
    return np.asarray(from_storage(base, held)) if held.dtype == boundary_dtype(base) else held


_FLOATS8: Mapping[str, NDArray[np.float32]] = {
    # The upper halves of all float16; and numbers of a 4-bit exponent, whose largest significand is that of NaN.
    "float8_e5m2": (np.arange(256, dtype=np.uint16) << np.uint16(8)).view(np.float16).astype(np.float32),
    "float8_e4m3fn": np.array(
        [
            (-1.0) ** (bits >> 7)
            * (
                np.nan
                if bits & 127 == 127
                else ((bits & 7) + 8 * (bits >> 3 & 15 > 0)) * 2.0 ** (max(bits >> 3 & 15, 1) - 10)
            )
            for bits in range(256)
        ],
        np.float32,
    ),
}
"""The number of each byte."""


def _float8_bits(base: str, data: Any) -> NDArray[np.uint8]:
    """The nearest float of 8 bits, ties to even; what is too large becomes infinite or NaN, as which NaN stays."""
    digits, bias, last = (2, 15, 0x7C) if base == "float8_e5m2" else (3, 7, 0x7F)
    values = np.asarray(data, np.float32)
    whole = np.atleast_1d(values).view(np.uint32)
    size = whole & np.uint32(0x7FFFFFFF)
    dropped = 23 - digits
    odd = (size >> np.uint32(dropped)) & np.uint32(1)
    rounded = (size + odd + np.uint32((1 << (dropped - 1)) - 1)) >> np.uint32(dropped)
    normal = rounded.astype(np.int64) - ((127 - bias) << digits)
    # Beside this number the distance of two floats is that of two subnormal numbers of the type.
    near = np.float32(2.0 ** (24 - bias - digits))
    small = ((size.view(np.float32) + near).view(np.uint32) - near.view(np.uint32)).astype(np.int64)
    found = np.where(normal < 1 << digits, small, np.minimum(normal, last))
    found = np.where(np.isnan(whole.view(np.float32)), 0x7F, found)
    return ((whole >> np.uint32(24)) & np.uint32(0x80) | found.astype(np.uint32)).astype(np.uint8).reshape(values.shape)


def _wrapped(base: str, data: Any) -> Any:
    """Integers as their lower four bits have them."""
    low = np.asarray(data).astype(np.int64) & 15
    return (low - 16 * (low > 7) if base == "int4" else low).astype(HALF_BYTES[base])[()]


def round_to(dtype: str, data: Any) -> Any:
    """A result rounded to a type that NumPy does not have, or wrapped around to int64."""
    if type(data) is int:
        return data if -(2**63) <= data < 2**63 else (data + 2**63) % 2**64 - 2**63
    return from_storage(dtype, to_storage(dtype, data)) if dtypes.element(dtype) in BITS else data


def convert(source: str, target: str, data: Any) -> Any:
    """`data` of type `source` in type `target`, lane by lane."""
    base = dtypes.element(target)
    values = np.asarray(data)
    if dtypes.is_float(source) and dtypes.is_int(base):
        return _truncated(values, base)[()]
    if base in HALF_BYTES:
        return _wrapped(base, values)
    if base in BITS:
        narrow = _odd_float32(values) if dtypes.element(source) == "float64" else values.astype(np.float32)
        return round_to(target, narrow[()])
    return values.astype(numpy_dtype(base))[()]


def _truncated(values: NDArray[Any], base: str) -> NDArray[Any]:
    """Towards zero, saturating; every float16 and float32 is a float64."""
    low, high = dtypes.int_range(base)
    wide = np.asarray(values, np.float64)
    above, below = wide >= float(high + 1), wide <= float(low)
    whole = np.where(above | below | np.isnan(wide), 0.0, wide).astype(np.uint64 if base == "uint64" else np.int64)
    kind = numpy_dtype(base).type
    inside = whole.astype(kind)
    return np.where(above, kind(high), np.where(below, kind(low), inside))


def _odd_float32(values: NDArray[Any]) -> NDArray[np.float32]:
    """float64 as float32, towards zero and with the last bit set where inexact; rounding once more is then exact."""
    near = np.atleast_1d(values).astype(np.float32)
    back = near.astype(np.float64)
    exact = (back == np.atleast_1d(values)) | np.isnan(back)
    bits = near.view(np.uint32) - (np.abs(back) > np.abs(np.atleast_1d(values))).astype(np.uint32)
    result = np.where(exact, near, (bits | np.uint32(1)).view(np.float32))
    return np.asarray(result.reshape(np.shape(values)), np.float32)


def poison(dtype: str) -> Any:
    """What an undef value reads as: NaN, or an integer that stands out."""
    kind = numpy_dtype(dtype)
    if kind.kind == "f":
        return kind.type(np.nan)
    return kind.type(True) if kind.kind == "b" else kind.type(0x5B)


def reinterpreted(source: str, target: str, data: Any) -> Any:
    """The numbers of type `target` with the bits of those of type `source`, which has as many; lanes stay."""
    kept = np.atleast_1d(np.asarray(to_storage(source, np.asarray(data, numpy_dtype(source)))))
    result = np.asarray(from_storage(target, np.ascontiguousarray(kept).view(storage_dtype(target))))
    return result if np.ndim(data) else result[0]


def shifted(is_left: bool, value: Any, count: Any) -> Any:
    """``value << count`` or ``value >> count`` of one integer type.

    The count is read as a number without a sign.  Nothing is left where it is the width of the type or more, but for
    the sign on the way to the right.
    """
    whole = np.asarray(value)
    unsigned = np.dtype(f"u{whole.dtype}") if whole.dtype.kind == "i" else whole.dtype
    by = np.asarray(count, whole.dtype).astype(unsigned)
    width = 8 * whole.dtype.itemsize
    if is_left:
        return np.where(by < width, whole << np.minimum(by, width - 1).astype(whole.dtype), whole.dtype.type(0))[()]
    kept = whole >> np.minimum(by, width - 1).astype(whole.dtype)
    return (kept if whole.dtype.kind == "i" else np.where(by < width, kept, whole.dtype.type(0)))[()]


def truncated_quotient(a: Any, b: Any) -> Any:
    """``a / b`` of integers, rounded towards 0; `b` is not 0."""
    a, b = np.asarray(a), np.asarray(b)
    floor = a // b
    return (floor + ((a % b != 0) & ((a < 0) != (b < 0))).astype(floor.dtype))[()]


def truncated_rest(a: Any, b: Any) -> Any:
    """``a - b * truncated_quotient(a, b)``, which has the sign of `a`."""
    a, b = np.asarray(a), np.asarray(b)
    rest = a % b
    return (rest - np.where((rest != 0) & ((a < 0) != (b < 0)), b, b.dtype.type(0)))[()]


def fused(a: Any, b: Any, c: Any) -> Any:
    """``a * b + c`` of floats, rounded once when it becomes their type: of float32 in float64, rounded to odd."""
    if np.result_type(a, b, c) == np.float64:
        return np.asarray(_fused_float64(a, b, c)).astype(np.float64)
    with np.errstate(invalid="ignore"):
        product = np.multiply(a, b, dtype=np.float64)  # exact, and so is what the sum loses
        total = np.asarray(product + c)
        back = total - product
        lost = (product - (total - back)) + (np.asarray(c, np.float64) - back)
    even = np.atleast_1d(total).view(np.int64).reshape(total.shape) % 2 == 0
    return np.where(even & np.isfinite(total) & (lost != 0), np.nextafter(total, np.copysign(np.inf, lost)), total)


def _fused_exactly(a: float, b: float, c: float) -> float:
    if not all(map(math.isfinite, (a, b, c))):
        return float(np.multiply(a, b) + np.float64(c))
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    try:
        return float(exact) if exact else a * b + c  # which has the sign of a zero
    except OverflowError:
        return math.copysign(math.inf, exact)


_fused_float64 = np.frompyfunc(_fused_exactly, 3, 1)


def dot_of_bytes(a_signed: bool, b_signed: bool, a: Any, b: Any, c: Any) -> NDArray[np.int32]:
    """``c + a0*b0 + a1*b1 + a2*b2 + a3*b3`` of the bytes of int32 words, which are signed or not."""

    def bytes_of(words: Any, signed: bool) -> Any:
        whole = np.ascontiguousarray(np.asarray(words).astype(np.int32)[..., None])
        return whole.view(np.int8 if signed else np.uint8).astype(np.int32)

    products = bytes_of(a, a_signed) * bytes_of(b, b_signed)
    total: NDArray[np.int32] = products.sum(axis=-1, dtype=np.int32) + np.asarray(c).astype(np.int32)
    return total


def packed_4x8(*parts: Any) -> NDArray[np.int32]:
    """The words of int32 of four bytes each, the first in the lowest bits."""
    total: NDArray[np.uint32] = np.asarray(0, np.uint32)
    for number, part in enumerate(parts):
        byte = np.asarray(part).astype(np.int64) & 0xFF
        total = total | (byte << (8 * number)).astype(np.uint32)
    return total.astype(np.int32)


def dot_of_pairs(a: Any, b: Any, c: Any) -> NDArray[np.float32]:
    """``(c + a1*b1) + a0*b0`` of the bfloat16 halves of int32 words, the upper one first, as `vdpbf16ps` computes it.

    Each product and sum is rounded once; subnormal numbers are zeros of their sign, before and after.
    """
    words = [np.asarray(w).astype(np.int32).view(np.uint32) for w in (a, b)]
    total = _without_subnormals(np.asarray(c, np.float32))
    for shift, kept in ((0, 0xFFFF0000), (16, 0xFFFFFFFF)):
        x, y = (((w << np.uint32(shift)) & np.uint32(kept)).view(np.float32) for w in words)
        # A product has 16 bits and the sum 24: where float64 rounds it, float32 has no tie to break.
        exact = np.multiply(_without_subnormals(x), _without_subnormals(y), dtype=np.float64) + total
        total = _without_subnormals(exact.astype(np.float32))
    return total


def _without_subnormals(data: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.where(np.abs(data) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), data), data)
