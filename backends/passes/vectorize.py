"""Vectorized loops become vector expressions.

::

    for v in 8 {vectorized}: C[i, v] = A[i] * B[v]
        ->  C[i, ramp(0, 1, 8)] = broadcast(A[i], 8) * B[ramp(0, 1, 8)]

Where a condition depends on the lanes, a test of whole vectors stands around
(`guard_vectors`); the other case runs in shorter vectors, or lane by lane.  In a loop that is
masked (`masks`) the condition becomes one of all lanes::

    for v in 8 {vectorized, mask}: if i*8 + v < n: B[i*8 + v] = A[i*8 + v]
        ->  if ramp(i*8, 1, 8) < broadcast(n, 8): B[ramp(i*8, 1, 8)] = A[ramp(i*8, 1, 8)]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce

from ...ir import dtypes
from ...ir.arith.intervals import Facts, Interval, nothing_known
from ...ir.arith.linear import build, shared_form, variables_of
from ...ir.arith.statements import simplify_stmt
from ...ir.context import map_with_facts
from ...ir.expr import (
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Not,
    Ramp,
    Select,
    Var,
    all_of,
    as_int,
    conjuncts,
    substitute,
)
from ...ir.node import walk
from ...ir.passes.loop_extents import is_masked, restrict, trim_loops
from ...ir.stmt import For, If, Let, Seq, Stmt, Store, seq, walk_stmts
from ...ir.target import Target
from .edges import Edge, edges, strengthen
from .lanes import independent_lanes
from .masks import is_inside, is_lane_condition, is_safe, without_mask
from .scopes import loop_facts

UNROLLED_LANES = 64
MOST_TESTS = 2  # of whole vectors for one loop, a choice


class _NotVector(Exception):
    """The statement has no vector form; it runs lane by lane."""


def settle_masks(stmt: Stmt, target: Target) -> Stmt:
    """The annotation ``mask`` only where the loop has a form with masks on the target."""
    if not any(isinstance(n, For) and "mask" in dict(n.annotations) for n in walk_stmts(stmt)):
        return stmt
    return _settle(stmt, nothing_known(), target)


def _settle(stmt: Stmt, facts: Facts, target: Target) -> Stmt:
    result = map_with_facts(stmt, facts, lambda child, inside: _settle(child, inside, target))
    if not isinstance(result, For) or "mask" not in dict(result.annotations):
        return result
    return result if is_masked(result) and _has_masked_form(result, facts, target) else without_mask(result)


def _has_masked_form(loop: For, facts: Facts, target: Target) -> bool:
    if not isinstance(loop.extent, Const) or as_int(loop.extent) < 2 or not independent_lanes(loop, facts):
        return False
    try:
        _Lanes(loop.var, as_int(loop.extent), loop_facts(facts, loop), target).stmt(loop.body)
    except _NotVector:
        return False
    return True


def guard_vectors(stmt: Stmt, target: Target, strict: bool = False) -> Stmt:
    """``for v {vectorized}: if c(v): S -> if c(v) for all v: for v {vectorized}: S else: for v: if c(v): S``.

    Where constants say which lanes the condition holds for, the loop is cut there instead.
    A masked loop stays as it is.
    """
    return _guard(stmt, nothing_known(strict), target)


def _guard(stmt: Stmt, facts: Facts, target: Target) -> Stmt:
    result = map_with_facts(stmt, facts, lambda child, inside: _guard(child, inside, target))
    if not isinstance(result, For) or result.kind != "vectorized":
        return result
    if is_masked(result):
        if _has_masked_form(result, facts, target):
            return result
        return _again(without_mask(result), facts)
    return _version(result, facts, loop_facts(facts, result))


def _version(loop: For, facts: Facts, inside: Facts, tests: int = MOST_TESTS) -> Stmt:
    """The loop in as many versions as it takes for each to have no condition on the lanes, of at most so many tests.

    Where more are needed, as the extent is not known, the last version runs lane by lane.
    """
    for edge in edges(loop.body, inside):
        if loop.var not in variables_of(edge.cond):
            continue
        cond = strengthen(edge, {loop.var, *(item.var for item in edge.loops)})
        if cond is not None and tests:
            return If(cond, *(_again(loop, facts.assuming(cond, truth), tests - 1) for truth in (True, False)))
        pieces = _pieces(loop, edge)
        if pieces is None:
            return by_lane(loop)
        return seq([_again(restrict(loop, piece), facts, tests) for piece in pieces])
    return loop


def _again(loop: For, facts: Facts, tests: int = MOST_TESTS) -> Stmt:
    version = trim_loops(simplify_stmt(loop, facts), facts)
    return _version(version, facts, loop_facts(facts, version), tests) if isinstance(version, For) else version


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


def vectorize_loops(stmt: Stmt, target: Target, strict: bool = False) -> Stmt:
    """Every vectorized loop as vectors, or as a plain loop where that is not possible or not proven to be the same."""
    return _vectorize(stmt, nothing_known(strict), target)


def _vectorize(stmt: Stmt, facts: Facts, target: Target) -> Stmt:
    result = map_with_facts(stmt, facts, lambda child, inside: _vectorize(child, inside, target))
    if not isinstance(result, For) or result.kind != "vectorized":
        return result
    if not isinstance(result.extent, Const) or as_int(result.extent) < 2 or not independent_lanes(result, facts):
        return by_lane(result)
    masking = target if is_masked(result) else None
    try:
        return _Lanes(result.var, as_int(result.extent), loop_facts(facts, result), masking).stmt(result.body)
    except _NotVector:
        return by_lane(result)


def _reads(expr: Expr) -> set[str]:
    return {n.buffer.memory for n in walk(expr) if isinstance(n, Load)}


class _Lanes:
    """Statements and expressions for all values of `var` in ``[0, count)`` at once.

    Where the loop is `masking` for a target, conditions on the lanes are conditions of all lanes.
    Under one of them a vector access is one of the lanes for which it holds, and any other access
    is made in any case; `facts` say where it is in bounds.
    """

    def __init__(self, var: Var, count: int, facts: Facts, masking: Target | None = None) -> None:
        self.var = var
        self.count = count
        self.facts = facts
        self.masking = masking
        self.is_under_mask = False

    def varies(self, expr: Expr) -> bool:
        return self.var in variables_of(expr)

    @contextmanager
    def where(self, facts: Facts, masked: bool = False) -> Iterator[None]:
        before = self.facts, self.is_under_mask
        self.facts, self.is_under_mask = facts, self.is_under_mask or masked
        yield
        self.facts, self.is_under_mask = before

    def stmt(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, Seq):
            return Seq(tuple(self.stmt(s) for s in stmt.stmts))
        if isinstance(stmt, For) and not self.varies(stmt.extent):
            self._check_evaluated(stmt.extent)
            with self.where(loop_facts(self.facts, stmt)):
                return replace(stmt, body=self.stmt(stmt.body))
        if isinstance(stmt, If):
            return self._if(stmt)
        if isinstance(stmt, Let):
            if not self.varies(stmt.value):
                self._check_evaluated(stmt.value)
                return replace(stmt, body=self.stmt(stmt.body))
            if _reads(stmt.value) & {n.buffer.memory for n in walk(stmt.body) if isinstance(n, Store)}:
                raise _NotVector  # the value is that of before the stores
            return self.stmt(substitute(stmt.body, {stmt.var: stmt.value}))
        if isinstance(stmt, Store):
            indices = tuple(self.index(i) for i in stmt.indices)
            if not any(isinstance(i, Ramp) for i in indices) or dtypes.lanes(stmt.buffer.dtype) > 1:
                raise _NotVector
            self._check_masked(stmt.buffer, indices, stored=True)
            return Store(stmt.buffer, indices, self.wide(self.expr(stmt.value)))
        raise _NotVector

    def _if(self, stmt: If) -> Stmt:
        """A condition of the loops around as it is, one on the lanes for all of them."""
        if not self.varies(stmt.cond):
            self._check_evaluated(stmt.cond)
            with self.where(self.facts.assuming(stmt.cond)):
                then = self.stmt(stmt.then)
            with self.where(self.facts.assuming(stmt.cond, False)):
                return If(stmt.cond, then, None if stmt.orelse is None else self.stmt(stmt.orelse))
        if stmt.orelse is not None:
            raise _NotVector
        steady, own = self._conjuncts(stmt.cond)
        with self.where(self.facts.assuming(all_of(steady)), masked=True):
            masked = If(self._mask([], own), self.stmt(stmt.then))
        return If(all_of(steady), masked) if steady else masked

    def _conjuncts(self, cond: Expr) -> tuple[list[Expr], list[Expr]]:
        """The conjuncts that are the same in all lanes, and those that a mask holds."""
        parts = conjuncts(cond)
        own = [c for c in parts if self.varies(c)]
        if self.masking is None or not all(is_lane_condition(c, self.var) for c in own):
            raise _NotVector
        return [c for c in parts if c not in own], own

    def _mask(self, steady: Sequence[Expr], own: Sequence[Expr]) -> Expr:
        wide: list[Expr] = [Broadcast(all_of(steady), self.count)] if steady else []
        for cond in own:
            assert isinstance(cond, Binary)
            wide.append(Binary(cond.op, self.wide(self.index(cond.a)), self.wide(self.index(cond.b))))
        return reduce(lambda a, b: Binary("and", a, b), wide)

    def _check_evaluated(self, expr: Expr) -> None:
        """Raises _NotVector for what is evaluated beside a mask, also where no lane asks for it, and may not be."""
        if self.is_under_mask and not is_safe(expr, self.facts):
            raise _NotVector

    def _check_masked(self, buffer: Buffer, indices: tuple[Expr, ...], stored: bool = False) -> None:
        """Raises _NotVector for an access that has no form under a mask."""
        if not self.is_under_mask:
            return
        ramps = [n for n, i in enumerate(indices) if isinstance(i, Ramp)]
        if not ramps:
            if not is_inside(buffer, indices, self.facts):
                raise _NotVector
            return
        last = indices[-1]
        neighbours = ramps == [len(indices) - 1] and isinstance(last, Ramp) and last.stride == Const(1)
        assert self.masking is not None
        if not (neighbours or (buffer.scope == "local" and not stored)) or not self.masking.has_masks(buffer.dtype):
            raise _NotVector

    def index(self, index: Expr) -> Expr:
        """An index as it is, or as a ramp.  Raises _NotVector unless it is linear in the lane."""
        if not self.varies(index):
            self._check_evaluated(index)
            return index
        terms, constant = shared_form(index)
        rest = {a: k for a, k in terms.items() if a != self.var}
        if self.var not in terms or any(self.varies(a) for a in rest):
            raise _NotVector
        return Ramp(build((rest, constant)), Const(terms[self.var]), self.count)

    def _place(self, index: Expr) -> Expr:
        """An index of a load: a ramp, or, with quotients of the lane, ``x[v // 2]``, a vector of any numbers."""
        try:
            return self.index(index)
        except _NotVector:
            if self.is_under_mask or any(isinstance(n, Load) for n in walk(index)):
                raise  # nothing is read in lanes that are not asked for
            return self.wide(self.expr(index))

    def wide(self, expr: Expr) -> Expr:
        """`expr` with all lanes."""
        return expr if dtypes.lanes(expr.dtype) > 1 else Broadcast(expr, self.count)

    def expr(self, expr: Expr) -> Expr:
        """The value for all lanes; a scalar where it is the same in all."""
        if not self.varies(expr):
            if dtypes.lanes(expr.dtype) > 1:
                raise _NotVector
            self._check_evaluated(expr)
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
            indices = tuple(self._place(i) for i in expr.indices)
            self._check_masked(expr.buffer, indices)
            return Load(expr.buffer, indices)
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
            self._check_evaluated(cond)
            with self.where(self.facts.assuming(cond)):
                then = self.wide(self.expr(a))
            with self.where(self.facts.assuming(cond, False)):
                return Call(expr.name, (cond, then, self.wide(self.expr(b))), dtype)
        if not any(isinstance(n, Load) for side in (a, b) for n in walk(side)):
            return self._select(cond, a, b)
        steady, own = self._conjuncts(cond)  # a lane that is not chosen must not be read
        mask = self._mask(steady, own)
        with self.where(self.facts.assuming(all_of(steady)), masked=True):
            then = self.wide(self.expr(a))
        with self.where(self.facts, masked=True):
            return Call(expr.name, (mask, then, self.wide(self.expr(b))), dtype)
