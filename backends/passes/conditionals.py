"""Conditionals as statements, as far outside as they can stand.

::

    A[i] = if c: a else: b          ->   if c: A[i] = a  else: A[i] = b
    A[i] = undef                    ->   nothing
    for v: if c: S else: T          ->   if c: (for v: S) else: (for v: T)     c without v
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.expr import Binary, Call, Expr, Undef, Var, conjuncts, variables
from ...ir.node import walk
from ...ir.stmt import For, If, Seq, Stmt, Store, seq

NOTHING = Seq(())


def lift_conditionals(stmt: Stmt) -> Stmt:
    """Turn a conditional at the root of a stored value into a statement; drop stores of `undef`."""
    if isinstance(stmt, Store):
        return _lift(stmt)
    return map_statements(stmt, lift_conditionals)


def _lift(store: Store) -> Stmt:
    value = store.value
    if isinstance(value, Call) and value.name == "if_then_else":
        then = _lift(replace(store, value=value.args[1]))
        orelse = _lift(replace(store, value=value.args[2]))
        return branch(value.args[0], then, orelse)
    return NOTHING if any(isinstance(n, Undef) for n in walk(value)) else store


def branch(cond: Expr, then: Stmt, orelse: Stmt) -> Stmt:
    """A conditional without empty sides."""
    if then == NOTHING and orelse == NOTHING:
        return NOTHING
    if then == NOTHING:
        from ...ir.expr import Not

        return If(Not(cond), orelse)
    return If(cond, then, None if orelse == NOTHING else orelse)


def hoist_conditionals(stmt: Stmt) -> Stmt:
    """Move a condition that does not depend on a loop out of it, when it is all of the loop's body."""
    stmt = map_statements(stmt, hoist_conditionals)
    if not isinstance(stmt, For) or not isinstance(stmt.body, If) or stmt.kind in ("parallel", "thread_binding"):
        return stmt
    inner = stmt.body
    free, bound = _split(inner.cond, stmt.var)
    if not free or (bound and inner.orelse is not None):
        return stmt
    body = inner.then if not bound else If(_all(bound), inner.then)
    then = hoist_conditionals(replace(stmt, body=body))
    orelse = None if inner.orelse is None else hoist_conditionals(replace(stmt, body=inner.orelse))
    return If(_all(free), then, orelse)


def _split(cond: Expr, var: Var) -> tuple[list[Expr], list[Expr]]:
    """Conjuncts without and with a variable."""
    parts = conjuncts(cond)
    return [c for c in parts if var not in variables(c)], [c for c in parts if var in variables(c)]


def _all(parts: list[Expr]) -> Expr:
    result = parts[0]
    for part in parts[1:]:
        result = Binary("and", result, part)
    return result


def map_statements(stmt: Stmt, fn: object) -> Stmt:
    """`stmt` with `fn` applied to its child statements, empty ones left out."""
    assert callable(fn)
    if isinstance(stmt, Seq):
        return seq([s for s in (fn(c) for c in stmt.stmts) if s != NOTHING])
    if isinstance(stmt, If):
        orelse = NOTHING if stmt.orelse is None else fn(stmt.orelse)
        return branch(stmt.cond, fn(stmt.then), orelse)
    body = getattr(stmt, "body", None)
    if isinstance(body, Stmt):
        new = fn(body)
        if new == NOTHING:
            return NOTHING
        return stmt if new is body else replace(stmt, body=new)  # type: ignore[type-var]
    return stmt
