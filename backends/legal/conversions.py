"""Floats of a known range as integers: one instruction for a vector, where others must saturate.

::

    int32(nearbyint(max(min(x, hi), lo)))
        ->  let a = x, b = select(a < hi, a, hi), c = select(b > lo, b, lo) in select(a == a, round_to_int32(c), 0)
    uint8(x)
        ->  let a = x, b = .., c = .. in uint8(select(a == a, trunc_to_int32(c), 0))        with 255 and 0 as ends

A conversion saturates, and NaN gives 0.  Where a clamp between constants, or one that is put there, keeps the number in
32 bits, nothing but NaN is left to look for; clamps that let it through as the one or the other bound are single
instructions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...ir import dtypes
from ...ir.expr import Binary, Broadcast, Call, Cast, Const, Expr, LetExpr, Select, Var, const
from ...ir.functions import ROUND_TO_INT32, TRUNC_TO_INT32
from ...ir.node import Node, children, remembered, transform
from ...ir.stmt import Stmt, names_below
from ...ir.target import Target

_BITS = 32  # of the integers that one instruction makes of floats
_COMPARED = {"min": "<", "max": ">"}


@dataclass(frozen=True)
class Clamped:
    """A float between constants: `value` after each of `steps`, from the inside, and rounded if it `is_rounded`."""

    value: Expr
    steps: tuple[tuple[str, float], ...]
    is_rounded: bool

    @property
    def bounds(self) -> tuple[float, float]:
        """What the number lies between, where it is one."""
        low, high = -math.inf, math.inf
        for op, bound in self.steps:
            choose = min if op == "min" else max
            low, high = choose(low, bound), choose(high, bound)
        return low, high


def clamped(expr: Cast) -> Clamped | None:
    """What a conversion of float32 to integers of at most 32 bits converts; None where it may leave their range."""
    base = dtypes.element(expr.dtype)
    if dtypes.element(expr.a.dtype) != "float32" or not dtypes.is_int(base) or dtypes.bits(base) > _BITS:
        return None
    value, is_rounded = expr.a, False
    if isinstance(value, Call) and value.name == "nearbyint":
        (value,), is_rounded = value.args, True
    steps: list[tuple[str, float]] = []
    while isinstance(value, Binary) and value.op in _COMPARED:
        sides = _number(value.a), _number(value.b)
        bound = sides[1] if sides[0] is None else sides[0]
        if bound is None or math.isnan(bound):
            break
        steps.insert(0, (value.op, bound))
        value = value.a if sides[0] is None else value.b
    low, high = (float(end) for end in dtypes.int_range(base))
    if high > 2.0**31:
        return None
    found = Clamped(value, tuple(steps), is_rounded)
    if low <= found.bounds[0] and found.bounds[1] <= high and (dtypes.bits(base) < _BITS or found.bounds[1] < high):
        return found
    if dtypes.bits(base) == _BITS:  # the largest of 32 bits is no float32
        return None
    return Clamped(value, (*steps, ("min", high), ("max", low)), is_rounded)


def _number(expr: Expr) -> float | None:
    expr = expr.value if isinstance(expr, Broadcast) else expr
    return float(expr.value) if isinstance(expr, Const) else None


def conversions(stmt: Stmt, target: Target) -> Stmt:
    """The statement, for a CPU, with every such conversion."""
    if target.kind != "cpu" or not _has_conversions(stmt):
        return stmt
    taken = names_below(stmt)
    names = (name for number in range(1 << 30) if (name := f"real{number}") not in taken)

    def visit(node: Any) -> Any:
        found = clamped(node) if isinstance(node, Cast) else None
        return node if found is None else _converted(found, node.dtype, names)

    result: Stmt = transform(stmt, visit)
    return result


@remembered
def _has_conversions(node: Node) -> bool:
    return (isinstance(node, Cast) and clamped(node) is not None) or any(map(_has_conversions, children(node)))


def _converted(found: Clamped, dtype: str, names: Iterator[str]) -> Expr:
    """The integers of type `dtype` that a float becomes."""
    lanes = dtypes.lanes(dtype)
    bound: list[tuple[Var, Expr]] = []

    def bind(value: Expr) -> Expr:
        bound.append((Var(next(names), dtypes.with_lanes("float32", lanes)), value))
        return bound[-1][0]

    def number(value: float, kind: str) -> Expr:
        return const(value, kind) if lanes == 1 else Broadcast(const(value, kind), lanes)

    first = value = bind(found.value)
    for op, end in found.steps:
        limit = number(end, "float32")
        value = bind(Select(Binary(_COMPARED[op], value, limit), value, limit))
    wide = dtypes.with_lanes("int32", lanes)
    whole = Call(ROUND_TO_INT32 if found.is_rounded else TRUNC_TO_INT32, (value,), wide)
    made: Expr = Select(Binary("==", first, first), whole, number(0, "int32"))
    if dtype != wide:
        made = Cast(dtype, made)
    for var, given in reversed(bound):
        made = LetExpr(var, given, made)
    return made
