"""Lanes of vector expressions: single ones, and the pieces of vectors that OpenCL devices have."""

from __future__ import annotations

from ...ir import dtypes
from ...ir.expr import (
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Ramp,
    Shuffle,
    Undef,
    Var,
    as_int,
    binary,
    refold,
)
from ...ir.extents import dims
from ...ir.node import rebuild
from ..errors import CodegenError

NATIVE_LANES = (16, 8, 4, 2)
"""Lanes of the vectors of OpenCL C that stay what they are in memory: those of three take the place of four."""


def pieces(lanes: int) -> list[tuple[int, int]]:
    """``(start, count)`` of native vectors, and of single lanes at the end, that make up `lanes`."""
    result = []
    start = 0
    for count in (*NATIVE_LANES, 1):
        while lanes - start >= count:
            result.append((start, count))
            start += count
    return result


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


def position(buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
    """The row-major position; a buffer of several physical axes is linear memory, too."""
    width = max(dtypes.lanes(i.dtype) for i in indices)
    total = widened(indices[0], width)
    for index, extent in zip(indices[1:], dims(buffer.extents[1:]), strict=True):
        total = total * widened(extent, width) + widened(index, width)
    return total
