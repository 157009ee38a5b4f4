"""Single lanes of vector expressions."""

from __future__ import annotations

from ....ir import dtypes
from ....ir.expr import Broadcast, Call, Cast, Const, Expr, Ramp, Shuffle, Undef, Var, as_int, binary, refold
from ....ir.node import rebuild
from ...errors import CodegenError


def lane(expr: Expr, number: int) -> Expr:
    """Lane `number` of a vector expression, as a scalar expression."""
    if isinstance(expr, Ramp):
        return binary("+", expr.base, binary("*", expr.stride, number))
    if isinstance(expr, Broadcast):
        return expr.value
    if dtypes.lanes(expr.dtype) == 1:
        return expr
    if isinstance(expr, Shuffle):
        return shuffled(expr, number)
    if isinstance(expr, Var):
        raise CodegenError(f"a vector variable must be written out before code generation: `{expr.name}`")
    if isinstance(expr, Const):
        return Const(expr.value, dtypes.element(expr.dtype))
    if isinstance(expr, Undef):
        return Undef(dtypes.element(expr.dtype))
    if isinstance(expr, Cast):
        return Cast(dtypes.element(expr.dtype), lane(expr.a, number))
    if isinstance(expr, Call):
        return Call(expr.name, tuple(lane(a, number) for a in expr.args), dtypes.element(expr.dtype))
    result: Expr = refold(rebuild(expr, lambda child: lane(child, number) if isinstance(child, Expr) else child))
    return result


def shuffled(expr: Shuffle, number: int) -> Expr:
    """Lane `number` of a shuffle, as a scalar expression."""
    if not isinstance(expr.lanes[number], Const):
        raise CodegenError(f"which lane `{expr.lanes[number]!r}` of a shuffle is must be known; unroll the loop")
    vector, place = divmod(as_int(expr.lanes[number]), dtypes.lanes(expr.vectors[0].dtype))
    return lane(expr.vectors[vector], place)


def widened(expr: Expr, lanes: int) -> Expr:
    """A scalar in every lane; a vector stays."""
    return expr if lanes == 1 or dtypes.lanes(expr.dtype) > 1 else Broadcast(expr, lanes)
