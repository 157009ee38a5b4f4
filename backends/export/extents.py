"""Extents that each call decides, written in C and in LLVM: expressions over the sizes that a function takes.

Sizes are at least 1, so that C's division is the one of extents.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from ...errors import UsageError
from ...ir import dtypes
from ...ir.expr import Binary, Cast, Const, Expr, Extent, Var, binary, const
from ..artifact import Argument
from .library import Function

_IN_C = {"+": "+", "-": "-", "*": "*", "//": "/", "%": "%"}
_IN_LLVM = {"+": "add", "-": "sub", "*": "mul", "//": "sdiv", "%": "srem"}


def shape_of(function: Function, argument: Argument) -> tuple[Extent, ...]:
    """How an argument lies in memory, with extents that calls decide as expressions."""
    return function.extents.get(argument.name, argument.physical_shape)


def bytes_of(function: Function, argument: Argument) -> Extent:
    """The bytes of an argument, a number where no call decides it."""
    shape, each = shape_of(function, argument), dtypes.nbytes(argument.dtype)
    if argument.name not in function.extents:
        return prod(argument.physical_shape) * each
    found: Expr = const(each)
    for extent in shape:
        found = binary("*", found, extent)
    return found


def in_c(extent: Extent, names: Mapping[str, str]) -> str:
    """An expression of C over parameters, whose `names` are by those of sizes.  Raises UsageError for another one."""
    if isinstance(extent, int):
        return str(extent)
    if isinstance(extent, Const):
        return str(int(extent.value))
    if isinstance(extent, Var):
        return f"(int64_t)({names[extent.name]})"
    if isinstance(extent, Cast):
        return in_c(extent.a, names)
    if isinstance(extent, Binary) and extent.op in _IN_C:
        return f"({in_c(extent.a, names)} {_IN_C[extent.op]} {in_c(extent.b, names)})"
    raise UsageError(f"an extent is {extent}, which is not exported: sums, products, // and % are")


def in_llvm(extent: Extent, values: Mapping[str, str], lines: list[str]) -> str:
    """The operand of an expression over `values` of i64; what computes it is added to the lines."""
    if isinstance(extent, int):
        return str(extent)
    if isinstance(extent, Const):
        return str(int(extent.value))
    if isinstance(extent, Var):
        return values[extent.name]
    if isinstance(extent, Cast):
        return in_llvm(extent.a, values, lines)
    if isinstance(extent, Binary) and extent.op in _IN_LLVM:
        a, b = in_llvm(extent.a, values, lines), in_llvm(extent.b, values, lines)
        lines.append(f"  %e{len(lines)} = {_IN_LLVM[extent.op]} i64 {a}, {b}")
        return f"%e{len(lines) - 1}"
    raise UsageError(f"an extent is {extent}, which is not exported: sums, products, // and % are")
