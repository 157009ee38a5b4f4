"""Vectorized loops become vector expressions.

::

    for v in 8 {vectorized}: C[i, v] = A[i] * B[v]
        ->  C[i, ramp(0, 1, 8)] = broadcast(A[i], 8) * B[ramp(0, 1, 8)]

Where a condition depends on the lanes, a test of whole vectors stands around
(`guard_vectors`); the other case runs in shorter vectors, or lane by lane.
"""

from __future__ import annotations

from dataclasses import replace

from ...ir import dtypes
from ...ir.arith.intervals import Facts, Interval, nothing_known
from ...ir.arith.linear import build, shared_form, variables_of
from ...ir.arith.statements import simplify_stmt
from ...ir.expr import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Not,
    Ramp,
    Select,
    Var,
    as_int,
    substitute,
)
from ...ir.node import rebuild, walk
from ...ir.passes.loop_extents import restrict, trim_loops
from ...ir.stmt import For, If, Let, Seq, Stmt, Store, seq
from .edges import Edge, edges, strengthen
from .lanes import independent_lanes
from .scopes import loop_facts

UNROLLED_LANES = 64


class _NotVector(Exception):
    """The statement has no vector form; it runs lane by lane."""


def guard_vectors(stmt: Stmt) -> Stmt:
    """``for v {vectorized}: if c(v): S -> if c(v) for all v: for v {vectorized}: S else: for v: if c(v): S``.

    Where constants say which lanes the condition holds for, the loop is cut there instead.
    """
    return _guard(stmt, nothing_known())


def _guard(stmt: Stmt, facts: Facts) -> Stmt:
    if isinstance(stmt, For):
        inside = loop_facts(facts, stmt)
        loop = replace(stmt, body=_guard(stmt.body, inside))
        return _version(loop, facts, inside) if loop.kind == "vectorized" else loop
    if isinstance(stmt, If):
        then = _guard(stmt.then, facts.assuming(stmt.cond))
        other = None if stmt.orelse is None else _guard(stmt.orelse, facts.assuming(stmt.cond, False))
        return If(stmt.cond, then, other)
    result: Stmt = rebuild(stmt, lambda child: _guard(child, facts) if isinstance(child, Stmt) else child)
    return result


def _version(loop: For, facts: Facts, inside: Facts) -> Stmt:
    """The loop in as many versions as it takes for each to have no condition on the lanes."""
    for edge in edges(loop.body, inside):
        if loop.var not in variables_of(edge.cond):
            continue
        cond = strengthen(edge, {loop.var, *(item.var for item in edge.loops)})
        if cond is not None:
            return If(cond, *(_again(loop, facts.assuming(cond, truth)) for truth in (True, False)))
        pieces = _pieces(loop, edge)
        if pieces is None:
            return by_lane(loop)
        return seq([_again(restrict(loop, piece), facts) for piece in pieces])
    return loop


def _again(loop: For, facts: Facts) -> Stmt:
    version = trim_loops(simplify_stmt(loop, facts), facts)
    return _version(version, facts, loop_facts(facts, version)) if isinstance(version, For) else version


def _pieces(loop: For, edge: Edge) -> list[Interval] | None:
    """The lanes before, at, and after those for which the edge's condition may hold."""
    last = inclusive_end(loop)
    low, high = edge.facts.assuming(edge.cond).interval(loop.var)
    if last is None or low > high or (low, high) == (0, last):
        return None
    return [p for p in ((0, low - 1), (low, high), (high + 1, last)) if p[0] <= p[1]]


def inclusive_end(loop: For) -> int | None:
    """The last iteration of a loop of constant extent."""
    return as_int(loop.extent) - 1 if isinstance(loop.extent, Const) else None


def by_lane(loop: For) -> For:
    """The loop without vectors; unrolled if it works on registers, whose indices are to be constants."""
    touches = any(isinstance(n, (Load, Store)) and n.buffer.scope == "local" for n in walk(loop.body))
    small = isinstance(loop.extent, Const) and as_int(loop.extent) <= UNROLLED_LANES
    return replace(loop, kind="unrolled" if touches and small else "serial")


def vectorize_loops(stmt: Stmt) -> Stmt:
    """Every vectorized loop as vectors, or as a plain loop where that is not possible or not proven to be the same."""
    return _vectorize(stmt, nothing_known())


