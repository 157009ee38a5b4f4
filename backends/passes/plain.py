"""Programs in a smaller language for the passes and code generators that follow.

::

    attr(k, v): S                       ->  S
    masked_load(c, A[i], b)             ->  if_then_else(c, A[i], b)
    load_within(A[i])                   ->  if_then_else(0 <= i and i < n, A[i], 0)
    S(let x = e in f)                   ->  let x = e: S(f)       where e is evaluated in any case
    if_then_else(c, let x = e in f, g)  ->  if_then_else(c, f[x := e], g)
    for i: int32 in n: S(i)             ->  for i: int64 in int64(n): S(int32(i))
    A[e],  e: int32                     ->  A[int64(e)]           computed in 64 bits where e cannot overflow

Let expressions leave a lazy position by substitution, because there e may not be evaluated.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...ir import dtypes
from ...ir.arith.intervals import Facts, nothing_known
from ...ir.arith.widening import wide_index
from ...ir.expr import (
    Binary,
    Call,
    Cast,
    Expr,
    LetExpr,
    Load,
    Var,
    as_conditional,
    let_variables,
    reads_memory,
    substitute,
)
from ...ir.extents import where_within
from ...ir.functions import LOAD_WITHIN, MASKED_LOAD
from ...ir.node import Node, rebuild, transform, walk
from ...ir.stmt import (
    Attr,
    Evaluate,
    For,
    If,
    Let,
    Stmt,
    Store,
    fresh,
    names,
    transform_statements,
    walk_stmts,
)
from .errors import LoweringError

LARGEST_VALUE = 1 << 14
"""Nodes of an expression beyond which let expressions are not written out inside of it."""


def plain_statements(stmt: Stmt) -> Stmt:
    """`stmt` without attributes, let expressions, and loops and indices of types other than int64.

    Raises LoweringError where let expressions in lazy positions would grow too large, and where those of one statement
    give one variable several values.
    """
    return _widen(_without_lets(_without_masked_loads(_without_attributes(stmt))), nothing_known())


def _without_attributes(stmt: Stmt) -> Stmt:
    return transform_statements(stmt, lambda node: node.body if isinstance(node, Attr) else node)


def _without_masked_loads(stmt: Stmt) -> Stmt:
    if not any(isinstance(node, Call) and node.name in (MASKED_LOAD, LOAD_WITHIN) for node in walk(stmt)):
        return stmt
    made: Stmt = transform(stmt, _as_conditional)
    return made


def _as_conditional(node: Any) -> Any:
    if isinstance(node, Call) and node.name == LOAD_WITHIN:
        node = where_within(node)
    return as_conditional(node) if isinstance(node, Call) and node.name == MASKED_LOAD else node


# ---------------------------------------------------------------- let expressions


def _without_lets(stmt: Stmt) -> Stmt:
    bound: dict[Var, Expr] = {}

    def visit(child: Any) -> Any:
        if isinstance(child, Stmt):
            return _without_lets(child)
        return _bind(child, bound, False) if isinstance(child, Expr) else child

    result: Stmt = rebuild(stmt, visit)
    for var, value in reversed(bound.items()):
        below = {inner.var for inner in walk_stmts(result) if isinstance(inner, Let)}
        if var in below:  # bound again, to a value of another time
            taken = names(result)
            again = Var(fresh(var.name, taken | {var.name}), var.dtype)
            result = Let(again, value, _renamed(result, var, again))
        else:
            result = Let(var, value, result)
    return result


def _renamed(stmt: Stmt, var: Var, again: Var) -> Stmt:
    """The statement with another name for a variable, but where it is bound again."""
    if isinstance(stmt, Let) and stmt.var == var:
        return replace(stmt, value=substitute(stmt.value, {var: again}))
    result: Stmt = rebuild(
        stmt,
        lambda child: (
            _renamed(child, var, again)
            if isinstance(child, Stmt)
            else (substitute(child, {var: again}) if isinstance(child, Expr) else child)
        ),
    )
    return result


def _bind(expr: Expr, bound: dict[Var, Expr], lazy: bool) -> Expr:
    """`expr` without let expressions; what they name is added to `bound`, in order, unless `lazy`."""
    if not let_variables(expr):
        return expr
    if isinstance(expr, LetExpr):
        value = _bind(expr.value, bound, lazy)
        if not lazy:
            if bound.setdefault(expr.var, value) != value:
                raise LoweringError(f"let expressions of one statement bind `{expr.var.name}` to different values")
            return _bind(expr.body, bound, lazy)
        body: Expr = substitute(_bind(expr.body, bound, lazy), {expr.var: value})
        return _limited(body)
    if isinstance(expr, Call) and expr.name == "if_then_else":
        cond, a, b = expr.args
        return replace(expr, args=(_bind(cond, bound, lazy), _bind(a, bound, True), _bind(b, bound, True)))
    if isinstance(expr, Binary) and expr.op in ("and", "or"):
        return Binary(expr.op, _bind(expr.a, bound, lazy), _bind(expr.b, bound, True))
    result: Expr = rebuild(expr, lambda e: _bind(e, bound, lazy) if isinstance(e, Expr) else e)
    return result


def _limited(expr: Expr) -> Expr:
    for count, _ in enumerate(walk(expr)):
        if count > LARGEST_VALUE:
            raise LoweringError(
                f"let expressions inside of a conditional make a value of more than {LARGEST_VALUE} operations when "
                f"written out; bind them by a let statement around it"
            )
    return expr


# ---------------------------------------------------------------- integers as indices


def _widen(stmt: Stmt, facts: Facts) -> Stmt:
    if isinstance(stmt, For):
        stmt = _wide_loop(stmt, facts)
        inside = facts.looping(stmt.var, stmt.extent)
        return replace(stmt, extent=_accesses(stmt.extent, facts), body=_widen(stmt.body, inside))
    if isinstance(stmt, If):
        then = _widen(stmt.then, facts.assuming(stmt.cond))
        other = None if stmt.orelse is None else _widen(stmt.orelse, facts.assuming(stmt.cond, False))
        return If(_accesses(stmt.cond, facts), then, other)
    if isinstance(stmt, Let):
        inside = facts.binding(stmt.var, stmt.value)
        return Let(stmt.var, _accesses(stmt.value, facts), _widen(stmt.body, inside))
    if isinstance(stmt, Store):
        indices = tuple(_index(i, facts) for i in stmt.indices)
        return Store(stmt.buffer, indices, _accesses(stmt.value, facts))
    if isinstance(stmt, Evaluate):
        return Evaluate(_accesses(stmt.value, facts))
    result: Stmt = rebuild(stmt, lambda child: _widen(child, facts) if isinstance(child, Stmt) else child)
    return result


def _wide_loop(loop: For, facts: Facts) -> For:
    if loop.var.dtype == dtypes.INDEX:
        return loop
    var = Var(loop.var.name)
    body: Stmt = substitute(loop.body, {loop.var: Cast(loop.var.dtype, var)})
    return replace(loop, var=var, extent=wide_index(loop.extent, facts), body=body)


def _accesses(expr: Expr, facts: Facts) -> Expr:
    """`expr` with 64-bit indices in all of its loads."""

    def visit(node: Node) -> Node:
        if isinstance(node, Load):
            return Load(node.buffer, tuple(_index(i, facts) for i in node.indices))
        if not reads_memory(node):
            return node
        result: Node = rebuild(node, visit)
        return result

    result = visit(expr)
    assert isinstance(result, Expr)
    return result


def _index(index: Expr, facts: Facts) -> Expr:
    return wide_index(_accesses(index, facts), facts)
