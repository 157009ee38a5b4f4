"""Extents as buffers and iterators hold them: numbers, and expressions of the index type over a function's integers.

And the load that they bound.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import dtypes
from .expr import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Expr,
    Extent,
    Load,
    Var,
    all_of,
    as_expr,
    as_index,
    const,
    in_type,
)
from .node import rebuild


def as_extent(value: Extent) -> Extent:
    """An extent as it is held: constants are numbers, expressions are of the index type."""
    if not isinstance(value, Expr):
        return value
    index = widened(value)
    return int(index.value) if isinstance(index, Const) else index


def dims(extents: Sequence[Extent]) -> tuple[Expr, ...]:
    """Extents as expressions."""
    return tuple(as_expr(e) for e in extents)


def widened(extent: Expr) -> Expr:
    """An extent with each parameter brought to the index type, in which it is computed."""
    if isinstance(extent, Cast) and extent.dtype == dtypes.INDEX:
        return widened(extent.a)
    if isinstance(extent, Const):
        return const(extent.value, dtypes.INDEX)
    if isinstance(extent, Var):
        return as_index(extent)
    result: Expr = rebuild(extent, widened)
    return result


def where_within(call: Call) -> Call:
    """A load of what lies within its buffer, as the masked load that it is."""
    (load,) = call.args
    assert isinstance(load, Load)
    lanes, parts = dtypes.lanes(load.dtype), list[Expr]()
    for index, extent in zip(load.indices, dims(load.buffer.extents), strict=True):
        ends = (in_type(end, dtypes.element(index.dtype)) for end in (const(0), extent))
        first, behind = (Broadcast(end, lanes) if dtypes.lanes(index.dtype) > 1 else end for end in ends)
        parts += [Binary("<=", first, index), Binary("<", index, behind)]
    wide = [Broadcast(p, lanes) if dtypes.lanes(p.dtype) < lanes > 1 else p for p in parts]
    return Call("masked_load", (all_of(wide), load), call.dtype)