def _vectorize(stmt: Stmt, facts: Facts) -> Stmt:
    if isinstance(stmt, If):
        then = _vectorize(stmt.then, facts.assuming(stmt.cond))
        other = None if stmt.orelse is None else _vectorize(stmt.orelse, facts.assuming(stmt.cond, False))
        return If(stmt.cond, then, other)
    inside = loop_facts(facts, stmt) if isinstance(stmt, For) else facts
    result: Stmt = rebuild(stmt, lambda child: _vectorize(child, inside) if isinstance(child, Stmt) else child)
    if not isinstance(result, For) or result.kind != "vectorized":
        return result
    if not isinstance(result.extent, Const) or as_int(result.extent) < 2 or not independent_lanes(result, facts):
        return by_lane(result)
    try:
        return _Lanes(result.var, as_int(result.extent)).stmt(result.body)
    except _NotVector:
        return by_lane(result)


def _reads(expr: Expr) -> set[str]:
    return {n.buffer.memory for n in walk(expr) if isinstance(n, Load)}


class _Lanes:
    """Statements and expressions for all values of `var` in ``[0, count)`` at once."""

    def __init__(self, var: Var, count: int) -> None:
        self.var = var
        self.count = count

    def varies(self, expr: Expr) -> bool:
        return self.var in variables_of(expr)

    def stmt(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, Seq):
            return Seq(tuple(self.stmt(s) for s in stmt.stmts))
        if isinstance(stmt, For) and not self.varies(stmt.extent):
            return replace(stmt, body=self.stmt(stmt.body))
        if isinstance(stmt, If) and not self.varies(stmt.cond):
            return If(stmt.cond, self.stmt(stmt.then), None if stmt.orelse is None else self.stmt(stmt.orelse))
        if isinstance(stmt, Let):
            if not self.varies(stmt.value):
                return replace(stmt, body=self.stmt(stmt.body))
            if _reads(stmt.value) & {n.buffer.memory for n in walk(stmt.body) if isinstance(n, Store)}:
                raise _NotVector  # the value is that of before the stores
            return self.stmt(substitute(stmt.body, {stmt.var: stmt.value}))
        if isinstance(stmt, Store):
            indices = tuple(self.index(i) for i in stmt.indices)
            if not any(isinstance(i, Ramp) for i in indices) or dtypes.lanes(stmt.buffer.dtype) > 1:
                raise _NotVector
            return Store(stmt.buffer, indices, self.wide(self.expr(stmt.value)))
        raise _NotVector

    def index(self, index: Expr) -> Expr:
        """An index as it is, or as a ramp.  Raises _NotVector unless it is linear in the lane."""
        if not self.varies(index):
            return index
        terms, constant = shared_form(index)
        rest = {a: k for a, k in terms.items() if a != self.var}
        if self.var not in terms or any(self.varies(a) for a in rest):
            raise _NotVector
        return Ramp(build((rest, constant)), Const(terms[self.var]), self.count)

    def wide(self, expr: Expr) -> Expr:
        """`expr` with all lanes."""
        return expr if dtypes.lanes(expr.dtype) > 1 else Broadcast(expr, self.count)

    def expr(self, expr: Expr) -> Expr:
        """The value for all lanes; a scalar where it is the same in all."""
        if not self.varies(expr):
            if dtypes.lanes(expr.dtype) > 1:
                raise _NotVector
            return expr
        if dtypes.is_int(expr.dtype) and isinstance(expr, (Var, Binary)):
            try:
                return self.index(expr)
            except _NotVector:
                pass
        if isinstance(expr, Binary):
            return Binary(expr.op, self.wide(self.expr(expr.a)), self.wide(self.expr(expr.b)))
        if isinstance(expr, Not):
            return Not(self.expr(expr.a))
        if isinstance(expr, Cast):
            return Cast(dtypes.with_lanes(expr.dtype, self.count), self.wide(self.expr(expr.a)))
        if isinstance(expr, Load) and dtypes.lanes(expr.buffer.dtype) == 1:
            return Load(expr.buffer, tuple(self.index(i) for i in expr.indices))
        if isinstance(expr, Select):
            return self._select(expr.cond, expr.a, expr.b)
        if isinstance(expr, Call):
            return self._call(expr)
        raise _NotVector

    def _select(self, cond: Expr, a: Expr, b: Expr) -> Expr:
        return Select(self.expr(cond), self.wide(self.expr(a)), self.wide(self.expr(b)))

    def _call(self, expr: Call) -> Expr:
        dtype = dtypes.with_lanes(expr.dtype, self.count)
        if expr.name != "if_then_else":
            return Call(expr.name, tuple(self.wide(self.expr(a)) for a in expr.args), dtype)
        cond, a, b = expr.args
        if not self.varies(cond):
            return Call(expr.name, (cond, self.wide(self.expr(a)), self.wide(self.expr(b))), dtype)
        if any(isinstance(n, Load) for side in (a, b) for n in walk(side)):
            raise _NotVector  # a lane that is not chosen must not be read
        return self._select(cond, a, b)
