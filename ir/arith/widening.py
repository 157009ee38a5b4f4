"""Integers of narrow types as indices: in 64 bits, where nothing wraps around.

::

    A[e],  e: int32                 ->  A[int64(e)]     the operations of e themselves in 64 bits where none overflows
    int64(i)*4 + int64(j)           ->  i*4 + j         as an int32, for i and j of this type
"""

from __future__ import annotations

from collections.abc import Mapping

from .. import dtypes
from ..expr import ARITHMETIC, Binary, Broadcast, Cast, Const, Expr, Ramp, Select, Var, as_index, binary, in_type
from ..node import Node, rebuild
from .intervals import Facts, Interval, nothing_known
from .linear import Linear, linear_form


def wide_index(expr: Expr, facts: Facts) -> Expr:
    """An integer expression in 64 bits: the operations themselves where no narrow one can overflow, else a cast."""
    if dtypes.element(expr.dtype) == dtypes.INDEX:
        return expr
    if isinstance(expr, Broadcast):
        return Broadcast(wide_index(expr.value, facts), expr.lanes)
    if isinstance(expr, Select):
        return Select(expr.cond, wide_index(expr.a, facts), wide_index(expr.b, facts))
    if isinstance(expr, Cast) and dtypes.is_int(expr.a.dtype):
        inside = wide_index(expr.a, facts)
        return inside if _holds(inside, expr.dtype, facts) else as_index(expr)
    unlimited: Expr | None = None
    if isinstance(expr, Binary):
        is_same = expr.op in ("+", "-", "*") or dtypes.element(expr.dtype) != "uint64"
        if not is_same and not all(_holds(side, dtypes.INDEX, facts) for side in (expr.a, expr.b)):
            return as_index(expr)  # sums and products are the same modulo 2^64; others want numbers that int64 holds
        unlimited = Binary(expr.op, wide_index(expr.a, facts), wide_index(expr.b, facts))
    elif isinstance(expr, Ramp):
        unlimited = Ramp(wide_index(expr.base, facts), wide_index(expr.stride, facts), expr.lanes)
    return as_index(expr) if unlimited is None or not _holds(unlimited, expr.dtype, facts) else unlimited


def _holds(expr: Expr, dtype: str, facts: Facts) -> bool:
    low, high = facts.interval(expr)
    own = dtypes.int_range(dtypes.element(dtype))
    return own[0] <= low and high <= own[1]


def over_indices(expr: Expr, bounds: Mapping[Var, Interval]) -> Expr:
    """An index over variables of the index type, with the names and values of its own; what may wrap stays narrow."""

    def visit(node: Node) -> Node:
        if isinstance(node, Cast) and node.dtype == dtypes.INDEX and isinstance(node.a, Var):
            return Var(node.a.name)
        below: Node = rebuild(node, visit)
        return below

    result = visit(wide_index(expr, Facts(bounds)))
    assert isinstance(result, Expr)
    return result


def narrow_index(expr: Expr, dtype: str, bounds: Mapping[Var, Interval]) -> Expr:
    """An index in a narrower type, as a cast computes it: in operations of this type where its variables have it."""
    result = _narrow(expr, dtype, Facts(bounds))
    return in_type(expr, dtype) if result is None else result


def _narrow(expr: Expr, dtype: str, facts: Facts) -> Expr | None:
    if isinstance(expr, Const) or expr.dtype == dtype:
        return in_type(expr, dtype)
    if isinstance(expr, Cast) and expr.a.dtype == dtype and dtypes.widens(dtype, expr.dtype):
        return expr.a
    if not isinstance(expr, Binary) or expr.op not in ARITHMETIC:
        return None
    a, b = _narrow(expr.a, dtype, facts), _narrow(expr.b, dtype, facts)
    if a is None or b is None:
        return None
    exact = expr.op in ("+", "-", "*") or all(_holds(side, dtype, facts) for side in (expr.a, expr.b))
    return binary(expr.op, a, b) if exact else None


def linear_index(expr: Expr, bounds: Mapping[Var, Interval] | None = None) -> Linear:
    """`linear_form` of an index of any integer type, whose terms are exact in the inclusive `bounds` of its variables.

    A variable stands for its value, of whatever type it is; what may wrap around is an atom.
    """
    if dtypes.element(expr.dtype) != dtypes.INDEX:
        expr = wide_index(expr, Facts(bounds) if bounds else nothing_known())
    terms, constant = linear_form(expr)
    return {_variable(atom): factor for atom, factor in terms.items()}, constant


def _variable(atom: Expr) -> Expr:
    """The variable of a narrow type for its cast to the index type, which keeps its value; other atoms stay."""
    is_cast = isinstance(atom, Cast) and atom.dtype == dtypes.INDEX and isinstance(atom.a, Var)
    return atom.a if is_cast and dtypes.is_int(atom.a.dtype) else atom  # type: ignore[attr-defined]
