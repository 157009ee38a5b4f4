"""One candidate while it is scheduled: its decisions as plain numbers, and the handles of its loops and blocks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...ir.layout.layout import Dim, Layout
from ...ir.target import Target
from ..primitives.cache import write_buffer
from ..schedule import Schedule
from ..tree import find_block
from .candidates import Candidates
from .decision import OVERCOMPUTE
from .layouts import LayoutFamily
from .operand import Axis
from .program import Anchor
from .structure import Open, Structure


@dataclass
class Plan:
    """One candidate, `chosen`, and the handles that come up while it is applied to `sch`.

    `block` is the block that computes the anchor, `exit` the one that its result goes to, `copy` the one that takes a
    tile out of registers.  `loops` are the anchor's by axis; after tiling `outer` are those outside the register tile
    in their order, and `tile_loops` those of the tile by axis; `out_lanes` are the vectorized loops of what takes a
    tile out; `dot_loop` are the steps of a dot product, `team` the items of a subgroup.  `staged` has for each input
    that is copied or computed first the block that does so, the place, and how many of its loops one thread runs;
    `parallel_before` are the parallel loops of other anchors.
    """

    sch: Schedule
    chosen: Candidates
    block: str
    exit: str
    loops: dict[int, str] = field(default_factory=dict)
    single: list[str] = field(default_factory=list)
    copy: str = ""
    init: str = ""
    parts: int = 1
    panel_loop: str = ""
    sum_init: str = ""
    sums: list[str] = field(default_factory=list)
    shared: int = 1
    outer_of: dict[int, str] = field(default_factory=dict)
    block_loops: list[str] = field(default_factory=list)
    outer: list[str] = field(default_factory=list)
    reduce_outer: list[str] = field(default_factory=list)
    reduce_inner: list[str] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    vectors: list[str] = field(default_factory=list)
    lanes: list[str] = field(default_factory=list)
    out_lanes: list[str] = field(default_factory=list)
    dot_loop: str = ""
    team: str = ""
    items: dict[str, str] = field(default_factory=dict)
    reads: dict[int, str] = field(default_factory=dict)
    tile_loops: dict[int, list[str]] = field(default_factory=dict)
    staged: list[tuple[str, int, int]] = field(default_factory=list)
    parallel_before: list[str] = field(default_factory=list)

    @property
    def part(self) -> Open:
        return self.chosen.part

    @property
    def anchor(self) -> Anchor:
        return self.chosen.anchor

    @property
    def axes(self) -> tuple[Axis, ...]:
        return self.chosen.axes

    @property
    def structure(self) -> Structure:
        return self.chosen.structure

    @property
    def target(self) -> Target:
        return self.chosen.target

    @property
    def factored(self) -> bool:
        """Whether the reduction runs along the vectors, in parts."""
        return self.structure.factored

    def value(self, what: str, at: int, default: Any = None) -> Any:
        """What was chosen about an axis or an operand."""
        number = self.part.of(what).get(at)
        return default if number is None else self.part.decisions[number].values[one(self.chosen.alternative(number))]

    def cover(self, axis: int) -> int:
        """The extent of the register tile along an axis."""
        return one(self.chosen.cover[axis])

    def lane(self) -> int:
        """Lanes of one vector of the register tile."""
        return one(self.chosen.lane)

    def vector_shape(self) -> list[int]:
        """Vectors and lanes of the register tile."""
        return [self.cover(self.structure.vec) // self.lane(), self.lane()]

    def layout(self, number: int) -> LayoutFamily:
        """The family of layouts that an operand's is of."""
        return self.chosen.layouts(number)[one(self.chosen.layout(number))]

    @property
    def fused(self) -> tuple[int, int] | None:
        """The axes that the rows of the tile run along together, outer and inner; None where they do not."""
        return self.chosen.pair if one(self.chosen.fused) else None

    @property
    def fused_dims(self) -> tuple[int, int]:
        """The dimensions of the result that the fused axes index."""
        assert self.fused is not None
        high, low = (self.anchor.output.plain_dim(axis) for axis in self.fused)
        assert high is not None and low is not None
        return high, low

    def over(self, axis: int) -> bool:
        """Whether the edge of an axis is computed over."""
        return one(self.chosen.boundary[axis]) == OVERCOMPUTE

    @property
    def place_inside(self) -> str:
        """The innermost of the loops that threads or work-items share."""
        return list(self.items.values())[-1] if self.items else self.outer[0]

    def rounded_shape(self) -> list[int]:
        """The extents of the result, each rounded to what is computed along its axis."""
        shape = list(self.anchor.output.shape)
        for axis in self.anchor.spatial:
            dim = self.anchor.output.plain_dim(axis)
            if dim is not None:
                shape[dim] = max(shape[dim], one(self.chosen.rounded[axis]))
        return shape

    def result_shape(self) -> tuple[list[int], int]:
        """Extents of the tiled block's result, rounded where it is computed over, and the vector axis's dimension."""
        shape, dim = self.sum_shape()
        return ([self.parts, *shape], dim + 1) if self.panel_loop else (shape, dim)

    def loops_over_result(self) -> tuple[list[int], int]:
        """Extents of the loops that take the result out of a tile, and which of them is the vector axis's.

        The sum of panels has no loop for a dimension whose index is constant.
        """
        shape, dim = self.result_shape()
        if not self.panel_loop:
            return shape, dim
        looped = [True, *(bool(terms) for terms in self.anchor.output.dims)]
        if self.fused:
            del looped[self.fused_dims[1] + 1]
        return [extent for extent, has in zip(shape, looped, strict=True) if has], sum(looped[:dim])

    def sum_shape(self) -> tuple[list[int], int]:
        """The shape of the sum of a reduction's panels, and the dimension along its vectors."""
        shape = self.rounded_shape()
        dim = self.anchor.output.plain_dim(self.structure.vec)
        assert dim is not None
        if self.fused:
            high, low = self.fused_dims
            shape[high] = one(self.chosen.computed[self.fused[1]])
            del shape[low]
            dim -= dim > low
        return shape, dim

    def tile_layout(self, block: str, reach: list[int], vec_dim: int) -> Layout:
        """``[i // T, ..., i % T]`` of what a block writes, with room for `reach`: vectors of a tile are contiguous."""
        tile, shape = (
            self.cover(self.structure.vec),
            write_buffer(self.sch.func, find_block(self.sch.func, block), 0).shape,
        )
        rest = [Dim(k) for k in range(len(shape)) if k != vec_dim]
        dims = [Dim(vec_dim, "block", tile), *rest, Dim(vec_dim, "inner", tile)]
        return Layout.of_dims(shape, dims, reach=reach, pad_value="undef")


def one(values: NDArray[np.int64] | NDArray[np.bool_]) -> int:
    """The value of a single candidate."""
    return int(values[0])
