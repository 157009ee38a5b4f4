"""Squares of elements that are transposed in registers (see `backends.squares`), as LLVM IR."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..squares import Square, exchanges, square_of
from .types import value_type

if TYPE_CHECKING:
    from ...ir.stmt import For
    from .expr import Expressions


def transposed(out: Expressions, loop: For) -> Square | None:
    """The square that a loop copies from one memory to another, neither of which are registers."""
    square = square_of(loop)
    if square is None or out.mask is not None:
        return None
    roots = {out.root(square.source), out.root(square.target)}
    return None if len(roots) < 2 or roots & out.tiles else square


def columns(out: Expressions, square: Square) -> list[str]:
    """The vectors of a square's target."""
    kind, count = value_type(square.dtype), square.lanes
    base, stride = out.linear(square.base), out.linear(square.stride)
    rows = [out.load_neighbours(square.source, base + stride * number, square.dtype) for number in range(count)]
    for first, second, *chosen in exchanges(count):
        pair = f"{kind} {rows[first]}, {kind} {rows[second]}"
        rows[first], rows[second] = (
            out.emit(f"shufflevector {pair}, <{count} x i32> <{', '.join(f'i32 {lane}' for lane in lanes)}>")
            for lanes in chosen
        )
    return rows
