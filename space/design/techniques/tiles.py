"""The register tile: vectors along one axis, rows along another, a few points along others, unrolled reductions.

A reduction accumulates in a local buffer of the tile's size, whose constant indices let it live in registers, and the
epilogue or a copy takes the result out at the end of each tile.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....ir import dtypes
from ...schedule import Schedule
from ..candidates import Bools, Candidates, Ints
from ..decision import OVERCOMPUTE, PEEL, Collector
from ..plan import Plan, one
from ..program import Anchor
from ..structure import Site
from . import factored, fused_rows, panels
from .technique import Phase, Technique, Verdicts
from .vector_width import device_tiles, team_tiles

VECTORS = (1, 2, 3, 4, 6, 8)
ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 28)
SIDE_ROWS = (1, 2, 3, 4)
UNROLLS = (1, 2, 4, 8)
WARP_ROWS, WARP_SIDE_ROWS = (1, 2, 3, 4, 5, 6, 7, 8), (1, 2, 4)
"""The same on a device that runs work-items in step, each of which has a small tile."""
MAX_STATEMENTS = {"cpu": 1024, "opencl": 512}
MAX_POINTS = 512
"""Multiply-adds in the code of a tile on a device that runs work-items in step, which has no vectors of its own."""
PRESSURE = 2.0
"""Accumulators that a candidate may have, as a multiple of the registers."""
WARP_WORDS = 96
"""Accumulators of 32 bits that a work-item may have on a device that runs items in step: the fewer registers it needs,
the more items hide each other's waiting."""


def _opens(site: Site, out: Collector) -> None:
    for axis, item in enumerate(site.anchor.axes):
        if item.extent == 1 and axis != site.structure.vec:
            continue
        name = item.name
        if axis == site.structure.vec and site.target.kind == "cpu":
            pairs = vector_shapes(item.extent, site.lanes, site.structure.factored)
            if _is_cut(site.anchor, axis):
                pairs = [(v, lane) for v, lane in pairs if item.extent % (v * lane) == 0]
            table = {
                f"tile:{name}:lane": [lane for _, lane in pairs],
                f"tile:{name}:reg": [v * lane for v, lane in pairs],
            }
            out.add("tile", axis, f"tile:{name}", "tile", pairs, [f"{v}x{lane}" for v, lane in pairs], table)
            continue
        if axis == site.structure.vec and site.structure.subgroup:
            sizes = team_tiles(item.extent, site.target)
        elif axis == site.structure.vec:
            sizes = device_tiles(item.extent, site.lanes, site.structure.factored, site.target)
        elif item.kind == "reduce":
            # Powers of two, and a short reduction whole.
            sizes = [u for u in UNROLLS if u <= item.extent]
            if 1 < item.extent <= 11 and item.extent not in sizes:
                sizes.append(item.extent)
            if axis == site.structure.dot:  # whole words, of which a short reduction fills a part
                steps = site.anchor.dot_steps
                sizes = [size for size in sizes if size % steps == 0] or [steps]
        else:
            rows, sides = (WARP_ROWS, WARP_SIDE_ROWS) if site.target.warp > 1 else (ROWS, SIDE_ROWS)
            sizes = [t for t in (rows if axis == site.structure.row else sides) if t <= item.extent]
        out.add("tile", axis, f"tile:{name}", "tile", sizes, [str(t) for t in sizes], {f"tile:{name}:reg": sizes})


def _is_cut(anchor: Anchor, axis: int) -> bool:
    """Whether the anchor has a part of the points of a dimension: vectors that the next part shares would be none's."""
    dim = anchor.output.own_dim(axis)
    return dim is not None and anchor.output.shape[dim] != anchor.axes[axis].extent


