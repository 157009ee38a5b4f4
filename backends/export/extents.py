"""Extents that each call decides, written in C and in LLVM: expressions over the sizes that a function takes.

Sizes are at least 1, so that C's division is the one of extents.  Of other formulas over sizes it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ...errors import UsageError
from ...ir import dtypes
from ...ir.expr import COMPARISONS, Binary, Cast, Const, Expr, Extent, Var, binary, const
from ..artifact import Argument
from .library import Function

_IN_C = {"+": "+", "-": "-", "*": "*", "//": "/", "%": "%"}
_CALLED = {"//": "quotient", "%": "rest", "min": "least", "max": "largest"}
_SIGNS = {"and": "&&", "or": "||"}
_IN_LLVM = {"+": "add", "-": "sub", "*": "mul", "//": "sdiv", "%": "srem"}


def bytes_of(function: Function, argument: Argument) -> Expr:
    """The bytes of an argument with extents that calls decide, over the sizes of the function."""
    found: Expr = const(dtypes.nbytes(argument.dtype))
    for extent in function.extents[argument.name]:
        found = binary("*", found, extent)
    return found


def in_c(extent: Extent, names: Mapping[str, str]) -> str:
    """An expression of C over parameters, whose `names` are by those of sizes.  Raises UsageError for another one."""
    parameters = {size: f"(int64_t)({name})" for size, name in names.items()}
    return _written(extent, parameters, lambda op, a, b: f"({a} {_IN_C[op]} {b})", _IN_C)


def formula_in_c(formula: Extent, names: Mapping[str, str]) -> str:
    """A formula as launches have them (`launch.is_formula`), with `names` for its sizes.

    The C program has the functions ``quotient`` and ``rest`` of floor division, ``least`` and ``largest`` of two.
    """

    def applied(op: str, a: str, b: str) -> str:
        return f"{_CALLED[op]}({a}, {b})" if op in _CALLED else f"({a} {_SIGNS.get(op, op)} {b})"

    return _written(formula, names, applied, (*_CALLED, *_SIGNS, "+", "-", "*", *COMPARISONS))


def in_llvm(extent: Extent, values: Mapping[str, str], lines: list[str]) -> str:
    """The operand of an expression over `values` of i64; what computes it is added to the lines.

    Raises UsageError as `in_c` does.
    """

    def computed(op: str, a: str, b: str) -> str:
        lines.append(f"  %e{len(lines)} = {_IN_LLVM[op]} i64 {a}, {b}")
        return f"%e{len(lines) - 1}"

    return _written(extent, values, computed, _IN_LLVM)


def _written(
    extent: Extent, sizes: Mapping[str, str], applied: Callable[[str, str, str], str], known: Collection[str]
) -> str:
    """An extent in a language in which `sizes` are these operands, and `applied` writes a `known` operation on two."""
    if isinstance(extent, int):
        return str(extent)
    if isinstance(extent, Const):
        return str(int(extent.value))
    if isinstance(extent, Var):
        return sizes[extent.name]
    if isinstance(extent, Cast):
        return _written(extent.a, sizes, applied, known)
    if isinstance(extent, Binary) and extent.op in known:
        a, b = (_written(side, sizes, applied, known) for side in (extent.a, extent.b))
        return applied(extent.op, a, b)
    raise UsageError(f"an extent is {extent}, which is not exported: sums, products, // and % are")
