"""Blocks of tiles: neighbouring tiles along an axis follow each other in a loop of their own.

It is the row axis.  A reduction without one has long blocks along its vectors on a CPU, where a thread's share of the
columns can be a single block, around which panels run.
"""

from __future__ import annotations

from ..candidates import Candidates
from ..decision import Collector
from ..structure import Site
from .technique import Technique, Verdicts
from .tiles import vector_shapes

BLOCKS = (1, 2, 4, 8, 16)
STRIPS = (*BLOCKS, 32, 64, 128)


def _opens(site: Site, out: Collector) -> None:
    if site.target.warp > 1:  # there, neighbouring tiles are those of neighbouring work-items
        return
    axis, smallest = site.structure.row, 1
    sizes: tuple[int, ...] = BLOCKS
    if axis is None:
        if not site.target.execution.work_items_share_a_thread or site.structure.factored or not site.anchor.op:
            return
        axis, sizes = site.structure.vec, STRIPS
        shapes = vector_shapes(site.anchor.axes[axis].extent, site.lanes, site.structure.factored)
        smallest = min(v * lane for v, lane in shapes)
    name, extent = site.anchor.axes[axis].name, site.anchor.axes[axis].extent
    if extent < 2 * BLOCKS[1] * smallest:
        return
    values = [b for b in sizes if b * smallest <= extent]
    labels = [str(v) for v in values]
    out.add("block", axis, f"tile:{name}:block", "tile", values, labels, {f"tile:{name}:block": values})


def _excludes(c: Candidates) -> Verdicts:
    """A block of tiles divides the number of tiles, so that no tile is computed in vain."""
    for axis in c.part.of("block"):
        yield "block of tiles", -(-c.extent[axis] // c.cover[axis]) % c.block[axis] == 0


BLOCKS_OF_TILES = Technique(("block",), opens=_opens, excludes=_excludes)
