"""Conversions of floats that LLVM has as integers of their bits, bfloat16 and those of 8 bits, from and to float32."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

from ...ir import dtypes
from .types import literal, value_type

if TYPE_CHECKING:
    from .builder import Builder


def from_bits(out: Builder, value: str, base: str, wide: str) -> str:
    """The float32 of equal value."""
    if base == "bfloat16":
        return _from_bfloat16(out, value, wide)
    return _from_float8(out, value, base, wide)


def to_bits(out: Builder, value: str, base: str, wide: str) -> str:
    """The nearest number of a type, of a float32."""
    if base == "bfloat16":
        return _to_bfloat16(out, value, wide)
    return _to_float8(out, value, base, wide)


def _from_float8(out: Builder, value: str, base: str, wide: str) -> str:
    """A float of 8 bits through that of 16 with its bits: where the exponent has 4 of them, that is a 256th of it."""
    count = dtypes.lanes(wide)
    bytes_, shorts, half = (dtypes.with_lanes(d, count) for d in ("int8", "int16", "float16"))
    kind, long, full = value_type(bytes_), value_type(shorts), value_type(wide)
    raised = out.emit(f"shl {long} {out.emit(f'zext {kind} {value} to {long}')}, {literal(8, shorts)}")
    if base == "float8_e5m2":
        upper = out.emit(f"bitcast {long} {raised} to {value_type(half)}")
        return out.emit(f"fpext {value_type(half)} {upper} to {full}")
    size = out.emit(f"lshr {long} {out.emit(f'and {long} {raised}, {literal(0x7F00, shorts)}')}, {literal(1, shorts)}")
    bits = out.emit(f"or {long} {size}, {out.emit(f'and {long} {raised}, {literal(-0x8000, shorts)}')}")
    small = out.emit(f"fpext {value_type(half)} {out.emit(f'bitcast {long} {bits} to {value_type(half)}')} to {full}")
    number = out.emit(f"fmul {full} {small}, {literal(256.0, wide)}")
    is_nan = out.emit(f"icmp eq {long} {size}, {literal(0x3F80, shorts)}")
    flags = value_type(dtypes.with_lanes("bool", count))
    return out.emit(f"select {flags} {is_nan}, {full} {literal(math.nan, wide)}, {full} {number}")


def _to_float8(out: Builder, value: str, base: str, wide: str) -> str:
    """Round to nearest, ties to even: as bits where numbers are normal, else beside a float of the same distances.

    What is too large becomes infinite, or NaN where there is no infinity.
    """
    digits, bias, last = (2, 15, 0x7C) if base == "float8_e5m2" else (3, 7, 0x7F)
    count, dropped = dtypes.lanes(wide), 23 - digits
    ints, flags = dtypes.with_lanes("int32", count), value_type(dtypes.with_lanes("bool", count))
    kind, full = value_type(ints), value_type(wide)
    bits = out.emit(f"bitcast {full} {value} to {kind}")
    size = out.emit(f"and {kind} {bits}, {literal(0x7FFFFFFF, ints)}")
    odd = out.emit(f"and {kind} {out.emit(f'lshr {kind} {size}, {literal(dropped, ints)}')}, {literal(1, ints)}")
    above = out.emit(f"add {kind} {out.emit(f'add {kind} {size}, {odd}')}, {literal((1 << dropped - 1) - 1, ints)}")
    kept = out.emit(f"lshr {kind} {above}, {literal(dropped, ints)}")
    normal = out.emit(f"sub {kind} {kept}, {literal((127 - bias) << digits, ints)}")
    smin = out.module.intrinsic("smin", ints, 2)
    most = out.emit(f"call {kind} {smin}({kind} {normal}, {kind} {literal(last, ints)})")
    near = 2.0 ** (24 - bias - digits)
    beside = out.emit(f"fadd {full} {out.emit(f'bitcast {kind} {size} to {full}')}, {literal(near, wide)}")
    (start,) = struct.unpack("<i", struct.pack("<f", near))
    small = out.emit(f"sub {kind} {out.emit(f'bitcast {full} {beside} to {kind}')}, {literal(start, ints)}")
    is_small = out.emit(f"icmp slt {kind} {normal}, {literal(1 << digits, ints)}")
    found = out.emit(f"select {flags} {is_small}, {kind} {small}, {kind} {most}")
    nan = out.emit(f"fcmp uno {full} {value}, {value}")
    number = out.emit(f"select {flags} {nan}, {kind} {literal(0x7F, ints)}, {kind} {found}")
    sign = out.emit(f"and {kind} {out.emit(f'lshr {kind} {bits}, {literal(24, ints)}')}, {literal(0x80, ints)}")
    both = out.emit(f"or {kind} {number}, {sign}")
    return out.emit(f"trunc {kind} {both} to {value_type(dtypes.with_lanes('int8', count))}")


def _from_bfloat16(out: Builder, value: str, wide: str) -> str:
    """A bfloat16 is the upper half of the float32 of equal value."""
    count = dtypes.lanes(wide)
    half, full = value_type(dtypes.with_lanes("int16", count)), value_type(dtypes.with_lanes("int32", count))
    extended = out.emit(f"zext {half} {value} to {full}")
    shifted = out.emit(f"shl {full} {extended}, {literal(16, dtypes.with_lanes('int32', count))}")
    return out.emit(f"bitcast {full} {shifted} to {value_type(wide)}")


def _to_bfloat16(out: Builder, value: str, wide: str) -> str:
    """Round to nearest, ties to even: by the instruction where there is one, else as integers.

    The instruction makes zeros of subnormal numbers, so that vectors which have any are rounded as integers.
    """
    count = dtypes.lanes(wide)
    if count < 4 or count % 4 or not out.module.features >= _ROUNDING:
        return _rounded_as_integers(out, value, wide)
    full, half = value_type(wide), value_type(dtypes.with_lanes("int16", count))

    def by_instruction() -> str:
        rounded = out.emit(f"fptrunc {full} {value} to <{count} x bfloat>")
        return out.emit(f"bitcast <{count} x bfloat> {rounded} to {half}")

    small = _has_subnormal(out, value, wide)
    return out.choose(small, lambda: _rounded_as_integers(out, value, wide), by_instruction, half)


_ROUNDING = frozenset(("avx512bf16", "avx512vl", "avx512dq"))
"""What rounds vectors to bfloat16, and finds subnormal numbers in them."""
_SUBNORMAL = 32
"""What is asked for of `vfpclassps`."""


def _has_subnormal(out: Builder, value: str, wide: str) -> str:
    """Whether a vector of float32 has a subnormal number in any lane."""
    count, kind = dtypes.lanes(wide), value_type(wide)
    width = next(w for w in (16, 8, 4) if count % w == 0)
    part = f"<{width} x float>"
    function = out.module.declare(f"llvm.x86.avx512.fpclass.ps.{32 * width}", f"<{width} x i1>", part, "i32 immarg")
    found = ""
    for start in range(0, count, width):
        lanes = ", ".join(f"i32 {start + n}" for n in range(width))
        piece = value
        if count > width:
            piece = out.emit(f"shufflevector {kind} {value}, {kind} poison, <{width} x i32> <{lanes}>")
        here = out.emit(f"call <{width} x i1> {function}({part} {piece}, i32 {_SUBNORMAL})")
        found = out.emit(f"or <{width} x i1> {found}, {here}") if found else here
    return out.emit(f"icmp ne i{width} {out.emit(f'bitcast <{width} x i1> {found} to i{width}')}, 0")


def _rounded_as_integers(out: Builder, value: str, wide: str) -> str:
    """Round to nearest, ties to even: add half of the last kept bit's weight, odd ones a little more."""
    count = dtypes.lanes(wide)
    ints = dtypes.with_lanes("int32", count)
    kind, half = value_type(ints), value_type(dtypes.with_lanes("int16", count))
    bits = out.emit(f"bitcast {value_type(wide)} {value} to {kind}")
    upper = out.emit(f"lshr {kind} {bits}, {literal(16, ints)}")
    odd = out.emit(f"and {kind} {upper}, {literal(1, ints)}")
    bias = out.emit(f"add {kind} {odd}, {literal(0x7FFF, ints)}")
    rounded = out.emit(f"lshr {kind} {out.emit(f'add {kind} {bits}, {bias}')}, {literal(16, ints)}")
    quiet = out.emit(f"or {kind} {upper}, {literal(0x40, ints)}")
    nan = out.emit(f"fcmp uno {value_type(wide)} {value}, {value}")
    flags = value_type(dtypes.with_lanes("bool", count))
    chosen = out.emit(f"select {flags} {nan}, {kind} {quiet}, {kind} {rounded}")
    return out.emit(f"trunc {kind} {chosen} to {half}")


