"""Blocking of a reduction over the caches: panels.

A long reduction streams its operands past every register tile: a panel of weights of 64 bytes by K steps
leaves the first cache as soon as K is more than a few hundred.  Cut in panels of P steps,

    C[s] = sum_k e(s, k)   ->   for q:  for tiles of s:  C[tile] += sum_{k < P} e(tile, q P + k)

what a panel touches stays close for all tiles inside its loop.  Where neighbours in a vector are no neighbours in the
result, panels are added up in a buffer in the order of the tile, and a copy scatters the sum when all are there.  In
primitives: split, `rfactor` of the outer part, its parts in registers, and the final sum moved after each tile
(`reverse_compute_at`), with its initialisation before the panels (Goto and van de Geijn, "Anatomy of high-performance
matrix multiplication", ACM TOMS 2008, blocks K for the same reason).

Tiles along a single axis share nothing that a cache would have to hold: of a product of a vector and a matrix, each
element of the matrix is read once.  There the panels decide in which order it is read.  A tile that runs through the
whole reduction takes a few lines of each row of the matrix, and the rows are far apart; tiles of a block that run
inside of a short panel read its few rows side by side, each as a stream.
"""

from __future__ import annotations

import numpy as np

from ....ir import dtypes
from ....ir.target import Target
from ..candidates import Bools, Candidates, Ints
from ..decision import Collector
from ..plan import Plan, one
from ..program import Anchor
from ..stages import schedule_inner_stage
from ..structure import Site
from .technique import Phase, Technique, Verdicts, most_scratch

SHORTEST, MOST = 4, 64  # steps of a panel, panels
STREAMS = 64  # steps of a panel whose rows are read side by side
CHOICES = 8


def _opens(site: Site, out: Collector) -> None:
    """The longest reduction, unless its parts are the vector's lanes.

    With a single axis of tiles a loop runs inside of a panel only where the tiles have blocks.
    """
    anchor = site.anchor
    axis = max(anchor.reduce, key=lambda a: anchor.axes[a].extent, default=None)
    if site.structure.factored or not anchor.op or axis is None:
        return
    name, extent = anchor.axes[axis].name, anchor.axes[axis].extent
    if len(site.wide) > 1:
        sizes = panel_sizes(extent)
    elif out.numbers.get("block"):
        sizes = stream_sizes(extent)
    else:
        return
    if len(sizes) > 1:
        labels = ["whole", *(str(size) for size in sizes[1:])]
        out.add("panel", axis, f"tile:{name}:panel", "tile", sizes, labels, {f"tile:{name}:panel": sizes})


def panel_sizes(extent: int) -> list[int]:
    """Steps of a panel: the whole reduction, and its divisors, so that every panel is as long."""
    parts = [n for n in range(2, MOST + 1) if extent % n == 0 and extent // n >= SHORTEST]
    return [extent, *(extent // n for n in parts)]


def stream_sizes(extent: int) -> list[int]:
    """Steps of a panel whose rows are streams: the whole reduction, and its divisors from 64 to 4.

    Of more than seven, seven are taken that are evenly spread among them, the ends included.
    """
    parts = [n for n in range(min(STREAMS, extent - 1), SHORTEST - 1, -1) if extent % n == 0]
    if len(parts) >= CHOICES:
        parts = [parts[k * (len(parts) - 1) // (CHOICES - 2)] for k in range(CHOICES - 1)]
    return [extent, *parts]


def sums_apart(anchor: Anchor, vec: int, target: Target) -> bool:
    """Whether panels are added up in a buffer of their own, in which the elements of a vector are neighbours."""
    return target.execution.has_vectors and not anchor.epilogue and anchor.output.stride(vec) != 1


def scatters(plan: Plan) -> bool:
    """Whether a copy scatters the sum of the panels when all of them are there.

    Not where a work-group has several items, for whose sums drivers have too little private memory, or where they load
    panels together.
    """
    apart = sums_apart(plan.anchor, plan.structure.vec, plan.target)
    alone = one(plan.chosen.items) == 1 and not one(plan.chosen.any_in_local_memory)
    return bool(plan.panel_loop) and apart and alone


def _excludes(c: Candidates) -> Verdicts:
    axis = c.panelled
    if axis is None:
        return
    whole = c.panel[axis] >= c.axes[axis].extent
    yield "panels", whole | ((c.panel[axis] % c.cover[axis] == 0) & _gains(c))
    if sums_apart(c.anchor, c.structure.vec, c.target):
        elsewhere = c.any_in_local_memory | (c.items > 1)
        yield "size of a sum inside", whole | elsewhere | (_sum_bytes(c) <= most_scratch(c.target))


def _sum_bytes(c: Candidates) -> Ints:
    """Bytes of the sum that a thread, or a work-item, keeps until all panels are added: whole tiles along each axis."""
    size: Ints = np.full(1, dtypes.nbytes(c.anchor.output.dtype), np.int64)
    for axis in c.anchor.spatial:
        extent, tile = c.axes[axis].extent, c.cover[axis]
        block = tile * c.block[axis] if axis in c.part.of("block") else tile
        inside = c.inside.get(axis, np.zeros(1, bool))
        size = size * np.where(inside, -(-extent // tile) * tile, np.minimum(block, -(-extent // tile) * tile))
    return size


def _gains(c: Candidates) -> Bools:
    """Whether some loop runs inside of a panel, or items share what it reads: else nothing is gained."""
    result = c.any_in_local_memory
    for axis, inside in c.inside.items():
        result = result | (inside & (c.axes[axis].extent > c.cover[axis]))
    for axis in c.part.of("block"):
        result = result | (c.block[axis] > 1)
    return result


def _cut(plan: Plan) -> None:
    """Reduce in panels, whose loop stands between the shared loops and the others."""
    axis = plan.chosen.panelled
    if axis is None:
        return
    size = int(plan.chosen.panel[axis][0])
    plan.parts = plan.axes[axis].extent // size
    if plan.parts > 1:
        plan.panel_loop, plan.loops[axis] = plan.sch.split(plan.loops[axis], [None, size])
        plan.block = plan.sch.rfactor(plan.panel_loop, 0)


def _finish(plan: Plan) -> None:
    """The epilogue, or the copy that scatters a sum, runs when all panels of a shared iteration are added."""
    if not plan.panel_loop or not plan.exit:
        return
    plan.sch.reverse_compute_at(plan.exit, plan.place_inside)
    if scatters(plan):
        plan.sch.transform_layout(plan.copy, ["write", 0], plan.tile_layout(plan.copy, *plan.sum_shape()))
    schedule_inner_stage(plan.sch, plan.exit, plan.place_inside, plan.target)


PANELS = Technique(
    ("panel",), opens=_opens, excludes=_excludes, applies={Phase.CUT: _cut, Phase.FINISH: _finish}
)  # fmt: skip
