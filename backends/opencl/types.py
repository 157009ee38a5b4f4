"""OpenCL C types, literals, names and the helper functions that a source may need."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

import numpy as np

from ...ir import dtypes
from ..llvm.types import CodegenError

NATIVE_LANES = (16, 8, 4, 2)

_SCALARS = {
    "bool": "uchar", "int8": "char", "int16": "short", "int32": "int", "int64": "long", "uint8": "uchar",
    "float16": "half", "float32": "float", "float64": "double",
}  # fmt: skip

_RESERVED = frozenset([
    "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern",
    "float", "for", "goto", "if", "inline", "int", "long", "register", "restrict", "return", "short", "signed",
    "sizeof", "static", "struct", "switch", "typedef", "union", "unsigned", "void", "volatile", "while", "bool",
    "uchar", "ushort", "uint", "ulong", "half", "size_t", "ptrdiff_t", "intptr_t", "uintptr_t", "event_t",
    "sampler_t", "pipe", "true", "false", "kernel", "global", "local", "constant", "private", "generic",
    "read_only", "write_only", "read_write", "uniform", "vec_step", "min", "max", "select", "fabs", "abs", "exp",
    "log", "sqrt", "rsqrt", "tanh", "erf", "floor", "ceil", "pow", "fma", "barrier", "exp2", "log2", "NAN",
    "INFINITY", "I", "complex", "imaginary", "quad", "main",
])  # fmt: skip


def memory_type(dtype: str) -> str:
    """The scalar type of one element in memory; a bool takes a byte."""
    base = dtypes.element(dtype)
    if base not in _SCALARS:
        raise CodegenError(f"OpenCL has no {base}; cast to float32 in the program")
    return _SCALARS[base]


def pieces(lanes: int) -> list[tuple[int, int]]:
    """``(start, count)`` of native vectors, and of single lanes at the end, that make up `lanes`."""
    result = []
    start = 0
    for count in (*NATIVE_LANES, 1):
        while lanes - start >= count:
            result.append((start, count))
            start += count
    return result


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
    return f"(({memory_type(dtype)})({value}))"


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
    vector = r"(?:u?(?:char|short|int|long)|half|float|double|bool)\d+(?:_u)?"
    prefix = r"get_|as_|convert_|cl_|CL|atom|native_|half_|image\d|LOAD|STORE|nan_|floor_"
    return re.fullmatch(vector, name) is not None or re.match(prefix, name) is not None


class Helpers:
    """The helper functions that a source uses, each written once."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def text(self) -> str:
        """The definitions, in order of first use."""
        return "".join(self._texts.values())

    def load(self, ctype: str, count: int, space: str) -> str:
        """The macro that loads `count` elements from an address that is aligned to one of them."""
        name = f"LOAD{count}_{space}_{ctype}"
        self._vector(ctype, count)
        self._texts.setdefault(
            name,
            f"#ifdef __clang__\n#define {name}(p) (*(const __{space} {ctype}{count}_u*)(p))\n"
            f"#else\n#define {name}(p) vload{count}(0, p)\n#endif\n",
        )
        return name

    def store(self, ctype: str, count: int, space: str) -> str:
        """The macro that stores a vector to an address that is aligned to one element."""
        name = f"STORE{count}_{space}_{ctype}"
        self._vector(ctype, count)
        self._texts.setdefault(
            name,
            f"#ifdef __clang__\n#define {name}(v, p) (*(__{space} {ctype}{count}_u*)(p) = (v))\n"
            f"#else\n#define {name}(v, p) vstore{count}(v, 0, p)\n#endif\n",
        )
        return name

    def _vector(self, ctype: str, count: int) -> None:
        # PoCL does not inline vload and vstore; through a pointer to a type of small alignment they are one
        # instruction, and private arrays can live in registers.
        size = {"char": 1, "uchar": 1, "short": 2, "half": 2, "int": 4, "float": 4}.get(ctype, 8)
        self._texts.setdefault(
            f"{ctype}{count}_u",
            f"#ifdef __clang__\ntypedef {ctype}{count} {ctype}{count}_u __attribute__((aligned({size})));\n#endif\n",
        )

    def extremum(self, op: str, ctype: str, count: int) -> str:
        """A function for min or max of floats that gives NaN if either operand is NaN."""
        kind = ctype if count == 1 else f"{ctype}{count}"
        name, sign = f"nan_{op}_{kind}", "<" if op == "min" else ">"
        choice = f"(a {sign} b || a != a) ? a : b" if count == 1 else f"select(b, a, (a {sign} b) | (a != a))"
        self._texts.setdefault(name, f"inline {kind} {name}({kind} a, {kind} b) {{ return {choice}; }}\n")
        return name

    def floor_division(self, op: str, ctype: str) -> str:
        """A function for ``//`` or ``%`` that rounds towards minus infinity."""
        name = f"floor_{'div' if op == '//' else 'mod'}_{ctype}"
        wrong = "(r != 0 && ((r < 0) != (b < 0)))"
        result = f"{wrong} ? q - 1 : q" if op == "//" else f"{wrong} ? r + b : r"
        self._texts.setdefault(
            name,
            f"inline {ctype} {name}({ctype} a, {ctype} b) "
            f"{{ const {ctype} q = a / b, r = a - q * b; return {result}; }}\n",
        )
        return name
