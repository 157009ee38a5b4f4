"""Simplification of expressions and statements, and what follows from it: bounds and proofs (see `simplifier`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import dtypes
from ..caches import Recent
from ..expr import TRUE, Expr, Var, variables
from ..statements import Stmt
from .intervals import ANY_INDEX, Facts, Interval, nothing_known
from .simplifier import Simplifier, simplifier_for
from .statements import simplify_stmt

_roots: Recent[Any, Simplifier] = Recent(256)


def simplify(node: Any, bounds: Mapping[Var, Interval] | None = None, *, strict: bool = False) -> Any:
    """An equal expression or statement, simpler where intervals allow.

    `bounds` are inclusive.  A statement adds its own loops, iterators, let
    bindings and conditions; a loop without iterations or a condition that
    never holds goes.  A variable without bounds has the range of its type.
    `strict` assumes nothing of floating-point data: NaN, infinities and the
    sign of zero are kept.  Applying it twice changes nothing more.
    """
    if isinstance(node, Stmt):
        return simplify_stmt(node, Facts(bounds, strict=strict) if bounds else nothing_known(strict))
    if not isinstance(node, Expr):
        raise TypeError(f"simplify takes an expression or a statement, but got {type(node).__name__}")
    return _root(bounds, strict).expr(node)


def simplify_index(expr: Expr) -> Expr:
    """`expr` simplified as an index into memory of unknown shape, over variables that are such indices themselves."""
    return _root(dict.fromkeys((v for v in variables(expr) if v.dtype == dtypes.INDEX), ANY_INDEX)).expr(expr)


def bound(expr: Expr, bounds: Mapping[Var, Interval] | None = None) -> Interval:
    """The inclusive interval that holds every value of an integer expression.

    A variable without bounds has the range of its type.
    """
    simplifier = _root(bounds)
    return simplifier.facts.interval(simplifier.expr(expr))


def prove(cond: Expr, bounds: Mapping[Var, Interval] | None = None) -> bool:
    """Whether `cond` simplifies to true; false means unknown."""
    return _root(bounds).expr(cond) == TRUE


def _root(bounds: Mapping[Var, Interval] | None, strict: bool = False) -> Simplifier:
    """The simplifier for `bounds`; those of the last few hundred calls are kept."""
    key = (strict, *bounds.items()) if bounds else strict
    return _roots.get(key) or _roots.keep(key, simplifier_for(Facts(bounds or {}, strict=strict)))
