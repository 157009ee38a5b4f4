"""The register tile: where a reduction accumulates, what happens at its edges, and how its result gets out."""

from __future__ import annotations

from collections.abc import Sequence

from ..schedule import Schedule
from .decision import OVERCOMPUTE, PEEL
from .fused_rows import fuse_result
from .parts import unroll_sums
from .plan import Plan
from .stages import schedule_inner_stage


def register_tile(plan: Plan) -> None:
    """Accumulate in a local tile; the epilogue, or a copy, takes the result out at the end of each tile."""
    sch = plan.sch
    if plan.panel_loop:
        sch.set_scope(plan.block, 0, "local")
        plan.copy = plan.anchor.block
        if plan.scatters:
            plan.exit = sch.cache_write(plan.copy, 0, "global")
    elif plan.anchor.epilogue:
        sch.set_scope(plan.block, 0, "local")
        plan.copy = plan.anchor.epilogue
    else:
        plan.copy = sch.cache_write(plan.block, 0, "local")
    if plan.fused:
        high, low = plan.fused_dims
        first = 1 if plan.panel_loop else 0
        width = plan.anchor.axes[plan.fused[1]].extent
        fuse_result(sch, plan.block, plan.copy, (high + first, low + first), width)
        if plan.panel_loop and plan.exit:
            fuse_result(sch, plan.copy, plan.exit, (high, low), width)
    if plan.outer:
        sch.reverse_compute_at(plan.copy, plan.outer[-1])
    if plan.panel_loop:
        plan.sum_init = sch.decompose_reduction(plan.copy, plan.panel_loop)
    text, shape = _tile_layout(plan, *_result_shape(plan))
    sch.transform_layout(plan.block, ["write", 0], text, "undef", physical_shape=shape)


def finish_panels(plan: Plan) -> None:
    """The epilogue, or the copy that scatters a sum, runs when all panels of a shared iteration are added."""
    if not plan.panel_loop or not plan.exit:
        return
    plan.sch.reverse_compute_at(plan.exit, plan.place_inside)
    if plan.scatters:
        text, shape = _tile_layout(plan, *_sum_shape(plan))
        plan.sch.transform_layout(plan.copy, ["write", 0], text, "undef", physical_shape=shape)
    schedule_inner_stage(plan.sch, plan.exit, plan.place_inside, plan.target)


def _result_shape(plan: Plan) -> tuple[list[int], int]:
    """Extents of the tiled block's result, rounded where it is computed over, and the dimension of the vector axis."""
    shape, dim = _sum_shape(plan)
    return ([plan.parts, *shape], dim + 1) if plan.panel_loop else (shape, dim)


def _sum_shape(plan: Plan) -> tuple[list[int], int]:
    """The same of the sum of its panels."""
    shape = plan.rounded_shape()
    dim = plan.anchor.output.plain_dim(plan.part.structure.vec)
    assert dim is not None
    if plan.fused:
        high, low = plan.fused_dims
        shape[high] = plan.computed(plan.fused[1])
        del shape[low]
        dim -= dim > low
    return shape, dim


def _tile_layout(plan: Plan, shape: list[int], vec_dim: int) -> tuple[str, tuple[int, ...]]:
    """``[i // T, ..., i % T]`` for the vector axis, so that the tile's vectors are contiguous."""
    tile = plan.cover(plan.part.structure.vec)
    names = [f"d{k}" for k in range(len(shape))]
    rest = [k for k in range(len(shape)) if k != vec_dim]
    parts = [f"{names[vec_dim]} // {tile}", *(names[k] for k in rest), f"{names[vec_dim]} % {tile}"]
    physical = (-(-shape[vec_dim] // tile), *(shape[k] for k in rest), tile)
    return f"lambda {', '.join(names)}: [{', '.join(parts)}]", physical


def settle_edges(plan: Plan) -> None:
    """Separate the initialisation; then remove, mark or keep the condition of each ragged axis."""
    sch = plan.sch
    first = (plan.reduce_outer + plan.reduce_inner)[0]
    plan.init = sch.decompose_reduction(plan.block, first)
    for axis in range(len(plan.anchor.axes)):
        if plan.boundary(axis) != OVERCOMPUTE:
            continue
        over = plan.tile_loops[axis]
        if plan.anchor.axes[axis].kind == "spatial":
            init_loops = [f"{loop}_init" for loop in over]
            sch.remove_branching_through_overcompute(plan.init, loops=init_loops)
        sch.remove_branching_through_overcompute(plan.block, loops=over)


def vectorize_tile(plan: Plan) -> None:
    """Unroll and vectorize the loops of the tile, in the computation, its init and the way out; mark peeled edges."""
    sch = plan.sch
    peeled = {
        loop
        for axis in range(len(plan.anchor.axes))
        if plan.boundary(axis) == PEEL
        for loop in plan.tile_loops.get(axis, [])
    }
    for loop in [*plan.reduce_inner, *plan.rows, *plan.vectors]:
        sch.unroll(loop)
    _vectorize(sch, plan.lanes, plan.lane())
    if plan.init:
        inside = [f"{loop}_init" for loop in [*plan.rows, *plan.vectors]]
        for loop in inside:
            sch.unroll(loop)
        _vectorize(sch, [f"{loop}_init" for loop in plan.lanes], plan.lane())
        peeled |= {f"{loop}_init" for loop in peeled if f"{loop}_init" in sch.get_loops(plan.init)}
    if plan.sums:
        unroll_sums(plan)
    else:
        for block in (plan.copy, plan.sum_init):
            if block:
                _way_out(plan, block)
    for loop in sorted(peeled):
        sch.annotate(loop, "peel", True)


def _vectorize(sch: Schedule, loops: Sequence[str], lane: int) -> None:
    for loop in loops:
        if lane > 1:
            sch.vectorize(loop)


def _way_out(plan: Plan, block: str) -> None:
    """Unroll the copy out of the tile, so that its indices are constants; vectorize where the result is contiguous."""
    sch = plan.sch
    shape, vec_dim = _result_shape(plan)
    inner = sch.get_loops(block)[-len(shape) :]
    contiguous = plan.scatters or plan.anchor.output.stride(plan.part.structure.vec) == 1
    rest = list(inner)
    if contiguous and plan.lane() > 1:
        after = [size for size in shape[vec_dim + 1 :] if size > 1 or not plan.fused]
        loop = rest.pop(len(rest) - 1 - len(after))
        vectors, lanes = sch.split(loop, [None, plan.lane()])
        sch.reorder(*rest, vectors, lanes)
        rest.append(vectors)
        sch.vectorize(lanes)
    for loop in rest:
        sch.unroll(loop)
