"""What of a stage is padding, and how much of it the tiles of an anchor meet."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np
from numpy.typing import NDArray

from ...ir.analysis import evaluate, is_countable
from ...ir.expr import Call, Const, Var, conjuncts, variables
from ...ir.stmt import PrimFunc
from ..tree import block_stores, find_block
from .program import Anchor

Data = Mapping[int, tuple[bool, ...]]
"""For each dimension with padding, which indices may be of data."""


def data_of_stage(func: PrimFunc, producer: str, neutral: float) -> Data:
    """The dimensions along which a block stores `neutral` instead of data, by a condition on that index alone."""
    (store,) = block_stores(find_block(func, producer))
    value = store.value
    if not (isinstance(value, Call) and value.name == "if_then_else"):
        return {}
    cond, _, other = value.args
    if not (isinstance(other, Const) and other.value == neutral):
        return {}
    found = {}
    for dim, (index, extent) in enumerate(zip(store.indices, store.buffer.shape, strict=True)):
        own = [c for c in conjuncts(cond) if variables(c) == {index} and is_countable(c)]
        if own and isinstance(index, Var):
            at = {index: np.arange(extent)}
            holds = np.logical_and.reduce([np.broadcast_to(evaluate(c, at), extent) for c in own])
            if not holds.all():
                found[dim] = tuple(map(bool, holds))
    return found


def share_with_data(anchor: Anchor, number: int, dim: int, data: tuple[bool, ...], tile: Mapping[int, int]) -> float:
    """The share of steps of a reduction in which a tile meets data along a dimension of an operand.

    `tile` has its points along axes of which that is more than one.
    """
    operand = anchor.operands[number]
    terms = operand.dims[dim]
    index = np.full((1,) * len(terms), operand.offsets[dim])
    for place, (axis, scale) in enumerate(terms):
        index = index + _along(place, len(terms), scale * np.arange(anchor.axes[axis].extent))
    meets = np.asarray(data)[np.clip(index, 0, len(data) - 1)]
    points = np.ones((1,) * len(terms), np.int64)
    for place, (axis, _) in enumerate(terms):
        size, extent = tile.get(axis, 1), anchor.axes[axis].extent
        starts = np.arange(0, extent, size)
        meets = np.logical_or.reduceat(meets, starts, axis=place)
        points = points * _along(place, len(terms), np.minimum(size, extent - starts))
    return float((meets * points).sum() / prod(anchor.axes[axis].extent for axis, _ in terms))


def _along(place: int, rank: int, values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Values along one of several dimensions."""
    return values.reshape([len(values) if k == place else 1 for k in range(rank)])
