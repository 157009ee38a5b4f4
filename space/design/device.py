"""Decisions that an OpenCL device adds: vector width, the shape of a work-group, texture memory, local memory.

A work-group is either *linear*, a run of so many iterations of the fused shared loops, or a *grid*: ``x`` tiles
along the vector axis and ``y`` along the row axis, so that what its items read is a box.  That box is what
*local memory* holds, loaded by all items together.  *Texture memory* holds an input as an image of texels, four
elements along the last physical axis.

Each is offered where the device has it at all; what depends on other decisions is masked (`device_feasible`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...ir import dtypes
from ...ir.target import Target
from .decision import Collector

if TYPE_CHECKING:
    from .anatomy import Anchor, Operand
    from .structure import Structure

RUNS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SIDES = (1, 2, 3, 4, 7, 8, 16, 32)
CPU_ITEMS = 32
"""Work-items of a group on a CPU device, which runs them one after the other."""
WIDTHS = (1, 2, 4, 8, 16)
TILE_VECTORS = (1, 2, 3, 4, 6, 8)
TEXEL = 4


@dataclass(frozen=True)
class Group:
    """A work-group: `items` iterations of the fused shared loops, or a grid of ``x * y`` tiles where `x` is not 0."""

    items: int
    x: int = 0
    y: int = 0

    @property
    def is_grid(self) -> bool:
        return self.x > 0

    @property
    def label(self) -> str:
        return f"{self.x}x{self.y}" if self.is_grid else str(self.items)


@dataclass(frozen=True)
class Device:
    """The device's decisions of one anchor; values index `Open.decisions`, keys of the maps number operands."""

    vector: int | None = None
    work_group: int | None = None
    image: Mapping[int, int] = field(default_factory=dict)
    local: Mapping[int, int] = field(default_factory=dict)


def device_decisions(out: Collector, anchor: Anchor, structure: Structure, target: Target) -> Device:
    """The decisions of an anchor in a structure that its target adds; none for a CPU."""
    if target.kind != "opencl":
        return Device()
    group = _work_group(out, anchor, structure, target)
    textures = [n for n, o in enumerate(anchor.operands) if _may_be_image(o, target)]
    image = {n: _memory(out, f"image:{anchor.operands[n].name}", ("buffer", "image2d")) for n in textures}
    shared = [
        n for n, o in enumerate(anchor.operands) if group is not None and _may_be_local(anchor, o, structure, target)
    ]
    local = {n: _memory(out, f"local:{anchor.operands[n].name}", ("global", "local")) for n in shared}
    return Device(_vector(out, anchor, structure, target), group, image, local)


def device_tiles(extent: int, lanes: int, factored: bool, target: Target) -> list[int]:
    """Extents of the register tile along the vector axis, whose lanes are a decision of their own.

    At most the axis's extent, rounded up to a native vector of `lanes`; of a reduction in parts less than the extent,
    and more than one.
    """
    limit = extent - 1 if factored else -(-extent // lanes) * lanes
    half = max(1, lanes // 2)
    found = {v * lanes for v in TILE_VECTORS if v * lanes <= limit}
    found |= {v * half for v in (1, 3) if v * half <= max(extent, half)}
    if not target.is_cpu_device:
        found |= {t for t in (1, 2) if t <= extent}
    return sorted(t for t in found if t > 1 or not factored)


def widths(extent: int, target: Target, dtype: str) -> list[int]:
    """Vector widths for an axis: those about the native one on a CPU device, all up to twice it elsewhere."""
    native = target.vector_lanes(dtype)
    lowest = max(1, native // 2) if target.is_cpu_device else 1
    found = [w for w in WIDTHS if lowest <= w <= 2 * native and w < 2 * extent]
    return found or [1]


def _vector(out: Collector, anchor: Anchor, structure: Structure, target: Target) -> int:
    """How many lanes a vector of the register tile has."""
    axis = anchor.axes[structure.vec]
    values = widths(axis.extent, target, anchor.output.dtype)
    key = f"tile:{axis.name}:lane"
    return out.add(f"vector:{axis.name}", "vector", values, [str(v) for v in values], {key: values})


def _work_group(out: Collector, anchor: Anchor, structure: Structure, target: Target) -> int | None:
    """Work-groups that the device takes: runs of the shared loops, and grids of tiles."""
    wide = [a for a in anchor.spatial if anchor.axes[a].extent > 1]
    if not wide:
        return None
    limit = min(target.max_work_group, CPU_ITEMS) if target.is_cpu_device else target.max_work_group
    groups = [Group(items) for items in RUNS if items <= limit]
    across = _sides(anchor, structure.vec if structure.vec in wide else None)
    along = _sides(anchor, structure.row)
    groups += [Group(x * y, x, y) for x in across for y in along if 1 < x * y <= limit]
    table: dict[str, Sequence[float]] = {
        "work_group": [g.items for g in groups],
        "group:x": [g.x for g in groups],
        "group:y": [g.y for g in groups],
    }
    return out.add("work_group", "work_group", groups, [g.label for g in groups], table)


def _sides(anchor: Anchor, axis: int | None) -> list[int]:
    return [1] if axis is None else [s for s in SIDES if s <= anchor.axes[axis].extent]


def _memory(out: Collector, name: str, labels: tuple[str, str]) -> int:
    return out.add(name, "memory", (False, True), labels, {name: (0, 1)})


def _may_be_image(operand: Operand, target: Target) -> bool:
    """An input whose layout is the search's, of a type and a rank that images have."""
    known = operand.source in ("constant", "free", "fixed", "stage") and len(operand.dims) > 1
    return not operand.is_output and known and operand.dtype in target.image_types.split()


def _may_be_local(anchor: Anchor, operand: Operand, structure: Structure, target: Target) -> bool:
    """An input of a reduction, read at known places, whose items hold parts of the result and not of the sum."""
    known = not operand.is_output and bool(operand.dims) and operand.source != "other"
    return known and bool(anchor.reduce) and not structure.factored and target.local_bytes > 0


def image_shape(shape: Sequence[int], target: Target) -> tuple[int, tuple[int, ...]] | None:
    """``(cut, extents)``: where the axis separator goes, and the shape with whole texels; None if no cut fits.

    The last extent is rounded up to whole texels.  Of the cuts that fit the device's largest image the last is
    taken, which gives the most rows.
    """
    extents = (*shape[:-1], -(-shape[-1] // TEXEL) * TEXEL)
    for cut in range(len(extents) - 1, 0, -1):
        rows, columns = 1, 1
        for extent in extents[:cut]:
            rows *= extent
        for extent in extents[cut:]:
            columns *= extent
        if rows <= target.image_height and columns // TEXEL <= target.image_width:
            return cut, extents
    return None


def element_bytes(operand: Operand) -> int:
    return dtypes.nbytes(operand.dtype)
