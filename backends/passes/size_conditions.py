"""Conditions over sizes go to each of the statements that they choose, where these become kernels of their own.

::

    if m < 8: { S; T } else: U      ->      if m < 8: S;  if m < 8: T;  if m >= 8: U

What decides is a formula over sizes, which the host evaluates before it launches anything (`launch.Launch.when`).
"""

from __future__ import annotations

from collections.abc import Collection

from ...ir.arith.intervals import negate
from ...ir.expr import Var
from ...ir.stmt import If, Seq, Stmt, seq
from ..launch import is_formula


def with_own_conditions(stmt: Stmt, sizes: Collection[Var]) -> Stmt:
    """The statements at the top of a program, each with all conditions over `sizes` that decide whether it runs."""
    if isinstance(stmt, Seq):
        return seq([with_own_conditions(item, sizes) for item in stmt.stmts])
    if not isinstance(stmt, If) or not is_formula(stmt.cond, sizes):
        return stmt
    parts = [If(stmt.cond, part) for part in _parts(with_own_conditions(stmt.then, sizes))]
    if stmt.orelse is not None:
        parts += [If(negate(stmt.cond), part) for part in _parts(with_own_conditions(stmt.orelse, sizes))]
    return seq(parts)


def _parts(stmt: Stmt) -> tuple[Stmt, ...]:
    return stmt.stmts if isinstance(stmt, Seq) else (stmt,)
