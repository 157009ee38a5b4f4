"""Flat buffers: one dimension for each group of axes between separators, row-major inside a group.

::

    B[i, j]  ->  B[i * shape[1] + j]          vector indices add up to one ramp

Of a flat buffer every group is one axis: N dimensions have N - 1 separators, one before each
but the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod

from ..expr import Broadcast, Buffer, Const, Expr, Ramp, as_expr, binary


def is_flat(buffer: Buffer) -> bool:
    """Whether each group of axes is one axis."""
    return len(buffer.shape) == len(buffer.axis_separators) + 1


def flat_buffer(buffer: Buffer, separated: bool = True) -> Buffer:
    """The buffer with one dimension for each group of axes, or a single one unless `separated`."""
    shape = tuple(prod(buffer.shape[a:b]) for a, b in groups(buffer, separated))
    return replace(buffer, shape=shape, axis_separators=tuple(range(1, len(shape))))


def flat_indices(buffer: Buffer, indices: Sequence[Expr], separated: bool = True) -> tuple[Expr, ...]:
    """The indices of the flat buffer for an access of `buffer`."""
    return tuple(_row_major(indices[a:b], buffer.shape[a:b]) for a, b in groups(buffer, separated))


def groups(buffer: Buffer, separated: bool = True) -> list[tuple[int, int]]:
    """The ranges of axes that become one."""
    return list(pairwise([0, *(buffer.axis_separators if separated else ()), len(buffer.shape)]))


def _row_major(indices: Sequence[Expr], extents: Sequence[int]) -> Expr:
    base: Expr = Const(0)
    stride: Expr = Const(0)
    lanes = 1
    for index, extent in zip(indices, extents, strict=True):
        start, step = index, as_expr(0)
        if isinstance(index, Ramp):
            start, step, lanes = index.base, index.stride, index.lanes
        elif isinstance(index, Broadcast):
            start, lanes = index.value, index.lanes
        base = binary("+", binary("*", base, extent), start)
        stride = binary("+", binary("*", stride, extent), step)
    return base if lanes == 1 else Ramp(base, stride, lanes)
