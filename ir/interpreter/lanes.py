"""One lane of what works on vectors: the meaning of a condition of all lanes.

::

    if_then_else(c, a, b)  =  for each lane:  if_then_else(c[lane], a[lane], b[lane])
    masked_load(c, a, b)   =  if_then_else(c, a, b), with 0 for b where there is none
    if c: S                =  for each lane:  if c[lane]: S[lane]

A lane whose condition fails reads and writes nothing.
"""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..caches import cached
from ..expr import (
    Broadcast,
    Call,
    Cast,
    Const,
    Expr,
    LetExpr,
    Load,
    Ramp,
    Shuffle,
    Var,
    as_int,
    binary,
    const,
    if_then_else,
    substitute,
)
from ..node import Node, changed, rebuild
from ..stmt import Stmt
from ..text import expr_text
from .memory import InterpreterError


@cached(65536)
def lane_of(expr: Expr, number: int) -> Expr:
    """Lane `number` of a vector expression; a scalar is the same in all lanes."""
    if dtypes.lanes(expr.dtype) == 1:
        return expr
    if isinstance(expr, Ramp):
        return binary("+", expr.base, binary("*", expr.stride, number))
    if isinstance(expr, Broadcast):
        return expr.value
    if isinstance(expr, Var):
        return Shuffle((expr,), (const(number),))
    if isinstance(expr, LetExpr):
        return lane_of(substitute(expr.body, {expr.var: expr.value}), number)
    if isinstance(expr, Shuffle):
        return _shuffled(expr, expr.lanes[number])
    if isinstance(expr, Load) and dtypes.lanes(expr.buffer.dtype) > 1:
        if all(dtypes.lanes(index.dtype) == 1 for index in expr.indices):
            return Shuffle((expr,), (const(number),))
        raise InterpreterError(f"`{expr_text(expr)}` reads elements of several lanes under a condition of lanes")
    made = rebuild(expr, lambda child: lane_of(child, number) if isinstance(child, Expr) else child)
    assert isinstance(made, Expr)
    return changed(made, dtype=dtypes.element(expr.dtype)) if isinstance(made, (Call, Cast)) else made


def _shuffled(expr: Shuffle, number: Expr) -> Expr:
    """The lane of a shuffle's vectors that has a number, which a loop may determine."""
    count = dtypes.lanes(expr.vectors[0].dtype)
    places = [lane_of(vector, lane) for vector in expr.vectors for lane in range(count)]
    if isinstance(number, Const):
        return places[as_int(number)]
    chosen = places[-1]
    for place in reversed(range(len(places) - 1)):
        chosen = if_then_else(number.equal(place), places[place], chosen)
    return chosen


def lane_of_statement(stmt: Stmt, number: int) -> Stmt:
    """The statement for lane `number` alone."""

    def visit(node: Node) -> Any:
        if isinstance(node, Expr):
            return lane_of(node, number)
        return lane_of_statement(node, number) if isinstance(node, Stmt) else node

    result: Stmt = rebuild(stmt, visit)
    return result
