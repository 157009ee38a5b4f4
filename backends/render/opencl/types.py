"""OpenCL C types, literals and names."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ....ir import dtypes
from ....ir.numbers import round_to

_SCALARS = {
    "bool": "uchar", "int8": "char", "int16": "short", "int32": "int", "int64": "long", "uint8": "uchar",
    "uint16": "ushort", "uint32": "uint", "uint64": "ulong", "int4": "char", "uint4": "uchar",
    "float16": "half", "bfloat16": "ushort", "float32": "float", "float64": "double",
    "float8_e4m3fn": "uchar", "float8_e5m2": "uchar",
}  # fmt: skip

_BYTES = {
    "char": 1, "uchar": 1, "short": 2, "ushort": 2, "half": 2, "int": 4, "uint": 4, "float": 4, "long": 8, "ulong": 8,
    "double": 8,
}  # fmt: skip

_RESERVED = frozenset([
    "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern",
    "float", "for", "goto", "if", "inline", "int", "long", "register", "restrict", "return", "short", "signed",
    "sizeof", "static", "struct", "switch", "typedef", "union", "unsigned", "void", "volatile", "while", "bool",
    "uchar", "ushort", "uint", "ulong", "half", "size_t", "ptrdiff_t", "intptr_t", "uintptr_t", "event_t",
    "sampler_t", "pipe", "true", "false", "kernel", "global", "local", "constant", "private", "generic",
    "read_only", "write_only", "read_write", "uniform", "vec_step", "min", "max", "select", "fabs", "abs", "exp",
    "log", "sqrt", "rsqrt", "tanh", "erf", "floor", "ceil", "pow", "fma", "barrier", "exp2", "log2", "NAN",
    "sin", "cos", "atan", "tan", "asin", "acos", "sinh", "cosh", "asinh", "acosh", "atanh", "log10", "log1p", "round",
    "trunc", "atan2", "hypot", "copysign", "INFINITY", "I", "complex", "imaginary", "quad", "main",
])  # fmt: skip


def memory_type(dtype: str) -> str:
    """The scalar type of one element in memory; a bool takes a byte, a bfloat16 or float8 is kept as its bits."""
    return _SCALARS[dtypes.element(dtype)]


def nbytes(ctype: str) -> int:
    """Bytes of a scalar type."""
    return _BYTES[ctype]


def narrow_value(value: float, dtype: str) -> float:
    """`value` rounded to a float of 16 or 8 bits."""
    with np.errstate(over="ignore"):
        return float(np.float16(value)) if dtype == "float16" else float(round_to(dtype, np.float32(value)))


def literal(value: int | float | bool, dtype: str, index_type: str) -> str:
    """A scalar constant; `index_type` is the C type that stands for int64."""
    if dtypes.is_bool(dtype):
        return "1" if value else "0"
    if dtypes.is_float(dtype):
        return _float_literal(float(value), dtype)
    if dtype == dtypes.INDEX and index_type == "long":
        return f"{value}L" if value >= 0 else f"({value}L)" if value > -(2**63) else "(-9223372036854775807L - 1L)"
    if dtype in ("int32", dtypes.INDEX):
        return f"{value}" if value >= 0 else f"({value})" if value > -(2**31) else "(-2147483647 - 1)"
    return f"(({memory_type(dtype)})({value}{'UL' * (dtype == 'uint64')}))"


def _float_literal(value: float, dtype: str) -> str:
    kind = memory_type(dtype)
    if math.isnan(value):
        return "NAN" if kind == "float" else f"(({kind})NAN)"
    if math.isinf(value):
        text = "INFINITY" if value > 0 else "(-INFINITY)"
        return text if kind == "float" else f"(({kind}){text})"
    digits = f"{float(np.float32(value)):.9g}" if kind != "double" else f"{value:.17g}"
    if not re.search(r"[.e]", digits):
        digits += ".0"
    text = digits + ("" if kind == "double" else "f")
    text = text if value >= 0 and not text.startswith("-") else f"({text})"
    return f"((half){text})" if kind == "half" else text


def bare(text: str) -> str:
    """An expression without parentheses around the whole of it."""
    while text.startswith("(") and text.endswith(")"):
        depth = 0
        for position, letter in enumerate(text):
            depth += (letter == "(") - (letter == ")")
            if depth == 0 and position < len(text) - 1:
                return text
        text = text[1:-1]
    return text


def bits_type(count: int) -> str:
    """The type of a mask that has a bit for each of so many lanes."""
    return "ushort" if count == 16 else "uchar"


@dataclass(frozen=True)
class Types:
    """The C types of a kernel's values: `index` stands for int64; floats of `emulated` types are computed as float."""

    index: str
    emulated: frozenset[str]

    def lane(self, dtype: str) -> str:
        """The type in which a lane of this type is computed and, but for indices, held in vectors."""
        base = dtypes.element(dtype)
        return "float" if base in self.emulated else memory_type(base)

    def vector(self, dtype: str, count: int) -> str:
        """The type of so many lanes; of one, that of a lane."""
        return self.lane(dtype) if count == 1 else f"{self.lane(dtype)}{count}"

    def scalar(self, dtype: str) -> str:
        """The type of a scalar value; conditions are int."""
        base = dtypes.element(dtype)
        if base == "bool":
            return "int"
        return self.index if base == dtypes.INDEX else self.lane(base)

    def array(self, dtype: str) -> str:
        """The type in which memory of this element is declared: without cl_khr_fp16 there are only pointers to half."""
        kind = memory_type(dtype)
        return "ushort" if kind == "half" and dtype in self.emulated else kind

    def literal(self, value: float, dtype: str) -> str:
        """A scalar constant."""
        return literal(value, dtype, self.index)


class Names:
    """C identifiers for the program's names: themselves where C allows it."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._numbers: dict[str, int] = {}

    def fresh(self, name: str) -> str:
        """An identifier that was not given before."""
        base = re.sub(r"[^A-Za-z0-9_]", "_", name)
        if not base or not base[0].isalpha() or base in _RESERVED or _looks_builtin(base):
            base = f"v_{base}"
        result, number = base, self._numbers.get(base, 1)
        while result in self._taken:
            result, number = f"{base}_{number}", number + 1
        self._numbers[base] = number
        self._taken.add(result)
        return result


def _looks_builtin(name: str) -> bool:
    """Whether a name may be one of the language, of a driver's headers or of our helpers; macros are in capitals."""
    vector = r"(?:u?(?:char|short|int|long)|half|float|double|bool)\d+(?:_u)?"
    prefix = (
        r"get_|as_|convert_|cl_|CL|atom|native_|half_|image\d|LOAD|STORE|nan_|floor_|round_|from_b|to_b|from_f|to_f|odd_|component_"
        r"|shift_|trunc_|in_four_|dot_int\d|dot_[us]{2}_int\d|dot_4x8|halves_|load_within_|load_or_|load_masked_|store_masked_|mask_bits_|lane_|pick_|exp_|exact_|pairs\d_|sub_group_|subgroup_"
    )
    whole = rf"{vector}|[a-z]+_view|[A-Z][A-Z0-9_]{{2,}}"
    return re.fullmatch(whole, name) is not None or re.match(prefix, name) is not None
