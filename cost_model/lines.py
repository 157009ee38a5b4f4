"""Which cache lines an operand's elements share in each of its layouts, for whole populations.

A layout orders an operand's dimensions anew.  From that order follow the run of neighbouring elements that a
tile touches, and so how much of each cache line it uses; and the distance between runs, which tells whether
they compete for the same sets of a cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .tiling import ONE, Vector

if TYPE_CHECKING:
    from ..ir.target import Target
    from ..space.design.anatomy import Operand


@dataclass(frozen=True)
class Dim:
    """One physical dimension: a part of the logical dimension `dim`.

    `part` is ``whole``, or for blocks of `step` points ``block`` (which block) or ``inner`` (where in it), or
    ``pitched`` for a whole one that has room for `step` points more.
    """

    dim: int
    part: str
    step: Vector

    def extent(self, points: Vector) -> Vector:
        """How many points of this dimension lie under `points` of the logical one."""
        if self.part in ("whole", "pitched"):
            return points
        if self.part == "block":
            return np.asarray(np.ceil(points / self.step), np.float32)
        return np.minimum(points, self.step)


def physical(operand: Operand, choice: Any, tiles: Sequence[Vector]) -> list[Dim]:
    """The physical dimensions of a layout, outermost first; `tiles` are the register tile's covers by axis."""
    dims = [Dim(number, "whole", ONE) for number in range(len(operand.dims))]
    kind = "identity" if choice is None else choice.kind
    if kind in ("identity", "copy"):
        return dims
    if kind == "pitched":
        return [*dims[:-1], Dim(len(dims) - 1, "pitched", np.full(1, choice.size, np.float32))]
    rest = [d for d in dims if d.dim != choice.dim]
    if kind == "tiled":
        tile = tiles[choice.axis]
        return [Dim(choice.dim, "block", tile), *rest, Dim(choice.dim, "inner", tile)]
    if kind == "blocked":
        size = np.full(1, choice.size, np.float32)
        return [Dim(choice.dim, "block", size), *rest, Dim(choice.dim, "inner", size)]
    if kind == "phase":
        steps = [abs(coef) for axis, coef in operand.dims[choice.dim] if axis == choice.axis]
        step = np.full(1, steps[0] if steps else 1, np.float32)
        return [*rest, Dim(choice.dim, "inner", step), Dim(choice.dim, "block", step)]
    return [*rest, Dim(choice.dim, "whole", ONE)]


def runs(
    order: Sequence[Dim], reach: Sequence[Vector], shape: Sequence[int], width: float, target: Target
) -> tuple[Vector, Vector]:
    """The run of neighbours that a tile of the given reach touches, in elements, and how far apart its runs are.

    A run is as long as the innermost dimensions that the tile fills, and what it touches of the next.  The distance
    is that of the innermost dimension in which the tile takes several steps without filling what is inside it; told is
    the largest power of two of bytes, a line at least and a way of the first cache at most, that divides it: the cache
    holds its bytes over so many of such runs side by side.  `width` is the bytes of an element.
    """
    line, way = target.line_bytes, target.way_bytes
    length, stride = ONE, np.full(1, width, np.float32)
    distance, found = np.full(1, line, np.float32), np.zeros(1, bool)
    filled = np.ones(1, bool)
    for dim in reversed(order):
        touched, size = dim.extent(reach[dim.dim]), dim.extent(np.full(1, shape[dim.dim], np.float32))
        length = np.where(filled, length * touched, length)
        steps = ~(found | filled) & (touched > 1)
        distance = np.where(steps, stride, distance)
        found = found | steps
        filled = filled & (touched >= size)
        stride = stride * (size + dim.step if dim.part == "pitched" else size)
    return length, np.gcd(np.maximum(distance, line).astype(np.int64), way).astype(np.float32)