def to_odd_float32(out: Builder, value: str, wide: str) -> str:
    """A float64 as float32, rounded to odd: towards zero, with the last bit set where that is inexact.

    Rounding the result once more, to a narrower type, is then correct, which it would not be after
    rounding to nearest; and no conversion routine of a compiler runtime is needed.
    """
    count = dtypes.lanes(wide)
    ints, kind, flags = (dtypes.with_lanes(d, count) for d in ("int32", "float64", "bool"))
    int_kind, double, single = value_type(ints), value_type(kind), value_type(wide)
    fabs = out.module.intrinsic("fabs", kind, 1)
    nearest = out.emit(f"fptrunc {double} {value} to {single}")
    back = out.emit(f"fpext {single} {nearest} to {double}")
    inexact = out.emit(f"fcmp one {double} {back}, {value}")
    sizes = [out.emit(f"call {double} {fabs}({double} {v})") for v in (back, value)]
    above = out.emit(f"fcmp ogt {double} {sizes[0]}, {sizes[1]}")
    bits = out.emit(f"bitcast {single} {nearest} to {int_kind}")
    step = out.emit(f"sext {value_type(flags)} {above} to {int_kind}")
    sticky = out.emit(f"zext {value_type(flags)} {inexact} to {int_kind}")
    truncated = out.emit(f"add {int_kind} {bits}, {step}")
    return out.emit(f"bitcast {int_kind} {out.emit(f'or {int_kind} {truncated}, {sticky}')} to {single}")
