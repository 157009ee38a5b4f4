"""Numbers of every element type, in memory and in computation.

::

    type        in memory            computed as
    bool        a byte, not 0        NumPy bool
    bfloat16    uint16 of its bits   float32, rounded to nearest even after every operation
    others      NumPy's type         NumPy's type; an int64 that is the same everywhere, a Python int

Integers wrap around.  A float becomes an integer by truncation; what lies outside of the
integer's range becomes its nearest end, and NaN becomes 0.  Functions of the 16-bit floats
are computed in float32 and rounded once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import dtypes


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The NumPy type in which one lane is computed."""
    base = dtypes.element(dtype)
    return np.dtype("float32" if base == "bfloat16" else base)


def storage_dtype(dtype: str) -> np.dtype[Any]:
    """The NumPy type in which one lane lies in memory."""
    base = dtypes.element(dtype)
    return np.dtype({"bfloat16": "uint16", "bool": "uint8"}.get(base, base))


def boundary_dtype(dtype: str) -> np.dtype[Any]:
    """The NumPy type of an argument array; a bfloat16 is passed as its bits."""
    base = dtypes.element(dtype)
    return np.dtype("uint16" if base == "bfloat16" else base)


def from_storage(dtype: str, data: Any) -> Any:
    """Values from what lies in memory."""
    base = dtypes.element(dtype)
    if base == "bool":
        return data != 0
    return bfloat16_values(data) if base == "bfloat16" else data


def to_storage(dtype: str, data: Any) -> Any:
    """What lies in memory for values."""
    return bfloat16_bits(data) if dtypes.element(dtype) == "bfloat16" else data


def bfloat16_values(bits: Any) -> Any:
    """The float32 of equal value; `bits` are uint16."""
    wide = np.asarray(bits, np.uint16).astype(np.uint32) << np.uint32(16)
    return wide.view(np.float32)[()] if wide.ndim else np.float32(np.atleast_1d(wide).view(np.float32)[0])


def bfloat16_bits(data: Any) -> NDArray[np.uint16]:
    """The nearest bfloat16 of float32 values, ties to even, as uint16; NaN stays NaN."""
    values = np.asarray(data, np.float32)
    bits = np.atleast_1d(values).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)
    result = np.where(np.isnan(bits.view(np.float32)), quiet, rounded).astype(np.uint16)
    return result.reshape(values.shape)


def bfloat16_numbers(array: Any) -> NDArray[Any]:
    """Floats of bfloat16 in any form that arrays of them have: their bits, the type of ml_dtypes, or floats already."""
    data = np.asarray(array)
    if data.dtype.kind == "f":
        return data
    return np.asarray(bfloat16_values(data.view(np.uint16)))


def round_to(dtype: str, data: Any) -> Any:
    """A result rounded to a type that NumPy does not have, or wrapped around to int64."""
    if type(data) is int:
        return data if -(2**63) <= data < 2**63 else (data + 2**63) % 2**64 - 2**63
    if dtypes.element(dtype) != "bfloat16":
        return data
    return bfloat16_values(bfloat16_bits(data))


def convert(source: str, target: str, data: Any) -> Any:
    """`data` of type `source` in type `target`, lane by lane."""
    base = dtypes.element(target)
    values = np.asarray(data)
    if dtypes.is_float(source) and dtypes.is_int(base):
        return _truncated(values, base)[()]
    if base == "bfloat16":
        narrow = _odd_float32(values) if dtypes.element(source) == "float64" else values.astype(np.float32)
        return round_to(target, narrow[()])
    return values.astype(numpy_dtype(base))[()]


def _truncated(values: NDArray[Any], base: str) -> NDArray[Any]:
    """Towards zero, saturating; every float16 and float32 is a float64."""
    low, high = dtypes.int_range(base)
    wide = np.asarray(values, np.float64)
    above, below = wide >= float(high + 1), wide <= float(low)
    inside = np.where(above | below | np.isnan(wide), 0.0, wide).astype(np.int64).astype(base)
    kind = np.dtype(base).type
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


def dot_of_bytes(a_signed: bool, b_signed: bool, a: Any, b: Any, c: Any) -> NDArray[np.int32]:
    """``c + a0*b0 + a1*b1 + a2*b2 + a3*b3`` of the bytes of int32 words, which are signed or not."""

    def bytes_of(words: Any, signed: bool) -> Any:
        whole = np.ascontiguousarray(np.asarray(words).astype(np.int32)[..., None])
        return whole.view(np.int8 if signed else np.uint8).astype(np.int32)

    products = bytes_of(a, a_signed) * bytes_of(b, b_signed)
    total: NDArray[np.int32] = products.sum(axis=-1, dtype=np.int32) + np.asarray(c).astype(np.int32)
    return total


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
