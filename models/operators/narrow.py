"""Floats of few bits as ONNX makes them of others, and numbers of which programs have only the bits.

A float v of `digits` binary digits and an exponent counted from `bias` is rounded to the nearest, ties to even, as the
bits of a float32: where the result is a normal number by adding to the digits that go,

    (bits(|v|) + odd + half - 1) >> (23 - digits)

less the difference of both types' exponents, else beside a float32 of the same distances (`code_of`).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from ...ir.dtypes import LARGEST
from ...space.workloads.text import literal

FLOATS8 = ("float8_e4m3fn", "float8_e5m2")
"""Floats of 8 bits that programs have as such."""


@dataclass(frozen=True)
class Format:
    """A float with a sign: digits after the first one, the exponent's bias, the codes of the largest number and of NaN.

    Of those of 8 bits one code is NaN, which would be the negative 0; those of 4 bits have none.
    """

    digits: int
    bias: int
    last: int
    nan: int

    @property
    def sign(self) -> int:
        """The bit of the sign."""
        return self.last + 1

    @property
    def is_finite(self) -> bool:
        """Whether all codes are numbers."""
        return self.sign == 8

    @property
    def largest(self) -> float:
        """The largest number."""
        exponent, fraction = divmod(self.last, 1 << self.digits)
        return float((1 + fraction / (1 << self.digits)) * 2.0 ** (exponent - self.bias))


FORMATS: Mapping[str, Format] = {
    "float8_e4m3fnuz": Format(3, 8, 0x7F, 0x80),
    "float8_e5m2fnuz": Format(2, 16, 0x7F, 0x80),
    "float4_e2m1fn": Format(1, 1, 0x7, 0x8),
}
"""Floats of which programs have the codes."""
SCALE = "float8_e8m0fnu"
"""Powers of two from 2^-127 on, the last code of which is NaN."""
PAIRS = {"int2": (-2, 1), "uint2": (0, 3)}
"""Integers of two bits, which are the lower ones of their code, and their ends."""


def saturated(value: str, kind: str, dtype: str = "float32") -> str:
    """A float of type `dtype` between the ends of the type `kind`, as script text; NaN stays."""
    end = FORMATS[kind].largest if kind in FORMATS else LARGEST[kind]
    return f"T.max(T.min({value}, {literal(end, dtype)}), {literal(-end, dtype)})"


def number_of(code: str, kind: str) -> str:
    """The number of a code, given in a byte: int32 of integers, else float32."""
    code = f"T.Cast('int32', {code})"
    if kind in PAIRS:
        low = _and(code, 3)
        return low if kind == "uint2" else f"T.Select({low} > {_int(1)}, {low} - {_int(4)}, {low})"
    if kind == SCALE:
        power = f"T.reinterpret('float32', {_left(code, 23)})"
        small = f"T.Select({code} == {_int(0)}, {_float(2.0**-127)}, {power})"
        return f"T.Select({code} == {_int(255)}, {literal(float('nan'), 'float32')}, {small})"
    form = FORMATS[kind]
    digits, fraction = form.digits, _and(code, (1 << form.digits) - 1)
    exponent = _and(_right(code, digits), form.last >> digits)
    normal = f"{_left(f'({exponent} + {_int(127 - form.bias)})', 23)} + {_left(fraction, 23 - digits)}"
    small = f"T.Cast('float32', {fraction}) * {_float(2.0 ** (1 - form.bias - digits))}"
    size = f"T.Select({exponent} == {_int(0)}, {small}, T.reinterpret('float32', {normal}))"
    number = f"{size} * T.Select({_and(code, form.sign)} == {_int(0)}, {_float(1.0)}, {_float(-1.0)})"
    if form.is_finite:
        return number
    return f"T.Select({code} == {_int(form.nan)}, {literal(float('nan'), 'float32')}, {number})"


def code_of(value: str, kind: str) -> str:
    """The code of the nearest number of a float32, as int32; NaN for what is too large, where there is one."""
    form, bits = FORMATS[kind], f"T.reinterpret('int32', {value})"
    size, dropped = _and(bits, 0x7FFFFFFF), 23 - form.digits
    raised = f"{size} + {_and(_right(size, dropped), 1)} + {_int((1 << dropped - 1) - 1)}"
    normal = f"{_right(f'({raised})', dropped)} - {_int((127 - form.bias) << form.digits)}"
    near = 2.0 ** (24 - form.bias - form.digits)
    (start,) = struct.unpack("<i", struct.pack("<f", near))
    small = f"T.reinterpret('int32', T.reinterpret('float32', {size}) + {_float(near)}) - {_int(start)}"
    found = f"T.Select({normal} < {_int(1 << form.digits)}, {small}, {normal})"
    if form.is_finite:
        signed = f"T.min({found}, {_int(form.last)}) + T.Select({bits} < {_int(0)}, {_int(form.sign)}, {_int(0)})"
        return f"T.Select({value} != {value}, {_int(form.nan)}, {signed})"
    signed = f"{found} + T.Select({bits} < {_int(0)} and {found} != {_int(0)}, {_int(form.sign)}, {_int(0)})"
    return f"T.Select({value} != {value} or {found} > {_int(form.last)}, {_int(form.nan)}, {signed})"


def power_of(value: str, way: str, saturates: bool) -> str:
    """The code of the power of two beside a float32, whose sign does not count: above it, below, or the nearest.

    What has no code is NaN; what is above the largest power is that where it `saturates`.
    """
    bits = f"T.reinterpret('int32', {value})"
    exponent, fraction = _and(_right(bits, 23), 255), _and(bits, (1 << 23) - 1)
    if way == "down":
        return exponent
    rises = f"{fraction} > {_int(0)}"
    if way == "nearest":  # a tie goes up but from 0, whose digit is even
        half = _int(1 << 22)
        rises = f"{fraction} > {half} or ({fraction} == {half} and {exponent} > {_int(0)})"
    most = 254 if saturates else 255
    return f"T.Select(({rises}) and {exponent} < {_int(most)}, {exponent} + {_int(1)}, {exponent})"


def _and(value: str, mask: int) -> str:
    return f"T.bitwise_and({value}, {_int(mask)})"


def _right(value: str, count: int) -> str:
    return f"T.shift_right({value}, {_int(count)})"


def _left(value: str, count: int) -> str:
    return f"T.shift_left({value}, {_int(count)})"


def _int(value: int) -> str:
    return literal(value, "int32")


def _float(value: float) -> str:
    return literal(value, "float32")
