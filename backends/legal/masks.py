"""Conditions of lanes as masks of single accesses.

::

    if c: S                        ->  let m = c: S under m
    B[r] = e          under m      ->  if m: B[r] = e under m
    T[r] = e          under m      ->  T[r] = select(m, e under m, T[r])          all of r in a register tile
    A[r]              under m      ->  masked_load(m, A[r])
    shuffle(A[r], ..) under m      ->  shuffle(masked_load(any of m, A[r]), ..)
    e // f            under m      ->  e // select(m, f, 1)                       where f may be 0
    if_then_else(c, A[r], e)       ->  masked_load(c, A[r], e)                    where e reads nothing
    if_then_else(c, e, f)          ->  let m = c in select(m, e under m, f under not m)
    if_then_else(s, A[i], 0.5)     ->  masked_load(s, A[i], 0.5)                  one condition, and a constant
    if_then_else(c, f32(A[i]), 1)  ->  f32(if_then_else(c, A[i], 1))              what has the number in few bits, too
    if_then_else(s, e, f)          ->  select(s, e, f)                            where neither can fail

Here `c` is a vector of conditions, and `r` are indices of as many lanes; under another mask, `m` is the conjunction of
both.  A register tile is read and written whole, as long as all lanes are in bounds.  What has one value for all lanes
is evaluated in any case, as it may be (see `passes.masks`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce

import numpy as np

from ...ir import dtypes
from ...ir.arith.intervals import Facts, nothing_known
from ...ir.arith.linear import as_ramp
from ...ir.expr import (
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    LetExpr,
    Load,
    Not,
    Select,
    Shuffle,
    Var,
    binary,
    can_fail,
    const,
    divisor_of,
    reads_memory,
)
from ...ir.functions import MASKED_LOAD
from ...ir.node import Node, children, rebuild, remembered
from ...ir.numbers import convert
from ...ir.stmt import Allocate, For, If, Let, Stmt, Store, names_below, seq
from ...ir.target import Target


def lane_masks(stmt: Stmt, target: Target) -> Stmt:
    """The statement, for a CPU, with a mask for each access under conditions of lanes."""
    if target.kind != "cpu" or not _has_conditions(stmt):
        return stmt
    taken = names_below(stmt)
    names = (name for number in range(1 << 30) if (name := f"mask{number}") not in taken)
    return _Masks(names).stmt(stmt, _Place(nothing_known(), frozenset()))


@remembered
def _has_conditions(node: Node) -> bool:
    """Whether a conditional stands in `node`, or a statement under a condition of lanes."""
    own = isinstance(node, Call) and node.name == "if_then_else"
    own |= isinstance(node, If) and dtypes.lanes(node.cond.dtype) > 1
    return own or any(map(_has_conditions, children(node)))


@dataclass(frozen=True)
class _Place:
    """Where a statement stands: what is known there, which memories are register tiles, and for which lanes it runs."""

    facts: Facts
    tiles: frozenset[str]
    mask: Expr | None = None

    def under(self, mask: Expr) -> _Place:
        around = self.mask_of(dtypes.lanes(mask.dtype))
        return replace(self, mask=mask if around is None else Binary("and", around, mask))

    def mask_of(self, lanes: int) -> Expr | None:
        """The mask of an expression of so many lanes.

        An operand of a shuffle may have others than the result: it is evaluated whole where any lane of that is.
        """
        if self.mask is None or dtypes.lanes(self.mask.dtype) == lanes:
            return self.mask
        each: list[Expr] = [Shuffle((self.mask,), (const(n),)) for n in range(dtypes.lanes(self.mask.dtype))]
        return Broadcast(reduce(partial(binary, "or"), each), lanes)

    def is_whole(self, buffer: Buffer, indices: tuple[Expr, ...]) -> bool:
        """Whether the lanes are a ramp in a register tile, all of them in bounds."""
        if buffer.memory not in self.tiles or len(indices) != 1 or as_ramp(indices[0]) is None:
            return False
        low, high = self.facts.interval(indices[0])
        return buffer.is_fixed and low >= 0 and high < buffer.size


class _Masks:
    """Writes masks; `names` are those for variables that hold them."""

    def __init__(self, names: Iterator[str]) -> None:
        self.names = names

    def stmt(self, stmt: Stmt, at: _Place) -> Stmt:
        if at.mask is None and not _has_conditions(stmt):
            return stmt
        if isinstance(stmt, If) and dtypes.lanes(stmt.cond.dtype) > 1:
            return self._under_condition(stmt, at)
        if isinstance(stmt, Store):
            return self._store(stmt, at)
        inside = at
        if isinstance(stmt, Allocate) and stmt.buffer.scope == "local":
            inside = replace(at, tiles=at.tiles | {stmt.buffer.name})
        elif isinstance(stmt, For):
            inside = replace(at, facts=at.facts.looping(stmt.var, stmt.extent))
        elif isinstance(stmt, Let):
            inside = replace(at, facts=at.facts.binding(stmt.var, stmt.value))

        def visit(child: Node) -> Node:
            if isinstance(child, Stmt):
                return self.stmt(child, inside)
            return self.expr(child, at) if isinstance(child, Expr) else child

        result: Stmt = rebuild(stmt, visit)
        return result

    def _under_condition(self, stmt: If, at: _Place) -> Stmt:
        mask = Var(next(self.names), stmt.cond.dtype)
        parts = [self.stmt(stmt.then, at.under(mask))]
        if stmt.orelse is not None:
            inverse = Var(next(self.names), stmt.cond.dtype)
            parts.append(Let(inverse, Not(mask), self.stmt(stmt.orelse, at.under(inverse))))
        return Let(mask, self.expr(stmt.cond, at), seq(parts))

    def _store(self, stmt: Store, at: _Place) -> Stmt:
        indices = tuple(self.expr(index, at) for index in stmt.indices)
        store = Store(stmt.buffer, indices, self.expr(stmt.value, at))
        if at.mask is None:
            return store
        if not at.is_whole(stmt.buffer, indices):
            return If(at.mask, store)
        return replace(store, value=Select(at.mask, store.value, Load(stmt.buffer, indices)))

    def expr(self, expr: Expr, at: _Place) -> Expr:
        if not _has_conditions(expr) and (at.mask is None or not can_fail(expr)):
            return expr
        if isinstance(expr, Call) and expr.name == "if_then_else":
            return self._conditional(expr, at)
        made: Expr = rebuild(expr, lambda child: self.expr(child, at) if isinstance(child, Expr) else child)
        mask = None if dtypes.lanes(made.dtype) == 1 else at.mask_of(dtypes.lanes(made.dtype))
        if mask is None:
            return made
        if isinstance(made, Load) and dtypes.lanes(made.dtype) > dtypes.lanes(made.buffer.dtype):
            whole = at.is_whole(made.buffer, made.indices)
            return made if whole else Call(MASKED_LOAD, (mask, made), made.dtype)
        by = divisor_of(made)
        if by is not None and dtypes.is_int(made.dtype):
            divisor = by.value if isinstance(by, Broadcast) else by
            if not isinstance(divisor, Const) or not divisor.value:
                one = Broadcast(const(1, dtypes.element(made.dtype)), dtypes.lanes(made.dtype))
                chosen = Select(mask, by, one)
                if isinstance(made, Call):
                    return replace(made, args=(made.args[0], chosen))
                assert isinstance(made, Binary)
                return replace(made, b=chosen)
        return made

    def _conditional(self, expr: Call, at: _Place) -> Expr:
        a, b = expr.args[1:]
        narrow = _before_conversion(a, b)
        if narrow is not None:
            assert isinstance(a, Cast)
            inside = Call(expr.name, (expr.args[0], a.a, narrow), a.a.dtype)
            return Cast(a.dtype, self._conditional(inside, at))
        cond = self.expr(expr.args[0], at)
        if dtypes.lanes(cond.dtype) == 1:
            args = cond, self.expr(a, at), self.expr(b, at)
            if not can_fail(a) and not can_fail(b):
                return Select(*args)
            return Call(MASKED_LOAD if at.mask is None and _is_one_access(a, b) else expr.name, args, expr.dtype)
        if isinstance(a, Load) and not reads_memory(b):
            own, other = at.under(cond).mask, self.expr(b, at)
            load = Load(a.buffer, tuple(self.expr(index, at.under(cond)) for index in a.indices))
            assert own is not None
            if at.is_whole(a.buffer, a.indices):
                return Select(own, load, other)
            return Call(MASKED_LOAD, (own, load, other), expr.dtype)
        mask = inverse = Var(next(self.names), cond.dtype)
        bound: list[tuple[Var, Expr]] = [(mask, cond)]
        if reads_memory(b):
            inverse = Var(next(self.names), cond.dtype)
            bound.append((inverse, Not(mask)))
        result: Expr = Select(mask, self.expr(a, at.under(mask)), self.expr(b, at.under(inverse)))
        for var, value in reversed(bound):
            result = LetExpr(var, value, result)
        return result


def _before_conversion(a: Expr, b: Expr) -> Expr | None:
    """The constant that becomes `b` where it is converted as what is loaded for `a` is; None where there is none."""
    other = b.value if isinstance(b, Broadcast) else b
    if not isinstance(a, Cast) or not isinstance(other, Const):
        return None
    loaded: Expr = a
    while isinstance(loaded, Cast):
        loaded = loaded.a
    wide, few = dtypes.element(a.dtype), dtypes.element(a.a.dtype)
    if not isinstance(loaded, Load) or dtypes.is_bool(few):
        return None
    found = np.asarray(convert(wide, few, other.value)).item()
    back = convert(few, wide, found)
    if back != other.value or np.signbit(back) != np.signbit(other.value):
        return None
    narrow = Const(found, few)
    return Broadcast(narrow, dtypes.lanes(a.dtype)) if dtypes.lanes(a.dtype) > 1 else narrow


def _is_one_access(a: Expr, b: Expr) -> bool:
    """Whether one element, or neighbours, at a place that reads nothing, are loaded beside a constant."""
    other = b.value if isinstance(b, Broadcast) else b
    if not isinstance(a, Load) or not isinstance(other, Const) or any(map(reads_memory, a.indices)):
        return False
    if dtypes.lanes(a.dtype) == dtypes.lanes(a.buffer.dtype):
        return True
    ramp = as_ramp(a.indices[-1]) if len(a.indices) == 1 else None
    return ramp is not None and ramp[1] == const(1)
