"""Multiply-adds whose result is in the register of what is added to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir import dtypes
from ..legal.accumulate import fills_register
from .math import call_math
from .types import value_type

if TYPE_CHECKING:
    from .builder import Builder

_SUFFIX = {"float32": "ps", "float64": "pd"}


def multiply_accumulate(out: Builder, args: list[str], dtype: str) -> str:
    """``a * b + c``: the instruction of AVX whose result is tied to `c`, elsewhere a function without such ties."""
    if "fma" not in out.module.features or not fills_register(dtype):
        return call_math(out, "fma", args, dtype)
    kind, suffix = value_type(dtype), _SUFFIX[dtypes.element(dtype)]
    callee = f'asm "vfmadd231{suffix} $2, $1, $0", "=x,x,x,0"'
    return out.emit(f"call {kind} {callee}({', '.join(f'{kind} {arg}' for arg in args)})")
