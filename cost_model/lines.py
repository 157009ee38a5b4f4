"""Which cache lines an operand's elements share in each of its layouts, for whole populations.

A layout orders an operand's dimensions anew.  From that order follow the run of neighbouring elements that a
tile touches, and so how much of each cache line it uses; and the distance between runs, which tells whether
they compete for the same sets of a cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .tiling import ONE, Vector

if TYPE_CHECKING:
    from ..ir.layout.layout import Dim
    from ..ir.target import Target


def _points(dim: Dim, points: Vector) -> Vector:
    """How many points of a physical dimension lie under `points` of the logical one."""
    if dim.part == "block":
        return np.asarray(np.ceil(points / np.asarray(dim.step, np.float32)), np.float32)
    return np.minimum(points, np.asarray(dim.step, np.float32)) if dim.part == "inner" else points


def runs(
    order: Sequence[Dim], reach: Sequence[Vector], shape: Sequence[int], width: float, target: Target
) -> tuple[Vector, Vector]:
    """The run of neighbours that a tile of the given reach touches, in elements, and how far apart its runs are.

    A run is as long as the innermost dimensions that the tile fills, and what it touches of the next.  The distance
    is that of the innermost dimension in which the tile takes several steps without filling what is inside it; told is
    the largest power of two of bytes, a line at least and a way of the first cache at most, that divides it: the cache
    holds its bytes over so many of such runs side by side.  `width` is the bytes of an element.
    """
    line = np.float32(target.line_bytes)
    length, distance = ONE, np.full(1, line, np.float32)
    stride: Vector = np.asarray(width, np.float32)
    found = filled = None
    for dim in reversed(order):
        touched, size = _points(dim, reach[dim.dim]), _points(dim, np.asarray(shape[dim.dim], np.float32))
        if found is None or filled is None:  # the innermost: its elements are neighbours
            length, found, filled = length * touched, np.zeros(1, bool), touched >= size
        else:
            length = np.where(filled, length * touched, length)
            steps = ~(found | filled) & (touched > 1)
            distance = np.where(steps, stride, distance)
            found = found | steps
            filled = filled & (touched >= size)
        stride = stride * (size + np.asarray(dim.step, np.float32) if dim.part == "pitched" else size)
    apart = np.maximum(distance, line).astype(np.int64)
    return length, np.minimum(apart & -apart, target.way_bytes).astype(np.float32)
