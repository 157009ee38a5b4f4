"""One lane of what works on vectors: the meaning of a condition of all lanes.

::

    if_then_else(c, a, b)  =  for each lane:  if_then_else(c[lane], a[lane], b[lane])
    if c: S                =  for each lane:  if c[lane]: S[lane]

A lane whose condition fails reads and writes nothing.
"""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..caches import cached
from ..expr import Broadcast, Call, Cast, Expr, Load, Ramp, binary
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
    if isinstance(expr, Load) and dtypes.lanes(expr.buffer.dtype) > 1:
        raise InterpreterError(f"`{expr_text(expr)}` reads elements of several lanes under a condition of lanes")
    made = rebuild(expr, lambda child: lane_of(child, number) if isinstance(child, Expr) else child)
    assert isinstance(made, Expr)
    return changed(made, dtype=dtypes.element(expr.dtype)) if isinstance(made, (Call, Cast)) else made


def lane_of_statement(stmt: Stmt, number: int) -> Stmt:
    """The statement for lane `number` alone."""

    def visit(node: Node) -> Any:
        if isinstance(node, Expr):
            return lane_of(node, number)
        return lane_of_statement(node, number) if isinstance(node, Stmt) else node

    result: Stmt = rebuild(stmt, visit)
    return result
