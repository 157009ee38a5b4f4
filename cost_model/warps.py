"""The estimate of time on a device that runs work-items in step: a GPU.

A CPU's time is that of a tile's code; here thousands of tiles hide each other's waiting, or are too few for that.  So
the columns count what all warps do together: the instructions that they issue, the lines that their loads and stores
touch (items that read neighbours share lines, others take a sector of memory each), what a work-group loads into local
memory, the bytes that groups fetch, and how many turns of the tile's code follow each other when as many groups
run at a time as the device holds.  After Volkov, "Understanding Latency Hiding on GPUs" (Berkeley, 2016): time is that
of the instructions, or that of waiting divided by the warps that wait at a time, whichever is more; here it is their
sum, which a fit can follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..ir import dtypes
from ..space.design.layouts import CONTIGUOUS
from .tiling import ONE, Columns, Cover, Vector, floats, log2, product

if TYPE_CHECKING:
    from ..ir.layout.layout import Dim
    from ..ir.target import Target
    from ..space.design.candidates import Candidates
    from ..space.design.operand import Operand
    from .weights import WarpWeights

SECTOR_BYTES = 32
"""The least that memory moves; a line of the cache is what one step of loading or storing moves at most."""
BANK_BYTES = 4
"""The width of a bank of local memory, of which there are as many as items in a warp."""
UNIT_ITEMS, UNIT_GROUPS, UNIT_REGISTERS, UNIT_LOCAL = 2048, 32, 65536, 200 << 10
"""What a compute unit of an NVIDIA H100 holds at a time, and about what other GPUs' do: work-items, groups, registers
of 32 bits, and bytes of local memory."""
OTHER_REGISTERS, MOST_REGISTERS = 32, 255
"""Registers of a work-item beside its accumulators, for indices and what is loaded, and all that it can have."""
SCHEDULERS = 4
"""Warps of a compute unit that issue an instruction at a time."""

COLUMNS = (
    "warp:points", "warp:issued", "warp:loads", "warp:lines", "warp:staged", "warp:bytes", "warp:turns", "warp:chain",
    "warp:panels", "warp:idle", "warp:launches", "branches", "inner_branches", "tested", "loads:inlined",
    "warp:images", "warp:converted", "warp:lane",
)  # fmt: skip
"""The columns that the estimate follows from."""


def estimate(columns: Mapping[str, Vector], units: float, w: WarpWeights) -> Vector:
    """Base-2 logarithm of the estimated cycles per point of the iteration domain on so many compute units, (N,)."""
    issued = w.issue * np.exp2(columns["warp:issued"]) + w.load * np.exp2(columns["warp:loads"])
    issued = issued + w.line * np.exp2(columns["warp:lines"]) + w.stage * np.exp2(columns["warp:staged"])
    branches = columns["branches"] * w.octaves_branch + columns["inner_branches"] * w.octaves_inner_branch
    computed = w.octaves_tested * columns["tested"] + w.octaves_inlined * (columns["loads:inlined"] > 0)
    read = w.octaves_image * columns["warp:images"] + w.octaves_lane * columns["warp:lane"]
    busy = issued * np.exp2(branches + computed + read) * np.exp2(columns["warp:idle"]) / (SCHEDULERS * units)
    waits = w.turn * np.exp2(columns["warp:turns"]) + w.chain * np.exp2(columns["warp:chain"])
    waits = waits + w.panel * np.exp2(columns["warp:panels"])
    moved = w.byte * np.exp2(columns["warp:bytes"]) + w.launch * np.exp2(columns["warp:launches"])
    moved = moved + w.convert * np.exp2(columns["warp:converted"])
    return np.asarray(log2(busy + waits + moved) - columns["warp:points"], np.float32)


def derive(cover: Cover, candidates: Candidates, known: Columns, target: Target) -> Columns:
    """What all warps do, as base-2 logarithms of counts, (N,) or (1,) each; images are counted as they are.

    `known` are the columns that candidates have on every device.
    """
    return _Warps(cover, candidates, known, target).columns()


class _Warps:
    """The warps of candidates: quantities are vectors with an element for each candidate, or with a single one."""

    def __init__(self, cover: Cover, candidates: Candidates, known: Columns, target: Target) -> None:
        self.cover, self.c, self.known, self.target = cover, candidates, known, target
        self.inputs = [(number, o) for number, o in enumerate(candidates.operands) if not o.is_output]
        self.items = floats(candidates.items)
        self.warp = np.minimum(self.items, np.float32(target.warp))  # items of a group's first warp
        self.lane = cover.levels["lane"][candidates.structure.vec]
        self.points = float(np.prod([axis.extent for axis in candidates.axes], dtype=np.float64))
        self.box = {axis: floats(reach) for axis, reach in candidates.group_reach.items()}  # of a group, in one panel

    def columns(self) -> Columns:
        chunks, c, units = self.cover.tiles("chunk", "spatial"), self.c, np.float32(self.target.units)
        groups, warps_of_a_group = self._groups(chunks), np.ceil(self.items / self.target.warp)
        warps = groups * warps_of_a_group
        each = np.float32(self.points) * np.exp2(self.known["waste"]) / chunks  # points of an item
        loads, lines = self._loads(each)
        lines = lines + self._stores(each)
        rounds = np.ceil(groups / (self._resident() * units))
        local = floats(c.any_in_local_memory)
        images, converted = self._images()
        # A kernel for the anchor, and one for each input that is copied or computed before.
        before = [floats(self.c.staged(n)) for n, operand in self.inputs if not operand.is_packed_by_caller]
        counts = {
            "points": np.full(1, self.points, np.float32),
            "issued": warps * each,
            "loads": warps * loads,
            "lines": warps * lines,
            "staged": warps * self._staged(),
            "bytes": groups * self._fetched(),
            "turns": rounds * each / self.cover.volume("reg"),
            "chain": rounds * each,
            "panels": rounds * np.exp2(self.known["panels"]) * local,
            "idle": np.ceil(groups / units) * units / groups,
            "launches": np.asarray(sum(before, start=ONE), np.float32),
            "converted": converted,
            "lane": self.lane,
        }
        return {f"warp:{name}": log2(count) for name, count in counts.items()} | {"warp:images": images}

    # ---------------------------------------------------------------- groups

    def _groups(self, chunks: Vector) -> Vector:
        """Work-groups: of a grid along each side for itself."""
        grid, found = self.c.group("x") > 0, chunks / np.maximum(self.items, 1)
        for axis, side in self._sides():
            tiles = floats(self.c.tiles[axis])
            found = found * np.where(grid, np.ceil(tiles / side) * side / tiles, ONE)
        return np.asarray(np.ceil(found), np.float32)

    def _sides(self) -> list[tuple[int, Vector]]:
        """The axes along the sides of a grid, x first, and how many items stand along each; 1 of other groups."""
        sides = ((self.c.structure.vec, self.c.group("x")), (self.c.structure.row, self.c.group("y")))
        return [(axis, floats(np.maximum(n, 1))) for axis, n in sides if axis is not None and axis in self.c.tiles]

    def _resident(self) -> Vector:
        """Work-groups that a compute unit holds at a time."""
        accumulators = product([floats(self.c.cover[a]) for a in self.c.anchor.spatial])
        registers = np.minimum(accumulators + OTHER_REGISTERS, MOST_REGISTERS) * self.items
        local = np.zeros(1, np.float32)
        for number, operand in self.inputs:
            local = local + floats(self.c.in_memory("local", number)) * self._span(operand) * _width(operand)
        found = np.full(1, UNIT_GROUPS, np.float32)
        for limit in (UNIT_ITEMS / self.items, UNIT_REGISTERS / registers, UNIT_LOCAL / np.maximum(local, 1)):
            found = np.minimum(found, np.floor(limit))
        return np.asarray(np.maximum(found, 1), np.float32)

    # ---------------------------------------------------------------- memory

    def _loads(self, each: Vector) -> tuple[Vector, Vector]:
        """Loads of an item, and the lines that a warp touches with them."""
        loads: Vector = np.zeros(1, np.float32)
        lines: Vector = np.zeros(1, np.float32)
        for position, (number, operand) in enumerate(self.inputs):
            if not operand.dims:
                continue
            contiguous = self.known[f"access:in{position}"] == CONTIGUOUS
            width = np.asarray(np.where(contiguous, self.lane, ONE), np.float32)
            elements = _elements(operand, self.cover.levels["reg"], self.cover.reach(operand, "reg"))
            count = each / self.cover.volume("reg") * elements / width
            loads = np.asarray(loads + count, np.float32)
            lines = np.asarray(lines + count * self._lines(number, operand, width * _width(operand)), np.float32)
        return loads, lines

    def _stores(self, each: Vector) -> Vector:
        """Lines that a warp touches with the stores of an item."""
        number, operand = next((n, o) for n, o in enumerate(self.c.operands) if o.is_output)
        contiguous = self.known["access:out"] == CONTIGUOUS
        width = np.where(contiguous, self.lane, ONE)
        lines = self._lines(number, operand, width * _width(operand)) * np.where(contiguous, ONE, self.lane)
        return np.asarray(each / self.cover.volume("chunk", "reduce") / self.lane * lines, np.float32)

    def _staged(self) -> Vector:
        """Elements that an item copies to local memory, in all panels."""
        found = np.zeros(1, np.float32)
        for number, operand in self.inputs:
            if operand.dims:
                found = found + floats(self.c.in_memory("local", number)) * self._span(operand)
        return np.asarray(found * np.exp2(self.known["panels"]) / np.maximum(self.items, 1), np.float32)

    def _fetched(self) -> Vector:
        """Bytes of inputs that a group reads in all panels, each once."""
        reach = {axis: np.full(1, item.extent, np.float32) for axis, item in enumerate(self.c.axes)}
        tiles = self.cover.levels["block"]
        reach |= {axis: np.where(self.c.inside[axis], reach[axis], tiles[axis]) for axis in self.c.tiles}
        for axis, count in self._neighbours(self.items):
            reach[axis] = np.asarray(reach[axis] * count, np.float32)
        found: list[Vector] = []
        for _, operand in self.inputs:
            if operand.dims:
                elements = _elements(operand, reach, _spans(operand, reach))
                whole = np.float32(np.prod(operand.shape, dtype=np.float64))
                found.append(np.minimum(elements, whole) * _width(operand))
        return np.asarray(sum(found, start=np.zeros(1, np.float32)), np.float32)

    def _span(self, operand: Operand) -> Vector:
        """Elements of the box that a group copies of an operand for one panel, gaps between parts included."""
        return product(_spans(operand, self.box))

    def _images(self) -> tuple[Vector, Vector]:
        """Inputs in images, and the bytes of those that a kernel computes, which each call has to make images of."""
        count, converted = np.zeros(1, np.float32), np.zeros(1, np.float32)
        for number, operand in self.inputs:
            here = floats(self.c.in_memory("image", number))
            size = np.float32(np.prod(operand.shape, dtype=np.float64)) * _width(operand)
            count = count + here
            converted = converted + here * size * floats(self.c.staged(number)) * (not operand.is_packed_by_caller)
        return count, np.asarray(converted, np.float32)

    # ---------------------------------------------------------------- lines

    def _lines(self, number: int, operand: Operand, width: Vector) -> Vector:
        """Lines that a warp touches with one load or store of `width` bytes of each of its items."""
        if not operand.dims:
            return ONE
        chosen, result = self.c.layout(number), np.ones(1, np.float32)
        local = self.c.in_memory("local", number) if not operand.is_output else np.zeros(1, bool)
        for index, layout in enumerate(self.c.layouts(number)):
            order = layout.order(operand, self.cover.levels["reg"])
            found = np.where(local, self._banks(operand, order, width), self._spread(operand, order, width))
            result = np.where(chosen == index, found, result)
        return np.asarray(result, np.float32)

    def _spread(self, operand: Operand, order: Sequence[Dim], width: Vector) -> Vector:
        """Lines of global memory: neighbours nearer than a sector share it, others have one each."""
        shape = [np.full(1, extent, np.float32) for extent in operand.shape]
        spread = width
        for axis, count in self._in_warp:
            apart = self._apart(operand, order, axis, shape) * _width(operand)
            beside, alone = (count - 1) * apart + spread, count * np.maximum(spread, SECTOR_BYTES)
            near = np.where((apart < SECTOR_BYTES) | (apart <= spread), beside, alone)
            spread = np.asarray(np.where(apart > 0, near, spread), np.float32)
        return np.asarray(np.maximum(spread / self.target.line_bytes, ONE), np.float32)

    def _banks(self, operand: Operand, order: Sequence[Dim], width: Vector) -> Vector:
        """Steps of an access to local memory: items that read different elements of one bank take turns."""
        box, warp, found = _spans(operand, self.box), self.target.warp, ONE
        for axis, count in self._in_warp:
            apart = self._apart(operand, order, axis, box) * _width(operand)
            shared = np.gcd(np.maximum(apart / BANK_BYTES, 1).astype(np.int64), warp).astype(np.float32)
            steps = np.maximum(count * width / self.target.line_bytes, count * shared / warp)
            found = np.asarray(np.maximum(found, np.where(apart > 0, steps, ONE)), np.float32)
        return found

    @cached_property
    def _in_warp(self) -> list[tuple[int, Vector]]:
        """The axes along which the items of a warp lie, nearest first, and how many lie along each."""
        return self._neighbours(self.warp)

    def _neighbours(self, left: Vector) -> list[tuple[int, Vector]]:
        """The axes along which so many items of a group lie, nearest first, and how many lie along each.

        In a grid those along x are next to each other; in a run of the shared loops, those of the innermost of them.
        """
        grid = self.c.group("x") > 0
        found: list[tuple[int, Vector]] = []

        def take(axis: int, here: NDArray[np.bool_], count: Vector) -> None:
            nonlocal left
            along = np.asarray(np.where(here, np.minimum(count, left), ONE), np.float32)
            found.append((axis, along))
            left = np.asarray(np.maximum(left / along, ONE), np.float32)

        for axis, side in self._sides():
            take(axis, grid, side)
        for place in reversed(range(len(self.c.position))):
            for axis, at in self.c.position.items():
                take(axis, ~grid & (at == place) & ~self.c.inside[axis], floats(self.c.tiles[axis]))
        return found

    def _apart(self, operand: Operand, order: Sequence[Dim], axis: int, shape: Sequence[Vector]) -> Vector:
        """Elements between what neighbouring items along an axis read, in a memory of logical extents `shape`."""
        if all(a != axis for terms in operand.dims for a, _ in terms):
            return np.zeros(1, np.float32)
        step = self.cover.levels["reg"][axis] * floats(self.c.block[axis])
        distance, stride = np.zeros(1, np.float32), ONE
        for dim in reversed(order):
            moved = np.float32(sum(abs(k) for a, k in operand.dims[dim.dim] if a == axis)) * step
            size, cut = shape[dim.dim], np.asarray(dim.step, np.float32)
            if dim.part == "block":
                moved, size = np.floor(moved / cut), np.ceil(size / cut)
            elif dim.part == "inner":
                moved, size = moved % cut, np.minimum(size, cut)
            elif dim.part == "pitched":
                size = size + cut
            distance = np.asarray(distance + moved * stride, np.float32)
            stride = np.asarray(stride * np.maximum(size, ONE), np.float32)
        return distance


def _spans(operand: Operand, reach: Mapping[int, Vector]) -> list[Vector]:
    """How many indices lie from the first to the last that `reach` points of each axis touch, by dimension."""
    return [
        np.asarray(sum((abs(k) * (reach[axis] - ONE) for axis, k in terms), start=ONE), np.float32)
        for terms in operand.dims
    ]


def _elements(operand: Operand, reach: Mapping[int, Vector] | Sequence[Vector], spans: Sequence[Vector]) -> Vector:
    """How many elements are read by `reach` points along each axis, whose indices lie within `spans`, by dimension.

    At most the product of the points, fewer than the span where the points leave gaps: 2 parts of a reduction of
    3 points each read 6 elements, however far they lie apart.
    """
    found = ONE
    for terms, span in zip(operand.dims, spans, strict=True):
        found = found * np.minimum(product([reach[axis] for axis, _ in terms]), span)
    return np.asarray(found, np.float32)


def _width(operand: Operand) -> np.float32:
    """Bytes of an element."""
    return np.float32(dtypes.bits(operand.dtype) / 8)
