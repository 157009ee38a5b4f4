"""Vectors of an OpenCL device: how many lanes they have is a decision beside the extent of the register tile.

Of a reduction in subgroups it is how many items these have.
"""

from __future__ import annotations

from ....ir import dtypes
from ....ir.target import Target
from ..candidates import Candidates
from ..decision import Collector
from ..structure import Site
from .technique import Technique, Verdicts

WIDTHS = (1, 2, 4, 8, 16)
TILE_VECTORS = (1, 2, 3, 4, 6, 8)
MOST_OF_AN_ITEM = 16
"""Points along the vector axis of a work-item's tile on a device that runs items in step."""
TEAM_VECTORS = (1, 2, 4)
"""Sums that each item of a subgroup has of its own, so that one does not wait for the other."""


def device_tiles(extent: int, lanes: int, factored: bool, target: Target) -> list[int]:
    """Extents of the register tile along the vector axis, whose lanes are a decision of their own.

    At most the axis's extent, rounded up to a native vector of `lanes`; of a reduction in parts less than the extent,
    and more than one.
    """
    limit = extent - 1 if factored else -(-extent // lanes) * lanes
    half = max(1, lanes // 2)
    found = {v * lanes for v in TILE_VECTORS if v * lanes <= limit}
    found |= {v * half for v in (1, 3) if v * half <= max(extent, half)}
    if not target.execution.has_vectors:
        found |= {t for t in (1, 2) if t <= extent}
    if target.warp > 1:
        found = {t for t in found if t <= MOST_OF_AN_ITEM}
    return sorted(t for t in found if t > 1 or not factored)


def team_tiles(extent: int, target: Target) -> list[int]:
    """Extents of the register tile along a reduction in subgroups, less than that of the axis."""
    return sorted({v * size for v in TEAM_VECTORS for size in target.subgroup_sizes if v * size < extent})


def widths(extent: int, target: Target, dtype: str) -> list[int]:
    """Vector widths for an axis: those about the native one on a CPU device, all up to twice it elsewhere."""
    native = target.vector_lanes(dtype)
    most = min(2 * native, target.max_vector_bits // dtypes.bits(dtype))
    lowest = max(1, native // 2) if target.execution.has_vectors else 1
    found = [w for w in WIDTHS if lowest <= w <= most and w < 2 * extent]
    return found or [1]


def _opens(site: Site, out: Collector) -> None:
    if site.target.kind != "opencl":
        return
    vec = site.structure.vec
    axis = site.anchor.axes[vec]
    sizes = [size for size in site.target.subgroup_sizes if size < axis.extent]
    values = sizes if site.structure.subgroup else widths(axis.extent, site.target, site.anchor.output.dtype)
    table = {f"tile:{axis.name}:lane": values}
    out.add("vector", vec, f"vector:{axis.name}", "vector", values, [str(v) for v in values], table)


def _excludes(c: Candidates) -> Verdicts:
    if c.part.of("vector"):
        yield "vector width", c.cover[c.structure.vec] % c.lane == 0


VECTOR_WIDTH = Technique(("vector",), opens=_opens, excludes=_excludes)
