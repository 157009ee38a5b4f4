"""One anchor's decisions in values, and the handles of its loops and blocks while it is scheduled."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...ir.target import Target
from ..schedule import Schedule
from .anatomy import Anchor
from .decision import BRANCH, OVERCOMPUTE
from .device import Group
from .panels import sums_apart
from .structure import Open


@dataclass
class Plan:
    """One anchor's decisions in values, and the handles that come up on the way."""

    sch: Schedule
    part: Open
    target: Target
    values: dict[int, Any]
    block: str = ""
    loops: dict[int, str] = field(default_factory=dict)
    single: list[str] = field(default_factory=list)
    copy: str = ""
    init: str = ""
    parts: int = 1
    panel_loop: str = ""
    exit: str = ""
    sum_init: str = ""
    sums: list[str] = field(default_factory=list)
    shared: int = 1
    outer: list[str] = field(default_factory=list)
    reduce_outer: list[str] = field(default_factory=list)
    reduce_inner: list[str] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    vectors: list[str] = field(default_factory=list)
    lanes: list[str] = field(default_factory=list)
    items: dict[str, str] = field(default_factory=dict)
    reads: dict[int, str] = field(default_factory=dict)
    tile_loops: dict[int, list[str]] = field(default_factory=dict)
    staged: list[tuple[str, int, int]] = field(default_factory=list)

    @property
    def anchor(self) -> Anchor:
        return self.part.anchor

    def value(self, number: int | None, default: Any = None) -> Any:
        return default if number is None else self.values[number]

    def cover(self, axis: int) -> int:
        """The extent of the register tile along an axis."""
        if axis not in self.part.tile:
            return 1
        size = self.values[self.part.tile[axis]]
        return int(size[0] * size[1]) if isinstance(size, tuple) else int(size)

    def block_of(self, axis: int) -> int:
        """How many neighbouring tiles along an axis follow each other in a loop of their own."""
        if self.part.block is None or self.part.block[0] != axis:
            return 1
        return int(self.values[self.part.block[1]])

    def lane(self) -> int:
        """Lanes of one vector of the register tile."""
        device = self.part.device
        number = self.part.tile[self.part.structure.vec] if device.vector is None else device.vector
        size = self.values[number]
        return int(size[1] if isinstance(size, tuple) else size)

    def vector_shape(self) -> list[int]:
        """Vectors and lanes of the register tile."""
        return [self.cover(self.part.structure.vec) // self.lane(), self.lane()]

    @property
    def scatters(self) -> bool:
        """Whether a copy scatters the sum of the panels when all of them are there."""
        return bool(self.panel_loop) and sums_apart(self.anchor, self.part.structure.vec, self.target)

    @property
    def place_inside(self) -> str:
        """The innermost of the loops that threads or work-items share."""
        return list(self.items.values())[-1] if self.items else self.outer[0]

    @property
    def locals(self) -> list[int]:
        """The inputs that a work-group holds in local memory, a panel of a reduction at a time."""
        return [number for number, decision in self.part.device.local.items() if self.values[decision]]

    @property
    def group(self) -> Group:
        """The work-group of an OpenCL device."""
        chosen: Group = self.value(self.part.device.work_group, Group(1))
        return chosen

    @property
    def fused(self) -> tuple[int, int] | None:
        """The axes that the rows of the tile run along together, outer and inner; None where they do not."""
        row = self.part.structure.row
        if self.part.fused is None or row is None or not self.values[self.part.fused[1]]:
            return None
        return self.part.fused[0], row

    @property
    def fused_dims(self) -> tuple[int, int]:
        """The dimensions of the result that the fused axes index."""
        assert self.fused is not None
        high, low = (self.anchor.output.plain_dim(axis) for axis in self.fused)
        assert high is not None and low is not None
        return high, low

    def extent(self, axis: int) -> int:
        """The points that tiles along an axis cut."""
        extent = self.anchor.axes[axis].extent
        return extent * self.anchor.axes[self.fused[0]].extent if self.fused and axis == self.fused[1] else extent

    def boundary(self, axis: int) -> int:
        """The boundary decision of an axis; a tile that divides has no edge."""
        if axis not in self.part.boundary or self.extent(axis) % self.cover(axis) == 0:
            return BRANCH
        return int(self.values[self.part.boundary[axis]])

    def computed(self, axis: int) -> int:
        """The points that the tiles along an axis compute."""
        extent, cover = self.extent(axis), self.cover(axis)
        return -(-extent // cover) * cover if self.boundary(axis) == OVERCOMPUTE else extent

    def rounded(self, axis: int) -> int:
        """The extent that is computed along an axis; of two fused ones the outer has what is beyond the last row."""
        if self.fused and axis in self.fused:
            row = self.fused[1]
            width = self.anchor.axes[row].extent
            return width if axis == row else -(-self.computed(row) // width)
        return self.computed(axis)

    def rounded_shape(self) -> list[int]:
        """The extents of the result, each rounded to what is computed along its axis."""
        shape = list(self.anchor.output.shape)
        for axis in self.anchor.spatial:
            dim = self.anchor.output.plain_dim(axis)
            if dim is not None:
                shape[dim] = max(shape[dim], self.rounded(axis))
        return shape