def vector_shapes(extent: int, lanes: int, factored: bool) -> list[tuple[int, int]]:
    """``(vectors, lanes)`` whose product does not exceed the extent rounded up to one vector.

    A reduction that is factored has two parts or more, each of which sums: there it is less than the extent.
    """
    limit = extent - 1 if factored else -(-extent // lanes) * lanes
    found = [(v, lanes) for v in VECTORS if v * lanes <= limit and (v * lanes > 1 or not factored)]
    half = lanes // 2
    if half > 1:
        found += [(v, half) for v in (1, 3) if v * half <= max(extent, half)]
    return found or [(1, 1)]


def _excludes(c: Candidates) -> Verdicts:
    yield "registers", _registers(c)


def _registers(c: Candidates) -> Bools:
    """The accumulators fit the registers up to a factor, and the emitted statements stay few."""
    vec = c.structure.vec
    vectors = statements = -(-c.cover[vec] // c.lane)
    for axis, sizes in enumerate(c.cover):
        if axis == vec:
            continue
        statements = statements * sizes
        if c.axes[axis].kind == "spatial":
            vectors = vectors * sizes
    statements = statements * _versions(c)
    most = MAX_STATEMENTS[c.target.kind]
    if c.target.warp > 1:
        statements, most = statements * c.lane, MAX_POINTS
    if not c.anchor.reduce:
        return np.asarray(statements <= most // 8)
    if c.target.warp > 1:
        held = vectors * c.lane * max(dtypes.bits(c.anchor.output.dtype) // 32, 1) <= WARP_WORDS
    else:
        wide = np.maximum(c.lane // c.target.vector_lanes(c.anchor.output.dtype), 1)
        held = vectors * wide <= PRESSURE * c.target.registers
    return np.asarray((statements <= most) & held)


def _versions(c: Candidates) -> Ints:
    """How often the tile is written out: twice for each ragged edge that is peeled off, or that cuts vectors."""
    result: Ints = np.ones(1, np.int64)
    for axis in c.part.of("boundary"):
        how = c.boundary[axis]
        twice = c.ragged[axis] & ((how == PEEL) | ((how != OVERCOMPUTE) & (axis == c.structure.vec)))
        result = np.where(twice, 2 * result, result)
    return result


def _tile(plan: Plan) -> None:
    """Split each axis into ``outer | block of tiles | tile``."""
    vec = plan.structure.vec
    spatial = [a for a in plan.anchor.spatial if a in plan.part.of("tile")]
    for axis in spatial:
        if plan.fused and axis == plan.fused[0]:
            continue
        size, count = plan.cover(axis), one(plan.chosen.block[axis])
        if axis != vec and size == count == 1:
            plan.outer_of[axis] = plan.loops[axis]
            continue
        block = [count] if count > 1 else []
        inner = plan.vector_shape() if axis == vec else [size]
        plan.outer_of[axis], *within = plan.sch.split(plan.loops[axis], [None, *block, *inner])
        plan.block_loops += within[: len(block)]
        plan.tile_loops[axis] = within[len(block) :]
        if axis == vec:
            plan.vectors, plan.lanes = within[-2:-1], within[-1:]
        else:
            plan.rows += within[-1:]
    _tile_reductions(plan)


def _tile_reductions(plan: Plan) -> None:
    """Split the reductions into what is unrolled inside the tile and the rest."""
    first = [a for a in plan.anchor.reduce if plan.axes[a].extent == 1]
    place = plan.chosen.reduce_position
    for axis in [*first, *sorted(place, key=lambda a: one(place[a]))]:
        loop, size = plan.loops[axis], plan.cover(axis)
        if plan.factored and axis == plan.structure.vec:
            continue
        if size == 1:
            plan.reduce_outer.append(loop)
        elif size == plan.axes[axis].extent:
            plan.reduce_inner.append(loop)
        else:
            rest, inner = plan.sch.split(loop, [None, size])
            plan.reduce_outer.append(rest)
            plan.reduce_inner.append(inner)
            plan.tile_loops[axis] = [inner]


def _accumulate(plan: Plan) -> None:
    """Accumulate in a local tile; the epilogue, or a copy, takes the result out at the end of each tile."""
    if not plan.anchor.reduce or plan.factored:
        return
    sch = plan.sch
    if plan.panel_loop:
        sch.set_scope(plan.block, 0, "local")
        plan.copy = plan.anchor.block
        if panels.scatters(plan):
            plan.exit = sch.cache_write(plan.copy, 0, "global")
    elif plan.anchor.epilogue:
        sch.set_scope(plan.block, 0, "local")
        plan.copy = plan.anchor.epilogue
    else:
        plan.copy = sch.cache_write(plan.block, 0, "local")
    fused_rows.fuse_results(plan)
    if plan.outer:
        sch.reverse_compute_at(plan.copy, plan.outer[-1])
    if plan.panel_loop:
        plan.sum_init = sch.decompose_reduction(plan.copy, plan.panel_loop)
    sch.transform_layout(plan.block, ["write", 0], plan.tile_layout(plan.block, *plan.result_shape()))


def _vectorize_tile(plan: Plan) -> None:
    """Unroll and vectorize the loops of the tile, in the computation, its init and the way out."""
    sch = plan.sch
    for loop in [*plan.reduce_inner, *plan.rows, *plan.vectors]:
        sch.unroll(loop)
    _vectorize(sch, plan.lanes, plan.lane())
    if plan.init:
        for loop in [*plan.rows, *plan.vectors]:
            sch.unroll(f"{loop}_init")
        _vectorize(sch, [f"{loop}_init" for loop in plan.lanes], plan.lane())
    if plan.sums:
        factored.unroll_sums(plan)
        return
    for block in (plan.copy, plan.sum_init):
        if block:
            _way_out(plan, block)


def _vectorize(sch: Schedule, loops: Sequence[str], lane: int) -> None:
    for loop in loops:
        if lane > 1:
            sch.vectorize(loop)


def _way_out(plan: Plan, block: str) -> None:
    """Unroll the copy out of the tile, so that its indices are constants; vectorize where the result is contiguous."""
    sch = plan.sch
    shape, vec_dim = plan.loops_over_result()
    rest = list(sch.get_loops(block)[-len(shape) :])
    contiguous = panels.scatters(plan) or plan.anchor.output.stride(plan.structure.vec) == 1
    if contiguous and plan.lane() > 1:
        after = [size for size in shape[vec_dim + 1 :] if size > 1 or not plan.fused]
        loop = rest.pop(len(rest) - 1 - len(after))
        vectors, lanes = sch.split(loop, [None, plan.lane()])
        sch.reorder(*rest, vectors, lanes)
        rest.append(vectors)
        sch.vectorize(lanes)
        plan.out_lanes.append(lanes)
    for loop in rest:
        sch.unroll(loop)


TILES = Technique(
    ("tile",), opens=_opens, excludes=_excludes,
    applies={Phase.TILE: _tile, Phase.ACCUMULATE: _accumulate, Phase.VECTORIZE: _vectorize_tile},
)  # fmt: skip
